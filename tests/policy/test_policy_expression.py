"""Filters: what they match, and what they are told when they cannot be right."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwsniff.errors import ConfigError
from kwsniff.policy.expression import compile_filter

LINE: dict[str, Any] = {
    "timestamp": "2026-11-21T06:00:00.123456789Z",
    "requestHeader": {
        "requestApiKey": 0,
        "requestApiKeyName": "PRODUCE",
        "requestApiVersion": 9,
        "correlationId": 7,
        "clientId": None,
        "requestApiVersionDeprecated": False,
    },
    "request": {
        "acks": 1,
        "topicData": [{"name": "orders", "partitionData": [{"index": 3}]}],
        "_tags": {7: b"\0"},
    },
    "response": None,
    "connection": "127.0.0.1:9092-127.0.0.1:49878-0",
    "totalTimeMs": None,
    "throttleTimeMs": 0,
    "securityProtocol": "PLAINTEXT",
    "principal": None,
    "clientInformation": {"softwareName": "librdkafka", "softwareVersion": "2.5.0"},
    "kwsniff": {
        "outcome": "no_ack",
        "client": "127.0.0.1:49878",
        "requestBytes": 1118,
        "topics": ["orders"],
        "errors": [{"code": 6, "name": "NOT_LEADER_OR_FOLLOWER", "topic": "orders", "partition": 0}],
        "faults": [],
    },
}
FAULT: dict[str, Any] = {
    "timestamp": None,
    "connection": None,
    "kwsniff": {"fault": {"reason": "lost_bytes"}},
}


@pytest.mark.parametrize(
    "text",
    [
        '"orders" in kwsniff.topics',
        'kwsniff.errors.exists(e, e.code == 6 && e.topic == "orders")',
        'requestHeader.requestApiKeyName == "PRODUCE" && requestHeader.requestApiVersion >= 9',
        'request.topicData.exists(t, t.name.startsWith("ord") && t.partitionData.exists(p, p.index == 3))',
        'request.topicData[0].name == "orders"',
        "throttleTimeMs < 1.5",
        "kwsniff.requestBytes > 1000",
        "principal == null && response == null && totalTimeMs == null",
        'clientInformation.softwareName.matches("^lib")',
        'timestamp(timestamp) > timestamp("2026-11-21T05:59:59Z")',
        'timestamp >= "2026-11-21"',
        'request._tags["7"] == "AA=="',
        "kwsniff.outcome in ['no_ack', 'lost'] // and a comment",
        "kwsniff.topics.filter(t, t == 'orders').size() == 1",
        "!has(kwsniff.fault)",
        'size("\\"quoted\\" request.nothing") > 0',
        "[1, 2].exists(request, request > 1)",
        "requestHeader.requestApiVersionDeprecated == false",
        "true",
    ],
)
def test_it_matches(text: str) -> None:
    expression = compile_filter(text)
    assert expression.matches(LINE)
    assert expression.errors == 0
    assert not compile_filter(f"!({text.split(' //')[0]})").matches(LINE)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("totalTimeMs > 1", "No matching overloads"),  # null
        ("response.topics.size() == 0", "no such|SELECT"),
        ("request.timeoutMs == 0", "timeoutMs"),  # not in this line
        ('requestHeader.clientId.startsWith("x")', "No matching overloads"),
        ('"x".matches("(")', "regular expression"),
        ("requestHeader.requestApiKey", "0"),  # may be true or false, as far as types tell
    ],
)
def test_what_cannot_be_evaluated_is_false_and_counted(text: str, why: str) -> None:
    expression = compile_filter(text)
    assert not expression.matches(LINE)
    assert expression.errors == 1
    assert any(part in (expression.last_error or "") for part in why.split("|"))


def test_faults_that_are_lines_can_be_matched() -> None:
    expression = compile_filter('has(kwsniff.fault) && kwsniff.fault.reason == "lost_bytes"')
    assert expression.matches(FAULT)
    assert not expression.matches(LINE)
    assert compile_filter("connection == null").matches(FAULT)


def test_strings_that_are_not_utf8_are_what_json_shows() -> None:
    client_id = b"caf\xe9\xff".decode("utf-8", "surrogateescape")
    line = {**LINE, "requestHeader": {"clientId": client_id}}
    assert compile_filter('requestHeader.clientId == "caf\ufffd\ufffd"').matches(line)


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("totalTimeMs < 50 && foo", "no field 'foo'; there are timestamp,", "totalTimeMs < 50 && ^foo"),
        ("requests.acks == 1", "no field 'requests' (did you mean 'request'?)", "^requests.acks == 1"),
        ("topics.size() > 0", "no field 'topics' (did you mean 'kwsniff.topics'?)", "^topics.size() > 0"),
        ("totalTimeMs <", "the expression ends too early", "totalTimeMs <^"),
        ("", "the expression ends too early", "^"),
        ("1 == 2 3", "unexpected '3'", "1 == 2 ^3"),
        ("timestamp + 1 == 2", "'+' does not go with (string, int)", "timestamp ^+ 1 == 2"),
        ("principal == 5", "'==' does not go with (string, int)", "principal ^== 5"),
        ("size(kwsniff.topics)", "it must be true or false, and this is int", "^size(kwsniff.topics)"),
        ("kwsniff.outcom == 'x'", "(did you mean 'outcome'?)", "kwsniff.^outcom == 'x'"),
        ("requestHeader.apiKey == 0", "(did you mean 'requestApiKey'?)", "requestHeader.^apiKey == 0"),
        (
            "clientInformation.name == ''",
            "no field 'name' in clientInformation",
            "clientInformation.^name == ''",
        ),
        ("kwsniff.errors.all(e, e.cod == 6)", "(did you mean 'code'?)", "kwsniff.errors.all(e, e.^cod == 6)"),
        ("request.requiredAcks == 1", "no field 'requiredAcks' in request", "request.^requiredAcks == 1"),
        ("request.topics[0].nmae == ''", "(did you mean 'name'?)", "request.topics[0].^nmae == ''"),
        (
            "request.topics.exists(t, t.partitions.exists(p, p.indx == 1))",
            "(did you mean 'index'?)",
            "...pics.exists(t, t.partitions.exists(p, p.^indx == 1))",
        ),
        ("'x'.lower() == 'x'", "no function 'lower'", "'x'.^lower() == 'x'"),
        ("tru", "no field 'tru'", "^tru"),
    ],
)
def test_it_says_where_it_is_wrong(text: str, message: str, place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compile_filter(text)
    told = str(caught.value)
    assert message in told
    assert told.endswith(place)
    column = len(text) - len(place.rpartition("^")[2]) + 1  # the place ends as the text does
    assert told.startswith(f"filter, column {column}: ")
    assert "\n" not in told


def test_the_line_of_an_expression_of_several() -> None:
    with pytest.raises(ConfigError) as caught:
        compile_filter("throttleTimeMs == 1 &&\n  kwsniff.outcom == 'x'")
    assert str(caught.value).startswith("filter, line 2, column 11: no field 'outcom' in kwsniff")
    assert str(caught.value).endswith("  kwsniff.^outcom == 'x'")


def test_fields_of_every_message_are_known() -> None:
    for name in ("clusterId", "protocols", "assignedPartitions", "recordsSummary", "messageSet", "storedKey"):
        compile_filter(f"request.{name} == 1")


@pytest.mark.parametrize("text", ["(" * 100 + "true" + ")" * 100, "'\ud800' == ''", "true\x00", "\x1b[2J"])
def test_hostile_expressions_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compile_filter(text)
    assert str(caught.value).isprintable()


PIECES = (
    "request response kwsniff . , ( ) [ ] { } == && || ! exists e 1 'x' \" topics errors all null ? : in + -"
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PIECES.split()), max_size=12).map("".join) | st.text(max_size=20))
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    try:
        expression = compile_filter(text)
    except ConfigError as error:
        told = str(error)
    else:
        told = str(expression.matches(LINE))
    assert told.isprintable()
