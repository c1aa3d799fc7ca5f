"""One direction's way out of the proxy: what was decided upon, in its order, until it leaves.

In: things to give out, each with the time before which it stays and the speed at which it goes, and `now`.
Out: bytes, and word of what has left. A clock of its own it has not: `due` says when to ask again.
Nothing overtakes anything. It does not know what the bytes mean.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

SECOND = 1_000_000_000
_LARGE = 128 * 1024
_SLICES = 20
"""How many times a second a throttled frame goes on, if a byte or more is due."""


class Held(Struct, eq=False):
    """Something on its way. `what` belongs to who put it there; without data it is only word of its turn."""

    then: Callable[[Held, int], None] | None = None
    """Called with it and the time when its last byte has left. It may put more into an outlet."""
    what: Any = None
    data: bytes = b""
    prefix: bytes = b""
    """Goes before the data: the frame's size."""
    at: int = 0
    """It stays until then: ns."""
    rate: int = 0
    """Bytes a second; 0: all at once."""
    began: int | None = None
    """When its turn came."""
    given: int = 0
    """Bytes of it that have left."""

    @property
    def size(self) -> int:
        return len(self.prefix) + len(self.data)


class Outlet:
    def __init__(self) -> None:
        self.bytes = 0
        """Put here and not yet given out."""
        self.given = 0
        self._held: deque[Held] = deque()
        self._parts: list[bytes] = []

    @property
    def idle(self) -> bool:
        return not self._held

    @property
    def due(self) -> int | None:
        """When the next byte leaves, or the next thing is gone."""
        if not self._held:
            return None
        first = self._held[0]
        return first.at if first.began is None else first.began + _time_of(_next_stop(first), first.rate)

    def put(self, held: Held, now: int) -> None:
        size = len(held.prefix) + len(held.data)
        if self._held or held.at > now or held.rate:
            self._held.append(held)
            self.bytes += size
            self.move(now)
            return
        if held.prefix:
            self._parts.append(held.prefix)
        if held.data:
            self._parts.append(held.data)
        held.began = now
        held.given = size
        self.given += size
        if held.then is not None:
            held.then(held, now)

    def move(self, now: int) -> None:
        """What is due leaves."""
        while self._held and self._held[0].at <= now:
            first = self._held[0]
            if first.began is None:
                first.began = now
            if not self._give(first, first.began, now):
                return
            self._held.popleft()
            if first.then is not None:
                first.then(first, now)

    @property
    def quiet(self) -> bool:
        """Nothing has left since the last `take`."""
        return not self._parts

    def take(self) -> list[bytes]:
        """The bytes that have left since the last call: in one piece, but large ones as they are."""
        parts, self._parts = self._parts, []
        if len(parts) <= 1:
            return parts
        found: list[bytes] = []
        small: list[bytes] = []
        for part in parts:
            if len(part) < _LARGE:
                small.append(part)
                continue
            if small:
                found.append(b"".join(small))
                small = []
            found.append(part)
        if small:
            found.append(b"".join(small))
        return found

    def replace(self, data: bytes) -> None:
        """These are the bytes that have left, in one piece: spares the copy."""
        self._parts = [data]

    def clear(self) -> Iterator[Held]:
        """What will not leave any more."""
        held, self._held, self.bytes = self._held, deque(), 0
        return iter(held)

    def _give(self, held: Held, began: int, now: int) -> bool:
        """As much as may go now. Whether that was the rest."""
        size = held.size
        until = size
        if held.rate:
            until = min(size, (now - began) * held.rate // SECOND)
            if until < _next_stop(held):
                return False
        if until < size and held.prefix:
            held.data, held.prefix = held.prefix + held.data, b""
        if held.prefix:
            self._parts.append(held.prefix)
        if until > held.given:
            self._parts.append(held.data[held.given : until] if held.rate else held.data)
        self.bytes -= until - held.given
        self.given += until - held.given
        held.given = until
        return until == size


def _next_stop(held: Held) -> int:
    """Up to which byte the next slice of a throttled frame goes."""
    return min(held.size, held.given + max(held.rate // _SLICES, 1)) if held.rate else held.size


def _time_of(length: int, rate: int) -> int:
    """ns that so many bytes take."""
    return -(-length * SECOND // rate) if rate else 0
