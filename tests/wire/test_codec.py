"""The codec by example: bytes on the left, meaning on the right; what is wrong with bytes and with bodies."""

from __future__ import annotations

import sys
import tracemalloc

import pytest
from wirebytes import array, blob, compact, compact_array, i8, i16, i32, i64, tags, text, uvarint

from kwsniff import wire
from kwsniff.errors import DecodeError, EncodeError, Reason, UnknownMessage
from kwsniff.wire import codec

ZERO = "A" * 22


def refused(name, version, data):
    """The DecodeError of bytes that must not decode."""
    with pytest.raises(DecodeError) as caught:
        wire.decode(name, version, data)
    return caught.value


def unwritable(name, version, body):
    with pytest.raises(EncodeError) as caught:
        wire.encode(name, version, body)
    return caught.value


class TestLayouts:
    """WIRE.md sections 2 and 3, KIP-482."""

    def test_old_encoding(self):
        data = text("g") + array(text("orders") + array(i32(0), i32(7)))
        assert wire.decode("OffsetFetchRequest", 1, data) == {
            "groupId": "g",
            "topics": [{"name": "orders", "partitionIndexes": [0, 7]}],
        }

    def test_flexible_encoding_has_a_tag_section_behind_every_struct(self):
        topic = compact("orders") + compact_array(i32(0), i32(7)) + tags()
        data = compact("g") + compact_array(topic) + i8(1) + tags()
        assert wire.decode("OffsetFetchRequest", 7, data) == {
            "groupId": "g",
            "topics": [{"name": "orders", "partitionIndexes": [0, 7]}],
            "requireStable": True,
        }

    @pytest.mark.parametrize(
        ("version", "data"), [(1, i32(-1)), (9, uvarint(0) + i8(1) + i8(0) + i8(0) + tags())]
    )
    def test_a_null_array(self, version, data):
        body = wire.decode("MetadataRequest", version, data)
        assert body["topics"] is None
        assert wire.encode("MetadataRequest", version, body) == data

    def test_a_uuid_is_the_22_characters_that_kafka_tools_print(self):
        data = compact_array(bytes(range(16)) + compact(None) + tags()) + i8(0) + i8(0) + tags()
        body = wire.decode("MetadataRequest", 12, data)
        assert body["topics"] == [{"topicId": "AAECAwQFBgcICQoLDA0ODw", "name": None}]
        assert wire.encode("MetadataRequest", 12, body) == data

    def test_a_tagged_struct_and_tagged_defaults(self):
        partition = i32(3) + i16(0) + i64(10) + i64(10) + i64(0)
        leader = i32(2) + i32(5) + tags()
        partition += compact_array() + i32(-1) + compact(None) + tags(t1=leader)
        data = (
            i32(0)
            + i16(0)
            + i32(0)
            + compact_array(compact("t") + compact_array(partition) + tags())
            + tags()
        )
        body = wire.decode("FetchResponse", 12, data)
        (read,) = body["responses"][0]["partitions"]
        assert read["currentLeader"] == {"leaderId": 2, "leaderEpoch": 5}
        assert read["divergingEpoch"] == {"epoch": -1, "endOffset": -1}
        assert wire.encode("FetchResponse", 12, body) == data
        assert codec.decode(wire.message("FetchResponse"), 12, data)[0] == body

    def test_defaults_are_fresh_each_time(self):
        data = i16(0) + compact_array() + i32(0) + tags()
        first = wire.decode("ApiVersionsResponse", 3, data)
        first["supportedFeatures"].append("changed")
        assert wire.decode("ApiVersionsResponse", 3, data)["supportedFeatures"] == []

    def test_fields_stand_in_kafkas_order_tagged_ones_included(self):
        data = (
            i32(7)
            + i32(500)
            + i32(1)
            + i32(1)
            + i8(0)
            + i32(0)
            + i32(-1)
            + compact_array() * 2
            + compact("r")
        )
        body = wire.decode("FetchRequest", 12, data + tags(t0=compact("cluster")))
        assert list(body)[:3] == ["clusterId", "replicaId", "maxWaitMs"]
        assert body["clusterId"] == "cluster"

    def test_unknown_tags_stay_with_the_struct_that_carried_them(self):
        data = compact_array(compact("g")) + i8(0) + tags(t12=b"\x00")
        body = wire.decode("DescribeGroupsRequest", 5, data)
        assert body == {"groups": ["g"], "includeAuthorizedOperations": False, "_tags": {12: b"\x00"}}
        data = compact("") + compact_array(
            compact("m") + compact(None) + compact(None) + tags(t7=b"seven", t300=b"")
        )
        body = wire.decode("LeaveGroupRequest", 5, data + tags())
        assert body["members"][0]["_tags"] == {7: b"seven", 300: b""}
        assert wire.encode("LeaveGroupRequest", 5, body) == data + tags()

    def test_a_nullable_struct_is_marked_by_an_int8(self):
        cursor = compact("t") + i32(4) + tags()
        for marked, expected in ((i8(-1), None), (i8(1) + cursor, {"topicName": "t", "partitionIndex": 4})):
            data = compact_array() + i32(10) + marked + tags()
            body = wire.decode("DescribeTopicPartitionsRequest", 0, data)
            assert body["cursor"] == expected
            assert wire.encode("DescribeTopicPartitionsRequest", 0, body) == data

    def test_inside_a_tag_the_mark_is_an_unsigned_varint(self):
        body = {"classicMemberMetadata": {"sessionTimeoutMs": 9, "supportedProtocols": []}}
        marked = wire.encode("ConsumerGroupMemberMetadataValue", 0, body)
        assert marked.endswith(tags(t0=uvarint(1) + i32(9) + compact_array() + tags()))
        nothing = wire.encode("ConsumerGroupMemberMetadataValue", 0, {"classicMemberMetadata": None})
        assert nothing.endswith(tags(t0=uvarint(0)))
        assert wire.decode("ConsumerGroupMemberMetadataValue", 0, nothing)["classicMemberMetadata"] is None

    def test_the_client_id_stays_in_the_old_encoding(self):
        data = i16(3) + i16(9) + i32(1) + text("me") + tags()
        header = {"requestApiKey": 3, "requestApiVersion": 9, "correlationId": 1, "clientId": "me"}
        assert wire.decode("RequestHeader", 2, data) == header
        assert wire.encode("RequestHeader", 2, header) == data

    def test_any_byte_but_zero_is_true(self):
        data = array(text("t")) + i8(0x55)
        assert wire.decode("MetadataRequest", 4, data)["allowAutoTopicCreation"] is True

    def test_a_string_that_is_not_utf8_keeps_its_bytes(self):
        data = text(b"caf\xe9")
        body = wire.decode("DescribeGroupsRequest", 0, array(data))
        assert body == {"groups": ["caf\udce9"]}
        assert wire.encode("DescribeGroupsRequest", 0, body) == array(data)

    def test_a_varint_may_be_longer_than_needed(self):
        data = b"\x81\x80\x00" + i8(0) + tags()
        assert wire.decode("DescribeGroupsRequest", 5, data)["groups"] == []

    def test_a_body_may_begin_anywhere_and_end_before_the_bytes_do(self):
        message = wire.message("HeartbeatRequest")
        body, end = codec.decode(message, 0, b"###" + text("g") + i32(1) + text("m") + b"!", at=3)
        assert (body, end) == ({"groupId": "g", "generationId": 1, "memberId": "m"}, 13)

    def test_former_names(self):
        assert wire.decode("ListOffsetRequest", 0, i32(-1) + array()) == {"replicaId": -1, "topics": []}


class TestDeviatingLayouts:
    def test_offset_commit_v0_of_the_beta_has_a_timestamp(self):  # KAFKA-1841
        partition = i32(0) + i64(42) + i64(1_400_000_000_000) + text("note")
        data = text("g") + array(text("t") + array(partition))
        body = wire.decode("OffsetCommitRequest", 0, data)
        assert body["_variant"] == "0.8.2-beta"
        (read,) = body["topics"][0]["partitions"]
        assert (read["committedOffset"], read["committedMetadata"]) == (42, "note")
        assert wire.encode("OffsetCommitRequest", 0, body) == data

    def test_offset_commit_v0_as_released(self):
        partition = i32(0) + i64(42) + text("note")
        body = wire.decode("OffsetCommitRequest", 0, text("g") + array(text("t") + array(partition)))
        assert "_variant" not in body

    def test_a_consumer_metadata_answer_without_a_coordinator(self):
        assert wire.decode("FindCoordinatorResponse", 0, i16(15)) == {
            "errorCode": 15,
            "_variant": "0.8.2-beta",
        }
        whole = i16(0) + i32(1) + text("h") + i32(9092)
        expected = {"errorCode": 0, "nodeId": 1, "host": "h", "port": 9092}
        assert wire.decode("FindCoordinatorResponse", 0, whole) == expected

    def test_the_first_error_counts_when_no_layout_fits(self):
        error = refused("FindCoordinatorResponse", 0, i16(15) + i16(1))
        assert (error.reason, error.path, error.offset) == (Reason.BODY_TRUNCATED, "nodeId", 2)

    def test_an_unknown_layout_cannot_be_written(self):
        error = unwritable("FindCoordinatorResponse", 0, {"errorCode": 0, "_variant": "9.9"})
        assert error.path == "_variant"


class TestBadBytes:
    PARTITION = i32(5) + i64(0) + i32(100)
    START = i32(-1) + i32(500) + i32(1)

    def test_path_offset_and_what_was_read_so_far(self):
        data = self.START + array(text("a") + array(self.PARTITION), text("b") + array(self.PARTITION[:10]))
        error = refused("FetchRequest", 0, data)
        assert (error.reason, error.path) == (Reason.COUNT_INVALID, "topics[1].partitions")
        assert error.offset == len(data) - 14
        assert error.partial == {
            "replicaId": -1,
            "maxWaitMs": 500,
            "minBytes": 1,
            "topics": [
                {"topic": "a", "partitions": [{"partition": 5, "fetchOffset": 0, "partitionMaxBytes": 100}]},
                {"topic": "b"},
            ],
        }

    def test_the_field_at_which_the_bytes_end_among_fixed_ones(self):
        error = refused("FetchRequest", 0, i32(-1) + i32(500) + b"\x00\x00")
        assert (error.reason, error.path, error.offset) == (Reason.BODY_TRUNCATED, "minBytes", 8)
        assert error.partial == {"replicaId": -1, "maxWaitMs": 500}

    def test_an_element_of_an_array_of_strings(self):
        error = refused("DescribeGroupsRequest", 0, array(text("a"), i16(9) + b"short"))
        assert (error.path, error.offset, error.partial) == ("groups[1]", 7, {"groups": ["a"]})
        assert error.message == "9 bytes announced, 5 left"

    @pytest.mark.parametrize(
        ("reason", "path", "name", "version", "data"),
        [
            (Reason.COUNT_INVALID, "groups", "DescribeGroupsRequest", 0, i32(-2)),
            (Reason.COUNT_INVALID, "groups", "DescribeGroupsRequest", 0, i32(2**31 - 1) + bytes(60)),
            (Reason.COUNT_INVALID, "groups", "DescribeGroupsRequest", 5, uvarint(2**32 - 1) + bytes(60)),
            (Reason.COUNT_INVALID, "topics", "MetadataRequest", 1, i32(-5)),
            (
                Reason.COUNT_INVALID,
                "topics[0].partitionIndexes",
                "OffsetFetchRequest",
                1,
                text("g") + array(text("t") + i32(9)),
            ),
            (Reason.NULL_INVALID, "groups", "DescribeGroupsRequest", 0, i32(-1)),
            (Reason.NULL_INVALID, "groups[0]", "DescribeGroupsRequest", 0, array(text(None))),
            (Reason.NULL_INVALID, "groups[0]", "DescribeGroupsRequest", 5, compact_array(compact(None))),
            (Reason.LENGTH_INVALID, "groupId", "HeartbeatRequest", 0, i16(-7)),
            (Reason.LENGTH_INVALID, "groupId", "HeartbeatRequest", 4, uvarint(40_001) + bytes(50_000)),
            (Reason.BODY_TRUNCATED, "groupId", "HeartbeatRequest", 0, i16(300) + bytes(20)),
            (Reason.BODY_TRUNCATED, "groupId", "HeartbeatRequest", 0, b"\x00"),
            (Reason.LENGTH_INVALID, "authBytes", "SaslAuthenticateRequest", 0, i32(-3)),
            (Reason.VARINT_INVALID, "groups", "DescribeGroupsRequest", 5, b"\x80" * 9),
            (Reason.VARINT_INVALID, "groups", "DescribeGroupsRequest", 5, b"\xff" * 4 + b"\x10"),
        ],
    )
    def test_reasons(self, reason, path, name, version, data):
        error = refused(name, version, data)
        assert (error.reason, error.path) == (reason, path)

    @pytest.mark.parametrize(
        ("reason", "path", "section"),
        [
            (Reason.TAG_INVALID, "_tags", tags(t9=b"", t8=b"")),
            (Reason.TAG_INVALID, "_tags", uvarint(2) + (uvarint(9) + uvarint(0)) * 2),
            (Reason.TAG_INVALID, "clusterId", tags(t0=compact("ab") + b"?")),
            (Reason.TAG_INVALID, "clusterId", uvarint(1) + uvarint(0) + uvarint(2) + compact("abc")),
            (Reason.BODY_TRUNCATED, "_tags", uvarint(1) + uvarint(5) + uvarint(2**31) + b"abc"),
            (Reason.BODY_TRUNCATED, "_tags", uvarint(2**31)),
            (Reason.BODY_TRUNCATED, "_tags", b""),
            (Reason.BODY_TRUNCATED, "clusterId", tags(t0=uvarint(99) + b"ab")),
        ],
    )
    def test_tag_sections(self, reason, path, section):
        data = self.START + i32(1) + i8(0) + i32(0) + i32(-1) + compact_array() * 2 + compact("") + section
        error = refused("FetchRequest", 12, data)
        assert (error.reason, error.path) == (reason, path)
        assert error.partial["rackId"] == ""

    def test_a_null_that_is_not_allowed_is_kept_in_what_was_read(self):
        error = refused("HeartbeatRequest", 0, text(None) + i32(1) + text("m"))
        assert error.partial == {"groupId": None}

    def test_left_over_bytes_come_with_the_body(self):
        error = refused("SaslHandshakeRequest", 1, text("PLAIN") + b"??")
        assert (error.reason, error.path, error.offset) == (Reason.TRAILING_BYTES, "", 7)
        assert error.partial == {"mechanism": "PLAIN"}
        assert str(error) == "2 bytes left over (byte 7)"

    def test_a_huge_count_takes_no_memory(self):
        data = i32(2**30) + bytes(1000)
        tracemalloc.start()
        refused("DescribeGroupsRequest", 0, data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 200_000

    def test_nesting_is_that_of_the_schema(self):
        depth = sys.getrecursionlimit()
        sys.setrecursionlimit(150)
        try:
            for info in wire.messages():
                wire.encode(info.name, info.valid_versions[1], {})
        finally:
            sys.setrecursionlimit(depth)


class TestBodies:
    def test_a_missing_key_is_its_default(self):
        data = wire.encode("FetchRequest", 4, {})
        assert data == i32(-1) + i32(0) + i32(0) + i32(0x7FFFFFFF) + i8(0) + array()

    def test_a_tagged_default_is_left_out_whether_given_or_not(self):
        body = {"topics": [], "replicaState": {"replicaId": -1}, "clusterId": None}
        assert wire.encode("FetchRequest", 15, body) == wire.encode("FetchRequest", 15, {})

    def test_unknown_fields_have_a_near_miss(self):
        error = unwritable("FetchRequest", 12, {"topics": [{"topc": "a"}]})
        assert (error.path, error.message) == ("topics[0].topc", "unknown field (did you mean topic?)")

    def test_a_value_that_the_version_cannot_carry(self):
        error = unwritable("FetchRequest", 4, {"topics": [{"partitions": [{"lastFetchedEpoch": 3}]}]})
        assert error.path == "topics[0].partitions[0].lastFetchedEpoch"
        assert "version 4" in error.message

    def test_unless_it_is_the_default_or_ignorable(self):
        body = {"topics": [{"partitions": [{"lastFetchedEpoch": -1, "logStartOffset": 77}]}], "rackId": "r"}
        assert (
            wire.decode("FetchRequest", 4, wire.encode("FetchRequest", 4, body))["topics"][0]["topic"] == ""
        )

    def test_absent_arrays_and_structs_count_as_default_when_empty(self):
        body = {"coordinatorKeys": []}
        assert wire.encode("FindCoordinatorRequest", 0, body) == text("")
        assert unwritable("FindCoordinatorRequest", 0, {"coordinatorKeys": ["g"]}).path == "coordinatorKeys"
        assert wire.encode("FetchRequest", 14, {"replicaState": {"replicaEpoch": -1}})
        error = unwritable("FetchRequest", 14, {"replicaState": {"replicaEpoch": 4}})
        assert error.path == "replicaState"

    @pytest.mark.parametrize(
        ("path", "name", "version", "body"),
        [
            ("groupId", "HeartbeatRequest", 0, {"groupId": 5}),
            ("groupId", "HeartbeatRequest", 0, {"groupId": None}),
            ("groupId", "HeartbeatRequest", 0, {"groupId": "x" * 32768}),
            ("groupId", "HeartbeatRequest", 0, {"groupId": "\ud800"}),
            ("generationId", "HeartbeatRequest", 0, {"generationId": 2**31}),
            ("generationId", "HeartbeatRequest", 0, {"generationId": "1"}),
            ("generationId", "HeartbeatRequest", 0, {"generationId": 1.0}),
            ("generationId", "HeartbeatRequest", 0, {"generationId": True}),
            ("allowAutoTopicCreation", "MetadataRequest", 4, {"allowAutoTopicCreation": 1}),
            ("topics[1].name", "MetadataRequest", 1, {"topics": [{"name": "a"}, {"name": None}]}),
            ("topics[0].topicId", "MetadataRequest", 12, {"topics": [{"topicId": "short"}]}),
            ("topics[0].topicId", "MetadataRequest", 12, {"topics": [{"topicId": "ä" * 22}]}),
            ("topics", "MetadataRequest", 0, {"topics": None}),
            ("topics", "MetadataRequest", 0, {"topics": "abc"}),
            ("topics[0]", "MetadataRequest", 0, {"topics": ["abc"]}),
            ("authBytes", "SaslAuthenticateRequest", 0, {"authBytes": "text"}),
            ("_tags", "MetadataRequest", 9, {"_tags": {"1": b""}}),
            ("_tags", "MetadataRequest", 9, {"_tags": {-1: b""}}),
            ("_tags", "MetadataRequest", 9, {"_tags": {1: "text"}}),
            ("_tags", "MetadataRequest", 9, {"_tags": [1]}),
            ("_tags", "MetadataRequest", 0, {"_tags": {1: b""}}),
            ("_tags", "FetchRequest", 12, {"_tags": {0: b""}}),
            ("cursor.topicName", "DescribeTopicPartitionsRequest", 0, {"cursor": {"topicName": 1}}),
            ("replicaState.replicaId", "FetchRequest", 15, {"replicaState": {"replicaId": "x"}}),
            ("", "HeartbeatRequest", 0, []),
            ("5", "HeartbeatRequest", 0, {5: 5}),
        ],
    )
    def test_what_cannot_be_written(self, path, name, version, body):
        assert unwritable(name, version, body).path == path

    def test_bytes_like_values_and_tuples_are_fine(self):
        for value in (bytearray(b"ab"), memoryview(b"ab")):
            assert wire.encode("SaslAuthenticateRequest", 0, {"authBytes": value}) == blob(b"ab")
        assert wire.encode("DescribeGroupsRequest", 0, {"groups": ("a",)}) == array(text("a"))

    def test_the_body_is_not_changed(self):
        body = {"topics": [{"topic": "a"}], "_variant": None}
        with pytest.raises(EncodeError):
            wire.encode("FetchRequest", 0, {**body, "_variant": "no"})
        wire.encode("FetchRequest", 4, body)
        assert body == {"topics": [{"topic": "a"}], "_variant": None}


class TestNames:
    def test_an_unknown_message(self):
        with pytest.raises(
            UnknownMessage, match=r"no message is called FetchRequset \(did you mean FetchRequest\?\)"
        ):
            wire.decode("FetchRequset", 0, b"")

    @pytest.mark.parametrize("version", [-1, 19])
    def test_an_unknown_version(self, version):
        for attempt in (
            lambda: wire.decode("FetchRequest", version, b""),
            lambda: wire.encode("FetchRequest", version, {}),
        ):
            with pytest.raises(UnknownMessage, match=r"FetchRequest has no version .* only v0-18"):
                attempt()
