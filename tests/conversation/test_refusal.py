"""Answers that no broker gave: they hold what Kafka's brokers answer, and other implementations read them.

Kafka's side of it is getErrorResponse of each request class (clients/.../common/requests).
"""

from __future__ import annotations

import struct
import sys
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader
from talk import BROKER, CLIENT
from talk import request as request_bytes
from talk import response as response_bytes

from kwsniff import wire
from kwsniff.conversation import refusal
from kwsniff.conversation.bodies import decode_body, decode_token
from kwsniff.conversation.headers import maybe_request_header, response_body_at
from kwsniff.errors import EncodeError, UnknownMessage
from kwsniff.model import ConnectionId, Frame, Protocol, Side
from kwsniff.wire import schema, walk
from kwsniff.wire.schema import Field

sys.path.append(str(Path(__file__).parents[1] / "wire"))

from made_bodies import Maker
from test_oracle_kafka_python import CLASSES as KAFKA_PYTHON
from test_oracle_kio import CLASSES as KIO

CONN = ConnectionId(CLIENT, BROKER)
ID = 4711
UNKNOWN_TOPIC, NOT_LEADER, NOT_COORDINATOR = 3, 6, 16
PARTITION_ERROR, OTHER_ERROR = NOT_LEADER, NOT_COORDINATOR


def asked(api: int, version: int, body: dict[str, Any] | bytes) -> Frame:
    raw = request_bytes(api, version, ID, body)[4:]
    header = maybe_request_header(raw)
    assert header is not None
    return Frame(0, CONN, Side.REQUEST, raw, api, version, ID, "c", header.body_at, decode_body)


def answered(api: int, version: int, raw: bytes) -> Frame:
    at = response_body_at(raw, api, version) or 4
    return Frame(0, CONN, Side.RESPONSE, raw, api, version, ID, "c", at, decode_body)


def refused(api: int, version: int, body: dict[str, Any], code: int) -> dict[str, Any] | None:
    """The body that a client gets, decoded; its header is checked."""
    frame = refusal.answer(asked(api, version, body), code)
    if frame is None:
        return None
    header, read = wire.decode_response(frame, api, version)
    assert header["correlationId"] == ID
    return read


class FullMaker(Maker):
    """Every array with two elements, nothing null, no zero uuid."""

    def _value(self, field: Field, version: int, flexible: bool) -> Any:
        if field.array:
            return [self._one(field, version, flexible) for _ in range(2)]
        return self._one(field, version, flexible)

    def _one(self, field: Field, version: int, flexible: bool) -> Any:
        if field.type == "uuid":
            return urlsafe_b64encode(self.random.randbytes(16))[:22].decode()
        return super()._one(field, version, flexible)


EVERY = [
    (message, version)
    for message in schema.messages()
    if message.type == "request"
    for version in range(message.versions.min, message.versions.max + 1)
]
NO_ROOM = {("DescribeLogDirsRequest", version) for version in (0, 1, 2)}
"""They have errors for directories, which the request does not name."""


def full(message: schema.Message, version: int) -> dict[str, Any]:
    body = FullMaker(Random(f"{message.name} {version}"), tame=True).body(message, version)
    if message.name == "ProduceRequest":
        body["acks"] = -1
    return body


def answers(code: int) -> Iterator[tuple[schema.Message, int, bytes, int]]:
    """(response, version, its frame, where the body begins) for a full request of every API and version."""
    for message, version in EVERY:
        assert message.api_key is not None
        response = wire.response_of(message.api_key)
        assert response is not None
        frame = refusal.answer(asked(message.api_key, version, full(message, version)), code)
        if frame is not None:
            yield response, version, frame, response_body_at(frame, message.api_key, version) or 0


class TestEveryApiAndVersion:
    @pytest.mark.parametrize("code", [PARTITION_ERROR, OTHER_ERROR])
    def test_there_is_an_answer_with_the_code_and_no_other(self, code: int) -> None:
        for message, version in EVERY:
            assert message.api_key is not None
            body = refused(message.api_key, version, full(message, version), code)
            assert (body is None) == ((message.name, version) in NO_ROOM)
            if body is None:
                continue
            name = message.name.replace("Request", "Response")
            assert {found.code for found in walk.errors(name, version, body)} == {code}, (name, version)

    @pytest.mark.parametrize("code", [PARTITION_ERROR, OTHER_ERROR])
    def test_kio_reads_it_to_the_end(self, code: int) -> None:
        read = 0
        classes = {(name, int(cls.__version__)): cls for name, some in KIO.items() for cls in some}
        for message, version, frame, at in answers(code):
            if message.name == "CreateDelegationTokenResponse":
                continue  # it does not take the -1 of Kafka's for a time
            if (message.name, version) in classes:
                _, size = entity_reader(classes[message.name, version])(frame, at)
                assert at + size == len(frame), (message.name, version)
                read += 1
        assert read > 290

    def test_kafka_python_reads_and_writes_the_same(self) -> None:
        read = 0
        for message, version, frame, at in answers(OTHER_ERROR):
            cls = KAFKA_PYTHON.get(message.name)
            if cls is None or not cls.valid_versions[0] <= version <= cls.valid_versions[1]:
                continue
            if not cls.min_version <= version <= cls.max_version or message.api_key == 18:
                continue  # it reads any error of ApiVersions as a body of version 0
            theirs = cls.decode(frame[at:], version=version)
            assert code_in(theirs.to_dict(json=False)) == {OTHER_ERROR}, (message.name, version)
            theirs._header = None  # what one of its writers looks for, and its readers do not set
            assert theirs.encode() == frame[at:], (message.name, version)
            read += 1
        assert read > 200

    @pytest.mark.parametrize("code", [PARTITION_ERROR, OTHER_ERROR])
    def test_partitions_are_those_of_the_request(self, code: int) -> None:
        """For each API that has errors for partitions: the same topics and partitions, in order."""
        seen = set()
        for message, version in EVERY:
            places = PARTITIONS.get(message.name.removesuffix("Request"))
            if places is None:
                continue
            request = full(message, version)
            wanted = [found for place in places for found in partitions(request, place)]
            body = refused(message.api_key or 0, version, request, code)
            assert body is not None
            name = message.name.replace("Request", "Response")
            found = [
                (error.topic or error.topic_id, error.partition)
                for error in walk.errors(name, version, body)
                if error.partition is not None and "acknowledge" not in error.path
            ]
            assert found == [(topic or None, index) for topic, index in wanted], (name, version)
            assert found
            seen.add(message.name)
        assert len(seen) == len(PARTITIONS)

    def test_bodies_that_are_anything_never_raise(self) -> None:
        for message, version in EVERY:
            for round_ in range(3):
                body = Maker(Random(f"{message.name} {version} {round_}")).body(message, version)
                refusal.answer(asked(message.api_key or 0, version, body), OTHER_ERROR)


@given(st.sampled_from(EVERY), st.integers(), st.integers(-1, 2**15 - 1).filter(bool))
@settings(max_examples=300, deadline=None)
def test_any_request_any_code(of: tuple[schema.Message, int], seed: int, code: int) -> None:
    """An answer holds the code, or there is none; it never says that all went well."""
    message, version = of
    body = Maker(Random(seed)).body(message, version)
    answer = refused(message.api_key or 0, version, body, code)
    if answer is not None:
        name = message.name.replace("Request", "Response")
        assert {error.code for error in walk.errors(name, version, answer)} == {code}


def code_in(value: Any) -> set[int]:
    """Error codes but 0 in a body of kafka-python."""
    if isinstance(value, dict):
        own = {item for key, item in value.items() if key.endswith("error_code") and item}
        return own.union(*(code_in(item) for item in value.values()))
    return set().union(*(code_in(item) for item in value)) if isinstance(value, list) else set()


PARTITIONS: dict[str, list[tuple[str, ...]]] = {
    "Produce": [("topicData", "partitionData", "index")],
    "Fetch": [("topics", "partitions", "partition")],
    "ListOffsets": [("topics", "partitions", "partitionIndex")],
    "LeaderAndIsr": [
        ("ungroupedPartitionStates", "partitionIndex"),
        ("topicStates", "partitionStates", "partitionIndex"),
    ],
    "StopReplica": [
        ("ungroupedPartitions", "partitionIndex"),
        ("topics", "partitionIndexes"),
        ("topicStates", "partitionStates", "partitionIndex"),
    ],
    "OffsetCommit": [("topics", "partitions", "partitionIndex")],
    "OffsetFetch": [("topics", "partitionIndexes"), ("groups", "topics", "partitionIndexes")],
    "DeleteRecords": [("topics", "partitions", "partitionIndex")],
    "OffsetForLeaderEpoch": [("topics", "partitions", "partition")],
    "AddPartitionsToTxn": [("v3AndBelowTopics", "partitions"), ("transactions", "topics", "partitions")],
    "WriteTxnMarkers": [("markers", "topics", "partitionIndexes")],
    "TxnOffsetCommit": [("topics", "partitions", "partitionIndex")],
    "AlterReplicaLogDirs": [("dirs", "topics", "partitions")],
    "ElectLeaders": [("topicPartitions", "partitions")],
    "AlterPartitionReassignments": [("topics", "partitions", "partitionIndex")],
    "OffsetDelete": [("topics", "partitions", "partitionIndex")],
    "Vote": [("topics", "partitions", "partitionIndex")],
    "DescribeQuorum": [("topics", "partitions", "partitionIndex")],
    "AlterPartition": [("topics", "partitions", "partitionIndex")],
    "DescribeProducers": [("topics", "partitionIndexes")],
    "AssignReplicasToDirs": [("directories", "topics", "partitions", "partitionIndex")],
    "ShareFetch": [("topics", "partitions", "partitionIndex")],
    "ShareAcknowledge": [("topics", "partitions", "partitionIndex")],
    "ReadShareGroupState": [("topics", "partitions", "partition")],
    "DescribeShareGroupOffsets": [("groups", "topics", "partitions")],
    "AlterShareGroupOffsets": [("topics", "partitions", "partitionIndex")],
}
"""Where requests name partitions; read from Kafka's definitions."""

TOPIC_KEYS = ("topicId", "name", "topic", "topicName")
ZERO = "A" * 22


def partitions(
    value: Any, path: tuple[str, ...], topic: str | None = None
) -> Iterator[tuple[str | None, int]]:
    if isinstance(value, int):
        yield topic, value
    elif isinstance(value, list):
        for item in value:
            yield from partitions(item, path, topic)
    elif isinstance(value, dict) and path[0] in value:
        named = [value[key] for key in TOPIC_KEYS if key in value and value[key] not in ("", ZERO)]
        yield from partitions(value[path[0]], path[1:], named[0] if named else topic)


FETCHED = {"topics": [{"topic": "t", "partitions": [{"partition": 0, "fetchOffset": 3}]}]}


class TestAsBrokersAnswer:
    def test_produce(self) -> None:
        partition = {"index": 4, "records": None}
        body = {
            "acks": 1,
            "timeoutMs": 1,
            "topicData": [{"name": "orders", "partitionData": [partition, {**partition, "index": 2}]}],
        }
        part = {"baseOffset": -1, "logAppendTimeMs": -1, "logStartOffset": -1, "errorCode": NOT_LEADER}
        part |= {"recordErrors": [], "errorMessage": None}
        expected = [{"index": 4, **part}, {"index": 2, **part}]
        answer = refused(0, 8, body, NOT_LEADER)
        assert answer == {
            "responses": [{"name": "orders", "partitionResponses": expected}],
            "throttleTimeMs": 0,
        }

    @pytest.mark.parametrize("version", range(14))
    def test_produce_with_acks_0_has_no_answer(self, version: int) -> None:
        message = wire.request_of(0)
        assert message is not None
        body = {**full(message, version), "acks": 0}
        assert refusal.answer(asked(0, version, body), NOT_LEADER) is None
        assert refusal.answer(asked(0, version, {**body, "acks": 1}), NOT_LEADER) is not None

    def test_produce_to_a_topic_id(self) -> None:
        """v13: header with a tag section; topic id, partition, error in 2 bytes; by hand from the schema."""
        topic_id = "AAAAAAAAAAAAAAAAAAAAAQ"
        topic = {"topicId": topic_id, "partitionData": [{"index": 1, "records": b""}]}
        frame = refusal.answer(asked(0, 13, {"acks": -1, "topicData": [topic]}), 100)
        partition = struct.pack(">ihqqq", 1, 100, -1, -1, -1) + b"\x01" + b"\x00" + b"\x00"
        entry = bytes(15) + b"\x01" + b"\x02" + partition + b"\x00"
        assert frame == struct.pack(">i", ID) + b"\x00" + b"\x02" + entry + bytes(4) + b"\x00"

    @pytest.mark.parametrize("version", range(13))
    def test_fetch_says_it_of_the_partition(self, version: int) -> None:
        more = {"sessionId": 9, "sessionEpoch": 4} if version >= 7 else {}
        if version >= 7:
            more["forgottenTopicsData"] = [{"topic": "old", "partitions": [8]}]
        answer = refused(1, version, {**FETCHED, **more}, NOT_LEADER)
        assert answer is not None
        assert answer.get("errorCode", 0) == 0
        assert answer.get("sessionId", 0) == 0  # the broker's session did not see it: begin anew
        ((topic,), (partition,)) = answer["responses"], answer["responses"][0]["partitions"]
        assert topic["topic"] == "t"
        assert (partition["partitionIndex"], partition["errorCode"]) == (0, NOT_LEADER)
        none = {
            "highWatermark": -1,
            "lastStableOffset": -1,
            "logStartOffset": -1,
            "preferredReadReplica": -1,
            "records": b"",
        }
        assert {key: partition[key] for key in none if key in partition} == {
            key: value for key, value in none.items() if key in partition
        }

    def test_what_is_of_a_fetch_session_is_said_at_the_top(self) -> None:
        answer = refused(1, 11, FETCHED, 70)
        assert answer is not None
        assert answer["errorCode"] == 70

    def test_a_fetch_that_names_nothing_is_refused_as_a_whole(self) -> None:
        """As in an incremental session; before version 7 there is no place for it."""
        for version in range(7):
            assert refused(1, version, {}, NOT_LEADER) is None
        for version in range(7, 19):
            answer = refused(1, version, {"sessionId": 9, "sessionEpoch": 4}, NOT_LEADER)
            assert answer is not None
            assert (answer["errorCode"], answer["responses"]) == (NOT_LEADER, [])

    @pytest.mark.parametrize("version", range(12))
    def test_list_offsets(self, version: int) -> None:
        topic = {"name": "t", "partitions": [{"partitionIndex": 5, "timestamp": -1}]}
        answer = refused(2, version, {"replicaId": -1, "topics": [topic]}, UNKNOWN_TOPIC)
        assert answer is not None
        (partition,) = answer["topics"][0]["partitions"]
        none = {"oldStyleOffsets": []} if version == 0 else {"timestamp": -1, "offset": -1}
        if version >= 4:
            none["leaderEpoch"] = -1
        assert partition == {"partitionIndex": 5, "errorCode": UNKNOWN_TOPIC, **none}

    @pytest.mark.parametrize("version", range(14))
    def test_metadata_says_it_of_topics(self, version: int) -> None:
        answer = refused(3, version, {"topics": [{"name": "a"}, {"name": "b"}]}, 5)
        assert answer is not None
        assert [(topic["name"], topic["errorCode"], topic["partitions"]) for topic in answer["topics"]] == [
            ("a", 5, []),
            ("b", 5, []),
        ]
        assert answer["brokers"] == []
        assert answer.get("controllerId", -1) == -1
        assert answer.get("errorCode", 0) == 0

    @pytest.mark.parametrize(("version", "name"), [(10, ""), (11, ""), (12, None), (13, None)])
    def test_metadata_of_a_topic_id(self, version: int, name: str | None) -> None:
        """Before version 12 the answer cannot carry a null name; the broker writes an empty one."""
        topic_id = "AAAAAAAAAAAAAAAAAAAAAQ"
        answer = refused(3, version, {"topics": [{"topicId": topic_id, "name": None}]}, 100)
        assert answer is not None
        (topic,) = answer["topics"]
        assert (topic["name"], topic["topicId"], topic["errorCode"]) == (name, topic_id, 100)

    def test_metadata_of_all_topics_has_a_place_from_13_on(self) -> None:
        for version in range(14):
            answer = refused(3, version, {"topics": [] if version == 0 else None}, 129)
            assert (answer is None) == (version < 13)
        assert answer is not None
        assert answer["errorCode"] == 129

    @pytest.mark.parametrize("version", range(11))
    def test_offset_fetch(self, version: int) -> None:
        topic = {"name": "t"} if version < 10 else {"topicId": "AAAAAAAAAAAAAAAAAAAAAQ"}
        topics = [{**topic, "partitionIndexes": [7]}]
        body: dict[str, Any] = {"groupId": "g", "topics": topics}
        if version >= 8:
            body = {"groups": [{"groupId": "g", "topics": topics}, {"groupId": "all", "topics": None}]}
        answer = refused(9, version, body, NOT_COORDINATOR)
        assert answer is not None
        groups = answer["groups"] if version >= 8 else [answer]
        (partition,) = groups[0]["topics"][0]["partitions"]
        assert (
            partition.items()
            >= {
                "partitionIndex": 7,
                "committedOffset": -1,
                "metadata": "",
                "errorCode": NOT_COORDINATOR,
            }.items()
        )
        assert partition.get("committedLeaderEpoch", -1) == -1
        if version >= 2:
            assert groups[0]["errorCode"] == NOT_COORDINATOR
        if version >= 8:
            assert groups[1] == {"groupId": "all", "topics": [], "errorCode": NOT_COORDINATOR}

    def test_offset_fetch_of_all_partitions(self) -> None:
        answer = refused(9, 5, {"groupId": "g", "topics": None}, NOT_COORDINATOR)
        assert answer == {"throttleTimeMs": 0, "topics": [], "errorCode": NOT_COORDINATOR}

    @pytest.mark.parametrize("version", range(4))
    def test_find_coordinator(self, version: int) -> None:
        answer = refused(10, version, {"key": "g"}, 15)
        assert answer is not None
        none = {"nodeId": -1, "host": "", "port": -1, "errorCode": 15}
        assert answer.items() >= none.items()

    @pytest.mark.parametrize("version", range(4, 7))
    def test_find_coordinators(self, version: int) -> None:
        answer = refused(10, version, {"keyType": 0, "coordinatorKeys": ["g", "h"]}, 15)
        none = {"nodeId": -1, "host": "", "port": -1, "errorCode": 15, "errorMessage": None}
        assert answer == {"throttleTimeMs": 0, "coordinators": [{"key": "g", **none}, {"key": "h", **none}]}

    @pytest.mark.parametrize("version", range(10))
    def test_join_group(self, version: int) -> None:
        request = {"groupId": "g", "memberId": "m", "protocolType": "consumer", "protocols": []}
        answer = refused(11, version, request, 25)
        assert answer is not None
        name = None if version >= 7 else ""
        none = {"errorCode": 25, "generationId": -1, "protocolName": name, "leader": "", "memberId": ""}
        assert answer.items() >= {**none, "members": []}.items()

    def test_leave_group(self) -> None:
        assert refused(13, 0, {"groupId": "g", "memberId": "m"}, 25) == {"errorCode": 25}
        members = [{"memberId": "m"}, {"memberId": "n", "groupInstanceId": "i"}]
        assert refused(13, 3, {"groupId": "g", "members": members}, 25) == {
            "throttleTimeMs": 0,
            "errorCode": 25,
            "members": [
                {"memberId": "m", "groupInstanceId": None, "errorCode": 25},
                {"memberId": "n", "groupInstanceId": "i", "errorCode": 25},
            ],
        }

    def test_sync_group_and_heartbeat(self) -> None:
        assert refused(14, 0, {"groupId": "g"}, 27) == {"errorCode": 27, "assignment": b""}
        assert refused(12, 0, {"groupId": "g"}, 27) == {"errorCode": 27}

    def test_describe_groups(self) -> None:
        answer = refused(15, 0, {"groups": ["a", "b"]}, 30)
        none = {"groupState": "", "protocolType": "", "protocolData": "", "members": []}
        assert answer == {"groups": [{"errorCode": 30, "groupId": group, **none} for group in "ab"]}

    def test_create_topics(self) -> None:
        config = {"name": "retention.ms", "value": "1"}
        request = {"topics": [{"name": "t", "numPartitions": 1, "replicationFactor": 1, "configs": [config]}]}
        answer = refused(19, 7, request, 36)
        assert answer is not None
        (topic,) = answer["topics"]
        assert topic == {
            "name": "t",
            "topicId": ZERO,
            "errorCode": 36,
            "errorMessage": None,
            "topicConfigErrorCode": 0,
            "numPartitions": -1,
            "replicationFactor": -1,
            "configs": [],
        }

    def test_delete_topics(self) -> None:
        answer = refused(20, 5, {"topicNames": ["a", "b"]}, 73)
        assert answer is not None
        assert [(topic["name"], topic["errorCode"]) for topic in answer["responses"]] == [
            ("a", 73),
            ("b", 73),
        ]
        topic_id = "AAAAAAAAAAAAAAAAAAAAAQ"
        answer = refused(20, 6, {"topics": [{"name": None, "topicId": topic_id}]}, 100)
        assert answer is not None
        (topic,) = answer["responses"]
        assert topic == {"name": None, "topicId": topic_id, "errorCode": 100, "errorMessage": None}

    def test_delete_records(self) -> None:
        topic = {"name": "t", "partitions": [{"partitionIndex": 1, "offset": 5}]}
        answer = refused(21, 0, {"topics": [topic]}, NOT_LEADER)
        partition = {"partitionIndex": 1, "lowWatermark": -1, "errorCode": NOT_LEADER}
        assert answer == {"throttleTimeMs": 0, "topics": [{"name": "t", "partitions": [partition]}]}

    def test_init_producer_id(self) -> None:
        answer = refused(22, 0, {"transactionalId": "x"}, 53)
        assert answer == {"throttleTimeMs": 0, "errorCode": 53, "producerId": -1, "producerEpoch": -1}

    def test_offset_for_leader_epoch(self) -> None:
        topic = {"topic": "t", "partitions": [{"partition": 1, "leaderEpoch": 5}]}
        answer = refused(23, 4, {"topics": [topic]}, 74)
        partition = {"errorCode": 74, "partition": 1, "leaderEpoch": -1, "endOffset": -1}
        assert answer == {"throttleTimeMs": 0, "topics": [{"topic": "t", "partitions": [partition]}]}

    def test_add_partitions_to_txn(self) -> None:
        topics = [{"name": "t", "partitions": [1, 2]}]
        result = {
            "name": "t",
            "resultsByPartition": [
                {"partitionIndex": 1, "partitionErrorCode": 48},
                {"partitionIndex": 2, "partitionErrorCode": 48},
            ],
        }
        request = {"v3AndBelowTransactionalId": "x", "v3AndBelowTopics": topics}
        assert refused(24, 3, request, 48) == {"throttleTimeMs": 0, "resultsByTopicV3AndBelow": [result]}
        answer = refused(24, 4, {"transactions": [{"transactionalId": "x", "topics": topics}]}, 48)
        by_transaction = [{"transactionalId": "x", "topicResults": [result]}]
        assert answer == {"throttleTimeMs": 0, "errorCode": 48, "resultsByTransaction": by_transaction}

    def test_write_txn_markers(self) -> None:
        marker = {"producerId": 77, "topics": [{"name": "t", "partitionIndexes": [1]}]}
        result = {"name": "t", "partitions": [{"partitionIndex": 1, "errorCode": 47}]}
        answer = refused(27, 0, {"markers": [marker]}, 47)
        assert answer == {"markers": [{"producerId": 77, "topics": [result]}]}

    def test_acls_are_answered_in_order(self) -> None:
        one = {"errorCode": 31, "errorMessage": None}
        creations = [{"resourceName": name, "principal": "User:a", "host": "*"} for name in "ab"]
        assert refused(30, 1, {"creations": creations}, 31) == {"throttleTimeMs": 0, "results": [one, one]}
        answer = refused(31, 1, {"filters": [{"resourceNameFilter": "a"}]}, 31)
        assert answer == {"throttleTimeMs": 0, "filterResults": [{**one, "matchingAcls": []}]}

    @pytest.mark.parametrize(("api", "array"), [(32, "results"), (33, "responses"), (44, "responses")])
    def test_configs_of_resources(self, api: int, array: str) -> None:
        answer = refused(api, 0, {"resources": [{"resourceType": 2, "resourceName": "t"}]}, 40)
        assert answer is not None
        (resource,) = answer[array]
        resource.pop("configs", None)
        wanted = {"errorCode": 40, "errorMessage": None, "resourceType": 2, "resourceName": "t"}
        assert resource == wanted

    def test_replicas_in_directories_are_answered_by_topic(self) -> None:
        dirs = [
            {"path": "/a", "topics": [{"name": "t", "partitions": [0]}]},
            {"path": "/b", "topics": [{"name": "u", "partitions": [1]}]},
        ]
        answer = refused(34, 0, {"dirs": dirs}, 57)
        assert answer == {
            "throttleTimeMs": 0,
            "results": [
                {"topicName": "t", "partitions": [{"partitionIndex": 0, "errorCode": 57}]},
                {"topicName": "u", "partitions": [{"partitionIndex": 1, "errorCode": 57}]},
            ],
        }

    def test_quotas_are_answered_with_their_entities(self) -> None:
        entity = [{"entityType": "user", "entityName": None}, {"entityType": "client-id", "entityName": "c"}]
        op = {"key": "producer_byte_rate", "value": 1.0, "remove": False}
        answer = refused(49, 0, {"entries": [{"entity": entity, "ops": [op]}], "validateOnly": False}, 42)
        entry = {"errorCode": 42, "errorMessage": None, "entity": entity}
        assert answer == {"throttleTimeMs": 0, "entries": [entry]}
        answer = refused(48, 0, {"components": [], "strict": True}, 42)
        assert answer == {"throttleTimeMs": 0, "errorCode": 42, "errorMessage": None, "entries": None}

    def test_scram_users_are_answered_once(self) -> None:
        gone, new = {"name": "ann", "mechanism": 1}, {"name": "bob", "mechanism": 1, "iterations": 4096}
        request = {"deletions": [gone, {**gone, "mechanism": 2}], "upsertions": [new, {**new, "name": "ann"}]}
        answer = refused(51, 0, request, 91)
        results = [{"user": user, "errorCode": 91, "errorMessage": None} for user in ("ann", "bob")]
        assert answer == {"throttleTimeMs": 0, "results": results}
        answer = refused(50, 0, {"users": [{"name": "ann"}]}, 91)
        assert answer is not None
        assert (answer["errorCode"], answer["results"][0]["user"]) == (91, "ann")

    def test_feature_updates(self) -> None:
        update = {"feature": "metadata.version", "maxVersionLevel": 7}
        answer = refused(57, 1, {"featureUpdates": [update]}, 95)
        assert answer is not None
        assert (answer["errorCode"], answer["results"]) == (
            95,
            [{"feature": "metadata.version", "errorCode": 95, "errorMessage": None}],
        )

    def test_delegation_tokens(self) -> None:
        answer = refused(38, 3, {"renewers": []}, 61)
        assert answer is not None
        times = ("issueTimestampMs", "expiryTimestampMs", "maxTimestampMs")
        assert [answer[key] for key in times] == [-1, -1, -1]
        assert (answer["principalType"], answer["principalName"]) == ("User", "ANONYMOUS")
        assert (answer["errorCode"], answer["hmac"]) == (61, b"")

    def test_transactions_and_groups_by_their_ids(self) -> None:
        answer = refused(65, 0, {"transactionalIds": ["x", "y"]}, 105)
        assert answer is not None
        assert [(t["transactionalId"], t["errorCode"]) for t in answer["transactionStates"]] == [
            ("x", 105),
            ("y", 105),
        ]
        for api in (69, 77, 89):
            answer = refused(api, 0, {"groupIds": ["g"]}, 69)
            assert answer is not None
            assert [(group["groupId"], group["errorCode"]) for group in answer["groups"]] == [("g", 69)]
        answer = refused(42, 0, {"groupsNames": ["g"]}, 68)
        assert answer == {"throttleTimeMs": 0, "results": [{"groupId": "g", "errorCode": 68}]}

    def test_share_fetch_names_no_leader(self) -> None:
        """Node 0 would be taken for the leader: the broker says -1."""
        topic = {"topicId": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": [{"partitionIndex": 3}]}
        answer = refused(78, 1, {"groupId": "g", "memberId": "m", "topics": [topic]}, NOT_LEADER)
        assert answer is not None
        (partition,) = answer["responses"][0]["partitions"]
        assert partition["currentLeader"] == {"leaderId": -1, "leaderEpoch": -1}
        assert (partition["errorCode"], partition["acknowledgeErrorCode"]) == (NOT_LEADER, NOT_LEADER)
        assert answer["nodeEndpoints"] == []

    def test_election_of_all_leaders(self) -> None:
        assert refused(43, 0, {"topicPartitions": None}, 41) is None
        answer = refused(43, 1, {"topicPartitions": None}, 41)
        assert answer == {"throttleTimeMs": 0, "errorCode": 41, "replicaElectionResults": []}

    def test_controlled_shutdown_of_old_has_the_oldest_headers(self) -> None:
        raw = struct.pack(">hhii", 7, 0, ID, 1)
        frame = Frame(0, CONN, Side.REQUEST, raw, 7, 0, ID, None, 8, decode_body)
        assert refusal.answer(frame, 41) == struct.pack(">ihi", ID, 41, 0)


class TestApiVersions:
    def test_another_error_is_in_the_version_that_was_asked(self) -> None:
        for version in range(5):
            answer = refused(18, version, {}, 42)
            assert answer is not None
            assert answer["errorCode"] == 42
            assert ("throttleTimeMs" in answer) == (version >= 1)

    @pytest.mark.parametrize(("version", "highest"), [(0, 0), (1, 0), (4, 3), (5, 4), (99, 4)])
    def test_unsupported_version_is_the_fallback_of_kip_511(self, version: int, highest: int) -> None:
        """A version 0 body behind a version 0 header, which lists ApiVersions in lower versions."""
        raw = request_bytes(18, version, ID, b"\x02x\x02y\x00" if version >= 3 else b"")[4:]
        header = maybe_request_header(raw)
        assert header is not None
        frame = Frame(0, CONN, Side.REQUEST, raw, 18, version, ID, "c", header.body_at, decode_body)
        expected = struct.pack(">ihihhh", ID, 35, 1, 18, 0, highest)
        assert refusal.answer(frame, 35) == expected


class TestNoAnswer:
    def test_unknown_apis_and_versions(self) -> None:
        assert refusal.answer(asked(999, 0, b""), 42) is None
        assert refusal.answer(asked(3, 99, b""), 42) is None

    def test_bare_sasl_tokens(self) -> None:
        token = Frame(
            0, CONN, Side.REQUEST, b"token", -1, None, None, None, 0, decode_token, protocol=Protocol.SASL
        )
        assert refusal.answer(token, 58) is None

    def test_a_request_about_nothing(self) -> None:
        for api, version, body in (
            (0, 3, {"acks": 1, "topicData": []}),
            (2, 1, {"topics": []}),
            (8, 2, {"groupId": "g", "topics": []}),
            (32, 0, {"resources": []}),
        ):
            assert refused(api, version, body, 42) is None

    def test_a_body_that_cannot_be_read_is_refused_as_a_whole(self) -> None:
        assert refusal.answer(asked(12, 0, b"\xff"), 42) == struct.pack(">ih", ID, 42)
        assert refusal.answer(asked(2, 1, b"\xff"), 42) is None


class TestVariants:
    def test_a_request_of_a_deviating_layout_is_mirrored(self) -> None:
        """OffsetCommit v0 of 0.8.2-beta carries a timestamp more (KAFKA-1841)."""
        partition = struct.pack(">iqqh", 3, 10, 1234, 0)
        raw = struct.pack(">h1si", 1, b"g", 1) + struct.pack(">h1si", 1, b"t", 1) + partition
        frame = asked(8, 0, raw)
        assert frame.body is not None
        assert frame.body["_variant"] == "0.8.2-beta"
        expected = struct.pack(">ii", ID, 1) + struct.pack(">h1siih", 1, b"t", 1, 3, 16)
        assert refusal.answer(frame, 16) == expected

    def test_its_answer_has_the_layout_of_the_same_releases(self) -> None:
        variants = [
            (message, variant)
            for message, _ in EVERY
            for variant in message.variants
            for other in wire.response_of(message.api_key or 0).variants  # type: ignore[union-attr]
            if other.variant == variant.variant
        ]
        assert variants
        for message, variant in variants:
            version = variant.versions.min
            body = Maker(Random(1), tame=True).body(variant, version) | {"_variant": variant.variant}
            raw = wire.encode(message.name, version, body)
            frame = asked(message.api_key or 0, version, raw)
            if frame.body is None or frame.body.get("_variant") != variant.variant:
                continue
            answer = refusal.answer(frame, 42)
            assert answer is not None
            _, read = wire.decode_response(answer, message.api_key or 0, version)
            assert (read["errorCode"], read["_variant"]) == (42, variant.variant)


class TestRespond:
    def test_a_given_body(self) -> None:
        frame = refusal.respond(asked(12, 4, {"groupId": "g"}), {"errorCode": 27})
        assert frame == struct.pack(">i", ID) + b"\x00" + struct.pack(">ih", 0, 27) + b"\x00"

    def test_what_cannot_be_written_says_where(self) -> None:
        with pytest.raises(EncodeError, match="errorCod: unknown field"):
            refusal.respond(asked(12, 4, {"groupId": "g"}), {"errorCod": 27})

    def test_an_unknown_api(self) -> None:
        with pytest.raises(UnknownMessage):
            refusal.respond(asked(999, 0, b""), {})


class TestReencode:
    def test_a_request_keeps_its_header(self) -> None:
        raw = request_bytes(12, 3, ID, {"groupId": "g", "memberId": "m"}, client_id="one")[4:]
        changed = request_bytes(12, 3, ID, {"groupId": "h", "memberId": "m"}, client_id="one")[4:]
        header = maybe_request_header(raw)
        assert header is not None
        frame = Frame(0, CONN, Side.REQUEST, raw, 12, 3, ID, "one", header.body_at, decode_body)
        assert refusal.reencode(frame, {**(frame.body or {}), "groupId": "h"}) == changed

    def test_unknown_tags_of_the_header_stay(self) -> None:
        raw = struct.pack(">i", ID) + b"\x01\x09\x02hi" + struct.pack(">ih", 0, 0) + b"\x00"
        frame = answered(12, 4, raw)
        assert frame.body is not None
        assert refusal.reencode(frame, frame.body) == raw
        assert refusal.reencode(frame, {**frame.body, "errorCode": 27}) == raw[:-2] + b"\x1b\x00"

    def test_bytes_behind_the_body_stay(self) -> None:
        raw = response_bytes(12, 0, ID, struct.pack(">h", 0) + b"more")[4:]
        frame = answered(12, 0, raw)
        assert refusal.reencode(frame, {"errorCode": 27}) == struct.pack(">ih", ID, 27) + b"more"
        asking = asked(12, 0, wire.encode("HeartbeatRequest", 0, {"groupId": "g"}) + b"more")
        assert refusal.reencode(asking, asking.body or {}) == asking.raw

    def test_the_fallback_of_api_versions_stays_one(self) -> None:
        raw = struct.pack(">ihihhh", ID, 35, 1, 18, 0, 3)
        frame = answered(18, 4, raw)
        assert frame.body is not None
        assert refusal.reencode(frame, frame.body) == raw

    def test_an_answer_in_its_own_version_with_the_same_error_too(self) -> None:
        raw = response_bytes(18, 4, ID, {"errorCode": 35, "throttleTimeMs": 5})[4:]
        frame = answered(18, 4, raw)
        assert frame.body is not None
        assert refusal.reencode(frame, frame.body) == raw

    def test_a_header_that_cannot_be_read(self) -> None:
        frame = Frame(0, CONN, Side.REQUEST, b"", 12, 4, ID, "c", -1, decode_body)
        with pytest.raises(EncodeError):
            refusal.reencode(frame, {})

    @given(st.sampled_from(EVERY), st.integers(), st.booleans())
    @settings(max_examples=200, deadline=None)
    def test_any_frame_with_its_own_body_is_itself(
        self, of: tuple[schema.Message, int], seed: int, request: bool
    ) -> None:
        message, version = of
        api = message.api_key or 0
        if request:
            frame = asked(api, version, Maker(Random(seed)).body(message, version))
        else:
            response = wire.response_of(api)
            assert response is not None
            body = Maker(Random(seed)).body(response, version)
            frame = answered(api, version, response_bytes(api, version, ID, body)[4:])
        assert frame.body is not None
        assert refusal.reencode(frame, frame.body) == frame.raw
