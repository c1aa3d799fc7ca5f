"""The compiled reader of records fields does what the one in Python does: same dicts, same JSON text byte for
byte, same faults, for whatever comes. The reference is held to the protocol by the other tests of records."""

from __future__ import annotations

import gzip
import random
import tracemalloc
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import pack
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafkapython import calc_crc32c
from msgspec import json
from recordbytes import batch, message, record, sized, zigzag
from wirebytes import i8, i32, i64

from kwsniff.errors import DecodeError
from kwsniff.output import recordset
from kwsniff.output.recordset import Budget, Field
from kwsniff.wire import batch as batches
from kwsniff.wire import compression, messageset, records
from kwsniff.wire.records import Entry, Scan, decode_records, summarise

fast = pytest.importorskip("kwsniff.wire._records", reason="the package was built without a C compiler")

MIB = 1 << 20
APPEND, CONTROL = 8, 32
GZIP, LZ4 = 1, 3


@contextmanager
def python_only() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (batches, messageset, records, recordset):
            patch.setattr(module, "_compiled", None)
        yield


def packed(codec: int, magic: int = 2) -> Callable[[bytes], bytes]:
    return lambda content: compression.compress(codec, content, magic)


# What the two say of a field


def outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except DecodeError as error:
        return error.reason, error.message, error.path, error.offset, error.partial


def scanned(data: bytes) -> list[Any]:
    found: list[Any] = []
    for entry in Scan(data, allow_partial=False):
        if isinstance(entry, Entry):
            found += [entry.header, outcome(lambda entry=entry: list(entry.records()))]
        else:
            found.append((entry.reason, entry.message, entry.path, entry.offset))
    return found


def as_json(data: bytes, *, left: int = MIB, most: int = MIB, quoted: bool = False, cut: bool = True) -> Any:
    """The text of the records, and all that comes up."""
    budget = Budget(left, most, quoted, "request")
    shown = recordset.decoded(Field(data, "topicData[0].records", "orders", cut), budget)
    return json.encode(shown), budget.left, budget.faults, budget.raw_strings


def summary_text(data: bytes, cut: bool, quoted: bool) -> bytes:
    """Of a field with nothing wrong; where something is, the compiled writer says nothing."""
    budget = Budget(0, 0, quoted, "request")
    text = json.encode(recordset.summary(Field(data, "", None, cut), budget))
    if recordset._compiled is not None:
        assert fast.summary_json(data, cut, quoted) == (None if budget.faults else text)
    return text


def everything(data: bytes) -> list[Any]:
    counted = [summarise(data), summarise(data, check_crc=False, allow_partial=False)]
    return [
        outcome(lambda: decode_records(data)),
        outcome(lambda: decode_records(data, max_decompressed=100)),
        scanned(data),
        [(summary, [str(error) for error in errors]) for summary, errors in counted],
        as_json(data),
        as_json(data, quoted=True, cut=False),
        [summary_text(data, cut, quoted) for cut in (False, True) for quoted in (False, True)],
        as_json(data, left=150, most=200),
    ]


def agree(data: bytes) -> None:
    found = everything(data)
    with python_only():
        assert everything(data) == found


# What fields are made of

TEXT = st.text(max_size=40) | st.text('"\\\t\r\n aé\u00a0\u2028😀', max_size=40)
PAYLOAD = st.none() | TEXT.map(str.encode) | st.binary(max_size=40)
NAME = (
    TEXT.map(str.encode)
    | st.text('\x00\x1f\x7f\x80\b\f"', max_size=9).map(str.encode)
    | st.binary(max_size=5)
)
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
RECORD = st.builds(
    record,
    PAYLOAD,
    PAYLOAD,
    offset=st.integers(0, 5) | INT32,
    timestamp=st.integers(-5, 5) | INT64,
    headers=st.lists(st.tuples(NAME, PAYLOAD), max_size=2),
)
ODD_RECORD = RECORD.map(lambda good: good[:1] + i8(5) + good[2:]) | st.binary(max_size=12)
CODEC = st.integers(0, 4)


@st.composite
def fields(draw: st.DrawFn) -> bytes:
    return b"".join(draw(st.lists(entries() | message_sets(), max_size=3)))


@st.composite
def entries(draw: st.DrawFn) -> bytes:
    codec = draw(CODEC)
    found = draw(st.lists(RECORD, max_size=4) | st.lists(RECORD | ODD_RECORD, max_size=4))
    return batch(
        *found,
        base_offset=draw(INT64),
        attributes=codec | draw(st.sampled_from((0, 0, APPEND, CONTROL, 16, 64, 128))),
        base_timestamp=draw(INT64),
        max_timestamp=draw(INT64),
        producer=(draw(INT64), 7, -7),
        count=draw(st.none() | st.none() | st.integers(-1, 9)),
        last_delta=draw(INT32),
        compress=packed(codec),
    )


@st.composite
def message_sets(draw: st.DrawFn) -> bytes:
    magic, codec = draw(st.integers(0, 1)), draw(st.integers(0, 3))
    inner = [
        message(
            draw(st.sampled_from((magic,) * 9 + (1 - magic,))),
            draw(PAYLOAD),
            draw(PAYLOAD),
            offset=draw(st.integers(0, 9) | INT64),
            timestamp=draw(INT64),
            attributes=draw(st.sampled_from((0, 0, 0, 0, APPEND, GZIP))),
        )
        for _ in range(draw(st.integers(0, 3)))
    ]
    if not codec:
        return b"".join(inner)
    attributes = codec | draw(st.sampled_from((0, APPEND, 0x80)))
    value = packed(codec, magic)(b"".join(inner))
    return message(
        magic,
        value,
        offset=draw(INT64 | st.integers(0, 9)),
        timestamp=5,
        attributes=attributes - 256 * (attributes >> 7),
    )


def with_right_crcs(data: bytes) -> bytes:
    """Damage that a checksum tells is no work for a parser."""
    out, at = bytearray(data), 0
    while at + 17 < len(out):
        end = at + 12 + int.from_bytes(out[at + 8 : at + 12], "big", signed=True)
        if not at + 22 <= end <= len(out):
            break
        if out[at + 16] == 2:
            out[at + 17 : at + 21] = pack(">I", calc_crc32c(bytes(out[at + 21 : end])))
        else:
            out[at + 12 : at + 16] = pack(">I", crc32(out[at + 16 : end]))
        at = end
    return bytes(out)


def damaged(data: bytes, chance: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        at = chance.randrange(len(out) + 1)
        how = chance.randrange(6)
        if how == 0:
            out[at : at + 1] = bytes((chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256))),))
        elif how == 1 and at < len(out):
            out[at] ^= 1 << chance.randrange(8)
        elif how == 2:
            del out[at : at + chance.choice((1, 1, 2, 8))]
        elif how == 3:
            out[at:at] = chance.randbytes(chance.choice((1, 1, 2, 8)))
        elif how == 4:
            del out[at:]
        elif at < len(out):
            out[at] = (out[at] + chance.choice((-2, -1, 1, 2))) % 256
    return with_right_crcs(bytes(out)) if chance.random() < 0.9 else bytes(out)


# The properties


@settings(deadline=None, max_examples=250)
@given(fields())
def test_the_two_agree_on_what_is_well_formed_or_nearly(data: bytes) -> None:
    agree(data)


@settings(deadline=None, max_examples=40)
@given(fields(), st.integers(0, 2**32))
def test_the_two_agree_on_what_is_damaged(data: bytes, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(10):
        agree(damaged(data, chance))


@settings(deadline=None, max_examples=100)
@given(st.lists(RECORD | ODD_RECORD, max_size=4), st.integers(0, 2**32))
def test_the_two_agree_on_damage_below_the_compression(found: list[bytes], seed: int) -> None:
    chance = random.Random(seed)
    content = damaged(b"".join(found), chance)
    agree(batch(*found, attributes=LZ4, compress=lambda _: packed(LZ4)(content)))
    inner = b"".join(message(1, one, offset=at) for at, one in enumerate(found))
    content = damaged(inner, chance)
    agree(message(1, packed(GZIP, 1)(content), offset=len(found), attributes=GZIP))


@given(st.binary(max_size=100))
def test_the_two_agree_on_anything(data: bytes) -> None:
    agree(data)
    agree(data[:16].ljust(16, b"\0") + b"\2" + data[16:])


def test_the_two_agree_on_every_cut() -> None:
    good = batch(record(b"x" * 200, b"k", headers=[("h", b"1")])) + message(1, b"v", b"k") + message(0, None)
    for size in range(len(good)):
        agree(good[:size])


@pytest.mark.parametrize(
    "wrong",
    [
        zigzag(-1) * 2,
        b"\xff\xff\xff\xff\x7f",  # -2**31
        b"\xff\xff\xff\xff\xff\x01",  # six bytes
        b"\x80\x00",  # 0, in two bytes
        zigzag(2**31 - 1),
        zigzag(100_001),
    ],
)
def test_the_two_agree_on_odd_varints(wrong: bytes) -> None:
    """In the place of each field of a record, and of each length."""
    parts = [zigzag(3), zigzag(1), sized(b"key"), sized(b"value"), zigzag(1), sized(b"h"), sized(None)]
    for place in range(len(parts)):
        body = i8(0) + b"".join(wrong if at == place else part for at, part in enumerate(parts))
        one = zigzag(len(body)) + body
        agree(batch(one))
        agree(batch(record(b"before"), one, record(b"after")))
    agree(batch(wrong + b"rest"))


def test_neighbours_in_one_field_are_not_read_into() -> None:
    """A record that runs over the end of its batch could go on in the next one."""
    for lost in range(1, 9):
        body = record(b"value", b"key")
        agree(batch(body[:-lost], count=1) + batch(body) + bytes(40))


# JSON text


def shown(*payloads: bytes | None) -> list[Any]:
    """What the compiled writer makes of values."""
    data = batch(*(record(one) for one in payloads))
    text, _ = fast.records_json(
        data, left=1 << 40, most=0, allow_partial=False, quoted=False, decompress=None, other=None
    )
    return [one["value"] for one in json.decode(text)[0]["records"]]


def by_rule(data: bytes) -> Any:
    """DESIGN 5: a string when it is UTF-8 without control characters but tab, CR, LF; else base64."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if any((char < " " and char not in "\t\r\n") or "\x7f" <= char <= "\x9f" for char in text):
        return {"base64": b64encode(data).decode()}
    return text


@pytest.mark.parametrize("before", [0, 1, 6, 7, 8, 13])
def test_every_pair_of_bytes_at_every_place_of_a_word(before: int) -> None:
    values = [b"." * before + bytes((a, b)) + b"." * 9 for a in range(256) for b in range(0, 256, 5)]
    assert shown(*values) == [by_rule(value) for value in values]


def test_the_borders_of_utf_8() -> None:
    edges = [0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF]
    leads = [0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF]
    values = [bytes((lead, a, b, c)) for lead in leads for a in edges for b in edges for c in edges]
    values += [value[:size] for value in values for size in (1, 2, 3)]
    assert shown(*values) == [by_rule(value) for value in values]


@settings(max_examples=200)
@given(st.lists(TEXT.map(str.encode) | st.binary(max_size=20), max_size=5))
def test_keys_and_values_follow_the_rule(payloads: list[bytes]) -> None:
    assert shown(*payloads) == [by_rule(payload) for payload in payloads]


def test_long_values() -> None:
    chance = random.Random(1)
    for alphabet in ("a", '"\\', "a\n", "é", 'a\u2028😀"', "\ud7ff\ue000"):
        for size in (4000, 4096, 70_001):
            text = "".join(chance.choices(alphabet, k=size)).encode()
            assert shown(text, text + b"\0") == [by_rule(text), by_rule(text + b"\0")]


@pytest.mark.parametrize("number", [0, 1, -1, 9, 10, 99, 100, 101, 2**31, 10**18, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("quoted", [False, True])
def test_numbers(number: int, quoted: bool) -> None:
    data = batch(base_offset=number, base_timestamp=number, producer=(number, -1, -1))
    (entry,) = json.decode(as_json(data, quoted=quoted)[0])
    wanted = str(number) if quoted else number
    assert [entry[key] for key in ("baseOffset", "baseTimestamp", "producerId")] == [wanted] * 3


# What the compiled writer leaves to the other one


def asked_for(data: bytes, **options: Any) -> list[int]:
    """Numbers of the entries that the compiled writer does not do itself."""
    asked: list[int] = []

    def other(number: int, _at: int, _end: int, left: int) -> tuple[bytes, int]:
        asked.append(number)
        return b"{}", left

    values: dict[str, Any] = {"left": MIB, "most": MIB, "allow_partial": True, "quoted": False, **options}
    fast.records_json(data, decompress=compression.decompress, other=other, **values)
    return asked


def test_entries_that_are_in_order_are_not_asked_about() -> None:
    """Without this, a compiled path that always gives up would pass all that is above."""
    one = record(b"value", b"key", headers=[("name", None), ("", b"\xff")])
    inner = message(1, b"a", offset=0) + message(1, b"b", offset=1)
    old = message(0, b"a", offset=4) + message(0, b"b", offset=5)
    data = b"".join(
        [batch(one, one), batch()]
        + [batch(one, attributes=codec | APPEND, compress=packed(codec)) for codec in range(1, 5)]
        + [message(1, packed(codec, 1)(inner), offset=9, attributes=codec) for codec in range(1, 4)]
        + [message(0, packed(codec, 0)(old), offset=5, attributes=codec) for codec in range(1, 4)]
        + [message(0, b"v", b"k"), message(1, None, None, attributes=APPEND)]
    )
    assert asked_for(data) == []
    assert asked_for(data + data[:50]) == []
    assert fast.summary_json(data, False, False) is not None
    agree(data)


def test_the_odd_one_is_asked_about_and_no_other() -> None:
    good, control = batch(record(b"v")), batch(record(b"\0\0\0\0\0\0", b"\0\0\0\1"), attributes=CONTROL)
    wrong = good[:-2] + b"!" + good[-1:]
    surrogate = batch(record(b"v", headers=[(b"\xff", b"")]))
    for odd in (control, wrong, surrogate, batch(record(b"v"), count=2), batch(attributes=5, count=1)):
        assert asked_for(good + odd + good) == [1]
        agree(good + odd + good)


def test_a_budget_that_runs_out() -> None:
    data = batch(*[record(b"v" * 50)] * 10) * 3
    whole = as_json(data)[0]
    spent = [as_json(data, left=left) for left in range(0, len(whole), 37)]
    with python_only():
        assert [as_json(data, left=left) for left in range(0, len(whole), 37)] == spent


# Bounds


def test_bombs_are_refused_as_before() -> None:
    bomb = batch(attributes=GZIP, count=1, compress=lambda _: gzip.compress(bytes(8 * MIB)))
    tracemalloc.start()
    try:
        _, left, faults, _ = as_json(bomb, most=MIB)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()
    assert left == MIB
    assert [str(fault.reason) for fault in faults] == ["decompression_limit"]
    agree(bomb)


def test_records_of_headers_are_given_a_few_at_a_time() -> None:
    """Two bytes of a header become hundreds of a dict."""
    many = batch(*[record(b"", headers=[("", None)] * 20_000)] * 20)
    (entry,) = Scan(many)
    assert isinstance(entry, Entry)
    tracemalloc.start()
    try:
        assert sum(len(one["headers"]) for one in entry.records()) == 400_000
        assert tracemalloc.get_traced_memory()[1] < 24 * MIB
    finally:
        tracemalloc.stop()


def test_claims_cost_nothing() -> None:
    many = batch(count=2**31 - 1) + batch(zigzag(2**31 - 1), i64(0), i32(0))
    tracemalloc.start()
    try:
        assert fast.records(many, 61, len(many), 2**62, 0, 0, None)[0] == []
        as_json(many, left=1 << 60)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


def test_positions_outside_of_the_bytes() -> None:
    data = batch(record(b"v"))
    size = len(data)
    for at, end in ((-1, size), (size + 1, size + 1), (61, size + 1), (61, 60), (-(2**62), 2**62)):
        assert fast.records(data, at, end, 9, 0, 0, None) == ([], at)
    for at in (-1, size + 1, 2**62):
        assert fast.messages(data, at, 1, 0, None) == ([], at)
    assert fast.messages(data, 0, 2, 0, None) == ([], 0)


# Checksums


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 63, 1535, 1536, 1537, 3072, 10_007])
def test_checksums(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert fast.crc32(data) == crc32(data)
    assert fast.crc32c(data) == calc_crc32c(data)
    assert fast.crc32c(memoryview(data)[size // 2 :]) == calc_crc32c(data[size // 2 :])
    assert fast.crc32c_by_table(data) == calc_crc32c(data)
