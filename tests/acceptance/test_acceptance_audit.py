"""`kwsniff audit`: the issue's rule, case by case, and the target's spelling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from acceptance_builders import Link, Tape, run


def offer(link: Link, number: int = 0, code: int = 0, seen: bool = True, **ranges: tuple[int, int]) -> Link:
    keys = {"produce": 0, "fetch": 1, "metadata": 3, "join": 11, "offset_fetch": 9, "list": 2}
    found = [{"apiKey": keys[name], "minVersion": a, "maxVersion": b} for name, (a, b) in ranges.items()]
    link.ask(18, 3, number, {"clientSoftwareName": "lib", "clientSoftwareVersion": "1.2"})
    return link.answer(18, 3, number, {"errorCode": code, "apiKeys": found}) if seen else link


def audited(tmp_path: Path, tape: Tape, target: str) -> tuple[int, dict[str, Any]]:
    path = tmp_path / "a.pcap"
    path.write_bytes(tape.pcap())
    result = run("audit", path, "--target", target, "--format", "json")
    return result.status, json.loads(result.out)


def verdict(tmp_path: Path, tape: Tape, api: str, target: str = "4.0") -> tuple[int, str]:
    status, report = audited(tmp_path, tape, target)
    found = [a for c in report["clients"] for a in c["apis"] if a["api"] == api]
    return status, found[0]["verdict"]


# (offered, sent, verdict) of Fetch on 4.0, which serves v4-17
CASES = [
    ((0, 11), 3, "breaks"),
    ((0, 4), 3, "breaks"),
    ((0, 3), 3, "unknown"),
    ((0, 3), 2, "unknown"),
    ((0, 11), 4, "ok"),
    ((0, 11), 11, "ok"),
    ((0, 18), 18, "unknown"),
]


@pytest.mark.parametrize(("offered", "sent", "wanted"), CASES)
def test_negotiated(tmp_path: Path, offered: tuple[int, int], sent: int, wanted: str) -> None:
    tape = Tape()
    offer(tape.link().open(), fetch=offered).exchange(1, sent, 1, {}, {})
    assert verdict(tmp_path, tape, "FETCH") == (1 if wanted == "breaks" else 0, wanted)


def test_never_asked(tmp_path: Path) -> None:
    tape = Tape()
    tape.link().open().exchange(1, 3, 1, {}, {}).metadata(2, version=1)
    status, report = audited(tmp_path, tape, "4.0")
    assert status == 1
    (client,) = report["clients"]
    assert {a["api"]: a["verdict"] for a in client["apis"]} == {"FETCH": "breaks", "METADATA": "ok"}
    (fetch,) = (a for a in client["apis"] if a["api"] == "FETCH")
    assert fetch["versions"][0]["packets"] == [{"file": str(tmp_path / "a.pcap"), "packet": 4}]


def test_the_answer_was_not_seen(tmp_path: Path) -> None:
    tape = Tape()
    offer(tape.link().open(), seen=False).exchange(1, 3, 1, {}, {})
    assert verdict(tmp_path, tape, "FETCH") == (0, "unknown")


def test_a_refusal_is_no_offer_and_the_retry_is(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open()
    link.ask(18, 4, 0, {"clientSoftwareName": "l", "clientSoftwareVersion": "1"})
    link.answer(18, 0, 0, {"errorCode": 35, "apiKeys": [{"apiKey": 18, "minVersion": 0, "maxVersion": 3}]})
    offer(link, 1, fetch=(0, 11)).exchange(1, 3, 2, {}, {})
    assert verdict(tmp_path, tape, "FETCH") == (1, "breaks")


def test_produce_is_advertised_from_0_but_served_from_3(tmp_path: Path) -> None:
    """KAFKA-18659: what counts is what the release serves."""
    tape = Tape()
    offer(tape.link().open(), produce=(0, 12)).exchange(0, 2, 1, {"acks": 1}, {})
    assert verdict(tmp_path, tape, "PRODUCE") == (1, "breaks")


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("4.0", "ok"),
        ("4.0.1", "ok"),
        ("4.0.9", "ok"),
        ("4.0.0", "breaks"),
        ("3.9", "ok"),
        ("3.9.1", "ok"),
        ("4.3", "ok"),
    ],
)
def test_a_release_line_is_its_newest_patch(tmp_path: Path, target: str, wanted: str) -> None:
    """JoinGroup v0-1 were missing in 4.0.0 only."""
    tape = Tape()
    offer(tape.link().open(), join=(0, 9)).exchange(11, 1, 1, {}, {})
    assert verdict(tmp_path, tape, "JOIN_GROUP", target) == (1 if wanted == "breaks" else 0, wanted)


@pytest.mark.parametrize(
    "target", ["nonsense", "", "9.9", "4", "4.0.x", "v4.0", "4.0-rc1", "-1", "4.0.0.0", "٤.0"]
)
def test_no_such_release(tmp_path: Path, target: str) -> None:
    path = tmp_path / "a.pcap"
    tape = Tape()
    tape.link().open().metadata(1)
    path.write_bytes(tape.pcap())
    result = run("audit", path, f"--target={target}")
    assert (result.status, result.out) == (2, b"")
    assert len(result.err.splitlines()) == 1


def test_kafka_07_breaks_everywhere_later(tmp_path: Path) -> None:
    tape = Tape()
    topic = b"\0\6orders" + bytes(4) + bytes(8) + b"\0\1\0\0"
    tape.link().open().client((len(topic) + 2).to_bytes(4, "big") + b"\0\1" + topic)
    path = tmp_path / "a.pcap"
    path.write_bytes(tape.pcap())
    assert run("audit", path, "--target", "3.9").status == 1


def test_clients_are_told_apart_by_address_id_and_software(tmp_path: Path) -> None:
    tape = Tape()
    one = offer(tape.link(("10.0.0.1", 1)).open(), fetch=(0, 11))
    one.exchange(1, 11, 1, {}, {})
    two = tape.link(("10.0.0.1", 2)).open()
    two.exchange(1, 3, 1, {}, {}, client_id="old")
    three = tape.link(("10.0.0.3", 2)).open()
    three.exchange(1, 3, 1, {}, {}, client_id=None)
    status, report = audited(tmp_path, tape, "4.0")
    told = {(c["address"], c["clientId"], c["softwareName"]): c["verdict"] for c in report["clients"]}
    assert told == {
        ("10.0.0.1", "app", "lib"): "ok",
        ("10.0.0.1", "old", None): "breaks",
        ("10.0.0.3", None, None): "breaks",
    }
    assert (status, report["verdict"]) == (1, "breaks")


@pytest.mark.parametrize("form", ["table", "json", "markdown"])
def test_forms_and_statuses(tmp_path: Path, form: str) -> None:
    tape = Tape()
    offer(tape.link().open(), fetch=(0, 11)).exchange(1, 3, 1, {}, {}, client_id="a|b")
    path = tmp_path / "a.pcap"
    path.write_bytes(tape.pcap())
    result = run("audit", path, "--target", "4.0", "--format", form)
    assert result.status == 1
    text = result.out.decode()
    assert "FETCH" in text
    assert "breaks" in text
    if form == "markdown":
        row = next(line for line in text.splitlines() if "FETCH" in line)
        header = next(line for line in text.splitlines() if line.startswith("| client"))
        assert row.replace("\\|", "").count("|") == header.count("|")
