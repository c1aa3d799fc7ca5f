"""Kafka 0.7 in whole captures, from protocol/kafka07: five requests, byte offsets, answers in order."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import snappy
from acceptance_builders import Tape, shown, sized


def text(topic: str) -> bytes:
    return struct.pack(">h", len(topic)) + topic.encode()


def message(payload: bytes, magic: int = 1, codec: int = 0) -> bytes:
    head = bytes([magic]) + (bytes([codec]) if magic else b"")
    return sized(head + struct.pack(">I", crc32(payload)) + payload)


def xerial(data: bytes) -> bytes:
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + sized(snappy.compress(data))


def produce(topic: str, messages: bytes, partition: int = 0) -> bytes:
    return text(topic) + struct.pack(">i", partition) + sized(messages)


def fetch(topic: str, offset: int, partition: int = 0) -> bytes:
    return text(topic) + struct.pack(">iqi", partition, offset, 1 << 20)


def of(kind: int, body: bytes) -> bytes:
    return sized(struct.pack(">h", kind) + body)


SET = message(b"one", 0) + message(b"two")


def conversation() -> bytes:
    """All five requests; three are answered."""
    tape = Tape()
    link = tape.link().open()
    link.client(of(0, produce("orders", SET)))
    link.client(of(3, struct.pack(">h", 2) + produce("a", SET) + produce("b.c-d_e", message(b"x"), -1)))
    link.client(of(1, fetch("orders", 100))).broker(sized(struct.pack(">h", 0) + SET + b"\0\0"))
    link.client(of(2, struct.pack(">h", 2) + fetch("a", 0) + fetch("b", 7)))
    link.broker(sized(struct.pack(">h", 0) + sized(b"\0\0" + SET) + sized(struct.pack(">h", 1))))
    link.client(of(4, text("orders") + struct.pack(">iqi", 0, -1, 5)))
    link.broker(sized(struct.pack(">hi2q", 0, 2, 300, 0)))
    return tape.pcap() if link.close() else b""


def values(line: dict[str, Any], side: str = "request") -> list[Any]:
    return [r["value"] for batch in line[side]["messageSet"] for r in batch["records"]]


def test_the_five_requests(tmp_path: Path) -> None:
    result = shown(conversation(), tmp_path, "--records")
    told = [(x["requestHeader"]["requestApiKeyName"], x["kwsniff"]["outcome"]) for x in result.lines]
    assert told == [
        ("PRODUCE", "no_ack"), ("MULTIPRODUCE", "no_ack"), ("FETCH", "answered"), ("MULTIFETCH", "answered"),
        ("OFFSETS", "answered"),
    ]  # fmt: skip
    produced, multi, fetched, fetches, offsets = result.lines
    assert {x["kwsniff"]["protocol"] for x in result.lines} == {"kafka07"}
    assert values(produced) == ["one", "two"]
    assert multi["kwsniff"]["topics"] == ["a", "b.c-d_e"]
    records = [r for batch in fetched["response"]["messageSet"] for r in batch["records"]]
    assert [r["offset"] for r in records] == [100, 100 + 4 + 5 + 3]
    assert [e["code"] for e in fetches["kwsniff"]["errors"]] == [1]
    assert fetches["kwsniff"]["errors"][0]["name"] == "OFFSET_OUT_OF_RANGE"
    assert offsets["response"]["offsets"] == [300, 0]
    assert [x["kwsniff"]["faults"] for x in result.lines] == [[]] * 5


@pytest.mark.parametrize(("codec", "pack"), [(1, gzip.compress), (2, xerial)], ids=["gzip", "snappy"])
def test_compressed_messages_unpack(tmp_path: Path, codec: int, pack: Any) -> None:
    tape = Tape()
    packed = message(pack(message(b"in") + message(b"side", 0)), 1, codec)
    tape.link().open().client(of(0, produce("t", message(b"plain") + packed))).close()
    (line,) = shown(tape.pcap(), tmp_path, "--records").lines
    assert values(line) == ["plain", "in", "side"]


def test_pipelined_answers_go_by_order(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open()
    link.client(
        of(1, fetch("a", 0)) + of(0, produce("p", SET)) + of(4, text("b") + struct.pack(">iqi", 0, -2, 1))
    )
    link.broker(sized(b"\0\0" + SET) + sized(struct.pack(">hiq", 0, 1, 42))).close()
    lines = shown(tape.pcap(), tmp_path).lines
    _, fetched, offsets = sorted(lines, key=lambda line: line["requestHeader"]["requestApiKey"])
    assert fetched["response"]["messageSetSummary"]["records"] == 2
    assert offsets["response"]["offsets"] == [42]


def test_old_and_new_side_by_side(tmp_path: Path) -> None:
    tape = Tape()
    old, new = tape.link().open(), tape.link(("10.0.0.1", 40002)).open()
    old.client(of(1, fetch("test", 0)))
    new.metadata(1)
    old.broker(sized(b"\0\0" + SET))
    new.metadata(2)
    told = [x["kwsniff"]["protocol"] for x in shown(tape.pcap(), tmp_path).lines]
    assert sorted(told) == ["kafka", "kafka", "kafka07"]


@pytest.mark.parametrize("topic", ["t", "to", "test", "events", "x" * 100])
@pytest.mark.parametrize("size", [10, 40_000, 70_000, 300_000])
def test_a_first_produce_of_any_size_is_recognised(tmp_path: Path, topic: str, size: int) -> None:
    tape = Tape()
    link = tape.link().open()
    link.client(of(0, produce(topic, message(bytes(range(256)) * (size // 256) + b"x" * 10))))
    link.client(of(0, produce(topic, SET))).close()
    result = shown(tape.pcap(), tmp_path)
    assert [x["kwsniff"].get("protocol") for x in result.lines] == ["kafka07"] * 2
    assert result.lines[0]["kwsniff"]["topics"] == [topic]


def test_from_the_middle(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link()
    link.client(of(1, fetch("orders", 0))).broker(sized(b"\0\0" + SET))
    link.client(of(1, fetch("orders", 24))).broker(sized(b"\0\0" + SET))
    result = shown(tape.pcap(), tmp_path)
    assert [x["kwsniff"]["outcome"] for x in result.exchanges] == ["answered"] * 2
    assert result.exchanges[0]["principal"] is None


@pytest.mark.parametrize("lost", ["answer", "request"])
def test_behind_a_gap_no_answer_goes_to_a_wrong_question(tmp_path: Path, lost: str) -> None:
    """There are no ids: what a gap took must not shift all that follows."""
    tape = Tape()
    link = tape.link().open()
    link.client(of(1, fetch("a", 0))).broker(sized(b"\0\0" + SET))
    link.client(of(1, fetch("b", 0)), captured=lost != "request")
    link.broker(sized(b"\0\0" + SET + SET), captured=lost != "answer")
    link.client(of(4, text("c") + struct.pack(">iqi", 0, -1, 5))).broker(
        sized(struct.pack(">hiq", 0, 1, 300))
    )
    link.client(of(1, fetch("d", 0))).broker(sized(b"\0\0" + SET)).close()
    result = shown(tape.pcap(), tmp_path)
    told = [
        (x["kwsniff"]["topics"], x["kwsniff"]["outcome"], x["kwsniff"]["faults"]) for x in result.exchanges
    ]
    other = (["b"], "lost", []) if lost == "answer" else ([], "unmatched", [])
    assert told == [(["a"], "answered", []), other, (["c"], "answered", []), (["d"], "answered", [])]
    assert [fault["reason"] for fault in result.faults] == ["lost_bytes"]
