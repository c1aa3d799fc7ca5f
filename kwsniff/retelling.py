"""Exchanges -> packets of TCP connections that never were, with what is wanted of them, at the times wanted.

In: an `Edit`, and events of the reader. Out: packets into a pcapng file, and what was done (`Done`). Frames
are told in the order of time, each connection from its first frame that is kept. Memory is bounded: by frames
that wait for their turn, and by the connections that are open at a time. Opens no files.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from kwsniff.capture.pcapng_writer import PcapngWriter
from kwsniff.conversation.connection import Event
from kwsniff.errors import ConfigError
from kwsniff.model import ConnectionId, Endpoint, Exchange, Fault, Frame, Packet, Protocol, Session
from kwsniff.output import jsonl
from kwsniff.output.anonymise import Anonymiser, Unreadable
from kwsniff.output.blanking import SASL_HANDSHAKE, Blanker
from kwsniff.output.pseudonyms import Pseudonyms
from kwsniff.output.synthetic import Addresses, Conversation
from kwsniff.policy.expression import Expression
from kwsniff.reader import ReadOptions

_MOST_WAITING = 32 << 20
"""Bytes of frames that wait for their turn: past that the order of packets gives way."""
_LATEST = (1 << 64) - 1
_INCOMPLETE = "that are not whole"
_NAMELESS = "whose request or handshake is left out"

_Pair = tuple[str, int | None]
"""A host, and a port or any."""


@dataclass(frozen=True)
class Choice:
    """A connection that is wanted: its client, and perhaps its broker."""

    client: _Pair
    broker: _Pair | None = None

    def covers(self, conn: ConnectionId) -> bool:
        return _is(self.client, conn.client) and (self.broker is None or _is(self.broker, conn.broker))


def _is(wanted: _Pair, end: Endpoint) -> bool:
    return wanted[0] == end.host and wanted[1] in (None, end.port)


@dataclass(frozen=True)
class Timing:
    """What becomes of times. at: of the first packet, ns. speed: how many times faster. shift: ns, added."""

    at: int | None = None
    speed: Fraction = Fraction(1)
    shift: int = 0


@dataclass(frozen=True)
class Edit:
    """What is wanted. connections: none is all of them. names: None leaves names as they are."""

    options: ReadOptions = field(default_factory=ReadOptions)
    connections: tuple[Choice, ...] = ()
    condition: Expression | None = None
    names: Pseudonyms | None = None
    keep_secrets: bool = False
    timing: Timing = field(default_factory=Timing)

    def chosen(self, conn: ConnectionId) -> bool:
        return not self.connections or any(choice.covers(conn) for choice in self.connections)


@dataclass
class Done:
    """What was written. copied: the packets are those of the captures. faults: of what could not be read."""

    packets: int = 0
    copied: bool = False
    exchanges: int = 0
    connections: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """Frames, by what is to be said of them."""
    blanked: int = 0
    matched: bool = False
    """There is a connection that was wanted."""
    faults: list[Fault] = field(default_factory=list)


class Retimed:
    """Packets at their new times, into a file."""

    def __init__(self, writer: PcapngWriter, timing: Timing, done: Done) -> None:
        self._writer, self._timing, self._done = writer, timing, done
        self._first: int | None = None

    def write(self, packet: Packet) -> None:
        timing = self._timing
        if self._first is None:
            self._first = packet.ts
        base = self._first if timing.at is None else timing.at
        ts = base + int((packet.ts - self._first) / timing.speed) + timing.shift
        if not 0 <= ts <= _LATEST:
            raise ConfigError("the new times are out of range: those of packets go from 1970 to 2554")
        self._writer.write(Packet(ts, packet.linktype, packet.data, packet.wire_length, packet.comment))
        self._done.packets += 1


class _Connection:
    """One that is told again. opened: with the first frame that is written."""

    def __init__(self, wanted: Edit) -> None:
        self.blanker = Blanker()
        self.anonymiser = None if wanted.names is None else Anonymiser(wanted.names)
        self.handshake = False
        """Its SaslHandshake is told: without it bare tokens would look like anything."""
        self.conversation: Conversation | None = None


@dataclass(frozen=True)
class _Telling:
    """A frame to be written; without one, the connection's end, which may have been the capture's."""

    conn: ConnectionId
    frame: Frame | None = None
    raw: bytes = b""
    comment: str | None = None
    closed: bool = False


class Retold:
    """Exchanges -> packets of connections that never were, in the order of time."""

    def __init__(self, wanted: Edit, out: Retimed, done: Done) -> None:
        self._wanted, self._out, self._done = wanted, out, done
        self._addresses = Addresses()
        self._connections: dict[ConnectionId, _Connection] = {}
        self._waiting: list[tuple[int, int, _Telling]] = []
        self._held = self._number = 0

    def all(self, found: Iterable[Event]) -> None:
        """The events of the input, to the last."""
        for event in found:
            if isinstance(event, Fault):
                if event.conn is None:
                    self._done.faults.append(event)
            elif self._wanted.chosen(event.conn):
                self._done.matched = True
                self._write_before(event.ts if isinstance(event, Exchange) else event.last)
                self._session(event) if isinstance(event, Session) else self._exchange(event)
        self._write_before(None)

    def _session(self, session: Session) -> None:
        if session.conn in self._connections:
            ts = max(session.closed or 0, session.last)
            self._wait(ts, _Telling(session.conn, closed=session.closed is not None))

    def _exchange(self, exchange: Exchange) -> None:
        connection = self._connections.setdefault(exchange.conn, _Connection(self._wanted))
        condition = self._wanted.condition
        if condition is not None and not condition.matches(jsonl.line(exchange)):
            if (request := exchange.request) is not None and request.api == SASL_HANDSHAKE:
                self._told(connection, request, None)  # it says what secrets look like
            return
        tellings = list(self._tellings(connection, exchange))
        if not tellings:
            return
        self._done.exchanges += 1
        ts = 0
        for telling in tellings:
            assert telling.frame is not None
            ts = max(ts, telling.frame.ts)  # no answer before its request, though the clock went back
            self._wait(ts, telling)

    def _tellings(self, connection: _Connection, exchange: Exchange) -> Iterator[_Telling]:
        """Its frames as they are to be told: both, the request, or none."""
        frames = [frame for frame in (exchange.request, exchange.response) if frame is not None]
        told: list[_Telling] = []
        left_out: list[str] = []
        for frame in frames:
            if frame.protocol is Protocol.SASL and not connection.handshake:
                left_out.append(_NAMELESS)
                continue
            found = self._told(connection, frame, exchange.request)
            if isinstance(found, str):
                left_out.append(found)
            else:
                told.append(found)
        in_order = any(frame.protocol is not Protocol.KAFKA for frame in frames)  # nothing else pairs them
        if told and left_out and (in_order or told[0].frame is not exchange.request):
            left_out += [_NAMELESS] * len(told)
            told = []
        self._done.left_out.update(left_out)
        if told and exchange.request is not None and exchange.request.api == SASL_HANDSHAKE:
            connection.handshake = True
        yield from told

    def _told(self, connection: _Connection, frame: Frame, request: Frame | None) -> _Telling | str:
        """The frame as it is to be told, or why it is not."""
        if connection.anonymiser is not None:
            try:
                return _Telling(frame.conn, frame, connection.anonymiser.anonymised(frame, request))
            except Unreadable as error:
                return str(error)
        if frame.lost:
            return _INCOMPLETE
        raw, said = frame.raw, ""
        if not self._wanted.keep_secrets:
            raw, said = connection.blanker.blanked(frame, request)
        self._done.blanked += bool(said)
        return _Telling(frame.conn, frame, raw, f"kwsniff: {said}" if said else None)

    def _wait(self, ts: int, telling: _Telling) -> None:
        self._number += 1
        self._held += len(telling.raw)
        heapq.heappush(self._waiting, (ts, self._number, telling))
        while self._held > _MOST_WAITING:
            self._write_next()

    def _write_before(self, ts: int | None) -> None:
        """What none can come before any more; None: all."""
        while self._waiting and (ts is None or self._waiting[0][0] < ts):
            self._write_next()

    def _write_next(self) -> None:
        ts, _, telling = heapq.heappop(self._waiting)
        self._held -= len(telling.raw)
        for packet in self._packets(ts, telling):
            self._out.write(packet)

    def _packets(self, ts: int, telling: _Telling) -> Iterable[Packet]:
        connection = self._connections.setdefault(telling.conn, _Connection(self._wanted))
        frame, conversation = telling.frame, connection.conversation
        if frame is None:
            del self._connections[telling.conn]
            if conversation is not None and telling.closed:
                yield from conversation.close(ts)
            return
        if conversation is None:
            self._done.connections += 1
            conversation = Conversation(self._named(telling.conn), self._addresses, ts)
            connection.conversation = conversation
            yield from conversation.open(frame.ts)
        parts = (len(telling.raw).to_bytes(4, "big"), telling.raw)
        yield from conversation.send(frame.side, parts, frame.ts, frame.end, telling.comment)

    def _named(self, conn: ConnectionId) -> ConnectionId:
        names = self._wanted.names
        if names is None:
            return conn
        client, broker = (Endpoint(names.host(end.host), end.port) for end in (conn.client, conn.broker))
        return ConnectionId(client, broker, conn.session)
