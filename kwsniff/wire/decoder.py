"""Bytes -> plain dicts: a message at a version becomes a plan of readers, once; then bytes run through it.

In: a Message, a version, bytes. Out: the body and where it ended. An error says which field, at which byte,
and what had been read. Nothing recurses but the schema.
Refuses to know variants, trailing bytes, headers (codec.py, wire/__init__.py) and what the bytes fields hold.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct
from struct import error as StructError
from typing import Any

from kwsniff.errors import DecodeError, Reason, UnknownMessage
from kwsniff.wire.primitives import (
    FIXED,
    MAX_ELEMENTS,
    Bad,
    Body,
    Counted,
    Read,
    array,
    charge,
    compact,
    fixed,
    int8,
    int16,
    int32,
    nullable_struct,
    numbers,
    raw,
    read_uvarint,
    short,
    string,
    too_short,
    uuid,
)
from kwsniff.wire.schema import Field, Message

Step = Callable[[bytes, int, Body], int]
"""Reads one or more fields of a struct into its dict; returns where they end."""


def _reader(field: Field, version: int, flexible: bool, tagged: bool) -> tuple[Read, int]:
    """The reader of a field, and the least bytes that it takes."""
    flexible = flexible and field.flexible
    nullable = field.null_in(version)
    if not field.array:
        return _element(field, version, flexible, nullable, tagged)
    count = compact if flexible else int32
    smallest = 1 if flexible else 4
    if field.type in FIXED:
        return numbers(FIXED[field.type], count, nullable), smallest
    element, least = _element(field, version, flexible, False, False)
    return array(element, max(1, least), count, nullable, field.is_struct), smallest


def _element(field: Field, version: int, flexible: bool, nullable: bool, tagged: bool) -> tuple[Read, int]:
    if field.type in FIXED:
        code = FIXED[field.type]
        return fixed(code), Struct(">" + code).size
    if field.type == "uuid":
        return uuid, 16
    if field.type == "string":
        return string(compact if flexible else int16, nullable), 1 if flexible else 2
    if not field.is_struct:
        return raw(compact if flexible else int32, nullable), 1 if flexible else 4
    read, least = _struct(field.fields, version, flexible)
    if not nullable:
        return read, least
    # Kafka's generator writes the null marker of a tagged struct as an unsigned varint, elsewhere as an int8
    if tagged:
        return nullable_struct(read, read_uvarint, lambda mark: mark == 0), 1
    return nullable_struct(read, int8, lambda mark: mark < 0), 1


def default_of(field: Field, version: int) -> Callable[[], Any]:
    """What makes the default of a field: a fresh one where it could be changed."""
    if field.default_null:
        return lambda: None
    if field.array:
        return list
    if field.is_struct:
        parts = [(f.key, default_of(f, version)) for f in field.fields if f.versions.covers(version)]
        return lambda: {key: make() for key, make in parts}
    value = field.default
    return lambda: value


def _one(key: str, read: Read) -> Step:
    def step(data: bytes, at: int, body: Body) -> int:
        try:
            body[key], end = read(data, at)
        except (IndexError, StructError):
            bad = short(at)
            bad.inside(key, body)
            raise bad from None
        except Bad as bad:
            bad.inside(key, body)
            raise
        return end

    return step


def _run(fields: list[Field]) -> Step:
    """Adjacent fixed-size fields, read at once; one by one when that fails, to find the one to blame."""
    if len(fields) == 1:
        return _one(fields[0].key, fixed(FIXED[fields[0].type]))
    keys = [field.key for field in fields]
    layout = Struct(">" + "".join(FIXED[field.type] for field in fields))
    unpack, size = layout.unpack_from, layout.size
    singles = [_run([field]) for field in fields]

    def step(data: bytes, at: int, body: Body) -> int:
        if at + size > len(data):
            for single in singles:
                at = single(data, at, body)
        body.update(zip(keys, unpack(data, at), strict=True))
        return at + size

    return step


def _defaulted(key: str, make: Callable[[], Any]) -> Step:
    """A tagged field keeps its place among the others; the tag section replaces the default."""

    def step(data: bytes, at: int, body: Body) -> int:  # noqa: ARG001
        body[key] = make()
        return at

    return step


def _tags(known: dict[int, tuple[str, Read]]) -> Step:
    """The tag section of a struct. Unknown tags are kept under `_tags` (KIP-482)."""

    def step(data: bytes, at: int, body: Body) -> int:
        if data[at : at + 1] == b"\x00":
            return at + 1
        key = "_tags"
        try:
            count, at = read_uvarint(data, at)
            last = -1
            for _ in range(count):
                key, start = "_tags", at
                tag, at = read_uvarint(data, at)
                size, at = read_uvarint(data, at)
                if tag <= last:
                    raise Bad(Reason.TAG_INVALID, f"tag {tag} behind tag {last}", start)
                last, end = tag, at + size
                if end > len(data):
                    too_short(size, len(data) - at, start)
                if tag not in known:
                    charge(data, 1, start)
                    body.setdefault("_tags", {})[tag] = data[at:end]
                else:
                    key, read = known[tag]
                    value, reached = read(data, at)
                    if reached != end:
                        raise Bad(Reason.TAG_INVALID, f"{size} bytes announced, {reached - at} used", start)
                    body[key] = value
                at = end
        except (IndexError, StructError):
            bad = short(at)
            bad.inside(key, body)
            raise bad from None
        except Bad as bad:
            bad.inside(key, body)
            raise
        return at

    return step


def _struct(fields: tuple[Field, ...], version: int, flexible: bool) -> tuple[Read, int]:
    """The reader of a struct's fields in order, its tag section behind them."""
    steps: list[Step] = []
    known: dict[int, tuple[str, Read]] = {}
    run: list[Field] = []
    least = 0
    for field in fields:
        if not field.versions.covers(version):
            continue
        if field.tag is None and not field.array and field.type in FIXED:
            run.append(field)
            least += Struct(">" + FIXED[field.type]).size
            continue
        if run:
            steps.append(_run(run))
            run = []
        read, size = _reader(field, version, flexible, field.tag is not None)
        if field.tag is not None:
            known[field.tag] = (field.key, read)
            steps.append(_defaulted(field.key, default_of(field, version)))
        else:
            least += size
            steps.append(_one(field.key, read))
    if run:
        steps.append(_run(run))
    if flexible:
        least += 1
        steps.append(_tags(known))

    def read_struct(data: bytes, at: int) -> tuple[Body, int]:
        body: Body = {}
        for step in steps:
            at = step(data, at, body)
        return body, at

    return read_struct, least


@cache
def plan(message: Message, version: int) -> Read:
    """The reader of a message's body at a version.

    Raises UnknownMessage when the message has no such version.
    """
    if not message.versions.covers(version):
        raise UnknownMessage(f"{message.name} has no version {version}, only {message.versions}")
    return _struct(message.fields, version, message.flexible_in(version))[0]


def decode(message: Message, version: int, data: bytes, at: int = 0) -> tuple[Body, int]:
    """The body at `at` of `data`, and where it ends.

    Raises DecodeError (offset from the start of `data`, partial: the fields before the error).
    """
    read = plan(message, version)
    if len(data) - at > MAX_ELEMENTS:
        data = Counted(data)
    try:
        body, end = read(data, at)
    except Bad as bad:
        path = "".join(reversed(bad.path)).removeprefix(".")
        raise DecodeError(bad.reason, bad.message, path=path, offset=bad.at, partial=bad.partial) from None
    return body, end
