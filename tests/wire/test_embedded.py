"""Payloads inside of payloads: group protocols, Envelopes, control records, internal topics."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wirebytes import array, blob, compact, compact_array, i8, i16, i32, i64, tags, text, uvarint

from kwsniff import wire
from kwsniff.wire import connect, embedded, schema
from kwsniff.wire.embedded import expand, expand_record

Body = dict[str, Any]

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "vectors.jsonl.gz"
ZERO_UUID = "A" * 22


def golden(name: str) -> list[tuple[int, bytes, Body]]:
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as lines:
        vectors = [json.loads(line) for line in lines if f'"{name}"' in line]
    return [(one["version"], bytes.fromhex(one["hex"]), one["value"]) for one in vectors]


def raw(value: str | None) -> bytes | None:
    return None if value is None else b64decode(value)


def joining(metadata: bytes, protocol_type: str = "consumer", name: str = "range") -> Body:
    return {
        "groupId": "g",
        "protocolType": protocol_type,
        "protocols": [{"name": name, "metadata": metadata}],
    }


def metadata(body: Body) -> Any:
    return expand("JoinGroupRequest", 5, body)["protocols"][0]["metadata"]


def assignment(data: bytes, protocol_type: str | None = "consumer") -> Any:
    body = {"protocolType": protocol_type, "assignment": data}
    return expand("SyncGroupResponse", 5, body)["assignment"]


def test_subscriptions_that_other_libraries_wrote() -> None:
    vectors = golden("ConsumerProtocolSubscription")
    assert {version for version, _, _ in vectors} == {0, 1, 2, 3}
    for version, data, value in vectors:
        shown = {"version": version, **value, "userData": raw(value["userData"])}
        assert metadata(joining(i16(version) + data)) == shown


def test_assignments_that_other_libraries_wrote() -> None:
    vectors = golden("ConsumerProtocolAssignment")
    assert vectors
    for version, data, value in vectors:
        shown = {"version": version, **value, "userData": raw(value["userData"])}
        assert assignment(i16(version) + data) == shown


SUBSCRIPTION = i16(1) + array(text("orders")) + blob(None) + array(text("orders") + array(i32(0), i32(2)))
SUBSCRIBED = {
    "version": 1,
    "topics": ["orders"],
    "userData": None,
    "ownedPartitions": [{"topic": "orders", "partitions": [0, 2]}],
}
ASSIGNMENT = i16(0) + array(text("orders") + array(i32(1))) + blob(b"")
ASSIGNED = {
    "version": 0,
    "assignedPartitions": [{"topic": "orders", "partitions": [1]}],
    "userData": b"",
}


def test_every_message_of_a_group() -> None:
    request = joining(SUBSCRIPTION)
    assert metadata(request) == SUBSCRIBED
    assert request == joining(SUBSCRIPTION), "the body that was given has not changed"

    joined = {
        "protocolType": None,
        "protocolName": "range",
        "members": [{"metadata": SUBSCRIPTION}, {"metadata": b""}],
    }
    assert expand("JoinGroupResponse", 7, joined)["members"] == [{"metadata": SUBSCRIBED}, {"metadata": b""}]

    syncing = {"groupId": "g", "assignments": [{"memberId": "m", "assignment": ASSIGNMENT}]}
    assert expand("SyncGroupRequest", 3, syncing)["assignments"] == [
        {"memberId": "m", "assignment": ASSIGNED}
    ]
    assert assignment(ASSIGNMENT) == assignment(ASSIGNMENT, None) == ASSIGNED

    member = {"memberId": "m", "memberMetadata": SUBSCRIPTION, "memberAssignment": ASSIGNMENT}
    groups = [{"protocolType": kind, "members": [member]} for kind in ("consumer", "sr", "")]
    described = expand("DescribeGroupsResponse", 5, {"groups": groups})["groups"]
    assert described[0]["members"] == [
        {"memberId": "m", "memberMetadata": SUBSCRIBED, "memberAssignment": ASSIGNED}
    ]
    assert described[1:] == groups[1:], "other protocol types have other formats"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        i16(-1) + SUBSCRIPTION[2:],
        SUBSCRIPTION[:-1],
        SUBSCRIPTION + b"\0",
        i16(0) + SUBSCRIPTION[2:],
        i16(0) + array(text("t")) + i32(-2),
    ],
)
def test_what_would_not_be_written_as_it_is_stays_bytes(data: bytes) -> None:
    assert metadata(joining(data)) is data


def test_a_version_of_the_future_is_read_as_the_highest_known() -> None:
    data = array(text("t")) + blob(None) + array() + i32(5) + text(None)
    shown = metadata(joining(i16(9) + data))
    assert (shown["version"], shown["generationId"]) == (9, 5)
    newer = i16(9) + data + i32(0)
    assert metadata(joining(newer)) is newer


def test_the_user_data_of_streams() -> None:
    user_data = i32(2) + bytes(range(16)) + array(i32(0) + i32(1)) + array() + blob(b"host:80")
    data = i16(0) + array(text("t")) + blob(user_data)
    assert metadata(joining(data, name="stream"))["userData"] == {
        "version": 2,
        "processId": "AAECAwQFBgcICQoLDA0ODw",
        "prevTasks": [{"topicGroupId": 0, "partition": 1}],
        "standbyTasks": [],
        "userEndPoint": b"host:80",
    }
    assert metadata(joining(data, name="range"))["userData"] == user_data
    for broken in (b"\0", i32(99), user_data + b"\0"):
        data = i16(0) + array(text("t")) + blob(broken)
        assert metadata(joining(data, name="stream"))["userData"] == broken


def test_connect() -> None:
    worker = text("http://w:8083/") + i64(77)
    assert metadata(joining(i16(0) + worker, "connect")) == {
        "version": 0,
        "url": "http://w:8083/",
        "configOffset": 77,
    }
    tasks = array(text("sink") + array(i32(-1), i32(0)))
    given_ = i16(1) + i16(0) + text("leader") + text("url") + i64(9) + tasks + i32(-1) + i32(30)
    shown = {
        "version": 1,
        "error": 0,
        "leader": "leader",
        "leaderUrl": "url",
        "configOffset": 9,
        "assignment": [{"connector": "sink", "tasks": [-1, 0]}],
        "revoked": None,
        "delay": 30,
    }
    assert assignment(given_, "connect") == assignment(given_, None) == shown
    assert assignment(given_, "consumer") == given_
    assert metadata(joining(i16(1) + worker + blob(given_), "connect"))["allocation"] == shown
    assert metadata(joining(i16(2) + worker + blob(None), "connect"))["allocation"] is None
    eager = i16(0) + i16(1) + text("l") + text("u") + i64(9) + tasks
    assert assignment(eager, "connect")["assignment"] == shown["assignment"]
    with pytest.raises(KeyError):
        connect.message("SomethingElse")


def requested(api: int, version: int, body: bytes, flexible: bool) -> bytes:
    return i16(api) + i16(version) + i32(5) + text("client") + (tags() if flexible else b"") + body


def test_an_envelope() -> None:
    data = requested(18, 3, compact("lib") + compact("1") + tags(), True)
    principal = i16(0) + compact("User") + compact("alice") + i8(1) + tags()
    body = {"requestData": data, "requestPrincipal": principal, "clientHostAddress": b"\x7f\0\0\x01"}
    shown = expand("EnvelopeRequest", 0, body)
    assert shown == {
        "requestData": {
            "version": 3,
            "requestHeader": {
                "requestApiKey": 18,
                "requestApiVersion": 3,
                "correlationId": 5,
                "clientId": "client",
            },
            "request": {"clientSoftwareName": "lib", "clientSoftwareVersion": "1"},
        },
        "requestPrincipal": {"version": 0, "type": "User", "name": "alice", "tokenAuthenticated": True},
        "clientHostAddress": b"\x7f\0\0\x01",
    }
    answer = {"responseData": i32(5) + i16(0) + compact_array() + i32(0) + tags(), "errorCode": 0}
    assert expand("EnvelopeResponse", 0, answer) == answer, "what it answers is not known"
    opened = expand("EnvelopeResponse", 0, answer, request=body)["responseData"]
    assert (opened["version"], opened["responseHeader"]) == (3, {"correlationId": 5})
    assert opened["response"]["apiKeys"] == []


def test_payloads_inside_of_an_envelope_are_opened_too_but_no_envelope() -> None:
    joining_ = (
        text("g") + i32(9) + i32(9) + text("m") + text("consumer") + array(text("range") + blob(SUBSCRIPTION))
    )
    body = {"requestData": requested(11, 1, joining_, False)}
    shown = expand("EnvelopeRequest", 0, body)["requestData"]["request"]
    assert shown["protocols"][0]["metadata"] == SUBSCRIBED
    inner = compact(body["requestData"]) + compact(None) + compact(b"") + tags()
    nested = {"requestData": requested(58, 0, inner, True)}
    assert expand("EnvelopeRequest", 0, nested) == nested
    assert expand("EnvelopeResponse", 0, {"responseData": i32(1)}, request=nested) == {"responseData": i32(1)}


@pytest.mark.parametrize(
    "data", [b"\0", requested(999, 0, b"", False), requested(18, 0, b"?", False), i16(3) * 2]
)
def test_an_envelope_around_anything(data: bytes) -> None:
    body = {"requestData": data, "requestPrincipal": None}
    assert expand("EnvelopeRequest", 0, body) == body


def test_other_messages_are_left_alone() -> None:
    body = {"metrics": SUBSCRIPTION}
    assert expand("PushTelemetryRequest", 0, body) is body
    assert wire.expand("PushTelemetryRequest", 0, body) == body


CONTROL_RECORDS = {
    "abort": (0, i16(0) + i32(7), {"type": "EndTxnMarker", "version": 0, "coordinatorEpoch": 7}),
    "commit": (1, i16(0) + i32(7), {"type": "EndTxnMarker", "version": 0, "coordinatorEpoch": 7}),
    "leader change": (
        2,
        i16(0) + i32(3) + compact_array(i32(3) + tags()) + compact_array() + tags(),
        {
            "type": "LeaderChangeMessage",
            "version": 0,
            "leaderId": 3,
            "voters": [{"voterId": 3}],
            "grantingVoters": [],
        },
    ),
    "leader change of 2.8": (
        2,
        i32(3) + compact_array(i32(3) + tags()) + compact_array() + tags(),
        {
            "type": "LeaderChangeMessage",
            "leaderId": 3,
            "voters": [{"voterId": 3}],
            "grantingVoters": [],
            "_variant": "2.8.0-2.8.2",
        },
    ),
    "snapshot header": (
        3,
        i16(0) + i64(99) + tags(),
        {"type": "SnapshotHeaderRecord", "version": 0, "lastContainedLogTimestamp": 99},
    ),
    "snapshot footer": (4, i16(0) + tags(), {"type": "SnapshotFooterRecord", "version": 0}),
    "kraft version": (
        5,
        i16(0) + i16(1) + tags(),
        {"type": "KRaftVersionRecord", "version": 0, "kRaftVersion": 1},
    ),
    "voters": (
        6,
        i16(0)
        + compact_array(
            i32(1)
            + bytes(16)
            + compact_array(compact("CONTROLLER") + compact("h") + b"\xff\xff" + tags())
            + i16(0)
            + i16(1)
            + tags()
            + tags()
        )
        + tags(),
        {
            "type": "VotersRecord",
            "version": 0,
            "voters": [
                {
                    "voterId": 1,
                    "voterDirectoryId": ZERO_UUID,
                    "endpoints": [{"name": "CONTROLLER", "host": "h", "port": 65535}],
                    "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
                }
            ],
        },
    ),
}


@pytest.mark.parametrize(("kind", "value", "shown"), CONTROL_RECORDS.values(), ids=CONTROL_RECORDS)
def test_control_records(kind: int, value: bytes, shown: Body) -> None:
    key, opened = expand_record("any", i16(0) + i16(kind), value, True)
    assert (key, opened) == ({"type": embedded.CONTROL_TYPES[kind], "version": 0}, shown)
    damages = (value[:-1], b"") if "_variant" in shown else (value[:-1], value + b"\0", b"")
    for damaged in damages:  # the layout of 2.8 with a byte more is that of 2.7 with a tag
        assert expand_record(None, i16(0) + i16(kind), damaged, True)[1] == damaged


@pytest.mark.parametrize("key", [None, b"", i16(0), i16(0) + i16(7), i16(0) + i16(-1), i16(0) * 3])
def test_control_records_of_unknown_kinds(key: bytes | None) -> None:
    assert expand_record(None, key, b"value", True) == (key, b"value")


def test_a_commit_of_an_offset() -> None:
    key = text("group") + text("orders") + i32(3)
    named = {"version": 0, "group": "group", "topic": "orders", "partition": 3}
    value = i16(3) + i64(42) + i32(5) + text("note") + i64(1000)
    shown = {
        "type": "OffsetCommitValue",
        "version": 3,
        "offset": 42,
        "leaderEpoch": 5,
        "metadata": "note",
        "commitTimestamp": 1000,
    }
    topic = "__consumer_offsets"
    assert expand_record(topic, i16(1) + key, value, False) == ({"type": "OffsetCommitKey", **named}, shown)
    assert expand_record(topic, i16(0) + key, value, False) == (
        {"type": "LegacyOffsetCommitKey", **named},
        shown,
    )
    assert expand_record(topic, i16(1) + key, None, False)[1] is None, "a tombstone"
    assert expand_record("orders", i16(1) + key, value, False) == (i16(1) + key, value)
    assert expand_record(None, i16(1) + key, value, False) == (i16(1) + key, value)
    for damaged in (value[:-1], i16(99) + value[2:], b"\0", b""):
        assert expand_record(topic, i16(1) + key, damaged, False)[1] == damaged
    for unknown in (i16(99) + key, i16(1) + key + b"\0", b"\0", b"", None):
        assert expand_record(topic, unknown, value, False) == (unknown, value)


def test_a_group_with_its_members_payloads() -> None:
    member = (
        text("m") + text("c") + text("/10.0.0.1") + i32(9) + i32(8) + blob(SUBSCRIPTION) + blob(ASSIGNMENT)
    )
    value = i16(1) + text("consumer") + i32(4) + text("range") + text("m") + array(member)
    key, shown = expand_record("__consumer_offsets", i16(2) + text("g"), value, False)
    assert key == {"type": "GroupMetadataKey", "version": 0, "group": "g"}
    assert isinstance(shown, dict)
    assert (shown["type"], shown["version"], shown["generation"]) == ("GroupMetadataValue", 1, 4)
    assert shown["members"][0]["subscription"] == SUBSCRIBED
    assert shown["members"][0]["assignment"] == ASSIGNED


def test_a_transaction() -> None:
    value = (
        i16(0) + i64(1) + i16(2) + i32(60_000) + i8(1) + array(text("t") + array(i32(0))) + i64(5) + i64(4)
    )
    key, shown = expand_record("__transaction_state", i16(0) + text("tx"), value, False)
    assert key == {"type": "TransactionLogKey", "version": 0, "transactionalId": "tx"}
    assert isinstance(shown, dict)
    assert (shown["type"], shown["producerEpoch"]) == ("TransactionLogValue", 2)
    assert shown["transactionPartitions"] == [{"topic": "t", "partitionIds": [0]}]


def test_metadata_records() -> None:
    record = compact("orders") + bytes(16) + tags()
    shown = {"type": "TopicRecord", "version": 0, "name": "orders", "topicId": ZERO_UUID}
    for topic in ("__cluster_metadata", "AAAAAAAAAAAAAAAAAAAAAQ"):
        value = uvarint(1) + uvarint(2) + uvarint(0) + record
        assert expand_record(topic, None, value, False) == (None, shown)
    preview = uvarint(0) + uvarint(2) + uvarint(0) + text("orders") + bytes(16)
    assert expand_record("__cluster_metadata", None, preview, False)[1] == {
        **shown,
        "_variant": "2.8.0-2.8.2",
    }
    for value in (
        None,
        b"",
        b"\x01",
        uvarint(2) + uvarint(2) + uvarint(0) + record,
        uvarint(1) + uvarint(99) + uvarint(0) + record,
        uvarint(1) + uvarint(2) + uvarint(9) + record,
        b"\x81\0" + uvarint(2) + uvarint(0) + record,
        b"\xff" * 9,
    ):
        assert expand_record("__cluster_metadata", None, value, False) == (None, value)


def test_a_quota_of_the_preview_and_one_of_today_have_one_number() -> None:
    entity = compact_array(compact("user") + compact("u") + tags())
    value = uvarint(1) + uvarint(14) + uvarint(0) + entity + compact("rate") + bytes(8) + i8(0) + tags()
    assert expand_record("__cluster_metadata", None, value, False)[1]["type"] == "ClientQuotaRecord"


STORES = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")


@pytest.mark.parametrize("message", [m for m in schema.messages() if m.store], ids=lambda m: m.name)
def test_every_record_of_an_internal_topic_is_known_by_its_number(message: schema.Message) -> None:
    assert message.api_key is not None
    for version in range(message.versions.min, message.versions.max + 1):
        body = wire.encode(message.name, version, {})
        if message.type == "metadata":
            value = uvarint(1) + uvarint(message.api_key) + uvarint(version) + body
            found = expand_record(message.store, None, value, False)[1]
        elif message.type == "coordinator-key":
            found = expand_record(message.store, i16(message.api_key) + body, None, False)[0]
        elif message.name == "LegacyOffsetCommitValue":
            continue
        else:
            key = next(
                one
                for one in schema.messages()
                if (one.store, one.type, one.api_key) == (message.store, "coordinator-key", message.api_key)
            )
            key_data = i16(message.api_key) + wire.encode(key.name, 0, {})
            found = expand_record(message.store, key_data, i16(version) + body, False)[1]
        assert isinstance(found, dict)
        assert found["type"] == message.name
        decoded = wire.decode(message.name, version, body)
        assert {**found, **decoded} == found


@settings(deadline=None)
@given(st.binary(max_size=60), st.sampled_from(["consumer", "connect", None]))
def test_arbitrary_payloads(data: bytes, protocol_type: str | None) -> None:
    for payload in (data, i16(0) + data, i16(3) + data):
        shown = assignment(payload, protocol_type)
        assert isinstance(shown, dict) or shown == payload
        shown = metadata(joining(payload, protocol_type or "consumer", "stream"))
        assert isinstance(shown, dict) or shown == payload
    for name in ("EnvelopeRequest", "EnvelopeResponse", "JoinGroupResponse", "DescribeGroupsResponse"):
        expand(name, 0, {"requestData": data, "responseData": data, "members": [data], "groups": data})


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([*STORES, "__remote_log_metadata"]), st.binary(max_size=40), st.binary(max_size=60))
def test_arbitrary_records(topic: str, key: bytes, value: bytes) -> None:
    for kind in range(6):
        front = i16(kind)
        expand_record(topic, front + key, front + value, False)
        expand_record(topic, front + key, uvarint(1) + uvarint(kind) + uvarint(0) + value, False)
        expand_record(topic, i16(0) + front, value, True)
