"""The compiled decoder makes a body from the one before: alike elements must not show it."""

from __future__ import annotations

from copy import deepcopy
from random import Random

import pytest
from made_bodies import Maker, every_version
from wirebytes import compact, compact_array, i8, i16, i32, i64, tags

from kwsniff import wire
from kwsniff.compiled import PURE
from kwsniff.wire import codec, decoder, encoder

pytestmark = pytest.mark.skipif(PURE, reason="KWSNIFF_PURE leaves the extension aside")


def decoded(name, version, data):
    found = codec.program(wire.message(name), version).decode(data)
    assert found is not None, "the extension declined"
    return found[0]


def doubled(value, random):
    """The same with every element of its arrays repeated, and one field in four of a repeated one its own."""
    if isinstance(value, dict):
        return {key: doubled(inner, random) for key, inner in value.items()}
    if not isinstance(value, list):
        return value
    made = []
    for element in value:
        made += [doubled(element, random), doubled(element, random)]
    structs = [element for element in made if isinstance(element, dict)]
    for one in structs:
        other = random.choice(structs)
        for key in one.keys() & other.keys():
            if random.random() < 0.25:
                one[key] = deepcopy(other[key])
    return made


def changeable(value):
    """The ids of all dicts and lists in a body."""
    if isinstance(value, dict):
        yield id(value)
        for inner in value.values():
            yield from changeable(inner)
    elif isinstance(value, list):
        yield id(value)
        for inner in value:
            yield from changeable(inner)


@pytest.mark.parametrize(
    ("name", "version"), [(message.name, version) for message, version in every_version()]
)
def test_elements_alike_decode_as_the_reference_decodes_them(name, version):
    message = wire.message(name)
    for seed in range(3):
        random = Random(f"{name} {version} {seed}")
        body = doubled(Maker(random).body(message, version), random)
        data = encoder.encode(message, version, body)
        one, other = decoded(name, version, data), decoded(name, version, data)
        assert repr(one) == repr(decoder.decode(message, version, data)[0])
        ids = [*changeable(one), *changeable(other)]
        assert len(ids) == len(set(ids)), "two places have the same dict or list"


def partition(index, section, *, leader_epoch=7):
    """Of a FetchRequest v12."""
    return i32(index) + i32(leader_epoch) + i64(5) + i32(-1) + i64(0) + i32(1024) + section


def fetch_request(*partitions):
    topics = compact_array(compact("orders") + compact_array(*partitions) + tags())
    head = i32(-1) + i32(500) + i32(1) + i32(1024) + i8(0) + i32(0) + i32(-1)
    return head + topics + compact_array() + compact("") + tags()


def test_an_unknown_tag_is_not_handed_to_the_next_element():
    data = fetch_request(partition(0, tags(t9=b"x")), partition(1, tags()), partition(2, tags(t9=b"y")))
    found = decoded("FetchRequest", 12, data)["topics"][0]["partitions"]
    assert [element.get("_tags") for element in found] == [{9: b"x"}, None, {9: b"y"}]
    assert [element["partition"] for element in found] == [0, 1, 2]


def test_a_changed_field_between_equal_ones():
    data = fetch_request(*(partition(0, tags(), leader_epoch=epoch) for epoch in (7, 8, 8, 7)))
    found = decoded("FetchRequest", 12, data)["topics"][0]["partitions"]
    assert [element["currentLeaderEpoch"] for element in found] == [7, 8, 8, 7]
    found[0]["currentLeaderEpoch"] = None
    assert [element["currentLeaderEpoch"] for element in found] == [None, 8, 8, 7]


def test_strings_that_begin_alike():
    names = [
        b"orders",
        b"orders",
        b"orders-2",
        b"order",
        b"",
        b"",
        b"\xff\xfe",
        b"\xff\xfe",
        "örders".encode(),
    ]
    topics = compact_array(*(compact(name) + compact_array() + tags() for name in names))
    head = i32(-1) + i32(500) + i32(1) + i32(1024) + i8(0) + i32(0) + i32(-1)
    found = decoded("FetchRequest", 12, head + topics + compact_array() + compact("") + tags())
    assert [topic["topic"] for topic in found["topics"]] == [
        "orders", "orders", "orders-2", "order", "", "", "\udcff\udcfe", "\udcff\udcfe", "örders",
    ]  # fmt: skip


def test_bytes_that_end_within_an_element_like_the_last_are_declined():
    program = codec.program(wire.message("ApiVersionsResponse"), 0)
    api = i16(3) + i16(0) + i16(9)
    data = i16(0) + i32(2) + api + api
    assert program.decode(data) is not None
    assert all(program.decode(data[:size]) is None for size in range(len(data)))
