"""Kafka 0.7: the grammar of its requests, answers and message sets, and how it is told from 0.8 and later."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from struct import pack
from typing import Any
from zlib import crc32

import pytest
import snappy
from hypothesis import given, settings
from hypothesis import strategies as st
from wirebytes import blob, i8, i16, i32, i64, text

from kwsniff import wire
from kwsniff.errors import DecodeError, EncodeError, Reason
from kwsniff.wire import kafka07
from kwsniff.wire.compression import compress
from kwsniff.wire.kafka07 import decode_message_set, decode_request, decode_response, looks_like_request

Body = dict[str, Any]

PRODUCE, FETCH, MULTIFETCH, MULTIPRODUCE, OFFSETS = range(5)
GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "vectors.jsonl.gz"


def message(payload: bytes, magic: int = 1, codec: int = 0) -> bytes:
    """size, magic, attributes (magic 1), CRC-32 of the payload alone, payload."""
    return blob(i8(magic) + (i8(codec) if magic else b"") + pack(">I", crc32(payload)) + payload)


def produce(topic: str, partition: int, message_set: bytes) -> bytes:
    return text(topic) + i32(partition) + blob(message_set)


def fetch(topic: str, partition: int, offset: int, size: int) -> bytes:
    return text(topic) + i32(partition) + i64(offset) + i32(size)


HELLO = message(b"hello")
"""Ten bytes in front of the payload: 15 in a log."""

REQUESTS: dict[str, tuple[bytes, int, Body]] = {
    "produce": (
        i16(0) + produce("orders", -1, HELLO),
        PRODUCE,
        {"topic": "orders", "partition": -1, "messageSet": HELLO},
    ),
    "fetch": (
        i16(1) + fetch("orders", 3, 2**40, 300_000),
        FETCH,
        {"topic": "orders", "partition": 3, "offset": 2**40, "maxSize": 300_000},
    ),
    "multifetch": (
        i16(2) + i16(2) + fetch("a", 0, 0, 100) + fetch("b.c_d-e", 1, 15, 200),
        MULTIFETCH,
        {
            "fetches": [
                {"topic": "a", "partition": 0, "offset": 0, "maxSize": 100},
                {"topic": "b.c_d-e", "partition": 1, "offset": 15, "maxSize": 200},
            ]
        },
    ),
    "multiproduce": (
        i16(3) + i16(2) + produce("a", 0, HELLO + HELLO) + produce("b", 1, message(b"old", magic=0)),
        MULTIPRODUCE,
        {
            "produces": [
                {"topic": "a", "partition": 0, "messageSet": HELLO + HELLO},
                {"topic": "b", "partition": 1, "messageSet": message(b"old", magic=0)},
            ]
        },
    ),
    "offsets": (
        i16(4) + text("orders") + i32(0) + i64(-2) + i32(5),
        OFFSETS,
        {"topic": "orders", "partition": 0, "time": -2, "maxNumOffsets": 5},
    ),
}


def fault(frame: bytes) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        decode_request(frame)
    return caught.value


@pytest.mark.parametrize(("frame", "type_", "body"), REQUESTS.values(), ids=REQUESTS)
def test_a_request(frame: bytes, type_: int, body: Body) -> None:
    assert decode_request(frame) == (type_, body)
    assert kafka07.encode_request(type_, body) == frame
    assert looks_like_request(frame)
    assert kafka07.expects_response(type_) == (type_ in (FETCH, MULTIFETCH, OFFSETS))


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_cut_at_any_byte_or_followed_by_one(name: str) -> None:
    frame, _, body = REQUESTS[name]
    for end in range(len(frame)):
        wrong = fault(frame[:end])
        assert wrong.reason in (Reason.BODY_TRUNCATED, Reason.LENGTH_INVALID, Reason.COUNT_INVALID)
        assert wrong.offset <= end
        assert not looks_like_request(frame[:end])
    wrong = fault(frame + b"\0")
    assert (wrong.reason, wrong.offset) == (Reason.TRAILING_BYTES, len(frame))
    assert wrong.partial == body
    assert not looks_like_request(frame + b"\0")


def test_errors_name_the_field() -> None:
    frame = i16(3) + i16(2) + produce("a", 0, HELLO) + text("b") + i32(0) + i32(99) + HELLO
    wrong = fault(frame)
    assert (wrong.reason, wrong.path) == (Reason.LENGTH_INVALID, "produces[1].messageSet")
    assert wrong.offset == len(frame) - len(HELLO)
    wrong = fault(i16(2) + i16(-1))
    assert (wrong.reason, wrong.path, wrong.offset) == (Reason.COUNT_INVALID, "fetches", 2)
    assert fault(i16(5)).reason == Reason.UNKNOWN_API


def test_a_null_topic_is_read_but_no_sign_of_kafka_07() -> None:
    frame = i16(1) + text(None) + i32(0) + i64(0) + i32(0)
    assert decode_request(frame)[1]["topic"] is None
    assert kafka07.encode_request(*decode_request(frame)) == frame
    assert not looks_like_request(frame)


IMPLAUSIBLE = {
    "an empty topic": i16(1) + fetch("", 0, 0, 100),
    "a topic with a control character": i16(1) + fetch("a\x00b", 0, 0, 100),
    "a topic that is no ASCII": i16(1) + fetch("ü", 0, 0, 100),
    "a negative partition": i16(1) + fetch("t", -1, 0, 100),
    "a negative offset": i16(1) + fetch("t", 0, -1, 100),
    "a size of 0": i16(1) + fetch("t", 0, 0, 0),
    "an empty set": i16(0) + produce("t", 0, b""),
    "a time of -3": i16(4) + text("t") + i32(0) + i64(-3) + i32(1),
    "a partition of -2": i16(0) + produce("t", -2, HELLO),
    "no entries": i16(2) + i16(0),
    "a wrong checksum": i16(0) + produce("t", 0, HELLO[:-1] + b"?"),
    "an unknown magic": i16(0) + produce("t", 0, blob(i8(2) + HELLO[5:])),
    "half a message": i16(0) + produce("t", 0, HELLO[:-1]),
    "a set of 0.8": i16(0) + produce("t", 0, i64(0) + blob(bytes(14))),
}


@pytest.mark.parametrize("frame", IMPLAUSIBLE.values(), ids=IMPLAUSIBLE)
def test_what_does_not_look_like_kafka_07(frame: bytes) -> None:
    assert not looks_like_request(frame)


@cache
def later_requests() -> list[tuple[bytes, bytes, bytes]]:
    """API key and version, the end of the header, and the body, of every golden request of later Kafka."""
    found = []
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as lines:
        for line in lines:
            vector = json.loads(line)
            if vector["message"].endswith("Request"):
                api = wire.message(vector["message"]).api_key or 0
                end = b"\0" if wire.header_versions(api, vector["version"])[0] == 2 else b""
                found.append((i16(api) + i16(vector["version"]), end, bytes.fromhex(vector["hex"])))
    return found


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "a" * 18])
@pytest.mark.parametrize("correlation_id", [0, 1, -1, 2**31 - 1, 0x61626364, 0x00016162, 0x00036162])
def test_no_request_of_later_kafka_passes(correlation_id: int, client_id: str | None) -> None:
    for start, end, body in later_requests():
        assert not looks_like_request(start + i32(correlation_id) + text(client_id) + end + body)


PRINTABLE = st.integers(33, 126)


@settings(max_examples=500, deadline=None)
@given(
    st.integers(0, 2**31),
    st.lists(PRINTABLE, min_size=4, max_size=4)
    | st.tuples(st.just(0), st.integers(1, 4), PRINTABLE, PRINTABLE),
    st.none() | st.text(max_size=20),
)
def test_not_even_with_a_correlation_id_that_is_text(which: int, number: Any, client_id: str | None) -> None:
    start, end, body = later_requests()[which % len(later_requests())]
    assert not looks_like_request(start + bytes(number) + text(client_id) + end + body)


LOOKALIKES = {
    "Metadata 1 of no topics": i16(3) + i16(1) + i32(0x00016162) + text("c") + i32(0),
    "ListOffsets 1 of no topics": i16(2) + i16(1) + i32(0x00016162) + text("rdkaf") + i32(-1) + i32(0),
}
"""Requests that follow the grammar of 0.7 to the last byte: a set of no messages, a fetch of no bytes."""


@pytest.mark.parametrize("frame", LOOKALIKES.values(), ids=LOOKALIKES)
def test_lookalikes(frame: bytes) -> None:
    decode_request(frame)
    assert not looks_like_request(frame)


def test_a_fetch_response() -> None:
    frame = i16(0) + HELLO + HELLO[:7]
    body = {"errorCode": 0, "messageSet": HELLO + HELLO[:7]}
    assert decode_response(frame, FETCH) == body
    assert kafka07.encode_response(FETCH, body) == frame
    assert decode_response(i16(1), FETCH) == {"errorCode": 1, "messageSet": b""}


def test_a_multifetch_response_has_as_many_sets_as_were_asked_for() -> None:
    _, _, request = REQUESTS["multifetch"]
    frame = i16(0) + i32(2 + len(HELLO)) + i16(0) + HELLO + i32(2) + i16(-1)
    body = {
        "errorCode": 0,
        "responses": [{"errorCode": 0, "messageSet": HELLO}, {"errorCode": -1, "messageSet": b""}],
    }
    assert decode_response(frame, MULTIFETCH, request) == body
    assert decode_response(frame, MULTIFETCH) == body
    assert kafka07.encode_response(MULTIFETCH, body) == frame
    with pytest.raises(DecodeError) as caught:
        decode_response(frame + i32(2) + i16(0), MULTIFETCH, request)
    assert (caught.value.reason, caught.value.partial) == (Reason.TRAILING_BYTES, body)
    with pytest.raises(DecodeError) as caught:
        decode_response(frame[:-6], MULTIFETCH, request)
    assert (caught.value.reason, caught.value.path) == (Reason.BODY_TRUNCATED, "responses[1]")
    assert caught.value.partial == {"errorCode": 0, "responses": body["responses"][:1]}
    with pytest.raises(DecodeError) as caught:
        decode_response(i16(0) + i32(1) + i16(0), MULTIFETCH)
    assert caught.value.reason == Reason.LENGTH_INVALID


def test_an_offsets_response() -> None:
    frame = i16(0) + i32(2) + i64(1000) + i64(0)
    body = {"errorCode": 0, "offsets": [1000, 0]}
    assert decode_response(frame, OFFSETS) == body
    assert kafka07.encode_response(OFFSETS, body) == frame
    assert decode_response(i16(3), OFFSETS) == {"errorCode": 3, "offsets": []}
    for end in range(len(frame)):
        with pytest.raises(DecodeError):
            decode_response(frame[:end], OFFSETS)
    with pytest.raises(DecodeError) as caught:
        decode_response(i16(0) + i32(2**31 - 1) + i64(0), OFFSETS)
    assert caught.value.reason == Reason.COUNT_INVALID


@pytest.mark.parametrize("type_", [PRODUCE, MULTIPRODUCE, 9])
def test_nothing_answers_a_produce_request(type_: int) -> None:
    with pytest.raises(DecodeError):
        decode_response(i16(0), type_)
    with pytest.raises(EncodeError):
        kafka07.encode_response(type_, {"errorCode": 0})


def test_offsets_are_positions_in_the_log() -> None:
    first, second = decode_message_set(HELLO + message(b"old", magic=0), 1000)
    assert first == {
        "baseOffset": 1000,
        "magic": 1,
        "codec": "none",
        "crcValid": True,
        "nextOffset": 1015,
        "messageSize": 11,
        "crc": crc32(b"hello"),
        "attributes": 0,
        "records": [{"offset": 1000, "timestamp": None, "key": None, "value": b"hello", "headers": []}],
    }
    assert (second["baseOffset"], second["nextOffset"], second["attributes"]) == (1015, 1027, None)
    assert second["records"][0]["value"] == b"old"


def test_a_produced_set_has_no_position_yet() -> None:
    (entry,) = decode_message_set(HELLO)
    assert (entry["baseOffset"], entry["nextOffset"], entry["records"][0]["offset"]) == (None, None, None)


def xerial(content: bytes) -> bytes:
    return b"\x82SNAPPY\x00" + i32(1) + i32(1) + blob(snappy.compress(content))


@pytest.mark.parametrize(("codec", "pack_"), [(1, gzip.compress), (2, xerial)], ids=["gzip", "snappy"])
def test_compressed_messages_share_the_position_of_their_wrapper(codec: int, pack_: Any) -> None:
    inside = HELLO + message(b"old", magic=0)
    data = message(pack_(inside), codec=codec)
    (entry,) = decode_message_set(HELLO + data, 100)[1:]
    assert (entry["codec"], entry["baseOffset"]) == (["gzip", "snappy"][codec - 1], 115)
    assert [(one["offset"], one["value"]) for one in entry["records"]] == [(115, b"hello"), (115, b"old")]
    assert looks_like_request(i16(0) + produce("t", 0, data))
    again = decode_message_set(kafka07.encode_message_set([entry]), 115)
    assert again[0]["records"] == entry["records"]


def test_sets_in_sets() -> None:
    data = HELLO
    for _ in range(4):
        data = message(gzip.compress(data), codec=1)
        assert decode_message_set(data, 0)[0]["records"][0]["value"] == b"hello"
    with pytest.raises(DecodeError) as caught:
        decode_message_set(message(gzip.compress(HELLO + data), codec=1))
    assert (caught.value.reason, caught.value.path) == (Reason.NESTING_LIMIT, "[0].records[1]")
    assert [one["value"] for one in caught.value.partial[0]["records"]] == [b"hello"]


FLAWED = {
    "lz4": (message(compress(3, HELLO), codec=3), Reason.DECOMPRESSION_FAILED, "records"),
    "garbage": (message(b"garbage", codec=1), Reason.DECOMPRESSION_FAILED, "records"),
    "a bomb": (message(gzip.compress(bytes(2000)), codec=1), Reason.DECOMPRESSION_LIMIT, "records"),
    "a cut set": (message(gzip.compress(HELLO + HELLO[:9]), codec=1), Reason.RECORDS_CORRUPT, "records[1]"),
    "zeros": (message(gzip.compress(HELLO + bytes(9)), codec=1), Reason.RECORDS_CORRUPT, "records[1]"),
}


@pytest.mark.parametrize(("flawed", "reason", "path"), FLAWED.values(), ids=FLAWED)
def test_a_flawed_message_does_not_hide_its_neighbours(flawed: bytes, reason: Reason, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_message_set(HELLO + flawed + HELLO, max_decompressed=1000)
    assert (caught.value.reason, caught.value.path) == (reason, f"[1].{path}")
    assert caught.value.offset == len(HELLO)
    found = [[one["value"] for one in entry["records"]] for entry in caught.value.partial]
    assert found == [[b"hello"], [b"hello"] if path.endswith("]") else [], [b"hello"]]


@pytest.mark.parametrize("size", [-1, 0, 4])
def test_a_size_that_cannot_be_ends_the_set(size: int) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_message_set(HELLO + i32(size) + HELLO)
    assert (caught.value.reason, caught.value.path) == (Reason.LENGTH_INVALID, "[1]")
    assert caught.value.offset == len(HELLO)
    assert len(caught.value.partial) == 1


def test_the_last_message_of_a_fetched_set_may_be_cut_at_any_byte() -> None:
    for end in range(len(HELLO)):
        scan = kafka07.Scan(HELLO + HELLO[:end])
        assert len(list(scan)) == 1
        assert scan.cut == end
        if end:
            with pytest.raises(DecodeError) as caught:
                decode_message_set(HELLO + HELLO[:end], allow_partial=False)
            assert (caught.value.reason, caught.value.path) == (Reason.BODY_TRUNCATED, "[1]")


def test_summaries() -> None:
    spoilt = HELLO[:-1] + b"?"
    data = HELLO + spoilt + message(b"old", magic=0) + HELLO[:3]
    summary, errors = kafka07.summarise_message_set(data, 50)
    assert errors == []
    assert summary == {
        "batches": 3,
        "records": 3,
        "codecs": ["none"],
        "magics": [1, 0],
        "baseOffset": 50,
        "lastOffset": 80,
        "crcErrors": 1,
    }
    summary, errors = kafka07.summarise_message_set(message(gzip.compress(HELLO), codec=1) + bytes(4))
    assert (summary["records"], summary["codecs"], summary["baseOffset"]) == (None, ["gzip"], None)
    assert [error.reason for error in errors] == [Reason.LENGTH_INVALID]


def test_where_the_sets_of_a_body_are() -> None:
    _, _, request = REQUESTS["multifetch"]
    response = {"errorCode": 0, "responses": [{"errorCode": 0, "messageSet": HELLO}] * 2}
    found = list(kafka07.record_fields(response, request))
    assert [(field.path, field.key, field.base_offset) for field in found] == [
        ("responses[0].messageSet", "messageSet", 0),
        ("responses[1].messageSet", "messageSet", 15),
    ]
    assert found[0].holder is response["responses"][0]
    single = {"errorCode": 0, "messageSet": HELLO}
    assert [field.base_offset for field in kafka07.record_fields(single, REQUESTS["fetch"][2])] == [2**40]
    assert [field.path for field in kafka07.record_fields(REQUESTS["multiproduce"][2])] == [
        "produces[0].messageSet",
        "produces[1].messageSet",
    ]
    assert list(kafka07.record_fields(REQUESTS["offsets"][2])) == []


def test_topics_of_requests() -> None:
    assert [kafka07.topics(body) for _, _, body in REQUESTS.values()] == [
        ["orders"],
        ["orders"],
        ["a", "b.c_d-e"],
        ["a", "b"],
        ["orders"],
    ]


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        (FETCH, {"topic": "t"}),
        (PRODUCE, {"topic": "t", "partition": 2**31, "messageSet": b""}),
        (PRODUCE, {"topic": 5, "partition": 0, "messageSet": b""}),
        (7, {}),
    ],
)
def test_what_cannot_be_written_is_an_encode_error(type_: int, body: Body) -> None:
    with pytest.raises(EncodeError):
        kafka07.encode_request(type_, body)


@pytest.mark.parametrize(
    "entry", [{"magic": 2}, {"codec": "lz4"}, {"magic": 0, "codec": "gzip"}, {"records": [{}]}]
)
def test_what_is_no_message_of_kafka_07_is_an_encode_error(entry: Body) -> None:
    with pytest.raises(EncodeError):
        kafka07.encode_message_set([{"records": [], **entry}])


NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="/"), min_size=1)
SETS = st.lists(st.tuples(st.binary(max_size=20), st.sampled_from([0, 1])), min_size=1, max_size=4).map(
    lambda messages: b"".join(message(payload, magic) for payload, magic in messages)
)
INT32, INT64, SIZE = st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), st.integers(1, 2**31 - 1)
PRODUCES = st.fixed_dictionaries({"topic": NAMES, "partition": INT32, "messageSet": SETS})
FETCHES = st.fixed_dictionaries({"topic": NAMES, "partition": INT32, "offset": INT64, "maxSize": SIZE})


@settings(deadline=None)
@given(
    st.one_of(
        st.tuples(st.just(PRODUCE), PRODUCES),
        st.tuples(st.just(FETCH), FETCHES),
        st.tuples(
            st.just(MULTIFETCH),
            st.fixed_dictionaries({"fetches": st.lists(FETCHES, min_size=1, max_size=4)}),
        ),
        st.tuples(
            st.just(MULTIPRODUCE),
            st.fixed_dictionaries({"produces": st.lists(PRODUCES, min_size=1, max_size=4)}),
        ),
    )
)
def test_every_request_is_read_again_and_recognised(request_: tuple[int, Body]) -> None:
    frame = kafka07.encode_request(*request_)
    assert decode_request(frame) == request_
    assert looks_like_request(frame)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 5))
def test_arbitrary_bytes(data: bytes, type_: int) -> None:
    for call in (
        lambda: decode_request(i16(type_) + data),
        lambda: decode_response(data, type_),
        lambda: decode_message_set(data, 7, max_decompressed=10_000),
    ):
        failed(call)
    looks_like_request(i16(type_) + data)
    kafka07.summarise_message_set(data)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([frame for frame, _, _ in REQUESTS.values()]), st.data())
def test_damaged_requests(frame: bytes, data: st.DataObject) -> None:
    damaged = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    looks_like_request(bytes(damaged))
    for field in [] if (found := failed(lambda: decode_request(bytes(damaged)))) is None else [found[1]]:
        for place in kafka07.record_fields(field):
            failed(lambda place=place: decode_message_set(place.holder[place.key], place.base_offset))


def failed(call: Any) -> Any:
    """The call's value; None for a DecodeError, the only exception there may be."""
    try:
        return call()
    except DecodeError:
        return None
