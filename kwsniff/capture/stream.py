"""One direction of a TCP connection: pieces at sequence positions -> chunks in order.

Positions are the 32-bit sequence numbers unwrapped into growing integers. Here is what is delivered and when
a hole is given up; what a flag means for the connection is `kwsniff.capture.tcp`'s business. No I/O, no
clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from kwsniff.capture.pieces import Piece, Pieces
from kwsniff.capture.state import StreamState
from kwsniff.model import Chunk, Endpoint

if TYPE_CHECKING:
    from kwsniff.capture.tcp import Connection

MASK = 0xFFFF_FFFF
_HALF = 1 << 31


class Limits(NamedTuple):
    """How long to wait for segments that may be late, and how much to hold meanwhile."""

    reorder_window: int = 64
    """Segments of a connection may stand in the capture up to this many places from where they belong."""
    reorder_time: int = 60_000_000_000
    """Nanoseconds of capture time after which a hole is given up in any case, and a reset takes effect."""
    stream_bytes: int = 16 << 20
    """Held of one direction: 256 segments of 64 KiB; more than twice Linux's largest default receive
    window."""
    total_bytes: int = 64 << 20
    """Held of all directions."""
    connections: int = 1 << 14
    """Connections that are open; with more, those silent for longest are taken as closed."""
    ended: int = 1 << 12
    """Connections that have ended and whose late segments are still recognised."""
    pairs: int = 1 << 18
    """Pairs of endpoints whose sessions are counted beyond that."""

    @property
    def hold(self) -> int:
        """Segments of a connection after which what has not come will not come.

        Two segments, each displaced by less than the window, can be twice the window apart; and copies of
        others may stand between them.
        """
        return 4 * self.reorder_window


START_HOLD = 8
"""Without a handshake, segments of the connection to wait for one that belongs in front of the first seen."""

NEAR = 64 << 20
"""Positions further away than any receive window in use are not of this stream, or follow a gap (see
`tcp`)."""


class Tally(Struct):
    """What happened to the segments of an input. Bytes, but for those named segments."""

    segments: int = 0
    delivered: int = 0
    retransmitted: int = 0
    """Seen again: not delivered."""
    lost: int = 0
    """Missing from the capture: fallen into a hole, or cut off by a snaplen."""
    out_of_order_segments: int = 0
    stray_segments: int = 0
    """With a sequence number far from where the stream is: not delivered."""


class Mark(NamedTuple):
    """Where something was seen."""

    ts: int
    packet: int
    tick: int


class Stream(StreamState):
    """One direction."""

    __slots__ = (
        "_cut",
        "closed",
        "fin",
        "fin_mark",
        "isn",
        "lost",
        "origin",
        "pieces",
        "placed",
        "started",
        "stray_at",
        "tally",
    )

    connection: Connection
    peer: Stream

    def __init__(self, connection: Connection, src: Endpoint, dst: Endpoint, tally: Tally) -> None:
        self.connection = connection
        self.src = src
        self.dst = dst
        self.tally = tally
        self.peer = self
        self.next = 0
        self.placed = False
        """Some position is known; before it started, `next` is only what others are measured from."""
        self.started = False
        self.plain = False
        self.origin = -1
        """The sequence number of the first byte."""
        self.isn: int | None = None
        self.acked = None
        self.pieces = Pieces()
        self.lost = 0
        """Bytes missing just before `next` that no chunk has told yet."""
        self._cut: Mark | None = None
        self.fin: int | None = None
        self.fin_mark = Mark(0, 0, 0)
        self.closed = False
        self.strays = 0
        self.stray_at = 0

    def position(self, seq: int) -> int:
        """The position nearest to `next` that has this sequence number."""
        return self.next + ((seq - self.next + _HALF) & MASK) - _HALF

    def is_near(self, seq: int) -> bool:
        return not self.placed or abs(self.position(seq) - self.next) <= NEAR

    @property
    def lowest(self) -> int:
        return self.pieces.items[0].start if self.pieces.items else self.next

    def place(self, seq: int) -> None:
        """Give the first sequence number seen a position, before the start is known."""
        if not self.placed:
            self.next = seq + MASK + 1
            self.placed = True

    def begin(self, seq: int) -> None:
        """The handshake tells that the first byte has this sequence number."""
        self.place(seq)
        self.next = self.position(seq)
        self.origin = seq
        self.started = True
        held = [piece for piece in self.pieces.items if 0 <= piece.end - self.next <= NEAR]
        self.pieces.clear()
        for piece in held:
            self.pieces.add(piece.part(max(piece.start, self.next), piece.end))

    def add(self, piece: Piece) -> None:
        """Take bytes at a position near `next`; what is old or behind the end is dropped."""
        start, end = piece.start, piece.end
        if self.started:
            start = max(start, self.next)
        if self.fin is not None:
            end = min(end, self.fin)
        kept = 0
        if start < end and not self.closed:
            kept = self.pieces.add(piece.part(start, end))
        self.tally.retransmitted += piece.end - piece.start - kept
        if kept and start != self.next:
            self.tally.out_of_order_segments += 1

    def set_fin(self, position: int, mark: Mark) -> None:
        if self.fin is None and (not self.started or position >= self.next):
            self.fin, self.fin_mark = position, mark

    def drain(self, out: list[Chunk]) -> None:
        """Deliver what is in order."""
        if not self.started or self.closed:
            return
        for piece in self.pieces.take(self.next):
            if piece.data:
                out.append(self.chunk(piece, piece.data))
                self.tally.delivered += len(piece.data)
            self.next = piece.end
            if cut := piece.end - piece.start - len(piece.data):
                self._lose(cut)
                self._cut = Mark(piece.ts, piece.packet, 0)
        if self.fin is not None and self.next >= self.fin:
            self.close(out, self.fin_mark)

    @property
    def waiting(self) -> bool:
        return not self.closed and (self.fin is not None or bool(self.pieces.items))

    def _edge(self) -> tuple[int, int, int]:
        """Where the hole ends that is waited for; the time and tick since when."""
        items = self.pieces.items
        if items and (self.fin is None or items[0].start <= self.fin):
            return items[0].start, items[0].ts, items[0].tick
        assert self.fin is not None
        return self.fin, self.fin_mark.ts, self.fin_mark.tick

    @property
    def waiting_since(self) -> int:
        return self._edge()[1]

    def is_due(self, tick: int, hold: int) -> bool:
        """What is missing will not come.

        A hole that the receiver has not acknowledged is one in the network, and will be filled; one that it
        has is one in the capture, as soon as it cannot be a matter of order any more.
        """
        edge, _, since = self._edge()
        waited = tick - since
        acked = None if self.acked is None else self.position(self.acked)
        if self.started:
            return waited >= hold and acked is not None and acked >= edge
        if self.connection.opened:
            return waited >= hold
        if waited >= START_HOLD or not self.pieces.items:
            return True
        return acked is not None and (acked == edge or acked >= self.pieces.items[0].end)

    def give_up(self, out: list[Chunk]) -> None:
        """Take the first hole as lost, or the first byte held as the start, and go on behind it."""
        edge = self._edge()[0]
        if self.started:
            self._lose(edge - self.next)
        else:
            self.started = True
            self.origin = edge & MASK
        self.next = edge
        self.drain(out)

    def jump(self, position: int, out: list[Chunk]) -> None:
        """Everything up to here is lost."""
        while self.waiting:
            self.give_up(out)
        self._lose(position - self.next)
        self.next = position

    def flush(self, out: list[Chunk]) -> None:
        """Give up every hole, and tell of bytes lost at the very end."""
        while self.waiting:
            self.give_up(out)
        if self.lost and self._cut:
            out.append(self.chunk(self._cut, b""))

    def close(self, out: list[Chunk], mark: Mark) -> None:
        if self.closed:
            return
        self.closed = True
        self.pieces.clear()
        out.append(self.chunk(mark, b"", closed=True))

    def chunk(self, where: Mark | Piece, data: bytes, *, opened: bool = False, closed: bool = False) -> Chunk:
        """A chunk at this point of the stream; it tells what was lost in front of it."""
        lost, self.lost = self.lost, 0
        session = self.connection.session
        return Chunk(where.ts, self.src, self.dst, data, lost, closed, where.packet, opened, session)

    def _lose(self, count: int) -> None:
        self.lost += count
        self.tally.lost += count
