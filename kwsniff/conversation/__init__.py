"""Kafka over byte streams, sans-IO: chunks of a connection in, exchanges, faults and sessions out.

Nothing here opens a socket or a file or reads a clock; times come with the chunks. A capture file, a live
interface and a proxy's sockets all feed the same `connection.Connection`.
"""
