"""Captures: files and interfaces -> packets -> TCP segments -> ordered bytes per connection.

What comes out are `kwsniff.model.Packet`, `Segment` and `Chunk`. Nothing here knows of Kafka.
"""
