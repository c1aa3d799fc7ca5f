"""Plain dicts -> bytes: the counterpart of decoder.py, and as strict as that is liberal.

In: a Message, a version, a body. Out: the bytes. A missing key is written as its default; an unknown one, a
value of the wrong type or range, null where null is not allowed, and a value that this version cannot carry
(unless it is the default, or the field is ignorable) raise EncodeError with the path of the field.
Tagged fields that equal their default are left out, as Kafka's own writer does.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable
from functools import cache
from struct import Struct
from struct import error as StructError
from typing import Any

from kwsniff.errors import EncodeError, UnknownMessage
from kwsniff.wire.decoder import default_of
from kwsniff.wire.primitives import FIXED, MAX_STRING, Body
from kwsniff.wire.schema import Field, Message, near

Write = Callable[[Any, bytearray], None]
Size = Callable[[int, bytearray], None]
"""Writes a length or count; -1 for null."""

_MISSING = object()


class _Wrong(Exception):
    """An EncodeError in the making: its path grows on the way out."""

    def __init__(self, message: str, *path: str) -> None:
        super().__init__(message)
        self.message = message
        self.path = list(path)


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _number(type_: str) -> Write:
    pack = Struct(">" + FIXED[type_]).pack
    accepted = {"bool": (bool,), "float64": (float, int)}.get(type_, (int,))

    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, accepted) or (isinstance(value, bool) and type_ != "bool"):
            raise _Wrong(f"{_kind(value)} where {type_} is wanted")
        try:
            out += pack(value)
        except (StructError, OverflowError):
            raise _Wrong(f"{value} is out of the range of {type_}") from None

    return write


def write_uvarint(value: int, out: bytearray) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _compact(size: int, out: bytearray) -> None:
    write_uvarint(size + 1, out)


_int8, _int16, _int32 = _number("int8"), _number("int16"), _number("int32")


def _sized(name: str, size: Size, nullable: bool, raw: Callable[[Any], Any], most: int) -> Write:
    def write(value: Any, out: bytearray) -> None:
        if value is None:
            if not nullable:
                raise _Wrong("null where null is not allowed")
            size(-1, out)
            return
        content = raw(value)
        if content is None:
            raise _Wrong(f"{_kind(value)} where {name} is wanted")
        if len(content) > most:
            raise _Wrong(f"{len(content)} bytes are too long for {name}")
        size(len(content), out)
        out += content

    return write


def _raw_string(value: Any) -> bytes | None:
    if not isinstance(value, str):
        return None
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise _Wrong("the text holds half a surrogate pair") from None


def _raw_bytes(value: Any) -> bytes | bytearray | memoryview | None:
    if isinstance(value, memoryview):
        return bytes(value)
    return value if isinstance(value, bytes | bytearray) else None


def _uuid(value: Any, out: bytearray) -> None:
    if isinstance(value, str) and len(value) == 22 and value.isascii():
        try:
            raw = a2b_base64(value.replace("-", "+").replace("_", "/") + "==", strict_mode=True)
        except ValueError:
            raw = b""
        if len(raw) == 16:
            out += raw
            return
    raise _Wrong(f"{value!r:.40} is no uuid of 22 characters (URL-safe base64)")


def _array(element: Write, count: Size, nullable: bool) -> Write:
    def write(value: Any, out: bytearray) -> None:
        if value is None:
            if not nullable:
                raise _Wrong("null where null is not allowed")
            count(-1, out)
            return
        if not isinstance(value, list | tuple):
            raise _Wrong(f"{_kind(value)} where a list is wanted")
        count(len(value), out)
        written = 0
        try:
            for item in value:
                element(item, out)
                written += 1
        except _Wrong as wrong:
            wrong.path.append(f"[{written}]")
            raise

    return write


def _nullable_struct(element: Write, marker: Size, null: int) -> Write:
    def write(value: Any, out: bytearray) -> None:
        if value is None:
            marker(null, out)
        else:
            marker(1, out)
            element(value, out)

    return write


def _writer(field: Field, version: int, flexible: bool) -> Write:
    flexible = flexible and field.flexible
    nullable = field.null_in(version)
    if field.array:
        element = _element(field, version, flexible, False, False)
        return _array(element, _compact if flexible else _int32, nullable)
    return _element(field, version, flexible, nullable, field.tag is not None)


def _element(field: Field, version: int, flexible: bool, nullable: bool, tagged: bool) -> Write:
    if field.type in FIXED:
        return _number(field.type)
    if field.type == "uuid":
        return _uuid
    if field.type == "string":
        return _sized("string", _compact if flexible else _int16, nullable, _raw_string, MAX_STRING)
    if not field.is_struct:
        return _sized(field.type, _compact if flexible else _int32, nullable, _raw_bytes, 2**31 - 2)
    write = _Struct(field.fields, version, flexible).write
    if not nullable:
        return write
    return _nullable_struct(write, write_uvarint, 0) if tagged else _nullable_struct(write, _int8, -1)


def _is_default(field: Field, value: Any) -> bool:
    """Whether a value carries nothing that would be lost if its field were not written."""
    if value is None or field.default_null:
        return value is None and field.default_null
    if field.array:
        return bool(value == [])
    if not field.is_struct:
        return bool(value == field.default)
    fields = {below.key: below for below in field.fields}
    return isinstance(value, dict) and all(
        key in fields and _is_default(fields[key], item) for key, item in value.items()
    )


class _Struct:
    """Writes one struct at one version."""

    def __init__(self, fields: tuple[Field, ...], version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.plain: list[tuple[str, Write, Callable[[], Any]]] = []
        self.tagged: list[tuple[int, str, Write, bytes]] = []
        self.absent: dict[str, list[Field]] = {}
        for field in fields:
            if not field.versions.covers(version):
                self.absent.setdefault(field.key, []).append(field)
                continue
            write = _writer(field, version, flexible)
            default = default_of(field, version)
            if field.tag is None:
                self.plain.append((field.key, write, default))
            else:
                omitted = bytearray()
                write(default(), omitted)
                self.tagged.append((field.tag, field.key, write, bytes(omitted)))
        self.keys = {key for key, *_ in self.plain} | {key for _, key, *_ in self.tagged}

    def write(self, value: Any, out: bytearray) -> None:
        if not isinstance(value, dict):
            raise _Wrong(f"{_kind(value)} where a dict is wanted")
        if not value.keys() <= self.keys:
            self._refuse(value)
        key = ""
        try:
            for key, write, default in self.plain:
                item = value.get(key, _MISSING)
                write(default() if item is _MISSING else item, out)
        except _Wrong as wrong:
            wrong.path.append(f".{key}")
            raise
        if self.flexible:
            self._tags(value, out)

    def _refuse(self, value: Body) -> None:
        """What a body holds beyond the fields of this version must not be lost silently."""
        for key in sorted(value.keys() - self.keys, key=str):
            if key == "_tags" and (self.flexible or not value[key]):
                continue
            if key not in self.absent:
                every = [*self.keys, *self.absent, "_tags"]
                raise _Wrong(f"unknown field{near(str(key), every)}", f".{key}")
            if not any(field.ignorable or _is_default(field, value[key]) for field in self.absent[key]):
                raise _Wrong(f"version {self.version} has no such field, its value would be lost", f".{key}")

    def _tags(self, value: Body, out: bytearray) -> None:
        sections: dict[int, bytes | bytearray] = {}
        for tag, key, write, omitted in self.tagged:
            if key not in value:
                continue
            content = bytearray()
            try:
                write(value[key], content)
            except _Wrong as wrong:
                wrong.path.append(f".{key}")
                raise
            if content != omitted:
                sections[tag] = content
        known = {tag for tag, *_ in self.tagged}
        for tag, raw in _unknown_tags(value.get("_tags") or {}):
            if tag in known:
                raise _Wrong(f"tag {tag} is a field of this version", "._tags")
            sections[tag] = raw
        write_uvarint(len(sections), out)
        for tag in sorted(sections):
            write_uvarint(tag, out)
            write_uvarint(len(sections[tag]), out)
            out += sections[tag]


def _unknown_tags(tags: Any) -> list[tuple[int, bytes]]:
    if not isinstance(tags, dict):
        raise _Wrong(f"{_kind(tags)} where a dict of tag to bytes is wanted", "._tags")
    for tag, raw in tags.items():
        if not isinstance(tag, int) or not 0 <= tag < 2**32 or not isinstance(raw, bytes):
            raise _Wrong("a tag is a number from 0 to 4294967295, its value bytes", "._tags")
    return list(tags.items())


@cache
def plan(message: Message, version: int) -> Write:
    """The writer of a message's body at a version.

    Raises UnknownMessage when the message has no such version.
    """
    if not message.versions.covers(version):
        raise UnknownMessage(f"{message.name} has no version {version}, only {message.versions}")
    return _Struct(message.fields, version, message.flexible_in(version)).write


def encode(message: Message, version: int, body: Body) -> bytes:
    """The bytes of a body. Raises EncodeError with the path of the field at fault."""
    write = plan(message, version)
    out = bytearray()
    try:
        write(body, out)
    except _Wrong as wrong:
        path = "".join(reversed(wrong.path)).removeprefix(".")
        raise EncodeError(wrong.message, path=path) from None
    return bytes(out)
