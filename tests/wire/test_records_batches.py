"""Record batches, magic 2, byte by byte: what the fields mean, and what is said of those that are wrong."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from recordbytes import batch, message, record, sized, zigzag
from wirebytes import i8, i32, i64

from kwsniff.errors import DecodeError, EncodeError, Reason
from kwsniff.wire.records import Entry, Scan, decode_records, encode_records, read_slice

Body = dict[str, Any]

APPEND, TRANSACTIONAL, CONTROL, HORIZON = 8, 16, 32, 64
FIRST_RECORD = 61
"""Bytes of a batch before its records."""


def only(data: bytes) -> Body:
    (entry,) = decode_records(data, allow_partial=False)
    assert encode_records([entry]) == data
    return entry


def fault(data: bytes, **options: Any) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        decode_records(data, **options)
    return caught.value


def values(entries: list[Body]) -> list[list[bytes | None]]:
    return [[one["value"] for one in entry["records"]] for entry in entries]


GOOD = batch(record(b"good"))


def test_every_field_of_a_batch() -> None:
    data = batch(
        record(b"first", b"k", timestamp=5, headers=[("trace", b"\x00\x01"), ("empty", None)]),
        record(None, None, offset=2, timestamp=-3),
        base_offset=1000,
        base_timestamp=1_700_000_000_000,
        max_timestamp=1_700_000_000_005,
        producer=(4711, 3, 42),
        last_delta=7,
        leader_epoch=9,
    )
    entry = only(data)
    assert entry.pop("records") == [
        {
            "offset": 1000,
            "timestamp": 1_700_000_000_005,
            "key": b"k",
            "value": b"first",
            "headers": [{"key": "trace", "value": b"\x00\x01"}, {"key": "empty", "value": None}],
        },
        {"offset": 1002, "timestamp": 1_699_999_999_997, "key": None, "value": None, "headers": []},
    ]
    assert entry == {
        "baseOffset": 1000,
        "magic": 2,
        "codec": "none",
        "crcValid": True,
        "batchLength": len(data) - 12,
        "partitionLeaderEpoch": 9,
        "crc": int.from_bytes(data[17:21], "big"),
        "attributes": 0,
        "timestampType": "CREATE_TIME",
        "isTransactional": False,
        "isControl": False,
        "deleteHorizonMs": None,
        "lastOffsetDelta": 7,
        "baseTimestamp": 1_700_000_000_000,
        "maxTimestamp": 1_700_000_000_005,
        "producerId": 4711,
        "producerEpoch": 3,
        "baseSequence": 42,
        "recordCount": 2,
    }


def test_log_append_time_is_that_of_the_broker_for_every_record() -> None:
    entry = only(batch(record(b"x", timestamp=17), attributes=APPEND, base_timestamp=100, max_timestamp=117))
    assert entry["timestampType"] == "LOG_APPEND_TIME"
    data = batch(record(b"x", timestamp=3), record(b"y", offset=1), attributes=APPEND, max_timestamp=500)
    (entry,) = decode_records(data)
    assert [one["timestamp"] for one in entry["records"]] == [500, 500]
    assert decode_records(encode_records([entry]))[0]["records"] == entry["records"]


def test_the_delete_horizon_does_not_change_the_records_timestamps() -> None:
    entry = only(batch(record(None, b"k", timestamp=-7), attributes=HORIZON, base_timestamp=1000))
    assert (entry["deleteHorizonMs"], entry["records"][0]["timestamp"]) == (1000, 993)


def test_transactional_and_control_flags() -> None:
    entry = only(batch(record(b"", b""), attributes=TRANSACTIONAL | CONTROL, producer=(1, 0, -1)))
    assert (entry["isTransactional"], entry["isControl"], entry["producerId"]) == (True, True, 1)


def test_a_batch_that_compaction_emptied() -> None:
    entry = only(batch(base_offset=5, last_delta=9, base_timestamp=-1))
    assert (entry["recordCount"], entry["lastOffsetDelta"], entry["records"]) == (0, 9, [])
    gzipped = batch(base_offset=5, attributes=1, last_delta=9)
    assert decode_records(gzipped)[0]["records"] == []


def test_unused_attributes_of_batch_and_record_are_kept() -> None:
    body = i8(5) + zigzag(0) + zigzag(0) + sized(None) + sized(b"v") + zigzag(0)
    entry = only(batch(sized(body), attributes=0x4080 - 0x8000))
    assert (entry["attributes"], entry["records"][0]["attributes"]) == (-0x3F80, 5)


def test_a_header_key_that_is_not_utf8_keeps_its_bytes() -> None:
    entry = only(batch(record(b"v", headers=[(b"\xff\xfe", b"x"), ("ключ", b""), ("", None)])))
    assert [one["key"] for one in entry["records"][0]["headers"]] == ["\udcff\udcfe", "ключ", ""]


def test_long_varints() -> None:
    farthest = record(b"v" * 70_000, b"k" * 64, offset=2**31 - 1, timestamp=2**62)
    entry = only(batch(farthest, last_delta=2**31 - 1, max_timestamp=2**62))
    assert (entry["records"][0]["offset"], entry["records"][0]["timestamp"]) == (2**31 - 1, 2**62)


def test_sums_beyond_int64_wrap_as_in_java() -> None:
    data = batch(record(b"v", offset=1, timestamp=1), base_offset=2**63 - 1, base_timestamp=2**63 - 1)
    (entry,) = decode_records(data)
    assert (entry["records"][0]["offset"], entry["records"][0]["timestamp"]) == (-(2**63), -(2**63))
    assert decode_records(encode_records([entry]))[0]["records"] == entry["records"]


def test_a_wrong_crc_is_told_and_the_records_shown() -> None:
    data = GOOD[:-2] + b"D" + GOOD[-1:]
    (entry,) = decode_records(data)
    assert (entry["crcValid"], entry["records"][0]["value"]) == (False, b"gooD")


def test_neither_base_offset_nor_leader_epoch_is_under_the_crc() -> None:
    data = i64(77) + GOOD[8:12] + i32(5) + GOOD[16:]
    (entry,) = decode_records(data)
    assert (entry["crcValid"], entry["baseOffset"], entry["partitionLeaderEpoch"]) == (True, 77, 5)


def test_formats_may_follow_each_other() -> None:
    data = message(0, b"a", offset=1) + message(1, b"b", offset=2, timestamp=3) + batch(record(b"c"))
    entries = decode_records(data)
    assert [entry["magic"] for entry in entries] == [0, 1, 2]
    assert values(entries) == [[b"a"], [b"b"], [b"c"]]
    assert encode_records(entries) == data


@pytest.mark.parametrize("end", range(1, len(GOOD)))
def test_a_cut_off_batch_behind_a_good_one(end: int) -> None:
    scan = Scan(GOOD + GOOD[:end])
    entries = [entry for entry in scan if isinstance(entry, Entry)]
    assert (len(entries), scan.cut) == (1, end)
    wrong = fault(GOOD + GOOD[:end], allow_partial=False)
    assert (wrong.reason, wrong.path, wrong.offset) == (Reason.BODY_TRUNCATED, "[1]", len(GOOD))
    assert values(wrong.partial) == [[b"good"]]


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_a_batch_length_that_cannot_be_ends_the_scan(length: int) -> None:
    wrong = fault(GOOD + GOOD[:8] + i32(length) + GOOD[12:] + GOOD)
    assert (wrong.reason, wrong.path, wrong.offset) == (Reason.LENGTH_INVALID, "[1]", len(GOOD) + 8)
    assert values(wrong.partial) == [[b"good"]]


def test_an_unknown_magic_is_skipped_by_its_length() -> None:
    wrong = fault(GOOD + GOOD[:16] + i8(3) + GOOD[17:] + GOOD)
    assert (wrong.reason, wrong.path, wrong.offset) == (
        Reason.RECORDS_CORRUPT,
        "[1].magic",
        len(GOOD) + 16,
    )
    assert values(wrong.partial) == [[b"good"], [b"good"]]


FLAWED_RECORDS = {
    "length beyond the batch": (zigzag(100), Reason.LENGTH_INVALID, "records[1]"),
    "length too small": (zigzag(5) + b"\0" * 5, Reason.LENGTH_INVALID, "records[1]"),
    "length negative": (zigzag(-1), Reason.LENGTH_INVALID, "records[1]"),
    "length of six bytes": (b"\xff" * 5 + b"\x01", Reason.VARINT_INVALID, "records[1]"),
    "key length -2": (
        sized(i8(0) * 3 + zigzag(-2) + sized(b"") + zigzag(0)),
        Reason.LENGTH_INVALID,
        "records[1].key",
    ),
    "key over the record": (
        sized(i8(0) * 3 + zigzag(50) + sized(b"") + zigzag(0)),
        Reason.LENGTH_INVALID,
        "records[1].key",
    ),
    "value over the record": (
        sized(i8(0) * 3 + sized(b"") + zigzag(9) + zigzag(0)),
        Reason.LENGTH_INVALID,
        "records[1].value",
    ),
    "headers without end": (
        sized(i8(0) * 3 + sized(b"") * 2 + zigzag(2**31 - 1)),
        Reason.COUNT_INVALID,
        "records[1].headers",
    ),
    "a negative count of headers": (
        sized(i8(0) * 3 + sized(b"") * 2 + zigzag(-1)),
        Reason.COUNT_INVALID,
        "records[1].headers",
    ),
    "a null header key": (
        sized(i8(0) * 3 + sized(b"") * 2 + zigzag(1) + sized(None) + sized(b"v")),
        Reason.NULL_INVALID,
        "records[1].headers[0].key",
    ),
    "a header value over the record": (
        sized(i8(0) * 3 + sized(b"") * 2 + zigzag(1) + sized(b"h") + zigzag(7)),
        Reason.LENGTH_INVALID,
        "records[1].headers[0].value",
    ),
    "bytes behind the last header": (
        sized(i8(0) * 3 + sized(b"") * 2 + zigzag(0) + b"xyz"),
        Reason.RECORDS_CORRUPT,
        "records[1]",
    ),
}


@pytest.mark.parametrize(("flawed", "reason", "path"), FLAWED_RECORDS.values(), ids=FLAWED_RECORDS)
def test_a_flawed_record_costs_itself_and_those_behind_it_in_the_batch(
    flawed: bytes, reason: Reason, path: str
) -> None:
    fine = record(b"fine")
    start = len(GOOD) + FIRST_RECORD + len(fine)
    wrong = fault(GOOD + batch(fine, flawed, record(b"lost")) + GOOD)
    assert (wrong.reason, wrong.path) == (reason, f"[1].{path}")
    assert start <= wrong.offset <= start + len(flawed)
    assert values(wrong.partial) == [[b"good"], [b"fine"], [b"good"]]

    zipped = GOOD + batch(fine, flawed, attributes=1, compress=gzip.compress) + GOOD
    wrong = fault(zipped)
    assert (wrong.reason, wrong.path) == (reason, f"[1].{path}")
    assert wrong.offset == len(GOOD) + FIRST_RECORD
    assert values(wrong.partial) == [[b"good"], [b"fine"], [b"good"]]


@pytest.mark.parametrize("count", [3, 2**31 - 1, -1, 1])
def test_a_record_count_that_is_wrong(count: int) -> None:
    wrong = fault(batch(record(b"one"), record(b"two", offset=1), count=count) + GOOD)
    reason = Reason.TRAILING_BYTES if count == 1 else Reason.COUNT_INVALID
    assert (wrong.reason, wrong.path.partition(".")[0]) == (reason, "[0]")
    shown = [b"one", b"two"][: max(0, count)]
    assert values(wrong.partial) == [shown, [b"good"]]


def test_what_does_not_decompress_costs_its_batch() -> None:
    for codec in range(1, 8):
        wrong = fault(GOOD + batch(attributes=codec, count=1, compress=lambda _: b"no stream") + GOOD)
        assert (wrong.reason, wrong.path) == (Reason.DECOMPRESSION_FAILED, "[1].records")
        assert wrong.offset == len(GOOD) + FIRST_RECORD
        assert values(wrong.partial) == [[b"good"], [], [b"good"]]


def test_the_limit_is_for_each_batch() -> None:
    zipped = batch(record(b"v" * 1000), attributes=1, compress=gzip.compress)
    assert len(decode_records(zipped * 3, max_decompressed=1100)) == 3
    wrong = fault(zipped + GOOD, max_decompressed=1000)
    assert (wrong.reason, wrong.path) == (Reason.DECOMPRESSION_LIMIT, "[0].records")
    assert values(wrong.partial) == [[], [b"good"]]


def test_a_header_follows_from_the_records_where_it_is_not_given() -> None:
    records = [
        {"offset": 10, "timestamp": 1000, "key": b"a", "value": b"b", "headers": []},
        {"offset": 13, "timestamp": 1500, "value": None},
    ]
    (entry,) = decode_records(encode_records([{"codec": "zstd", "records": records}]))
    assert (entry["baseOffset"], entry["lastOffsetDelta"], entry["codec"]) == (10, 3, "zstd")
    assert (entry["baseTimestamp"], entry["maxTimestamp"], entry["producerId"]) == (1000, 1500, -1)
    assert [one["offset"] for one in entry["records"]] == [10, 13]


def test_changed_records_get_a_right_count_length_and_crc() -> None:
    (entry,) = decode_records(batch(record(b"v")))
    entry["records"].append({"offset": 1, "timestamp": 0, "key": None, "value": b"added", "headers": []})
    entry["isTransactional"] = True
    (again,) = decode_records(encode_records([entry]), allow_partial=False)
    assert (again["crcValid"], again["recordCount"], again["lastOffsetDelta"]) == (True, 2, 1)
    assert again["isTransactional"]


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        ({"magic": 3}, "[1].magic"),
        ({"codec": "brotli"}, "[1].codec"),
        ({"baseOffset": 2**63, "records": []}, "[1]"),
        ({"records": [{"value": "text"}]}, "[1].records[0]"),
        ({"records": [{"value": b"", "headers": [{"value": b""}]}]}, "[1].records[0]"),
        ({"baseOffset": 0, "records": [{"offset": 2**31, "value": b""}]}, "[1].records[0].offset"),
        ({"magic": 0, "codec": "lzma", "records": []}, "[1].codec"),
        ({"magic": 1, "records": [{"offset": 0, "timestamp": None}]}, "[1]"),
    ],
)
def test_what_cannot_be_written_is_an_encode_error(entry: Body, path: str) -> None:
    with pytest.raises(EncodeError) as caught:
        encode_records([{"records": []}, entry])
    assert caught.value.path == path


def test_a_slice_of_a_log_begins_with_its_first_whole_batch() -> None:
    log = batch(record(b"a")) + batch(record(b"b"), base_offset=1) + batch(record(b"c"), base_offset=2)
    size = len(log) // 3
    for start in range(0, 2 * size, 7):
        for end in range(2 * size, len(log) + 1, 7):
            skipped, entries = read_slice(log[start:end])
            first, last = -(-start // size), end // size
            assert values(entries) == [[value] for value in (b"a", b"b", b"c")[first:last]]
            assert start + skipped == (first * size if first < last else end)


def test_a_slice_of_anything_is_no_error() -> None:
    assert read_slice(b"") == (0, [])
    assert read_slice(b"\x02" * 1000) == (1000, [])
    assert read_slice(bytes(range(256)) * 20)[1] == []
