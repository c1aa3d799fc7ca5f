"""A records field for the JSON line: counted, or decoded with keys and values as text where they are text.

In: the bytes of the field, and where it stands. Out: JSON values, and what is wrong with the records as
`RecordFault`. Bounded by a budget of what one line may show. Does not know which message the field is of.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec import Raw
from msgspec.json import Encoder

from kwsniff.compiled import compiled
from kwsniff.errors import DecodeError, Reason
from kwsniff.output.strings import mend_value
from kwsniff.wire.compression import decompress
from kwsniff.wire.embedded import expand_record, opens
from kwsniff.wire.entries import Bounds
from kwsniff.wire.records import Entry, Scan, summarise

_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]")
_INT64 = {"baseOffset", "lastOffset", "nextOffset", "offset", "timestamp", "baseTimestamp", "maxTimestamp"}
_INT64 |= {"deleteHorizonMs", "producerId"}
_MAX_FAULTS = 100  # of one body

_encoder = Encoder()
_compiled = compiled("kwsniff.wire._records")


class RecordFault(NamedTuple):
    """Something wrong in a records field. path: from the body; offset: in `data`, the bytes of the field."""

    reason: Reason
    message: str
    path: str
    offset: int
    data: bytes


@dataclass
class Budget:
    """What one body may still show of records, as bytes of JSON; how; and what came up.

    side: `request` or `response`, where paths begin. raw_strings: as in the line, of strings already encoded.
    """

    left: int
    max_decompressed: int
    int64_as_string: bool
    side: str
    faults: list[RecordFault] = field(default_factory=list)
    raw_strings: dict[str, str] = field(default_factory=dict)

    def note(self, fault: RecordFault) -> None:
        if len(self.faults) < _MAX_FAULTS:
            self.faults.append(fault)


class Field(NamedTuple):
    """A records field: its bytes, its path in the body, its topic; partial: it may end in a cut-off entry."""

    data: bytes
    path: str
    topic: str | None
    partial: bool
    scan: Callable[..., Iterable[Entry | DecodeError]] = Scan
    summarise: Callable[..., tuple[dict[str, Any], list[DecodeError]]] = summarise
    """How its bytes are read; those of Kafka 0.7 differ."""
    treat: Callable[[dict[str, Any]], dict[str, Any]] = dict
    """What is done to a key or value that was opened."""


def summary(records: Field, budget: Budget) -> dict[str, Any]:
    """batches, records, codecs, magics, baseOffset, lastOffset, crcErrors: without decompressing anything."""
    found, errors = records.summarise(records.data, allow_partial=records.partial)
    for error in errors:
        _note(budget, records, error)
    if found["crcErrors"]:
        for entry in records.scan(records.data):
            if isinstance(entry, Entry):
                _check(entry, records, budget)
    return _numbers(found, budget)


def decoded(records: Field, budget: Budget) -> list[dict[str, Any]] | Raw:
    """Every entry with its records; what is wrong with one is a fault, and the next ones are still shown.

    The records are JSON already: as dicts they would take six times the memory.
    """
    found = _maybe_json(records, budget)
    if found is not None:
        return Raw(found)
    shown = []
    for entry in records.scan(
        records.data, max_decompressed=budget.max_decompressed, allow_partial=records.partial
    ):
        if isinstance(entry, DecodeError):
            _note(budget, records, entry)
        else:
            shown.append(_entry(entry, records, budget))
    return shown


def decoded_json(records: Field, budget: Budget) -> bytes | None:
    """`decoded` as text, where there is nothing to be said besides; else None."""
    found = _maybe_json(records, budget)
    return None if budget.faults or budget.raw_strings else found


def _maybe_json(records: Field, budget: Budget) -> bytes | None:
    """What `decoded` shows, from the compiled writer; None, with nothing noted, where it cannot."""
    if _compiled is None or records.scan is not Scan or opens(records.topic):
        return None
    scan = Scan(records.data, max_decompressed=budget.max_decompressed)

    def other(number: int, at: int, end: int, left: int) -> tuple[bytes, int]:
        budget.left = left
        entry = scan.entry(Bounds(number, at, end, scan.data[at + 16]))
        return _encoder.encode(_entry(entry, records, budget)), budget.left

    left, faults = budget.left, len(budget.faults)
    found = _compiled.records_json(
        scan.data,
        left=left,
        most=budget.max_decompressed,
        allow_partial=records.partial,
        quoted=budget.int64_as_string,
        decompress=decompress,
        other=other,
    )
    if found is None:
        budget.left = left
        del budget.faults[faults:]
        return None
    text: bytes
    text, budget.left = found
    return text


def _entry(entry: Entry, records: Field, budget: Budget) -> dict[str, Any]:
    _check(entry, records, budget)
    return {**_numbers(entry.header, budget), "records": _records(entry, records, budget)}


def text(data: bytes | None) -> Any:
    """A key or value: null, a string where it is text, else {"base64": bytes} (the encoder makes it text)."""
    if data is None:
        return None
    if _CONTROL.search(data) is None:
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return {"base64": data}


def _records(entry: Entry, place: Field, budget: Budget) -> Raw:
    shown = bytearray(b"[")
    control = bool(entry.header.get("isControl"))
    count = 0
    try:
        for count, record in enumerate(entry.records()):
            path = f"[{entry.index}].records[{count}]"
            if budget.left < 0:
                raise _too_many(entry, path, count)
            if record.get("crcValid") is False:
                _note_crc(budget, place, path, entry, "a message inside of a compressed one")
            key, value = expand_record(place.topic, record["key"], record["value"], control)
            before = len(shown)
            _append(
                shown,
                _record(record, _payload(key, place), _payload(value, place), budget),
                path,
                place,
                budget,
            )
            shown += b","
            budget.left -= len(shown) - before
    except DecodeError as error:
        _note(budget, place, error)
    shown[max(len(shown) - 1, 1) :] = b"]"
    return Raw(shown)


def _append(shown: bytearray, record: dict[str, Any], path: str, place: Field, budget: Budget) -> None:
    before = len(shown)
    try:
        _encoder.encode_into(record, shown, before)
    except UnicodeEncodeError:
        mended = mend_value(record, f"{budget.side}.{place.path}{path}", budget.raw_strings)
        _encoder.encode_into(mended, shown, before)


def _too_many(entry: Entry, path: str, count: int) -> DecodeError:
    message = f"more records than one line may hold: {count} of the batch are shown"
    return DecodeError(Reason.DECOMPRESSION_LIMIT, message, path=path, offset=entry.offset)


def _record(record: dict[str, Any], key: Any, value: Any, budget: Budget) -> dict[str, Any]:
    headers = [{"key": header["key"], "value": text(header["value"])} for header in record["headers"]]
    return _numbers({**record, "key": key, "value": value, "headers": headers}, budget)


def _payload(opened: Any, place: Field) -> Any:
    return place.treat(opened) if isinstance(opened, dict) else text(opened)


def _check(entry: Entry, records: Field, budget: Budget) -> None:
    if not entry.header["crcValid"]:
        what = f"the checksum 0x{entry.header['crc'] & 0xFFFFFFFF:08x} does not fit the {entry.size} bytes"
        _note_crc(budget, records, f"[{entry.index}]", entry, what)


def _note_crc(budget: Budget, records: Field, path: str, entry: Entry, what: str) -> None:
    message = f"CRC mismatch: {what}"
    path = records.path + path
    budget.note(RecordFault(Reason.CRC_MISMATCH, message, path, entry.offset, records.data))


def _note(budget: Budget, records: Field, error: DecodeError) -> None:
    path = records.path + error.path
    budget.note(RecordFault(error.reason, error.message, path, error.offset, records.data))


def _numbers(found: dict[str, Any], budget: Budget) -> dict[str, Any]:
    if not budget.int64_as_string:
        return found
    return {key: str(value) if key in _INT64 and value is not None else value for key, value in found.items()}
