"""Record batches and message sets, written by hand: the notation of the record tests in this folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import pack
from zlib import crc32

from kafkapython import calc_crc32c
from wirebytes import blob, i8, i16, i32, i64, uvarint

Header = tuple[str | bytes, bytes | None]

NOTHING = i32(-1)


def zigzag(value: int) -> bytes:
    """varint and varlong: small negative numbers are short too."""
    return uvarint(value * 2 if value >= 0 else -value * 2 - 1)


def sized(value: bytes | None) -> bytes:
    return zigzag(-1) if value is None else zigzag(len(value)) + value


def record(
    value: bytes | None,
    key: bytes | None = None,
    *,
    offset: int = 0,
    timestamp: int = 0,
    headers: Sequence[Header] = (),
) -> bytes:
    """A record of magic 2; offset and timestamp are deltas."""
    body = i8(0) + zigzag(timestamp) + zigzag(offset) + sized(key) + sized(value) + zigzag(len(headers))
    for name, content in headers:
        body += sized(name.encode() if isinstance(name, str) else name) + sized(content)
    return zigzag(len(body)) + body


def batch(
    *records: bytes,
    base_offset: int = 0,
    attributes: int = 0,
    base_timestamp: int = 0,
    max_timestamp: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    count: int | None = None,
    last_delta: int | None = None,
    compress: Callable[[bytes], bytes] = bytes,
    leader_epoch: int = 0,
) -> bytes:
    """A batch of magic 2 with a right length and CRC-32C."""
    delta = max(0, len(records) - 1) if last_delta is None else last_delta
    behind = i16(attributes) + i32(delta) + i64(base_timestamp) + i64(max_timestamp)
    behind += i64(producer[0]) + i16(producer[1]) + i32(producer[2])
    behind += i32(len(records) if count is None else count) + compress(b"".join(records))
    checked = i32(leader_epoch) + i8(2) + pack(">I", calc_crc32c(behind)) + behind
    return i64(base_offset) + blob(checked)


def message(
    magic: int,
    value: bytes | None,
    key: bytes | None = None,
    *,
    offset: int = 0,
    timestamp: int = -1,
    attributes: int = 0,
) -> bytes:
    """An entry of a message set of magic 0 or 1 with a right CRC-32."""
    body = i8(magic) + i8(attributes) + (i64(timestamp) if magic else b"") + blob(key) + blob(value)
    return i64(offset) + blob(pack(">I", crc32(body)) + body)
