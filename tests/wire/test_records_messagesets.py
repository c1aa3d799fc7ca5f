"""Message sets, magic 0 and 1: wrappers, offsets, timestamps (KIP-31, KIP-32), what is wrong with some."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from recordbytes import message
from wirebytes import blob, i8, i32, i64

from kwsniff.errors import DecodeError, Reason
from kwsniff.wire.compression import compress
from kwsniff.wire.records import Scan, decode_records, encode_records

Body = dict[str, Any]

GZIP, SNAPPY, LZ4 = 1, 2, 3
APPEND = 8


def wrapper(magic: int, *inside: bytes, offset: int = 0, timestamp: int = -1, append: bool = False) -> bytes:
    attributes = GZIP | (APPEND if append else 0)
    content = gzip.compress(b"".join(inside))
    return message(magic, content, offset=offset, timestamp=timestamp, attributes=attributes)


def offsets(data: bytes) -> list[int]:
    return [one["offset"] for entry in decode_records(data) for one in entry["records"]]


def fault(data: bytes, **options: Any) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        decode_records(data, **options)
    return caught.value


def values(entries: list[Body]) -> list[list[bytes | None]]:
    return [[one["value"] for one in entry["records"]] for entry in entries]


GOOD = message(1, b"good", timestamp=5)


def test_every_field_of_a_message_of_magic_0() -> None:
    data = message(0, b"value", b"key", offset=12)
    assert decode_records(data) == [
        {
            "baseOffset": 12,
            "magic": 0,
            "codec": "none",
            "crcValid": True,
            "offset": 12,
            "messageSize": 22,
            "crc": int.from_bytes(data[12:16], "big"),
            "attributes": 0,
            "timestampType": None,
            "timestamp": None,
            "records": [{"offset": 12, "timestamp": None, "key": b"key", "value": b"value", "headers": []}],
        }
    ]
    assert encode_records(decode_records(data)) == data


@pytest.mark.parametrize(("attributes", "name"), [(0, "CREATE_TIME"), (APPEND, "LOG_APPEND_TIME")])
def test_a_message_of_magic_1_has_a_timestamp(attributes: int, name: str) -> None:
    data = message(1, None, offset=3, timestamp=99, attributes=attributes)
    (entry,) = decode_records(data)
    assert (entry["timestampType"], entry["timestamp"], entry["messageSize"]) == (name, 99, 22)
    assert entry["records"] == [{"offset": 3, "timestamp": 99, "key": None, "value": None, "headers": []}]
    assert encode_records([entry]) == data


def test_each_plain_message_is_an_entry_and_a_wrapper_is_one() -> None:
    inside = [message(1, b"b"), message(1, b"c", offset=1)]
    data = message(1, b"a", offset=7) + wrapper(1, *inside, offset=9) + message(1, b"d", offset=10)
    entries = decode_records(data)
    assert values(entries) == [[b"a"], [b"b", b"c"], [b"d"]]
    assert [(entry["baseOffset"], entry["offset"]) for entry in entries] == [(7, 7), (8, 9), (10, 10)]


def test_offsets_inside_of_magic_0_are_absolute() -> None:
    assert offsets(wrapper(0, message(0, b"a", offset=40), message(0, b"b", offset=43), offset=43)) == [
        40,
        43,
    ]


def test_offsets_inside_of_magic_1_are_relative_to_the_last() -> None:
    inside = [message(1, b"x", offset=relative) for relative in (0, 1, 2)]
    assert offsets(wrapper(1, *inside, offset=102)) == [100, 101, 102]


def test_compaction_leaves_gaps_between_relative_offsets() -> None:
    inside = [message(1, b"x", offset=relative) for relative in (3, 4, 9)]
    assert offsets(wrapper(1, *inside, offset=109)) == [103, 104, 109]


def test_a_wrapper_at_0_has_its_offsets_as_they_are() -> None:
    inside = [message(1, b"x", offset=relative) for relative in (0, 1, 2)]
    assert offsets(wrapper(1, *inside, offset=0)) == [0, 1, 2]


def test_a_wrapper_before_its_last_message_is_corrupt() -> None:
    inside = [message(1, b"x", offset=relative) for relative in (0, 1, 2)]
    wrong = fault(GOOD + wrapper(1, *inside, offset=1) + GOOD)
    assert (wrong.reason, wrong.path, wrong.offset) == (Reason.RECORDS_CORRUPT, "[1].records", len(GOOD))
    assert values(wrong.partial) == [[b"good"], [], [b"good"]]
    assert wrong.partial[1]["baseOffset"] is None


@pytest.mark.parametrize(("append", "expected"), [(False, [10, 20]), (True, [30, 30])])
def test_log_append_time_of_a_wrapper_is_that_of_its_messages(append: bool, expected: list[int]) -> None:
    inside = [message(1, b"x", timestamp=10), message(1, b"y", offset=1, timestamp=20)]
    (entry,) = decode_records(wrapper(1, *inside, offset=1, timestamp=30, append=append))
    assert [one["timestamp"] for one in entry["records"]] == expected
    assert entry["timestamp"] == 30


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_written_wrappers_mean_the_same(magic: int, codec: int) -> None:
    inside = b"".join(message(magic, b"v%d" % n, b"k", offset=n, timestamp=n) for n in range(5))
    start = 4 if magic else 0
    data = message(magic, compress(codec, inside, magic), offset=start, timestamp=4, attributes=codec)
    entries = decode_records(data)
    again = decode_records(encode_records(entries), allow_partial=False)
    assert [{**entry, "crc": 0} for entry in again] == [{**entry, "crc": 0} for entry in entries]
    assert [one["offset"] for one in again[0]["records"]] == [0, 1, 2, 3, 4]


def test_a_wrapper_without_codec_becomes_plain_messages() -> None:
    (entry,) = decode_records(wrapper(1, message(1, b"a"), message(1, b"b", offset=1), offset=8))
    plain = encode_records([{**entry, "codec": "none"}])
    assert plain == message(1, b"a", offset=7) + message(1, b"b", offset=8)


def test_wrong_crcs_outside_and_inside() -> None:
    spoilt = GOOD[:-1] + b"?"
    assert decode_records(spoilt)[0]["crcValid"] is False
    (entry,) = decode_records(wrapper(1, GOOD, spoilt))
    assert entry["crcValid"] is True
    assert [one.get("crcValid", True) for one in entry["records"]] == [True, False]


def test_compressed_sets_may_be_nested_a_little() -> None:
    data = message(1, b"deep", offset=0)
    for level in range(1, 5):
        data = wrapper(1, data, offset=0)
        assert values(decode_records(data)) == [[b"deep"]], level
    wrong = fault(wrapper(1, message(1, b"flat"), wrapper(1, data, offset=1)))
    assert (wrong.reason, wrong.path) == (Reason.NESTING_LIMIT, "[0].records[1]")
    assert values(wrong.partial) == [[b"flat"]]
    assert fault(wrapper(1, GOOD), max_nesting=0).reason == Reason.NESTING_LIMIT


def test_nested_offsets_are_resolved_level_by_level() -> None:
    inner = wrapper(1, message(1, b"a"), message(1, b"b", offset=1), offset=3)
    data = wrapper(1, message(1, b"c"), inner, offset=1003)
    assert offsets(data) == [1000, 1002, 1003]


def test_the_limit_counts_all_levels_together() -> None:
    big = wrapper(0, message(0, b"v" * 1000))
    wide = wrapper(0, *[big] * 5)
    assert len(decode_records(wide, max_decompressed=8000)[0]["records"]) == 5
    wrong = fault(wide + GOOD, max_decompressed=4000)
    assert (wrong.reason, wrong.path) == (Reason.DECOMPRESSION_LIMIT, "[0].records")
    assert [len(one) for one in values(wrong.partial)] == [3, 1]


FLAWED = {
    "a null set": (
        message(1, None, attributes=GZIP),
        Reason.NULL_INVALID,
        "records",
    ),
    "garbage": (message(1, b"garbage", attributes=GZIP), Reason.DECOMPRESSION_FAILED, "records"),
    "no such codec": (message(1, b"", attributes=5), Reason.DECOMPRESSION_FAILED, "records"),
    "another magic inside": (wrapper(1, GOOD, message(0, b"old")), Reason.RECORDS_CORRUPT, "records[1]"),
    "an unknown magic inside": (
        wrapper(1, GOOD, GOOD[:16] + i8(7) + GOOD[17:]),
        Reason.RECORDS_CORRUPT,
        "records[1]",
    ),
    "a cut set inside": (wrapper(1, GOOD, GOOD[:-1]), Reason.RECORDS_CORRUPT, "records[1]"),
    "a few bytes inside": (wrapper(1, GOOD, b"\0" * 11), Reason.RECORDS_CORRUPT, "records[1]"),
    "a size that cannot be inside": (
        wrapper(1, GOOD, i64(0) + i32(3) + GOOD[12:]),
        Reason.RECORDS_CORRUPT,
        "records[1]",
    ),
    "a key over the message inside": (
        wrapper(1, GOOD, i64(0) + blob(GOOD[12:26] + i32(99) + GOOD[30:])),
        Reason.RECORDS_CORRUPT,
        "records[1].key",
    ),
    "a key over the message": (
        i64(0) + blob(GOOD[12:26] + i32(99) + GOOD[30:]),
        Reason.LENGTH_INVALID,
        "records[0].key",
    ),
    "a value of -2 bytes": (
        i64(0) + blob(GOOD[12:30] + i32(-2) + GOOD[34:]),
        Reason.LENGTH_INVALID,
        "records[0].value",
    ),
    "bytes behind the value": (
        i64(0) + blob(GOOD[12:] + b"!"),
        Reason.TRAILING_BYTES,
        "records[0].value",
    ),
}


@pytest.mark.parametrize(("flawed", "reason", "path"), FLAWED.values(), ids=FLAWED)
def test_a_flawed_entry_does_not_hide_its_neighbours(flawed: bytes, reason: Reason, path: str) -> None:
    wrong = fault(GOOD + flawed + GOOD)
    assert (wrong.reason, wrong.path) == (reason, f"[1].{path}")
    assert len(GOOD) <= wrong.offset < len(GOOD) + len(flawed)
    inside = [b"good"] if path.startswith("records[1]") else []
    assert values(wrong.partial) == [[b"good"], inside, [b"good"]]


@pytest.mark.parametrize("size", [-1, 0, 4, 21])
def test_a_size_that_cannot_be_ends_the_set(size: int) -> None:
    wrong = fault(GOOD + GOOD[:8] + i32(size) + GOOD[12:] + GOOD)
    assert (wrong.reason, wrong.path, wrong.offset) == (Reason.LENGTH_INVALID, "[1]", len(GOOD) + 8)
    assert values(wrong.partial) == [[b"good"]]


@pytest.mark.parametrize("data", [GOOD, wrapper(1, GOOD, GOOD)], ids=["plain", "wrapper"])
def test_a_message_cut_at_any_byte_is_left_out_and_counted(data: bytes) -> None:
    for end in range(len(data)):
        scan = Scan(GOOD + data[:end])
        assert len(list(scan)) == 1
        assert scan.cut == end
