"""A message at a version -> its layout as plain values, from which _fast.pyx builds what its machine runs.

In: a Message and a version. Out: a Layout of Steps, the fields in Kafka's order. Here is decided, once per
message and version, how the bytes lie, what a field is in JSON, and what the machine leaves to the reference.
Refuses to know C, and what a body holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kwsniff.errors import UnknownMessage
from kwsniff.wire.decoder import default_of
from kwsniff.wire.schema import Field, Message

SIZES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint16": 2,
    "uint32": 4,
    "float64": 8,
    "uuid": 16,
}
"""Types that always take as many bytes."""

_FACTS = ("topicName", "topicId", "groupId", "errorCode", "partitionIndex")
_THROTTLE = "throttleTimeMs"
_REDACTED = "<redacted>"
_SLICE = "unalignedRecords"  # of FetchSnapshot (KIP-630): JSON shows it from its first whole batch on

PAYLOADS = {
    "JoinGroupRequest": {"protocols.metadata"},
    "JoinGroupResponse": {"members.metadata"},
    "SyncGroupRequest": {"assignments.assignment"},
    "SyncGroupResponse": {"assignment"},
    "DescribeGroupsResponse": {"groups.members.memberMetadata", "groups.members.memberAssignment"},
    "EnvelopeRequest": {"requestData", "requestPrincipal"},
    "EnvelopeResponse": {"responseData"},
    "GroupMetadataValue": {"members.subscription", "members.assignment"},
    "ConsumerGroupMemberMetadataValue": {"classicMemberMetadata.supportedProtocols.metadata"},
}
"""Bytes fields that JSON shows opened: those of embedded.py, which takes long to load, and an Envelope's."""


class Step(NamedTuple):
    """One field of a struct."""

    type: str
    """As Field.type, `struct` for a struct."""
    key: str
    array: bool
    nullable: bool
    compact: bool
    """Length or count are unsigned varints, one more than they say."""
    tag: int
    """-1: none."""
    size: int
    """Bytes of a fixed-size type, else 0."""
    least: int
    """The least bytes that one element takes."""
    default: Any
    """Of a field that is not there; what could be changed is made anew by `make`."""
    make: Callable[[], Any] | None
    fact: str
    """An entity of _FACTS, `throttle`, or "". """
    scalar: bool
    """Whether the fact is that of the struct (walk.py takes the first such field)."""
    treatment: str
    """What JSON does with a value that is not null: `records`, `slice`, `secret`, `fallback` or ""."""
    facts_below: bool
    """Whether it is, or holds, something that walk.py finds, or that needs treatment."""
    default_json: bytes
    below: Layout | None


class Layout(NamedTuple):
    """A struct: its fields; least: bytes; facts: whether it holds any."""

    steps: tuple[Step, ...]
    flexible: bool
    least: int
    facts: bool


class _Context(NamedTuple):
    version: int
    flexible: bool
    payloads: frozenset[str]
    """Paths of fields that JSON may show opened."""


def layout(message: Message, version: int) -> Layout:
    """Raises UnknownMessage when the message has no such version."""
    if not message.versions.covers(version):
        raise UnknownMessage(f"{message.name} has no version {version}, only {message.versions}")
    payloads = frozenset(PAYLOADS.get(message.name, ()))
    return _layout(message.fields, _Context(version, message.flexible_in(version), payloads), "")


def _layout(fields: tuple[Field, ...], context: _Context, path: str) -> Layout:
    steps: list[Step] = []
    seen: set[str] = set()
    for field in fields:
        if not field.versions.covers(context.version):
            continue
        first = field.entity is not None and not field.array and field.entity not in seen
        if first and field.entity:
            seen.add(field.entity)
        steps.append(_step(field, context, path, first))
    least = sum(_least(step) for step in steps if step.tag < 0) + context.flexible
    return Layout(tuple(steps), context.flexible, least, any(step.facts_below for step in steps))


def _step(field: Field, context: _Context, path: str, first: bool) -> Step:
    below = _layout(field.fields, context, f"{path}{field.key}.") if field.is_struct else None
    make = default_of(field, context.version)
    default = make()
    mutable = isinstance(default, list | dict)
    fact = field.entity if field.entity in _FACTS else ""
    if field.key == _THROTTLE and not path:
        fact = "throttle"
    treatment = _treatment(field, path + field.key in context.payloads)
    compact = context.flexible and field.flexible
    return Step(
        type="struct" if field.is_struct else field.type,
        key=field.key,
        array=field.array,
        nullable=field.null_in(context.version),
        compact=compact,
        tag=-1 if field.tag is None else field.tag,
        size=SIZES.get(field.type, 0),
        least=_element_least(field.type, compact, below),
        default=default,
        make=make if mutable else None,
        fact=fact or "",
        scalar=first,
        treatment=treatment,
        facts_below=bool(fact or treatment or (below and below.facts)),
        default_json=_default_json(field, default),
        below=below,
    )


def _treatment(field: Field, payload: bool) -> str:
    if payload or field.mark == "config" or field.type == "float64":
        return "fallback"  # opened, hidden by its name, or a number that JSON may not have
    if field.mark == "secret":
        return "secret"
    if field.type != "records":
        return ""
    return "slice" if field.key == _SLICE else "records"


def _default_json(field: Field, default: Any) -> bytes:
    return _json(_REDACTED if field.mark == "secret" and default is not None else default).encode()


def _json(default: Any) -> str:
    """Of what defaults are: no text among them needs an escape, none of the bytes hold anything."""
    if isinstance(default, dict):
        return "{" + ",".join(f'"{key}":{_json(value)}' for key, value in default.items()) + "}"
    if isinstance(default, str | bytes):
        return f'"{default if isinstance(default, str) else default.decode()}"'
    if default is None or isinstance(default, bool):
        return {None: "null", True: "true", False: "false"}[default]
    return repr(default)  # a number or an empty list


def _least(step: Step) -> int:
    if step.array:
        return 1 if step.compact else 4
    return 1 if step.type == "struct" and step.nullable else step.least


def _element_least(type_: str, compact: bool, below: Layout | None) -> int:
    if below is not None:
        return below.least
    if type_ in SIZES:
        return SIZES[type_]
    return 1 if compact else {"string": 2}.get(type_, 4)
