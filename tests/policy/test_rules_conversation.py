"""Rules in the middle of a conversation: what reaches both ends, and what a capture of it would tell."""

from __future__ import annotations

from typing import Any

from passing_builders import CONN, MS, request_bytes, response_bytes
from rule_builders import FETCH, HEARTBEAT, METADATA, PRODUCE, Heard, Stage, produced, ruleset

from kwsniff import wire
from kwsniff.conversation.intercept import Command, Interceptor, Send, Shut
from kwsniff.hooks import hookimpl
from kwsniff.model import Exchange, Side
from kwsniff.output import jsonl
from kwsniff.passing import Passed
from kwsniff.policy.chain import Chain
from kwsniff.policy.rehearsal import Rehearsal
from kwsniff.policy.rules import Rules

BEAT = {"groupId": "g", "generationId": 1, "memberId": "m"}


class Sees:
    """An observer."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []

    @hookimpl
    def exchanged(self, passed: Passed) -> None:
        self.exchanges.append(passed.exchange)


class Line:
    """A connection through the proxy with these rules, and what its ends are given, a millisecond a step."""

    def __init__(self, text: str, seed: int = 0) -> None:
        self.heard, self.sees = Heard(), Sees()
        self.rules = Rules(ruleset(text, seed), jsonl.line, self.heard)
        self.chain = Chain([("rules", self.rules), ("sees", self.sees)])
        self.core = Interceptor(CONN, self.chain, max_frame=1 << 20, now=0)
        self.now = 0
        self.to: dict[Side, bytes] = {Side.REQUEST: b"", Side.RESPONSE: b""}
        self.shut: str | None = None

    def says(self, side: Side, frame: bytes) -> None:
        self.now += MS
        self._do(self.core.receive(side, len(frame).to_bytes(4, "big") + frame, self.now))

    def passes(self, ms: int) -> None:
        self.now += ms * MS
        self._do(self.core.wake(self.now))

    def _do(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Send):
                self.to[command.side] += command.data
            elif isinstance(command, Shut):
                self.shut = command.why

    def ask(self, api: int, version: int, body: dict[str, Any], correlation: int = 7) -> None:
        self.says(Side.REQUEST, request_bytes(api, version, body, correlation))

    def answer(self, api: int, version: int, body: dict[str, Any], correlation: int = 7) -> None:
        self.says(Side.RESPONSE, response_bytes(api, version, body, correlation))

    def end(self) -> None:
        self.chain.closed(self.core.end(self.now))
        assert not self.chain.failures


def test_each_side_sees_its_own_name_of_a_topic() -> None:
    line = Line("- {name: r, on: request, then: {rename: {orders: orders-v2}}}")
    line.ask(METADATA, 4, {"topics": [{"name": "orders"}], "allowAutoTopicCreation": True})
    _, asked = wire.decode_request(line.to[Side.REQUEST][4:])
    assert asked["topics"] == [{"name": "orders-v2"}]
    line.answer(METADATA, 4, {"brokers": [], "topics": [{"name": "orders-v2", "partitions": []}]})
    _, answered = wire.decode_response(line.to[Side.RESPONSE][4:], METADATA, 4)
    assert [topic["name"] for topic in answered["topics"]] == ["orders"]
    line.end()


def test_an_answer_without_the_broker_in_its_turn() -> None:
    """The second request is answered by the rule; its answer waits for that of the first."""
    line = Line(
        "- {name: r, on: request, api: Heartbeat, then: [{error: REBALANCE_IN_PROGRESS}, {tag: fenced}]}"
    )
    line.ask(METADATA, 4, {"topics": []}, 1)
    line.ask(HEARTBEAT, 4, BEAT, 2)
    assert wire.decode_request(line.to[Side.REQUEST][4:])[0]["requestApiKey"] == METADATA
    assert line.to[Side.RESPONSE] == b""
    line.answer(METADATA, 4, {"brokers": [], "topics": []}, 1)
    size = int.from_bytes(line.to[Side.RESPONSE][:4], "big")
    header, body = wire.decode_response(line.to[Side.RESPONSE][8 + size :], HEARTBEAT, 4)
    assert (header["correlationId"], body["errorCode"]) == (2, 27)
    line.end()
    assert [exchange.tags for exchange in line.sees.exchanges] == [[], ["fenced"]]


def test_a_delay_is_over_when_its_time_has_come() -> None:
    line = Line("- {name: r, on: response, api: Heartbeat, then: {delay: 200ms}}")
    line.ask(HEARTBEAT, 4, BEAT)
    line.answer(HEARTBEAT, 4, {})
    line.passes(199)
    assert line.to[Side.RESPONSE] == b""
    line.passes(1)
    assert line.to[Side.RESPONSE] != b""
    line.end()


def test_a_connection_that_is_closed_says_by_which_rule() -> None:
    line = Line("- {name: r, on: request, api: Heartbeat, then: {close: maintenance}}")
    line.ask(HEARTBEAT, 4, BEAT)
    assert line.shut is not None
    assert "rule r: maintenance" in line.shut
    line.end()


TRIED = """
- {name: some, on: request, chance: 0.5, then: {tag: some}, continue: true}
- {name: beats, on: request, api: Heartbeat, chance: 0.7, then: log, continue: true}
- {name: errors, on: response, when: size(kwsniff.errors) > 0, chance: 0.8, then: {tag: error}}
- {name: answers, on: response, chance: 0.5, then: log}
- {name: seen, on: exchange, when: '"some" in kwsniff.tags', chance: 0.6, then: log, continue: true}
- {name: failed, on: exchange, when: '"error" in kwsniff.tags', then: log}
- {name: big, on: session, when: kwsniff.requestBytes > 10 && kwsniff.protocol == "kafka", then: log}
"""


def test_what_was_fired_upon_is_what_a_rehearsal_says() -> None:
    line = Line(TRIED, seed=5)
    for number in range(60):
        line.ask(HEARTBEAT, 4, BEAT, number)
        line.answer(HEARTBEAT, 4, {"errorCode": 27 if number % 3 == 0 else 0}, number)
        line.ask(PRODUCE, 8, {**produced(orders=None), "acks": 0}, 2000 + number)
        line.ask(FETCH, 11, {"topics": [{"topic": "orders"}]}, 1000 + number)
        line.answer(FETCH, 11, {"errorCode": 0}, 1000 + number)
    session = line.core.end(line.now)
    line.chain.closed(session)
    live = line.heard.firings
    exchanges = sorted(line.sees.exchanges, key=lambda exchange: exchange.ts)  # as a capture is read
    tags = [list(exchange.tags) for exchange in exchanges]

    rehearsal = Rehearsal(ruleset(TRIED, 5), jsonl.line)
    found: list[tuple[str, Any]] = []
    for exchange in exchanges:
        exchange.tags = []
        found += [(fired.rule, fired.occasion.on) for fired in rehearsal.exchange(exchange)]
    found += [(fired.rule, fired.occasion.on) for fired in rehearsal.session(session)]
    assert len(live) > 150
    assert sorted(found) == sorted(live)
    assert [exchange.tags for exchange in exchanges] == tags
    assert [ready.fired for ready in rehearsal.ready] == [ready.fired for ready in line.rules.ready]


def test_other_rules_are_asked_for_other_apis_at_once() -> None:
    stage = Stage("- {name: r, on: request, api: Fetch, then: drop}")
    assert (stage.chain.wants(FETCH), stage.chain.wants(HEARTBEAT)) == (True, False)
    stage.rules.replace(ruleset("- {name: r, on: request, api: Heartbeat, then: drop}"))
    stage.chain.renew()
    assert (stage.chain.wants(FETCH), stage.chain.wants(HEARTBEAT)) == (False, True)
