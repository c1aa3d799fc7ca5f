"""What a process that makes a part of the output says to the one that puts the parts together, over a pipe.

`Turns` is the process's end, `Pipe` the other. A message is a fixed head and bytes: lines, with whose turn is
next; how far the input is read; at the end, what there is to tell as JSON; or what went wrong. A process that
is ahead keeps a few MiB and then waits: nobody's memory grows. Knows no captures, lines or processes.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import struct
from typing import Any

from kwsniff.errors import KwsniffError

BLOCK = 1 << 17
"""Bytes that are sent at once, unless a turn ends before."""
AHEAD = 1 << 22
"""Bytes that a process keeps when its pipe is full, before it waits."""
LINES, PROGRESS, TOLD, FAILED = range(4)
OVER = 0xFFFF
"""Nobody's turn is next."""
CHECKED = "read"
"""Of what is told at the end: what must be the same in all processes."""
_HEAD = struct.Struct("<BHQQ")  # what it is, whose turn is next, which turn this is, bytes that follow
_MOST_PIECES = 256
"""That are sent in one call: Linux and macOS take 1024."""


class PipeClosed(KwsniffError):
    """The process has ended before it had told everything."""


class Turns:
    """A process's end. `turn` before every part of the output, whoever makes it; `put` in one's own turn."""

    def __init__(self, mine: int, handle: int, stop: mmap.mmap, live: bool) -> None:
        self.number = 0
        """Turns so far; the same in all processes at the same place."""
        self.read = 0
        """Bytes of the input read; all processes must come to the same."""
        self._mine, self._handle, self._stop, self._live = mine, handle, stop, live
        self._owner = 0
        self._texts: list[bytes] = []
        self._size = 0
        self._unsent: list[bytes | memoryview] = []
        self._unsent_size = self._tried = 0

    def turn(self, owner: int) -> None:
        """What comes next is `owner`'s."""
        if owner == self._owner:
            return
        if self._owner == self._mine:
            self._send_lines(owner)
        self._owner = owner
        self.number += 1

    def put(self, text: bytes) -> None:
        self._texts.append(text)
        self._size += len(text)
        if self._size >= BLOCK:
            self._send_lines(self._mine)

    def pause(self) -> bool:
        """Between two pieces of work: whether it is to stop here."""
        if self._live and self._texts:
            self._send_lines(self._mine)
        if self._live or self._unsent_size >= BLOCK:
            self._write(AHEAD)
        return self._stop[0] != 0

    def progress(self, done: int, total: int | None) -> None:
        self._send(PROGRESS, OVER, json.dumps([done, total]).encode())
        self._write(AHEAD)

    def end(self, told: dict[str, Any]) -> None:
        if self._owner == self._mine:
            self._send_lines(OVER)
        self._send(TOLD, OVER, json.dumps(told | {CHECKED: [self.number, self.read]}).encode())
        self._write(0)

    def fail(self, text: str) -> None:
        self._send(FAILED, OVER, text.encode(errors="replace"))
        self._write(0)

    def _send_lines(self, then: int) -> None:
        texts, self._texts, self._size = self._texts, [], 0
        self._send(LINES, then, *texts)

    def _send(self, kind: int, then: int, *data: bytes) -> None:
        size = sum(map(len, data))
        self._unsent.append(_HEAD.pack(kind, then, self.number, size))
        self._unsent += data
        self._unsent_size += _HEAD.size + size
        if self._unsent_size - self._tried >= BLOCK or len(self._unsent) > _MOST_PIECES:
            self._write(AHEAD)

    def _write(self, most: int) -> None:
        """Writes what the pipe takes, and waits while more than `most` bytes are left."""
        while self._unsent:
            try:
                sent = os.writev(self._handle, self._unsent[:_MOST_PIECES])
            except BlockingIOError:
                if self._unsent_size <= most:
                    break
                select.select([], [self._handle], [])
                continue
            self._unsent_size -= sent
            done = 0
            while done < len(self._unsent) and sent >= len(self._unsent[done]):
                sent -= len(self._unsent[done])
                done += 1
            del self._unsent[:done]
            if sent:
                self._unsent[0] = memoryview(self._unsent[0])[sent:]
        self._tried = self._unsent_size


class Pipe:
    """The other end. A message is read by `head`, then `piece` until there is none, or `data`."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._buffer = memoryview(bytearray(BLOCK))
        self._held = self._buffer[:0]
        self._left = 0

    def head(self) -> tuple[int, int, int]:
        """What it is, whose turn is next, which turn it is."""
        while len(self.piece()):
            pass
        head = b""
        self._left = _HEAD.size
        while self._left:
            head += self.piece()
        kind, then, number, self._left = _HEAD.unpack(head)
        return kind, then, number

    def piece(self) -> memoryview:
        """Some of what is left of a message; good until the next is asked for."""
        if self._left and not self._held:
            size = os.readv(self._handle, [self._buffer])
            if not size:
                self._left = 0
                raise PipeClosed
            self._held = self._buffer[:size]
        piece, self._held = self._held[: self._left], self._held[self._left :]
        self._left -= len(piece)
        return piece

    def data(self) -> bytes:
        """All of a small message."""
        data = b""
        while piece := self.piece():
            data += piece
        return data
