"""Other names in frames: what they are, that none of the old is left, and that the rest is as it was."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from ipaddress import ip_address, ip_network
from typing import Any

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from passing_builders import answered, asked

from kwsniff import wire
from kwsniff.model import Decoded, Frame, Protocol
from kwsniff.output.anonymise import Anonymiser, Unreadable
from kwsniff.output.pseudonyms import Pseudonyms
from kwsniff.wire.records import encode_records
from kwsniff.wire.schema import Field, Message

NAMES = Pseudonyms(b"k")
METADATA, PRODUCE, FETCH, FIND_COORDINATOR, JOIN_GROUP, SASL_HANDSHAKE, SASL = 3, 0, 1, 10, 11, 17, 36


def named(kind: str, text: str) -> str:
    """The pseudonym, calculated here."""
    key = blake2b(b"k", person=b"kwsniff").digest()
    said = kind.encode() + bytes(1) + text.encode()
    return f"{kind}-{blake2b(said, digest_size=8, key=key).hexdigest()}"


def request(frame: Frame, names: Pseudonyms = NAMES) -> dict[str, Any]:
    return wire.decode_request(Anonymiser(names).anonymised(frame))[1]


def response(frame: Frame, to: Frame) -> dict[str, Any]:
    raw = Anonymiser(NAMES).anonymised(frame, to)
    return wire.decode_response(raw, frame.api, frame.version or 0)[1]


def record(key: bytes | None, value: bytes | None, **more: Any) -> dict[str, Any]:
    return {"offset": 0, "timestamp": 1_700_000_000_000, "key": key, "value": value, "headers": [], **more}


def produce(data: bytes) -> Frame:
    partition = {"index": 0, "records": data}
    return asked(PRODUCE, 9, {"acks": 1, "topicData": [{"name": "orders", "partitionData": [partition]}]})


def records_of(frame: Frame) -> bytes:
    data: bytes = request(frame)["topicData"][0]["partitionData"][0]["records"]
    return data


# ---- pseudonyms


def test_names_are_a_keyed_hash_of_kind_and_text() -> None:
    assert NAMES.name("topic", "orders") == named("topic", "orders")
    assert NAMES.name("topic", "orders") == Pseudonyms(b"k").name("topic", "orders")
    assert NAMES.name("topic", "orders") != Pseudonyms(b"l").name("topic", "orders")
    assert NAMES.name("group", "orders").partition("-")[2] != NAMES.name("topic", "orders").partition("-")[2]
    assert NAMES.name("topic", "") == ""


def test_a_key_may_be_longer_than_the_hash_takes() -> None:
    assert Pseudonyms(bytes(1000)).name("topic", "a") != Pseudonyms(bytes(1001)).name("topic", "a")


@given(st.binary(max_size=200))
def test_content_keeps_its_length(data: bytes) -> None:
    new = NAMES.content("value", data)
    assert len(new) == len(data)
    assert new == Pseudonyms(b"k").content("value", data)
    assert len(data) < 8 or new != data


RANGES = [*map(ip_network, ("10.0.0.0/8", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))]


@given(st.sets(st.ip_addresses(v=4), min_size=2, max_size=20))
def test_two_ipv4_addresses_stay_two_and_in_their_range(addresses: set[Any]) -> None:
    new = {address: ip_address(NAMES.host(str(address))) for address in addresses}
    assert len(set(new.values())) == len(addresses)
    for old, other in new.items():
        assert [old in network for network in RANGES] == [other in network for network in RANGES]
        assert old.is_multicast == other.is_multicast


def test_a_whole_range_is_mapped_onto_itself() -> None:
    every = {f"192.168.{a}.{b}" for a in range(256) for b in range(256)}
    assert {NAMES.host(address) for address in every} == every


@given(st.ip_addresses(v=6))
def test_ipv6_addresses_become_local_ones(address: Any) -> None:
    new = ip_address(NAMES.host(str(address)))
    if address.ipv4_mapped is not None:
        assert str(new.ipv4_mapped) == NAMES.host(str(address.ipv4_mapped))  # type: ignore[union-attr]
    elif int(address):
        assert new in ip_network("fd00::/8")


def test_hosts_are_names_or_addresses() -> None:
    assert NAMES.host("broker-1.example.com") == named("host", "broker-1.example.com")
    assert NAMES.host("/10.1.2.3") == "/" + NAMES.host("10.1.2.3")  # as Java's InetAddress is written
    assert (NAMES.host("*"), NAMES.host(""), NAMES.host("0.0.0.0")) == ("*", "", "0.0.0.0")


# ---- nothing of the old is left, whatever the message


def leaf(field: Field, secret: Iterator[str]) -> Any:
    if field.type == "string":
        return next(secret)
    if field.type == "bytes":
        return next(secret).encode()
    if field.type == "uuid":
        return "U2VjcmV0U2VjcmV0U2VjcQ"
    if field.type == "records":
        text = next(secret).encode()
        headers = [{"key": next(secret), "value": text}]
        return encode_records(
            [{"codec": codec, "records": [record(text, text, headers=headers)]} for codec in ("none", "gzip")]
        )
    return False if field.type == "bool" else 0.0 if field.type == "float64" else 2


def filled(fields: Sequence[Field], version: int, secret: Iterator[str]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for field in fields:
        if field.versions.covers(version):
            value = filled(field.fields, version, secret) if field.is_struct else leaf(field, secret)
            body[field.key] = [value] if field.array else value
    return body


def secrets() -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield f"Secret{number}"


def every_frame() -> Iterator[tuple[Message, int]]:
    for message in wire.messages():
        if message.type in ("request", "response") and not message.name.startswith("Envelope"):
            low, high = message.valid_versions
            # ControlledShutdown v0 has another header, and no text in its body.
            low = 1 if message.name == "ControlledShutdownRequest" else low
            yield from ((wire.message(message.name), version) for version in range(low, high + 1))


KAFKAS_OWN = {
    "clientSoftwareName", "clientSoftwareVersion", "entityType", "feature", "groupState", "groupType",
    "mechanism", "mechanisms", "ownerPrincipalType", "principalType", "requestedMetrics", "stateFilters",
    "statesFilter", "tokenRequesterPrincipalType", "transactionState", "typesFilter", "unknownStateFilters",
}  # fmt: skip


def left(value: Any, key: str = "") -> Iterator[str]:
    """The fields that still have something of a secret."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from left(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from left(item, key)
    elif "Secret" in str(value) or "U2VjcmV0" in str(value):
        yield key


@pytest.mark.parametrize("side", ["request", "response"])
def test_no_text_and_no_bytes_of_any_message_are_left(side: str) -> None:
    seen = 0
    for message, version in every_frame():
        if message.type != side:
            continue
        body = filled(message.fields, version, secrets())
        to = asked(message.api_key or 0, version, {}) if side == "response" else None
        make = asked if side == "request" else answered
        frame = make(message.api_key or 0, version, body)
        raw = Anonymiser(NAMES).anonymised(frame, to)
        shown = (
            wire.decode_request(raw)[1]
            if side == "request"
            else wire.decode_response(raw, message.api_key or 0, version)[1]
        )
        for place in _records(shown):
            shown = {**shown, f"unpacked {len(shown)}": wire.decode_records(place)}
        features = {"name"} if message.name in FEATURES else set()
        assert set(left(shown)) <= KAFKAS_OWN | features, (message.name, version)
        seen += 1
    assert seen > 300


FEATURES = {"ApiVersionsResponse", "BrokerRegistrationRequest", "ControllerRegistrationRequest"}


def _records(value: Any, key: str = "") -> Iterator[bytes]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _records(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _records(item, key)
    elif key == "records" and value:
        yield value


# ---- what the names are


def test_topics_hosts_and_what_stays() -> None:
    to = asked(METADATA, 12, {"topics": [{"name": "orders"}, {"name": "__consumer_offsets"}]})
    assert [topic["name"] for topic in request(to)["topics"]] == [
        named("topic", "orders"),
        "__consumer_offsets",
    ]
    broker = {"nodeId": 5, "host": "10.0.0.7", "port": 9092, "rack": "east"}
    topic = {"errorCode": 3, "name": "orders", "topicId": "A" * 22, "partitions": [{"leaderId": 5}]}
    body = response(answered(METADATA, 12, {"brokers": [broker], "clusterId": "c", "topics": [topic]}), to)
    assert body["brokers"] == [
        {**broker, "host": NAMES.host("10.0.0.7"), "rack": named("rack", "east")}  # the port stays
    ]
    assert body["clusterId"] == named("cluster", "c")
    assert body["topics"][0]["topicId"] == "A" * 22  # no id
    assert (body["topics"][0]["errorCode"], body["topics"][0]["partitions"][0]["leaderId"]) == (3, 5)


def test_the_client_id_of_the_header() -> None:
    frame = asked(METADATA, 12, {"topics": None})
    old, new = wire.decode_request(frame.raw)[0], wire.decode_request(Anonymiser(NAMES).anonymised(frame))[0]
    assert old["clientId"]
    assert new == {**old, "clientId": named("client", old["clientId"])}


@pytest.mark.parametrize(("key_type", "kind"), [(0, "group"), (1, "transaction")])
def test_the_key_of_a_coordinator_is_a_group_or_a_transaction(key_type: int, kind: str) -> None:
    to = asked(FIND_COORDINATOR, 4, {"keyType": key_type, "coordinatorKeys": ["pay"]})
    assert request(to)["coordinatorKeys"] == [named(kind, "pay")]
    found = {"coordinators": [{"key": "pay", "nodeId": 1, "host": "b", "port": 9092}]}
    assert response(answered(FIND_COORDINATOR, 4, found), to)["coordinators"][0]["key"] == named(kind, "pay")


def test_topics_in_the_subscription_of_a_member() -> None:
    data = struct.pack(">hih", 0, 1, 6) + b"orders" + struct.pack(">i", 3) + b"abc"
    protocols = [{"name": "range", "metadata": data}]
    frame = asked(JOIN_GROUP, 5, {"groupId": "g", "protocolType": "consumer", "protocols": protocols})
    body = request(frame)
    metadata = body["protocols"][0]["metadata"]
    topic = named("topic", "orders").encode()
    assert metadata[:-3] == struct.pack(">hih", 0, 1, len(topic)) + topic + struct.pack(">i", 3)
    assert metadata[-3:] != b"abc"
    assert (body["groupId"], body["protocolType"]) == (named("group", "g"), "consumer")
    assert body["protocols"][0]["name"] == "range"


def test_plain_and_scram_tell_another_user() -> None:
    user = named("user", "alice").encode()
    for mechanism, token, wanted in (
        ("PLAIN", b"\0alice\0hunter2", b"\0" + user + b"\0xxxxxxx"),
        ("SCRAM-SHA-256", b"n,,n=alice,r=abc", b"n,,n=" + user + b",r=xxx"),
        ("GSSAPI", b"alice@EXAMPLE", b"x" * 13),
    ):
        anonymiser = Anonymiser(NAMES)
        anonymiser.anonymised(asked(SASL_HANDSHAKE, 1, {"mechanism": mechanism}))
        raw = anonymiser.anonymised(asked(SASL, 1, {"authBytes": token}))
        assert wire.decode_request(raw)[1]["authBytes"] == wanted


# ---- records


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_records_keep_codec_lengths_offsets_and_times(magic: int, codec: str) -> None:
    keys = [b"key-one", None, b"key-one", b""]
    stamp = None if magic == 0 else 1_700_000_000_000
    said = [
        {**record(key, b"value" * n), "offset": n, "timestamp": stamp} for n, key in enumerate(keys, start=1)
    ]
    batches = [{"magic": magic, "codec": codec, "records": said}]
    data = encode_records(batches)
    old = [one for batch in wire.decode_records(data) for one in batch["records"]]
    found = wire.decode_records(records_of(produce(data)))
    new = [one for batch in found for one in batch["records"]]
    assert {batch["codec"] for batch in found} == {codec}
    assert all(batch["crcValid"] for batch in found)
    assert [(r["offset"], r["timestamp"]) for r in new] == [(r["offset"], r["timestamp"]) for r in old]
    assert [r["key"] and len(r["key"]) for r in new] == [7, None, 7, b""]
    assert [len(r["value"]) for r in new] == [5, 10, 15, 20]
    assert new[0]["key"] == new[2]["key"] != b"key-one"


def test_checksums_are_right_and_wrong_ones_stay_wrong() -> None:
    data = encode_records([{"records": [record(b"k" * 8, b"v" * 8)]}] * 2)
    half = len(data) // 2
    data = data[:17] + bytes(byte ^ 1 for byte in data[17:21]) + data[21:]
    new = records_of(produce(data))
    sums = [
        google_crc32c.value(new[at + 21 : at + half]) == struct.unpack_from(">I", new, at + 17)[0]
        for at in (0, half)
    ]
    assert sums == [False, True]


def test_the_end_of_a_transaction_stays_but_not_what_claims_to_be_one() -> None:
    commit, claimed = record(b"\0\0\0\1", b"\0\0" + bytes(4)), record(b"customer", b"secret")
    data = encode_records([{"isControl": True, "records": [commit, claimed]}])
    new = wire.decode_records(records_of(produce(data)))[0]["records"]
    assert (new[0]["key"], new[0]["value"]) == (commit["key"], commit["value"])
    assert (new[1]["key"], new[1]["value"]) != (claimed["key"], claimed["value"])
    assert b"customer" not in new[1]["key"]


# ---- what cannot be read through


def test_what_cannot_be_decoded_is_refused() -> None:
    unknown = replace(asked(METADATA, 12, {"topics": None}))
    unknown.__dict__["decoded"] = Decoded(None)
    torn = encode_records([{"codec": "gzip", "records": [record(b"k", b"v")]}])
    corrupt = produce(torn[:61] + bytes(len(torn) - 61))
    old = replace(asked(METADATA, 12, {"topics": None}), protocol=Protocol.KAFKA07)
    envelope = asked(58, 0, {"requestData": b"orders", "clientHostAddress": b"1234"})
    for frame in (unknown, corrupt, old, envelope):
        with pytest.raises(Unreadable):
            Anonymiser(NAMES).anonymised(frame)


def test_tags_that_nobody_knows_are_filler() -> None:
    frame = asked(METADATA, 12, {"topics": [], "_tags": {77: b"orders"}})
    assert request(frame)["_tags"] == {77: b"xxxxxx"}
