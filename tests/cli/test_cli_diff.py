"""`kwsniff diff`: what differs by meaning."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_builders import Capture, Conversation, metadata
from click.testing import CliRunner, Result

from kwsniff.cli import main


def run(tmp_path: Path, first: Capture, second: Capture, *args: str) -> Result:
    paths = []
    for name, capture in (("a.pcap", first), ("b.pcap", second)):
        (tmp_path / name).write_bytes(capture.bytes())
        paths.append(str(tmp_path / name))
    result = CliRunner().invoke(main, ["diff", *paths, *args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def told(said: Callable[[Conversation], None], port: int = 40001, number: int = 0) -> Capture:
    capture = Capture()
    conversation = capture.client(port)
    conversation.correlation_id = number
    said(conversation)
    return capture


def orders(conversation: Conversation) -> None:
    metadata(conversation)
    metadata(conversation, "missing", code=3)


def test_ports_correlation_ids_and_times_do_not_count(tmp_path: Path) -> None:
    second = told(orders, port=50000, number=700)
    second.packets.insert(0, bytes(60))
    result = run(tmp_path, told(orders), second)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "kwsniff: 0 differences\n")


def test_a_field_that_differs(tmp_path: Path) -> None:
    def other(conversation: Conversation) -> None:
        metadata(conversation)
        metadata(conversation, "missing", code=5)

    result = run(tmp_path, told(orders), told(other))
    assert result.exit_code == 1
    assert result.stdout == "app METADATA: response.topics[0].errorCode: 3 | 5 (packet 5 | packet 5)\n"


def test_an_exchange_that_only_one_has(tmp_path: Path) -> None:
    def more(conversation: Conversation) -> None:
        metadata(conversation)
        metadata(conversation, "between")
        metadata(conversation, "missing", code=3)

    result = run(tmp_path, told(orders), told(more))
    assert (result.exit_code, result.stdout) == (1, "app METADATA: only in B (packet 5)\n")
    assert run(tmp_path, told(more), told(orders)).stdout == "app METADATA: only in A (packet 5)\n"


def test_another_version_and_another_client(tmp_path: Path) -> None:
    result = run(tmp_path, told(metadata), told(lambda it: metadata(it, version=0)))
    assert "app METADATA: version: 1 | 0 (packet 3 | packet 3)" in result.stdout

    def other_client(conversation: Conversation) -> None:
        conversation.client_id = "other"
        metadata(conversation)

    assert run(tmp_path, told(metadata), told(other_client)).stdout.splitlines() == [
        "app METADATA: only in A (packet 3)",
        "other METADATA: only in B (packet 3)",
    ]


def test_connections_are_matched_by_what_they_say_not_by_their_order(tmp_path: Path) -> None:
    def capture(*topics: str) -> Capture:
        made = Capture()
        for i, topic in enumerate(topics):
            metadata(made.client(40001 + i), topic)
        return made

    assert run(tmp_path, capture("a", "b", "c"), capture("c", "a", "b")).exit_code == 0


def test_identifiers_that_are_made_up_do_not_count(tmp_path: Path) -> None:
    def joined(member: str) -> Callable[[Conversation], None]:
        return lambda it: it.exchange(
            11, 1, {"groupId": "g", "memberId": member}, {"memberId": member, "leader": member}
        )

    assert run(tmp_path, told(joined("x")), told(joined("y"))).exit_code == 0


def test_json(tmp_path: Path) -> None:
    result = run(tmp_path, told(metadata), told(lambda it: metadata(it, code=3)), "--format", "json")
    (line,) = (json.loads(text) for text in result.stdout.splitlines())
    assert line == {
        "clientId": "app",
        "api": "METADATA",
        "path": "response.topics[0].errorCode",
        "a": 0,
        "b": 3,
        "packetA": 3,
        "packetB": 3,
    }


def test_thousands_that_all_differ_take_no_time(tmp_path: Path) -> None:
    def many(topic: str) -> Capture:
        return told(lambda it: [metadata(it, topic) for _ in range(2500)] and None)

    result = run(tmp_path, many("a"), many("b"))
    assert result.exit_code == 1
    assert result.stderr == "kwsniff: 2,000 differences, and 1,500 more exchanges that differ\n"


@pytest.mark.parametrize("number", [0, 1])
def test_a_file_that_is_not_there(tmp_path: Path, number: int) -> None:
    paths: list[Any] = [tmp_path / "a.pcap", tmp_path / "a.pcap"]
    paths[0].write_bytes(Capture().bytes())
    paths[number] = tmp_path / "missing"
    result = CliRunner().invoke(main, ["diff", *map(str, paths)])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "missing" in line
