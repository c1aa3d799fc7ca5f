"""The content of a records field: record batches (magic 2) and message sets (magic 0 and 1), mixed at will.

In: the bytes of the field. Out: its entries with their records, or a summary without looking at records;
and the bytes again. Does not know which message the field is of, nor what keys and values mean (`embedded`
does).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

from kwsniff.compiled import compiled
from kwsniff.errors import DecodeError, EncodeError, Reason
from kwsniff.model import Body
from kwsniff.wire import batch, compression, messageset
from kwsniff.wire.entries import MAX_DECOMPRESSED, MAX_NESTING, MOST_ERRORS, Bounds, Entry, Scan, collect
from kwsniff.wire.varint import int64

__all__ = ["Entry", "Scan", "decode_records", "encode_records", "read_slice", "summarise"]

_compiled = compiled("kwsniff.wire._records")
_LEAST_RECORD = 7
"""Bytes of a record of magic 2, its length included."""


def decode_records(
    data: bytes,
    *,
    max_decompressed: int = MAX_DECOMPRESSED,
    max_nesting: int = MAX_NESTING,
    allow_partial: bool = True,
) -> list[Body]:
    """A records field -> its entries as dicts, each with its records; bytes stay bytes.

    magic 2, one per batch: baseOffset, magic, codec ("none", "gzip", "snappy", "lz4", "zstd"), crcValid,
    batchLength, partitionLeaderEpoch, crc, attributes, timestampType ("CREATE_TIME", "LOG_APPEND_TIME"),
    isTransactional, isControl, deleteHorizonMs (null without), lastOffsetDelta, baseTimestamp, maxTimestamp,
    producerId, producerEpoch, baseSequence, recordCount, records.
    magic 0 and 1, one per plain message or wrapper (a compressed message set): baseOffset (of its first
    record; null where unreadable), magic, codec, crcValid, offset (as it stands on the wire), messageSize,
    crc, attributes, timestampType and timestamp (null in magic 0), records. Each record: offset (absolute),
    timestamp (ms since the epoch, -1 for none, null in magic 0; with LOG_APPEND_TIME that of the broker),
    key, value, headers [{key: str, value}]; attributes where not 0; crcValid false where a message inside
    of a wrapper has a wrong CRC.

    A wrong CRC is no error. A cut-off entry at the end is left out (see `Scan`). Raises DecodeError for the
    first thing that is wrong; `partial` has everything that could be read, also behind it. Lists take
    memory: some 500 bytes a record; `Scan` gives one after the other.
    """
    return collect(
        Scan(data, max_decompressed=max_decompressed, max_nesting=max_nesting, allow_partial=allow_partial)
    )


def encode_records(batches: Sequence[Body]) -> bytes:
    """The inverse of `decode_records`. Sizes, counts and checksums are computed; what else a header lacks
    follows from its records. Uncompressed entries come out byte for byte, compressed ones equal when
    decoded. Raises EncodeError."""
    out = []
    for index, entry in enumerate(batches):
        magic = entry.get("magic", 2)
        if magic == 2:
            out.append(batch.write(entry, f"[{index}]"))
        elif magic in messageset.LEAST_SIZE:
            out.append(messageset.write(entry, f"[{index}]"))
        else:
            raise EncodeError(f"no such magic: {magic!r}", path=f"[{index}].magic")
    return b"".join(out)


def summarise(
    data: bytes, *, check_crc: bool = True, allow_partial: bool = True
) -> tuple[Body, list[DecodeError]]:
    """What a records field holds, without decoding records or decompressing -> (summary, what is wrong).

    summary: {"batches", "records", "codecs", "magics", "baseOffset", "lastOffset", "crcErrors"}. batches
    counts entries as `decode_records` does. records is null where counting needs decompression (compressed
    magic 0 and 1) or where a batch cannot hold the count it claims; the offsets are null where unknown,
    crcErrors without check_crc. At most 16 errors are listed. Never raises.
    """
    counted: Body | None = None
    if _compiled is not None:
        counted = _compiled.summary(bytes(data), check_crc, allow_partial)
    if counted is not None:
        return counted, []
    scan = Scan(data, allow_partial=allow_partial)
    summary: Body = {"batches": 0, "records": 0, "codecs": [], "magics": [], "baseOffset": None}
    summary |= {"lastOffset": None, "crcErrors": 0 if check_crc else None}
    errors: list[DecodeError] = []
    for found in scan.bounds():
        error = found if isinstance(found, DecodeError) else _count_in(summary, scan.data, found, check_crc)
        if error and len(errors) < MOST_ERRORS:
            errors.append(error)
    return summary, errors


class _Facts(NamedTuple):
    codec: int
    base: int | None
    last: int | None
    records: int | None
    crc_valid: bool


def _count_in(summary: Body, data: bytes, found: Bounds, check_crc: bool) -> DecodeError | None:
    facts = (_batch_facts if found.magic == 2 else _message_facts)(data, found, check_crc)
    codec = compression.NAMES.get(facts.codec, str(facts.codec))
    if not summary["batches"]:
        summary["baseOffset"] = facts.base
    summary["lastOffset"] = facts.last
    summary["batches"] += 1
    if codec not in summary["codecs"]:
        summary["codecs"].append(codec)
    if found.magic not in summary["magics"]:
        summary["magics"].append(found.magic)
    if not facts.crc_valid:
        summary["crcErrors"] += 1
    if facts.records is None:
        summary["records"] = None
    elif summary["records"] is not None:
        summary["records"] += facts.records
    if facts.records is None and found.magic == 2:
        message = "recordCount is no number of records that the batch can hold"
        path = f"[{found.number}].recordCount"
        return DecodeError(Reason.COUNT_INVALID, message, path=path, offset=found.at + 57)
    return None


def _batch_facts(data: bytes, found: Bounds, check_crc: bool) -> _Facts:
    _, at, end, _ = found
    fields = batch.HEADER.unpack_from(data, at)
    base, crc, codec, count = fields[0], fields[4], fields[5] & 0x07, fields[12]
    holds = count >= 0 and (codec or count * _LEAST_RECORD <= end - at - batch.HEADER_SIZE)
    valid = not check_crc or batch.crc32c(memoryview(data)[at + batch.BEHIND_CRC : end]) == crc
    return _Facts(codec, base, int64(base + fields[6]), count if holds else None, valid)


def _message_facts(data: bytes, found: Bounds, check_crc: bool) -> _Facts:
    _, at, end, _ = found
    offset, _, crc, _, attributes = messageset.ENTRY.unpack_from(data, at)
    valid = not check_crc or crc32(memoryview(data)[at + 16 : end]) == crc
    codec = attributes & 0x07
    if codec:  # the wrapper's offset is that of its last message; 0 is also what some producers leave there
        return _Facts(codec, None, offset or None, None, valid)
    return _Facts(codec, offset, offset, 1, valid)


def read_slice(data: bytes, *, max_decompressed: int = MAX_DECOMPRESSED) -> tuple[int, list[Body]]:
    """A slice of record batches that may begin and end inside of one (FetchSnapshot's unalignedRecords,
    KIP-630) -> (bytes before the first whole batch, entries as `decode_records` gives them). Never raises;
    what cannot be read is left out."""
    at = _first_batch(data)
    try:
        return at, decode_records(data[at:], max_decompressed=max_decompressed)
    except DecodeError as error:
        return at, error.partial


def _first_batch(data: bytes) -> int:
    """Where the first batch with a valid CRC begins; the end when there is none."""
    effort = 4 * len(data)  # bytes to be checked at most: a hostile slice is all beginnings
    at = data.find(b"\x02", 16) - 16
    while at >= 0 and at + batch.HEADER_SIZE <= len(data):
        fields = batch.HEADER.unpack_from(data, at)
        end = at + 12 + fields[1]
        if fields[1] >= batch.LEAST_LENGTH and end <= len(data) and fields[12] >= 0:
            effort -= fields[1]
            if effort < 0:
                break
            if batch.crc32c(memoryview(data)[at + batch.BEHIND_CRC : end]) == fields[4]:
                return at
        at = data.find(b"\x02", at + 17) - 16
    return len(data)
