"""Record batches, magic 2 (KIP-98; Kafka 0.11 and later).

In: bytes and the bounds of one batch. Out: its header as a dict, its records as dicts one after the other,
and the way back. Does not know how batches follow each other, nor the older message sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import NoReturn

from kwsniff.compiled import compiled
from kwsniff.errors import DecodeError, EncodeError, Reason
from kwsniff.model import Body
from kwsniff.wire import compression
from kwsniff.wire.varint import int64, read_varint, read_varlong, write_varint

HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
BEHIND_CRC = 21
"""Where in a batch that begins which its CRC covers."""
LEAST_LENGTH = HEADER_SIZE - 12
"""batchLength of a batch without records."""
CREATE_TIME, LOG_APPEND_TIME = "CREATE_TIME", "LOG_APPEND_TIME"
MAX_HEADERS = 100_000
"""Headers of one record that are read. Kafka has no limit; 2 bytes of input become 200 of memory here."""

_CODEC, _APPEND, _TRANSACTIONAL, _CONTROL, _HORIZON = 0x07, 0x08, 0x10, 0x20, 0x40
_MAX = (1 << 63) - 1
_compiled = compiled("kwsniff.wire._records")
_LEAST_RECORD = 6
"""attributes, two deltas, two lengths and a count, of one byte each."""


def crc32c(data: bytes | memoryview) -> int:
    if _compiled is not None:
        return int(_compiled.crc32c(data))
    import google_crc32c

    return int(google_crc32c.value(bytes(data)))


def read_header(data: bytes, at: int, end: int) -> Body:
    """The fields of the header, by Kafka's names; `end` is that of the whole batch."""
    (base_offset, length, epoch, magic, crc, attributes, last_delta, base_timestamp, max_timestamp) = (
        fields := HEADER.unpack_from(data, at)
    )[:9]
    codec = attributes & _CODEC
    return {
        "baseOffset": base_offset,
        "magic": magic,
        "codec": compression.NAMES.get(codec, str(codec)),
        "crcValid": crc32c(memoryview(data)[at + BEHIND_CRC : end]) == crc,
        "batchLength": length,
        "partitionLeaderEpoch": epoch,
        "crc": crc,
        "attributes": attributes,
        "timestampType": LOG_APPEND_TIME if attributes & _APPEND else CREATE_TIME,
        "isTransactional": bool(attributes & _TRANSACTIONAL),
        "isControl": bool(attributes & _CONTROL),
        "deleteHorizonMs": base_timestamp if attributes & _HORIZON else None,
        "lastOffsetDelta": last_delta,
        "baseTimestamp": base_timestamp,
        "maxTimestamp": max_timestamp,
        "producerId": fields[9],
        "producerEpoch": fields[10],
        "baseSequence": fields[11],
        "recordCount": fields[12],
    }


def read_records(data: bytes, at: int, end: int, header: Body, limit: int) -> Iterator[Body]:
    """The records of one batch, decompressed to at most `limit` bytes.

    Raises DecodeError behind the last good record; its path begins at the batch (`records[3].key`), its
    offset is into `data` (of what is compressed: where the compressed bytes begin).
    """
    at += HEADER_SIZE
    if not header["attributes"] & _CODEC:
        return _read_plain(data, at, end, header)
    return _read_compressed(data, at, end, header, limit)


def _read_compressed(data: bytes, at: int, end: int, header: Body, limit: int) -> Iterator[Body]:
    if at == end and header["recordCount"] == 0:  # emptied by compaction
        return
    try:
        content = compression.decompress(header["attributes"] & _CODEC, data[at:end], limit)
    except DecodeError as error:
        raise DecodeError(error.reason, error.message, path="records", offset=at) from None
    try:
        yield from _read_plain(content, 0, len(content), header)
    except DecodeError as error:
        message = f"{error.message} (byte {error.offset} of the decompressed records)"
        raise DecodeError(error.reason, message, path=error.path, offset=at) from None


def _read_plain(data: bytes, at: int, end: int, header: Body) -> Iterator[Body]:
    count: int = header["recordCount"]
    if count < 0:
        raise DecodeError(Reason.COUNT_INVALID, f"recordCount is {count}", path="recordCount", offset=at)
    append = header["maxTimestamp"] if header["attributes"] & _APPEND else None
    base, first = header["baseOffset"], header["baseTimestamp"]
    index = 0
    while index < count:
        if _compiled is not None:
            found, at = _compiled.records(data, at, end, count - index, base, first, append)
            yield from found
            index += len(found)
            if found:
                continue
        if at >= end:
            message = f"recordCount is {count}, but the batch ends behind {index} records"
            raise DecodeError(Reason.COUNT_INVALID, message, path="recordCount", offset=at)
        start = at
        try:
            record, at = _read_record(data, at, end)
        except IndexError:
            _fail(index, start, "", "the record runs over the end of the batch", Reason.BODY_TRUNCATED)
        except DecodeError as error:
            _fail(index, min(error.offset, end), error.path, error.message, error.reason)
        offset = base + record["offset"]
        timestamp = first + record["timestamp"] if append is None else append
        if not (-_MAX <= offset <= _MAX and -_MAX <= timestamp <= _MAX):
            offset, timestamp = int64(offset), int64(timestamp)
        record["offset"], record["timestamp"] = offset, timestamp
        yield record
        index += 1
    if at != end:
        message = f"{end - at} bytes behind the last of {count} records"
        raise DecodeError(Reason.TRAILING_BYTES, message, path="records", offset=at)


def _fail(index: int, offset: int, field: str, message: str, reason: Reason) -> NoReturn:
    path = f"records[{index}].{field}" if field else f"records[{index}]"
    raise DecodeError(reason, message, path=path, offset=offset) from None


def _read_record(data: bytes, at: int, end: int) -> tuple[Body, int]:
    """One record and the position behind it. Its offset and timestamp still are the deltas."""
    start = at
    length, at = read_varint(data, at)
    stop = at + length
    if length < _LEAST_RECORD or stop > end:
        message = f"a record of {length} bytes where {end - at} are left"
        raise DecodeError(Reason.LENGTH_INVALID, message, offset=start)
    attributes = data[at]
    timestamp, at = read_varlong(data, at + 1)
    offset, at = read_varint(data, at)
    key, at = _read_sized(data, at, stop, "key")
    value, at = _read_sized(data, at, stop, "value")
    headers: list[Body] = []
    if data[at]:
        headers, at = _read_headers(data, at, stop)
    else:
        at += 1
    if at != stop:
        raise DecodeError(Reason.RECORDS_CORRUPT, f"the record's fields end {stop - at} bytes off", offset=at)
    record = {"offset": offset, "timestamp": timestamp, "key": key, "value": value, "headers": headers}
    if attributes:  # unused by Kafka so far
        record["attributes"] = attributes
    return record, at


def _read_sized(data: bytes, at: int, stop: int, field: str) -> tuple[bytes | None, int]:
    """A key or value; at least one more field has to follow it."""
    size, start = read_varint(data, at)
    end = start + size
    if size < 0:
        if size == -1 and start < stop:
            return None, start
    elif end < stop:
        return data[start:end], end
    message = f"a {field} of {size} bytes where {stop - start} are left"
    raise DecodeError(Reason.LENGTH_INVALID, message, path=field, offset=at)


def _read_headers(data: bytes, at: int, stop: int) -> tuple[list[Body], int]:
    start = at
    count, at = read_varint(data, at)
    if not 0 <= count <= min((stop - at) // 2, MAX_HEADERS):  # a header has at least two lengths
        message = f"{count} headers in {stop - at} bytes"
        raise DecodeError(Reason.COUNT_INVALID, message, path="headers", offset=start)
    headers: list[Body] = []
    for index in range(count):
        start = at
        size, at = read_varint(data, at)
        key_end = at + size
        if size < 0 or key_end >= stop:
            message = "a null key" if size == -1 else f"a key of {size} bytes where {stop - at} are left"
            reason = Reason.NULL_INVALID if size == -1 else Reason.LENGTH_INVALID
            raise DecodeError(reason, message, path=f"headers[{index}].key", offset=start)
        key = data[at:key_end].decode("utf-8", "surrogateescape")
        size, at = read_varint(data, key_end)
        if size < -1 or at + size > stop:
            message = f"a value of {size} bytes where {stop - at} are left"
            raise DecodeError(Reason.LENGTH_INVALID, message, path=f"headers[{index}].value", offset=key_end)
        value = None if size < 0 else data[at : at + size]
        at += max(size, 0)
        headers.append({"key": key, "value": value})
    return headers, at


def write(batch: Body, path: str) -> bytes:
    """A batch from a dict as `read_header` and `read_records` give it.

    batchLength, recordCount and crc are computed; every other field may be missing: the header then follows
    from the records. Raises EncodeError.
    """
    records: list[Body] = batch.get("records") or []
    base: int = (
        batch["baseOffset"] if "baseOffset" in batch else records[0].get("offset", 0) if records else 0
    )
    attributes = _attributes(batch, path)
    stamps: list[int] = [-1 if (stamp := record.get("timestamp")) is None else stamp for record in records]
    first: int = batch.get("baseTimestamp", stamps[0] if stamps else -1)
    deltas = [int64(record.get("offset", base + index) - base) for index, record in enumerate(records)]
    last = max([batch.get("lastOffsetDelta", 0), *deltas])
    content = b"".join(
        _write_record(record, int64(stamp - first), delta, f"{path}.records[{index}]")
        for index, (record, stamp, delta) in enumerate(zip(records, stamps, deltas, strict=True))
    )
    if content and attributes & _CODEC:
        content = compression.compress(attributes & _CODEC, content)
    try:
        header = HEADER.pack(
            base,
            LEAST_LENGTH + len(content),
            batch.get("partitionLeaderEpoch", -1),
            2,
            0,
            attributes,
            last,
            first,
            batch.get("maxTimestamp", max(stamps, default=-1)),
            batch.get("producerId", -1),
            batch.get("producerEpoch", -1),
            batch.get("baseSequence", -1),
            len(records),
        )
    except StructError as error:
        raise EncodeError(f"no record batch: {error}", path=path) from error
    behind = header[BEHIND_CRC:] + content
    return header[:17] + crc32c(behind).to_bytes(4, "big") + behind


def _attributes(batch: Body, path: str) -> int:
    """The named flags of the dict, over its `attributes`."""
    attributes: int = batch.get("attributes", 0)
    if "codec" in batch:
        codec = compression.NUMBERS.get(batch["codec"])
        if codec is None:
            raise EncodeError(f"no such codec: {batch['codec']!r}", path=f"{path}.codec")
        attributes = attributes & ~_CODEC | codec
    flags = {
        _APPEND: batch["timestampType"] == LOG_APPEND_TIME if "timestampType" in batch else None,
        _TRANSACTIONAL: batch.get("isTransactional"),
        _CONTROL: batch.get("isControl"),
        _HORIZON: batch["deleteHorizonMs"] is not None if "deleteHorizonMs" in batch else None,
    }
    for flag, wanted in flags.items():
        if wanted is not None:
            attributes = attributes | flag if wanted else attributes & ~flag
    return attributes


def _write_record(record: Body, timestamp: int, offset: int, path: str) -> bytes:
    if not -(1 << 31) <= offset < 1 << 31:
        raise EncodeError(f"{offset} from baseOffset is no int32", path=f"{path}.offset")
    try:
        headers = record.get("headers") or []
        parts = [
            bytes((record.get("attributes", 0),)),
            write_varint(timestamp),
            write_varint(offset),
            _sized(record.get("key")),
            _sized(record.get("value")),
            write_varint(len(headers)),
        ]
        for header in headers:
            parts += [_sized(header["key"].encode("utf-8", "surrogateescape")), _sized(header["value"])]
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        raise EncodeError(f"no record: {error!r}", path=path) from error
    body = b"".join(parts)
    return write_varint(len(body)) + body


def _sized(value: bytes | None) -> bytes:
    return b"\x01" if value is None else write_varint(len(value)) + value
