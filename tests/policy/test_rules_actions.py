"""What rules do to frames: a frame goes in, a verdict comes out, and bytes that others can read."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from passing_builders import CONN, MS, NOW, answered, asked, passed, passing
from rule_builders import FETCH, HEARTBEAT, METADATA, PRODUCE, Stage, produced

from kwsniff import wire
from kwsniff.model import Frame, Ledger, Peer, Session
from kwsniff.passing import Close, Delay, Drop, Passing, Replace, Reset, Respond, Throttle
from kwsniff.policy.actions import Alert, Note, Occasion
from kwsniff.policy.ruleset import On, Severity

sys.path.append(str(Path(__file__).parents[1] / "wire"))

from kafkapython import DefaultRecordBatchBuilder, LegacyRecordBatchBuilder, MemoryRecords

BEAT = {"groupId": "g", "generationId": 1, "memberId": "m"}


def batch(*records: tuple[bytes | None, bytes | None, list[tuple[str, bytes]]], codec: int = 0) -> bytes:
    """A batch as kafka-python writes it."""
    made = DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=0, producer_id=7, producer_epoch=1,
        base_sequence=5, batch_size=999_999,
    )  # fmt: skip
    for offset, (key, value, headers) in enumerate(records):
        made.append(offset, timestamp=1_700_000_000_000, key=key, value=value, headers=headers)
    return bytes(made.build())


def read(data: bytes) -> list[tuple[Any, ...]]:
    """Its records as kafka-python reads them; a wrong CRC would be an error."""
    found = []
    batches = MemoryRecords(data)
    while (one := batches.next_batch()) is not None:
        assert one.validate_crc()
        found += [(record.key, record.value, list(getattr(record, "headers", []))) for record in one]
    return found


def metadata(*topics: str) -> Frame:
    return asked(METADATA, 4, {"topics": [{"name": name} for name in topics], "allowAutoTopicCreation": True})


def described(*topics: str) -> dict[str, Any]:
    return {
        "brokers": [{"nodeId": 1, "host": "b", "port": 9092}],
        "topics": [{"name": name, "partitions": []} for name in topics],
    }


def topics_of(frame: Frame, key: str = "topics") -> list[str]:
    assert frame.body is not None
    return [topic["name"] for topic in frame.body[key]]


# ---- holding back, and cutting off


@pytest.mark.parametrize(
    ("then", "verdict"),
    [
        ("delay: 200ms", Delay(200 * MS)),
        ("throttle: 10K/s", Throttle(10_240)),
        ("drop", Drop()),
        ("reset", Reset()),
        ("close", Close("rule r")),
        ("close: maintenance", Close("rule r: maintenance")),
    ],
)
def test_verdicts(then: str, verdict: Any) -> None:
    action = f"{{{then}}}" if ":" in then else then
    rule = f"- {{name: r, on: response, api: Heartbeat, then: [{action}]}}"
    request = asked(HEARTBEAT, 4, BEAT)
    assert Stage(rule).response(passing(answered(HEARTBEAT, 4, {}), request)) == [("rules:r", verdict)]
    assert Stage(rule.replace("on: response", "on: request")).request(passing(request)) == [
        ("rules:r", verdict)
    ]


def test_jitter_is_give_or_take_and_the_same_each_time() -> None:
    rule = "- {name: r, on: request, then: {delay: {latency: 200ms, jitter: 50ms}}}"

    def delays(seed: int) -> list[int]:
        stage = Stage(rule, seed)
        found = []
        for number in range(300):
            frame = passing(asked(HEARTBEAT, 4, BEAT))
            frame.number = number
            ((_, verdict),) = stage.request(frame)
            assert isinstance(verdict, Delay)
            found.append(verdict.ns)
        return found

    first = delays(1)
    assert min(first) >= 150 * MS
    assert max(first) <= 250 * MS
    assert min(first) < 160 * MS < 240 * MS < max(first)
    assert delays(1) == first != delays(2)


def test_actions_are_carried_out_in_order() -> None:
    then = "[{delay: 1s}, {tag: slow}, {error: 27}, {tag: refused}]"
    rule = f"- {{name: r, on: request, api: Heartbeat, then: {then}}}"
    frame = passing(asked(HEARTBEAT, 4, BEAT))
    (delay, respond) = Stage(rule).request(frame)
    assert delay == ("rules:r", Delay(1000 * MS))
    assert isinstance(respond[1], Respond)
    assert frame.tags == ["slow", "refused"]


# ---- answering


def test_an_error_is_an_answer_of_that_version() -> None:
    stage = Stage("- {name: fence, on: request, api: Produce, then: [{error: NOT_LEADER_OR_FOLLOWER}]}")
    request = asked(PRODUCE, 9, produced(orders=None, audit=None), correlation=77)
    ((name, verdict),) = stage.request(passing(request))
    assert name == "rules:fence"
    assert isinstance(verdict, Respond)
    header, body = wire.decode_response(verdict.raw, PRODUCE, 9)
    assert header["correlationId"] == 77
    told = [(topic["name"], topic["partitionResponses"][0]["errorCode"]) for topic in body["responses"]]
    assert told == [("orders", 6), ("audit", 6)]


def test_an_error_in_place_of_an_answer() -> None:
    stage = Stage("- {name: r, on: response, api: Heartbeat, then: {error: REBALANCE_IN_PROGRESS}}")
    frame = passing(answered(HEARTBEAT, 4, {}, 5), asked(HEARTBEAT, 4, BEAT, 5))
    # correlation id, no tags; throttleTimeMs, errorCode, no tags
    raw = struct.pack(">ibihb", 5, 0, 0, 27, 0)
    assert stage.response(frame) == [("rules:r", Replace(raw))]
    assert frame.frame.raw == raw


def test_where_nobody_waits_for_an_answer_the_connection_is_closed() -> None:
    acks0 = {**produced(orders=None), "acks": 0}
    for then, why in (
        ("error: 6", "NOT_LEADER_OR_FOLLOWER: PRODUCE v9 wants no answer (acks=0)"),
        ("respond: {}", "it wants no answer (acks=0)"),
    ):
        stage = Stage(f"- {{name: r, on: request, api: Produce, then: {{{then}}}}}")
        assert stage.request(passing(asked(PRODUCE, 9, acks0))) == [("rules:r", Close(f"rule r: {why}"))]


def test_where_an_answer_has_no_place_for_an_error_the_connection_is_closed() -> None:
    stage = Stage("- {name: r, on: request, api: Metadata, then: {error: UNKNOWN_SERVER_ERROR}}")
    everything = asked(METADATA, 0, {"topics": []})  # of v0: all topics, and no error but of a topic
    why = "rule r: UNKNOWN_SERVER_ERROR: METADATA v0 has no place for an error in its answer"
    assert stage.request(passing(everything)) == [("rules:r", Close(why))]


def test_a_given_answer() -> None:
    stage = Stage("- {name: r, on: request, api: Heartbeat, then: {respond: {throttleTimeMs: 250}}}")
    ((_, verdict),) = stage.request(passing(asked(HEARTBEAT, 1, BEAT, 9)))
    assert verdict == Respond(struct.pack(">iih", 9, 250, 0))


def test_an_answer_that_this_version_cannot_carry_is_told_and_the_request_goes_on() -> None:
    stage = Stage("- {name: r, on: request, api: Fetch, then: {respond: {sessionId: 5}}}")
    assert stage.request(passing(asked(FETCH, 4, {"topics": []}))) == []
    ((rule, why),) = stage.heard.failures
    assert rule == "r"
    assert why.startswith("respond: sessionId: ")


# ---- changing


def test_fields_are_set_wherever_they_are() -> None:
    rule = """
    - name: from the start
      on: request
      api: Fetch
      then:
        set: {"topics[*].partitions[*].fetchOffset": 0, "topics[1].partitions[0].partition": 9, maxWaitMs: 5}
    """
    parts = [{"partition": i, "fetchOffset": 100 + i, "partitionMaxBytes": 1} for i in range(2)]
    body = {"maxWaitMs": 500, "topics": [{"topic": t, "partitions": parts} for t in ("a", "b")]}
    frame = passing(asked(FETCH, 11, body))
    Stage(rule).request(frame)
    changed = frame.frame.body
    assert changed is not None
    found = [[(p["partition"], p["fetchOffset"]) for p in t["partitions"]] for t in changed["topics"]]
    assert found == [[(0, 0), (1, 0)], [(9, 0), (1, 0)]]
    assert changed["maxWaitMs"] == 5
    original = frame.original.body
    assert original is not None
    # all else is as it was, down to the byte
    for topic in original["topics"]:
        for part in topic["partitions"]:
            part["fetchOffset"] = 0
    original["topics"][1]["partitions"][0]["partition"] = 9
    original["maxWaitMs"] = 5
    assert changed == original


def test_a_field_that_this_version_has_not_is_left_alone() -> None:
    stage = Stage("- {name: r, on: request, api: Fetch, then: {set: {rackId: a}}}")
    frame = passing(asked(FETCH, 4, {"topics": []}))
    assert stage.request(frame) == []
    assert frame.frame is frame.original
    assert not stage.heard.failures


def test_a_body_that_cannot_be_read_cannot_be_changed() -> None:
    stage = Stage("- {name: r, on: request, api: Heartbeat, then: [{set: {memberId: x}}, {tag: t}]}")
    frame = passing(asked(HEARTBEAT, 4, b"\xff"))
    assert stage.request(frame) == []
    assert frame.tags == ["t"]
    assert stage.heard.failures == [("r", "set: the frame cannot be decoded")]


def test_the_next_rule_sees_what_the_first_has_changed() -> None:
    stage = Stage(
        """
        - name: first
          on: request
          api: Heartbeat
          when: request.memberId == "m"
          then: {set: {memberId: x}}
          continue: true
        - {name: never, on: request, api: Heartbeat, when: request.memberId == "m", then: drop}
        - {name: second, on: request, api: Heartbeat, when: request.memberId == "x", then: {tag: seen}}
        """
    )
    frame = passing(asked(HEARTBEAT, 4, BEAT))
    stage.request(frame)
    assert stage.heard.firings == [("first", On.REQUEST), ("second", On.REQUEST)]
    assert frame.tags == ["seen"]


# ---- topics by other names


RENAME = "- {name: r, on: request, then: {rename: {orders: orders-v2, a: b}}}"


def test_a_topic_has_its_own_name_for_the_client_and_another_for_the_broker() -> None:
    stage = Stage(RENAME)
    ask = passing(metadata("orders", "audit"))
    stage.request(ask)
    assert topics_of(ask.frame) == ["orders-v2", "audit"]
    answer = passing(answered(METADATA, 4, described("orders-v2", "audit")), ask.original)
    ((name, _),) = stage.response(answer)
    assert name == "rules:r"
    assert topics_of(answer.frame) == ["orders", "audit"]


def test_also_in_an_answer_about_all_topics() -> None:
    stage = Stage(RENAME)
    ask = passing(asked(METADATA, 4, {"topics": None, "allowAutoTopicCreation": False}))
    assert stage.request(ask) == []
    answer = passing(answered(METADATA, 4, described("b", "orders-v2")), ask.original)
    stage.response(answer)
    assert topics_of(answer.frame) == ["a", "orders"]


def test_an_answer_to_another_request_keeps_its_names() -> None:
    stage = Stage(RENAME.replace("on: request", "on: request, client_id: other"))
    ask = passing(metadata("orders"))
    assert stage.request(ask) == []
    answer = passing(answered(METADATA, 4, described("orders-v2")), ask.original)
    assert stage.response(answer) == []


def test_a_frame_without_topics_is_not_even_read() -> None:
    stage = Stage(RENAME)
    ask = passing(asked(HEARTBEAT, 4, b"\xff"))
    assert stage.request(ask) == []
    assert stage.response(passing(answered(HEARTBEAT, 4, b"\xff"), ask.original)) == []
    assert not stage.heard.failures
    assert "decoded" not in ask.original.__dict__


def test_renamed_twice_is_told_back_twice() -> None:
    stage = Stage(
        """
        - {name: r, on: request, api: Metadata, then: {rename: {a: b}}, continue: true}
        - {name: s, on: request, api: Metadata, then: {rename: {b: c}}}
        """
    )
    ask = passing(metadata("a"))
    stage.request(ask)
    assert topics_of(ask.frame) == ["c"]
    answer = passing(answered(METADATA, 4, described("c")), ask.original)
    stage.response(answer)
    assert topics_of(answer.frame) == ["a"]


def test_set_of_a_topic_is_told_back_too() -> None:
    stage = Stage('- {name: r, on: request, api: Produce, then: {set: {"topicData[*].name": shadow}}}')
    ask = passing(asked(PRODUCE, 8, produced(orders=None, audit=None)))
    stage.request(ask)
    assert topics_of(ask.frame, "topicData") == ["shadow", "shadow"]
    parts = [{"index": 0, "errorCode": 0, "baseOffset": n} for n in (10, 20)]
    body = {"responses": [{"name": "shadow", "partitionResponses": [part]} for part in parts]}
    answer = passing(answered(PRODUCE, 8, body), ask.original)
    stage.response(answer)
    assert topics_of(answer.frame, "responses") == ["orders", "audit"]


def test_set_of_some_topics() -> None:
    stage = Stage('- {name: r, on: request, api: Produce, then: {set: {"topicData[*].name": {orders: v2}}}}')
    ask = passing(asked(PRODUCE, 8, produced(orders=None, audit=None)))
    stage.request(ask)
    assert topics_of(ask.frame, "topicData") == ["v2", "audit"]


def test_an_error_is_in_the_clients_own_names() -> None:
    stage = Stage(
        """
        - {name: r, on: request, api: Metadata, then: {rename: {orders: orders-v2}}, continue: true}
        - {name: e, on: request, api: Metadata, then: {error: LEADER_NOT_AVAILABLE}}
        """
    )
    (_, (_, verdict)) = stage.request(passing(metadata("orders")))
    assert isinstance(verdict, Respond)
    _, body = wire.decode_response(verdict.raw, METADATA, 4)
    assert [(topic["name"], topic["errorCode"]) for topic in body["topics"]] == [("orders", 5)]


# ---- records


HEADERS = [("trace", b"t1"), ("user", b"alice")]
RECORDS = ((b"k1", b"secret one", HEADERS), (None, b"secret two", []), (b"k3", None, []))


def redacting(what: str = "keys: true, values: true, headers: true", topics: str = "[orders]") -> Stage:
    return Stage(f"- {{name: r, on: request, api: Produce, then: {{redact: {{topics: {topics}, {what}}}}}}}")


@pytest.mark.parametrize("codec", [0, 1, 3])  # none, gzip, lz4
def test_redacted_records_are_valid_and_hold_no_secret(codec: int) -> None:
    frame = passing(asked(PRODUCE, 8, produced(orders=batch(*RECORDS, codec=codec), audit=batch(*RECORDS))))
    redacting().request(frame)
    body = frame.frame.body
    assert body is not None
    orders, audit = (topic["partitionData"][0]["records"] for topic in body["topicData"])
    hidden = b"<redacted>"
    assert read(orders) == [
        (hidden, hidden, [("trace", hidden), ("user", hidden)]),
        (None, hidden, []),
        (hidden, None, []),
    ]
    assert read(audit) == [(key, value, headers) for key, value, headers in RECORDS]
    original = wire.decode_records(batch(*RECORDS, codec=codec))[0]
    now = wire.decode_records(orders)[0]
    for field in ("codec", "producerId", "producerEpoch", "baseSequence", "recordCount", "maxTimestamp"):
        assert now[field] == original[field]


@pytest.mark.parametrize(
    ("what", "first"),
    [
        ("values: true", (b"k1", b"<redacted>", HEADERS)),
        ("keys: true", (b"<redacted>", b"secret one", HEADERS)),
        ("headers: true", (b"k1", b"secret one", [("trace", b"<redacted>"), ("user", b"<redacted>")])),
    ],
)
def test_only_what_is_said_is_redacted(what: str, first: tuple[Any, ...]) -> None:
    frame = passing(asked(PRODUCE, 8, produced(orders=batch(*RECORDS))))
    redacting(what, '"or*"').request(frame)
    assert frame.frame.body is not None
    assert read(frame.frame.body["topicData"][0]["partitionData"][0]["records"])[0] == first


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_sets_are_redacted_too(magic: int) -> None:
    made = LegacyRecordBatchBuilder(magic=magic, compression_type=0, batch_size=99_999)
    made.append(0, timestamp=1_700_000_000_000, key=b"k", value=b"secret")
    frame = passing(asked(PRODUCE, 2, produced(orders=bytes(made.build()))))
    redacting("values: true").request(frame)
    assert frame.frame.body is not None
    ((key, value, _),) = read(frame.frame.body["topicData"][0]["partitionData"][0]["records"])
    assert (key, value) == (b"k", b"<redacted>")


@pytest.mark.parametrize("told", [True, False])
def test_a_topic_by_its_id(told: bool) -> None:
    """Fetch from v13 on names topics by id; one whose name nobody has told may be the one to redact."""
    topic_id = "AAAAAAAAAAAAAAAAAAAAAQ"
    part = {"partitionIndex": 0, "highWatermark": 3, "records": batch(*RECORDS)}
    body = {"responses": [{"topicId": topic_id, "partitions": [part]}]}
    frame = passing(answered(FETCH, 13, body), asked(FETCH, 13, {"topics": []}))
    frame.topic_names = {topic_id: (1, "audit")} if told else {}
    stage = Stage("- {name: r, on: response, api: Fetch, then: {redact: {topics: orders, values: true}}}")
    assert bool(stage.response(frame)) is not told
    assert (b"secret" in frame.frame.raw) is told


def test_what_cannot_be_redacted_does_not_go_on() -> None:
    broken = batch(*RECORDS)[:-3] + b"\xff\xff\xff"
    for records in (
        broken[:57] + struct.pack(">i", 99) + broken[61:],
        b"\0" * 8 + struct.pack(">i", 3) + b"abc",
    ):
        stage = redacting()
        found = stage.request(passing(asked(PRODUCE, 8, produced(orders=records))))
        assert found == [("rules:r", Close("rule r: what it was to redact cannot be read"))]
        assert stage.heard.failures[0][1].startswith("redact: ")


def test_the_end_of_a_transaction_is_no_secret() -> None:
    """KIP-98: key version 0, type 1 (COMMIT); value version 0, coordinator epoch 5; in a control batch."""
    commit = (b"\0\0\0\1", b"\0\0\0\0\0\5", [])
    for records, kept in (((commit,), [commit]), (((b"\0\0\0\1", b"secret", HEADERS),), [])):
        plain = batch(*records)
        flagged = plain[:21] + b"\0\x20" + plain[23:]  # attributes: control
        part = {"partitionIndex": 0, "records": flagged}
        body = {"responses": [{"topic": "orders", "partitions": [part]}]}
        frame = passing(answered(FETCH, 11, body), asked(FETCH, 11, {"topics": []}))
        Stage("- {name: g, on: response, api: Fetch, then: {redact: [keys, values]}}").response(frame)
        assert frame.frame.body is not None
        (after,) = wire.decode_records(frame.frame.body["responses"][0]["partitions"][0]["records"])
        found = [(record["key"], record["value"], record["headers"]) for record in after["records"]]
        assert (found == kept) is bool(kept)
        assert b"secret" not in frame.frame.raw


def test_a_crc_that_is_wrong_and_nothing_else() -> None:
    records = batch(*RECORDS)
    frame = passing(asked(PRODUCE, 8, produced(orders=records)))
    Stage("- {name: r, on: request, api: Produce, then: {corrupt: crc}}").request(frame)
    assert frame.frame.body is not None
    spoilt = frame.frame.body["topicData"][0]["partitionData"][0]["records"]
    assert not MemoryRecords(spoilt).next_batch().validate_crc()
    different = [at for at, (old, new) in enumerate(zip(records, spoilt, strict=True)) if old != new]
    assert different == [17, 18, 19, 20]


def test_truncated_at_the_end_but_never_into_the_header() -> None:
    for cut, left in ((2, 4), (1000, 0)):
        frame = passing(asked(HEARTBEAT, 0, b"abcdef"))
        Stage(f"- {{name: r, on: request, then: {{corrupt: {{truncate: {cut}}}}}}}").request(frame)
        assert frame.frame.raw == frame.original.raw[: frame.original.body_at + left]


# ---- speaking


def test_what_is_said_of_a_frame() -> None:
    stage = Stage(
        """
        - name: r
          on: request
          api: Heartbeat
          then:
            - log: a heartbeat
            - alert: {severity: critical, message: help, webhook: "https://example.org/x"}
            - alert: info
            - count: beats
            - tag: [one, two, one]
        """
    )
    frame = passing(asked(HEARTBEAT, 4, BEAT))
    frame.number = 3
    assert stage.request(frame) == []
    occasion = Occasion(
        ts=NOW, conn=CONN, on=On.REQUEST, side=frame.frame.side, number=3, api=HEARTBEAT, version=4,
        correlation_id=7, client_id="c",
    )  # fmt: skip
    assert stage.heard.notes == [Note("r", "a heartbeat", occasion)]
    assert stage.heard.alerts == [
        Alert("r", Severity.CRITICAL, "help", "https://example.org/x", occasion),
        Alert("r", Severity.INFO, "", None, occasion),
    ]
    assert stage.heard.counts == [("beats", "r")]
    assert frame.tags == ["one", "two"]


def test_an_exchange_that_is_over() -> None:
    stage = Stage(
        """
        - {name: failed, on: exchange, when: size(kwsniff.errors) > 0, then: {tag: failed}, continue: true}
        - {name: closed, on: exchange, when: kwsniff.outcome == "closed", then: {count: closed}}
        - {name: answered, on: exchange, side: response, then: log}
        """
    )
    unanswered = Stage("- {name: answered, on: exchange, side: response, then: log}")
    unanswered.chain.exchanged(passed(asked(HEARTBEAT, 4, BEAT), None))
    assert unanswered.heard.firings == []
    over = passed(asked(HEARTBEAT, 4, BEAT), answered(HEARTBEAT, 4, {"errorCode": 27}))
    stage.chain.exchanged(over)
    stage.chain.exchanged(passed(asked(HEARTBEAT, 4, BEAT), None))
    assert stage.heard.firings == [
        ("failed", On.EXCHANGE),
        ("answered", On.EXCHANGE),
        ("closed", On.EXCHANGE),
    ]
    assert over.exchange.tags == ["failed"]
    assert stage.heard.counts == [("closed", "closed")]


def test_a_session_that_has_ended() -> None:
    stage = Stage(
        """
        - name: long
          on: session
          when: >
            totalTimeMs == 5000.0 && kwsniff.requestBytes > 100 && kwsniff.client == "10.0.0.1:50001" &&
            principal == "User:alice" && timestamp == "2023-11-14T22:13:20.000000000Z" &&
            kwsniff.protocol == "kafka"
          then: alert
        """
    )
    peer = Peer("librdkafka", "2.5.0", "User:alice", "SASL_SSL")
    end = NOW + 5000 * MS
    stage.chain.closed(Session(CONN, NOW, end, NOW, end, "kafka", peer, Ledger(seen=101), Ledger(seen=7)))
    stage.chain.closed(Session(CONN, NOW, end, NOW, end, "kafka", peer, Ledger(seen=100), Ledger(seen=7)))
    (alert,) = stage.heard.alerts
    assert alert.occasion == Occasion(ts=end, conn=CONN, on=On.SESSION)


def test_when_sees_the_answer_with_its_request() -> None:
    stage = Stage(
        """
        - name: r
          on: response
          api: Fetch
          when: >
            "orders" in kwsniff.topics && totalTimeMs == 1.0 && request.maxWaitMs == 5 &&
            response.errorCode == 6 && kwsniff.outcome == "answered" && "seen" in kwsniff.tags &&
            clientInformation.softwareName == "java"
          then: drop
        """
    )
    topic_id = "AAAAAAAAAAAAAAAAAAAAAQ"
    request = asked(FETCH, 13, {"maxWaitMs": 5, "topics": [{"topicId": topic_id}]})
    frame = Passing(
        frame=(response := answered(FETCH, 13, {"errorCode": 6})),
        original=response,
        request=request,
        peer=Peer("java", "4.0"),
        topic_names={topic_id: (1, "orders")},
        tags=["seen"],
    )
    assert stage.response(frame) == [("rules:r", Drop())]


def test_when_of_a_request_sees_no_answer() -> None:
    stage = Stage(
        """
        - name: r
          on: request
          when: response == null && kwsniff.outcome == null && request.groupId == "g"
          then: drop
        """
    )
    assert stage.request(passing(asked(HEARTBEAT, 4, BEAT))) == [("rules:r", Drop())]


# ---- whatever comes

EVERYTHING = """
- {name: a, on: request, then: [{tag: x}, log, {rename: {orders: v2}}], continue: true}
- {name: b, on: request, api: Produce, then: {corrupt: crc}, continue: true}
- {name: c, on: request, api: Fetch, then: {set: {"topics[*].topic": z, maxWaitMs: 1}}, continue: true}
- {name: d, on: request, when: size(kwsniff.topics) > 1, then: {corrupt: {truncate: 2}}, continue: true}
- {name: e, on: request, chance: 0.5, then: [{delay: {latency: 1s, jitter: 1s}}, {error: 6}]}
- {name: f, on: request, api: Heartbeat, then: {respond: {throttleTimeMs: 1}}}
- {name: g, on: response, api: Fetch, then: {redact: [keys, values, headers]}, continue: true}
- {name: h, on: response, when: size(kwsniff.errors) > 0, then: {error: 5}}
"""


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([(PRODUCE, 8), (PRODUCE, 12), (FETCH, 4), (FETCH, 12), (HEARTBEAT, 4), (HEARTBEAT, 99)]),
    st.binary(max_size=80),
    st.binary(max_size=80),
    st.integers(0, 9),
)  # fmt: skip
def test_no_bytes_make_the_rules_fail(api: tuple[int, int], ask: bytes, answer: bytes, number: int) -> None:
    stage = Stage(EVERYTHING)
    key, version = api
    request = passing(asked(key, version, ask))
    request.number = number
    stage.request(request)
    stage.response(passing(answered(key, version, answer), request.original))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 400), st.integers(0, 255), st.integers(0, 3))
def test_no_damaged_batch_makes_them_fail(at: int, byte: int, codec: int) -> None:
    records = bytearray(batch(*RECORDS, codec=codec if codec != 2 else 0))
    records[at % len(records)] = byte
    part = {"partitionIndex": 0, "records": bytes(records)}
    body = {"responses": [{"topic": "orders", "partitions": [part]}]}
    frame = passing(answered(FETCH, 11, body), asked(FETCH, 11, {"topics": []}))
    found = Stage("- {name: g, on: response, api: Fetch, then: {redact: values}}").response(frame)
    closed = any(isinstance(verdict, Close) for _, verdict in found)
    assert closed or b"secret" not in frame.frame.raw
