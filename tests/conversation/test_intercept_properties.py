"""Random conversations through the proxy: random pieces, delays, verdicts, ends. What must always hold."""

from __future__ import annotations

import struct
from collections import deque
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from middle import Middle, assert_as_decoded
from talk import MS, request, response, sized

from kwsniff.conversation.intercept import Finish, Shut
from kwsniff.model import Frame, Outcome, Side
from kwsniff.passing import Close, Delay, Drop, Passing, Replace, Reset, Respond, Throttle, Verdict

PRODUCE, METADATA, HEARTBEAT, UNKNOWN = 0, 3, 12, 9999
OWN = b"the proxy's own answer"


class Asked(NamedTuple):
    """A request of this test's own making, and what its broker answers."""

    frame: bytes
    answer: bytes


def asked(api: int, number: int, size: int) -> Asked:
    if api == PRODUCE:
        body = {"acks": size % 2, "timeoutMs": 10, "topicData": []}
        answer = response(PRODUCE, 3, number, {"responses": []}) if size % 2 else b""
        return Asked(request(PRODUCE, 3, number, body), answer)
    if api == METADATA:
        body = {"brokers": [], "controllerId": size, "topics": []}
        return Asked(request(METADATA, 1, number, {"topics": None}), response(METADATA, 1, number, body))
    if api == HEARTBEAT:
        asks = {"groupId": "g" * size, "generationId": 1, "memberId": "m"}
        return Asked(request(HEARTBEAT, 0, number, asks), response(HEARTBEAT, 0, number, {"errorCode": 0}))
    return Asked(request(UNKNOWN, 1, number, bytes(size)), sized(struct.pack(">i", number) + bytes(size)))


CONVERSATIONS = st.lists(
    st.tuples(st.sampled_from([PRODUCE, METADATA, HEARTBEAT, UNKNOWN]), st.integers(0, 200)),
    min_size=1,
    max_size=12,
).map(lambda found: [asked(api, number, size) for number, (api, size) in enumerate(found)])
DELAYS = st.builds(Delay, st.integers(0, 50 * MS))
THROTTLES = st.builds(Throttle, st.integers(100, 100_000))
HOLDING = st.lists(DELAYS | THROTTLES, max_size=2)


class Both:
    """A client and a broker around a proxy: the client says it all in pieces, the broker answers in order
    what it gets, in pieces too; who is next, `data` says."""

    def __init__(self, data: st.DataObject, conversation: list[Asked], middle: Middle) -> None:
        self.draw = data.draw
        self.middle = middle
        self.answers = {one.frame: one.answer for one in conversation}
        self.unsaid = deque(self.pieces(b"".join(one.frame for one in conversation)))
        self.unanswered: deque[bytes] = deque()
        self.read = 0

    def pieces(self, data: bytes) -> list[bytes]:
        cuts = sorted(self.draw(st.sets(st.integers(0, len(data)), max_size=6)))
        return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]

    @property
    def shut(self) -> bool:
        return any(isinstance(command, Shut) for command in self.middle.commands)

    def step(self) -> bool:
        """One of them says something, or time goes by; False: nothing is left to be done."""
        self.broker_reads()
        can = [name for name, queue in (("client", self.unsaid), ("broker", self.unanswered)) if queue] + (
            ["time"] if self.middle.core.wake_at is not None else []
        )
        if not can or self.shut:
            return False
        what = self.draw(st.sampled_from(can))
        if what == "client":
            self.middle.client(self.unsaid.popleft())
        elif what == "broker":
            self.middle.broker(self.unanswered.popleft())
        else:
            self.middle.after(self.draw(st.integers(1, 60)))
        return True

    def broker_reads(self) -> None:
        data = self.middle.to_broker
        while len(data) - self.read >= 4:
            end = self.read + 4 + struct.unpack_from(">i", data, self.read)[0]
            if end > len(data):
                return
            self.unanswered.extend(self.pieces(self.answers.get(data[self.read : end], b"")))
            self.read = end


def frames(data: bytes) -> list[bytes]:
    found = []
    while len(data) >= 4:
        end = 4 + struct.unpack_from(">i", data)[0]
        found.append(data[:end])
        data = data[end:]
    assert not data
    return found


def ids(data: bytes) -> list[int]:
    return [struct.unpack_from(">i", frame, 4)[0] for frame in frames(data)]


@settings(max_examples=80, deadline=None)
@given(st.data(), CONVERSATIONS, st.booleans())
def test_what_nobody_changes_arrives_as_it_was(
    data: st.DataObject, conversation: list[Asked], judged: bool
) -> None:
    """Whatever is held back: every byte, once, in its order; and the log is what a capture would give."""

    def hold(_: Passing) -> list[Verdict]:
        return data.draw(HOLDING)

    middle = Middle(hold, hold) if judged else Middle()
    both = Both(data, conversation, middle)
    while both.step():
        pass
    assert middle.to_broker == b"".join(one.frame for one in conversation)
    assert middle.to_client == b"".join(one.answer for one in conversation)
    assert (middle.core.in_flight, middle.core.wake_at) == (0, None)
    assert [middle.core.holds(side) for side in Side] == [0, 0]
    assert_as_decoded(middle)


def verdicts(passing: Passing) -> st.SearchStrategy[list[Verdict]]:
    frame = passing.frame
    own = struct.pack(">i", frame.correlation_id or 0) + OWN
    ends: list[st.SearchStrategy[Verdict]] = [st.just(Drop()), DELAYS, THROTTLES]
    if frame.side is Side.REQUEST:
        ends.append(st.just(Respond(own)))
    else:
        ends.append(st.just(Replace(own)))
    return st.lists(DELAYS, max_size=1).flatmap(
        lambda first: st.lists(st.one_of(ends), max_size=1).map(lambda rest: [*first, *rest])
    )


def fate(middle: Middle, side: Side) -> dict[int, list[Verdict]]:
    """What was decided upon each frame of a side, by correlation id."""
    return {
        passing.frame.correlation_id or 0: passing_verdicts
        for passing, passing_verdicts in zip(middle.judge.passings, middle.judge.given, strict=True)
        if passing.frame.side is side
    }


def has(found: list[Verdict], kind: type) -> bool:
    return any(isinstance(verdict, kind) for verdict in found)


@settings(max_examples=80, deadline=None)
@given(st.data(), CONVERSATIONS)
def test_answers_keep_their_order_whatever_is_decided(data: st.DataObject, conversation: list[Asked]) -> None:
    def decide(passing: Passing) -> list[Verdict]:
        return data.draw(verdicts(passing))

    middle = Middle(decide, decide)
    both = Both(data, conversation, middle)
    while both.step():
        pass
    asking, answering = fate(middle, Side.REQUEST), fate(middle, Side.RESPONSE)
    expected_requests, expected_answers = [], []
    for number, one in enumerate(conversation):
        own = sized(struct.pack(">i", number) + OWN)
        if has(asking[number], Respond):
            expected_answers.append(own)
        elif not has(asking[number], Drop):
            expected_requests.append(one.frame)
            if one.answer and not has(answering[number], Drop):
                expected_answers.append(own if has(answering[number], Replace) else one.answer)
    assert frames(middle.to_broker) == expected_requests
    assert frames(middle.to_client) == expected_answers
    assert (middle.core.in_flight, middle.core.wake_at) == (0, None)
    assert_as_decoded(middle)
    assert_each_told_once(middle, conversation)


def assert_each_told_once(middle: Middle, conversation: list[Asked]) -> None:
    told = sorted(passed.number for passed in middle.judge.passed if passed.exchange.request)
    assert told == list(range(len(conversation)))
    for passed in middle.judge.passed:
        assert isinstance(passed.exchange.request, Frame)
        assert passed.exchange.request.raw == conversation[passed.number].frame[4:]
        assert passed.proxy_ns >= 0


@settings(max_examples=80, deadline=None)
@given(st.data(), CONVERSATIONS)
def test_every_end_is_an_end(data: st.DataObject, conversation: list[Asked]) -> None:
    """Somebody vanishes at any byte, or is closed: nothing comes after it, all is told, nothing is due."""

    def decide(_: Passing) -> list[Verdict]:
        ending = st.sampled_from([[], [], [], [], [], [Close()], [Reset()], [Drop()]])
        return data.draw(HOLDING) + data.draw(ending)

    middle = Middle(decide, decide)
    both = Both(data, conversation, middle)
    steps = data.draw(st.integers(0, 30))
    while steps and both.step():
        steps -= 1
    ends = data.draw(st.permutations(["client", "broker", "nobody"]))
    for who in ends[: ends.index("nobody")]:
        if both.unsaid and who == "client":
            middle.client(both.unsaid[0][: data.draw(st.integers(1, len(both.unsaid[0])))])
        _ = middle.client_ends() if who == "client" else middle.broker_ends()
        both.unsaid.clear() if who == "client" else both.unanswered.clear()
        middle.after(data.draw(st.integers(0, 60)))
    for _ in range(data.draw(st.integers(0, 5))):
        middle.after(20)
    session = middle.end()
    assert middle.core.wake_at is None
    if not any(isinstance(verdict, Close | Reset) for found in middle.judge.given for verdict in found):
        assert_as_decoded(middle, session)
    for ledger in (session.requests, session.responses):
        assert ledger.seen == ledger.decoded + ledger.undecoded
    assert session.exchanges == len(middle.exchanges)
    assert all(found.outcome is not Outcome.UNMATCHED for found in middle.exchanges)
    for side, gone in ((Side.REQUEST, "client"), (Side.RESPONSE, "broker")):
        if Finish(side) in middle.commands:
            assert gone in ends[: ends.index("nobody")]
    assert middle.core.receive(Side.REQUEST, b"more", middle.now) == []
    assert middle.core.finish(Side.RESPONSE, middle.now) == []


@settings(max_examples=150, deadline=None)
@given(st.data(), st.lists(st.tuples(st.sampled_from(list(Side)), st.binary(max_size=40)), max_size=12))
def test_no_bytes_are_an_exception(data: st.DataObject, parts: list[tuple[Side, bytes]]) -> None:
    conversation = data.draw(CONVERSATIONS)
    middle = Middle(lambda _: data.draw(HOLDING), max_frame=1000).client(conversation[0].frame)
    for side, part in parts:
        _ = middle.client(part) if side is Side.REQUEST else middle.broker(part)
        middle.after(data.draw(st.integers(0, 10)))
    session = middle.end()
    for ledger in (session.requests, session.responses):
        assert ledger.seen == ledger.decoded + ledger.undecoded
        assert min(ledger.decoded, ledger.undecoded) >= 0
