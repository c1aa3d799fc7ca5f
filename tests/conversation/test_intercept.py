"""What two ends say with a proxy between them -> what each gets, when, and what is told of it."""

import struct
from collections.abc import Callable, Iterable

import pytest
from middle import Middle, assert_as_decoded
from talk import MS, request, response, sized

from kwsniff.conversation.intercept import Finish, Send, Shut
from kwsniff.errors import Reason
from kwsniff.model import Frame, Outcome, Peer, Side
from kwsniff.passing import (
    Close,
    Delay,
    Drop,
    Passing,
    Replace,
    Reset,
    Respond,
    Throttle,
    Verdict,
)

METADATA, PRODUCE, HEARTBEAT = 3, 0, 12
TO_BROKER, TO_CLIENT = Side.REQUEST, Side.RESPONSE
Decide = Callable[[Passing], Iterable[Verdict]]


def ask(number: int) -> bytes:
    return request(METADATA, 1, number, {"topics": None})


def answer(number: int, controller: int = 1) -> bytes:
    return response(METADATA, 1, number, {"brokers": [], "controllerId": controller, "topics": []})


def produce(number: int, acks: int) -> bytes:
    return request(PRODUCE, 3, number, {"acks": acks, "timeoutMs": 10, "topicData": []})


def on(numbers: dict[int, list[Verdict]]) -> Decide:
    """Verdicts by correlation id."""
    return lambda passing: numbers.get(passing.frame.correlation_id or 0, [])


def forwarding(_: Passing) -> list[Verdict]:
    return []


def ids(data: bytes, at: int = 0) -> list[int]:
    """The int32 that each frame has at `at`: 0 the id of a response, 4 that of a request."""
    found = []
    while data:
        (size,) = struct.unpack_from(">i", data)
        found.append(struct.unpack_from(">i", data, 4 + at)[0])
        data = data[4 + size :]
    return found


def outcomes(middle: Middle) -> list[tuple[int | None, str]]:
    return [
        ((found.request or found.response).correlation_id, found.outcome)  # type: ignore[union-attr]
        for found in middle.exchanges
    ]


class TestForwarding:
    def test_a_request_and_its_answer(self) -> None:
        middle = Middle().client(ask(7)).after(3).broker(answer(7))
        assert middle.log == [(0, Send(TO_BROKER, ask(7))), (3, Send(TO_CLIENT, answer(7)))]
        (exchange,) = middle.exchanges
        assert exchange.outcome is Outcome.ANSWERED
        assert exchange.latency == 3 * MS
        assert middle.judge.passed[0].proxy_ns == 0
        assert middle.core.in_flight == 0

    def test_what_comes_together_leaves_together(self) -> None:
        asked, answered = ask(1) + ask(2) + produce(3, 1), answer(1) + answer(2)
        middle = Middle().client(asked).broker(answered)
        assert middle.commands == [Send(TO_BROKER, asked), Send(TO_CLIENT, answered)]
        assert middle.core.in_flight == 1

    @pytest.mark.parametrize("decide", [None, forwarding])
    def test_byte_by_byte(self, decide: Decide | None) -> None:
        middle = Middle(decide, decide)
        middle.client(*(bytes([byte]) for byte in ask(1) + ask(2)))
        assert middle.commands == [Send(TO_BROKER, ask(1)), Send(TO_BROKER, ask(2))]
        middle.broker(*(bytes([byte]) for byte in answer(1) + answer(2)))
        assert middle.to_client == answer(1) + answer(2)
        assert outcomes(middle) == [(1, "answered"), (2, "answered")]

    @pytest.mark.parametrize("decide", [None, forwarding])
    def test_with_a_part_of_the_next(self, decide: Decide | None) -> None:
        middle = Middle(decide, decide).client(ask(1) + ask(2)[:9])
        assert middle.commands == [Send(TO_BROKER, ask(1))]
        assert middle.core.holds(TO_BROKER) == 0  # what is not whole waits for more bytes, not for less
        middle.client(ask(2)[9:])
        assert middle.to_broker == ask(1) + ask(2)

    def test_a_piece_as_long_as_what_leaves(self) -> None:
        middle = Middle().client(ask(1)[:5], ask(1)[5:] + ask(2)[:5], ask(2)[5:])
        assert middle.commands == [Send(TO_BROKER, ask(1)), Send(TO_BROKER, ask(2))]

    def test_an_api_that_nobody_knows(self) -> None:
        asked, answered = request(9999, 3, 5, b"\1\2\3"), sized(struct.pack(">i", 5) + b"\4\5")
        middle = Middle(forwarding, forwarding).client(asked).broker(answered)
        assert (middle.to_broker, middle.to_client) == (asked, answered)
        (exchange,) = middle.exchanges
        assert exchange.request is not None
        assert (exchange.request.api, exchange.outcome) == (9999, "answered")
        assert exchange.request.faults[0].reason is Reason.UNKNOWN_API

    def test_produce_without_acks_gets_no_answer(self) -> None:
        middle = Middle().client(produce(1, 0), ask(2))
        assert middle.core.in_flight == 1
        middle.broker(answer(2))
        assert outcomes(middle) == [(1, "no_ack"), (2, "answered")]
        assert middle.core.in_flight == 0

    def test_what_nobody_asked_for_goes_on(self) -> None:
        middle = Middle(forwarding, forwarding).client(ask(1)).broker(answer(77), answer(1))
        assert middle.to_client == answer(77) + answer(1)
        assert outcomes(middle) == [(77, "unmatched"), (1, "answered")]

    def test_a_broker_that_answers_out_of_order_is_not_corrected(self) -> None:
        middle = Middle().client(ask(1), ask(2)).broker(answer(2), answer(1))
        assert middle.to_client == answer(2) + answer(1)
        assert outcomes(middle) == [(2, "answered"), (1, "answered")]

    def test_the_same_id_again_and_again(self) -> None:
        beat = request(HEARTBEAT, 0, 0, {})
        middle = Middle(response=lambda _: [Delay(MS)]).client(ask(0), beat, ask(0))
        middle.broker(answer(0), response(HEARTBEAT, 0, 0, {"errorCode": 27}), answer(0, controller=2))
        middle.after(2)
        found = [found.request.api for found in middle.exchanges if found.request]
        assert found == [METADATA, HEARTBEAT, METADATA]
        assert middle.exchanges[2].response is not None
        assert middle.exchanges[2].response.body == {"brokers": [], "controllerId": 2, "topics": []}

    def test_a_frame_without_a_header_is_a_fault_and_goes_on(self) -> None:
        middle = Middle(forwarding, forwarding).client(ask(1), sized(b"\xff\xff"), ask(2))
        assert middle.to_broker == ask(1) + sized(b"\xff\xff") + ask(2)
        assert [fault.reason for fault in middle.judge.faults] == [Reason.HEADER_INVALID]

    def test_a_first_request_that_comes_in_parts(self) -> None:
        """Its header has to convince before all of it is there."""
        asked = request(PRODUCE, 3, 1, {"transactionalId": "t" * 30_000, "acks": 1, "topicData": []})
        long = request(9999, 3, 1, bytes(200_000))
        for frame in (asked, long):
            parts = [frame[at : at + 1000] for at in range(0, len(frame), 1000)]
            middle = Middle(forwarding).client(*parts)
            assert middle.to_broker == frame
            assert_as_decoded(middle)

    def test_large_frames_are_not_copied_together(self) -> None:
        asked = ask(1) + ask(2) + request(PRODUCE, 3, 3, bytes(200_000)) + ask(4)
        middle = Middle().client(asked[:50_000], asked[50_000:])
        assert middle.commands[0] == Send(TO_BROKER, ask(1) + ask(2))
        assert [len(send.data) for send in middle.commands[1:] if isinstance(send, Send)] == [
            4,
            200_000 + 11,
            len(ask(4)),
        ]
        assert middle.to_broker == asked

    def test_an_answer_in_parts_is_the_clients_when_it_is_whole(self) -> None:
        middle = Middle().client(ask(1)).after(3).broker(answer(1)[:9]).after(2).broker(answer(1)[9:])
        (passed,) = middle.judge.passed
        assert passed.received is not None
        assert passed.exchange.response is not None
        assert (passed.received.ts, passed.received.end) == (3 * MS, 5 * MS)
        assert (passed.exchange.response.ts, passed.exchange.response.end) == (5 * MS, 5 * MS)
        assert passed.proxy_ns == 0

    def test_nothing_is_told_before_the_bytes_are_given(self) -> None:
        middle = Middle().client(ask(1))
        assert middle.core.receive(TO_CLIENT, answer(1), 5) == [Send(TO_CLIENT, answer(1))]
        assert middle.judge.passed == []
        middle.core.tell()
        assert len(middle.judge.passed) == 1


class TestJudging:
    def test_what_a_judge_is_shown(self) -> None:
        def decide(passing: Passing) -> list[Verdict]:
            passing.tags.append(str(passing.frame.side))
            return []

        middle = Middle(decide, decide).client(ask(1) + ask(2)).after(5).broker(answer(1))
        first, second, answered = middle.judge.passings
        assert (first.number, second.number, answered.number) == (0, 1, 0)
        assert (first.now, answered.now) == (0, 5 * MS)
        assert answered.frame.body == {"brokers": [], "controllerId": 1, "topics": []}
        assert answered.request is first.original is middle.exchanges[0].request
        assert answered.peer == Peer(principal="User:ANONYMOUS", security_protocol="PLAINTEXT")
        assert middle.exchanges[0].tags == ["request", "response"]
        assert middle.exchanges[0].response is answered.original  # decoded once

    def test_who_wants_nothing_is_not_asked(self) -> None:
        middle = Middle().client(ask(1)).broker(answer(1))
        assert middle.judge.passings == []

    def test_replaced_both_ways(self) -> None:
        def decide(passing: Passing) -> list[Verdict]:
            changed = ask(1) if passing.frame.side is TO_BROKER else answer(1, controller=9)
            return [Replace(changed[4:])]

        named = request(METADATA, 1, 1, {"topics": [{"name": "t"}]})
        middle = Middle(decide, decide).client(named).broker(answer(1))
        assert (middle.to_broker, middle.to_client) == (ask(1), answer(1, controller=9))
        (passed,) = middle.judge.passed
        assert passed.exchange.request is not None
        assert passed.exchange.request.raw == named[4:]
        assert passed.sent is not None
        assert passed.sent.raw == ask(1)[4:]
        assert passed.received is not None
        assert passed.received.raw == answer(1)[4:]
        assert passed.exchange.response is not None
        assert passed.exchange.response.raw == answer(1, controller=9)[4:]
        assert [name for name, _ in passed.verdicts] == ["test", "test"]

    def test_a_changed_frame_among_untouched_ones(self) -> None:
        decide = on({2: [Replace(produce(2, -1)[4:])]})
        middle = Middle(decide).client(produce(1, 1) + produce(2, 1) + produce(3, 1))
        assert middle.commands == [Send(TO_BROKER, produce(1, 1) + produce(2, -1) + produce(3, 1))]


class TestDelay:
    def test_what_comes_behind_waits_too(self) -> None:
        middle = Middle(on({2: [Delay(10 * MS)]})).client(ask(1) + ask(2)).after(4).client(ask(3)).after(20)
        assert middle.log == [(0, Send(TO_BROKER, ask(1))), (10, Send(TO_BROKER, ask(2) + ask(3)))]

    def test_delays_run_side_by_side(self) -> None:
        middle = Middle(on({1: [Delay(10 * MS)], 2: [Delay(10 * MS)]}))
        middle.client(ask(1)).after(4).client(ask(2)).after(20)
        assert [at for at, _ in middle.log] == [10, 14]

    def test_delays_of_one_frame_add_up(self) -> None:
        middle = Middle(on({1: [Delay(10 * MS), Delay(5 * MS)]})).client(ask(1)).after(20)
        assert [at for at, _ in middle.log] == [15]

    def test_answers_stay_in_order(self) -> None:
        middle = Middle(response=on({1: [Delay(10 * MS)], 3: [Delay(MS)]})).client(ask(1), ask(2), ask(3))
        middle.broker(answer(1) + answer(2)).after(5).broker(answer(3)).after(20)
        assert middle.log[3:] == [(10, Send(TO_CLIENT, answer(1) + answer(2) + answer(3)))]

    def test_it_is_the_proxys_time(self) -> None:
        delay = on({1: [Delay(10 * MS)]})
        middle = Middle(delay, delay).client(ask(1)).after(10).after(5).broker(answer(1))
        assert middle.core.in_flight == 1
        assert middle.core.holds(TO_CLIENT) == len(answer(1))
        middle.after(20)
        (passed,) = middle.judge.passed
        assert passed.exchange.latency == 25 * MS
        assert passed.proxy_ns == 20 * MS
        assert passed.received is not None
        assert passed.exchange.response is not None
        assert (passed.received.end, passed.exchange.response.end) == (15 * MS, 25 * MS)
        assert passed.received.body == passed.exchange.response.body
        assert (middle.core.in_flight, middle.core.holds(TO_CLIENT)) == (0, 0)

    def test_a_frame_of_the_same_size_leaves_while_another_is_held(self) -> None:
        middle = Middle(lambda _: [Delay(10 * MS)]).client(ask(1)).after(9.5)
        middle.now = 10 * MS
        middle.client(ask(2))
        assert middle.commands == [Send(TO_BROKER, ask(1))]

    def test_a_late_wake_is_no_harm(self) -> None:
        middle = Middle(on({1: [Delay(10 * MS)]})).client(ask(1), ask(2))
        assert middle.core.wake_at == 10 * MS
        assert middle.core.wake(9 * MS) == []
        assert middle.core.wake(99 * MS) == [Send(TO_BROKER, ask(1) + ask(2))]
        assert middle.core.wake_at is None


class TestThrottle:
    def test_slices(self) -> None:
        """1000 bytes a second are 50 in each twentieth of a second."""
        frame = request(9999, 1, 1, bytes(120 - 15))
        assert len(frame) == 120
        middle = Middle(on({1: [Throttle(1000)]})).client(frame + ask(2)).after(1000)
        assert middle.log == [
            (50, Send(TO_BROKER, frame[:50])),
            (100, Send(TO_BROKER, frame[50:100])),
            (120, Send(TO_BROKER, frame[100:] + ask(2))),
        ]

    def test_less_than_a_byte_in_a_slice(self) -> None:
        middle = Middle(response=on({1: [Throttle(2)]})).client(ask(1)).broker(answer(1)).after(60_000)
        assert [at for at, _ in middle.log[1:]] == [500.0 * n for n in range(1, len(answer(1)) + 1)]
        assert middle.to_client == answer(1)

    def test_one_behind_the_other(self) -> None:
        middle = Middle(response=on({1: [Throttle(1000)], 2: [Throttle(500)]})).client(ask(1), ask(2))
        middle.broker(answer(1) + answer(2)).after(45)
        assert middle.core.wake(middle.now) == []  # its turn came at 20
        middle.after(1000)
        assert [at for at, _ in middle.log[2:]] == [20, 60]  # 20 bytes in 20 ms, then 20 in 40
        assert middle.to_client == answer(1) + answer(2)

    def test_the_slowest_counts_behind_its_delay(self) -> None:
        middle = Middle(on({1: [Throttle(10_000), Delay(7 * MS), Throttle(1000)]}))
        middle.client(ask(1)).after(1000)
        assert [at for at, _ in middle.log] == [7 + len(ask(1))]

    def test_a_late_wake_gives_all_that_is_due(self) -> None:
        frame = request(9999, 1, 1, bytes(985))
        middle = Middle(on({1: [Throttle(1000)]})).client(frame)
        assert middle.core.wake(420 * MS) == [Send(TO_BROKER, frame[:420])]
        assert middle.core.holds(TO_BROKER) == 1000 - 420
        assert middle.core.wake_at == 470 * MS

    def test_the_client_has_it_when_its_last_byte_has_left(self) -> None:
        middle = Middle(response=on({1: [Throttle(100)]})).client(ask(1)).broker(answer(1)).after(199)
        assert middle.exchanges == []
        middle.after(1)
        assert [found.latency for found in middle.exchanges] == [len(answer(1)) * 10 * MS]


class TestRespond:
    def refused(self, number: int) -> Respond:
        return Respond(answer(number, controller=-1)[4:])

    def test_the_broker_never_sees_it(self) -> None:
        middle = Middle(on({1: [self.refused(1)]})).client(ask(1))
        assert middle.commands == [Send(TO_CLIENT, answer(1, controller=-1))]
        (passed,) = middle.judge.passed
        assert (passed.sent, passed.received, passed.exchange.outcome) == (None, None, "answered")
        assert passed.exchange.response is not None
        assert passed.exchange.response.body == {"brokers": [], "controllerId": -1, "topics": []}
        assert middle.core.in_flight == 0

    def test_in_its_turn(self) -> None:
        middle = Middle(on({2: [self.refused(2)]})).client(ask(1) + ask(2) + ask(3))
        assert middle.commands == [Send(TO_BROKER, ask(1) + ask(3))]
        assert middle.core.in_flight == 3
        middle.broker(answer(1)).broker(answer(3))
        assert middle.commands[1:] == [
            Send(TO_CLIENT, answer(1) + answer(2, controller=-1)),
            Send(TO_CLIENT, answer(3)),
        ]

    def test_in_one_piece_with_the_answer_behind(self) -> None:
        middle = Middle(on({2: [self.refused(2)]})).client(ask(1) + ask(2) + ask(3))
        middle.broker(answer(1) + answer(3))
        assert middle.to_client == answer(1) + answer(2, controller=-1) + answer(3)

    def test_behind_one_that_the_broker_has_passed_over(self) -> None:
        middle = Middle(on({2: [self.refused(2)]})).client(ask(1) + ask(2) + ask(3)).broker(answer(3))
        assert middle.to_client == answer(2, controller=-1) + answer(3)
        middle.broker(answer(1))
        assert ids(middle.to_client) == [2, 3, 1]

    def test_a_produce_without_acks_is_not_waited_for(self) -> None:
        middle = Middle(on({2: [self.refused(2)]})).client(produce(1, 0) + ask(2))
        assert middle.to_client == answer(2, controller=-1)

    def test_behind_an_answered_one_and_a_produce_without_acks(self) -> None:
        middle = Middle(on({3: [self.refused(3)]})).client(ask(1) + produce(2, 0) + ask(3))
        assert middle.to_client == b""
        middle.broker(answer(1))
        assert middle.to_client == answer(1) + answer(3, controller=-1)

    def test_to_a_produce_without_acks(self) -> None:
        """Who answers it has a reason; it has its turn as any other."""
        own = response(PRODUCE, 3, 2, {"responses": []})
        middle = Middle(on({2: [Delay(5 * MS), Respond(own[4:])]}))
        middle.client(ask(1) + produce(2, 0) + ask(3)).broker(answer(1)).after(5).broker(answer(3))
        assert middle.to_client == answer(1) + own + answer(3)

    def test_behind_its_delay_and_an_answer_that_is_held(self) -> None:
        middle = Middle(on({2: [Delay(5 * MS), self.refused(2)]}), on({1: [Delay(9 * MS)]}))
        middle.client(ask(1) + ask(2) + ask(3)).after(1).broker(answer(1)).after(3).broker(b"").after(20)
        assert middle.log == [
            (0, Send(TO_BROKER, ask(1))),
            (5, Send(TO_BROKER, ask(3))),
            (10, Send(TO_CLIENT, answer(1) + answer(2, controller=-1))),
        ]

    def test_throttled(self) -> None:
        refused = self.refused(1)
        middle = Middle(on({1: [Throttle(100), refused]})).client(ask(1)).after(1000)
        assert [at for at, _ in middle.log] == [50, 100, 150, 200]
        assert middle.to_client == sized(refused.raw)

    def test_with_an_id_that_nobody_waits_for(self) -> None:
        middle = Middle(on({1: [self.refused(55)]})).client(ask(1))
        assert middle.to_client == answer(55, controller=-1)
        assert sorted(outcomes(middle)) == [(1, "closed"), (55, "unmatched")]
        assert middle.core.in_flight == 0

    def test_the_broker_has_ended(self) -> None:
        middle = Middle(on({1: [self.refused(1)]})).broker_ends().client(ask(1))
        assert middle.commands == [Finish(TO_CLIENT)]
        assert outcomes(middle) == [(1, "closed")]


class TestDrop:
    def test_a_request(self) -> None:
        middle = Middle(on({2: [Drop()]})).client(ask(1) + ask(2) + ask(3))
        assert middle.to_broker == ask(1) + ask(3)
        assert (outcomes(middle), middle.judge.passed[0].sent) == ([(2, "closed")], None)
        assert middle.core.in_flight == 2

    def test_an_answer(self) -> None:
        middle = Middle(response=on({1: [Drop()]})).client(ask(1) + ask(2)).broker(answer(1) + answer(2))
        assert middle.to_client == answer(2)
        dropped = middle.judge.passed[0]
        assert outcomes(middle) == [(1, "closed"), (2, "answered")]
        assert dropped.received is not None
        assert dropped.received.raw == answer(1)[4:]
        assert dropped.exchange.response is None
        assert middle.core.in_flight == 0

    def test_it_frees_the_turn_of_the_next(self) -> None:
        refused = Respond(answer(2)[4:])
        middle = Middle(on({2: [refused]}), on({1: [Drop()]})).client(ask(1) + ask(2)).broker(answer(1))
        assert middle.to_client == answer(2)

    @pytest.mark.parametrize("early", [True, False])
    @pytest.mark.parametrize("end", [Drop(), Replace(answer(1)[4:])])
    def test_the_ledger_counts_what_the_client_gets(self, end: Verdict, early: bool) -> None:
        broken = response(METADATA, 1, 1, b"\x7f\xff\xff\xff")

        def decide(passing: Passing) -> list[Verdict]:
            assert not early or passing.frame.body is None
            return [end]

        middle = Middle(response=decide).client(ask(1)).broker(broken)
        responses = middle.end().responses
        assert middle.judge.passed[0].received is not None
        assert middle.judge.passed[0].received.body is None
        assert (responses.seen, responses.undecoded) == (len(middle.to_client), 0)


class TestClosing:
    def test_what_was_sent_before_leaves_first(self) -> None:
        middle = Middle(on({1: [Delay(5 * MS)], 2: [Close("enough")]})).client(ask(1) + ask(2) + ask(3))
        assert middle.commands == []
        middle.client(ask(4)).after(10)
        assert middle.log == [(5, Send(TO_BROKER, ask(1))), (5, Shut("close by test: enough"))]

    def test_the_client_gets_what_is_held_for_it(self) -> None:
        middle = Middle(on({2: [Close()]}), on({1: [Delay(5 * MS)]}))
        middle.client(ask(1)).broker(answer(1)).client(ask(2)).broker(answer(77)).after(10)
        assert middle.log[1:] == [(5, Send(TO_CLIENT, answer(1))), (5, Shut("close by test"))]

    def test_on_an_answer(self) -> None:
        middle = Middle(response=on({2: [Close()]})).client(ask(1) + ask(2) + ask(3))
        middle.broker(answer(1) + answer(2) + answer(3))
        assert middle.commands[1:] == [Send(TO_CLIENT, answer(1)), Shut("close by test")]
        middle.end()
        assert sorted(outcomes(middle)) == [(1, "answered"), (2, "closed"), (3, "closed")]
        received = {passed.number: passed.received for passed in middle.judge.passed}
        assert isinstance(received[1], Frame)
        assert received[2] is None

    def test_reset_waits_for_nobody(self) -> None:
        middle = Middle(on({2: [Reset()]}), on({1: [Delay(5 * MS)]}))
        middle.client(ask(1)).broker(answer(1)).client(ask(2))
        assert middle.commands[1:] == [Shut("reset by test", reset=True)]
        assert middle.core.wake_at is None
        session = middle.end()
        assert outcomes(middle) == [(1, "closed"), (2, "closed")]
        assert (session.responses.seen, session.exchanges) == (0, 2)

    def test_in_the_middle_of_a_throttled_answer(self) -> None:
        middle = Middle(on({2: [Reset()]}), on({1: [Throttle(100)]})).client(ask(1)).broker(answer(1))
        middle.after(110).client(ask(2))
        assert middle.to_client == answer(1)[:10]
        session = middle.end()
        first = middle.exchanges[0]
        assert first.response is not None
        assert (first.response.raw, first.response.lost) == (answer(1)[4:10], 10)
        assert first.response.cut_off
        assert session.responses.seen == 10

    def test_after_it_nothing_is_said(self) -> None:
        middle = Middle(on({1: [Close()]})).client(ask(1))
        assert middle.commands == [Shut("close by test")]
        middle.client(ask(2)).broker(answer(1)).client_ends().broker_ends().after(10)
        assert len(middle.commands) == 1


class TestEnds:
    def test_the_client_has_no_more_to_say(self) -> None:
        middle = Middle().client(ask(1)).client_ends().broker(answer(1)).broker_ends()
        assert middle.commands == [
            Send(TO_BROKER, ask(1)),
            Finish(TO_BROKER),
            Send(TO_CLIENT, answer(1)),
            Finish(TO_CLIENT),
        ]

    def test_behind_what_is_held(self) -> None:
        middle = Middle(on({1: [Delay(5 * MS)]})).client(ask(1)).client_ends().after(10)
        assert middle.log == [(5, Send(TO_BROKER, ask(1))), (5, Finish(TO_BROKER))]

    def test_nothing_was_said(self) -> None:
        middle = Middle().client_ends().broker_ends()
        assert middle.commands == [Finish(TO_BROKER), Finish(TO_CLIENT)]
        session = middle.end()
        assert (session.protocol, session.exchanges, session.faults) == (None, 0, 0)

    @pytest.mark.parametrize("length", range(len(ask(1))))
    def test_the_client_vanishes_inside_its_second_request(self, length: int) -> None:
        middle = Middle(forwarding, forwarding).client(ask(1), ask(2)[:length]).client_ends()
        assert middle.to_broker == ask(1) + ask(2)[:length]
        assert middle.commands[-1] == Finish(TO_BROKER)
        middle.broker(answer(1)).broker_ends()
        assert_as_decoded(middle)

    @pytest.mark.parametrize("length", range(1, len(ask(1))))
    def test_the_client_vanishes_inside_its_first_request(self, length: int) -> None:
        middle = Middle().client(ask(1)[:length]).client_ends()
        shut = [command for command in middle.commands if isinstance(command, Shut)]
        if not shut:
            assert middle.commands == [Send(TO_BROKER, ask(1)[:length]), Finish(TO_BROKER)]
        assert bool(shut) == any(fault.reason is Reason.NOT_KAFKA for fault in middle.judge.faults)
        assert_as_decoded(middle)

    @pytest.mark.parametrize("length", range(len(answer(1))))
    def test_the_broker_vanishes_inside_an_answer(self, length: int) -> None:
        middle = Middle(forwarding, forwarding).client(ask(1) + ask(2)).broker(answer(1) + answer(2)[:length])
        middle.broker_ends()
        assert middle.to_client == answer(1) + answer(2)[:length]
        assert middle.commands[-1] == Finish(TO_CLIENT)
        assert_as_decoded(middle)

    @pytest.mark.parametrize("length", range(len(ask(1))))
    def test_both_sockets_are_gone_at_once(self, length: int) -> None:
        middle = Middle(on({1: [Delay(9 * MS)]})).client(ask(1), ask(2), ask(3)[:length])
        session = middle.end()
        assert middle.commands == []
        assert [passed.sent for passed in middle.judge.passed] == [None] * len(middle.judge.passed)
        assert session.requests.seen == 2 * len(ask(1)) + length
        assert_as_decoded(middle, session)


class TestNotKafka:
    HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32)

    @pytest.mark.parametrize(
        ("first", "why", "protocol"),
        [
            (HELLO, "not Kafka: it looks like TLS (a TLS client on a plain port)", "tls"),
            (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "not Kafka: it looks like HTTP", "http"),
            (b"SSH-2.0-OpenSSH_9.6\r\n", "not Kafka: it looks like SSH", "ssh"),
            (b"\xde\xad\xbe\xef" * 4, "not Kafka: its first bytes are no Kafka request", "unknown"),
            (sized(b"\0" * 40), "not Kafka: its first bytes are no Kafka request", "unknown"),
            (bytes(16), "not Kafka: its first bytes are no Kafka request", "unknown"),
        ],
    )
    def test_named_and_shut(self, first: bytes, why: str, protocol: str) -> None:
        for parts in ([first], [bytes([byte]) for byte in first], [first + b"more"]):
            middle = Middle().client(*parts)
            assert middle.commands == [Shut(why)]
            (fault,) = middle.judge.faults
            assert (fault.reason, fault.message, fault.side) == (Reason.NOT_KAFKA, why, TO_BROKER)
            assert middle.end().protocol == protocol

    @pytest.mark.parametrize(
        ("first", "name"),
        [(b"HTTP/1.1 400 Bad Request\r\n", "HTTP"), (b"\x15\x03\x03\x00\x02\x02\x46", "TLS")],
    )
    def test_the_brokers_side_is_none(self, first: bytes, name: str) -> None:
        middle = Middle().client(ask(1)).broker(first)
        assert middle.commands[1:] == [Shut(f"not Kafka: the broker's side looks like {name}")]
        assert middle.judge.faults[0].side is TO_CLIENT

    def test_a_broker_that_speaks_first(self) -> None:
        middle = Middle().broker(b"SSH-2.0-OpenSSH_9.6\r\n")
        assert middle.commands == [Shut("not Kafka: the broker's side looks like SSH")]
        middle = Middle().broker(answer(1))
        assert (middle.commands, middle.core.holds(TO_CLIENT)) == ([], len(answer(1)))
        middle.client(ask(2))
        assert (middle.to_client, middle.core.holds(TO_CLIENT)) == (answer(1), 0)

    def test_a_frame_over_the_limit(self) -> None:
        big = request(PRODUCE, 3, 1, bytes(2000))
        for first in (b"", ask(1)):
            middle = Middle(max_frame=1000).client(first + big[:100]) if first else Middle(max_frame=1000)
            middle.client(*([] if first else [big[:100]]))
            text = f"a frame of {len(big) - 4} bytes is over the limit of 1000"
            assert middle.commands[-1] == Shut(text)
            assert [fault.reason for fault in middle.judge.faults] == [Reason.FRAME_TOO_LARGE]

    def test_an_answer_over_the_limit_behind_one_that_is_held(self) -> None:
        middle = Middle(response=on({1: [Delay(5 * MS)]}), max_frame=1000).client(ask(1), ask(2))
        middle.broker(answer(1) + sized(bytes(1001))).after(10)
        text = "a frame of 1001 bytes is over the limit of 1000"
        assert middle.log[2:] == [(5, Send(TO_CLIENT, answer(1))), (5, Shut(text))]

    def test_a_size_that_none_can_have(self) -> None:
        middle = Middle().client(ask(1) + struct.pack(">i", -5) + ask(2))
        assert middle.commands == [Send(TO_BROKER, ask(1)), Shut("a frame cannot have -5 bytes")]
        assert [fault.reason for fault in middle.judge.faults] == [Reason.SIZE_INVALID]
