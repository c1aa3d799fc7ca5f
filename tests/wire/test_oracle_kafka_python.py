"""kafka-python as oracle: Kafka's own definitions, which it carries, and its codec."""

from __future__ import annotations

import importlib
import re
import warnings
from base64 import urlsafe_b64encode
from random import Random
from typing import Any
from uuid import UUID

import pytest
from made_bodies import Maker

from kwsniff import wire
from kwsniff.wire.schema import PRIMITIVES, ZERO_UUID, Field, Message

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it uses importlib.resources.read_text
    from kafka.protocol.api_message import ApiMessage
    from kafka.protocol.schemas import load_json

    for package in ("admin", "consumer", "metadata", "producer", "sasl"):
        importlib.import_module(f"kafka.protocol.{package}")


def classes(root=ApiMessage):
    for cls in root.__subclasses__():
        if getattr(cls, "_json", None) and cls._class_version is None:
            yield cls
        yield from classes(cls)


CLASSES = {cls.__name__: cls for cls in classes() if cls.__name__ != "ApiMessage"}


def definition(name: str) -> dict[str, Any]:
    """Kafka's own definition, as kafka-python carries it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return load_json(name)


def versions(text: str | None, within: tuple[int, int]) -> tuple[int, int] | None:
    """A version range of Kafka's definitions, cut to `within`."""
    if text in (None, "none"):
        return None
    low, plus, high = re.fullmatch(r"(\d+)(\+)?(?:-(\d+))?", text).groups()
    upper = within[1] if plus else int(high or low)
    cut = max(int(low), within[0]), min(upper, within[1])
    return cut if cut[0] <= cut[1] else None


class Structure:
    """Compares one message of ours with Kafka's definition, in the versions that the definition has."""

    def __init__(self, message: Message, definition: dict[str, Any]) -> None:
        whole = versions(definition["validVersions"], (0, 99))
        self.valid = whole[0], min(whole[1], message.versions.max)
        self.differences: list[str] = []
        self.same(
            message.name,
            "flexible",
            cut(message.flexible, self.valid),
            versions(definition["flexibleVersions"], self.valid),
        )
        self.fields(message.name, message.fields, definition["fields"], self.valid)

    def same(self, where: str, what: str, ours: Any, theirs: Any) -> None:
        if ours != theirs:
            self.differences.append(f"{where}: {what} {ours!r}, Kafka has {theirs!r}")

    def fields(
        self, where: str, ours: tuple[Field, ...], theirs: list[dict[str, Any]], base: tuple[int, int]
    ) -> None:
        kept = [(f, f_versions) for f in theirs if (f_versions := versions(f["versions"], base))]
        mine = [f for f in ours if cut(f.versions, base)]
        self.same(where, "fields", [f.name for f in mine], [f["name"] for f, _ in kept])
        for field, (other, exist) in zip(mine, kept, strict=False):
            self.field(f"{where}.{field.name}", field, other, exist)

    def field(self, where: str, field: Field, other: dict[str, Any], exist: tuple[int, int]) -> None:
        self.same(where, "versions", cut(field.versions, self.valid), exist)
        self.same(where, "type", f"[]{field.type}" if field.array else field.type, other["type"])
        self.same(where, "null", cut(field.nullable, exist), versions(other.get("nullableVersions"), exist))
        self.same(where, "tag", field.tag, other.get("tag"))
        self.same(where, "ignorable", field.ignorable, other.get("ignorable", False))
        default = other.get("default", "")
        self.same(where, "default null", field.default_null, default == "null")
        if not field.array and field.type in PRIMITIVES and default != "null":
            self.same(where, "default", field.default, parsed(field.type, default))
        if "entityType" in other:
            self.same(where, "entity", field.entity, other["entityType"])
        if field.is_struct:
            self.fields(where, field.fields, other["fields"], exist)


def cut(ours: Any, within: tuple[int, int]) -> tuple[int, int] | None:
    if ours is None or max(ours[0], within[0]) > min(ours[1], within[1]):
        return None
    return max(ours[0], within[0]), min(ours[1], within[1])


def parsed(type_: str, default: Any) -> Any:
    if default == "":
        return PRIMITIVES[type_]
    if type_ == "bool":
        return default in (True, "true")
    return int(default, 0) if isinstance(default, str) else default


def test_there_is_something_to_compare():
    assert len(CLASSES) > 100


@pytest.mark.parametrize("name", CLASSES)
def test_the_structure_is_that_of_kafkas_definition(name):
    assert Structure(wire.message(name), definition(name)).differences == []


@pytest.mark.parametrize("name", [name for name in CLASSES if name.endswith("Request")])
def test_the_listeners_of_kafkas_definition_are_among_ours(name):
    assert set(definition(name)["listeners"]) <= set(wire.message(name).listeners)


def plain(value: Any) -> Any:
    """kafka-python's values as ours."""
    if isinstance(value, dict):
        return {key.replace("_", ""): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, UUID):
        return urlsafe_b64encode(value.bytes)[:22].decode()
    return sorted(value) if isinstance(value, set) else value


def squeezed(value: Any) -> Any:
    """Ours, with keys that do not depend on how a name is cut into words. It reads a zero uuid as None."""
    if value == ZERO_UUID:
        return None
    if isinstance(value, dict):
        return {key.lower(): squeezed(item) for key, item in value.items()}
    return [squeezed(item) for item in value] if isinstance(value, list) else value


BIT_FIELDS = re.compile("AuthorizedOperations")
"""kafka-python turns these into sets of operations."""


@pytest.mark.parametrize("name", CLASSES)
def test_what_we_write_it_reads_and_writes_the_same(name):
    cls, message = CLASSES[name], wire.message(name)
    for version in range(cls.min_version, min(cls.max_version, message.versions.max) + 1):
        if not cls.valid_versions[0] <= version <= cls.valid_versions[1]:
            continue
        body = Maker(Random(f"{name} {version}"), tame=True).body(message, version)
        if name == "ApiVersionsResponse":
            body["errorCode"] = 0  # it reads any error as a body of version 0
        if any(BIT_FIELDS.search(field.name) for field in every(message.fields)):
            continue
        data = wire.encode(name, version, body)
        theirs = cls.decode(data, version=version)
        assert squeezed(plain(theirs.to_dict(json=False))) == squeezed(body)
        theirs._header = None  # what one of its writers looks for, and its readers do not set
        assert theirs.encode() == data


def every(fields: tuple[Field, ...]):
    for field in fields:
        yield field
        yield from every(field.fields)
