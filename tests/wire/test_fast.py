"""The compiled codec against the reference: the same bodies, bytes, JSON and facts, and the same refusals.

Whatever the compiled one declines (None) is done by the reference, so it may decline; that it does not when
all is ordinary is a test of its own.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonwhole import expected_json, found_facts, whole_json
from made_bodies import Maker, every_version
from test_golden_vectors import VECTORS
from wirebytes import compact, compact_array, i16, i32, tags, uvarint

from kwsniff import wire
from kwsniff.compiled import PURE
from kwsniff.errors import DecodeError, Reason
from kwsniff.wire import codec, decoder, embedded, encoder, schema
from kwsniff.wire._program import PAYLOADS
from kwsniff.wire.primitives import MAX_ELEMENTS, Counted

pytestmark = pytest.mark.skipif(PURE, reason="KWSNIFF_PURE leaves the extension aside")

NAMES = [message.name for message in schema.messages()]
VERSIONS = [(message.name, version) for message, version in every_version()]
UNDECIDED = {"EnvelopeRequest", "EnvelopeResponse"}
"""Messages that are always left to the slow path."""


def program(name, version):
    found = codec.program(wire.message(name), version)
    assert found is not None, "the extension was not built: setup.py build_ext --inplace"
    return found


def versions(name):
    message = wire.message(name)
    return message, range(message.versions.min, message.versions.max + 1)


def made(name, version, seed=0, *, tame=False):
    """A body and its bytes, by the reference."""
    body = Maker(Random(f"{name} {version} {seed}"), tame=tame).body(wire.message(name), version)
    return body, encoder.encode(wire.message(name), version, body)


class TestTheSame:
    @pytest.mark.parametrize("name", NAMES)
    def test_bodies(self, name):
        message, every = versions(name)
        for version in every:
            for seed in range(3):
                _, data = made(name, version, seed)
                decoded = program(name, version).decode(data)
                assert repr(decoded) == repr(decoder.decode(message, version, data))
                inside = program(name, version).decode(b"\xff\xff" + data + b"\xff\xff", 2)
                assert repr(inside) == repr((decoded[0], len(data) + 2))

    @pytest.mark.parametrize("name", [message.name for message in schema.messages() if message.variants])
    def test_bodies_of_deviating_layouts(self, name):
        for variant in wire.message(name).variants:
            for version in range(variant.versions.min, variant.versions.max + 1):
                data = encoder.encode(variant, version, Maker(Random(version)).body(variant, version))
                found = codec.program(variant, version).decode(data)
                assert repr(found) == repr(decoder.decode(variant, version, data))

    @pytest.mark.parametrize("name", NAMES)
    def test_bytes(self, name):
        for version in versions(name)[1]:
            for seed in range(3):
                body, data = made(name, version, seed)
                assert wire.encode(name, version, body) == data
                assert program(name, version).encode(body) in (data, None)
                tame, data = made(name, version, seed, tame=True)
                assert program(name, version).encode(tame) == data
            assert program(name, version).encode({}) == encoder.encode(wire.message(name), version, {})

    @pytest.mark.parametrize("name", NAMES)
    def test_json_and_facts(self, name):
        for version in versions(name)[1]:
            for seed in range(6):
                body, data = made(name, version, seed, tame=seed < 3)
                facts = program(name, version).body_facts(data)
                assert facts is None or facts[:5] + facts[6:] == found_facts(name, version, body)
                for records in (False, True):
                    found = program(name, version).body_json(data, 0, -1, records)
                    if found is None:
                        continue
                    whole = whole_json(found)
                    assert whole == expected_json(name, version, data, records=records)
                    assert found[1][:5] + found[1][6:] == found_facts(name, version, body)
                    assert [place[1:] for place in found[1][5]] == [place[1:] for place in facts[5]]

    @pytest.mark.parametrize("name", VECTORS)
    def test_golden_vectors_by_either_codec(self, name):
        message = wire.message(name)
        for version, data, value in VECTORS[name]:
            assert program(name, version).decode(data) == (value, len(data))
            assert program(name, version).encode(value) == data
            assert decoder.decode(message, version, data) == (value, len(data))
            assert encoder.encode(message, version, value) == data

    def test_ordinary_bodies_are_not_declined(self):
        declined = set()
        for name, version in VERSIONS:
            for seed in range(3):
                _, data = made(name, version, seed, tame=True)
                if program(name, version).body_json(data) is None:
                    declined.add(name)
        treated = {name for name in NAMES if any(wants_care(field) for field in wire.message(name).fields)}
        assert declined <= treated | UNDECIDED | set(PAYLOADS)
        assert not declined & {"FetchRequest", "FetchResponse", "ProduceRequest", "MetadataResponse"}

    def test_the_payloads_that_json_opens_are_those_of_embedded(self):
        known = {name: {path for path, _ in paths} for name, paths in embedded._FIELDS.items()}
        assert {**known, "EnvelopeResponse": {"responseData"}} == PAYLOADS


def wants_care(field):
    return (
        field.mark == "config"
        or field.type == "float64"
        or field.key == "unalignedRecords"
        or (field.tag is not None and field.entity in ("errorCode", "topicId"))
        or any(wants_care(below) for below in field.fields)
    )


def outcome(decode, *args):
    """What a decoder makes of bytes: comparable."""
    try:
        return repr(decode(*args))
    except DecodeError as error:
        return error.reason, error.path, error.offset, error.message, repr(error.partial)


def check(name, version, data):
    message = wire.message(name)
    expected = outcome(decoder.decode, message, version, data)
    found = program(name, version).decode(data)
    assert (found is None) == isinstance(expected, tuple)
    assert outcome(codec.decode, message, version, data) == expected
    end = found[1] if found else -1
    facts, shown = (
        program(name, version).body_facts(data, 0, end),
        program(name, version).body_json(data, 0, end),
    )
    if found is None:
        assert facts is None
        assert shown is None
        return
    assert facts is None or facts[:5] + facts[6:] == found_facts(name, version, found[0])
    if shown is not None:
        assert whole_json(shown) == expected_json(name, version, data[:end])
    again = program(name, version).encode(found[0])
    assert again in (None, encoder.encode(message, version, found[0]))


class TestDamagedBytes:
    @given(
        choice=st.sampled_from(VERSIONS),
        seed=st.integers(0, 2**32),
        edits=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 2), st.binary(max_size=6)), max_size=5),
    )
    @settings(max_examples=1200, deadline=None)
    def test_edited(self, choice, seed, edits):
        data = bytearray(made(*choice, seed)[1])
        for at, cut, inserted in edits:
            data[at : at + cut] = inserted
        check(*choice, bytes(data))

    @given(choice=st.sampled_from(VERSIONS), data=st.binary(max_size=300))
    @settings(max_examples=800, deadline=None)
    def test_arbitrary(self, choice, data):
        check(*choice, data)

    @pytest.mark.parametrize("name", NAMES)
    def test_cut_off_anywhere(self, name):
        message, every = versions(name)
        for version in every:
            data = made(name, version)[1]
            for end in range(0, len(data), max(1, len(data) // 8)):
                cut = data[:end]
                expected = outcome(decoder.decode, message, version, cut)
                assert outcome(codec.decode, message, version, cut) == expected
                assert program(name, version).body_json(cut) is None
                assert program(name, version).body_facts(cut) is None
                assert program(name, version).body_json(data, 0, end) is None

    @pytest.mark.parametrize("name", NAMES)
    def test_bytes_behind_the_body_are_not_shown(self, name):
        for version in versions(name)[1]:
            data = made(name, version)[1] + b"\x00"
            assert program(name, version).body_json(data) is None
            assert program(name, version).body_facts(data) is None


class TestJson:
    @given(st.text(st.characters(exclude_categories=["Cs"])))
    @settings(max_examples=300)
    def test_any_text(self, value):
        data = encoder.encode(wire.message("SaslHandshakeRequest"), 0, {"mechanism": value})
        shown, _ = program("SaslHandshakeRequest", 0).body_json(data)
        assert shown == expected_json("SaslHandshakeRequest", 0, data)

    @pytest.mark.parametrize("raw", [b"\x80", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xa0\x80"])
    @pytest.mark.parametrize("before", [b"", b"a", b"abcdefgh"])
    def test_text_that_is_not_utf8_is_declined(self, raw, before):
        for mark in (
            raw,
            b"\xf0\x8f\xbf\xbf",
            b"\xf4\x90\x80\x80",
            b"\xf5\x80\x80\x80",
            b"\xe2\x82",
            b"\xf0\x9f",
        ):
            assert program("SaslHandshakeRequest", 0).body_json(blob16(before + mark)) is None

    @given(st.integers(-(2**63), 2**63 - 1))
    @settings(max_examples=300)
    def test_any_number(self, value):
        body = {"producerId": value, "producerEpoch": value % 2**15, "errorCode": value % 2**16 - 2**15}
        data = encoder.encode(wire.message("InitProducerIdResponse"), 0, body)
        shown, _ = program("InitProducerIdResponse", 0).body_json(data)
        assert shown == expected_json("InitProducerIdResponse", 0, data)

    def test_a_secret_is_redacted_and_null_is_not_one(self):
        data = encoder.encode(wire.message("SaslAuthenticateRequest"), 0, {"authBytes": b"secret"})
        shown, _ = program("SaslAuthenticateRequest", 0).body_json(data)
        assert shown == b'{"authBytes":"<redacted>"}'

    def test_a_value_that_configs_may_hide_is_declined(self):
        config = compact_array(compact("a") + compact("b") + tags())
        topic = compact_array(compact("t") + i32(1) + i16(1) + compact_array() + config + tags())
        data = topic + i32(1) + b"\x00" + tags()
        assert wire.decode("CreateTopicsRequest", 5, data)["topics"][0]["configs"][0]["value"] == "b"
        assert program("CreateTopicsRequest", 5).body_json(data) is None

    def test_tagged_fields_stand_in_their_place_and_records_know_theirs(self):
        partition = {
            "partitionIndex": 1,
            "records": b"x" * 70,
            "currentLeader": {"leaderId": 7, "leaderEpoch": 8},
        }
        partition["_tags"] = {77: b"?"}
        answer = {"responses": [{"topic": "t", "partitions": [partition, {"partitionIndex": 2}] * 2}]}
        data = encoder.encode(wire.message("FetchResponse"), 12, answer)
        shown, facts = program("FetchResponse", 12).body_json(data)
        assert whole_json((shown, facts)) == expected_json("FetchResponse", 12, data)
        assert [(data[at : at + size], key, topic) for _, at, size, key, topic, _ in facts[5]] == [
            (b"x" * 70, "records", "t"),
            (b"", "records", "t"),
        ] * 2
        for splice, *_ in facts[5]:
            assert shown[:splice].endswith(b',"recordsSummary":')
        shown, facts = program("FetchResponse", 12).body_json(data, 0, -1, True)
        assert all(shown[: place[0]].endswith(b',"records":') for place in facts[5])


class TestFacts:
    def test_of_a_fetch_with_errors(self):
        answer = {
            "throttleTimeMs": 12,
            "responses": [
                {"topicId": "AAAAAAAAAAAAAAAAAAAAaw", "partitions": [{"partitionIndex": 5, "errorCode": 3}]},
                {"topicId": "AAAAAAAAAAAAAAAAAAAAbw", "partitions": [{"partitionIndex": 6}]},
            ],
        }
        data = encoder.encode(wire.message("FetchResponse"), 13, answer)
        topics, ids, group, errors, throttle, records, learned = program("FetchResponse", 13).body_facts(data)
        assert ids == ("AAAAAAAAAAAAAAAAAAAAaw", "AAAAAAAAAAAAAAAAAAAAbw")
        assert errors == ((3, None, "AAAAAAAAAAAAAAAAAAAAaw", 5),)
        assert (topics, group, throttle, learned) == ((), None, 12, ())
        assert [place[5] for place in records] == list(ids)

    def test_of_metadata_whose_errors_stand_before_their_topics(self):
        topic = {"errorCode": 5, "name": "t", "topicId": "AAAAAAAAAAAAAAAAAAAAaw"}
        topic["partitions"] = [{"errorCode": 9, "partitionIndex": 4}]
        data = encoder.encode(wire.message("MetadataResponse"), 12, {"topics": [topic]})
        facts = program("MetadataResponse", 12).body_facts(data)
        assert facts[0] == ("t",)
        assert facts[3] == ((5, "t", topic["topicId"], None), (9, "t", topic["topicId"], 4))
        assert facts[6] == ((topic["topicId"], "t"),)

    def test_many_topics_once_each(self):
        topics = [{"name": f"t{number % 40}"} for number in range(100)]
        data = encoder.encode(wire.message("MetadataRequest"), 4, {"topics": topics})
        assert program("MetadataRequest", 4).body_facts(data)[0] == tuple(
            f"t{number}" for number in range(40)
        )


class TestLimits:
    """Structs in arrays and unknown tags of one body: a dict is a hundred times the two bytes behind it."""

    MESSAGE = wire.message("DescribeUserScramCredentialsRequest")
    USER = compact("") + tags()

    def users(self, count):
        return uvarint(count + 1) + self.USER * count + tags()

    def test_an_array_with_as_many_as_may_be(self):
        assert codec.program(self.MESSAGE, 0).body_facts(self.users(MAX_ELEMENTS)) is not None

    @pytest.mark.parametrize("decode", [decoder.decode, codec.decode])
    def test_an_array_with_one_more(self, decode):
        data = self.users(MAX_ELEMENTS + 1)
        assert codec.program(self.MESSAGE, 0).body_facts(data) is None
        assert codec.program(self.MESSAGE, 0).body_json(data) is None
        reason, path, offset, message, _ = outcome(decode, self.MESSAGE, 0, data)
        assert (reason, path, offset) == (Reason.COUNT_INVALID, "users", 0)
        assert str(MAX_ELEMENTS) in message

    @staticmethod
    def topics(count, partitions):
        partition = i32(0) + bytes(8) + i32(0) + compact("") + i16(0) + tags()
        topic = compact("t") + uvarint(partitions + 1) + partition * partitions + tags()
        return i32(0) + uvarint(count + 1) + topic * count + i16(0) + tags()

    @staticmethod
    def unknown(count):
        sections = b"".join(uvarint(tag) + uvarint(0) for tag in range(count))
        return i32(0) + i16(0) + uvarint(count) + sections

    def test_several_arrays_together(self):
        compiled = program("OffsetFetchResponse", 7)
        assert compiled.body_facts(self.topics(4, MAX_ELEMENTS // 4 - 1)) is not None
        assert compiled.body_facts(self.topics(4, MAX_ELEMENTS // 4)) is None
        assert compiled.decode(self.topics(4, MAX_ELEMENTS // 4)) is None

    def test_unknown_tags(self):
        compiled = program("HeartbeatResponse", 4)
        data = self.unknown(MAX_ELEMENTS + 1)
        for declined in (compiled.body_facts, compiled.body_json, compiled.decode):
            assert declined(data) is None
        last = len(uvarint(MAX_ELEMENTS) + uvarint(0))
        one_less = data.replace(uvarint(MAX_ELEMENTS + 1), uvarint(MAX_ELEMENTS), 1)[:-last]
        assert compiled.body_facts(one_less) is not None

    def test_the_reference_counts_alike(self, monkeypatch):
        monkeypatch.setattr(decoder, "MAX_ELEMENTS", 40)
        monkeypatch.setattr(Counted, "left", 40)
        decode, message = decoder.decode, wire.message("OffsetFetchResponse")
        assert len(decode(message, 7, self.topics(4, 9))[0]["topics"]) == 4
        refused = outcome(decode, message, 7, self.topics(4, 10))
        assert refused[:2] == (Reason.COUNT_INVALID, "topics[3].partitions")
        message = wire.message("HeartbeatResponse")
        assert len(decode(message, 4, self.unknown(40))[0]["_tags"]) == 40
        refused = outcome(decode, message, 4, self.unknown(41))
        assert refused[:2] == (Reason.COUNT_INVALID, "_tags")


class TestTheMachine:
    def test_defaults_are_fresh_each_time(self):
        answer = {"responses": [{"topic": "t", "partitions": [{}, {}]}]}
        data = encoder.encode(wire.message("FetchResponse"), 12, answer)
        first, second = program("FetchResponse", 12).decode(data)[0]["responses"][0]["partitions"]
        first["currentLeader"]["leaderId"] = 99
        first["more"] = second["_tags"] = 1
        del first["records"]
        again = program("FetchResponse", 12).decode(data)
        assert again == decoder.decode(wire.message("FetchResponse"), 12, data)
        assert second["currentLeader"]["leaderId"] == -1

    def test_nothing_leaks(self):
        cases = [(name, version, made(name, version, 1)[1]) for name, version in VERSIONS[::5]]

        def everything():
            for name, version, data in cases:
                for end in (len(data), len(data) // 2):
                    found = program(name, version).decode(data[:end])
                    program(name, version).body_json(data[:end])
                    program(name, version).body_facts(data[:end])
                    if found:
                        program(name, version).encode(found[0])
                        program(name, version).encode({**found[0], "unknown": 1})

        everything()
        blocks = []
        for _ in range(3):
            everything()
            gc.collect()
            blocks.append(sys.getallocatedblocks())
        assert blocks[2] - blocks[1] < 100

    @pytest.mark.parametrize("data", [bytearray(8), memoryview(bytes(8)), None, "text"])
    def test_what_is_not_bytes_is_declined(self, data):
        assert program("HeartbeatRequest", 0).decode(data) is None
        assert program("HeartbeatRequest", 0).body_json(data) is None

    @pytest.mark.parametrize(("at", "end"), [(-1, -1), (9, -1), (0, 9), (5, 4)])
    def test_a_place_outside_of_the_bytes_is_declined(self, at, end):
        assert program("HeartbeatRequest", 0).body_facts(bytes(8), at, end) is None

    @pytest.mark.parametrize(
        "body", [None, [], {1: 2}, {"groupId": 1}, {"groupId": None}, {"generationId": 2**31}]
    )
    def test_what_is_no_body_is_declined(self, body):
        assert program("HeartbeatRequest", 0).encode(body) is None

    def test_without_the_extension_all_is_the_same(self):
        code = "from kwsniff.wire import codec, decode\n"
        code += "print(codec.COMPILED, decode('HeartbeatRequest', 0, bytes(8)))"
        run = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "KWSNIFF_PURE": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        body = program("HeartbeatRequest", 0).decode(bytes(8))[0]
        assert run.stdout == f"False {body}\n"


def blob16(raw):
    return i16(len(raw)) + raw
