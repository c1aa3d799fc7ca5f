"""Zigzag varints of record batches (WIRE: base 128, low group first; 5 bytes for int32, 10 for int64).

In: a buffer and a position. Out: the value and the position behind it. Reading past the buffer is an
IndexError, which the caller names; more bytes than the type may have are VARINT_INVALID.
"""

from __future__ import annotations

from kwsniff.errors import DecodeError, Reason


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """An int32 of 1 to 5 bytes -> (value, position behind it)."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    return _read_long(data, at, 5, 0xFFFFFFFF)


def read_varlong(data: bytes, at: int) -> tuple[int, int]:
    """An int64 of 1 to 10 bytes -> (value, position behind it)."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    return _read_long(data, at, 10, 0xFFFFFFFFFFFFFFFF)


def _read_long(data: bytes, at: int, most: int, mask: int) -> tuple[int, int]:
    value = shift = 0
    for position in range(at, at + most):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= mask
            return (value >> 1) ^ -(value & 1), position + 1
        shift += 7
    raise DecodeError(Reason.VARINT_INVALID, f"a varint of more than {most} bytes", offset=at)


def write_varint(value: int) -> bytes:
    """The shortest form of an int32 or int64."""
    zigzag = (value << 1) ^ (value >> 63)
    if zigzag < 0x80:
        return bytes((zigzag,))
    out = bytearray()
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def int64(value: int) -> int:
    """A sum of two int64 as Java has it: wrapped."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
