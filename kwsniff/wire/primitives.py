"""How each type of the wire is read: the parts of which decoder.py makes its plans.

Every reader takes (data, at) and returns (value, end). One that meets bad bytes raises Bad; whatever encloses
it adds its own name to the path and puts what was read so far around the partial value. A reader may also
leave an IndexError or struct.error to what encloses it: the bytes ended within the field. Counts and sizes
are checked against the bytes that are left before anything is made of them.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import Any, NoReturn

from kwsniff.errors import Reason

Body = dict[str, Any]
Read = Callable[[bytes, int], tuple[Any, int]]

FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
}
"""Fixed-size types and their `struct` codes."""
MAX_STRING = 0x7FFF
MAX_ELEMENTS = 1_000_000
"""Structs in arrays and unknown tagged fields of one body: two bytes on the wire may become a dict of 200."""

_ABSENT = object()


class Bad(Exception):
    """A DecodeError in the making: its path grows on the way out."""

    def __init__(self, reason: Reason, message: str, at: int, partial: Any = _ABSENT) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.at = at
        self.partial = partial
        self.path: list[str] = []

    def inside(self, key: str, body: Body) -> None:
        """It happened while `key` of `body` was read."""
        if self.partial is not _ABSENT:
            body[key] = self.partial
        self.partial = body
        self.path.append(f".{key}")

    def inside_array(self, index: int, items: list[Any]) -> None:
        if self.partial is not _ABSENT:
            items.append(self.partial)
        self.partial = items
        self.path.append(f"[{index}]")


def short(at: int) -> Bad:
    return Bad(Reason.BODY_TRUNCATED, "the bytes end within the field", at)


def too_short(size: int, left: int, at: int) -> NoReturn:
    raise Bad(Reason.BODY_TRUNCATED, f"{size} bytes announced, {left} left", at)


class Counted(bytes):
    """The bytes of a body that could hold more than MAX_ELEMENTS, for each takes a byte or more."""

    left = MAX_ELEMENTS


def charge(data: bytes, count: int, at: int) -> None:
    """`count` more elements were announced at `at`."""
    if isinstance(data, Counted):
        data.left -= count
        if data.left < 0:
            raise Bad(Reason.COUNT_INVALID, f"more than {MAX_ELEMENTS} elements in one body", at)


def read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned varint of at most 5 bytes and 32 bits; longer than needed is accepted."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, at + 1
    raise Bad(Reason.VARINT_INVALID, "a varint of more than 32 bits", at)


def compact(data: bytes, at: int) -> tuple[int, int]:
    """A compact length or count: one more than it says, 0 for null."""
    value, at = read_uvarint(data, at)
    return value - 1, at


def fixed(code: str) -> Read:
    layout = Struct(">" + code)
    unpack, size = layout.unpack_from, layout.size

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return unpack(data, at)[0], at + size

    return read


int8, int16, int32 = fixed("b"), fixed("h"), fixed("i")


def _null(size: int, at: int, nullable: bool, reason: Reason) -> Any:
    """What a length or count below 0 means: None, or an error."""
    if size != -1:
        raise Bad(reason, f"a size of {size}", at)
    if not nullable:
        raise Bad(Reason.NULL_INVALID, "null where null is not allowed", at, partial=None)
    return None


def string(length: Read, nullable: bool) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        size, start = length(data, at)
        if size < 0:
            return _null(size, at, nullable, Reason.LENGTH_INVALID), start
        if size > MAX_STRING:
            raise Bad(Reason.LENGTH_INVALID, f"a string of {size} bytes", at)
        end = start + size
        if end > len(data):
            too_short(size, len(data) - start, at)
        return data[start:end].decode("utf-8", "surrogateescape"), end

    return read


def raw(length: Read, nullable: bool) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        size, start = length(data, at)
        if size < 0:
            return _null(size, at, nullable, Reason.LENGTH_INVALID), start
        end = start + size
        if end > len(data):
            too_short(size, len(data) - start, at)
        return data[start:end], end

    return read


_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def uuid(data: bytes, at: int) -> tuple[str, int]:
    end = at + 16
    if end > len(data):
        raise short(at)
    return b2a_base64(data[at:end], newline=False)[:22].translate(_URL_SAFE).decode("ascii"), end


def numbers(code: str, count: Read, nullable: bool) -> Read:
    """An array of fixed-size values."""
    size = Struct(">" + code).size

    def read(data: bytes, at: int) -> tuple[Any, int]:
        length, start = count(data, at)
        if length < 0:
            return _null(length, at, nullable, Reason.COUNT_INVALID), start
        end = start + length * size
        if end > len(data):
            raise Bad(Reason.COUNT_INVALID, f"{length} elements in {len(data) - start} bytes", at)
        return list(Struct(f">{length}{code}").unpack_from(data, start)), end

    return read


def array(element: Read, smallest: int, count: Read, nullable: bool, structs: bool) -> Read:
    """An array of anything else. `smallest` is the least that one element takes."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        length, end = count(data, at)
        if length < 0:
            return _null(length, at, nullable, Reason.COUNT_INVALID), end
        if length * smallest > len(data) - end:
            raise Bad(Reason.COUNT_INVALID, f"{length} elements in {len(data) - end} bytes", at)
        if structs:
            charge(data, length, at)
        items: list[Any] = []
        try:
            for _ in range(length):
                item, end = element(data, end)
                items.append(item)
        except (IndexError, StructError):
            bad = short(end)
            bad.inside_array(len(items), items)
            raise bad from None
        except Bad as bad:
            bad.inside_array(len(items), items)
            raise
        return items, end

    return read


def nullable_struct(element: Read, marker: Read, null: Callable[[int], bool]) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        mark, start = marker(data, at)
        return (None, start) if null(mark) else element(data, start)

    return read
