"""Byte ranges that arrive in any order and may overlap: the first copy of a byte wins.

Used for IP fragments and for TCP segments behind a hole. Positions are plain growing integers.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import NamedTuple

_START = attrgetter("start")

PIECE_COST = 200
"""What a piece costs in memory besides its bytes, so that many tiny ones count too."""


class Piece(NamedTuple):
    """The bytes from position `start` to `end`. Fewer bytes than positions: the last ones were not
    captured."""

    start: int
    end: int
    data: bytes
    ts: int = 0
    packet: int = 0
    tick: int = 0
    """Arrival, on a clock of the owner's."""

    def part(self, start: int, end: int) -> Piece:
        data = self.data[start - self.start : end - self.start]
        return Piece(start, end, data, self.ts, self.packet, self.tick)


class Pieces:
    """A sorted list of pieces that do not overlap."""

    __slots__ = ("cost", "covered", "items")

    def __init__(self) -> None:
        self.items: list[Piece] = []
        self.covered = 0
        """Positions held."""
        self.cost = 0
        """Memory held, about."""

    def add(self, piece: Piece) -> int:
        """Keep what of `piece` no earlier one covers; how many positions that is."""
        items = self.items
        before = self.covered
        start, end = piece.start, piece.end
        at = bisect_right(items, start, key=_START)
        if at and items[at - 1].end > start:
            start = items[at - 1].end
        while start < end:
            stop = end if at == len(items) or items[at].start >= end else items[at].start
            if start < stop:
                items.insert(at, piece if stop - start == end - piece.start else piece.part(start, stop))
                self.cost += len(items[at].data) + PIECE_COST
                self.covered += stop - start
                at += 1
            if at == len(items):
                break
            start = items[at].end
            at += 1
        return self.covered - before

    def take(self, position: int) -> list[Piece]:
        """Remove and return the pieces that follow one another from `position` on."""
        items = self.items
        count = 0
        while count < len(items) and items[count].start == position:
            position = items[count].end
            count += 1
        taken = items[:count]
        del items[:count]
        for piece in taken:
            self.covered -= piece.end - piece.start
            self.cost -= len(piece.data) + PIECE_COST
        return taken

    def clear(self) -> None:
        self.items.clear()
        self.covered = self.cost = 0
