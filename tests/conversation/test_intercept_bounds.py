"""What a proxied connection keeps: as much as `holds` says and a little more, however long it lasts."""

import gc
import struct
import tracemalloc
from collections.abc import Callable

import pytest
from middle import CONN, Judge, Middle
from talk import MS, request, response, sized

from kwsniff.conversation.intercept import Interceptor
from kwsniff.model import Side
from kwsniff.passing import Delay, Drop, Respond

MIB = 1 << 20


def ask(number: int) -> bytes:
    return request(3, 1, number, {"topics": None})


def answer(number: int) -> bytes:
    return response(3, 1, number, {"brokers": [], "controllerId": 1, "topics": []})


class Forgetful(Judge):
    """Remembers nothing."""

    def exchanged(self, _: object) -> None:
        pass

    def _decided(self, passing):  # type: ignore[no-untyped-def]
        found = super()._decided(passing)
        self.passings.clear()
        self.given.clear()
        return found


def growth(judge: Judge, step: Callable[[Interceptor, int], None], count: int = 3000) -> int:
    """Bytes that are kept for the later two thirds of so many steps."""
    core = Interceptor(CONN, judge, max_frame=100 * MIB, now=0)
    tracemalloc.start()
    try:
        for number in range(count // 3):
            step(core, number)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(count // 3, count):
            step(core, number)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def exchange(core: Interceptor, number: int) -> None:
    core.receive(Side.REQUEST, ask(number), number)
    core.receive(Side.RESPONSE, answer(number), number)


def without_acks(core: Interceptor, number: int) -> None:
    body = {"acks": 0, "timeoutMs": 10, "topicData": [{"name": "t" * 1000, "partitionData": []}]}
    core.receive(Side.REQUEST, request(0, 3, number, body), number)


def unasked(core: Interceptor, number: int) -> None:
    if number == 0:
        core.receive(Side.REQUEST, ask(0), 0)
    core.receive(Side.RESPONSE, sized(struct.pack(">i", 7) + bytes(1000)), number)


def only_asked(core: Interceptor, number: int) -> None:
    core.receive(Side.REQUEST, ask(number), number)


def test_a_long_conversation() -> None:
    assert growth(Forgetful(), exchange) < 20_000


def test_produce_without_acks_for_ever() -> None:
    assert growth(Forgetful(), without_acks) < 20_000


def test_answers_that_nobody_asked_for() -> None:
    assert growth(Forgetful(), unasked) < 20_000


def test_requests_that_are_dropped_behind_one_that_is_not_answered() -> None:
    judge = Forgetful(lambda passing: [Drop()] if passing.number else [])
    assert growth(judge, only_asked) < 20_000


def test_requests_that_the_proxy_answers() -> None:
    judge = Forgetful(lambda passing: [Respond(answer(passing.frame.correlation_id or 0)[4:])])
    assert growth(judge, only_asked) < 20_000


def test_a_frame_that_comes_byte_by_byte() -> None:
    core = Interceptor(CONN, Forgetful(), max_frame=100 * MIB, now=0)
    core.receive(Side.REQUEST, ask(1) + struct.pack(">i", 50 * MIB), 0)
    tracemalloc.start()
    try:
        for number in range(100_000):
            core.receive(Side.REQUEST, b"x", number)
        assert tracemalloc.get_traced_memory()[0] < 400_000
    finally:
        tracemalloc.stop()
    assert core.holds(Side.REQUEST) == 0


class TestHolds:
    @pytest.mark.parametrize("side", Side)
    def test_what_is_held_back(self, side: Side) -> None:
        middle = Middle(lambda _: [Delay(5 * MS)], lambda _: [Delay(5 * MS)])
        middle.client(ask(1), ask(2))
        if side is Side.RESPONSE:
            middle.after(5).broker(answer(1), answer(2))
        frame = ask(1) if side is Side.REQUEST else answer(1)
        assert middle.core.holds(side) == 2 * len(frame)
        middle.after(5)
        assert middle.core.holds(side) == 0

    def test_requests_without_end_to_a_broker_that_does_not_answer(self) -> None:
        """They count beyond 16 MiB, so that reading stops; and it goes on when they are answered."""
        body = struct.pack(">hh", -1, 1) + bytes(MIB)  # no transactional id, acks=1
        core = Interceptor(CONN, Forgetful(), max_frame=100 * MIB, now=0)
        counts = []
        for number in range(20):
            core.receive(Side.REQUEST, request(0, 3, number, body), 0)
            counts.append(core.holds(Side.REQUEST))
        assert counts[:15] == [0] * 15
        assert counts[-1] == pytest.approx(4 * MIB, rel=0.01)
        for number in range(5):
            core.receive(Side.RESPONSE, response(0, 3, number, {"responses": []}), 0)
        assert core.holds(Side.REQUEST) == 0

    def test_answers_in_waiting_do_not_keep_the_broker_from_answering(self) -> None:
        respond = Respond(bytes(4) + bytes(MIB))
        middle = Middle(lambda passing: [respond] if passing.number else []).client(ask(1), ask(2), ask(3))
        assert middle.core.holds(Side.RESPONSE) == 0


def test_an_answer_that_comes_when_its_request_is_over_is_not_kept() -> None:
    """Ids that are repeated: the broker's answer was taken for the request that the proxy was to answer."""
    middle = Middle(lambda _: [Delay(5 * MS), Respond(answer(1)[4:] + bytes(1000))])
    middle.client(ask(1)).broker(answer(1)).after(5)
    passage = middle.core._passage
    assert passage is not None
    assert passage.waiting == 0
