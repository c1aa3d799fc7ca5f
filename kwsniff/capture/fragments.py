"""IP fragments, in any order -> the payload of the whole datagram (RFC 791 section 3.2, RFC 8200 section
4.5).

Overlapping fragments: the first copy of a byte wins. Bounded in datagrams, bytes and age of capture time;
what does not complete is forgotten, the oldest first. Refuses to know the IP header.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from kwsniff.capture.pieces import Piece, Pieces

MAX_DATAGRAMS = 1024
MAX_BYTES = 4 << 20
MAX_AGE = 30_000_000_000
"""Linux's own bounds (ipfrag_high_thresh and ipfrag_time)."""
_MAX_LENGTH = 0xFFFF


class Whole(NamedTuple):
    data: bytes
    """What was captured; up to the first byte that a snaplen cut."""
    length: int
    """Its length on the wire."""


class _Datagram:
    __slots__ = ("length", "pieces", "ts")

    def __init__(self, ts: int) -> None:
        self.ts = ts
        self.pieces = Pieces()
        self.length: int | None = None


class Fragments:
    """The datagrams that are not complete yet."""

    def __init__(self) -> None:
        self.forgotten = 0
        """Datagrams given up."""
        self._datagrams: dict[Hashable, _Datagram] = {}
        self._cost = 0

    def add(self, key: Hashable, ts: int, offset: int, length: int, more: bool, data: bytes) -> Whole | None:
        """Take a fragment of `length` bytes on the wire, `data` of them captured; the datagram once complete.

        Fragments that reach behind a datagram's end or the longest possible one are dropped.
        """
        end = offset + length
        if end > _MAX_LENGTH:
            return None
        datagram = self._datagrams.get(key)
        if datagram is None or ts - datagram.ts > MAX_AGE:
            self._forget(key)
            self._make_room(ts)
            datagram = self._datagrams[key] = _Datagram(ts)
        if datagram.length is not None and end > datagram.length:
            return None
        if not more and datagram.length is None:
            datagram.length = end
        pieces = datagram.pieces
        before = pieces.cost
        if length:
            pieces.add(Piece(offset, end, data))
        self._cost += pieces.cost - before
        if datagram.length is None or pieces.covered < datagram.length:
            return None
        self._drop(key)
        return _assemble(pieces, datagram.length)

    def _make_room(self, ts: int) -> None:
        while self._datagrams:
            oldest = next(iter(self._datagrams))
            too_many = len(self._datagrams) >= MAX_DATAGRAMS or self._cost > MAX_BYTES
            if not too_many and ts - self._datagrams[oldest].ts <= MAX_AGE:
                return
            self._forget(oldest)

    def _forget(self, key: Hashable) -> None:
        if key in self._datagrams:
            self.forgotten += 1
            self._drop(key)

    def _drop(self, key: Hashable) -> None:
        self._cost -= self._datagrams.pop(key).pieces.cost


def _assemble(pieces: Pieces, length: int) -> Whole:
    parts = []
    for piece in pieces.take(0):
        parts.append(piece.data)
        if len(piece.data) < piece.end - piece.start:
            break
    return Whole(b"".join(parts)[:length], length)
