"""Every API and version through a whole capture, and the odd ones one by one."""

from __future__ import annotations

import base64
import struct
from pathlib import Path
from typing import Any

from acceptance_builders import Tape, request, response, shown, sized

from kwsniff import wire

REQUESTS = [m for m in wire.messages() if m.type == "request" and m.api_key is not None]


def test_every_api_and_version_through_one_capture(tmp_path: Path) -> None:
    tape = Tape()
    wanted = []
    link = tape.link().open()
    for info in REQUESTS:
        low, high = info.valid_versions
        for version in range(low, high + 1):
            if info.api_key == 17:  # what follows a handshake are tokens
                continue
            number = len(wanted)
            body: dict[str, Any] = {"acks": 1} if info.api_key == 0 else {}
            if info.flexible_versions and version >= info.flexible_versions[0]:
                body["_tags"] = {9999: b"\x01\x02"}
            answer = {key: value for key, value in body.items() if key == "_tags"}
            link.exchange(info.api_key, version, number, body, answer)
            wanted.append((info.api_key, version, number))
    result = shown(tape.pcap(), tmp_path)
    told = [
        (h["requestApiKey"], h["requestApiVersion"], h["correlationId"])
        for h in (line["requestHeader"] for line in result.lines)
    ]
    assert told == wanted
    assert {line["kwsniff"]["outcome"] for line in result.lines} == {"answered"}
    bad = [
        (line["requestHeader"], line["kwsniff"]["faults"])
        for line in result.lines
        if line["kwsniff"]["faults"]
    ]
    assert bad == []
    flexible = [line for line in result.lines if "_tags" in (line["request"] or {})]
    assert len(flexible) > 150
    for line in flexible:
        assert line["request"]["_tags"] == {"9999": "AQI="}
        assert line["response"]["_tags"] == {"9999": "AQI="}


def one(tmp_path: Path, api: int, version: int, asked: Any, answered: Any, *options: str) -> dict[str, Any]:
    tape = Tape()
    tape.link().open().exchange(api, version, 5, asked, answered).close()
    (line,) = shown(tape.pcap(), tmp_path, *options).lines
    return line


def test_consumer_metadata_of_082_with_and_without_a_coordinator(tmp_path: Path) -> None:
    """0.8.2: error, then id, host, port; where there is none, 0.8.2 wrote -1, "" and -1."""
    body = struct.pack(">hih", 0, 7, 2) + b"b7" + struct.pack(">i", 9092)
    line = one(tmp_path, 10, 0, struct.pack(">h", 1) + b"g", body)
    assert (line["response"]["nodeId"], line["response"]["host"], line["response"]["port"]) == (7, "b7", 9092)
    assert line["kwsniff"]["groupId"] == "g"
    line = one(tmp_path, 10, 0, struct.pack(">h", 1) + b"g", struct.pack(">hihi", 15, -1, 0, -1))
    assert line["response"]["nodeId"] == -1
    assert line["kwsniff"]["errors"][0]["name"] == "COORDINATOR_NOT_AVAILABLE"
    assert line["kwsniff"]["faults"] == []


def test_offset_commit_0_with_the_timestamp_of_082_beta(tmp_path: Path) -> None:
    """KAFKA-1841: 0.8.2-beta sent v0 with v1's timestamp."""
    partition = struct.pack(">iqqh", 3, 42, 1_400_000_000_000, 1) + b"m"
    body = struct.pack(">h", 1) + b"g" + struct.pack(">ih", 1, 1) + b"t" + struct.pack(">i", 1) + partition
    answer = struct.pack(">ih", 1, 1) + b"t" + struct.pack(">iih", 1, 3, 0)
    line = one(tmp_path, 8, 0, body, answer)
    (shown_partition,) = line["request"]["topics"][0]["partitions"]
    assert shown_partition["committedOffset"] == 42
    assert 1_400_000_000_000 in shown_partition.values()
    assert line["kwsniff"]["faults"] == []


def test_controlled_shutdown_0_has_a_header_without_a_client_id(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open()
    link.client(sized(struct.pack(">hhi", 7, 0, 9) + struct.pack(">i", 3)))
    link.broker(sized(struct.pack(">ihi", 9, 0, 1) + struct.pack(">h", 1) + b"t" + struct.pack(">i", 0)))
    link.exchange(7, 1, 10, {"brokerId": 4}, {})
    first, second = shown(tape.pcap(), tmp_path).lines
    assert first["requestHeader"]["clientId"] is None
    assert first["request"] == {"brokerId": 3}
    assert first["response"]["remainingPartitions"] == [{"topicName": "t", "partitionIndex": 0}]
    assert second["requestHeader"]["clientId"] == "app"


def test_an_api_that_nobody_knows(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open().metadata(1)
    link.client(request(777, 3, 2, b"\1\2\3")).broker(sized(struct.pack(">i", 2) + b"xy")).metadata(3)
    lines = shown(tape.pcap(), tmp_path).lines
    assert [line["requestHeader"]["requestApiKey"] for line in lines] == [3, 777, 3]
    unknown = lines[1]
    assert unknown["requestHeader"]["requestApiKeyName"] is None
    assert {fault["reason"] for fault in unknown["kwsniff"]["faults"]} == {"unknown_api"}
    assert (unknown["request"], unknown["response"]) == (None, None)


def test_a_version_that_nobody_knows(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open().metadata(1)
    link.client(request(3, 99, 2, b"\1\2\3")).broker(response(3, 99, 2, b"xy")).metadata(3)
    lines = shown(tape.pcap(), tmp_path).lines
    assert [line["requestHeader"]["requestApiVersion"] for line in lines] == [1, 99, 1]
    assert {fault["reason"] for fault in lines[1]["kwsniff"]["faults"]} == {"unknown_version"}


def test_bytes_left_over_are_named_and_the_body_is_shown(tmp_path: Path) -> None:
    line = one(tmp_path, 3, 1, struct.pack(">ih", 1, 1) + b"tXX", {"topics": []})
    assert line["request"] == {"topics": [{"name": "t"}]}
    (fault,) = line["kwsniff"]["faults"]
    assert (fault["reason"], fault["side"], fault["api"], fault["version"]) == (
        "trailing_bytes",
        "request",
        3,
        1,
    )
    assert fault["offset"] == 8 + 2 + 3 + 7


def test_a_bad_body_names_its_field_and_the_connection_goes_on(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open()
    link.exchange(3, 1, 1, struct.pack(">ih", 2, 1) + b"t" + struct.pack(">h", -5), {}).metadata(2)
    bad, good = shown(tape.pcap(), tmp_path).lines
    assert (bad["request"], bad["response"]) == (None, bad["response"])
    (fault,) = bad["kwsniff"]["faults"]
    assert fault["path"].startswith("topics[1]")
    assert (fault["correlationId"], fault["packet"]) == (1, 4)
    assert good["kwsniff"]["faults"] == []


def test_a_future_api_versions_request_gets_the_version_0_answer(tmp_path: Path) -> None:
    refusal = struct.pack(">hi", 35, 1) + struct.pack(">hhh", 18, 0, 4)
    tape = Tape()
    link = tape.link().open()
    link.client(request(18, 4, 1, {"clientSoftwareName": "x", "clientSoftwareVersion": "1"}))
    link.broker(sized(struct.pack(">i", 1) + refusal))
    (line,) = shown(tape.pcap(), tmp_path).lines
    assert line["response"]["apiKeys"] == [{"apiKey": 18, "minVersion": 0, "maxVersion": 4}]
    assert line["kwsniff"]["errors"] == [
        {"code": 35, "name": "UNSUPPORTED_VERSION", "topic": None, "partition": None}
    ]
    assert line["clientInformation"]["softwareName"] == "x"


def test_strings_that_are_not_utf8_keep_their_bytes_beside_the_line(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open()
    link.exchange(
        3, 1, 1, {"topics": [{"name": "caf\udce9"}]}, {"topics": [{"name": "caf\udce9", "errorCode": 17}]}
    )
    (line,) = shown(tape.pcap(), tmp_path).lines
    assert line["request"]["topics"][0]["name"] == "caf\ufffd"
    raw = line["kwsniff"]["rawStrings"]
    assert base64.b64decode(raw["request.topics[0].name"]) == b"caf\xe9"


def test_quotas_that_json_cannot_say(tmp_path: Path) -> None:
    answer = {
        "entries": [
            {
                "entity": [{"entityType": "user", "entityName": None}],
                "values": [
                    {"key": k, "value": float(v)} for k, v in (("a", "nan"), ("b", "inf"), ("c", "-inf"))
                ],
            }
        ]
    }
    line = one(tmp_path, 48, 0, {}, answer)
    assert [v["value"] for v in line["response"]["entries"][0]["values"]] == ["NaN", "Infinity", "-Infinity"]


def test_acks_0_with_and_without_a_stray_answer(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open()
    for number in range(3):
        link.ask(0, 7, number, {"acks": 0})
    link.metadata(9).close()
    lines = shown(tape.pcap(), tmp_path).lines
    assert [line["kwsniff"]["outcome"] for line in lines] == ["no_ack"] * 3 + ["answered"]


def test_deprecated_versions_are_those_that_kafka_4_dropped(tmp_path: Path) -> None:
    """As Kafka 3.9 logs it (KIP-896): Produce 0-2, Fetch 0-3, ... are deprecated; v3 and v4 are not."""
    tape = Tape()
    link = tape.link().open()
    for number, (api, version) in enumerate([(0, 2), (0, 3), (1, 3), (1, 4), (3, 0), (18, 0)]):
        link.exchange(api, version, number, {"acks": 1} if api == 0 else {}, {})
    told = [
        line["requestHeader"]["requestApiVersionDeprecated"] for line in shown(tape.pcap(), tmp_path).lines
    ]
    assert told == [True, False, True, False, False, False]
