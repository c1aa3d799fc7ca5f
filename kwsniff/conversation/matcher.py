"""Requests and responses of one connection -> pairs.

Kafka 0.8+ is matched by correlation id, bare SASL tokens and Kafka 0.7 by order. A capture is not causally
ordered across directions, so a response may come before its request and then waits. Brokers answer in order:
whatever was passed over when a later pair is found is settled, as `unmatched` or, behind a gap, as `lost`.
Pairs are `Pair`; the connection makes exchanges of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from kwsniff.conversation.framer import RawFrame
from kwsniff.conversation.headers import correlation_id
from kwsniff.model import Frame, Outcome, Peer, Protocol

EARLY_LIMIT = 1000
"""Responses that may wait for their requests."""
UNASKED_LIMIT = 256 * 1024
"""Bytes of acks=0 requests that wait for the next answer, to see whether one of their own comes."""
_NOTHING: list[Any] = []
_TOLERANCE = 1_000_000_000
"""ns that a response may be older than its request and still be its answer (two capture queues)."""


class Pair(Struct, frozen=True, gc=False):
    request: Frame | None
    response: RawFrame | None
    outcome: Outcome
    peer: Peer | None


class _Waiting(Struct, frozen=True, gc=False, eq=False):
    number: int
    frame: Frame
    peer: Peer
    due: bool


class Matcher:
    """`answers(request, frame bytes)` says whether the bytes decode as the answer to that request."""

    def __init__(self, answers: Callable[[Frame, bytes], bool]) -> None:
        self._answers = answers
        self._number = 0
        self._waiting: OrderedDict[int, _Waiting] = OrderedDict()
        self._by_id: dict[int | None, list[_Waiting]] = {}
        self._early: list[RawFrame] = []
        self._sent_before_gap = 0
        self._unasked = 0
        self._ordered = 0
        """How many wait that are matched by order, or need no answer: while there are none, ids do."""

    @property
    def plain(self) -> bool:
        """Whether an id alone tells which request an answer is for, as long as none is repeated."""
        if self._ordered or self._early:
            return False
        return next(iter(self._waiting), self._number + 1) > self._sent_before_gap

    @property
    def by_id(self) -> Mapping[int | None, list[_Waiting]]:
        """The requests that wait, by correlation id; as it changes."""
        return self._by_id

    @property
    def waiting_ids(self) -> list[int]:
        """The correlation ids that are waiting for an answer."""
        return [found for found in self._by_id if found is not None]

    def answers_waiting(self, frame: bytes) -> bool:
        """Whether the bytes decode as the answer to a waiting request with their correlation id."""
        same_id = self._by_id.get(correlation_id(frame), ())
        return any(self._answers(waiting.frame, frame) for waiting in same_id)

    def request(self, frame: Frame, peer: Peer, due: bool) -> list[Pair]:
        """A request was sent. due: an answer is to come; one may come even where it is not (mock brokers)."""
        if self._early and (found := self._early_answer(frame, peer, due)):
            return found
        self._number += 1
        waiting = self._waiting[self._number] = _Waiting(self._number, frame, peer, due)
        self._by_id.setdefault(frame.correlation_id, []).append(waiting)
        if due and frame.protocol is Protocol.KAFKA:
            return _NOTHING
        self._ordered += 1
        return _NOTHING if due else self._let_go(frame)

    def response(self, raw: RawFrame) -> list[Pair]:
        """A response came."""
        waiting = self._asked(raw)
        if waiting is None:
            self._early.append(raw)
            if len(self._early) > EARLY_LIMIT:
                return [Pair(None, self._early.pop(0), Outcome.UNMATCHED, None)]
            return _NOTHING
        found = list(self._unmatched()) if self._early else []
        self._remove(waiting)
        if self._ordered or self._sent_before_gap:
            found += self._passed_over(waiting)
        outcome = Outcome.ANSWERED if waiting.due else Outcome.NO_ACK
        found.append(Pair(waiting.frame, raw, outcome, waiting.peer))
        return found

    def asked(self, raw: RawFrame) -> Frame | None:
        """The request that this response would be matched with."""
        waiting = self._asked(raw)
        return None if waiting is None else waiting.frame

    def settle(self, request: Frame, outcome: Outcome) -> Pair | None:
        """No answer to this request is waited for any more. None: none was."""
        same_id = self._by_id.get(request.correlation_id, ())
        waiting = next((found for found in same_id if found.frame is request), None)
        if waiting is None:
            return None
        self._remove(waiting)
        return Pair(request, None, outcome if waiting.due else Outcome.NO_ACK, waiting.peer)

    def gap(self) -> None:
        """Responses were lost: requests sent so far may stay without an answer."""
        self._sent_before_gap = self._number

    def end(self, closed: bool) -> Iterator[Pair]:
        """Nothing more will come. closed: the connection ended; else the capture did."""
        yield from self._unmatched()
        for waiting in self._waiting.values():
            lost = not closed or waiting.number <= self._sent_before_gap
            outcome = Outcome.LOST if lost else Outcome.CLOSED
            yield Pair(waiting.frame, None, outcome if waiting.due else Outcome.NO_ACK, waiting.peer)
        self._waiting.clear()
        self._by_id.clear()

    def _asked(self, raw: RawFrame) -> _Waiting | None:
        same_id = self._by_id.get(correlation_id(raw.data))
        if self._ordered:
            head = next(iter(self._waiting.values()))
            if head.frame.protocol is not Protocol.KAFKA and not (same_id and self.answers_waiting(raw.data)):
                return head
        if same_id is None:
            return None
        if len(same_id) > 1:
            # A repeated id: a broker skips what it cannot read, so the first that fits is the one.
            for waiting in same_id:
                if self._fits(waiting.frame, raw):
                    return waiting
        return same_id[0]

    def _fits(self, frame: Frame, raw: RawFrame) -> bool:
        return frame.body is not None and (raw.lost > 0 or self._answers(frame, raw.data))

    def _is_early_answer(self, frame: Frame, raw: RawFrame) -> bool:
        if frame.protocol is not Protocol.KAFKA:
            return True
        if correlation_id(raw.data) != frame.correlation_id or raw.end < frame.ts - _TOLERANCE:
            return False
        return raw.lost > 0 or self._answers(frame, raw.data)

    def _early_answer(self, frame: Frame, peer: Peer, due: bool) -> list[Pair]:
        for place, raw in enumerate(self._early):
            if self._is_early_answer(frame, raw):
                found = [Pair(None, self._early.pop(0), Outcome.UNMATCHED, None) for _ in range(place)]
                self._early.pop(0)
                outcome = Outcome.ANSWERED if due else Outcome.NO_ACK
                return [*found, Pair(frame, raw, outcome, peer)]
        return []

    def _remove(self, waiting: _Waiting) -> None:
        del self._waiting[waiting.number]
        if not waiting.due:
            self._unasked -= waiting.frame.size
        if not waiting.due or waiting.frame.protocol is not Protocol.KAFKA:
            self._ordered -= 1
        same_id = self._by_id[waiting.frame.correlation_id]
        if len(same_id) == 1:
            del self._by_id[waiting.frame.correlation_id]
        else:
            same_id.remove(waiting)

    def _unmatched(self) -> Iterator[Pair]:
        while self._early:
            yield Pair(None, self._early.pop(0), Outcome.UNMATCHED, None)

    def _passed_over(self, answered: _Waiting) -> Iterator[Pair]:
        """Requests before the one just answered that need no answer, or whose own a gap has taken."""
        last = min(self._sent_before_gap, answered.number)
        passed: list[_Waiting] = []
        for waiting in self._waiting.values():
            if waiting.number > (last if _must_be_answered(waiting) else answered.number):
                break
            passed.append(waiting)
        for waiting in passed:
            self._remove(waiting)
            outcome = Outcome.LOST if _must_be_answered(waiting) else Outcome.NO_ACK
            yield Pair(waiting.frame, None, outcome, waiting.peer)

    def _let_go(self, frame: Frame) -> list[Pair]:
        """Keep only so many requests that need no answer in the hope of one."""
        found: list[Pair] = []
        self._unasked += frame.size
        while self._unasked > UNASKED_LIMIT:
            oldest = next((found for found in self._waiting.values() if not found.due), None)
            if oldest is None:
                self._unasked = 0
                break
            self._remove(oldest)
            found.append(Pair(oldest.frame, None, Outcome.NO_ACK, oldest.peer))
        return found


def _must_be_answered(waiting: _Waiting) -> bool:
    """Kafka requests that are due; the last GSSAPI token may stay without an answer."""
    return waiting.due and waiting.frame.protocol is not Protocol.SASL
