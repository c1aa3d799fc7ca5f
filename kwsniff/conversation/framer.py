"""One direction of a connection: chunks in order -> size-delimited frames.

Kafka of every age, bare SASL tokens included, sends `size:int32` and then that many bytes. The framer cuts
there and remembers when and in which packet each byte came. Bytes that the capture lost keep their place,
so a gap inside a frame costs that frame only. It does not know what a frame means: who reads it decides
whether a size is sane, and finds the next frame when a gap took a boundary away (`run`, `skip`).
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from kwsniff.compiled import compiled
from kwsniff.model import Chunk, Run

_cut = compiled("kwsniff.conversation._cut")

_SIZE = struct.Struct(">i")


class RawFrame(Struct, frozen=True, gc=False):
    """A frame as cut from the stream. `data` ends at the first lost byte; `size` counts the prefix too."""

    data: bytes
    size: int
    lost: int
    ts: int
    end: int
    packet: int
    offset: int
    cut_off: bool = False
    """The stream ended inside it."""


class Gap(NamedTuple):
    """`lost` bytes where a frame's size should have been: the boundary is unknown from here on.

    skipped: captured bytes of the size prefix before the gap, of no use now.
    """

    lost: int
    ts: int
    packet: int
    offset: int
    skipped: int = 0


class BadSize(NamedTuple):
    """A size prefix that no frame can have."""

    size: int
    ts: int
    packet: int
    offset: int
    head: bytes


class _Piece(NamedTuple):
    offset: int
    data: bytes
    ts: int
    packet: int


class Framer:
    """Offsets count every byte of the direction from its first one, lost ones included."""

    def __init__(self, max_frame: int) -> None:
        self._max_frame = max_frame
        self._pieces: deque[_Piece] = deque()
        self._at = 0
        self._end = 0
        self._need = 4

    @property
    def offset(self) -> int:
        """Where the next unread byte is in the stream."""
        return self._at

    @property
    def waiting(self) -> int:
        """Bytes received (or lost) and not yet read."""
        return self._end - self._at

    @property
    def ready(self) -> bool:
        """Whether enough has come for the next frame, or to see that there is none."""
        return self._end >= self._need

    @property
    def missing(self) -> int:
        """Bytes that have to come until it is `ready`."""
        return max(self._need - self._end, 0)

    def receive(self, chunk: Chunk) -> None:
        self._end += chunk.lost
        if chunk.data:
            self._pieces.append(_Piece(self._end, chunk.data, chunk.ts, chunk.packet))
            self._end += len(chunk.data)

    def receive_run(self, run: Run, found: list[Any]) -> None:
        """Chunks that follow one another, at once: the frames that are whole in them go to `found`."""
        if _cut is None or self._at != self._end:
            for chunk in run.chunks():
                self.receive(chunk)
            return
        data, begin = run.data(), self._at
        end = _cut.cut(data, 0, begin, 0, 0, run.mark, self._max_frame, RawFrame, found)
        self._at = begin + end
        self._need = self._at + 4
        self._end = begin
        if end == len(data):
            self._end += end
            return
        for chunk in run.chunks():
            if self._end + len(chunk.data) > self._at:
                self.receive(chunk)
            else:
                self._end += len(chunk.data)

    def surrender(self) -> tuple[int, list[tuple[bytes, int, int]]] | None:
        """Give away what is not read: (offset, (data, ts, packet) of each chunk). None, and nothing is given
        away, where bytes are lost in it."""
        at, given = self._at, []
        for piece in self._pieces:
            if piece.offset > at:
                return None
            given.append((piece.data[at - piece.offset :], piece.ts, piece.packet))
            at = piece.offset + len(piece.data)
        if at != self._end:
            return None
        self._pieces.clear()
        self._end = self._at
        return self._at, given

    def take_back(self, offset: int, pieces: list[tuple[bytes, int, int]]) -> None:
        """What was surrendered, or what others have left of it."""
        self._at = self._end = offset
        self._need = offset + 4
        for data, ts, packet in pieces:
            self._pieces.append(_Piece(self._end, data, ts, packet))
            self._end += len(data)

    def cut(self) -> list[RawFrame | Gap | BadSize]:
        """All that can be read now. A Gap or BadSize comes last: where to go on behind it is not known."""
        found: list[RawFrame | Gap | BadSize] = []
        while True:
            if _cut is not None:
                self._cut_first_piece(found)
            frame = self.maybe_frame()
            if frame is None:
                return found
            found.append(frame)
            if not isinstance(frame, RawFrame):
                return found

    def _cut_first_piece(self, found: list[Any]) -> None:
        """The frames that lie whole in the first piece: nearly all of them, where frames are small."""
        first = self._pieces[0] if self._pieces else None
        if _cut is None or first is None or first.offset > self._at:
            return
        begin = self._at - first.offset
        end = _cut.cut(
            first.data, begin, first.offset, first.ts, first.packet, None, self._max_frame, RawFrame, found
        )
        if end == len(first.data):
            self._pieces.popleft()
        if end > begin:
            self._at = first.offset + end
            self._need = self._at + 4

    def maybe_frame(self) -> RawFrame | Gap | BadSize | None:
        """The next frame, or what stands in its way; None: more bytes are needed."""
        if self._end < self._need:
            return None
        size = self._size()
        if not isinstance(size, int):
            return size
        self._need = self._at + 4 + size
        if self._end < self._need:
            return None
        return self._cut(size)

    def maybe_rest(self) -> RawFrame | Gap | BadSize | None:
        """At the stream's end: the frame that the end cut off, if at least its size was seen."""
        size = self._size() if self.waiting >= 4 else None
        return replace(self._cut(size), cut_off=True) if isinstance(size, int) else size

    def head(self, length: int) -> bytes:
        """Up to `length` unread bytes, as far as they are without a gap."""
        found: list[bytes] = []
        at = self._at
        for piece in self._pieces:
            if piece.offset > at or length <= 0:
                break
            part = piece.data[at - piece.offset : at - piece.offset + length]
            found.append(part)
            at += len(part)
            length -= len(part)
        return b"".join(found)

    def run(self) -> tuple[bytes, list[int], bool]:
        """The unread bytes up to the next gap, where chunks begin in them, and whether a gap ends them."""
        at = self._at
        found: list[bytes] = []
        starts: list[int] = []
        for piece in self._pieces:
            if piece.offset > at:
                return b"".join(found), starts, True
            if piece.offset == at:
                starts.append(at - self._at)
            found.append(piece.data[at - piece.offset :] if at > piece.offset else piece.data)
            at = piece.offset + len(piece.data)
        return b"".join(found), starts, at < self._end

    def skip(self, length: int) -> int:
        """Leave `length` bytes unread. How many of them were captured."""
        captured = self._take(length)[1]
        self._need = self._at + 4
        return captured

    def skip_gap(self) -> Gap | None:
        """Step over the gap at which reading stands, if it stands at one."""
        first = self._pieces[0] if self._pieces else None
        until = first.offset if first else self._end
        if until <= self._at:
            return None
        gap = Gap(until - self._at, first.ts if first else 0, first.packet if first else 0, self._at)
        self._at, self._need = until, until + 4
        return gap

    def _size(self) -> int | Gap | BadSize | None:
        head = self.head(4)
        if len(head) < 4:
            self.skip(len(head))
            gap = self.skip_gap()
            return gap and gap._replace(skipped=len(head))
        size: int = _SIZE.unpack(head)[0]
        if 0 <= size <= self._max_frame:
            return size
        first = self._pieces[0]
        return BadSize(size, first.ts, first.packet, self._at, self.head(64))

    def _cut(self, size: int) -> RawFrame:
        offset, length = self._at, min(4 + size, self.waiting)
        first = self._pieces[0]
        whole = first.offset + len(first.data) - offset
        if whole >= length:
            begin = offset - first.offset
            data, end, packet = first.data[begin + 4 : begin + length], first.ts, first.packet
            self._at = offset + length
            if whole == length:
                self._pieces.popleft()
            captured = length
        else:
            parts, captured, end, packet = self._take(length)
            data = b"".join(parts)[4:]
        self._need = self._at + 4
        return RawFrame(data, 4 + size, 4 + size - captured, first.ts, end, packet, offset)

    def _take(self, length: int) -> tuple[list[bytes], int, int, int]:
        """Read `length` stream bytes: the parts before the first gap, bytes captured, last ts and packet."""
        parts: list[bytes] = []
        captured, ts, packet, gap = 0, 0, 0, False
        until = self._at + length
        while self._pieces and self._pieces[0].offset < until:
            piece = self._pieces[0]
            gap = gap or piece.offset > self._at
            begin = max(self._at - piece.offset, 0)
            part = piece.data[begin : until - piece.offset]
            captured += len(part)
            if not gap:
                parts.append(part)
            self._at = piece.offset + begin + len(part)
            ts, packet = piece.ts, piece.packet
            if begin + len(part) < len(piece.data):
                break
            self._pieces.popleft()
        self._at = until
        return parts, captured, ts, packet
