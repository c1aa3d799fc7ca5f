"""A proxied connection with a clock in the test's hand: what both ends say, and what reaches them when."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from talk import BROKER, CLIENT, MS, listen, told

from kwsniff.conversation.connection import Event
from kwsniff.conversation.intercept import Command, Finish, Interceptor, Send, Shut
from kwsniff.model import Chunk, ConnectionId, Exchange, Fault, Outcome, Session, Side
from kwsniff.passing import Drop, Passed, Passing, Replace, Verdict

CONN = ConnectionId(CLIENT, BROKER)
Decide = Callable[[Passing], Iterable[Verdict]]


class Judge:
    """Decides as the two functions do; wants nothing where there is none."""

    def __init__(self, request: Decide | None = None, response: Decide | None = None) -> None:
        self.decide = {Side.REQUEST: request, Side.RESPONSE: response}
        self.passed: list[Passed] = []
        self.faults: list[Fault] = []
        self.passings: list[Passing] = []
        self.given: list[list[Verdict]] = []
        """What was decided upon each of the passings."""

    def wants(self, _: int) -> bool:
        return any(self.decide.values())

    def request(self, passing: Passing) -> list[tuple[str, Verdict]]:
        return self._decided(passing)

    def response(self, passing: Passing) -> list[tuple[str, Verdict]]:
        return self._decided(passing)

    def exchanged(self, passed: Passed) -> None:
        self.passed.append(passed)

    def faulted(self, fault: Fault) -> None:
        self.faults.append(fault)

    def _decided(self, passing: Passing) -> list[tuple[str, Verdict]]:
        self.passings.append(passing)
        decide = self.decide[passing.frame.side]
        found = list(decide(passing)) if decide else []
        self.given.append(found)
        for verdict in found:
            if isinstance(verdict, Replace):
                frame = passing.frame
                passing.frame = type(frame)(
                    frame.ts,
                    frame.conn,
                    frame.side,
                    verdict.raw,
                    frame.api,
                    frame.version,
                    frame.correlation_id,
                    frame.client_id,
                    frame.body_at,
                    frame.decoder,
                )
        return [("test", verdict) for verdict in found]


class Middle:
    """Each `client` and `broker` is one piece of bytes at the present; `after` lets time go by."""

    def __init__(
        self, request: Decide | None = None, response: Decide | None = None, **interceptor: Any
    ) -> None:
        self.judge = Judge(request, response)
        self.now = 0
        self.core = Interceptor(CONN, self.judge, now=0, **{"max_frame": 1 << 20, **interceptor})
        self.log: list[tuple[float, Command]] = []
        self.seen = [Chunk(0, CLIENT, BROKER, b"", opened=True)]
        """What a capture at the client's side would hold."""

    def client(self, *data: bytes) -> Middle:
        for part in data:
            self._capture(Side.REQUEST, part)
            self._do(self.core.receive(Side.REQUEST, part, self.now))
        return self

    def broker(self, *data: bytes) -> Middle:
        for part in data:
            self._do(self.core.receive(Side.RESPONSE, part, self.now))
        return self

    def client_ends(self) -> Middle:
        self._capture_end(Side.REQUEST)
        self._do(self.core.finish(Side.REQUEST, self.now))
        return self

    def broker_ends(self) -> Middle:
        self._do(self.core.finish(Side.RESPONSE, self.now))
        return self

    def after(self, ms: float) -> Middle:
        until = self.now + round(ms * MS)
        while (at := self.core.wake_at) is not None and at <= until:
            self.now = max(self.now, at)
            self._do(self.core.wake(self.now))
        self.now = until
        return self

    def end(self) -> Session:
        for side in Side:
            self._capture_end(side)
        return self.core.end(self.now)

    def sent(self, side: Side) -> bytes:
        return b"".join(
            command.data for _, command in self.log if isinstance(command, Send) and command.side is side
        )

    @property
    def to_broker(self) -> bytes:
        return self.sent(Side.REQUEST)

    @property
    def to_client(self) -> bytes:
        return self.sent(Side.RESPONSE)

    @property
    def exchanges(self) -> list[Exchange]:
        return [passed.exchange for passed in self.judge.passed]

    @property
    def commands(self) -> list[Command]:
        return [command for _, command in self.log]

    @property
    def events(self) -> list[Event]:
        return [*self.exchanges, *self.judge.faults]

    def _do(self, commands: list[Command]) -> None:
        self.core.tell()
        for command in commands:
            assert not any(isinstance(before, Shut) for _, before in self.log), "a command behind Shut"
            if isinstance(command, Send):
                assert command.data
                assert (Finish(command.side)) not in self.commands, "bytes behind Finish"
                if command.side is Side.RESPONSE:
                    self._capture(Side.RESPONSE, command.data)
            elif command == Finish(Side.RESPONSE):
                self._capture_end(Side.RESPONSE)
            self.log.append((self.now / MS, command))

    def _capture(self, side: Side, data: bytes, closed: bool = False) -> None:
        src, dst = (CLIENT, BROKER) if side is Side.REQUEST else (BROKER, CLIENT)
        self.seen.append(Chunk(self.now, src, dst, data, closed=closed))

    def _capture_end(self, side: Side) -> None:
        src = CLIENT if side is Side.REQUEST else BROKER
        if not any(chunk.closed and chunk.src == src for chunk in self.seen):
            self._capture(side, b"", closed=True)


def assert_as_decoded(middle: Middle, session: Session | None = None) -> None:
    """The decoder says the same of what a capture at the client's side holds."""
    session = session or middle.end()
    events = listen(middle.seen)
    exchanges = [event for event in events if isinstance(event, Exchange)]
    if any(isinstance(verdict, Drop) for found in middle.judge.given for verdict in found):
        # Where an answer is cut off before its id, a capture cannot tell whose it was; the proxy can.
        for exchange in (*middle.exchanges, *exchanges):
            if exchange.outcome is Outcome.LOST:
                exchange.outcome = Outcome.CLOSED
    assert sorted(map(told, middle.exchanges), key=repr) == sorted(map(told, exchanges), key=repr)
    (expected,) = [event for event in events if isinstance(event, Session)]
    assert (session.protocol, session.peer) == (expected.protocol, expected.peer)
    assert (session.requests, session.responses) == (expected.requests, expected.responses)
    assert (session.exchanges, session.faults) == (expected.exchanges, expected.faults)
