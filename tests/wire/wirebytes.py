"""Bytes of the wire, written by hand: the notation of the transcripts in this folder."""

from __future__ import annotations

from struct import pack


def i8(value: int) -> bytes:
    return pack(">b", value)


def i16(value: int) -> bytes:
    return pack(">h", value)


def i32(value: int) -> bytes:
    return pack(">i", value)


def i64(value: int) -> bytes:
    return pack(">q", value)


def text(value: str | bytes | None) -> bytes:
    """string: int16 length, -1 for null."""
    if value is None:
        return i16(-1)
    raw = value if isinstance(value, bytes) else value.encode()
    return i16(len(raw)) + raw


def blob(value: bytes | None) -> bytes:
    """bytes: int32 length, -1 for null."""
    return i32(-1) if value is None else i32(len(value)) + value


def uvarint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value % 128 + 128])
        value //= 128
    return out + bytes([value])


def compact(value: str | bytes | None) -> bytes:
    """compact string or bytes: uvarint length + 1, 0 for null."""
    if value is None:
        return uvarint(0)
    raw = value if isinstance(value, bytes) else value.encode()
    return uvarint(len(raw) + 1) + raw


def array(*items: bytes) -> bytes:
    return i32(len(items)) + b"".join(items)


def compact_array(*items: bytes) -> bytes:
    return uvarint(len(items) + 1) + b"".join(items)


def tags(**sections: bytes) -> bytes:
    """A tag section: tags(t0=..., t5=...); tags() for an empty one."""
    out = uvarint(len(sections))
    for name, content in sections.items():
        out += uvarint(int(name[1:])) + uvarint(len(content)) + content
    return out
