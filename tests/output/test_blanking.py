"""Frames without their secrets: what was secret is gone, all else is as it was, and as long."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed
from passing_builders import answered, asked

from kwsniff import wire
from kwsniff.conversation.sasl import Authentication
from kwsniff.model import Frame, Protocol
from kwsniff.output.blanking import Blanker, token

SECRET = "S3cr3t-v4lue"
RAW = SECRET.encode()
HIDDEN = "x" * len(SECRET)


def config(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "value": SECRET, **more}


def resources(*configs: dict[str, Any]) -> dict[str, Any]:
    return {"resources": [{"resourceType": 4, "resourceName": "1", "configs": list(configs)}]}


def results(*configs: dict[str, Any]) -> dict[str, Any]:
    return {"results": [{"resourceType": 4, "resourceName": "1", "configs": list(configs)}]}


SYNONYMS = {"synonyms": [{"name": "my.setting", "value": SECRET, "source": 5}]}

SECRETS = {
    "SaslAuthenticate": asked(36, 2, {"authBytes": RAW}),
    "SaslAuthenticate's answer": answered(36, 2, {"authBytes": RAW}),
    "CreateDelegationToken's answer": answered(38, 2, {"hmac": RAW, "tokenId": "t"}),
    "RenewDelegationToken": asked(39, 2, {"hmac": RAW}),
    "ExpireDelegationToken": asked(40, 2, {"hmac": RAW}),
    "DescribeDelegationToken's answer": answered(41, 2, {"tokens": [{"hmac": RAW, "tokenId": "t"}]}),
    "AlterUserScramCredentials": asked(
        51, 0, {"upsertions": [{"name": "alice", "mechanism": 1, "salt": RAW, "saltedPassword": RAW}]}
    ),
    "AlterConfigs": asked(33, 1, resources(config("ssl.keystore.password"))),
    "AlterConfigs of a setting that is not known": asked(33, 2, resources(config("my.own.setting"))),
    "IncrementalAlterConfigs": asked(44, 1, resources(config("sasl.jaas.config"))),
    "DescribeConfigs' answer": answered(32, 4, results(config("ssl.key.password", isSensitive=True))),
    "a synonym of a sensitive config": answered(
        32, 4, results({"name": "my.setting", "isSensitive": True, "value": None, **SYNONYMS})
    ),
    "CreateTopics": asked(19, 5, {"topics": [{"name": "t", "configs": [config("my.own")]}]}),
    "bytes behind the body": asked(36, 0, wire.encode("SaslAuthenticateRequest", 0, {}) + RAW),
}


@pytest.mark.parametrize("name", SECRETS)
def test_secrets_are_filler_and_the_frame_is_as_long(name: str) -> None:
    frame = SECRETS[name]
    assert RAW in frame.raw
    raw, done = Blanker().blanked(frame)
    # An independent expectation: the same bytes, with the secret's own replaced.
    assert raw == frame.raw.replace(RAW, HIDDEN.encode())
    assert done == "secrets replaced by filler"


PLAIN = {
    "Metadata": asked(3, 4, {"topics": [{"name": SECRET}]}),
    "a harmless setting": asked(33, 1, resources(config("retention.ms"))),
    "DescribeConfigs' answer": answered(32, 4, results(config("cleanup.policy", configSource=5))),
    "a password as a topic's name": asked(
        19, 5, {"topics": [{"name": SECRET, "configs": [{"name": "segment.ms", "value": "1"}]}]}
    ),
    "Fetch's answer": answered(
        1, 11, {"responses": [{"topic": "t", "partitions": [{"partitionIndex": 0, "records": RAW}]}]}
    ),
    "a handshake": asked(17, 1, {"mechanism": "PLAIN"}),
}


@pytest.mark.parametrize("name", PLAIN)
def test_what_has_no_secrets_is_left_as_it_is(name: str) -> None:
    frame = PLAIN[name]
    assert Blanker().blanked(frame) == (frame.raw, "")


UNREADABLE = {
    "a cut-off body": (asked(33, 1, b"\0\0\0\1\4" + RAW), "it does not decode"),
    "a version that nobody knows": (asked(44, 0, RAW), "it does not decode"),
    "a fetch of metadata": (
        answered(1, 11, b"\0\x12__cluster_metadata" + RAW),
        "it does not decode",
    ),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_body_that_cannot_be_read_but_may_hold_secrets_is_filler(name: str) -> None:
    frame, why = UNREADABLE[name]
    if "version" in name:
        frame.version = 30
    raw, done = Blanker().blanked(frame)
    assert raw == frame.raw[: frame.body_at] + b"x" * (len(frame.raw) - frame.body_at)
    assert done == f"body replaced by filler, as {why}"


def test_an_api_that_nobody_knows_may_hold_secrets() -> None:
    frame = asked(3, 1, RAW)
    frame.api = 30_000
    raw, done = Blanker().blanked(frame)
    assert (RAW in raw, len(raw), raw[:11]) == (False, len(frame.raw), frame.raw[:11])
    assert done == "body replaced by filler, as its API is not known"


def test_a_response_that_answers_nothing_keeps_its_correlation_id() -> None:
    frame = changed(answered(36, 2, {"authBytes": RAW}), api=-1, version=None, body_at=0)
    assert Blanker().blanked(frame).raw == frame.raw[:4] + b"x" * (len(frame.raw) - 4)


def test_an_undecodable_body_without_secrets_stays_for_whoever_wants_to_know_why() -> None:
    frame = asked(3, 4, RAW)
    assert frame.body is None
    assert Blanker().blanked(frame).raw == frame.raw


# ---- messages within messages


def test_a_request_within_an_envelope_is_blanked_as_if_it_were_alone() -> None:
    inner = asked(44, 1, resources(config("sasl.jaas.config"))).raw
    answer = answered(38, 2, {"hmac": RAW, "tokenId": "t"}).raw
    body = {"requestPrincipal": b"", "clientHostAddress": b"\x7f\0\0\1"}
    envelope = asked(58, 0, {"requestData": inner, **body})
    raw, _ = Blanker().blanked(envelope)
    assert raw == envelope.raw.replace(RAW, HIDDEN.encode())
    envelope = asked(58, 0, {"requestData": asked(38, 2, {}).raw, **body})
    reply = answered(58, 0, {"responseData": answer})
    raw, _ = Blanker().blanked(reply, envelope)
    assert raw == reply.raw.replace(RAW, HIDDEN.encode())


@pytest.mark.parametrize("data", [RAW, struct.pack(">hhih", 44, 1, 1, -1) + b"\0" + RAW, b"\0:" + RAW])
def test_what_cannot_be_read_within_an_envelope_is_filler(data: bytes) -> None:
    frame = asked(58, 0, {"requestData": data, "requestPrincipal": b"", "clientHostAddress": b""})
    raw, _ = Blanker().blanked(frame)
    assert raw == frame.raw.replace(data, b"x" * len(data))


def metadata_fetch(version: int, **topic: Any) -> Frame:
    partition = {"partitionIndex": 0, "highWatermark": 5, "records": RAW}
    return answered(1, version, {"responses": [{**topic, "partitions": [partition]}]})


@pytest.mark.parametrize(
    "frame",
    [
        metadata_fetch(11, topic="__cluster_metadata"),
        metadata_fetch(13, topicId="AAAAAAAAAAAAAAAAAAAAAQ"),
        answered(
            59,
            0,
            {
                "topics": [
                    {
                        "name": "__cluster_metadata",
                        "partitions": [
                            {"index": 0, "snapshotId": {}, "size": 12, "position": 0, "unalignedRecords": RAW}
                        ],
                    }
                ]
            },
        ),
    ],
)
def test_records_of_the_metadata_log_are_left_out(frame: Frame) -> None:
    """They hold SCRAM credentials and settings, under a checksum."""
    raw, _ = Blanker().blanked(frame)
    assert RAW not in raw
    _, body = wire.decode_response(raw, frame.api, frame.version or 0)
    topics = body["responses" if frame.api == 1 else "topics"]
    (partition,) = topics[0]["partitions"]
    assert partition["records" if frame.api == 1 else "unalignedRecords"] == b""


# ---- SASL


def jwt(claims: dict[str, Any]) -> bytes:
    return b"e30." + base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=") + b".c2ln"


TOKENS = [
    ("PLAIN", b"\0alice\0" + RAW, b"\0alice\0xxxxxxxxxxxx"),
    ("PLAIN", b"boss\0alice\0" + RAW, b"boss\0alice\0xxxxxxxxxxxx"),
    ("PLAIN", RAW, b"x" * 12),
    ("SCRAM-SHA-256", b"n,,n=alice,r=fyko", b"n,,n=alice,r=xxxx"),
    ("SCRAM-SHA-512", b"r=fyko3r,s=QSXC,i=4096", b"r=xxxxxx,s=xxxx,i=xxxx"),
    ("SCRAM-SHA-512", b"c=biws,r=fy,p=v0X8", b"c=xxxx,r=xx,p=xxxx"),
    ("SCRAM-SHA-512", b"v=rmF9", b"v=xxxx"),
    ("OAUTHBEARER", b"n,,\1auth=Bearer opaque\1\1", None),
    ("OAUTHBEARER", b"n,,\1auth=Bearer " + jwt({"name": "a"}) + b"\1\1", None),
    ("", b"\0alice\0" + RAW, None),
    ("GSSAPI", b"\x60\x82\1\0\x06\x02\x2a\x03" + RAW, b"\x60\x82\1\0\x06\x02\x2a\x03" + b"x" * 12),
    ("GSSAPI", b"\x05\x04\x05" + RAW, None),
]


@pytest.mark.parametrize(("mechanism", "data", "left"), TOKENS)
def test_of_a_token_only_the_name_and_the_form_are_left(
    mechanism: str, data: bytes, left: bytes | None
) -> None:
    assert token(data, mechanism) == (b"x" * len(data) if left is None else left)


@pytest.mark.parametrize("sub", ["a", "alice@example.com", "ä" * 9, "\\u0000"])
def test_of_a_bearers_claims_only_the_name_is_left(sub: str) -> None:
    claims = {"iss": "https://example.com", "sub": sub, "email": SECRET}
    data = b"n,,\1auth=Bearer " + jwt(claims) + b"\1\1"
    left = token(data, "OAUTHBEARER")
    assert len(left) == len(data)
    header, kept, signature = left[16:].split(b".")
    assert (left[:16], header, set(signature)) == (b"xxx\1auth=Bearer ", b"xxx", {ord("x")})
    assert json.loads(base64.urlsafe_b64decode(kept + b"===")) == {"sub": sub}
    reader = Authentication("OAUTHBEARER")
    reader.client_token(left)
    reader.server_token(b"")
    assert reader.principal == f"User:{sub}"


@given(st.sampled_from(["PLAIN", "SCRAM-SHA-256", "GSSAPI", "OAUTHBEARER", ""]), st.binary(max_size=40))
def test_any_token_keeps_its_length(mechanism: str, data: bytes) -> None:
    assert len(token(data, mechanism)) == len(data)


def test_the_mechanism_is_the_handshakes() -> None:
    blanker = Blanker()
    frame = asked(36, 2, {"authBytes": b"\0alice\0" + RAW})
    assert blanker.blanked(frame).raw == frame.raw.replace(b"\0alice\0" + RAW, b"x" * 19)
    blanker.blanked(asked(17, 1, {"mechanism": "PLAIN"}))
    assert blanker.blanked(frame).raw == frame.raw.replace(RAW, b"x" * 12)
    bare = asked(3, 1, {})
    bare.protocol, bare.raw = Protocol.SASL, b"\0alice\0" + RAW
    assert blanker.blanked(bare) == (b"\0alice\0xxxxxxxxxxxx", "token replaced by filler")
