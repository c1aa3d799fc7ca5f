"""Sockets and TLS around conversation.intercept: the man in the middle."""
