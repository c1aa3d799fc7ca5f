"""The frames of one proxied connection on their way: who is to judge them does, and what was decided is done.

In: whole frames of both sides, in the order of each, and word of what has left. Out: what is put into the two
outlets, and what the teller is to tell. Answers leave in the order of the requests. How bytes come, how the
connection begins and ends, is not known here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from kwsniff.conversation.commands import GO, Judge, Ruling, Shut, ruling
from kwsniff.conversation.framer import RawFrame
from kwsniff.conversation.kafka import KafkaDialect, expects_response
from kwsniff.conversation.kafka07_dialect import Kafka07Dialect
from kwsniff.conversation.outlet import Held, Outlet
from kwsniff.conversation.places import Place, Places
from kwsniff.conversation.teller import PREFIX, Teller, given, not_given, passed_of
from kwsniff.conversation.topics import TopicNames
from kwsniff.model import Exchange, Fault, Outcome, Peer, Protocol, Side
from kwsniff.passing import Drop, Passed, Passing, Reset, Respond

_SIZE = struct.Struct(">i").pack

Close = Callable[[Side, Shut, int, int], None]
"""(side, shut, at, now): the connection is to be closed behind what that side has sent before."""


class _Answer(NamedTuple):
    """An answer of the proxy's own; its request is on its way out, to nobody."""

    place: Place
    raw: bytes


class _Given(NamedTuple):
    """A response on its way to the client."""

    passed: Passed
    place: Place | None


class Passage:
    """Of a connection that speaks `dialect`."""

    def __init__(
        self,
        dialect: KafkaDialect | Kafka07Dialect,
        judge: Judge,
        teller: Teller,
        to_broker: Outlet,
        to_client: Outlet,
        close: Close,
    ) -> None:
        self.in_flight = 0
        """Requests that came whole and whose exchange is not over."""
        self.straight = True
        """Set to False when something is not put on its way at once and as it was received."""
        self.finished = False
        """Nothing goes to the client any more."""
        self._dialect = dialect
        self._topic_names = dialect.topic_names if isinstance(dialect, KafkaDialect) else TopicNames()
        self._judge = judge
        self._teller = teller
        self._to_broker, self._to_client = to_broker, to_client
        self._close = close
        self._places = Places()
        self._asked = self._answered = 0

    @property
    def peer(self) -> Peer:
        return self._dialect.peer

    @property
    def waiting(self) -> int:
        """Bytes of the requests that wait for their answers."""
        return self._places.waiting

    # Requests

    def request(self, raw: RawFrame, now: int) -> None:
        dialect, outlet = self._dialect, self._to_broker
        number = self._asked
        self._asked += 1
        self._teller.ledgers[Side.REQUEST].decoded += raw.size
        frame = dialect.read_request(raw)
        if isinstance(frame, Fault):
            self._teller.fault(frame)
            outlet.put(Held(None, None, raw.data, _SIZE(len(raw.data)), now), now)
            return
        place = Place(frame, number, dialect.peer, expects_response(frame), frame)
        self._places.add(place)
        self.in_flight += 1
        over = dialect.ask(frame)
        found = GO
        if frame.protocol is Protocol.KAFKA and self._judge.wants(frame.api):
            found = self._judge_request(place, now)
        self.straight = self.straight and found is GO and place.sent is frame
        if found.end is not None:
            self._end_request(place, found, now)
        else:
            sent = place.sent.raw if place.sent else b""
            outlet.put(Held(self._left, place, sent, _SIZE(len(sent)), now + found.delay, found.rate), now)
        for event in over:
            self._note(event)

    def _judge_request(self, place: Place, now: int) -> Ruling:
        passing = Passing(
            frame=place.request,
            original=place.request,
            number=place.number,
            now=now,
            peer=place.peer,
            topic_names=self._topic_names,
        )
        place.verdicts = self._judge.request(passing)
        place.sent, place.tags = passing.frame, passing.tags
        return ruling(place.verdicts) if place.verdicts else GO

    def _end_request(self, place: Place, found: Ruling, now: int) -> None:
        """The broker does not get it."""
        end, place.sent = found.end, None
        if isinstance(end, Respond):
            place.due, place.rate = True, found.rate
            answer = _Answer(place, end.raw)
            self._to_broker.put(Held(self._answered_here, answer, at=now + found.delay), now)
        elif isinstance(end, Drop):
            self._leave_unanswered(place)
            self._answer_ready(now)
        else:
            self._close(Side.REQUEST, Shut(found.why, isinstance(end, Reset)), now + found.delay, now)

    # Responses

    def response(self, raw: RawFrame, now: int) -> None:
        dialect = self._dialect
        number = self._answered
        self._answered += 1
        request = dialect.asked(raw)
        place = None if request is None else self._places.of(request)
        if request is None:
            self._put_response(raw, [dialect.unasked(raw)], number, GO, now)
        elif place and request.protocol is Protocol.KAFKA and self._judge.wants(request.api):
            self._judge_response(place, raw, number, now)
        else:
            self._give(raw, place, number, GO, now)

    def _judge_response(self, place: Place, raw: RawFrame, number: int, now: int) -> None:
        dialect = self._dialect
        assert isinstance(dialect, KafkaDialect)
        frame = dialect.read_response(raw, place.request)
        passing = Passing(
            frame=frame,
            original=frame,
            request=place.request,
            number=number,
            now=now,
            tags=place.tags,
            peer=place.peer,
            topic_names=self._topic_names,
            fetched=dialect.fetched(place.request, frame),
        )
        verdicts = self._judge.response(passing)
        place.tags = passing.tags
        place.verdicts = [*place.verdicts, *verdicts]
        found, final = ruling(verdicts), passing.frame
        self.straight = self.straight and found is GO and final is frame
        if final is not frame or found.end is not None:
            place.received = frame
            self._teller.uncount(frame)
        if isinstance(found.end, Drop):
            self._leave_unanswered(place)
            self._answer_ready(now)
        elif found.end is not None:
            self._close(Side.RESPONSE, Shut(found.why, isinstance(found.end, Reset)), now + found.delay, now)
        else:
            self._give(raw if final is frame else _raw(final.raw, now), place, number, found, now)

    def _give(self, raw: RawFrame, place: Place | None, number: int, found: Ruling, now: int) -> None:
        """A response is on its way, behind those of the proxy's own that come before it."""
        if place is not None:
            self._answer_before(place, now)
        self._put_response(raw, self._dialect.response(raw), number, found, now)
        if place is not None:
            self._answer_ready(now)

    def _put_response(
        self, raw: RawFrame, events: list[Exchange | Fault], number: int, found: Ruling, now: int
    ) -> None:
        """events: what the client learns from it."""
        what: _Given | None = None
        for event in events:
            if isinstance(event, Exchange) and event.response is not None:
                place = None if event.request is None else self._places.remove(event.request)
                what = _Given(passed_of(event, place, number), place)
            else:
                self._note(event)
        size = _SIZE(len(raw.data))
        self._to_client.put(Held(self._has_left, what, raw.data, size, now + found.delay, found.rate), now)

    def _answer_before(self, place: Place, now: int) -> None:
        for earlier in self._places.before(place):
            self._answer(earlier, now)

    def _answer_ready(self, now: int) -> None:
        for place in self._places.ready():
            self._answer(place, now)

    def _answer(self, place: Place, now: int) -> None:
        """The turn of an answer of the proxy's own."""
        self.straight = False
        if not self.finished:
            dialect, raw = self._dialect, _raw(place.answer or b"", now)
            known = dialect.asked(raw) is not None
            events = dialect.response(raw) if known else [dialect.unasked(raw)]
            self._put_response(raw, events, place.number, Ruling(rate=place.rate), now)
        if not place.over:
            # The client cannot take it for the answer: its request stays without one.
            self._leave_unanswered(place)

    def _leave_unanswered(self, place: Place) -> None:
        assert isinstance(self._dialect, KafkaDialect)
        exchange = self._dialect.unanswered(place.request, Outcome.CLOSED)
        if exchange is not None:
            self._note(exchange)

    def rest(self, side: Side, raw: RawFrame, data: bytes, now: int) -> None:
        """A frame of which the stream's end has cut off the rest; data: what there is of it, as received."""
        if side is Side.RESPONSE:
            request = self._dialect.asked(raw)
            place = None if request is None else self._places.of(request)
            if place is not None:
                self._answer_before(place, now)
            self._to_client.put(Held(self._rest_has_left, raw, data, at=now), now)
            return
        self._teller.ledgers[side].decoded += len(data)
        for event in self._dialect.request(raw):
            self._note(event)
        self._to_broker.put(Held(data=data, at=now), now)

    # What has left

    def _left(self, held: Held, now: int) -> None:
        """A request has gone to the broker."""
        place: Place = held.what
        place.left = now
        if not place.due:
            self._close_place(place)

    def _answered_here(self, held: Held, now: int) -> None:
        """A request's turn to go has come, but the proxy answers it."""
        answer: _Answer = held.what
        self._places.fill(answer.place, answer.raw)
        self._answer_ready(now)

    def _has_left(self, held: Held, now: int) -> None:
        """A response has gone to the client."""
        self._teller.left(held.given)
        what: _Given | None = held.what
        if what is not None:
            given(what.passed, now if held.began is None else held.began, now)
            self._over(what.passed, what.place)

    def _rest_has_left(self, held: Held, _: int) -> None:
        """What there is of a last response has gone. Only now it is read: nothing comes behind it."""
        self._teller.left(held.given)
        dialect, raw = self._dialect, held.what
        known = dialect.asked(raw) is not None
        for event in dialect.response(raw) if known else [dialect.unasked(raw)]:
            self._note(event)

    def lose(self, held: Held) -> None:
        """The client did not get it, or not all of it."""
        if not isinstance(held.what, _Given):
            return
        passed, place = held.what
        response = passed.exchange.response
        if held.given >= PREFIX:
            self._teller.left(held.given)
        else:
            self._teller.unread(held.given)
            if response is not None:
                self._teller.uncount(response)
        not_given(passed, held.given)
        if passed.exchange.request or passed.exchange.response:
            self._over(passed, place)

    def end(self) -> None:
        """The connection is over: what still waits is told."""
        for event in self._dialect.end(True):
            self._note(event)

    def _note(self, event: Exchange | Fault) -> None:
        """It is over, and nothing of it has to leave any more."""
        if isinstance(event, Fault):
            self._teller.fault(event)
            return
        place = None if event.request is None else self._places.remove(event.request)
        self._over(passed_of(event, place), place)

    def _over(self, passed: Passed, place: Place | None) -> None:
        if place is not None:
            self._close_place(place)
        self._teller.over(passed)

    def _close_place(self, place: Place) -> None:
        if place.open:
            place.open = False
            self.in_flight -= 1


def _raw(data: bytes, now: int) -> RawFrame:
    """A frame of the proxy's own, as if it had been received."""
    return RawFrame(data, len(data) + 4, 0, now, now, 0, 0)
