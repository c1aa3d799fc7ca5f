"""Batches and message sets that kafka-python wrote: see tests/data/golden/README.md."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from kwsniff.wire.records import decode_records, encode_records, summarise

FILE = Path(__file__).parents[1] / "data" / "golden" / "records.jsonl.gz"

Vector = dict[str, Any]


def vectors() -> list[Vector]:
    with gzip.open(FILE, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


VECTORS = vectors()


def name(vector: Vector) -> str:
    return "-".join(str(vector[key]) for key in ("magic", "codec", "set", "transactional"))


def raw(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def expected(vector: Vector) -> list[Vector]:
    return [
        {
            "offset": one["offset"],
            "timestamp": one.get("timestamp"),
            "key": raw(one["key"]),
            "value": raw(one["value"]),
            "headers": [{"key": key, "value": raw(value)} for key, value in one.get("headers", [])],
        }
        for one in vector["records"]
    ]


def meaning(entries: list[Vector]) -> list[Vector]:
    """What a different compressor may not change."""
    changing = ("crc", "batchLength", "messageSize")
    return [{key: value for key, value in entry.items() if key not in changing} for entry in entries]


@pytest.mark.parametrize("vector", VECTORS, ids=name)
def test_decodes_to_the_records_that_were_written(vector: Vector) -> None:
    entries = decode_records(bytes.fromhex(vector["hex"]), allow_partial=False)
    assert [record for entry in entries for record in entry["records"]] == expected(vector)
    assert all(entry["crcValid"] and entry["magic"] == vector["magic"] for entry in entries)
    if vector["magic"] == 2:
        assert [entry["isTransactional"] for entry in entries] == [vector["transactional"]]
        for field, unset in (("producerId", -1), ("producerEpoch", -1), ("baseSequence", -1)):
            assert entries[0][field] == vector.get(field, unset)


@pytest.mark.parametrize("vector", VECTORS, ids=name)
def test_writes_them_again(vector: Vector) -> None:
    data = bytes.fromhex(vector["hex"])
    entries = decode_records(data)
    again = encode_records(entries)
    assert meaning(decode_records(again)) == meaning(entries)
    if vector["codec"] == "none":
        assert again == data


@pytest.mark.parametrize("vector", VECTORS, ids=name)
def test_the_summary_agrees(vector: Vector) -> None:
    data = bytes.fromhex(vector["hex"])
    entries = decode_records(data)
    wrapped = vector["magic"] < 2 and entries[0]["codec"] != "none"
    summary, errors = summarise(data)
    assert errors == []
    assert summary == {
        "batches": len(entries),
        "records": None if wrapped else len(vector["records"]),
        "codecs": [entries[0]["codec"]],
        "magics": [vector["magic"]],
        "baseOffset": None if wrapped else 0,
        "lastOffset": None if wrapped else len(vector["records"]) - 1,
        "crcErrors": 0,
    }


@pytest.mark.parametrize("vector", [v for v in VECTORS if len(v["hex"]) < 2500], ids=name)
def test_is_silent_about_a_cut_at_any_byte(vector: Vector) -> None:
    data = bytes.fromhex(vector["hex"])
    whole = decode_records(data)
    for end in range(len(data)):
        found = decode_records(data[:end])
        assert found == whole[: len(found)]
        assert len(found) < len(whole)


@pytest.mark.parametrize("vector", VECTORS, ids=name)
def test_two_sets_behind_each_other(vector: Vector) -> None:
    data = bytes.fromhex(vector["hex"])
    assert decode_records(data + data) == 2 * decode_records(data)
    assert decode_records(data + data[:10]) == decode_records(data)
