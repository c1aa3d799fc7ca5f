"""For every message and version: what is written can be read; the worst that bytes can do is DecodeError."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_bodies import Maker, every_version

from kwsniff import wire
from kwsniff.errors import DecodeError, Reason
from kwsniff.wire import codec, schema

NAMES = [message.name for message in schema.messages()]
VERSIONS = [(message.name, version) for message, version in every_version()]


@pytest.mark.parametrize("name", NAMES)
def test_a_body_of_any_version_survives_the_wire(name):
    message = wire.message(name)
    for version in range(message.versions.min, message.versions.max + 1):
        maker = Maker(Random(f"{name} {version}"))
        for _ in range(3):
            body = maker.body(message, version)
            data = wire.encode(name, version, body)
            assert wire.decode(name, version, data) == body
            assert wire.encode(name, version, dict(reversed(body.items()))) == data


@pytest.mark.parametrize("name", [message.name for message in schema.messages() if message.variants])
def test_a_body_of_a_deviating_layout_survives_the_wire(name):
    for variant in wire.message(name).variants:
        body = Maker(Random(name)).body(variant, variant.versions.min)
        data = wire.encode(name, variant.versions.min, {**body, "_variant": variant.variant})
        assert codec.decode(variant, variant.versions.min, data) == (body, len(data))


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_dict_is_written_as_defaults_and_read_as_them(name):
    message = wire.message(name)
    for version in range(message.versions.min, message.versions.max + 1):
        defaults = wire.decode(name, version, wire.encode(name, version, {}))
        assert wire.encode(name, version, defaults) == wire.encode(name, version, {})


@pytest.mark.parametrize("name", NAMES)
def test_a_body_cut_off_or_with_bytes_behind_it_is_a_decode_error(name):
    message = wire.message(name)
    for version in range(message.versions.min, message.versions.max + 1):
        body = Maker(Random(f"{name} {version}")).body(message, version)
        data = wire.encode(name, version, body)
        for end in range(0, len(data), max(1, len(data) // 8)):
            with pytest.raises(DecodeError) as caught:
                codec.decode(message, version, data[:end])
            assert caught.value.offset <= end
        with pytest.raises(DecodeError) as caught:
            wire.decode(name, version, data + b"\xff\xff")
        assert caught.value.reason is Reason.TRAILING_BYTES
        assert caught.value.partial == body


@given(random=st.randoms(use_true_random=False), choice=st.sampled_from(VERSIONS))
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_body_survives_the_wire(random, choice):
    name, version = choice
    body = Maker(random).body(wire.message(name), version)
    assert wire.decode(name, version, wire.encode(name, version, body)) == body


@given(
    choice=st.sampled_from(VERSIONS),
    seed=st.integers(0, 2**32),
    edits=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 2), st.binary(max_size=6)), max_size=5),
)
@settings(max_examples=1500, deadline=None)
def test_damaged_bytes_give_a_body_that_can_be_written_again_or_a_decode_error(choice, seed, edits):
    name, version = choice
    data = bytearray(wire.encode(name, version, Maker(Random(seed)).body(wire.message(name), version)))
    for at, cut, inserted in edits:
        data[at : at + cut] = inserted
    check_arbitrary(name, version, bytes(data))


@given(choice=st.sampled_from(VERSIONS), data=st.binary(max_size=300))
@settings(max_examples=1500, deadline=None)
def test_arbitrary_bytes_give_a_body_that_can_be_written_again_or_a_decode_error(choice, data):
    check_arbitrary(*choice, data)


def outcome(name, version, data):
    try:
        return wire.decode(name, version, data), None
    except DecodeError as error:
        return None, error


def check_arbitrary(name, version, data):
    body, error = outcome(name, version, data)
    if error:
        assert 0 <= error.offset <= len(data)
        assert isinstance(error.partial, dict)
        return
    again = wire.decode(name, version, wire.encode(name, version, body))
    assert repr(again) == repr(body)  # NaN is not equal to itself


@given(frame=st.binary(max_size=64), api=st.integers(0, 93), version=st.integers(0, 20))
@settings(max_examples=500, deadline=None)
def test_arbitrary_frames_are_a_result_or_one_of_the_two_documented_errors(frame, api, version):
    for attempt in (lambda: wire.decode_request(frame), lambda: wire.decode_response(frame, api, version)):
        try:
            header, body = attempt()
        except (DecodeError, wire.UnknownMessage):
            continue
        assert isinstance(header["correlationId"], int)
        assert isinstance(body, dict)
