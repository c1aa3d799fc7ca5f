"""What bodies name: topics, groups, errors, records, secrets; the same functions for every message."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_bodies import Maker, every_version

from kwsniff import wire
from kwsniff.errors import UnknownMessage
from kwsniff.wire import walk
from kwsniff.wire.walk import FoundError

ORDERS = "b3JkZXJzb3JkZXJzMTIzNA"
ZERO = "A" * 22
VERSIONS = [(message.name, version) for message, version in every_version()]


def test_topics_in_order_of_first_mention_once_each():
    body = {"topics": [{"name": "b"}, {"name": "a"}, {"name": None}, {"name": "b"}, {"name": ""}]}
    assert walk.topics("MetadataRequest", 12, body) == ["b", "a"]


def test_topics_in_plain_arrays():
    assert walk.topics("DeleteTopicsRequest", 1, {"topicNames": ["a", "b"]}) == ["a", "b"]
    assert walk.topics("ConsumerProtocolSubscription", 0, {"topics": ["a"]}) == ["a"]


def test_only_fields_of_the_version_count():
    body = {"topics": [{"topic": "a", "topicId": ORDERS}]}
    assert walk.topics("FetchRequest", 12, body) == ["a"]
    assert walk.topics("FetchRequest", 13, body) == []
    assert walk.topic_ids("FetchRequest", 13, body) == [ORDERS]


def test_the_zero_id_is_none():
    assert walk.topic_ids("MetadataResponse", 12, {"topics": [{"topicId": ZERO}]}) == []


def test_topics_learned_from_structs_that_tell_id_and_name():
    topics = [
        {"name": "orders", "topicId": ORDERS},
        {"name": "old", "topicId": ZERO},
        {"name": None, "topicId": ORDERS},
        {"topicId": ORDERS},
    ]
    assert walk.learned_topics("MetadataResponse", 12, {"topics": topics}) == [(ORDERS, "orders")]
    assert walk.learned_topics("FetchResponse", 13, {"responses": topics}) == []


def test_groups():
    assert walk.groups("HeartbeatRequest", 0, {"groupId": "g"}) == ["g"]
    assert walk.groups("DeleteGroupsRequest", 0, {"groupsNames": ["g", "h"]}) == ["g", "h"]
    assert walk.groups("OffsetCommitKey", 0, {"group": "g"}) == ["g"]
    assert walk.groups("MetadataRequest", 0, {"topics": []}) == []


def test_errors_with_the_nearest_topic_and_partition():
    body = {
        "errorCode": 0,
        "responses": [
            {"name": "a", "partitionResponses": [{"index": 0, "errorCode": 0}, {"index": 4, "errorCode": 6}]},
            {"name": "b", "partitionResponses": [{"index": 1, "errorCode": 999}]},
        ],
    }
    assert walk.errors("ProduceResponse", 3, body) == [
        FoundError(6, "a", None, 4, "responses[0].partitionResponses[1].errorCode"),
        FoundError(999, "b", None, 1, "responses[1].partitionResponses[0].errorCode"),
    ]


def test_an_error_at_the_top_belongs_to_no_topic():
    body = {
        "errorCode": -1,
        "responses": [{"topicId": ORDERS, "partitions": [{"partitionIndex": 0, "errorCode": 3}]}],
    }
    assert walk.errors("FetchResponse", 13, body) == [
        FoundError(-1, None, None, None, "errorCode"),
        FoundError(3, None, ORDERS, 0, "responses[0].partitions[0].errorCode"),
    ]


def test_error_codes_by_other_names():
    body = {"topics": [{"name": "t", "errorCode": 0, "topicConfigErrorCode": 29}]}
    assert walk.errors("CreateTopicsResponse", 5, body) == [
        FoundError(29, "t", None, None, "topics[0].topicConfigErrorCode")
    ]


def test_records_with_the_dict_that_holds_them():
    holder = {"index": 0, "records": b"batch"}
    body = {"topicData": [{"name": "t", "partitionData": [{"index": 1, "records": None}, holder]}]}
    found = list(walk.records("ProduceRequest", 3, body))
    assert found == [("topicData[0].partitionData[1].records", holder, "records")]
    assert found[0][1] is holder


@pytest.mark.parametrize(
    ("name", "version", "body", "paths"),
    [
        ("SaslAuthenticateRequest", 2, {"authBytes": b"x"}, ["authBytes"]),
        ("SaslAuthenticateResponse", 2, {"authBytes": b"x"}, ["authBytes"]),
        ("CreateDelegationTokenResponse", 1, {"hmac": b"x"}, ["hmac"]),
        ("RenewDelegationTokenRequest", 1, {"hmac": b"x"}, ["hmac"]),
        ("ExpireDelegationTokenRequest", 1, {"hmac": b"x"}, ["hmac"]),
        ("DescribeDelegationTokenResponse", 1, {"tokens": [{"hmac": b"x"}]}, ["tokens[0].hmac"]),
        (
            "AlterUserScramCredentialsRequest",
            0,
            {"upsertions": [{"name": "u", "salt": b"s", "saltedPassword": b"p"}]},
            ["upsertions[0].salt", "upsertions[0].saltedPassword"],
        ),
        (
            "UserScramCredentialRecord",
            0,
            {"salt": b"s", "storedKey": b"k", "serverKey": b"k"},
            ["salt", "storedKey", "serverKey"],
        ),
        ("HeartbeatRequest", 0, {"groupId": "g"}, []),
    ],
)
def test_secrets(name, version, body, paths):
    assert [path for path, _, _ in walk.secrets(name, version, body)] == paths


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("AlterConfigsRequest", {"resources": [{"configs": [{"name": "n", "value": "v"}]}]}),
        ("IncrementalAlterConfigsRequest", {"resources": [{"configs": [{"name": "n", "value": "v"}]}]}),
        ("CreateTopicsRequest", {"topics": [{"configs": [{"name": "n", "value": "v"}]}]}),
        ("ConfigRecord", {"name": "n", "value": "v"}),
    ],
)
def test_values_of_settings_come_with_their_names(name, body):
    ((_, holder, key),) = walk.configs(name, wire.message(name).versions.max, body)
    assert (holder["name"], holder[key]) == ("n", "v")


def test_values_of_settings_and_of_their_synonyms():
    entry = {"name": "n", "value": "v", "synonyms": [{"name": "s", "value": "w"}]}
    found = walk.configs("DescribeConfigsResponse", 4, {"results": [{"configs": [entry]}]})
    assert [path for path, _, _ in found] == [
        "results[0].configs[0].value",
        "results[0].configs[0].synonyms[0].value",
    ]


def test_a_deviating_layout_is_walked_as_it_is():
    body = wire.decode("FindCoordinatorResponse", 0, b"\x00\x0f")
    assert walk.errors("FindCoordinatorResponse", 0, body) == [FoundError(15, None, None, None, "errorCode")]
    body = {"groupId": "g", "sessionTimeout": 1, "topics": ["t"], "_variant": "0.8.2.0-0.8.2.2"}
    assert walk.topics("JoinGroupRequest", 0, body) == ["t"]


def test_floats():
    with_floats = [name for name, version in VERSIONS if walk.has_floats(name, version)]
    assert sorted(set(with_floats)) == [
        "AlterClientQuotasRequest",
        "ClientQuotaRecord",
        "DescribeClientQuotasResponse",
        "QuotaRecord",
    ]


def test_unknown_messages():
    with pytest.raises(UnknownMessage):
        walk.topics("NoRequest", 0, {})


QUESTIONS = (walk.topics, walk.topic_ids, walk.learned_topics, walk.groups, walk.errors)
PLACES = (walk.records, walk.secrets, walk.configs)


@given(choice=st.sampled_from(VERSIONS), seed=st.integers(0, 2**16), data=st.data())
@settings(max_examples=300, deadline=None)
def test_a_body_of_which_parts_are_missing_is_walked_as_far_as_it_goes(choice, seed, data):
    name, version = choice
    body = Maker(Random(seed)).body(wire.message(name), version)
    whole = [question(name, version, body) for question in QUESTIONS]
    holder = body
    while holder:
        key = data.draw(st.sampled_from(sorted(holder)))
        below = holder[key]
        if isinstance(below, list) and below and isinstance(below[-1], dict):
            holder = below[-1]
        elif isinstance(below, dict) and key != "_tags":
            holder = below
        else:
            holder[key] = None
            break
    for question, before in zip(QUESTIONS, whole, strict=True):
        assert len(question(name, version, body)) <= len(before)
    for question in PLACES:
        for path, place, key in question(name, version, body):
            assert path.endswith(key)
            assert place[key] is not None
