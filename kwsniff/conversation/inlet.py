"""One direction's way into the proxy: received bytes -> frames, as the framer cuts them.

Nothing is ever lost here, unlike in a capture. Small pieces of a frame are put together first, so that one
that comes byte by byte costs no more memory than its bytes.
"""

from __future__ import annotations

from kwsniff.conversation.framer import BadSize, Framer, Gap, RawFrame
from kwsniff.model import Chunk, Endpoint

_FIRST = 64
_PIECE = 16 * 1024


class Inlet:
    """`src` sends to `dst`."""

    def __init__(self, src: Endpoint, dst: Endpoint, max_frame: int) -> None:
        self.framer = Framer(max_frame)
        self.seen = 0
        self.first = b""
        """The direction's first bytes, at most 64: they name what is not Kafka."""
        self.ended = False
        """The sender has said that there will be no more."""
        self.closed = False
        """What comes is not read any more."""
        self._ends = (src, dst)
        self._pieces = bytearray()

    @property
    def waiting(self) -> int:
        """Bytes received that are no whole frame yet."""
        return self.framer.waiting + len(self._pieces)

    def receive(self, data: bytes, now: int) -> None:
        if self.seen < _FIRST:
            self.first += data[: _FIRST - self.seen]
        self.seen += len(data)
        framer = self.framer
        if framer.waiting and len(self._pieces) + len(data) < min(framer.missing, _PIECE):
            self._pieces += data
            return
        if self._pieces:
            data = bytes(self._pieces) + data
            self._pieces.clear()
        framer.receive(Chunk(now, *self._ends, data))

    def frames(self) -> list[RawFrame | BadSize]:
        """Those that are whole; a size that no frame can have ends them."""
        if not self.framer.ready:
            return []
        return [found for found in self.framer.cut() if not isinstance(found, Gap)]

    def rest(self, now: int) -> tuple[bytes, RawFrame | None]:
        """At the end of the stream: the bytes that are left, and the frame that they begin."""
        if self._pieces:
            self.framer.receive(Chunk(now, *self._ends, bytes(self._pieces)))
            self._pieces.clear()
        data = self.framer.head(self.framer.waiting)
        rest = self.framer.maybe_rest()
        if isinstance(rest, RawFrame):
            return data, rest
        self.framer.skip(self.framer.waiting)
        return data, None
