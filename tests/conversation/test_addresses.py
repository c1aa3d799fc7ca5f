"""Broker addresses in answers: all of them are found, and nothing else is changed."""

from __future__ import annotations

import copy
import dataclasses
import re
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader
from talk import response

from kwsniff import wire
from kwsniff.conversation import addresses
from kwsniff.conversation.addresses import CARRIERS, LEFT_ALONE, Node, narrowed, nodes, rewritten
from kwsniff.wire import schema
from kwsniff.wire.schema import Field, Message

sys.path.append(str(Path(__file__).parents[1] / "wire"))

from made_bodies import Maker
from test_golden_vectors import VECTORS
from test_oracle_kio import CLASSES as KIO

BROKER = ("kafka-7.internal", 9092)
PROXY = ("127.0.0.1-proxy.", 19093)
"""Of the same length, so that bytes on the wire can be compared."""


def to_proxy(_: Node) -> tuple[str, int]:
    return PROXY


def moved(node: Node) -> tuple[str, int]:
    """Another port for every node, in the range of every type of port."""
    return f"proxy-for-{node.host}", (node.port + 1) % 2**16


RESPONSES = [message for message in schema.messages() if message.type == "response"]
CARRYING = [
    (carrier, version)
    for carrier in CARRIERS
    for version in range(carrier.versions.min, carrier.versions.max + 1)
]


def layouts(message: Message) -> Iterator[Message]:
    yield message
    yield from message.variants


def hosts(fields: tuple[Field, ...], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Field]]:
    """Every field whose name speaks of a host, an address or an endpoint and that holds text."""
    for field in fields:
        if field.type == "string" and re.search("host|address|endpoint|advertised", field.key, re.IGNORECASE):
            yield (*path, field.key), field
        yield from hosts(field.fields, (*path, field.key))


class TestTheTable:
    def test_every_host_of_every_answer_is_carried_or_left_alone_for_a_reason(self) -> None:
        carried = {(c.api, (*c.path, "host")) for c in CARRIERS}
        found = {
            (message.api_key, path)
            for message in RESPONSES
            for layout in layouts(message)
            for path, _ in hosts(layout.fields)
        }
        assert len(found) == 22
        assert found == carried | set(LEFT_ALONE)
        assert not carried & set(LEFT_ALONE)
        assert all(LEFT_ALONE.values())

    def test_every_port_stands_beside_a_host(self) -> None:
        def structs(fields: tuple[Field, ...]) -> Iterator[set[str]]:
            yield {field.key for field in fields}
            for field in fields:
                yield from structs(field.fields)

        for message in RESPONSES:
            for keys in structs(message.fields):
                assert not [key for key in keys if key.lower().endswith("port")] or {"host", "port"} <= keys

    def test_the_versions_are_those_in_which_the_schema_has_the_host(self) -> None:
        for carrier in CARRIERS:
            message = wire.response_of(carrier.api)
            assert message is not None
            versions = [f.versions for path, f in hosts(message.fields) if path == (*carrier.path, "host")]
            assert versions == [carrier.versions], carrier

    def test_the_node_id_is_a_broker_id_in_the_struct_or_around_it(self) -> None:
        for carrier in CARRIERS:
            message = wire.response_of(carrier.api)
            assert message is not None
            fields, ids = message.fields, []
            for key in ("", *carrier.path):
                if key:
                    fields = next(field.fields for field in fields if field.key == key)
                ids = [f.key for f in fields if f.entity == "brokerId"] or ids
            assert carrier.node_id in ids

    def test_it_is_the_list_of_the_issue(self) -> None:
        """Metadata, FindCoordinator, DescribeCluster, Produce, Fetch, ShareFetch, ShareAcknowledge,
        DescribeQuorum, UpdateRaftVoter; and what voters say to each other."""
        client_visible = {3, 10, 60, 0, 1, 78, 79, 55, 82}
        assert client_visible | {52, 53, 54, 59} == addresses.APIS


class FilledMaker(Maker):
    """Every array with two elements, nothing null; every address the broker's."""

    def _value(self, field: Field, version: int, flexible: bool) -> Any:
        if field.key == "host":
            return BROKER[0]
        if field.key == "port":
            return BROKER[1]
        if field.array:
            return [self._one(field, version, flexible) for _ in range(2)]
        return self._one(field, version, flexible)


def filled(api: int, version: int, *, tame: bool = False) -> tuple[str, dict[str, Any]]:
    message = wire.response_of(api)
    assert message is not None
    body = FilledMaker(Random(version), tame=tame).body(message, version)
    for holder in every_struct(body):
        for key in ("nodeId", "brokerId", "leaderId"):
            if key in holder:
                holder[key] = 7
    return message.name, body


def every_struct(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from every_struct(item)


@pytest.mark.parametrize(("carrier", "version"), CARRYING)
def test_on_the_wire_only_the_address_is_another(carrier: addresses.Carrier, version: int) -> None:
    name, body = filled(carrier.api, version)
    before = copy.deepcopy(body)
    data = wire.encode(name, version, body)
    changed = rewritten(carrier.api, version, body, to_proxy)
    assert changed is not None
    assert body == before

    port = ">H" if carrier.api in (52, 53, 54, 55, 59) else ">i"
    old, new = ((host.encode() + struct.pack(port, number)) for host, number in (BROKER, PROXY))
    assert len(old) == len(new)
    assert old in data
    assert BROKER[0].encode() not in data.replace(old, b"")
    assert wire.encode(name, version, changed) == data.replace(old, new)


KIOS = {(name, int(cls.__version__)): cls for name, some in KIO.items() for cls in some}
READABLE = [(c, v) for c, v in CARRYING if (wire.response_of(c.api).name, v) in KIOS]  # type: ignore[union-attr]


@pytest.mark.parametrize(("carrier", "version"), READABLE)
def test_a_client_reads_the_other_address(carrier: addresses.Carrier, version: int) -> None:
    """kio's classes, made from Kafka's definitions, read what the client would."""
    name, body = filled(carrier.api, version, tame=True)
    changed = rewritten(carrier.api, version, body, to_proxy)
    assert changed is not None
    read, _ = entity_reader(KIOS[name, version])(wire.encode(name, version, changed), 0)
    found = list(seen(read))
    assert set(found) == {PROXY}
    assert len(found) == (4 if carrier.path == ("nodes", "listeners") else 2 if is_array(carrier) else 1)


def is_array(carrier: addresses.Carrier) -> bool:
    return carrier.path not in ((), ("currentLeader",))


def seen(value: Any) -> Iterator[tuple[str, int]]:
    if isinstance(value, tuple):
        for item in value:
            yield from seen(item)
    elif dataclasses.is_dataclass(value):
        if hasattr(value, "host"):
            yield value.host, int(value.port)
        for field in dataclasses.fields(value):
            yield from seen(getattr(value, field.name))


def test_kio_reads_most_of_them() -> None:
    assert len(READABLE) >= 35


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from flat(item, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from flat(item, f"{path}[{index}]")
    else:
        yield path, value


def check(name: str, version: int, body: dict[str, Any], data: bytes) -> int:
    """What is changed is host and port of nodes that have them, all of these, and nothing else. How many."""
    api = wire.message(name).api_key
    assert api is not None
    before = copy.deepcopy(body)
    changed = rewritten(api, version, body, moved)
    assert body == before
    named = nodes(api, version, body)
    if changed is None:
        assert named == []
        return 0
    after = wire.decode(name, version, wire.encode(name, version, changed))
    old, new = dict(flat(wire.decode(name, version, data))), dict(flat(after))
    assert old.keys() == new.keys()
    different = {path for path in old if old[path] != new[path]}
    for path in different:
        holder, _, key = path.rpartition(".")
        was = Node(None, old[f"{holder}.host"], old[f"{holder}.port"])
        assert new[path] == {"host": moved(was)[0], "port": moved(was)[1]}[key]
    assert sum(path.endswith(".host") for path in different) == len(named) > 0
    left = [path for path in old if path.rpartition(".")[2] == "host" and path not in different]
    for path in left:
        holder = path.rpartition(".")[0]
        ids = [new.get(f"{holder}.{key}") for key in ("nodeId", "brokerId", "leaderId")]
        around = new.get(re.sub(r"\.listeners\[\d+\]$", "", holder) + ".nodeId")
        assert old[path] == "" or old[f"{holder}.port"] < 0 or -1 in (*ids, around)
    return len(named)


CARRYING_NAMES = {
    wire.response_of(carrier.api).name: carrier.api  # type: ignore[union-attr]
    for carrier in CARRIERS
}


def test_in_the_golden_vectors_nothing_else_is_changed() -> None:
    named = 0
    for name in CARRYING_NAMES:
        for version, data, body in VECTORS.get(name, []):
            named += check(name, version, body, data)
    assert named > 100


def test_golden_vectors_of_other_answers_stay_as_they_are() -> None:
    for name, some in VECTORS.items():
        message = wire.message(name)
        if message.type != "response" or name in CARRYING_NAMES:
            continue
        assert message.api_key is not None
        for version, _, body in some:
            assert rewritten(message.api_key, version, body, to_proxy) is None


@given(st.sampled_from(CARRYING), st.integers())
@settings(max_examples=300, deadline=None)
def test_in_any_body_nothing_else_is_changed(of: tuple[addresses.Carrier, int], seed: int) -> None:
    carrier, version = of
    message = wire.response_of(carrier.api)
    assert message is not None
    body = Maker(Random(seed)).body(message, version)
    for holder in every_struct(body):
        if "port" in holder:
            holder["port"] = min(holder["port"], 2**16 - 1)
    data = wire.encode(message.name, version, body)
    check(message.name, version, wire.decode(message.name, version, data), data)


def metadata(*brokers: dict[str, Any]) -> dict[str, Any]:
    data = wire.encode("MetadataResponse", 1, {"brokers": list(brokers)})
    return wire.decode("MetadataResponse", 1, data)


def broker(node_id: int, host: str, port: int, **more: Any) -> dict[str, Any]:
    return {"nodeId": node_id, "host": host, "port": port, **more}


class TestNodes:
    def test_in_the_order_of_the_answer(self) -> None:
        body = metadata(broker(2, "b", 2), broker(1, "a", 1), broker(2, "b", 2))
        assert nodes(3, 1, body) == [Node(2, "b", 2), Node(1, "a", 1), Node(2, "b", 2)]

    def test_one_without_an_address_is_none(self) -> None:
        assert nodes(3, 1, metadata(broker(1, "", -1))) == []
        assert nodes(10, 0, {"errorCode": 15, "nodeId": -1, "host": "", "port": -1}) == []
        assert nodes(10, 0, {"errorCode": 15, "nodeId": -1, "host": "somewhere", "port": 9092}) == []
        assert nodes(82, 0, wire.decode("UpdateRaftVoterResponse", 0, bytes(4 + 2 + 1))) == []

    def test_a_node_of_the_quorum_has_its_id_around_its_listeners(self) -> None:
        listeners = [
            {"name": "CONTROLLER", "host": "c1", "port": 65535},
            {"name": "OTHER", "host": "c1", "port": 2},
        ]
        body = {"errorCode": 0, "topics": [], "nodes": [{"nodeId": 3000, "listeners": listeners}]}
        assert nodes(55, 2, body) == [Node(3000, "c1", 65535, True), Node(3000, "c1", 2, True)]
        data = wire.encode("DescribeQuorumResponse", 2, rewritten(55, 2, body, lambda _: ("p", 65534)) or {})
        read = wire.decode("DescribeQuorumResponse", 2, data)
        assert [listener["port"] for listener in read["nodes"][0]["listeners"]] == [65534, 65534]

    @pytest.mark.parametrize(("kind", "controller"), [(1, False), (2, True)])
    def test_describe_cluster_tells_controllers_from_brokers(self, kind: int, controller: bool) -> None:
        body = {"endpointType": kind, "brokers": [{"brokerId": 4, "host": "h", "port": 1}]}
        assert nodes(60, 1, body) == [Node(4, "h", 1, controller)]

    def test_describe_cluster_of_old_has_brokers_only(self) -> None:
        assert nodes(60, 0, {"brokers": [{"brokerId": 4, "host": "h", "port": 1}]}) == [Node(4, "h", 1)]

    def test_consumer_metadata_of_0_8_2(self) -> None:
        """error_code, coordinator_id, host, port, by hand from the protocol guide of that time."""
        data = struct.pack(">hih5si", 0, 3, 5, b"kafka", 9092)
        body = wire.decode("FindCoordinatorResponse", 0, data)
        changed = rewritten(10, 0, body, lambda node: ("proxy", 20000 + (node.node_id or 0)))
        assert changed is not None
        expected = struct.pack(">hih5si", 0, 3, 5, b"proxy", 20003)
        assert wire.encode("FindCoordinatorResponse", 0, changed) == expected

    def test_its_beta_had_an_error_alone(self) -> None:
        body = wire.decode("FindCoordinatorResponse", 0, b"\x00\x0f")
        assert body["_variant"] == "0.8.2-beta"
        assert nodes(10, 0, body) == []

    def test_application_endpoints_of_streams_stay(self) -> None:
        body = {
            "partitionsByUserEndpoint": [
                {
                    "userEndpoint": {"host": "app", "port": 8080},
                    "activePartitions": [],
                    "standbyPartitions": [],
                }
            ]
        }
        assert rewritten(88, 0, body, to_proxy) is None

    def test_another_version_is_not_looked_into(self) -> None:
        assert nodes(0, 9, {"nodeEndpoints": [broker(1, "h", 1)]}) == []


class TestRewritten:
    def test_some_nodes_may_stay(self) -> None:
        body = metadata(broker(1, "a", 1), broker(2, "b", 2))
        changed = rewritten(3, 1, body, lambda node: ("p", 9) if node.node_id == 2 else None)
        assert changed is not None
        assert nodes(3, 1, changed) == [Node(1, "a", 1), Node(2, "p", 9)]
        assert changed["brokers"][0] is body["brokers"][0]

    @pytest.mark.parametrize("place", [lambda _: None, lambda node: (node.host, node.port)])
    def test_none_when_nothing_changes(self, place: Callable[[Node], Any]) -> None:
        assert rewritten(3, 1, metadata(broker(1, "a", 1)), place) is None

    def test_unknown_tags_survive_at_every_level(self) -> None:
        """A Metadata v9 answer with a tag 77 in the broker and a tag 78 in the body, written by hand."""
        one = b"\x00\x00\x00\x01" + b"\x06kafka" + b"\x00\x00\x23\x84" + b"\x00" + b"\x01\x4d\x02hi"
        rest = b"\x00" + b"\xff\xff\xff\xff" + b"\x01" + b"\x80\x00\x00\x00" + b"\x01\x4e\x01!"
        data = b"\x00\x00\x00\x00" + b"\x02" + one + rest
        body = wire.decode("MetadataResponse", 9, data)
        changed = rewritten(3, 9, body, lambda _: ("proxy", 9092))
        assert changed is not None
        assert wire.encode("MetadataResponse", 9, changed) == data.replace(b"kafka", b"proxy")


def versions(*entries: tuple[int, int, int]) -> list[dict[str, int]]:
    return [{"apiKey": api, "minVersion": low, "maxVersion": high} for api, low, high in entries]


class TestNarrowed:
    def test_versions_above_ours_are_lowered_and_unknown_apis_left_out(self) -> None:
        body = {"errorCode": 0, "apiKeys": versions((0, 3, 99), (3, 0, 13), (18, 0, 5), (999, 0, 0))}
        changed = narrowed(body)
        assert changed == {"errorCode": 0, "apiKeys": versions((0, 3, 13), (3, 0, 13), (18, 0, 4))}
        assert body["apiKeys"] == versions((0, 3, 99), (3, 0, 13), (18, 0, 5), (999, 0, 0))

    def test_none_when_all_is_known(self) -> None:
        assert narrowed({"errorCode": 0, "apiKeys": versions((0, 0, 13), (1, 4, 18), (18, 0, 4))}) is None

    def test_what_is_all_above_ours_is_left_out(self) -> None:
        assert narrowed({"errorCode": 0, "apiKeys": versions((0, 90, 99))}) == {"errorCode": 0, "apiKeys": []}

    def test_limits_of_ones_own(self) -> None:
        body = {"errorCode": 0, "apiKeys": versions((0, 0, 13), (1, 0, 18), (3, 0, 13))}
        changed = narrowed(body, {0: (3, 8), 3: (0, 13)})
        assert changed == {"errorCode": 0, "apiKeys": versions((0, 3, 8), (3, 0, 13))}

    def test_the_fallback_of_kip_511_stays(self) -> None:
        _, body = wire.decode_response(response(18, 0, 1, b"\x00\x23" + bytes(4))[4:], 18, 4)
        assert narrowed(body) is None
        listed = {"errorCode": 35, "apiKeys": versions((18, 0, 99))}
        assert narrowed(listed) is None

    @pytest.mark.parametrize("version", range(5))
    def test_in_every_version_features_and_all_else_stay(self, version: int) -> None:
        message = wire.response_of(18)
        assert message is not None
        made = FilledMaker(Random(version)).body(message, version)
        made["errorCode"] = 0
        made["apiKeys"] = [
            {**entry, "apiKey": 1, "minVersion": 0, "maxVersion": 18} for entry in made["apiKeys"]
        ]
        body = wire.decode(message.name, version, wire.encode(message.name, version, made))
        assert narrowed(body) is None
        body["apiKeys"][1]["maxVersion"] = 19
        changed = narrowed(body)
        assert changed is not None
        body["apiKeys"][1]["maxVersion"] = 18
        assert changed == body
        assert wire.decode(message.name, version, wire.encode(message.name, version, changed)) == body

    def test_the_limits_are_what_can_be_decoded(self) -> None:
        for api, (low, high) in addresses.known().items():
            name = wire.response_of(api).name  # type: ignore[union-attr]
            for version in (low, high):
                wire.encode(name, version, {})
        assert len(addresses.known()) == 93
