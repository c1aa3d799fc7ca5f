"""Message bodies that kio and kafka-python wrote: see tests/data/golden/README.md."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from kwsniff import wire
from kwsniff.errors import DecodeError, Reason
from kwsniff.wire.schema import Field

FILE = Path(__file__).parents[1] / "data" / "golden" / "vectors.jsonl.gz"


def body_of(fields: tuple[Field, ...], value: dict[str, Any]) -> dict[str, Any]:
    """A vector's JSON value as our body: base64 to bytes, unknown tags under our name."""
    by_key = {field.key: field for field in fields}
    body: dict[str, Any] = {}
    for key, item in value.items():
        if key == "_unknownTaggedFields":
            body["_tags"] = {int(tag): b64decode(raw) for tag, raw in item.items()}
        else:
            body[key] = plain(by_key[key], item)
    return body


def plain(field: Field, item: Any) -> Any:
    if item is None:
        return None
    if isinstance(item, list):
        return [plain(field, part) for part in item]
    if field.is_struct:
        return body_of(field.fields, item)
    return b64decode(item) if field.type in ("bytes", "records") else item


def vectors() -> dict[str, list[tuple[int, bytes, dict[str, Any]]]]:
    found = defaultdict(list)
    with gzip.open(FILE, "rt", encoding="utf-8") as lines:
        for line in lines:
            vector = json.loads(line)
            value = body_of(wire.message(vector["message"]).fields, vector["value"])
            found[vector["message"]].append((vector["version"], bytes.fromhex(vector["hex"]), value))
    return found


VECTORS = vectors()


def test_there_are_as_many_as_were_made():
    assert sum(len(some) for some in VECTORS.values()) == 3896


@pytest.mark.parametrize("name", VECTORS)
def test_bytes_decode_to_the_value_and_the_value_encodes_to_the_bytes(name):
    for version, data, value in VECTORS[name]:
        assert wire.decode(name, version, data) == value
        assert wire.encode(name, version, value) == data


@pytest.mark.parametrize("name", VECTORS)
def test_cut_off_anywhere_it_is_a_decode_error_within_the_bytes_that_are_there(name):
    for version, data, _ in VECTORS[name]:
        for end in range(0, len(data), max(1, len(data) // 12)):
            body, error = outcome(name, version, data[:end])
            if error is None:
                assert "_variant" in body, f"{name} v{version} is whole after {end} of {len(data)} bytes"
                continue
            assert 0 <= error.offset <= end
            assert isinstance(error.partial, dict)
            assert error.reason is not Reason.TRAILING_BYTES


def outcome(name, version, data):
    try:
        return wire.decode(name, version, data), None
    except DecodeError as error:
        return None, error


@pytest.mark.parametrize("name", VECTORS)
def test_left_over_bytes_are_an_error_that_carries_the_whole_body(name):
    for version, data, value in VECTORS[name]:
        with pytest.raises(DecodeError) as caught:
            wire.decode(name, version, data + b"\x00")
        assert caught.value.reason is Reason.TRAILING_BYTES
        assert caught.value.offset == len(data)
        assert caught.value.partial == value
