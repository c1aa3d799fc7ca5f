"""One TCP connection: its chunks -> exchanges, faults, and at its end a session.

Finds out who is the client and what is spoken, keeps both directions cut into frames through gaps, and
hands the frames to the dialect (`kafka`, `kafka07_dialect`). Never raises on bytes. Bodies are decoded only
where the conversation itself needs them, or later by whoever asks a frame for its body.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol as TypingProtocol

from kwsniff.conversation import detect, resync
from kwsniff.conversation.bodies import decode_body, decode_body07
from kwsniff.conversation.direction import Direction
from kwsniff.conversation.fetch_sessions import FetchSessions
from kwsniff.conversation.framer import BadSize, Gap, RawFrame
from kwsniff.conversation.kafka import KafkaDialect
from kwsniff.conversation.kafka07_dialect import Kafka07Dialect
from kwsniff.conversation.topics import TopicNames
from kwsniff.errors import Reason
from kwsniff.model import (
    Chunk,
    ConnectionId,
    Decoded,
    Endpoint,
    Exchange,
    Fault,
    Frame,
    Peer,
    Protocol,
    Run,
    Session,
    Side,
)

Event = Exchange | Fault | Session
Dialect = KafkaDialect | Kafka07Dialect
Surrendered = tuple[int, list[tuple[bytes, int, int]]]

DEFAULT_MAX_FRAME = 100 * 1024 * 1024
"""socket.request.max.bytes of a broker."""
_ROLE_RUN = 32 * 1024
"""Bytes of either direction that are kept until it is known who asks."""
_SEARCH_LIMIT = 16 * 1024 * 1024
"""Bytes of a connection that began before the capture in which no Kafka was found: it is given up."""


class Lane(TypingProtocol):
    """What takes a connection's runs while all in it is ordinary: kwsniff/_lane.pyx."""

    @property
    def active(self) -> bool: ...
    def enter(self, asked: Surrendered, answered: Surrendered) -> None: ...
    def feed(self, run: Run, asking: bool, file: str | None) -> list[Event]: ...
    def leave(self) -> list[tuple[int, list[tuple[bytes, int, int]], int]]: ...


@dataclass
class Shared:
    """What the connections of one input have in common."""

    max_frame: int = DEFAULT_MAX_FRAME
    ports: frozenset[int] = frozenset()
    """Broker ports that are taken for Kafka whatever their bytes look like."""
    topic_names: TopicNames = field(default_factory=TopicNames)
    fetch_sessions: FetchSessions = field(default_factory=FetchSessions)
    lane: Callable[[KafkaDialect, ConnectionId, int], Lane] | None = None


class Connection:
    """Feed it the chunks of both directions; `chunk` of the constructor only names the two ends."""

    def __init__(self, chunk: Chunk, shared: Shared) -> None:
        self._shared = shared
        self._number = chunk.session
        self._opened: int | None = None
        self._first = self._last = chunk.ts
        self._file: str | None = None
        self._closed_at: int | None = None
        self._conn: ConnectionId | None = None
        self._exchanges = self._faults = 0
        self._protocol: str | None = None
        self._dialect: Dialect | None = None
        self._lane: Lane | None = None
        self._state: Callable[[], list[Event]] = self._search_roles
        self._ends = {src: Direction(src, shared.max_frame, synced=False) for src in (chunk.src, chunk.dst)}
        forced = [end for end in (chunk.dst, chunk.src) if end.port in shared.ports]
        if forced:
            self._take_roles(chunk.src if forced[0] == chunk.dst else chunk.dst, forced[0])

    @property
    def finished(self) -> bool:
        """Both directions have ended: nothing more will come."""
        return all(end.closed for end in self._ends.values())

    def feed(self, chunk: Chunk, file: str | None = None) -> list[Event]:
        """The events that this chunk completes."""
        self._leave_lane()
        if chunk.ts > self._last:
            self._last = chunk.ts
        self._file = file or self._file
        if chunk.opened:
            self._open(chunk)
        self._ends[chunk.src].receive(chunk)
        if chunk.closed:
            self._closed_at = chunk.ts
        return self._counted(self._state())

    def feed_run(self, run: Run, file: str | None = None) -> list[Event]:
        """The same for chunks that follow one another in one direction."""
        direction = self._ends[run.src]
        if self._dialect is None or not direction.synced:
            return [event for chunk in run.chunks() for event in self.feed(chunk, file)]
        self._last = max(self._last, run.latest)
        self._file = file or self._file
        if self._lane is not None and (self._lane.active or self._entered(self._lane)):
            direction.ledger.seen += run.size
            found = self._lane.feed(run, direction is self._requests, self._file)
            self._exchanges += len(found)
            if not self._lane.active:
                self._give_back(self._lane)
                found += self._counted(self._state())
            return found
        direction.receive_run(run)
        return self._counted(self._state())

    def _entered(self, lane: Lane) -> bool:
        """Whether all is ordinary here, and the lane has taken over."""
        asked, answered = self._requests, self._responses
        dialect = self._dialect
        if not (isinstance(dialect, KafkaDialect) and dialect.plain and asked.synced and answered.synced):
            return False
        given = [direction.framer.surrender() for direction in (asked, answered)]
        if given[0] is not None and given[1] is not None:
            lane.enter(given[0], given[1])
            return True
        for direction, part in zip((asked, answered), given, strict=True):
            if part is not None:
                direction.framer.take_back(*part)
        return False

    def _leave_lane(self) -> None:
        if self._lane is not None and self._lane.active:
            self._give_back(self._lane)

    def _give_back(self, lane: Lane) -> None:
        for direction, (offset, pieces, decoded) in zip(
            (self._requests, self._responses), lane.leave(), strict=True
        ):
            direction.framer.take_back(offset, pieces)
            direction.ledger.decoded += decoded

    def end(self) -> list[Event]:
        """The input is over, or the connection is; its session is the last event."""
        self._leave_lane()
        for direction in self._ends.values():
            direction.ended = True
        found = self._counted(self._state())
        if self._state in (self._search_roles, self._detect):
            found += self._counted(self._ignore())
        if self._dialect is not None:
            found += self._counted([*self._dialect.end(self._closed_at is not None)])
        found.append(self._session())
        return found

    def _counted(self, events: list[Event]) -> list[Event]:
        for event in events:
            if isinstance(event, Exchange):
                self._exchanges += 1
            else:
                self._faults += 1
        return events

    # Who is who

    def _open(self, chunk: Chunk) -> None:
        self._opened = chunk.ts
        self._take_roles(chunk.src, chunk.dst)
        for direction in self._ends.values():
            direction.synced = True

    def _take_roles(self, client: Endpoint, broker: Endpoint) -> None:
        self._name(client, broker)
        self._state = self._detect

    def _name(self, client: Endpoint, broker: Endpoint) -> None:
        self._conn = ConnectionId(client, broker, self._number)
        self._requests, self._responses = self._ends[client], self._ends[broker]

    def _search_roles(self) -> list[Event]:
        """The capture began mid-stream: the end that sends a sure request is the client."""
        for src, direction in self._ends.items():
            if direction.search(_find_any_request, _ROLE_RUN):
                other = next(end for end in self._ends if end != src)
                self._take_roles(src, other)
                return self._detect()
        if sum(end.ledger.undecoded for end in self._ends.values()) > _SEARCH_LIMIT:
            return self._ignore()
        return []

    def _id(self) -> ConnectionId:
        """The identity, by the best guess while roles are unknown: servers have the lower port."""
        if self._conn is None:
            broker, client = sorted(self._ends, key=lambda end: (end.port, end.host))
            self._name(client, broker)
        assert self._conn is not None
        return self._conn

    # What is spoken

    def _detect(self) -> list[Event]:
        """Wait for the client's first frame, or enough of it, and decide."""
        direction = self._requests
        framer = direction.framer
        if not direction.synced and not direction.search(_find_any_request, _ROLE_RUN):
            return []
        head = framer.head(4)
        if len(head) < min(4, framer.waiting):
            # The first request is not in the capture: go on as if it had begun later.
            direction.synced = False
            return self._detect()
        if len(head) < 4 and not direction.ended and framer.waiting < 12:
            return []
        size = int.from_bytes(head, "big", signed=True)
        forced = self._id().broker.port in self._shared.ports
        if len(head) < 4 or not 0 < size <= self._shared.max_frame:
            if forced and framer.waiting:
                return self._speak(Protocol.KAFKA)
            return self._ignore() if framer.waiting >= 12 or direction.ended else []
        amount = min(size, detect.ENOUGH)
        if framer.waiting < 4 + amount and not direction.ended:
            return []
        frame = framer.head(4 + amount)[4:]
        protocol = detect.first_frame_protocol(frame, size)
        if protocol is None and not forced:
            return self._ignore()
        return self._speak(protocol or Protocol.KAFKA)

    def _speak(self, protocol: Protocol) -> list[Event]:
        seen = self._opened is not None
        peer = Peer(
            principal="User:ANONYMOUS" if seen else None, security_protocol="PLAINTEXT" if seen else None
        )
        if protocol is Protocol.KAFKA07:
            self._dialect = Kafka07Dialect(self._id(), peer, self._decode07)
        else:
            shared = self._shared
            self._dialect = KafkaDialect(
                self._id(), peer, self._decode, shared.topic_names, shared.fetch_sessions, shared.max_frame
            )
            if protocol is Protocol.SASL:
                self._dialect.begin_with_token()
            if shared.lane is not None:
                self._lane = shared.lane(self._dialect, self._id(), shared.max_frame)
        self._protocol = protocol if protocol is Protocol.KAFKA07 else Protocol.KAFKA
        self._state = self._converse
        return self._converse()

    def _ignore(self) -> list[Event]:
        """No Kafka: named by its first bytes, counted, not decoded."""
        self._id()
        heads = [self._requests.first, self._responses.first]
        named = [name for head in heads if (name := detect.name_protocol(head))]
        self._state = self._discard
        self._discard()
        if not any(heads):
            return []
        self._protocol = named[0] if named else "unknown"
        what = f"it looks like {named[0].upper()}" if named else "its first bytes are no Kafka request"
        packet = self._requests.first_packet or self._responses.first_packet
        return [self._fault(Reason.NOT_KAFKA, f"not Kafka: {what}", Side.REQUEST, 0, heads[0], packet=packet)]

    def _discard(self) -> list[Event]:
        for direction in self._ends.values():
            direction.give_up()
        return []

    # The conversation

    def _converse(self) -> list[Event]:
        dialect = self._dialect
        assert dialect is not None
        dialect.file = self._file
        events: list[Event] = []
        requests, responses = self._requests, self._responses
        for asked in requests.frames(dialect.find_request):
            self._read(asked, requests, Side.REQUEST, dialect.request, events)
            responses.retry()
        for answered in responses.frames(dialect.find_response):
            self._read(answered, responses, Side.RESPONSE, dialect.response, events)
        return events

    def _read(
        self,
        frames: list[RawFrame | Gap | BadSize],
        direction: Direction,
        side: Side,
        tell: Callable[[RawFrame], list[Exchange | Fault]],
        events: list[Event],
    ) -> None:
        assert self._dialect is not None
        for found in frames:
            if isinstance(found, RawFrame):
                direction.ledger.decoded += found.size - found.lost
                events += tell(found)
            else:
                self._dialect.gap(side)
                events.append(self._broken(found, side))

    def _decode(self, frame: Frame) -> Decoded:
        return self._accounted(frame, decode_body(frame))

    def _decode07(self, frame: Frame, asked: Frame | None = None) -> Decoded:
        return self._accounted(frame, decode_body07(frame, asked))

    def _accounted(self, frame: Frame, decoded: Decoded) -> Decoded:
        """A frame counts as decoded until somebody asks for its body and there is none."""
        if decoded.body is None:
            ledger = (self._requests if frame.side is Side.REQUEST else self._responses).ledger
            ledger.decoded -= frame.size - frame.lost
            ledger.undecoded += frame.size - frame.lost
        return decoded

    # What is told

    def _broken(self, found: Gap | BadSize, side: Side) -> Fault:
        if isinstance(found, Gap):
            text = f"{found.lost} bytes are not in the capture; reading goes on at the next plausible frame"
            return self._fault(
                Reason.LOST_BYTES, text, side, found.offset, b"", found.ts, found.packet, found.lost
            )
        limit = self._shared.max_frame
        if found.size > limit:
            text, reason = (
                f"a frame of {found.size} bytes is over the limit of {limit}",
                Reason.FRAME_TOO_LARGE,
            )
        else:
            text, reason = f"a frame cannot have {found.size} bytes", Reason.SIZE_INVALID
        return self._fault(reason, text, side, found.offset, found.head, found.ts, found.packet)

    def _fault(
        self,
        reason: Reason,
        message: str,
        side: Side,
        offset: int,
        raw: bytes,
        ts: int | None = None,
        packet: int | None = None,
        lost: int | None = None,
    ) -> Fault:
        return Fault(
            ts=self._first if ts is None else ts,
            reason=reason,
            message=message,
            conn=self._id(),
            side=side,
            offset=offset,
            packet=packet,
            lost=lost,
            file=self._file,
            raw=raw,
        )

    def _session(self) -> Session:
        conn = self._id()
        requests, responses = self._requests.ledger, self._responses.ledger
        return Session(
            conn=conn,
            opened=self._opened,
            closed=self._closed_at,
            first=self._first,
            last=self._last,
            protocol=self._protocol,
            peer=self._dialect.peer if self._dialect else Peer(),
            requests=requests,
            responses=responses,
            exchanges=self._exchanges,
            faults=self._faults,
            file=self._file,
        )


def _find_any_request(run: bytes, starts: list[int], ended: bool) -> resync.Found:
    found = resync.find_request(run, starts, (), strict=True, ended=ended)
    if found.at is None:
        old = resync.find_request07(run, starts)
        if old.at is not None:
            return old
    if found.at is None and ended:
        # No whole frame to decode (a short snaplen, a large request): a header with a name in it has to do.
        found = resync.find_named_request(run, starts)
    # Until roles are known, any byte may be the start of a response.
    return found._replace(keep=0)
