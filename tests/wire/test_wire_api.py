"""The public functions of kwsniff.wire: names, headers, whole frames."""

from __future__ import annotations

import subprocess
import sys

import pytest
from wirebytes import array, compact_array, i8, i16, i32, tags, text

from kwsniff import wire
from kwsniff.errors import DecodeError, Reason, UnknownMessage

API_VERSIONS, CONTROLLED_SHUTDOWN, METADATA, SASL_HANDSHAKE = 18, 7, 3, 17


def request(api, version, body=b"", flexible=False):
    return i16(api) + i16(version) + i32(7) + text("me") + (tags() if flexible else b"") + body


def test_every_message_is_listed():
    infos = wire.messages()
    assert len(infos) == 286
    assert [info.api_key for info in infos if info.type == "request"] == list(range(93))
    fetch = next(info for info in infos if info.name == "FetchRequest")
    assert fetch == ("FetchRequest", "request", 1, (0, 18), (12, 18))
    handshake = next(info for info in infos if info.name == "SaslHandshakeRequest")
    assert handshake.flexible_versions is None


@pytest.mark.parametrize(
    ("api", "name"),
    [  # org.apache.kafka.common.protocol.ApiKeys
        (0, "PRODUCE"),
        (2, "LIST_OFFSETS"),
        (4, "LEADER_AND_ISR"),
        (18, "API_VERSIONS"),
        (23, "OFFSET_FOR_LEADER_EPOCH"),
        (24, "ADD_PARTITIONS_TO_TXN"),
        (29, "DESCRIBE_ACLS"),
        (56, "ALTER_PARTITION"),
        (92, "DELETE_SHARE_GROUP_OFFSETS"),
        (93, "UNKNOWN_93"),
        (-1, "UNKNOWN_-1"),
    ],
)
def test_api_names(api, name):
    assert wire.api_name(api) == name


@pytest.mark.parametrize(
    ("api", "version", "headers"),
    [
        (CONTROLLED_SHUTDOWN, 0, (0, 0)),
        (CONTROLLED_SHUTDOWN, 1, (1, 0)),
        (CONTROLLED_SHUTDOWN, 3, (2, 1)),
        (API_VERSIONS, 2, (1, 0)),
        (API_VERSIONS, 3, (2, 0)),
        (API_VERSIONS, 30, (2, 0)),
        (SASL_HANDSHAKE, 1, (1, 0)),
        (METADATA, 8, (1, 0)),
        (METADATA, 9, (2, 1)),
    ],
)
def test_header_versions(api, version, headers):
    assert wire.header_versions(api, version) == headers


def test_an_unknown_api():
    assert wire.request_of(999) is None
    assert wire.response_of(999) is None
    with pytest.raises(UnknownMessage, match="no API has key 999"):
        wire.header_versions(999, 0)
    with pytest.raises(UnknownMessage):
        wire.decode_request(request(999, 0))
    with pytest.raises(UnknownMessage):
        wire.decode_response(i32(7), 999, 0)


def test_a_request():
    header, body = wire.decode_request(request(METADATA, 1, array(text("t"))))
    assert header == {"requestApiKey": 3, "requestApiVersion": 1, "correlationId": 7, "clientId": "me"}
    assert body == {"topics": [{"name": "t"}]}


def test_a_request_with_tags_in_its_header():
    frame = i16(METADATA) + i16(9) + i32(7) + text(None) + tags(t5=b"five")
    header, _ = wire.decode_request(frame + compact_array() + i8(0) * 3 + tags())
    assert header["clientId"] is None
    assert header["_tags"] == {5: b"five"}


def test_controlled_shutdown_v0_has_no_client_id():
    header, body = wire.decode_request(i16(CONTROLLED_SHUTDOWN) + i16(0) + i32(7) + i32(3))
    assert header == {"requestApiKey": 7, "requestApiVersion": 0, "correlationId": 7}
    assert body == {"brokerId": 3}


def test_a_request_whose_body_is_cut_off_still_tells_its_header():
    frame = request(METADATA, 1, array(text("t"))[:-1])
    with pytest.raises(DecodeError) as caught:
        wire.decode_request(frame)
    header, body = caught.value.partial
    assert header["clientId"] == "me"
    assert body == {"topics": [{}]}
    assert (caught.value.path, caught.value.offset) == ("topics[0].name", len(frame) - 2)


def test_a_request_whose_header_is_cut_off():
    with pytest.raises(DecodeError) as caught:
        wire.decode_request(request(METADATA, 1)[:-1])
    assert (caught.value.path, caught.value.offset) == ("clientId", 8)


def test_left_over_bytes_of_a_request():
    with pytest.raises(DecodeError) as caught:
        wire.decode_request(request(METADATA, 0, array() + b"?"))
    assert caught.value.reason is Reason.TRAILING_BYTES
    assert caught.value.partial[1] == {"topics": []}


def test_a_version_of_tomorrow():
    with pytest.raises(UnknownMessage, match="MetadataRequest has no version 99"):
        wire.decode_request(request(METADATA, 99, flexible=True))


def test_a_response():
    header, body = wire.decode_response(i32(7) + array() + array(), METADATA, 0)
    assert header == {"correlationId": 7}
    assert body == {"brokers": [], "topics": []}
    header, body = wire.decode_response(i32(7) + tags(t3=b"!") + i32(0) + i16(0) + tags(), 12, 4)
    assert header == {"correlationId": 7, "_tags": {3: b"!"}}
    assert body == {"throttleTimeMs": 0, "errorCode": 0}


class TestApiVersions:
    """KIP-511: the answer to a version that the broker does not know is of version 0."""

    KEYS = array(i16(18) + i16(0) + i16(3))

    def test_a_refusal_is_read_as_version_0(self):
        for version in (1, 3, 4, 30):
            header, body = wire.decode_response(i32(7) + i16(35) + self.KEYS, API_VERSIONS, version)
            assert header == {"correlationId": 7}
            assert body == {"errorCode": 35, "apiKeys": [{"apiKey": 18, "minVersion": 0, "maxVersion": 3}]}

    def test_brokers_before_24_list_nothing(self):
        _, body = wire.decode_response(i32(7) + i16(35) + array(), API_VERSIONS, 3)
        assert body == {"errorCode": 35, "apiKeys": []}

    def test_an_answer_in_the_version_asked_for(self):
        frame = i32(7) + i16(0) + compact_array(i16(18) + i16(0) + i16(3) + tags()) + i32(0) + tags()
        _, body = wire.decode_response(frame, API_VERSIONS, 3)
        assert body["throttleTimeMs"] == 0
        assert len(body["apiKeys"]) == 1

    def test_error_35_in_the_version_asked_for(self):
        frame = i32(7) + i16(35) + compact_array() + i32(250) + tags()
        assert wire.decode_response(frame, API_VERSIONS, 3)[1]["throttleTimeMs"] == 250
        frame = i32(7) + i16(35) + array() + i32(250)
        assert wire.decode_response(frame, API_VERSIONS, 1)[1]["throttleTimeMs"] == 250

    def test_other_errors_are_no_refusal(self):
        with pytest.raises(DecodeError):
            wire.decode_response(i32(7) + i16(42) + self.KEYS, API_VERSIONS, 3)

    def test_a_response_to_a_version_of_tomorrow_that_is_no_refusal(self):
        with pytest.raises(UnknownMessage):
            wire.decode_response(i32(7) + i16(0) + self.KEYS, API_VERSIONS, 30)


def test_bytes_like_data():
    assert wire.decode("SaslHandshakeRequest", 0, memoryview(text("PLAIN"))) == {"mechanism": "PLAIN"}
    assert wire.decode_request(bytearray(request(API_VERSIONS, 0)))[1] == {}


def test_importing_and_decoding_once_is_fast_because_little_is_loaded():
    code = "import sys, kwsniff.wire as w; w.decode('HeartbeatRequest', 0, bytes(8)); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {
        "asyncio",
        "click",
        "rich",
        "json",
        "difflib",
        "kwsniff.wire.records",
        "kwsniff.wire.embedded",
        "snappy",
    }
    assert not heavy & set(loaded)
