"""One direction of a connection while it is read: framer, byte ledger, and whether a boundary is known.

Knows nothing of Kafka; the finder that it is given does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kwsniff.conversation.framer import BadSize, Framer, Gap, RawFrame
from kwsniff.conversation.resync import RUN_LIMIT, Found
from kwsniff.model import Chunk, Endpoint, Ledger, Run

Finder = Callable[[bytes, list[int], bool], Found]
"""(run, where chunks begin in it, whether it is all there will be) -> the next boundary."""


_FIRST = 64


class Direction:
    """What one end sends. `src` is who sends it."""

    def __init__(self, src: Endpoint, max_frame: int, synced: bool) -> None:
        self.src = src
        self.framer = Framer(max_frame)
        self.ledger = Ledger()
        self.synced = synced
        self.closed = False
        self.ended = False
        """No more bytes will come: closed, or the capture is over."""
        self.first = b""
        """The direction's first bytes, at most 64: they name what is not Kafka."""
        self.first_packet: int | None = None
        self._searched = 0
        self._cut: list[RawFrame | Gap | BadSize] = []
        """Frames that are cut, and not yet read."""

    def receive_run(self, run: Run) -> None:
        """As `receive`, for many chunks at once; only where a boundary is known."""
        self.framer.receive_run(run, self._cut)
        self.ledger.seen += run.size

    def receive(self, chunk: Chunk) -> None:
        if len(self.first) < _FIRST:
            if chunk.data and not self.first:
                self.first_packet = chunk.packet
            self.first += chunk.data[: _FIRST - len(self.first)]
        self.framer.receive(chunk)
        self.ledger.seen += len(chunk.data)
        self.ledger.lost += chunk.lost
        self.closed = self.closed or chunk.closed
        self.ended = self.ended or chunk.closed

    def frames(self, find: Finder) -> Iterator[list[RawFrame | Gap | BadSize]]:
        """What can be read now: frames, and what broke the row of them. To be read as they come: how the next
        boundary is found depends on what the frames before it have told."""
        if self.synced and not self.framer.ready and not self.ended and not self._cut:
            return
        found, self._cut = self._cut, []
        while self.synced or self.search(find):
            cut = self.framer.cut()
            found += cut
            if not cut or isinstance(cut[-1], RawFrame):
                self._end_inside(found)
                break
            self._lose_boundary(cut[-1])
            yield found
            found = []
        if found:
            yield found

    def _end_inside(self, found: list[RawFrame | Gap | BadSize]) -> None:
        """Where the stream ends inside a frame, what there is of it is the last one."""
        if not self.ended or not self.framer.waiting:
            return
        rest = self.framer.maybe_rest()
        if isinstance(rest, RawFrame):
            found.append(rest)
        else:
            self.ledger.undecoded += self.framer.skip(self.framer.waiting)

    def search(self, find: Finder, limit: int = RUN_LIMIT) -> bool:
        """Look for the next boundary; True when reading stands at one. limit: bytes that may wait for it."""
        framer = self.framer
        while framer.waiting:
            run, starts, gap = framer.run()
            last = gap or self.ended or len(run) >= limit
            if not last and len(run) < self._searched + max(64, self._searched // 4):
                return False
            found = find(run, starts, last)
            self._searched = len(run)
            if found.at is not None:
                self._leave(found.at)
                self.synced = True
                return True
            if not last:
                self._leave(found.keep)
                return False
            self._leave(len(run))
            framer.skip_gap()
        return False

    def retry(self) -> None:
        """Something was learnt that may make sense of bytes already searched."""
        self._searched = 0

    def give_up(self) -> None:
        """Count what waits, and all that comes, as undecoded."""
        framer = self.framer
        self.ledger.undecoded += framer.skip(framer.waiting)

    def _lose_boundary(self, found: Gap | BadSize) -> None:
        self.synced = False
        self._searched = 0
        if isinstance(found, Gap):
            self.ledger.undecoded += found.skipped
        else:
            self._leave(4)

    def _leave(self, length: int) -> None:
        if length > 0:
            self.ledger.undecoded += self.framer.skip(length)
            self._searched = max(self._searched - length, 0)
