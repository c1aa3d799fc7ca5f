"""Properties of record fields: round trips, arbitrary and damaged bytes, agreement with kafka-python."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafkapython import DefaultRecordBatchBuilder, LegacyRecordBatchBuilder, MemoryRecords
from recordbytes import batch, message, record, sized, zigzag
from wirebytes import i8

from kwsniff.errors import DecodeError, Reason
from kwsniff.wire import compression
from kwsniff.wire.records import Entry, Scan, decode_records, encode_records, read_slice, summarise

Body = dict[str, Any]
MIB = 1 << 20

INT16, INT32, INT64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (15, 31, 63))
MAYBE_BYTES = st.none() | st.binary(max_size=20)
TEXTS = st.text(max_size=8) | st.binary(max_size=8).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
HEADERS = st.lists(st.fixed_dictionaries({"key": TEXTS, "value": MAYBE_BYTES}), max_size=3)


@st.composite
def batches(draw: st.DrawFn) -> Body:
    base = draw(st.integers(0, 2**62))
    deltas = sorted(draw(st.lists(st.integers(0, 2**31 - 1), max_size=5)))
    append = draw(st.booleans())
    newest = draw(INT64)
    records = [
        {
            "offset": base + delta,
            "timestamp": newest if append else draw(INT64),
            "key": draw(MAYBE_BYTES),
            "value": draw(MAYBE_BYTES),
            "headers": draw(HEADERS),
        }
        for delta in deltas
    ]
    horizon = draw(st.booleans())
    first = draw(INT64)
    return {
        "magic": 2,
        "codec": draw(st.sampled_from(list(compression.NUMBERS))),
        "baseOffset": base,
        "partitionLeaderEpoch": draw(INT32),
        "timestampType": "LOG_APPEND_TIME" if append else "CREATE_TIME",
        "isTransactional": draw(st.booleans()),
        "isControl": draw(st.booleans()),
        "deleteHorizonMs": first if horizon else None,
        "lastOffsetDelta": draw(st.integers(deltas[-1] if deltas else 0, 2**31 - 1)),
        "baseTimestamp": first,
        "maxTimestamp": newest,
        "producerId": draw(INT64),
        "producerEpoch": draw(INT16),
        "baseSequence": draw(INT32),
        "records": records,
    }


@st.composite
def message_sets(draw: st.DrawFn) -> Body:
    magic = draw(st.sampled_from([0, 1]))
    codec = draw(st.sampled_from(["none", "gzip", "snappy", "lz4"]))
    append = magic == 1 and draw(st.booleans())
    newest = draw(INT64)
    size = 1 if codec == "none" else draw(st.integers(1, 4))
    offsets = sorted(draw(st.sets(st.integers(1, 2**62), min_size=size, max_size=size)))
    stamps = [None if magic == 0 else newest if append or codec == "none" else draw(INT64) for _ in offsets]
    return {
        "magic": magic,
        "codec": codec,
        "offset": offsets[-1],
        "timestampType": None if magic == 0 else "LOG_APPEND_TIME" if append else "CREATE_TIME",
        "timestamp": None if magic == 0 else newest,
        "records": [
            {
                "offset": offset,
                "timestamp": stamp,
                "key": draw(MAYBE_BYTES),
                "value": draw(MAYBE_BYTES),
                "headers": [],
            }
            for offset, stamp in zip(offsets, stamps, strict=True)
        ],
    }


ENTRIES = st.lists(batches() | message_sets(), max_size=3)


@settings(deadline=None)
@given(ENTRIES)
def test_what_is_written_is_read_again(entries: list[Body]) -> None:
    data = encode_records(entries)
    found = decode_records(data, allow_partial=False)
    assert len(found) == len(entries)
    for wanted, got in zip(entries, found, strict=True):
        assert {key: got[key] for key in wanted} == wanted
        assert got["crcValid"] is True
    assert [{**entry, "crc": 0} for entry in decode_records(encode_records(found))] == [
        {**entry, "crc": 0} for entry in found
    ]


@settings(deadline=None)
@given(ENTRIES)
def test_the_summary_is_that_of_the_records(entries: list[Body]) -> None:
    data = encode_records(entries)
    summary, errors = summarise(data)
    assert errors == []
    assert summary["batches"] == len(entries)
    assert summary["crcErrors"] == 0
    assert summary["codecs"] == list(dict.fromkeys(entry["codec"] for entry in entries))
    assert summary["magics"] == list(dict.fromkeys(entry["magic"] for entry in entries))
    if summary["records"] is not None:
        assert summary["records"] == sum(len(entry["records"]) for entry in entries)
    if entries and summary["baseOffset"] is not None:
        assert summary["baseOffset"] == decode_records(data)[0]["baseOffset"]
    if entries:
        last = entries[-1]
        assert summary["lastOffset"] == (
            last["baseOffset"] + last["lastOffsetDelta"] if last["magic"] == 2 else last["offset"]
        )


def attempt(call: Callable[[], list[Body]]) -> tuple[list[Body], DecodeError | None]:
    try:
        return call(), None
    except DecodeError as error:
        return error.partial, error


def consume(data: bytes) -> None:
    """Everything that takes bytes; only DecodeErrors, and what can be read can be written."""
    summary, errors = summarise(data)
    assert len(errors) <= 16
    scan = Scan(data, max_decompressed=MIB)
    for entry in scan:
        if isinstance(entry, Entry):
            _, error = attempt(lambda entry=entry: list(entry.records()))
            if error:
                assert error.path.startswith(f"[{entry.index}].")
                assert entry.offset <= error.offset <= entry.offset + entry.size
    assert 0 <= scan.cut <= len(data)
    read_slice(data, max_decompressed=MIB)
    entries, error = attempt(lambda: decode_records(data, max_decompressed=MIB))
    assert len(entries) == summary["batches"]
    if error is None:
        again = decode_records(encode_records(entries), allow_partial=False)
        assert [entry["records"] for entry in again] == [
            [{key: value for key, value in one.items() if key != "crcValid"} for one in entry["records"]]
            for entry in entries
        ]


SAMPLES = [
    batch(record(b"value", b"key", headers=[("h", b"v"), ("n", None)]), record(None, offset=1)),
    message(0, b"value", b"key") + message(1, None, b"key", offset=1, timestamp=5),
    *[
        batch(
            *[record(b"v%d" % n, offset=n) for n in range(20)],
            attributes=codec,
            compress=lambda raw, codec=codec: compression.compress(codec, raw),
        )
        for codec in range(1, 5)
    ],
    *[
        message(
            magic,
            compression.compress(codec, b"".join(message(magic, b"v", offset=n) for n in range(9)), magic),
            attributes=codec,
            offset=8,
        )
        for magic in (0, 1)
        for codec in (1, 2, 3)
    ],
]


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_arbitrary_bytes(data: bytes) -> None:
    consume(data)


@settings(deadline=None)
@given(st.binary(max_size=200), st.sampled_from([0, 1, 2]))
def test_arbitrary_bytes_in_an_entry_of_the_right_size(data: bytes, magic: int) -> None:
    consume(bytes(8) + (len(data) + 5).to_bytes(4, "big") + bytes(4) + i8(magic) + data)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(SAMPLES), st.data())
def test_damaged_fields(sample: bytes, data: st.DataObject) -> None:
    damaged = bytearray(sample)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(
            st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
        )
    consume(bytes(damaged) + SAMPLES[0])


@settings(deadline=None)
@given(st.binary(max_size=80))
def test_arbitrary_records_behind_a_right_header(records: bytes) -> None:
    consume(batch(records, count=3))
    consume(batch(sized(i8(0) * 3 + sized(b"") * 2 + zigzag(4) + records)))


MESSAGES = st.lists(st.tuples(MAYBE_BYTES, MAYBE_BYTES, st.integers(0, 2**50)), min_size=1, max_size=5)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(MAYBE_BYTES, MAYBE_BYTES, st.integers(0, 2**50), HEADERS), min_size=1, max_size=5),
    st.data(),
)
def test_kafka_python_reads_our_batches_and_we_read_its(
    codec: str, written: Any, data: st.DataObject
) -> None:
    transactional = data.draw(st.booleans())
    builder = DefaultRecordBatchBuilder(2, compression.NUMBERS[codec], transactional, 7, 1, 5, 10_000)
    records = []
    for offset, (key, value, stamp, headers) in enumerate(written):
        plain = [(one["key"], one["value"]) for one in headers if one["key"].isprintable()]
        plain = [(name, raw) for name, raw in plain if name.isascii()]
        builder.append(offset, stamp, key, value, plain)
        shown = [{"key": name, "value": raw} for name, raw in plain]
        records.append({"offset": offset, "timestamp": stamp, "key": key, "value": value, "headers": shown})
    theirs = bytes(builder.build())
    (entry,) = decode_records(theirs, allow_partial=False)
    assert entry["crcValid"]
    assert entry["records"] == records
    assert (entry["isTransactional"], entry["producerId"], entry["baseSequence"]) == (transactional, 7, 5)
    ours = encode_records([{"codec": codec, "records": records, "producerId": 7}])
    (read,) = iterate(ours)
    assert read.validate_crc()
    assert [
        (one.offset, one.timestamp, one.key, one.value, [(name, raw) for name, raw in one.headers])
        for one in read
    ] == [
        (
            one["offset"],
            one["timestamp"],
            one["key"],
            one["value"],
            [(head["key"], head["value"]) for head in one["headers"]],
        )
        for one in records
    ]


def iterate(data: bytes) -> list[Any]:
    found = []
    theirs = MemoryRecords(data)
    while (one := theirs.next_batch()) is not None:
        found.append(one)
    return found


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@settings(max_examples=25, deadline=None)
@given(written=MESSAGES)
def test_kafka_python_reads_our_message_sets_and_we_read_its(magic: int, codec: str, written: Any) -> None:
    if (magic, codec) == (0, "lz4"):  # there kafka-python needs xxhash for the checksum of KAFKA-3160
        codec = "gzip"
    builder = LegacyRecordBatchBuilder(magic, compression.NUMBERS[codec], 10_000)
    records = []
    for offset, (key, value, stamp) in enumerate(written):
        builder.append(offset, stamp, key, value)
        timestamp = stamp if magic else None
        records.append({"offset": offset, "timestamp": timestamp, "key": key, "value": value, "headers": []})
    entries = decode_records(bytes(builder.build()), allow_partial=False)
    assert all(entry["crcValid"] for entry in entries)
    assert [one for entry in entries for one in entry["records"]] == records

    ours = encode_records([{"magic": magic, "codec": codec, "records": records}])
    found = [one for theirs in iterate(ours) for one in theirs]
    assert [(one.offset, one.timestamp, one.key, one.value) for one in found] == [
        (one["offset"], one["timestamp"], one["key"], one["value"]) for one in records
    ]
    assert all(theirs.validate_crc() for theirs in iterate(ours))


def test_a_batch_of_bombs_costs_one_limit_of_memory() -> None:
    bomb = batch(attributes=4, count=1, compress=lambda _: compression.compress(4, bytes(40 * MIB)))
    field = bomb * 8 + batch(record(b"survivor"))
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError) as caught:
            decode_records(field, max_decompressed=16 * MIB)
        assert tracemalloc.get_traced_memory()[1] < 24 * MIB
    finally:
        tracemalloc.stop()
    assert caught.value.reason == Reason.DECOMPRESSION_LIMIT
    assert caught.value.partial[-1]["records"][0]["value"] == b"survivor"


def test_an_error_does_not_keep_what_was_decompressed() -> None:
    zeros = batch(attributes=4, count=1, compress=lambda _: compression.compress(4, bytes(16 * MIB)))
    errors = []
    tracemalloc.start()
    try:
        for entry in Scan(zeros * 4):
            assert isinstance(entry, Entry)
            try:
                list(entry.records())
            except DecodeError as error:
                errors.append(error)
        assert tracemalloc.get_traced_memory()[0] < MIB
    finally:
        tracemalloc.stop()
    assert len(errors) == 4


def test_records_are_given_one_by_one() -> None:
    """A record of seven bytes becomes a dict of some hundreds: the list of all is the caller's choice."""
    many = batch(*[record(b"", offset=0)] * 100_000)
    (entry,) = Scan(many)
    assert isinstance(entry, Entry)
    tracemalloc.start()
    try:
        assert sum(1 for _ in entry.records()) == 100_000
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


def test_headers_of_one_record_are_bounded() -> None:
    head = i8(0) * 3 + sized(None) * 2
    full = head + zigzag(100_000) + (sized(b"") + sized(None)) * 100_000
    (entry,) = decode_records(batch(sized(full)))
    assert len(entry["records"][0]["headers"]) == 100_000
    over = head + zigzag(100_001) + (sized(b"") + sized(None)) * 100_001
    with pytest.raises(DecodeError) as caught:
        decode_records(batch(sized(over)))
    assert (caught.value.reason, caught.value.path) == (Reason.COUNT_INVALID, "[0].records[0].headers")


@pytest.mark.parametrize("count", [2**31 - 1, -1, 2])
def test_the_summary_does_not_believe_an_impossible_count(count: int) -> None:
    data = batch(record(b"one"), count=count)
    summary, errors = summarise(data)
    assert summary["records"] is None
    assert [(error.reason, error.path, error.offset) for error in errors] == [
        (Reason.COUNT_INVALID, "[0].recordCount", 57)
    ]


def test_the_summary_counts_wrong_checksums_if_asked_to() -> None:
    data = batch(record(b"x"))[:-1] + b"?" + message(1, b"x")[:-1] + b"?" + message(0, b"x")
    assert summarise(data)[0]["crcErrors"] == 2
    assert summarise(data, check_crc=False)[0]["crcErrors"] is None


def test_the_summary_of_a_wrapper_does_not_guess() -> None:
    inside = compression.compress(1, message(1, b"a") + message(1, b"b", offset=1))
    unknown, known = message(1, inside, attributes=1), message(1, inside, attributes=1, offset=5)
    assert summarise(known)[0] == {
        "batches": 1,
        "records": None,
        "codecs": ["gzip"],
        "magics": [1],
        "baseOffset": None,
        "lastOffset": 5,
        "crcErrors": 0,
    }
    assert summarise(unknown)[0]["lastOffset"] is None


def test_the_summary_lists_a_few_errors_of_many() -> None:
    junk = bytes(8) + (5).to_bytes(4, "big") + bytes(4) + i8(9)
    summary, errors = summarise(junk * 1000)
    assert (summary["batches"], len(errors)) == (0, 16)
    assert {error.reason for error in errors} == {Reason.RECORDS_CORRUPT}
