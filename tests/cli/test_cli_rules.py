"""`kwsniff rules`: what a file means, and what it would have fired on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_builders import Capture, metadata
from click.testing import CliRunner, Result

from kwsniff.cli import main

DATA = Path(__file__).parents[1] / "data" / "rules"
HEARTBEAT = 12
RULES = """
version: 1
rules:
  - {name: missing, on: response, api: Metadata, when: size(kwsniff.errors) > 0, then: {tag: missing}}
  - {name: beats, on: request, api: Heartbeat, then: {error: REBALANCE_IN_PROGRESS}}
  - {name: beaten, on: response, api: Heartbeat, then: drop}
  - {name: any, on: exchange, client_id: app, when: totalTimeMs > 0, then: {tag: seen}}
  - {name: never, on: request, api: Fetch, then: drop}
  - {name: whole, on: session, when: kwsniff.protocol == "kafka", then: alert}
"""


def run(*args: object) -> Result:
    return CliRunner().invoke(main, ["rules", *map(str, args)])


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Packets 1 and 2: the handshake; 3 and 4: orders; 5 and 6: missing; 7 and 8: a heartbeat; 9, 10: FIN."""
    made = Capture()
    talk = made.client()
    metadata(talk)
    metadata(talk, "missing", code=3)
    talk.exchange(HEARTBEAT, 1, {"groupId": "g"}, {})
    talk.close()
    path = tmp_path / "a.pcap"
    path.write_bytes(made.bytes())
    return path


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return path


def test_check_says_what_a_file_means() -> None:
    result = run("check", DATA / "everything.yaml")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (DATA / "everything.txt").read_text()


def test_check_says_what_is_wrong_and_goes_on_with_the_next(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(
        "version: 1\nrules:\n- name: r\n  on: request\n  api: Fetch\n  then: [{set: {fetchOfset: 1}}, dorp]\n"
    )
    result = run("check", bad, DATA / "issue.yaml", tmp_path / "none.yaml")
    path = "`fetchOffset`? It is `topics[*].partitions[*].fetchOffset`"
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"kwsniff: {bad}:6: no field `fetchOfset` in FetchRequest, did you mean {path}",
        f"kwsniff: {bad}:6: no action 'dorp', did you mean `drop`?",
        f"kwsniff: {tmp_path / 'none.yaml'}: cannot read the rules: No such file or directory",
    ]
    assert [row.split(":")[0] for row in result.stdout.splitlines()] == ["slow-orders", "fence-producer"]


def test_test_says_what_would_have_fired_and_where(rules: Path, capture: Path) -> None:
    result = run("test", rules, capture)
    assert (result.exit_code, result.stderr) == (0, "")
    when = "2026-11-21T06:00:00.00"
    conn = "10.0.0.2:9092-10.0.0.1:40001-0"
    assert result.stdout.splitlines() == [
        "missing: would have fired once",
        f"  {when}5000000Z  METADATA v1 response, packet 6 of {capture}, {conn}",
        "beats: would have fired once",
        f"  {when}6000000Z  HEARTBEAT v1 request, packet 7 of {capture}, {conn}",
        # its request would have been answered: there would have been no response
        "beaten: would have fired 0 times",
        "any: would have fired 3 times",
        f"  {when}3000000Z  METADATA v1 exchange, packet 3 of {capture}, {conn}",
        f"  {when}5000000Z  METADATA v1 exchange, packet 5 of {capture}, {conn}",
        f"  {when}7000000Z  HEARTBEAT v1 exchange, packet 7 of {capture}, {conn}",
        "never: would have fired 0 times",
        "whole: would have fired once",
        f"  {when}9000000Z  session, {capture}, {conn}",
    ]


def test_only_the_first_places_are_listed(rules: Path, capture: Path) -> None:
    rows = run("test", "--places", 2, rules, capture).stdout.splitlines()
    assert rows[rows.index("any: would have fired 3 times") + 3] == "  ... and once more"
    assert all(
        not row.startswith(" ") for row in run("test", "--places", 0, rules, capture).stdout.splitlines()
    )


def test_the_same_for_programs(rules: Path, capture: Path) -> None:
    result = run("test", "--format", "json", rules, capture)
    found = {line["rule"]: line for line in map(json.loads, result.stdout.splitlines())}
    assert {name: line["fired"] for name, line in found.items()} == {
        "missing": 1, "beats": 1, "beaten": 0, "any": 3, "never": 0, "whole": 1,
    }  # fmt: skip
    assert found["missing"] == {
        "rule": "missing",
        "on": "response",
        "line": 4,
        "fired": 1,
        "places": [
            {
                "timestamp": "2026-11-21T06:00:00.005000000Z",
                "connection": "10.0.0.2:9092-10.0.0.1:40001-0",
                "file": str(capture),
                "packet": 6,
                "on": "response",
                "api": "METADATA",
                "version": 1,
                "correlationId": 2,
                "clientId": "app",
            }
        ],
        "whenErrors": 0,
        "whenError": None,
    }


def test_a_condition_that_could_not_be_evaluated_is_said(tmp_path: Path, capture: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("version: 1\nrules: [{name: r, on: response, when: request.acks == 1, then: drop}]\n")
    rows = run("test", path, capture).stdout.splitlines()
    assert rows[0] == "r: would have fired 0 times"
    assert rows[1].startswith("  its `when` could not be evaluated 3 times: ")


def test_chance_and_limit_are_those_of_the_proxy(tmp_path: Path) -> None:
    """The same file and capture: the same answer, each time."""
    made = Capture()
    for port in range(40001, 40011):
        talk = made.client(port)
        for _ in range(20):
            metadata(talk)
    capture = tmp_path / "a.pcap"
    capture.write_bytes(made.bytes())
    rules = tmp_path / "r.yaml"
    rules.write_text(
        "version: 1\nseed: 7\nrules:\n- {name: half, on: request, chance: 0.5, then: log, continue: true}\n"
        "- {name: five, on: request, limit: 5, then: log}\n"
    )
    first = run("test", "--format", "json", "--places", 1000, rules, capture).stdout
    half, five = map(json.loads, first.splitlines())
    assert 60 < half["fired"] < 140
    assert five["fired"] == 5
    assert run("test", "--format", "json", "--places", 1000, rules, capture).stdout == first
    rules.write_text(rules.read_text().replace("seed: 7", "seed: 8"))
    assert run("test", "--format", "json", "--places", 1000, rules, capture).stdout != first


@pytest.mark.parametrize("args", [["test", "{rules}"], ["check"], ["tset"], ["test", "{rules}", "{missing}"]])
def test_wrong_usage(args: list[str], rules: Path, tmp_path: Path) -> None:
    names = {"{rules}": str(rules), "{missing}": str(tmp_path / "missing.pcap")}
    result = run(*(names.get(arg, arg) for arg in args))
    assert result.exit_code == 2
    assert all(row.startswith("kwsniff: ") for row in result.stderr.splitlines())
    assert result.stderr


def test_rules_that_are_wrong_are_told_before_any_capture_is_read(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("version: 1\nrules: [{name: r, on: request, then: dorp}]\n")
    result = run("test", path, tmp_path / "missing.pcap")
    assert result.exit_code == 2
    assert result.stderr == f"kwsniff: {path}:2: no action 'dorp', did you mean `drop`?\n"
