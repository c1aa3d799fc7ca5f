"""Rules tried on what has been: which would have fired, on exchanges and sessions of captures.

In: a RuleSet and the events of a capture, in order. Out: what fired, and its tags on the exchange; nothing is
changed and no one is told. A request that a rule would have answered or cut off has no answer for other rules
to see. Numbers of frames are counted here: they are the proxy's, unless the capture lacks frames.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterable, Iterator
from typing import NamedTuple

from kwsniff.model import ConnectionId, Exchange, Fault, Frame, Session
from kwsniff.passing import Passing
from kwsniff.policy.acting import of_frame, speak
from kwsniff.policy.actions import Occasion, Silent
from kwsniff.policy.firing import Firing, Moment, Ready, judged, moment
from kwsniff.policy.rule_actions import ends
from kwsniff.policy.rules import Lines, line_of, session_line, sides_of
from kwsniff.policy.ruleset import On, RuleSet

_CONNECTIONS = 100_000
"""That are numbered at a time: past them, that which was quiet for longest begins anew."""


class Fired(NamedTuple):
    """A rule that would have fired. frame: None of a session."""

    rule: str
    occasion: Occasion
    frame: Frame | None
    file: str | None


class Rehearsal:
    """`ready` has each rule with its counts."""

    def __init__(self, ruleset: RuleSet, line: Lines) -> None:
        self._firing = Firing(ruleset)
        self._line = line
        self._silent = Silent()
        self._numbers: OrderedDict[ConnectionId, list[int]] = OrderedDict()

    @property
    def ready(self) -> list[Ready]:
        return self._firing.rules

    def tried(self, events: Iterable[Exchange | Fault | Session]) -> Iterator[Exchange | Fault | Session]:
        """The same events, the exchanges with their tags."""
        for event in events:
            if isinstance(event, Exchange):
                self.exchange(event)
            elif isinstance(event, Session):
                self.session(event)
            yield event

    def exchange(self, exchange: Exchange) -> list[Fired]:
        """What would have fired on its request, its response and the whole, in that order."""
        frame = exchange.request or exchange.response
        if frame is None:
            return []
        numbers = self._count(exchange)
        return list(self._all(exchange, frame, numbers))

    def session(self, session: Session) -> list[Fired]:
        self._numbers.pop(session.conn, None)
        if not self._firing.asks(On.SESSION):
            return []
        occasion = Occasion(ts=session.last, conn=session.conn, on=On.SESSION)
        fired = self._firing.at(
            Moment(On.SESSION, session.conn, 0), lambda: session_line(session, self._line)
        )
        return [Fired(ready.rule.name, occasion, None, session.file) for ready in fired]

    def _all(self, exchange: Exchange, frame: Frame, numbers: tuple[int, int]) -> Iterator[Fired]:
        request, response = exchange.request, exchange.response
        ended = False
        if request is not None and judged(request):
            ended = yield from self._frame(On.REQUEST, request, numbers[0], exchange)
        if response is not None and judged(response) and not ended:
            yield from self._frame(On.RESPONSE, response, numbers[1], exchange)
        if self._firing.asks(On.EXCHANGE):
            number = numbers[1] if request is None else numbers[0]
            now = moment(On.EXCHANGE, frame, number)
            ts = exchange.ts if response is None else response.end
            fired = self._firing.at(now, lambda: self._line(exchange), sides_of(exchange))
            yield from self._tagged(fired, of_frame(now, frame, ts), frame, exchange.tags)

    def _frame(self, on: On, frame: Frame, number: int, exchange: Exchange) -> Generator[Fired, None, bool]:
        """What fires on a frame; the value says whether that is the frame's end."""
        if not self._firing.asks(on):
            return False
        passing = Passing(
            frame=frame,
            original=frame,
            request=exchange.request if on is On.RESPONSE else None,
            number=number,
            tags=exchange.tags,
            peer=exchange.peer,
            topic_names=exchange.topic_names,
            fetched=exchange.fetched,
        )
        now = moment(on, frame, number, passing.request)
        for ready in self._firing.at(now, lambda: line_of(frame, passing, self._line)):
            yield from self._tagged((ready,), of_frame(now, frame, frame.end), frame, exchange.tags)
            if any(ends(action, on) for action in ready.rule.then):
                return True
        return False

    def _tagged(
        self, fired: Iterable[Ready], occasion: Occasion, frame: Frame, tags: list[str]
    ) -> Iterator[Fired]:
        for ready in fired:
            for action in ready.rule.then:
                speak(action, ready.rule.name, occasion, tags, self._silent)
            yield Fired(ready.rule.name, occasion, frame, frame.file)

    def _count(self, exchange: Exchange) -> tuple[int, int]:
        """The numbers of its request and its response; the next exchange has the next."""
        numbers = self._numbers.pop(exchange.conn, None) or [0, 0]
        self._numbers[exchange.conn] = numbers
        if len(self._numbers) > _CONNECTIONS:
            self._numbers.popitem(last=False)
        found = numbers[0], numbers[1]
        numbers[0] += exchange.request is not None
        numbers[1] += exchange.response is not None
        return found
