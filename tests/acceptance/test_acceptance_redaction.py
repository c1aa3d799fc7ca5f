"""Where a secret could come out, it does not: bodies, records, faults, tables, with every option."""

from __future__ import annotations

import base64
import struct
from pathlib import Path
from typing import Any

import google_crc32c
import pytest
from acceptance_builders import Run, Tape, request, run, shown

from kwsniff import wire

SECRET = "S3cr3t-v4lue-0123456789"
RAW = SECRET.encode()
VARIANTS = [(), ("--records",), ("--format", "table"), ("--int64-as-string",), ("--max-frame", "40")]


def hidden_in(result: Run) -> None:
    text = result.out.decode() + result.err
    assert SECRET not in text
    for at in range(3):  # whatever its place in the base64
        coded = base64.b64encode(b"x" * at + RAW).decode()[4:-6]
        assert coded not in text
    assert RAW.hex() not in text
    assert RAW[:12].hex() not in text


def told(tmp_path: Path, *exchanges: tuple[int, int, Any, Any]) -> list[Run]:
    tape = Tape()
    link = tape.link().open()
    for number, (api, version, asked, answered) in enumerate(exchanges):
        link.exchange(api, version, number, asked, answered)
    found = []
    for options in VARIANTS:
        if "table" in options:
            result = run("decode", *options, tmp_path / "a.pcap")
        else:
            result = shown(tape.pcap(), tmp_path, *options)
        hidden_in(result)
        found.append(result)
    return found


def varint(n: int) -> bytes:
    n = n * 2 if n >= 0 else -n * 2 - 1
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def batch(*records: tuple[bytes | None, bytes | None]) -> bytes:
    body = b""
    for i, pair in enumerate(records):
        parts = b"\0\0" + varint(i)
        for part in pair:
            parts += varint(-1) if part is None else varint(len(part)) + part
        parts += varint(0)
        body += varint(len(parts)) + parts
    behind = struct.pack(">hiqqqhii", 0, len(records) - 1, 0, 0, -1, -1, -1, len(records)) + body
    crc = google_crc32c.value(behind)
    return struct.pack(">qiibI", 0, 9 + len(behind), 0, 2, crc) + behind


CONFIGS = ["ssl.keystore.password", "sasl.jaas.config", "my.own.setting", "listener.name.x.ssl.key.password"]


@pytest.mark.parametrize("name", CONFIGS)
def test_configs_that_are_set(tmp_path: Path, name: str) -> None:
    pair = {"name": name, "value": SECRET}
    told(
        tmp_path,
        (33, 1, {"resources": [{"resourceType": 4, "resourceName": "1", "configs": [pair]}]}, {}),
        (44, 1, {"resources": [{"resourceType": 4, "resourceName": "1", "configs": [pair]}]}, {}),
        (19, 5, {"topics": [{"name": "t", "configs": [pair]}]}, {}),
    )


def test_configs_that_are_described(tmp_path: Path) -> None:
    entry = {"name": "ssl.key.password", "value": SECRET, "isSensitive": True, "synonyms": []}
    synonym = {"name": "ssl.key.password", "value": SECRET, "source": 5}
    by_synonym = {"name": "x", "value": None, "isSensitive": True, "synonyms": [synonym]}
    plain = {"name": "retention.ms", "value": "42", "isSensitive": False, "synonyms": []}
    results = told(
        tmp_path,
        (32, 4, {}, {"results": [{"resourceName": "1", "configs": [entry, by_synonym, plain]}]}),
        (32, 0, {}, {"results": [{"resourceName": "1", "configs": [{**entry, "synonyms": []}]}]}),
    )
    shown_configs = results[0].lines[0]["response"]["results"][0]["configs"]
    assert [c["value"] for c in shown_configs] == ["<redacted>", None, "42"]


def test_delegation_tokens(tmp_path: Path) -> None:
    told(
        tmp_path,
        (38, 3, {}, {"tokenId": "id", "hmac": RAW}),
        (39, 2, {"hmac": RAW, "renewPeriodMs": 1}, {}),
        (40, 2, {"hmac": RAW}, {}),
        (41, 3, {}, {"tokens": [{"tokenId": "id", "hmac": RAW}]}),
    )


def test_scram_passwords(tmp_path: Path) -> None:
    told(tmp_path, (51, 0, {"upsertions": [{"name": "a", "salt": RAW, "saltedPassword": RAW}]}, {}))


def test_forwarded_requests(tmp_path: Path) -> None:
    body = {"upsertions": [{"name": "a", "salt": RAW, "saltedPassword": RAW}]}
    inner = request(51, 0, 1, body)[4:]
    pair = {"name": "sasl.jaas.config", "value": SECRET}
    configs = request(44, 1, 1, {"resources": [{"resourceType": 4, "resourceName": "1", "configs": [pair]}]})[
        4:
    ]
    envelope = {"requestPrincipal": b"", "clientHostAddress": b"\x7f\0\0\1"}
    told(
        tmp_path,
        (58, 0, {**envelope, "requestData": inner}, {"responseData": b""}),
        (58, 0, {**envelope, "requestData": configs}, {"responseData": b"\0\0\0\1\0" + RAW}),
        (58, 0, {**envelope, "requestData": inner[:-3]}, {"responseData": RAW}),
        (58, 0, {**envelope, "requestData": b"\0\x63" + RAW}, {}),
    )


def metadata_record(name: str, version: int, body: dict[str, Any]) -> bytes:
    kind = wire.message(name).api_key
    assert kind is not None
    return bytes([1, kind, version]) + wire.encode(name, version, body)


@pytest.mark.parametrize("api", ["fetch", "snapshot"])
def test_records_of_the_cluster_metadata(tmp_path: Path, api: str) -> None:
    config = {"resourceName": "1", "name": "sasl.jaas.config", "value": SECRET}
    credential = {"name": "a", "salt": RAW, "storedKey": RAW, "serverKey": RAW}
    data = batch(
        (None, metadata_record("ConfigRecord", 0, config)),
        (None, metadata_record("UserScramCredentialRecord", 0, credential)),
        (None, metadata_record("TopicRecord", 0, {"name": "t"})),
    )
    if api == "fetch":
        partition = {"partitionIndex": 0, "records": data}
        topics = [{"topic": "__cluster_metadata", "partitions": [{"partition": 0}]}]
        told(
            tmp_path,
            (
                1,
                12,
                {"topics": topics},
                {"responses": [{"topic": "__cluster_metadata", "partitions": [partition]}]},
            ),
        )
    else:
        partition = {"index": 0, "unalignedRecords": data}
        told(tmp_path, (59, 0, {}, {"topics": [{"name": "__cluster_metadata", "partitions": [partition]}]}))


def test_frames_that_break_off(tmp_path: Path) -> None:
    """A fault names bytes, path and reason; of a known API it never shows the bytes."""
    secrets = [
        (
            33,
            1,
            {
                "resources": [
                    {"resourceType": 4, "resourceName": "1", "configs": [{"name": "x", "value": SECRET}]}
                ]
            },
        ),
        (38, 3, {"renewers": [{"principalType": "User", "principalName": SECRET}]}),
        (51, 0, {"upsertions": [{"name": "a", "salt": RAW, "saltedPassword": RAW}]}),
    ]
    for api, version, body in secrets:
        whole = wire.encode(wire.request_of(api).name, version, body)
        for cut in (len(whole) - 1, len(whole) - 4, len(whole) // 2):
            tape = Tape()
            link = tape.link().open().metadata(0)
            link.ask(api, version, 1, whole[:cut]).ask(api, 30, 2, whole).ask(
                api, version, 3, whole + RAW
            ).close()
            for options in VARIANTS:
                if "table" not in options:
                    if api != 38:
                        hidden_in(shown(tape.pcap(), tmp_path, *options))
                    else:
                        shown(tape.pcap(), tmp_path, *options)


def test_unknown_tags_of_secret_messages_are_kept_or_hidden_but_the_field_is_hidden(tmp_path: Path) -> None:
    tape = Tape()
    tape.link().open().exchange(
        51, 0, 1, {"upsertions": [{"name": "a", "salt": RAW, "saltedPassword": RAW, "_tags": {7: b"z"}}]}, {}
    )
    (line,) = shown(tape.pcap(), tmp_path).lines
    (entry,) = line["request"]["upsertions"]
    assert entry["saltedPassword"] == "<redacted>"
    assert entry["_tags"] == {"7": "eg=="}
