"""Which rules fire: the first that matches, by chance that is none, and only so often."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from passing_builders import asked, passed, passing
from rule_builders import FETCH, HEARTBEAT, METADATA, PRODUCE, Heard, Stage, produced, ruleset

from kwsniff.model import ConnectionId, Endpoint, Exchange, Protocol
from kwsniff.output import jsonl
from kwsniff.passing import Passing, Verdict
from kwsniff.policy.firing import Firing, Moment
from kwsniff.policy.rules import Rules
from kwsniff.policy.ruleset import On, RuleSet

BEAT = {"groupId": "g", "generationId": 1, "memberId": "m"}


def never() -> dict[str, Any]:
    raise AssertionError("nobody needs the line")


def beat(number: int = 0, port: int = 50001, client_id: str | None = "c", version: int = 4) -> Passing:
    frame = asked(HEARTBEAT, version, BEAT)
    conn = ConnectionId(Endpoint("10.0.0.1", port), frame.conn.broker)
    made = passing(replace(frame, conn=conn, client_id=client_id))
    made.number = number
    return made


def fired(stage: Stage, frame: Passing) -> list[str]:
    before = len(stage.heard.firings)
    stage.request(frame)
    return [name for name, _ in stage.heard.firings[before:]]


def test_the_first_that_matches_wins() -> None:
    stage = Stage(
        """
        - {name: other api, on: request, api: Fetch, then: {tag: a}}
        - {name: other moment, on: response, then: {tag: b}}
        - {name: not true, on: request, when: request.groupId == "x", then: {tag: c}}
        - {name: first, on: request, then: {tag: d}}
        - {name: second, on: request, then: {tag: e}}
        """
    )
    assert fired(stage, beat()) == ["first"]


def test_unless_it_says_continue() -> None:
    stage = Stage(
        """
        - {name: first, on: request, then: {tag: a}, continue: true}
        - {name: second, on: request, then: {tag: b}}
        - {name: third, on: request, then: {tag: c}}
        """
    )
    assert fired(stage, beat()) == ["first", "second"]


def test_behind_an_end_nobody_is_asked() -> None:
    stage = Stage(
        """
        - {name: first, on: request, then: drop, continue: true}
        - {name: second, on: request, then: {tag: b}}
        """
    )
    assert fired(stage, beat()) == ["first"]


@pytest.mark.parametrize(
    ("keys", "frame", "fires"),
    [
        ("version: 4", beat(), True),
        ("version: 0-3", beat(), False),
        ("version: [0, 4+]", beat(), True),
        ('client_id: "c"', beat(), True),
        ('client_id: "bill*"', beat(client_id="billing-7"), True),
        ('client_id: "bill?ng"', beat(client_id="billing-7"), False),
        ('client_id: "B*"', beat(client_id="billing-7"), False),
        ('client_id: "*"', beat(client_id=None), True),
        ('client_id: "?*"', beat(client_id=None), False),
        ("api: [Fetch, Heartbeat]", beat(), True),
        ("api: [Fetch]", beat(), False),
    ],
)
def test_cheap_keys(keys: str, frame: Passing, fires: bool) -> None:
    assert bool(fired(Stage(f"- {{name: r, on: request, {keys}, then: log}}"), frame)) is fires


def test_a_line_is_made_only_for_a_rule_that_cheap_keys_let_through() -> None:
    rules = ruleset(
        """
        - {name: a, on: request, api: Fetch, when: request.maxWaitMs == 1, then: log}
        - {name: b, on: request, version: 9, when: request.maxWaitMs == 1, then: log}
        - {name: c, on: request, client_id: x, when: request.maxWaitMs == 1, then: log}
        - {name: d, on: request, chance: 0, when: request.maxWaitMs == 1, then: log}
        - {name: e, on: request, then: log}
        """
    )
    frame = beat()
    now = Moment(On.REQUEST, frame.frame.conn, 0, HEARTBEAT, 4, "c")
    assert [ready.rule.name for ready in Firing(rules).at(now, never)] == ["e"]


def test_the_line_of_an_exchange_is_made_once_for_all_rules_that_ask_for_it() -> None:
    made: list[list[str]] = []

    def line(exchange: Exchange) -> dict[str, Any]:
        made.append(list(exchange.tags))
        return jsonl.line(exchange)

    rules = Rules(
        ruleset(
            """
            - {name: a, on: exchange, when: requestHeader.clientId == "x", then: log}
            - {name: b, on: exchange, when: requestHeader.clientId == "y", then: log}
            - {name: c, on: exchange, when: requestHeader.clientId == "c", then: {tag: t}, continue: true}
            - {name: d, on: exchange, when: "'t' in kwsniff.tags", then: log}
            """
        ),
        line,
        heard := Heard(),
    )
    rules.exchanged(passed(asked(HEARTBEAT, 4, BEAT), None))
    assert made == [[], ["t"]]
    assert heard.firings == [("c", On.EXCHANGE), ("d", On.EXCHANGE)]


def test_only_apis_of_rules_are_wanted() -> None:
    def wanted(text: str) -> Any:
        return Rules(ruleset(text) if text else RuleSet(), lambda _: {}, Heard()).wants()

    two = """
    - {name: a, on: request, api: [Fetch, PRODUCE], then: drop}
    - {name: b, on: response, api: Metadata, then: drop}
    """
    assert wanted(two) == ["Produce", "Fetch", "Metadata"]
    assert wanted("- {name: a, on: request, then: drop}") is None
    assert wanted("- {name: a, on: exchange, then: log}\n- {name: b, on: session, then: log}") == []
    assert wanted("") == []


def test_frames_that_are_not_kafkas_pass() -> None:
    stage = Stage("- {name: r, on: request, then: drop}")
    frame = beat()
    frame.frame = replace(frame.frame, protocol=Protocol.SASL)
    assert stage.request(frame) == []


# ---- limit, and other rules


def test_a_limit_is_of_all_connections_together() -> None:
    stage = Stage(
        """
        - {name: twice, on: request, limit: 2, then: log}
        - {name: then, on: request, then: log}
        """
    )
    found = [fired(stage, beat(number, port)) for number, port in ((0, 1), (0, 2), (1, 1), (1, 2))]
    assert found == [["twice"], ["twice"], ["then"], ["then"]]
    assert [ready.fired for ready in stage.rules.ready] == [2, 2]


def test_other_rules_from_the_next_frame_on_and_the_same_ones_go_on_counting() -> None:
    same = "- {name: same, on: request, limit: 2, then: log}"
    stage = Stage(f"{same}\n- {{name: other, on: request, limit: 1, then: log}}")
    assert fired(stage, beat()) == ["same"]
    stage.rules.replace(ruleset(f"\n\n{same}\n- {{name: other, on: request, limit: 3, then: log}}"))
    assert [fired(stage, beat(n)) for n in range(5)] == [["same"], ["other"], ["other"], ["other"], []]


# ---- chance


CHANCE = "- {name: r, on: request, chance: 0.3, then: drop}"


def test_chance_is_what_it_says() -> None:
    stage = Stage(CHANCE)
    count = sum(bool(fired(stage, beat(number, port))) for port in range(10) for number in range(1000))
    assert 2800 < count < 3200


def test_chance_does_not_go_by_processes() -> None:
    """Hashes of Python's differ from process to process; these must not. The value is BLAKE2b's."""
    program = (
        "from kwsniff.policy.firing import draw, Moment\n"
        "from kwsniff.policy.ruleset import On\n"
        "from kwsniff.model import ConnectionId, Endpoint\n"
        "conn = ConnectionId(Endpoint('10.0.0.1', 5), Endpoint('::1', 9092), 2)\n"
        "print(draw(42, 'r', Moment(On.RESPONSE, conn, 7)))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    from hashlib import blake2b

    told = b"42\0r\0[::1]:9092-10.0.0.1:5-2\0response\0" + b"7\0chance"
    expected = int.from_bytes(blake2b(told, digest_size=8).digest(), "big") / 2**64
    (value,) = seen
    assert float(value) == pytest.approx(expected, abs=1e-15)


FRAMES = [
    (api, port, number)
    for port in range(6)
    for number, api in enumerate([HEARTBEAT, PRODUCE, FETCH, METADATA, HEARTBEAT, PRODUCE])
]
BODIES: dict[int, tuple[int, dict[str, Any]]] = {
    HEARTBEAT: (4, BEAT),
    PRODUCE: (8, produced(orders=None)),
    FETCH: (11, {"topics": [{"topic": "orders"}]}),
    METADATA: (4, {"topics": [{"name": "a"}], "allowAutoTopicCreation": True}),
}
MIXED = """
- {name: half, on: request, chance: 50%, then: [{delay: {latency: 1s, jitter: 1s}}], continue: true}
- {name: refuse, on: request, api: [Produce, Heartbeat], chance: 0.4, then: {error: 6}}
- name: orders
  on: request
  when: '"orders" in kwsniff.topics'
  chance: 0.5
  then: {tag: orders}
  continue: true
- {name: rest, on: request, chance: 0.2, then: close}
"""


def verdicts(order: list[tuple[int, int, int]]) -> dict[Any, tuple[list[tuple[str, Verdict]], list[str]]]:
    stage = Stage(MIXED, seed=42)
    found = {}
    for api, port, number in order:
        version, body = BODIES[api]
        frame = asked(api, version, body)
        made = passing(replace(frame, conn=ConnectionId(Endpoint("h", port), frame.conn.broker)))
        made.number = number
        found[port, number] = stage.request(made), made.tags
    return found


@settings(max_examples=25, deadline=None)
@given(st.permutations(FRAMES))
def test_the_order_of_frames_and_connections_changes_no_verdict(order: list[tuple[int, int, int]]) -> None:
    assert verdicts(order) == verdicts(FRAMES)
