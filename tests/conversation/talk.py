"""Builders for conversations: frames of Kafka messages, and the chunks that carry them."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from kwsniff import wire
from kwsniff.conversation.connection import Connection, Event, Shared
from kwsniff.model import Chunk, Endpoint, Exchange, Fault, Session

CLIENT = Endpoint("10.0.0.1", 50001)
BROKER = Endpoint("10.0.0.9", 9092)
MS = 1_000_000


def header_versions(api: int, version: int) -> tuple[int, int]:
    return wire.header_versions(api, version) if wire.request_of(api) else (1, 0)


def sized(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def request(
    api: int,
    version: int,
    correlation_id: int,
    body: dict[str, Any] | bytes = b"",
    client_id: str | None = "c",
) -> bytes:
    """A request with its size prefix. The header is built here, by hand, from the protocol guide."""
    name = client_id.encode() if client_id is not None else b""
    header = struct.pack(">hhih", api, version, correlation_id, -1 if client_id is None else len(name)) + name
    if header_versions(api, version)[0] == 2:
        header += b"\0"
    if isinstance(body, dict):
        message = wire.request_of(api)
        assert message is not None
        body = wire.encode(message.name, version, body)
    return sized(header + body)


def response(api: int, version: int, correlation_id: int, body: dict[str, Any] | bytes = b"") -> bytes:
    header = struct.pack(">i", correlation_id)
    if header_versions(api, version)[1] == 1:
        header += b"\0"
    if isinstance(body, dict):
        message = wire.response_of(api)
        assert message is not None
        body = wire.encode(message.name, version, body)
    return sized(header + body)


class Talk:
    """What both ends say, in the order of the capture: one chunk, one packet, one millisecond each."""

    def __init__(self, opened: bool = True, **shared: Any) -> None:
        self.shared = Shared(**shared)
        self.chunks: list[Chunk] = []
        if opened:
            self._add(CLIENT, BROKER, b"", opened=True)

    def client(self, *data: bytes, lost: int = 0) -> Talk:
        for part in data:
            self._add(CLIENT, BROKER, part, lost=lost)
        return self

    def broker(self, *data: bytes, lost: int = 0) -> Talk:
        for part in data:
            self._add(BROKER, CLIENT, part, lost=lost)
        return self

    def close(self) -> Talk:
        self._add(CLIENT, BROKER, b"", closed=True)
        self._add(BROKER, CLIENT, b"", closed=True)
        return self

    def events(self) -> list[Event]:
        return listen(self.chunks, self.shared)

    def exchanges(self) -> list[Exchange]:
        return [event for event in self.events() if isinstance(event, Exchange)]

    def faults(self) -> list[Fault]:
        return [event for event in self.events() if isinstance(event, Fault)]

    def session(self) -> Session:
        (found,) = [event for event in self.events() if isinstance(event, Session)]
        return found

    def _add(self, src: Endpoint, dst: Endpoint, data: bytes, **kwargs: Any) -> None:
        number = len(self.chunks) + 1
        self.chunks.append(Chunk(number * MS, src, dst, data, packet=number, **kwargs))


def listen(chunks: Iterable[Chunk], shared: Shared | None = None) -> list[Event]:
    """All events of one connection's chunks."""
    connection: Connection | None = None
    events: list[Event] = []
    for chunk in chunks:
        connection = connection or Connection(chunk, shared or Shared())
        events += connection.feed(chunk)
    assert connection is not None
    return events + list(connection.end())


def told(exchange: Exchange) -> tuple[Any, ...]:
    """An exchange without times and packets: what must not depend on how its bytes were cut."""
    sides = [
        frame and (frame.api, frame.version, frame.correlation_id, frame.client_id, frame.raw, frame.size)
        for frame in (exchange.request, exchange.response)
    ]
    return (*sides, exchange.outcome, exchange.peer)
