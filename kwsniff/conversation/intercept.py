"""One proxied connection, sans-IO: bytes and `now` in, commands out; what to do with a frame others judge.

Frames that nobody touches are forwarded as they were received. Delays and throttles hold back what comes
behind in their direction; answers leave in the order of the requests, the proxy's own in their turn. What is
told of the conversation is what `connection.Connection` would make of the client's side. Time is an argument;
`wake_at` says when to call `wake`. Call `tell` once the commands of a call are carried out: who logs and
records does not stand in the way of the bytes.
"""

from __future__ import annotations

from functools import partial

from kwsniff.conversation.bodies import decode_body, decode_body07
from kwsniff.conversation.commands import Command, Finish, Judge, Send, Shut
from kwsniff.conversation.fetch_sessions import FetchSessions
from kwsniff.conversation.framer import BadSize
from kwsniff.conversation.inlet import Inlet
from kwsniff.conversation.kafka import KafkaDialect
from kwsniff.conversation.kafka07_dialect import Kafka07Dialect
from kwsniff.conversation.opening import Refusal, bad_size, opening
from kwsniff.conversation.outlet import Held, Outlet
from kwsniff.conversation.passage import Passage
from kwsniff.conversation.teller import Teller
from kwsniff.conversation.topics import TopicNames
from kwsniff.model import ConnectionId, Decoded, Fault, Frame, Peer, Protocol, Session, Side

__all__ = ["Command", "Finish", "Interceptor", "Judge", "Send", "Shut"]

_UNANSWERED = 16 * 1024 * 1024
"""Bytes of requests that may wait for their answers before they count in `holds`."""


class Interceptor:
    """topic_names, fetch_sessions: what connections to the same cluster know together."""

    def __init__(
        self,
        conn: ConnectionId,
        judge: Judge,
        *,
        max_frame: int,
        security_protocol: str = "PLAINTEXT",
        principal: str | None = "User:ANONYMOUS",
        now: int,
        topic_names: TopicNames | None = None,
        fetch_sessions: FetchSessions | None = None,
    ) -> None:
        self._conn = conn
        self._judge = judge
        self._max_frame = max_frame
        self._peer = Peer(principal=principal, security_protocol=security_protocol)
        self._topic_names = TopicNames() if topic_names is None else topic_names
        self._fetch_sessions = FetchSessions() if fetch_sessions is None else fetch_sessions
        self._requests = Inlet(conn.client, conn.broker, max_frame)
        self._responses = Inlet(conn.broker, conn.client, max_frame)
        self._to_broker, self._to_client = Outlet(), Outlet()
        self._teller = Teller(conn, judge, now)
        self._passage: Passage | None = None
        self._protocol: str | None = None
        self._commands: list[Command] = []
        self._shut = False

    # What goes in

    def receive(self, side: Side, data: bytes, now: int) -> list[Command]:
        """Bytes from the client (Side.REQUEST) or from the broker (Side.RESPONSE)."""
        inlet, outlet = self._way(side)
        self._begin(now)
        if inlet.ended or inlet.closed or not data:
            return self._end_call()
        straight = inlet.waiting == 0 and outlet.idle and outlet.quiet
        before = outlet.given
        inlet.receive(data, now)
        if self._read(side, now) and straight and outlet.given - before == len(data):
            outlet.replace(data)
        return self._end_call()

    def finish(self, side: Side, now: int) -> list[Command]:
        """The client (Side.REQUEST) or the broker (Side.RESPONSE) will send no more."""
        inlet, outlet = self._way(side)
        self._begin(now)
        if inlet.ended or inlet.closed:
            return self._end_call()
        inlet.ended = True
        self._read(side, now)
        if not inlet.closed:
            self._read_rest(side, now)
            if side is Side.RESPONSE and self._passage is not None:
                self._passage.finished = True
            outlet.put(Held(partial(self._finished, side), at=now), now)
        return self._end_call()

    def wake(self, now: int) -> list[Command]:
        """It is `wake_at`, or later."""
        self._begin(now)
        return self._end_call()

    def end(self, now: int) -> Session:
        """Both sockets are gone: what waits is told, and the connection."""
        self.tell()
        if not (self._requests.ended or self._requests.closed):
            self._requests.ended = True
            self._read(Side.REQUEST, now)
            self._read_rest(Side.REQUEST, now)
        self._requests.closed = self._responses.closed = self._shut = True
        passage = self._passage
        if passage is not None:
            for held in self._to_client.clear():
                passage.lose(held)
            passage.end()
        for outlet in (self._to_broker, self._to_client):
            outlet.clear()
            outlet.take()
        self._commands = []
        self.tell()
        peer = passage.peer if passage else Peer()
        return self._teller.session(self._protocol, peer, self._requests.seen, now)

    def tell(self) -> None:
        """Tell the judge what is over. To be called when the commands of the last call are carried out."""
        self._teller.tell()

    # What can be asked

    @property
    def in_flight(self) -> int:
        """Requests that came whole and whose exchange is not over."""
        return self._passage.in_flight if self._passage else 0

    @property
    def wake_at(self) -> int | None:
        """When `wake` is to be called; None: not at all."""
        if self._shut:
            return None
        due = [outlet.due for outlet in (self._to_broker, self._to_client)]
        return min((at for at in due if at is not None), default=None)

    def holds(self, side: Side) -> int:
        """Bytes from that side's sender that wait here, and that more of them will not set free.

        A frame that is not whole yet does not count (max_frame bounds it); requests that wait for their
        answers do when they are many.
        """
        if self._shut:
            return 0
        passage = self._passage
        if side is Side.REQUEST:
            return self._to_broker.bytes + (max(passage.waiting - _UNANSWERED, 0) if passage else 0)
        return self._to_client.bytes + (0 if passage else self._responses.waiting)

    # One call

    def _way(self, side: Side) -> tuple[Inlet, Outlet]:
        if side is Side.REQUEST:
            return self._requests, self._to_broker
        return self._responses, self._to_client

    def _begin(self, now: int) -> None:
        self._teller.tell()
        for outlet in (self._to_broker, self._to_client):
            if not outlet.idle and not self._shut:
                outlet.move(now)

    def _end_call(self) -> list[Command]:
        commands: list[Command] = []
        if not self._to_broker.quiet:
            commands += [Send(Side.REQUEST, data) for data in self._to_broker.take()]
        if not self._to_client.quiet:
            commands += [Send(Side.RESPONSE, data) for data in self._to_client.take()]
        if self._commands:
            commands += self._commands
            self._commands = []
        return commands

    def _read(self, side: Side, now: int) -> bool:
        """The frames that are whole. Whether each has gone on at once, and as it was received."""
        passage = self._passage or self._open(side, now)
        if passage is None:
            return False
        inlet, _ = self._way(side)
        take = passage.request if side is Side.REQUEST else passage.response
        passage.straight = True
        for raw in inlet.frames():
            if isinstance(raw, BadSize):
                self._refuse(bad_size(raw, side, inlet.first, self._max_frame), side, now)
                return False
            take(raw, now)
            if inlet.closed:
                return False
        return passage.straight

    def _read_rest(self, side: Side, now: int) -> None:
        """The stream has ended: what there is of a last frame goes as it is; nobody can judge it."""
        inlet, outlet = self._way(side)
        data, raw = inlet.rest(now)
        if raw is not None and self._passage is not None:
            self._passage.rest(side, raw, data, now)
        elif data:
            then = self._unread if side is Side.RESPONSE else None
            outlet.put(Held(then, data=data, at=now), now)

    # The client's first bytes

    def _open(self, side: Side, now: int) -> Passage | None:
        """What is spoken is known by now, or not yet."""
        if side is Side.RESPONSE:
            # A broker does not speak first. What it says waits; what is no frame is no broker's.
            self._read_unasked(now)
            return None
        found = opening(self._requests, self._max_frame)
        if isinstance(found, Refusal):
            self._refuse(found, Side.REQUEST, now)
        elif found is not None:
            self._speak(found)
            if self._responses.waiting:
                self._read(Side.RESPONSE, now)
        return self._passage

    def _read_unasked(self, now: int) -> None:
        inlet = self._responses
        head = inlet.framer.head(4)
        size = int.from_bytes(head, "big", signed=True)
        if len(head) == 4 and not 0 <= size <= self._max_frame:
            found = BadSize(size, now, 0, 0, inlet.first)
            self._refuse(bad_size(found, Side.RESPONSE, inlet.first, self._max_frame), Side.RESPONSE, now)

    def _speak(self, protocol: Protocol) -> None:
        dialect: KafkaDialect | Kafka07Dialect
        if protocol is Protocol.KAFKA07:
            dialect = Kafka07Dialect(self._conn, self._peer, self._decode07)
        else:
            dialect = KafkaDialect(
                self._conn, self._peer, self._decode, self._topic_names, self._fetch_sessions, self._max_frame
            )
            if protocol is Protocol.SASL:
                dialect.begin_with_token()
        self._protocol = protocol if protocol is Protocol.KAFKA07 else Protocol.KAFKA
        self._passage = Passage(
            dialect, self._judge, self._teller, self._to_broker, self._to_client, self._close
        )
        self._passage.finished = self._responses.ended

    def _decode(self, frame: Frame) -> Decoded:
        return self._teller.accounted(frame, decode_body(frame))

    def _decode07(self, frame: Frame, asked: Frame | None = None) -> Decoded:
        return self._teller.accounted(frame, decode_body07(frame, asked))

    def _refuse(self, found: Refusal, side: Side, now: int) -> None:
        """The connection cannot go on: said, and shut when what came before has left."""
        self._protocol = found.protocol or self._protocol
        fault = Fault(now, found.reason, found.message, self._conn, side, offset=found.offset, raw=found.raw)
        self._teller.fault(fault)
        self._close(side, Shut(found.message), now, now)

    # The end

    def _close(self, side: Side, shut: Shut, at: int, now: int) -> None:
        """Behind what that side has sent before; nothing more is read from it."""
        inlet, outlet = self._way(side)
        inlet.closed = True
        at_once = shut.reset or side is Side.RESPONSE
        outlet.put(Held(partial(self._shut_now if at_once else self._shut_behind, shut), at=at), now)

    def _unread(self, held: Held, _: int) -> None:
        self._teller.unread(held.size)

    def _finished(self, side: Side, _: Held, __: int) -> None:
        self._commands.append(Finish(side))

    def _shut_behind(self, shut: Shut, _: Held, now: int) -> None:
        """The client's turn to be closed; what is held for it goes first."""
        self._requests.closed = self._responses.closed = True
        self._to_client.put(Held(partial(self._shut_now, shut), at=now), now)

    def _shut_now(self, shut: Shut, _: Held, __: int) -> None:
        self._requests.closed = self._responses.closed = self._shut = True
        self._commands.append(shut)
