"""Message sets of Kafka 0.7: no keys, no timestamps, no stored offsets; an offset is a byte position.

In: the bytes of a set and the position of its first byte in the partition's log. Out: entries and records
in the shape of `records`, a summary, and the bytes again. Does not know requests and responses (`kafka07`
does), nor the message sets of 0.8 and later (`messageset`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from struct import Struct
from zlib import crc32

from kwsniff.errors import DecodeError, EncodeError, Reason
from kwsniff.model import Body
from kwsniff.wire import compression
from kwsniff.wire.entries import MAX_DECOMPRESSED, MAX_NESTING, Entry, collect
from kwsniff.wire.messageset import Budget

LEAST_SIZE = {0: 5, 1: 6}
"""Bytes of a message without payload, by magic."""

_INT32 = Struct(">i")
_UINT32 = Struct(">I")
_CODECS = {0: "none", 1: "gzip", 2: "snappy"}


class Scan:
    """Iterates over a set as `entries.Scan` does over a records field: `Entry`, or a DecodeError as a
    value, which ends the set. base_offset: the log position of the set's first byte; None (a produce
    request): offsets are null. `cut`: bytes of an incomplete last message, known at the end."""

    def __init__(
        self,
        data: bytes,
        base_offset: int | None = None,
        *,
        max_decompressed: int = MAX_DECOMPRESSED,
        max_nesting: int = MAX_NESTING,
        allow_partial: bool = True,
    ) -> None:
        self.data = bytes(data)
        self.cut = 0
        self._base = base_offset
        self._size = max_decompressed
        self._levels = max_nesting
        self._allow_partial = allow_partial

    def __iter__(self) -> Iterator[Entry | DecodeError]:
        at = 0
        for number in count():
            if at == len(self.data):
                return
            end = self._end(at, number)
            if end is None:
                return
            if isinstance(end, DecodeError):
                yield end
                return
            header = _header(self.data, at, end, self._base)
            budget = Budget(self._size, self._levels)
            yield Entry(number, at, end - at, header, _records(self.data, at, end, header, budget))
            at = end

    def _end(self, at: int, number: int) -> int | DecodeError | None:
        """Where the message at `at` ends; None for one that is cut off and may be."""
        end = _end(self.data, at)
        if isinstance(end, int) and end <= len(self.data):
            return end
        if isinstance(end, str):
            return DecodeError(Reason.LENGTH_INVALID, end, path=f"[{number}]", offset=at)
        self.cut = len(self.data) - at
        if self._allow_partial:
            return None
        message = f"the message is cut off behind {self.cut} bytes"
        return DecodeError(Reason.BODY_TRUNCATED, message, path=f"[{number}]", offset=at)


def _end(data: bytes, at: int) -> int | str | None:
    """Where the message at `at` ends, maybe behind the data; None for too few bytes; or what is wrong."""
    left = len(data) - at
    size = _INT32.unpack_from(data, at)[0] if left >= 4 else None
    if size is not None and size < 5:
        return f"a message of {size} bytes"
    if size is None or left < 5:
        return None
    magic = data[at + 4]
    if magic not in LEAST_SIZE:
        return f"unknown magic {magic}"
    if size < LEAST_SIZE[magic]:
        return f"a message of {size} bytes"
    return int(at + 4 + size)


def _header(data: bytes, at: int, end: int, base: int | None) -> Body:
    magic = data[at + 4]
    attributes = data[at + 5] if magic else None
    crc_at = at + 5 + magic
    crc = _UINT32.unpack_from(data, crc_at)[0]
    codec = (attributes or 0) & 0x03
    return {
        "baseOffset": None if base is None else base + at,
        "magic": magic,
        "codec": _CODECS.get(codec, str(codec)),
        "crcValid": crc32(memoryview(data)[crc_at + 4 : end]) == crc,
        "nextOffset": None if base is None else base + end,
        "messageSize": end - at - 4,
        "crc": crc,
        "attributes": attributes,
    }


def _record(offset: int | None, value: bytes, crc_valid: bool = True) -> Body:
    record: Body = {"offset": offset, "timestamp": None, "key": None, "value": value, "headers": []}
    return record if crc_valid else {**record, "crcValid": False}


def _records(data: bytes, at: int, end: int, header: Body, budget: Budget) -> Iterator[Body]:
    payload = data[at + 4 + LEAST_SIZE[header["magic"]] : end]
    if header["codec"] == "none":
        yield _record(header["baseOffset"], payload)
        return
    try:
        yield from _expand(payload, header["codec"], header["baseOffset"], budget, count(), 1)
    except DecodeError as error:
        raise DecodeError(error.reason, error.message, path=error.path, offset=at) from None


def _expand(
    payload: bytes, codec: str, offset: int | None, budget: Budget, numbers: Iterator[int], level: int
) -> Iterator[Body]:
    """The messages of a compressed set, all with the position of the outermost; 0.7.2 unpacks any depth."""
    if level > budget.levels:
        message = f"compressed message sets nested more than {budget.levels} deep"
        raise DecodeError(Reason.NESTING_LIMIT, message, path=f"records[{next(numbers)}]")
    if codec not in _CODECS.values():
        raise DecodeError(Reason.DECOMPRESSION_FAILED, f"Kafka 0.7 has no codec {codec}", path="records")
    try:
        content = compression.decompress(compression.NUMBERS[codec], payload, budget.size)
    except DecodeError as error:
        raise DecodeError(error.reason, error.message, path="records") from None
    budget.size -= len(content)
    at = 0
    while at < len(content):
        end = _end(content, at)
        if not isinstance(end, int) or end > len(content):
            what = end if isinstance(end, str) else f"the message is cut off behind {len(content) - at} bytes"
            message = f"{what} (byte {at} of the decompressed message set)"
            raise DecodeError(Reason.RECORDS_CORRUPT, message, path=f"records[{next(numbers)}]")
        inner = _header(content, at, end, None)
        payload = content[at + 4 + LEAST_SIZE[inner["magic"]] : end]
        if inner["codec"] == "none":
            next(numbers)
            yield _record(offset, payload, inner["crcValid"])
        else:
            yield from _expand(payload, inner["codec"], offset, budget, numbers, level + 1)
        at = end


def decode_message_set(
    data: bytes,
    base_offset: int | None = None,
    *,
    max_decompressed: int = MAX_DECOMPRESSED,
    max_nesting: int = MAX_NESTING,
    allow_partial: bool = True,
) -> list[Body]:
    """A message set of Kafka 0.7 -> its entries as dicts, one per message of the set.

    Each: baseOffset and nextOffset (its log position and the one behind it; null without base_offset), magic,
    codec, crcValid, messageSize, crc, attributes (null in magic 0), records. Each record: offset (that of its
    entry), value, and as nulls what 0.7 does not have: timestamp, key, headers. A cut-off last message is
    left out. Raises DecodeError as `records.decode_records` does.
    """
    scan = Scan(
        data,
        base_offset,
        max_decompressed=max_decompressed,
        max_nesting=max_nesting,
        allow_partial=allow_partial,
    )
    return collect(scan)


def encode_message_set(entries: Sequence[Body]) -> bytes:
    """The inverse: magic, codec and the records' values count, sizes and checksums are computed. Raises
    EncodeError."""
    return b"".join(_entry(entry, f"[{index}]") for index, entry in enumerate(entries))


def _entry(entry: Body, path: str) -> bytes:
    magic = entry.get("magic", 1)
    codec = {name: number for number, name in _CODECS.items()}.get(entry.get("codec", "none"))
    if magic not in LEAST_SIZE or codec is None or (codec and not magic):
        raise EncodeError(f"no magic {magic} with codec {entry.get('codec')!r} in Kafka 0.7", path=path)
    try:
        messages = [_message(magic, 0, record["value"]) for record in entry["records"]]
        if not codec:
            return b"".join(messages)
        return _message(magic, codec, compression.compress(codec, b"".join(messages)))
    except (KeyError, TypeError) as error:
        raise EncodeError(f"no message of Kafka 0.7: {error!r}", path=path) from error


def _message(magic: int, codec: int, payload: bytes) -> bytes:
    head = bytes((1, codec)) if magic else b"\x00"
    return _INT32.pack(len(head) + 4 + len(payload)) + head + _UINT32.pack(crc32(payload)) + payload


def summarise_message_set(
    data: bytes, base_offset: int | None = None, *, allow_partial: bool = True
) -> tuple[Body, list[DecodeError]]:
    """As `records.summarise`: the same keys. lastOffset is the position of the last message. Never raises."""
    codecs: dict[str, None] = {}
    magics: dict[int, None] = {}
    batches = records = crc_errors = 0
    first = last = None
    errors: list[DecodeError] = []
    for entry in Scan(data, base_offset, allow_partial=allow_partial):
        if isinstance(entry, DecodeError):
            errors.append(entry)
            continue
        header = entry.header
        first = first if batches else header["baseOffset"]
        last = header["baseOffset"]
        batches += 1
        records += 1
        crc_errors += not header["crcValid"]
        codecs[header["codec"]] = magics[header["magic"]] = None
    return {
        "batches": batches,
        "records": records if set(codecs) <= {"none"} else None,
        "codecs": list(codecs),
        "magics": list(magics),
        "baseOffset": first,
        "lastOffset": last,
        "crcErrors": crc_errors,
    }, errors
