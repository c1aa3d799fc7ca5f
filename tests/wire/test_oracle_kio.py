"""kio as oracle: its classes, generated from Kafka's definitions, and its codec in Rust."""

from __future__ import annotations

import dataclasses
import io
from base64 import urlsafe_b64encode
from datetime import datetime, timedelta
from enum import Enum
from pkgutil import resolve_name
from random import Random
from types import NoneType
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from made_bodies import Maker

from kwsniff import wire
from kwsniff.wire.schema import ZERO_UUID, Field

TYPES = {
    "int16": "int16",
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}
"""Its names of wire types that it gives another Python type."""


NONE_FOR_A_VALUE = ("uuid", "datetime_i64")
"""It reads a zero uuid and a timestamp of -1 as None, though they are not null on the wire."""


def classes() -> dict[str, list[type]]:
    found: dict[str, list[type]] = {}
    for per_version in schema_name_map.values():
        for per_kind in per_version.values():
            for path in per_kind.values():
                cls = resolve_name(path)
                found.setdefault(cls.__name__, []).append(cls)
    return found


CLASSES = classes()


def squeezed(name: str) -> str:
    """A name without the ways in which it differs: words, and the unit of durations."""
    return name.replace("_", "").lower().removesuffix("ms")


def described(cls: type, flexible: bool) -> list[Any]:
    """What it says about the fields of a struct at its version."""
    return [field_described(field, flexible) for field in dataclasses.fields(cls)]


def field_described(field: dataclasses.Field[Any], flexible: bool) -> tuple[Any, ...]:
    parts = set(get_args(field.type)) if NoneType in get_args(field.type) else {field.type}
    (inner,) = parts - {NoneType}
    array = get_origin(inner) is tuple
    element = get_args(inner)[0] if array else inner
    kind = field.metadata.get("kafka_type")
    type_ = TYPES.get(kind, kind) if kind else described(element, flexible)
    nullable = NoneType in parts and (array or kind not in NONE_FOR_A_VALUE)
    return squeezed(field.name), type_, array, nullable, field.metadata.get("tag")


def ours(fields: tuple[Field, ...], version: int) -> list[Any]:
    return [
        (
            squeezed(field.key),
            ours(field.fields, version) if field.is_struct else field.type,
            field.array,
            field.null_in(version),
            field.tag,
        )
        for field in fields
        if field.versions.covers(version)
    ]


def plain(value: Any) -> Any:
    """Its values as ours, keys squeezed."""
    if dataclasses.is_dataclass(value):
        return {squeezed(f.name): plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, UUID):
        return urlsafe_b64encode(value.bytes)[:22].decode()
    return value


def comparable(value: Any) -> Any:
    """Ours with keys squeezed; a zero uuid is None, as it reads one."""
    if isinstance(value, dict):
        return {squeezed(key): comparable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [comparable(item) for item in value]
    return None if value == ZERO_UUID else value


def test_there_is_something_to_compare():
    assert sum(map(len, CLASSES.values())) > 600


@pytest.mark.parametrize("name", CLASSES)
def test_the_structure_is_the_same_at_every_version(name):
    message = wire.message(name)
    for cls in CLASSES[name]:
        assert ours(message.fields, cls.__version__) == described(cls, cls.__flexible__)
        assert message.flexible_in(cls.__version__) == cls.__flexible__


@pytest.mark.parametrize("name", CLASSES)
def test_what_we_write_it_reads_and_writes_the_same(name):
    message = wire.message(name)
    for cls in CLASSES[name]:
        version = int(cls.__version__)
        for round_ in range(2):
            body = Maker(Random(f"{name} {version} {round_}"), tame=True).body(message, version)
            data = wire.encode(name, version, body)
            theirs, size = entity_reader(cls)(data, 0)
            assert size == len(data)
            assert plain(theirs) == comparable(body)
            out = io.BytesIO()
            entity_writer(cls)(out, theirs)
            assert out.getvalue() == data
