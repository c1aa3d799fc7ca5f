"""How the entries of a records field follow each other: one per batch, wrapper or plain message.

In: the bytes of a records field (or of a cut of one). Out: the entries in order, each with its header and, on
demand, its records. What is wrong with one entry is told and the next one read, as far as its length can be
believed. Byte 16 of an entry is its magic in every format; what the formats are is in `batch` and
`messageset`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from struct import Struct
from typing import NamedTuple

from kwsniff.errors import DecodeError, Reason
from kwsniff.model import Body
from kwsniff.wire import batch, messageset

MAX_DECOMPRESSED = 64 << 20
"""Bytes that one entry may decompress to, nested ones included, unless told otherwise."""
MAX_NESTING = 4
"""Levels of compressed message sets; brokers take one."""
MOST_ERRORS = 16
"""That a summary lists."""

_HEAD = Struct(">qi")
"""Offset and size of what follows, in every format."""
_LEAST = {**messageset.LEAST_SIZE, 2: batch.LEAST_LENGTH}


class Entry:
    """One batch, wrapper or plain message.

    header: its fields, as in `decode_records` without `records`. index: its number in the field.
    offset, size: where it stands in the field, in bytes.
    """

    __slots__ = ("_records", "header", "index", "offset", "size")

    def __init__(self, index: int, offset: int, size: int, header: Body, records: Iterator[Body]) -> None:
        self.index = index
        self.offset = offset
        self.size = size
        self.header = header
        self._records = records

    def records(self) -> Iterator[Body]:
        """Its records, once. DecodeError behind the last good one; path (`[1].records[3]`) and offset are
        those of the field."""
        try:
            yield from self._records
            return
        except DecodeError as error:
            reason, message, path, offset = error.reason, error.message, error.path, error.offset
        # A new one: through its traceback the other would keep alive what the entry decompressed to.
        raise DecodeError(reason, message, path=f"[{self.index}].{path}", offset=offset)


class Bounds(NamedTuple):
    """Where an entry stands, as its length says."""

    number: int
    at: int
    end: int
    magic: int


class Scan:
    """Iterates over the entries of a records field; holds one decompressed entry at a time.

    Yields `Entry`, or a DecodeError (as a value) for an entry that cannot be told: a bad length, which ends
    the scan, or an unknown magic. allow_partial: a cut-off entry at the end is left out silently, as Fetch
    responses have it; else it is such an error. `cut`: its bytes, known at the end.
    """

    def __init__(
        self,
        data: bytes,
        *,
        max_decompressed: int = MAX_DECOMPRESSED,
        max_nesting: int = MAX_NESTING,
        allow_partial: bool = True,
    ) -> None:
        self.data = bytes(data)
        self.cut = 0
        self._size = max_decompressed
        self._levels = max_nesting
        self._allow_partial = allow_partial

    def __iter__(self) -> Iterator[Entry | DecodeError]:
        for found in self.bounds():
            yield found if isinstance(found, DecodeError) else self.entry(found)

    def entry(self, found: Bounds) -> Entry:
        """The entry that stands there."""
        number, at, end, magic = found
        if magic == 2:
            header = batch.read_header(self.data, at, end)
            records = batch.read_records(self.data, at, end, header, self._size)
        else:
            header = messageset.read_header(self.data, at, end)
            budget = messageset.Budget(self._size, self._levels)
            records = messageset.read_records(self.data, at, end, header, budget)
            if header["codec"] != "none":
                header["baseOffset"], records = _first_offset(records)
        return Entry(number, at, end - at, header, records)

    def bounds(self) -> Iterator[Bounds | DecodeError]:
        """The hops from entry to entry: what `__iter__` does, without looking inside."""
        data, size = self.data, len(self.data)
        at = index = 0
        self.cut = 0
        while at < size:
            left = size - at
            length = _HEAD.unpack_from(data, at)[1] if left >= 12 else None
            magic = data[at + 16] if left > 16 else None
            least = _LEAST.get(magic, 5) if magic is not None else 5
            if length is not None and length < least:
                message = f"an entry of {length} bytes, at least {least} expected"
                yield DecodeError(Reason.LENGTH_INVALID, message, path=f"[{index}]", offset=at + 8)
                return
            if length is None or magic is None or 12 + length > left:
                self.cut = left
                if not self._allow_partial:
                    message = f"the entry is cut off: {left} bytes" + (f" of {12 + length}" if length else "")
                    yield DecodeError(Reason.BODY_TRUNCATED, message, path=f"[{index}]", offset=at)
                return
            if magic in _LEAST:
                yield Bounds(index, at, at + 12 + length, magic)
            else:
                message = f"unknown magic {magic}"
                yield DecodeError(Reason.RECORDS_CORRUPT, message, path=f"[{index}].magic", offset=at + 16)
            at += 12 + length
            index += 1


def _first_offset(records: Iterator[Body]) -> tuple[int | None, Iterator[Body]]:
    """The absolute offset of a wrapper's first message (None where unreadable), and all of its messages."""
    try:
        first = next(records, None)
    except DecodeError as error:
        return None, _Raises(error)
    if first is None:
        return None, records
    return first["offset"], chain((first,), records)


class _Raises(Iterator[Body]):
    def __init__(self, error: DecodeError) -> None:
        self._error = error

    def __next__(self) -> Body:
        raise self._error


def collect(scan: Iterable[Entry | DecodeError]) -> list[Body]:
    """Every entry with its records under `records`. Raises the first error when the scan is over, with what
    could be read, also behind it, as partial."""
    entries: list[Body] = []
    wrong: DecodeError | None = None
    for entry in scan:
        if isinstance(entry, DecodeError):
            wrong = wrong or entry
            continue
        found: list[Body] = []
        try:
            found.extend(entry.records())
        except DecodeError as error:
            wrong = wrong or error
        entries.append({**entry.header, "records": found})
    if wrong:
        raise DecodeError(wrong.reason, wrong.message, path=wrong.path, offset=wrong.offset, partial=entries)
    return entries
