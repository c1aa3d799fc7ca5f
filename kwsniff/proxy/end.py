"""One socket of a proxied connection, as asyncio tells of it. What that means is the business of the link.

Reads as good as nothing until a link takes it; what comes before is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Protocol, cast

from kwsniff.model import Side

HIGH_WATER = 1 << 20
"""Bytes that wait for one receiver, or are held back by rules, above which their sender is not read."""
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class Taker(Protocol):
    """Who is told. `side` is the way that the bytes of this socket's sender travel."""

    def received(self, side: Side, data: bytes) -> None: ...
    def ended(self, side: Side) -> None: ...
    def lost(self, side: Side, error: Exception | None) -> None: ...
    def balance(self) -> None:
        """A socket has had enough, or can have more."""


class End(asyncio.Protocol):
    """One socket. What it receives travels as `side`. Reads nothing until a link takes it."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.link: Taker | None = None
        self.transport: asyncio.Transport | None = None
        self.gone = False
        self.full = False
        """What is to be sent waits in front of the socket."""
        self._reading: bool | None = None
        self._early: list[bytes] = []
        self._ended = False
        self._lost: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport = cast(asyncio.Transport, transport)  # uvloop's are of no such class
        transport.set_write_buffer_limits(high=HIGH_WATER)
        transport.pause_reading()

    def taken(self, link: Taker) -> None:
        """From now on the link is told. `catch_up` tells it what has happened before."""
        self.link = link

    def catch_up(self) -> None:
        assert self.link is not None
        early, self._early = self._early, []
        for data in early:
            self.link.received(self.side, data)
        if self._ended:
            self.link.ended(self.side)
        if self.gone:
            self.link.lost(self.side, self._lost)

    def data_received(self, data: bytes) -> None:
        if self.link is not None:
            self.link.received(self.side, data)
            return
        self._early.append(data)  # uvloop begins to read behind `connection_made`, paused or not
        if self.transport is not None:
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        self._ended = True
        if self.link is not None:
            self.link.ended(self.side)
        # Half-closed: the other direction goes on. With TLS there is no such thing.
        return self.transport is not None and self.transport.can_write_eof()

    def connection_lost(self, error: Exception | None) -> None:
        self.gone, self._lost = True, error
        if self.link is not None:
            self.link.lost(self.side, error)

    def pause_writing(self) -> None:
        self.full = True
        if self.link is not None:
            self.link.balance()

    def resume_writing(self) -> None:
        self.full = False
        if self.link is not None:
            self.link.balance()

    def read(self, wanted: bool) -> None:
        if wanted == self._reading or self.gone or self.transport is None or self.transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def half_close(self) -> bool:
        """No more bytes to here. False: it cannot be said without closing (TLS)."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return True
        if not transport.can_write_eof():
            return False
        with contextlib.suppress(OSError):  # gone in the meantime: `connection_lost` comes
            transport.write_eof()
        return True

    def close(self) -> None:
        """After what was written before has left."""
        if self.transport is not None:
            self.transport.close()

    def abort(self, *, reset: bool = False) -> None:
        if self.transport is None or self.gone:
            return
        if reset:
            sock = self.transport.get_extra_info("socket")
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        self.transport.abort()
