"""Message sets, magic 0 and 1 (Kafka 0.8 to 0.10).

In: bytes and the bounds of one top-level entry. Out: its header as a dict, its records as dicts, and the way
back. An entry is a plain message (one record) or a wrapper (a compressed message set).
Does not know how entries follow each other, nor the record batches of magic 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from struct import Struct
from struct import error as StructError
from zlib import crc32

from kwsniff.compiled import compiled
from kwsniff.errors import DecodeError, EncodeError, Reason
from kwsniff.model import Body
from kwsniff.wire import compression
from kwsniff.wire.batch import CREATE_TIME, LOG_APPEND_TIME
from kwsniff.wire.varint import int64

LEAST_SIZE = {0: 14, 1: 22}
"""Bytes of a message behind its size field when key and value are null."""

ENTRY = Struct(">qiIbb")
_HEAD = Struct(">qi")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_FIELDS_AT = {0: 18, 1: 26}
"""Where the key's length stands in an entry."""
_CODEC, _APPEND = 0x07, 0x08
_CRC_AT, _MAGIC_AT = 12, 16
_compiled = compiled("kwsniff.wire._records")


class Budget:
    """What may still be decompressed of one entry, in bytes and in levels."""

    def __init__(self, size: int, levels: int) -> None:
        self.size = size
        self.levels = levels


def read_header(data: bytes, at: int, end: int) -> Body:
    """The fields of an entry without key and value. baseOffset is the entry's own offset field."""
    offset, size, crc, magic, attributes = ENTRY.unpack_from(data, at)
    codec = attributes & _CODEC
    timestamp_type = timestamp = None
    if magic:
        timestamp_type = LOG_APPEND_TIME if attributes & _APPEND else CREATE_TIME
        timestamp = _INT64.unpack_from(data, at + 18)[0]
    return {
        "baseOffset": offset,
        "magic": magic,
        "codec": compression.NAMES.get(codec, str(codec)),
        "crcValid": crc32(memoryview(data)[at + _MAGIC_AT : end]) == crc,
        "offset": offset,
        "messageSize": size,
        "crc": crc,
        "attributes": attributes,
        "timestampType": timestamp_type,
        "timestamp": timestamp,
    }


def read_records(data: bytes, at: int, end: int, header: Body, budget: Budget) -> Iterator[Body]:
    """The record of a plain message, or those of a wrapper with their absolute offsets.

    A record whose own CRC is wrong inside of a wrapper has `crcValid` False. Raises DecodeError behind the
    last good record; path and offset as in `batch.read_records`.
    """
    numbers = count()
    try:
        key, value = _read_fields(data, at, end, header["magic"])
        if not header["attributes"] & _CODEC:
            yield _record(header["offset"], header["timestamp"], key, value)
            return
    except DecodeError as error:
        raise DecodeError(
            error.reason, error.message, path=f"records[0].{error.path}", offset=error.offset
        ) from None
    try:
        yield from _expand(header, value, budget, numbers, 1)
    except DecodeError as error:
        raise DecodeError(error.reason, error.message, path=error.path, offset=at) from None


def _record(offset: int, timestamp: int | None, key: bytes | None, value: bytes | None) -> Body:
    return {"offset": offset, "timestamp": timestamp, "key": key, "value": value, "headers": []}


def _read_fields(data: bytes, at: int, end: int, magic: int) -> tuple[bytes | None, bytes | None]:
    at += _FIELDS_AT[magic]
    key, at = _read_bytes(data, at, end - 4, "key")
    value, at = _read_bytes(data, at, end, "value")
    if at != end:
        message = f"{end - at} bytes behind the value"
        raise DecodeError(Reason.TRAILING_BYTES, message, path="value", offset=at)
    return key, value


def _read_bytes(data: bytes, at: int, end: int, field: str) -> tuple[bytes | None, int]:
    size: int = _INT32.unpack_from(data, at)[0]
    at += 4
    if size == -1:
        return None, at
    if not 0 <= size <= end - at:
        message = f"a {field} of {size} bytes where {end - at} are left"
        raise DecodeError(Reason.LENGTH_INVALID, message, path=field, offset=at - 4)
    return data[at : at + size], at + size


def _expand(
    wrapper: Body, value: bytes | None, budget: Budget, numbers: Iterator[int], level: int
) -> Iterator[Body]:
    """The messages inside of a wrapper. Kafka writes one level; a few more are shown before it is refused."""
    content = _unpacked(wrapper, value, budget, numbers, level)
    shift = int64(_shift(wrapper, content))
    append = wrapper["timestamp"] if wrapper["timestampType"] == LOG_APPEND_TIME else None
    at, size = 0, len(content)
    view = memoryview(content)
    while at < size:
        if _compiled is not None:
            found, at = _compiled.messages(content, at, wrapper["magic"], shift, append)
            yield from (record for record, _ in zip(found, numbers, strict=False))
            if found:
                continue
        end, magic = _bounds(content, at, numbers)
        if magic != wrapper["magic"]:
            raise _bad(numbers, at, f"magic {magic} inside of a wrapper of magic {wrapper['magic']}")
        offset, _, crc, _, attributes = ENTRY.unpack_from(content, at)
        offset = int64(offset + shift)
        timestamp = append
        if timestamp is None and magic:
            timestamp = _INT64.unpack_from(content, at + 18)[0]
        try:
            key, inner = _read_fields(content, at, end, magic)
        except DecodeError as error:
            raise _bad(numbers, error.offset, error.message, error.path) from None
        if attributes & _CODEC:
            nested = read_header(content, at, end) | {"offset": offset}
            if append is not None:
                nested |= {"timestamp": append, "timestampType": LOG_APPEND_TIME}
            yield from _expand(nested, inner, budget, numbers, level + 1)
        else:
            record = _record(offset, timestamp, key, inner)
            if crc32(view[at + _MAGIC_AT : end]) != crc:
                record["crcValid"] = False
            next(numbers)
            yield record
        at = end


def _unpacked(
    wrapper: Body, value: bytes | None, budget: Budget, numbers: Iterator[int], level: int
) -> bytes:
    if value is None:
        raise DecodeError(Reason.NULL_INVALID, "a compressed message set that is null", path="records")
    if level > budget.levels:
        message = f"compressed message sets nested more than {budget.levels} deep"
        raise DecodeError(Reason.NESTING_LIMIT, message, path=f"records[{next(numbers)}]")
    try:
        codec = wrapper["attributes"] & _CODEC
        content = compression.decompress(codec, value, budget.size, wrapper["magic"])
    except DecodeError as error:
        raise DecodeError(error.reason, error.message, path="records") from None
    budget.size -= len(content)
    return content


def _bad(numbers: Iterator[int], at: int, message: str, field: str = "") -> DecodeError:
    path = f"records[{next(numbers)}].{field}".rstrip(".")
    return DecodeError(
        Reason.RECORDS_CORRUPT, f"{message} (byte {at} of the decompressed message set)", path=path
    )


def _bounds(content: bytes, at: int, numbers: Iterator[int]) -> tuple[int, int]:
    """End and magic of the inner message at `at`."""
    left = len(content) - at
    if left < 18:
        raise _bad(numbers, at, f"{left} bytes are no message")
    size, magic = _HEAD.unpack_from(content, at)[1], content[at + _MAGIC_AT]
    if magic not in LEAST_SIZE:
        raise _bad(numbers, at, f"unknown magic {magic}")
    if not LEAST_SIZE[magic] <= size <= left - 12:
        raise _bad(numbers, at, f"a message of {size} bytes where {left - 12} are left")
    return at + 12 + size, magic


def _shift(wrapper: Body, content: bytes) -> int:
    """What is to be added to the offsets inside.

    Those of magic 1 are relative, and the wrapper has the absolute one of the last message (KIP-31). A
    wrapper's 0 means that they are to be taken as they are: librdkafka in produce requests.
    """
    if wrapper["magic"] == 0 or wrapper["offset"] == 0:
        return 0
    at = last = 0
    while at + 12 <= len(content):
        offset, size = _HEAD.unpack_from(content, at)
        if size < 0 or at + 12 + size > len(content):
            break
        last = offset
        at += 12 + size
    if wrapper["offset"] < last:
        message = f"the wrapper's offset {wrapper['offset']} is before the last one inside, {last}"
        raise DecodeError(Reason.RECORDS_CORRUPT, message, path="records")
    return int(wrapper["offset"] - last)


def write(entry: Body, path: str) -> bytes:
    """An entry from a dict as `read_header` and `read_records` give it; sizes, crc and the offsets inside are
    computed. Without codec each record becomes a message of its own. Raises EncodeError.
    """
    magic: int = entry["magic"]
    records: list[Body] = entry.get("records") or []
    attributes = _attributes(entry, path)
    try:
        if not attributes & _CODEC:
            return b"".join(_write_message(magic, attributes, rec["offset"], rec) for rec in records)
        offset: int = entry["offset"] if "offset" in entry else records[-1]["offset"] if records else 0
        shift = records[0]["offset"] if magic and offset and records else 0
        content = b"".join(
            _write_message(magic, attributes & _APPEND, int64(record["offset"] - shift), record)
            for record in records
        )
        stamps = [record["timestamp"] for record in records] if magic else []
        wrapper = {
            "timestamp": entry.get("timestamp", max(stamps, default=-1)),
            "key": None,
            "value": compression.compress(attributes & _CODEC, content, magic),
        }
        return _write_message(magic, attributes, offset, wrapper)
    except (StructError, KeyError, TypeError, OverflowError) as error:
        raise EncodeError(f"no message of magic {magic}: {error!r}", path=path) from error


def _attributes(entry: Body, path: str) -> int:
    attributes: int = entry.get("attributes", 0)
    if "codec" in entry:
        codec = compression.NUMBERS.get(entry["codec"])
        if codec is None:
            raise EncodeError(f"no such codec: {entry['codec']!r}", path=f"{path}.codec")
        attributes = attributes & ~_CODEC | codec
    if entry.get("timestampType"):
        append = entry["timestampType"] == LOG_APPEND_TIME
        attributes = attributes | _APPEND if append else attributes & ~_APPEND
    return attributes


def _write_message(magic: int, attributes: int, offset: int, record: Body) -> bytes:
    key, value = record.get("key"), record.get("value")
    message = b"".join(
        (
            bytes((magic, attributes & 0xFF)),
            _INT64.pack(record["timestamp"]) if magic else b"",
            b"\xff\xff\xff\xff" if key is None else _INT32.pack(len(key)) + key,
            b"\xff\xff\xff\xff" if value is None else _INT32.pack(len(value)) + value,
        )
    )
    return _HEAD.pack(offset, len(message) + 4) + crc32(message).to_bytes(4, "big") + message
