"""The JSON line, field by field, against what the log format says."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import pytest
from output_builders import BROKER, CONN, NOON, answered, asked, exchange, frame, token

from kwsniff.errors import Reason
from kwsniff.model import (
    ConnectionId,
    Endpoint,
    Exchange,
    Fault,
    FetchedPartition,
    Outcome,
    Peer,
    Protocol,
    Side,
)
from kwsniff.output import jsonl
from kwsniff.output.present import Options

PRODUCE, FETCH, METADATA, JOIN_GROUP, API_VERSIONS = 0, 1, 3, 11, 18


def shown(found: Exchange | Fault, **options: Any) -> dict[str, Any]:
    """The line as a program reads it."""
    if isinstance(found, Fault):
        return json.loads(jsonl.encode(jsonl.fault_line(found)))  # type: ignore[no-any-return]
    return json.loads(jsonl.encode(jsonl.line(found, Options(**options))))  # type: ignore[no-any-return]


def produced(code: int = 6) -> Exchange:
    topic = {"name": "orders", "partitionData": [{"index": 0, "records": None}]}
    return exchange(
        asked(PRODUCE, 9, {"acks": 1, "topicData": [topic]}),
        answered(
            PRODUCE,
            9,
            {"responses": [{"name": "orders", "partitionResponses": [{"index": 0, "errorCode": code}]}]},
        ),
    )


def test_the_line_of_the_design_to_the_letter() -> None:
    text = jsonl.encode(jsonl.line(produced())).decode()
    body = json.loads(text)
    request, response = (json.dumps(body[side], separators=(",", ":")) for side in ("request", "response"))
    assert text == (
        '{"timestamp":"2026-11-21T06:00:00.123456789Z",'
        '"requestHeader":{"requestApiKey":0,"requestApiKeyName":"PRODUCE","requestApiVersion":9,'
        '"correlationId":7,"clientId":"c","requestApiVersionDeprecated":false},'
        f'"request":{request},"response":{response},'
        '"connection":"127.0.0.1:9092-127.0.0.1:49878-0","totalTimeMs":3.21,"throttleTimeMs":0,'
        '"securityProtocol":"PLAINTEXT","principal":"User:ANONYMOUS",'
        '"clientInformation":{"softwareName":"librdkafka","softwareVersion":"2.5.0"},'
        '"kwsniff":{"outcome":"answered","client":"127.0.0.1:49878","broker":"127.0.0.1:9092","session":0,'
        '"protocol":"kafka","requestBytes":1118,"responseBytes":58,"file":"a.pcapng","requestPacket":42,'
        '"responsePacket":43,"topics":["orders"],"groupId":null,'
        '"errors":[{"code":6,"name":"NOT_LEADER_OR_FOLLOWER","topic":"orders","partition":0}],'
        '"tags":[],"faults":[]}}'
    )


def test_bodies_have_every_field_of_their_version() -> None:
    partition = {"index": 0, "records": None}
    topic = {"name": "orders", "partitionData": [partition]}
    assert shown(produced())["request"] == {
        "transactionalId": None,
        "acks": 1,
        "timeoutMs": 0,
        "topicData": [topic],
    }


def test_an_ipv6_connection_has_brackets() -> None:
    conn = ConnectionId(Endpoint("::1", 5000), Endpoint("fe80::1", 9092), 3)
    line = shown(exchange(asked(METADATA, 1, {"topics": []}), conn=conn))
    assert line["connection"] == "[fe80::1]:9092-[::1]:5000-3"
    assert (line["kwsniff"]["client"], line["kwsniff"]["session"]) == ("[::1]:5000", 3)


@pytest.mark.parametrize("outcome", [Outcome.NO_ACK, Outcome.LOST, Outcome.CLOSED])
def test_a_request_without_a_response(outcome: Outcome) -> None:
    line = shown(exchange(asked(METADATA, 1, {"topics": []}), outcome=outcome))
    assert (line["response"], line["totalTimeMs"], line["throttleTimeMs"]) == (None, None, 0)
    extra = line["kwsniff"]
    assert (extra["outcome"], extra["responseBytes"], extra["responsePacket"]) == (str(outcome), None, None)


def test_a_response_without_a_request() -> None:
    response = frame(Side.RESPONSE, -1, None, None, correlation_id=77)
    line = shown(exchange(None, response, outcome=Outcome.UNMATCHED, peer=Peer()))
    assert line["timestamp"] == "2026-11-21T06:00:00.124456789Z"
    assert (line["request"], line["response"], line["totalTimeMs"]) == (None, None, None)
    assert line["requestHeader"] == {
        "requestApiKey": None,
        "requestApiKeyName": None,
        "requestApiVersion": None,
        "correlationId": 77,
        "clientId": None,
        "requestApiVersionDeprecated": False,
    }
    assert (line["securityProtocol"], line["principal"]) == (None, None)
    assert line["clientInformation"] == {"softwareName": "unknown", "softwareVersion": "unknown"}
    assert (line["kwsniff"]["outcome"], line["kwsniff"]["requestBytes"]) == ("unmatched", None)


def test_an_api_that_no_release_has() -> None:
    line = shown(exchange(frame(Side.REQUEST, 999, 0, None)))
    assert (line["requestHeader"]["requestApiKey"], line["requestHeader"]["requestApiKeyName"]) == (999, None)


@pytest.mark.parametrize(
    ("api", "version", "deprecated"), [(PRODUCE, 2, True), (PRODUCE, 3, False), (METADATA, 0, False)]
)
def test_deprecated_as_kafka_3_9_marks_it(api: int, version: int, deprecated: bool) -> None:
    line = shown(exchange(asked(api, version, {})))
    assert line["requestHeader"]["requestApiVersionDeprecated"] is deprecated


def test_throttling_is_that_of_the_response() -> None:
    found = exchange(asked(METADATA, 3, {}), answered(METADATA, 3, {"throttleTimeMs": 250}))
    assert shown(found)["throttleTimeMs"] == 250


def test_no_body_keeps_the_rest_of_the_line() -> None:
    with_body, without = shown(produced()), shown(produced(), body=False)
    assert (without.pop("request"), without.pop("response")) == (None, None)
    assert without == {key: value for key, value in with_body.items() if key not in ("request", "response")}


# Records. The batches are built here from the layout that the protocol guide gives.


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def batch(
    *records: tuple[bytes | None, bytes | None],
    base: int = 10,
    crc: int | None = None,
    attributes: int = 0,
    headers: tuple[tuple[bytes, bytes | None], ...] = (),
) -> bytes:
    content = b""
    for delta, (key, value) in enumerate(records):
        record = b"\0" + varint(delta) + varint(delta) + sized(key) + sized(value) + varint(len(headers))
        record += b"".join(sized(name) + sized(text) for name, text in headers)
        content += varint(len(record)) + record
    checked = struct.pack(
        ">hiqqqhii", attributes, len(records) - 1, 1000, 1000 + len(records) - 1, -1, -1, -1, len(records)
    )
    checked += content
    crc = crc32c(checked) if crc is None else crc
    return struct.pack(">qiibI", base, len(checked) + 9, 0, 2, crc) + checked


def crc32c(data: bytes) -> int:
    """Bit by bit, as RFC 3720 appendix B.4 defines it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    return crc ^ 0xFFFFFFFF


def fetched(*records: bytes, topic: str = "orders") -> Exchange:
    partitions = [{"partitionIndex": i, "records": data} for i, data in enumerate(records)]
    return exchange(
        asked(FETCH, 4, {"topics": [{"topic": topic}]}),
        answered(FETCH, 4, {"responses": [{"topic": topic, "partitions": partitions}]}),
    )


def partitions(line: dict[str, Any]) -> list[dict[str, Any]]:
    return line["response"]["responses"][0]["partitions"]  # type: ignore[no-any-return]


def test_records_are_counted() -> None:
    data = batch((b"k", b"v"), (None, None)) + batch((b"k", b"v"), base=12)
    partition = partitions(shown(fetched(data)))[0]
    assert "records" not in partition
    assert partition["recordsSizeInBytes"] == len(data)
    assert partition["recordsSummary"] == {
        "batches": 2,
        "records": 3,
        "codecs": ["none"],
        "magics": [2],
        "baseOffset": 10,
        "lastOffset": 12,
        "crcErrors": 0,
    }
    assert list(partition)[-2:] == ["recordsSizeInBytes", "recordsSummary"]


def test_records_in_full() -> None:
    data = batch(
        (b"k", "größe\t\r\n".encode()), (None, b"\x00\xff"), headers=((b"trace", b"1"), (b"none", None))
    )
    (decoded,) = partitions(shown(fetched(data), records=True))[0]["records"]
    assert list(decoded)[:4] == ["baseOffset", "magic", "codec", "crcValid"]
    assert (decoded["baseOffset"], decoded["magic"], decoded["codec"], decoded["crcValid"]) == (
        10,
        2,
        "none",
        True,
    )
    headers = [{"key": "trace", "value": "1"}, {"key": "none", "value": None}]
    assert decoded["records"] == [
        {"offset": 10, "timestamp": 1000, "key": "k", "value": "größe\t\r\n", "headers": headers},
        {"offset": 11, "timestamp": 1001, "key": None, "value": {"base64": "AP8="}, "headers": headers},
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"", ""),
        (b"plain\ttext\r\n", "plain\ttext\r\n"),
        (b"\x00", {"base64": "AA=="}),
        (b"\x1b[31m", {"base64": "G1szMW0="}),
        (b"\x7f", {"base64": "fw=="}),
        ("\u0085".encode(), {"base64": "woU="}),
        (b"\xc3\x28", {"base64": "wyg="}),
        ("\u00a0\U0001f600".encode(), "\u00a0\U0001f600"),
    ],
)
def test_a_value_is_text_or_base64(value: bytes, text: Any) -> None:
    (decoded,) = partitions(shown(fetched(batch((None, value))), records=True))[0]["records"]
    assert decoded["records"][0]["value"] == text


def test_empty_records() -> None:
    (partition,) = partitions(shown(fetched(b"")))
    assert partition["recordsSizeInBytes"] == 0
    assert partition["recordsSummary"] == {
        "batches": 0,
        "records": 0,
        "codecs": [],
        "magics": [],
        "baseOffset": None,
        "lastOffset": None,
        "crcErrors": 0,
    }


@pytest.mark.parametrize("records", [False, True])
def test_a_wrong_crc_is_a_fault_at_its_place(records: bool) -> None:
    good, bad = batch((b"k", b"v")), batch((b"k", b"v"), base=11, crc=0xDEADBEEF)
    found = fetched(good, good + bad)
    assert found.response is not None
    line = shown(found, records=records)
    (fault,) = line["kwsniff"]["faults"]
    assert (fault["reason"], fault["side"]) == ("crc_mismatch", "response")
    assert fault["path"] == "responses[0].partitions[1].records[1]"
    assert found.response.raw[fault["offset"] :].startswith(bad)
    assert "CRC mismatch" in fault["message"]
    assert line["kwsniff"]["outcome"] == "answered"
    if not records:
        assert partitions(line)[1]["recordsSummary"]["crcErrors"] == 1


def test_the_second_of_two_equal_broken_fields_is_told_at_its_own_place() -> None:
    bad = batch((b"k", b"v"), crc=0)
    found = fetched(bad, bad)
    assert found.response is not None
    offsets = [fault["offset"] for fault in shown(found)["kwsniff"]["faults"]]
    first = found.response.raw.index(bad)
    assert offsets == [first, found.response.raw.index(bad, first + 1)]


def test_a_cut_off_batch_is_normal_in_a_fetch_and_a_fault_in_a_produce() -> None:
    data = batch((b"k", b"v"))
    cut = data + data[:30]
    assert shown(fetched(cut))["kwsniff"]["faults"] == []
    partition = {"index": 0, "records": cut}
    body = {"topicData": [{"name": "orders", "partitionData": [partition]}]}
    (fault,) = shown(exchange(asked(PRODUCE, 3, body)))["kwsniff"]["faults"]
    assert (fault["reason"], fault["path"]) == ("body_truncated", "topicData[0].partitionData[0].records[1]")


def test_more_records_than_a_line_may_hold() -> None:
    data = batch(*((None, b"v"),) * 200)
    line = shown(fetched(data), records=True, max_decompressed=4096)
    (decoded,) = partitions(line)[0]["records"]
    budget = max(4096, 4 * len(data) + 1000)
    assert 0 < len(json.dumps(decoded["records"], separators=(",", ":"))) <= budget
    assert len(decoded["records"]) < 200
    assert [fault["reason"] for fault in line["kwsniff"]["faults"]] == ["decompression_limit"]
    whole = shown(fetched(data), records=True)
    assert len(partitions(whole)[0]["records"][0]["records"]) == 200


def test_a_record_header_that_is_not_utf8() -> None:
    data = batch((b"k", b"v"), headers=((b"caf\xe9", b"x"),))
    line = shown(fetched(data), records=True)
    record = partitions(line)[0]["records"][0]["records"][0]
    assert record["headers"] == [{"key": "caf\ufffd", "value": "x"}]
    path = "response.responses[0].partitions[0].records[0].records[0].headers[0].key"
    assert line["kwsniff"]["rawStrings"] == {path: "Y2Fm6Q=="}


def test_offsets_committed_are_opened() -> None:
    def string(text: str) -> bytes:
        return struct.pack(">h", len(text)) + text.encode()

    key = struct.pack(">h", 1) + string("g") + string("orders") + struct.pack(">i", 3)
    value = struct.pack(">hqi", 3, 42, -1) + string("") + struct.pack(">q", 1000)
    line = shown(fetched(batch((key, value)), topic="__consumer_offsets"), records=True)
    (record,) = partitions(line)[0]["records"][0]["records"]
    assert {"group": "g", "topic": "orders", "partition": 3}.items() <= record["key"].items()
    assert record["value"]["offset"] == 42


def test_scram_keys_of_the_metadata_log_are_hidden() -> None:
    from kwsniff import wire

    secret = {
        "name": "alice",
        "mechanism": 1,
        "salt": b"s",
        "storedKey": b"k",
        "serverKey": b"q",
        "iterations": 4096,
    }
    value = b"\x01\x0b\x00" + wire.encode("UserScramCredentialRecord", 0, secret)
    line = shown(fetched(batch((None, value)), topic="__cluster_metadata"), records=True)
    opened = partitions(line)[0]["records"][0]["records"][0]["value"]
    assert (opened["name"], opened["iterations"]) == ("alice", 4096)
    assert {opened[key] for key in ("salt", "storedKey", "serverKey")} == {"<redacted>"}


# Kafka 0.7, from its grammar.


def test_kafka_07() -> None:
    message = b"\x01\x00" + struct.pack(">I", zlib.crc32(b"hello")) + b"hello"
    message_set = struct.pack(">i", len(message)) + message
    body = {"topic": "old", "partition": 0, "messageSet": message_set}
    none = {"correlation_id": None, "client_id": None, "protocol": Protocol.KAFKA07}
    line = shown(exchange(frame(Side.REQUEST, 0, None, body, raw=message_set, **none)))
    assert line["requestHeader"] == {
        "requestApiKey": 0,
        "requestApiKeyName": "PRODUCE",
        "requestApiVersion": None,
        "correlationId": None,
        "clientId": None,
        "requestApiVersionDeprecated": False,
    }
    assert line["kwsniff"]["protocol"] == "kafka07"
    assert line["kwsniff"]["topics"] == ["old"]
    assert line["request"]["messageSetSizeInBytes"] == len(message_set)
    assert line["request"]["messageSetSummary"]["records"] == 1
    full = shown(exchange(frame(Side.REQUEST, 0, None, body, raw=message_set, **none)), records=True)
    assert full["request"]["messageSet"][0]["records"][0]["value"] == "hello"


@pytest.mark.parametrize("api", range(5))
def test_names_of_kafka_07(api: int) -> None:
    line = shown(exchange(frame(Side.REQUEST, api, None, None, protocol=Protocol.KAFKA07)))
    names = ["PRODUCE", "FETCH", "MULTIFETCH", "MULTIPRODUCE", "OFFSETS"]
    assert line["requestHeader"]["requestApiKeyName"] == names[api]


# Secrets.


def test_bare_sasl_tokens() -> None:
    line = shown(exchange(token(Side.REQUEST, b"\0alice\0hunter2"), token(Side.RESPONSE, b"")))
    assert (line["requestHeader"], line["kwsniff"]["protocol"]) == (None, "sasl")
    assert line["request"] == {"authBytes": "<redacted>"}


@pytest.mark.parametrize(
    ("api", "version", "body", "hidden"),
    [
        (36, 1, {"authBytes": b"\0alice\0hunter2"}, ["authBytes"]),
        (39, 1, {"hmac": b"hunter2"}, ["hmac"]),
        (40, 2, {"hmac": b"hunter2"}, ["hmac"]),
        (
            51,
            0,
            {"upsertions": [{"name": "a", "salt": b"hunter2", "saltedPassword": b"hunter2"}]},
            ["upsertions"],
        ),
    ],
)
def test_secrets_are_hidden(api: int, version: int, body: dict[str, Any], hidden: list[str]) -> None:
    line = shown(exchange(asked(api, version, body)))
    text = json.dumps(line)
    assert "aHVudGVyMg" not in text
    assert "<redacted>" in json.dumps([line["request"][key] for key in hidden])


def configured(name: str, value: str | None = "hunter2") -> Any:
    body = {
        "resources": [{"resourceType": 2, "resourceName": "t", "configs": [{"name": name, "value": value}]}]
    }
    return shown(exchange(asked(33, 1, body)))["request"]["resources"][0]["configs"][0]["value"]


@pytest.mark.parametrize(
    "name",
    [
        "ssl.keystore.password", "ssl.key.password", "ssl.keystore.key", "sasl.jaas.config",
        "delegation.token.secret.key",
        "listener.name.internal.ssl.truststore.password", "my.plugin.secret", "somebody.elses.setting",
        "ssl.keystore.certificate.chain",
    ],
)  # fmt: skip
def test_settings_that_are_hidden(name: str) -> None:
    assert configured(name) == "<redacted>"
    assert configured(name, None) is None


@pytest.mark.parametrize(
    "name",
    ["retention.ms", "cleanup.policy", "min.insync.replicas", "listener.name.internal.ssl.keystore.location"],
)
def test_settings_that_are_shown(name: str) -> None:
    assert configured(name) == "hunter2"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"name": "a.b", "isSensitive": False, "configType": 2}, "v"),
        ({"name": "a.b", "isSensitive": True, "configType": 2}, "<redacted>"),
        ({"name": "a.b", "isSensitive": False, "configType": 9}, "<redacted>"),
        ({"name": "a.password", "isSensitive": False, "configType": 2}, "<redacted>"),
    ],
)
def test_what_the_broker_says_of_a_setting_counts(entry: dict[str, Any], expected: str) -> None:
    synonym = {"name": "c.d", "value": "v", "source": 5}
    config = {**entry, "value": "v", "synonyms": [synonym]}
    found = exchange(asked(32, 4, {}), answered(32, 4, {"results": [{"configs": [config]}]}))
    (shown_config,) = shown(found)["response"]["results"][0]["configs"]
    assert shown_config["value"] == expected
    assert shown_config["synonyms"][0]["value"] == expected


def test_secrets_in_an_envelope_are_hidden() -> None:
    from kwsniff import wire

    header = struct.pack(">hhih", 33, 1, 5, -1)
    config = {"name": "sasl.jaas.config", "value": "hunter2"}
    inner = wire.encode("AlterConfigsRequest", 1, {"resources": [{"configs": [config]}]})
    line = shown(exchange(asked(58, 0, {"requestData": header + inner})))
    opened = line["request"]["requestData"]["request"]
    assert opened["resources"][0]["configs"] == [{"name": "sasl.jaas.config", "value": "<redacted>"}]
    junk = shown(exchange(asked(58, 0, {"requestData": b"hunter2"})))
    assert junk["request"]["requestData"] == "<redacted>"


# Values that JSON has no place for.


def test_a_client_id_that_is_not_utf8() -> None:
    client_id = b"caf\xe9-\xff\xfe".decode("utf-8", "surrogateescape")
    line = shown(exchange(asked(METADATA, 1, {"topics": []}, client_id=client_id)))
    assert line["requestHeader"]["clientId"] == "caf\ufffd-\ufffd\ufffd"
    assert line["kwsniff"]["rawStrings"] == {"requestHeader.clientId": "Y2Fm6S3//g=="}


def test_each_broken_string_stands_once() -> None:
    topic = b"\xe2\x82".decode("utf-8", "surrogateescape")  # two undecodable bytes
    line = shown(exchange(asked(METADATA, 1, {"topics": [{"name": topic}]})))
    assert line["request"]["topics"][0]["name"] == "\ufffd\ufffd"
    assert line["kwsniff"]["topics"] == ["\ufffd\ufffd"]
    assert line["kwsniff"]["rawStrings"] == {"request.topics[0].name": "4oI="}
    without = shown(exchange(asked(METADATA, 1, {"topics": [{"name": topic}]})), body=False)
    assert without["kwsniff"]["rawStrings"] == {"kwsniff.topics[0]": "4oI="}


def test_quotas_that_are_no_numbers() -> None:
    values = [float("nan"), float("inf"), float("-inf"), 1.5]
    entry = {"values": [{"key": "k", "value": value} for value in values]}
    found = exchange(asked(48, 0, {}), answered(48, 0, {"entries": [entry]}))
    (shown_entry,) = shown(found)["response"]["entries"]
    assert [value["value"] for value in shown_entry["values"]] == ["NaN", "Infinity", "-Infinity", 1.5]


def test_unknown_tags_and_bytes() -> None:
    line = shown(exchange(asked(METADATA, 9, {"topics": [], "_tags": {77: b"\x00\x01"}})))
    assert line["request"]["_tags"] == {"77": "AAE="}


def test_a_subscription_is_opened() -> None:
    from kwsniff import wire

    metadata = b"\x00\x01" + wire.encode("ConsumerProtocolSubscription", 1, {"topics": ["orders"]})
    protocols = [{"name": "range", "metadata": metadata}, {"name": "odd", "metadata": b"\x00\x01\xff"}]
    body = {"groupId": "g", "protocolType": "consumer", "protocols": protocols}
    line = shown(exchange(asked(JOIN_GROUP, 1, body)))
    opened, odd = line["request"]["protocols"]
    assert (opened["metadata"]["version"], opened["metadata"]["topics"]) == (1, ["orders"])
    assert odd["metadata"] == "AAH/"
    assert line["kwsniff"]["groupId"] == "g"


def test_int64_as_string() -> None:
    line = shown(fetched(batch((b"k", b"v"))), int64_as_string=True, records=True)
    (partition,) = partitions(line)
    assert (partition["highWatermark"], partition["partitionIndex"]) == ("0", 0)
    (decoded,) = partition["records"]
    assert (decoded["baseOffset"], decoded["producerId"], decoded["magic"]) == ("10", "-1", 2)
    assert (decoded["records"][0]["offset"], decoded["records"][0]["timestamp"]) == ("10", "1000")
    counted = partitions(shown(fetched(batch((b"k", b"v"))), int64_as_string=True))[0]["recordsSummary"]
    assert (counted["baseOffset"], counted["records"]) == ("10", 1)


def test_a_body_is_not_changed_by_showing_it() -> None:
    found = fetched(batch((b"k", b"v")))
    assert found.response is not None
    before = repr(found.response.body)
    shown(found, records=True, int64_as_string=True)
    assert repr(found.response.body) == before


# What else the line tells.


def test_an_incremental_fetch_tells_what_it_reads() -> None:
    topic_id = "B" * 21 + "A"
    found = exchange(
        asked(FETCH, 13, {"sessionId": 1, "sessionEpoch": 5}),
        fetched=(FetchedPartition("orders", None, 2, 17), FetchedPartition(None, topic_id, 0, 3)),
        topic_names={topic_id: (0, "named")},
    )
    line = shown(found)
    assert line["kwsniff"]["fetched"] == [
        {"topic": "orders", "partition": 2, "fetchOffset": 17},
        {"topic": "named", "partition": 0, "fetchOffset": 3},
    ]
    assert line["kwsniff"]["topics"] == ["orders", "named"]
    assert "fetched" not in shown(produced())["kwsniff"]


def fault(**fields: Any) -> Fault:
    return Fault(NOON, Reason.COUNT_INVALID, "4 elements in 2 bytes", **fields)


def test_a_fault_of_an_exchange() -> None:
    found = fault(
        conn=CONN, side=Side.REQUEST, api=3, version=1, correlation_id=7, path="topics", offset=10, packet=42
    )
    line = shown(exchange(frame(Side.REQUEST, 3, 1, None, faults=(found,))))
    assert (line["request"], line["kwsniff"]["outcome"]) == (None, "no_ack")
    assert line["kwsniff"]["faults"] == [
        {
            "reason": "count_invalid",
            "message": "4 elements in 2 bytes",
            "side": "request",
            "api": 3,
            "version": 1,
            "correlationId": 7,
            "path": "topics",
            "offset": 10,
            "packet": 42,
            "lost": None,
            "fileOffset": None,
        }
    ]


def test_faults_of_the_exchange_and_of_both_frames_stand_together() -> None:
    request = frame(Side.REQUEST, 3, 1, None, faults=(fault(offset=1),))
    response = frame(Side.RESPONSE, 3, 1, None, faults=(fault(offset=2),))
    line = shown(exchange(request, response, faults=(fault(offset=0),)))
    assert [found["offset"] for found in line["kwsniff"]["faults"]] == [0, 1, 2]


def test_a_fault_of_no_exchange() -> None:
    line = shown(fault(conn=CONN, side=Side.RESPONSE, offset=99, packet=5, lost=1448, file="a.pcap"))
    assert list(line) == ["timestamp", "connection", "kwsniff"]
    assert line["timestamp"] == "2026-11-21T06:00:00.123456789Z"
    assert line["connection"] == "127.0.0.1:9092-127.0.0.1:49878-0"
    found = line["kwsniff"].pop("fault")
    assert line["kwsniff"] == {
        "file": "a.pcap",
        "session": 0,
        "client": str(CONN.client),
        "broker": str(BROKER),
    }
    assert (found["side"], found["offset"], found["packet"], found["lost"]) == ("response", 99, 5, 1448)


def test_a_fault_of_a_file() -> None:
    found = Fault(0, Reason.CAPTURE_TRUNCATED, "cut short", file="a.pcap", file_offset=24)
    line = shown(found)
    assert (line["timestamp"], line["connection"]) == (None, None)
    assert line["kwsniff"]["client"] is line["kwsniff"]["session"] is None
    assert line["kwsniff"]["fault"]["fileOffset"] == 24
