"""TCP segments -> chunks: per connection and direction, the bytes in order, with what is missing counted.

Segments may come reordered, repeated, overlapping (the first copy wins), cut by a snaplen, or not at all, and
from the middle of a connection. A new SYN on a pair of endpoints is a new session. Memory is bounded by
`Limits`. Refuses to know what the bytes mean. No I/O, no clock: time is the segments' own.

Decisions:
- Without a handshake, a direction starts at the lowest byte seen until the peer's acknowledgement covers the
  first segment, or `START_HOLD` more segments of the connection were seen.
- A hole is lost when the receiver has acknowledged all of it and `Limits.hold` more segments were seen; or
  after `Limits.reorder_time`; or when too much is held; or when the connection or the input ends.
- A FIN takes effect at its position. A RST has none to rely on and waits for `Limits.hold` more segments.
- A segment more than `NEAR` (64 MiB) from its stream's position is a stray: of an earlier session, or forged.
  When `STRAYS` of them in a row agree, the stream has moved there: up to 1 GiB ahead (the largest window, RFC
  7323) all between is lost; otherwise how much is missing cannot be known, and a new session begins, without
  a handshake.
"""

from __future__ import annotations

from kwsniff.capture.pieces import Piece
from kwsniff.capture.state import ConnectionState
from kwsniff.capture.stream import MASK, NEAR, Limits, Mark, Stream, Tally
from kwsniff.model import Chunk, Endpoint, Flag, Segment

STRAYS = 8
_MAX_JUMP = 1 << 30
_HALF = 1 << 31
_NEVER = 1 << 100
_SYN, _RST, _FIN, _ACK = Flag.SYN, Flag.RST, Flag.FIN, Flag.ACK
_CONTROL = _SYN | _RST | _FIN | _ACK
_MAX_SYN_DATA = 0xFFFF
"""A SYN-ACK acknowledges the SYN, and with TCP Fast Open (RFC 7413) the data in it."""


class Connection(ConnectionState):
    """One session of a pair of endpoints."""

    __slots__ = ("held", "opened", "rst", "streams", "waiting")

    def __init__(self, src: Endpoint, dst: Endpoint, session: int, tally: Tally) -> None:
        self.session = session
        self.opened = False
        """Its handshake was seen."""
        self.done = False
        self.rst: Mark | None = None
        self.tick = 0
        self.last = 0
        self.slot = None
        self.waiting = False
        self.held = 0
        a, b = Stream(self, src, dst, tally), Stream(self, dst, src, tally)
        a.peer, b.peer = b, a
        self.streams = a, b

    @property
    def silent(self) -> bool:
        return not any(stream.started and stream.next & MASK != stream.origin for stream in self.streams)


class Reassembler:
    """The connections of one input. `tally` counts what happened to its segments."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.tally = Tally()
        self._limits = limits or Limits()
        self._streams: dict[tuple[Endpoint, Endpoint], Stream] = {}
        self._waiting: dict[Connection, int] = {}
        self._deadline = _NEVER
        self._held = 0
        self._ended: dict[Connection, None] = {}
        self._sessions: dict[int, int] = {}

    def feed(self, segment: Segment) -> list[Chunk]:
        """What the next segment in the capture makes deliverable, of this connection first of all."""
        tally = self.tally
        tally.segments += 1
        stream = self._streams.get((segment.src, segment.dst))
        if stream is None:
            return self._feed(segment, None)
        connection = stream.connection
        connection.tick += 1
        connection.last = tally.segments
        if not stream.plain or segment.flags & _CONTROL != _ACK or segment.cut or segment.ts > self._deadline:
            return self._feed(segment, stream)
        _acknowledge(stream.peer, segment.ack)
        payload = segment.payload
        if not payload:
            return []
        if segment.seq != stream.next & MASK:
            return self._feed(segment, stream)
        stream.next += len(payload)
        stream.strays = 0
        tally.delivered += len(payload)
        return [
            Chunk(
                segment.ts, stream.src, stream.dst, payload, packet=segment.packet, session=connection.session
            )
        ]

    def flush(self) -> list[Chunk]:
        """The input has ended: deliver what waits behind holes, and end what was reset."""
        out: list[Chunk] = []
        for connection in {stream.connection: None for stream in self._streams.values()}:
            for stream in connection.streams:
                stream.flush(out)
            if connection.rst and not connection.done:
                self._end(connection, connection.rst, out)
            self._settle(connection, 0)
        return out

    def successor(self) -> Reassembler:
        """Behind `flush`: for another capture, in which the same endpoints begin their next sessions."""
        for connection in {stream.connection: None for stream in self._streams.values()}:
            self._forget(connection)
        following = Reassembler(self._limits)
        following._sessions = self._sessions
        return following

    def expire(self, now: int) -> list[Chunk]:
        """Give up what has waited for `Limits.reorder_time` at capture time `now` (ns), as `feed` does by
        itself."""
        out: list[Chunk] = []
        self._expire(now, out)
        return out

    def _feed(self, segment: Segment, stream: Stream | None) -> list[Chunk]:
        out: list[Chunk] = []
        self._expire(segment.ts, out)
        if stream is None:
            if segment.src == segment.dst:
                return out  # its directions cannot be told apart
            stream = self._connect(segment, out)
        flags = segment.flags
        if flags & _SYN and not flags & _RST:
            stream = self._syn(stream, segment, out)
        connection = stream.connection
        if not connection.done:
            if flags & _ACK:
                _acknowledge(stream.peer, segment.ack)
            self._proceed(stream.peer, out)
        if flags & _RST:
            if connection.rst is None and not connection.done and stream.is_near(segment.seq):
                connection.rst = Mark(segment.ts, segment.packet, connection.tick)
        elif segment.payload or segment.cut or flags & _FIN:
            stream = self._data(stream, segment, out)
            connection = stream.connection
        if not connection.done:
            self._proceed(stream, out)
            if connection.rst and connection.tick - connection.rst.tick >= self._limits.hold:
                self._end(connection, connection.rst, out)
        self._settle(connection, segment.ts)
        if self._held > self._limits.total_bytes:
            self._relieve(out)
        return out

    def _proceed(self, stream: Stream, out: list[Chunk]) -> None:
        """Deliver what is in order, and what is behind holes that will not be filled."""
        stream.drain(out)
        limits = self._limits
        tick, hold = stream.connection.tick, limits.hold
        while stream.waiting and (stream.pieces.cost > limits.stream_bytes or stream.is_due(tick, hold)):
            stream.give_up(out)

    def _data(self, stream: Stream, segment: Segment, out: list[Chunk]) -> Stream:
        seq = segment.seq + 1 & MASK if segment.flags & _SYN else segment.seq
        length = len(segment.payload) + segment.cut
        if not stream.is_near(seq):
            self.tally.stray_segments += 1
            if not length or not self._has_moved(stream, seq):
                return stream
            stream = self._move(stream, seq, segment, out)
        elif (
            length
            and stream.connection.done
            and stream.position(seq) >= stream.next + (stream.fin is not None)
        ):
            # Data behind the end: the reset was not for real, or the next session's SYN was not captured.
            stream = self._renew(stream, segment, out)
        stream.strays = 0
        connection = stream.connection
        stream.place(seq)
        start = stream.position(seq)
        tick = connection.tick
        if length:
            stream.add(Piece(start, start + length, segment.payload, segment.ts, segment.packet, tick))
        if segment.flags & _FIN and not connection.done:
            stream.set_fin(start + length, Mark(segment.ts, segment.packet, tick))
        return stream

    def _has_moved(self, stream: Stream, seq: int) -> bool:
        away = seq - stream.stray_at & MASK
        agrees = stream.strays and min(away, MASK - away) <= NEAR
        stream.strays = stream.strays + 1 if agrees else 1
        stream.stray_at = seq
        return stream.strays >= STRAYS

    def _move(self, stream: Stream, seq: int, segment: Segment, out: list[Chunk]) -> Stream:
        """The stream goes on at this sequence number, far from where it was."""
        position = stream.position(seq)
        if stream.started and stream.fin is None and 0 < position - stream.next <= _MAX_JUMP:
            stream.jump(position, out)
            return stream
        return self._renew(stream, segment, out)

    def _syn(self, stream: Stream, segment: Segment, out: list[Chunk]) -> Stream:
        if not _is_same_session(stream, segment):
            stream = self._renew(stream, segment, out)
        connection, peer = stream.connection, stream.peer
        if connection.done:
            return stream
        acknowledges = segment.flags & _ACK
        if stream.isn is None:
            stream.isn = segment.seq
            if not stream.started:
                stream.begin(segment.seq + 1 & MASK)
        if acknowledges and not peer.started:
            peer.begin(segment.ack)
        if not connection.opened and connection.silent:
            connection.opened = True
            client = peer if acknowledges else stream
            mark = Mark(segment.ts, segment.packet, 0)
            out.append(client.chunk(mark, b"", opened=True))
        return stream

    def _connect(self, segment: Segment, out: list[Chunk]) -> Stream:
        src, dst = segment.src, segment.dst
        if len(self._streams) // 2 - len(self._ended) >= self._limits.connections:
            self._evict(segment, out)
        return self._register(Connection(src, dst, self._sessions.pop(_pair(src, dst), 0), self.tally))

    def _register(self, connection: Connection) -> Stream:
        for stream in connection.streams:
            self._streams[stream.src, stream.dst] = stream
        connection.tick = 1
        connection.last = self.tally.segments
        return connection.streams[0]

    def _renew(self, stream: Stream, segment: Segment, out: list[Chunk]) -> Stream:
        """The next session of this pair of endpoints."""
        old = stream.connection
        if not old.done:
            self._end(old, old.rst or Mark(segment.ts, segment.packet, 0), out)
            self._settle(old, segment.ts)
        self._ended.pop(old, None)
        stream = self._register(Connection(stream.src, stream.dst, old.session + 1, self.tally))
        if segment.flags & _ACK:
            _acknowledge(stream.peer, segment.ack)
        return stream

    def _end(self, connection: Connection, mark: Mark, out: list[Chunk]) -> None:
        for stream in connection.streams:
            while stream.waiting:
                stream.give_up(out)
            stream.close(out, mark)

    def _settle(self, connection: Connection, ts: int) -> None:
        """Bring the books in line with what a connection holds and waits for."""
        a, b = connection.streams
        if a.closed and b.closed and not connection.done:
            connection.done, connection.rst, connection.slot = True, None, None
            self._ended[connection] = None
            if len(self._ended) > self._limits.ended:
                self._forget(next(iter(self._ended)))
        held = a.pieces.cost + b.pieces.cost
        self._held += held - connection.held
        connection.held = held
        waiting = connection.rst is not None or a.waiting or b.waiting
        if waiting != connection.waiting:
            connection.waiting = waiting
            if waiting:
                self._waiting[connection] = ts
            else:
                del self._waiting[connection]
            self._set_deadline()
        for stream in connection.streams:
            stream.plain = stream.started and not (stream.closed or stream.lost or waiting)

    def _set_deadline(self) -> None:
        since = next(iter(self._waiting.values()), None)
        self._deadline = _NEVER if since is None else since + self._limits.reorder_time

    def _expire(self, now: int, out: list[Chunk]) -> None:
        while self._deadline < now:
            connection = next(iter(self._waiting))
            self._overdue(connection, now - self._limits.reorder_time, out)
            self._settle(connection, now)
            if connection.waiting:
                marks = [stream.waiting_since for stream in connection.streams if stream.waiting]
                if connection.rst:
                    marks.append(connection.rst.ts)
                del self._waiting[connection]
                self._waiting[connection] = min(marks)
                self._set_deadline()

    def _overdue(self, connection: Connection, before: int, out: list[Chunk]) -> None:
        for stream in connection.streams:
            while stream.waiting and stream.waiting_since < before:
                stream.give_up(out)
        if connection.rst and connection.rst.ts < before:
            self._end(connection, connection.rst, out)

    def _relieve(self, out: list[Chunk]) -> None:
        """Too much is held: whoever has waited longest waits no more."""
        while self._held > self._limits.total_bytes and self._waiting:
            connection = next(iter(self._waiting))
            for stream in connection.streams:
                while stream.waiting:
                    stream.give_up(out)
            if connection.rst:
                self._end(connection, connection.rst, out)
            self._settle(connection, 0)

    def _evict(self, segment: Segment, out: list[Chunk]) -> None:
        """Too many connections: the quarter that has been silent for longest is taken as closed."""
        connections = {stream.connection for stream in self._streams.values()} - self._ended.keys()
        quarter = sorted(connections, key=lambda connection: connection.last)[: len(connections) // 4 + 1]
        for connection in quarter:
            self._end(connection, connection.rst or Mark(segment.ts, segment.packet, 0), out)
            self._settle(connection, segment.ts)
            if connection in self._ended:
                self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        """Only the number of its next session remains."""
        self._ended.pop(connection, None)
        for stream in connection.streams:
            del self._streams[stream.src, stream.dst]
        stream = connection.streams[0]
        self._sessions[_pair(stream.src, stream.dst)] = connection.session + 1
        if len(self._sessions) > self._limits.pairs:
            del self._sessions[next(iter(self._sessions))]


def _acknowledge(stream: Stream, ack: int) -> None:
    if stream.acked is None or ack - stream.acked & MASK < _HALF:
        stream.acked = ack


def _pair(a: Endpoint, b: Endpoint) -> int:
    """A pair of endpoints in either order, in a few bytes."""
    return hash((a, b) if a <= b else (b, a))


def _is_same_session(stream: Stream, segment: Segment) -> bool:
    """Does this SYN belong to what was seen so far?"""
    start = segment.seq + 1 & MASK
    peer = stream.peer
    if stream.isn is not None:
        return stream.isn == segment.seq
    if not segment.flags & _ACK:
        # Where the other side talks already: did both open at once, or is this a new session?
        if stream.connection.done and not stream.placed:
            return False
        if peer.started and peer.isn is None and not stream.placed:
            return False
    elif peer.started and segment.ack - peer.origin & MASK > _MAX_SYN_DATA:
        return False
    if stream.started:
        return start == stream.origin
    return not stream.placed or 0 <= stream.lowest - stream.position(start) <= NEAR
