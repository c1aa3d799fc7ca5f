"""A series of files that are written for as long as a proxy runs: names, sizes, times, what reaches the disk.

In: a name (with strftime fields), limits, bytes, and `now`. Out: files, none of which was there before: where
a name is taken a number is put behind it. What is written waits in memory until `flush`, and then goes to the
file in whole; a file that could not take all of it is cut back to what it had, so that none ends in half a
block. OSError is the caller's. Knows nothing of what the bytes are.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Literal

Fsync = Literal["none", "interval", "always"]
NS = 1_000_000_000


@dataclass(frozen=True)
class Rotation:
    """When another file is begun: at so many bytes, after so many nanoseconds; None: never for that."""

    max_bytes: int | None = None
    every: int | None = None


class Series:
    """Opens the first file at once. `path` is the one that is being written.

    pattern: the name, with strftime fields in UTC. Where files are rotated by size, or the name has no time
    in it, each has a number of five digits (a-00001.pcapng); so has one whose name is taken. What is no plain
    file (a pipe, /dev/stdout) is written as it is.
    """

    def __init__(self, pattern: str, *, now: int, rotation: Rotation, fsync: Fsync) -> None:
        self._pattern, self._rotation, self._fsync = pattern, rotation, fsync
        rotated = rotation.max_bytes is not None or rotation.every is not None
        self._numbered = rotation.max_bytes is not None or (rotated and "%" not in pattern)
        self._numbers = count(1)
        self._waiting = bytearray()
        self._file: int | None = None
        self.path = ""
        self._open(now)

    @property
    def waiting(self) -> int:
        """Bytes that are not in the file yet."""
        return len(self._waiting)

    def due(self, now: int) -> bool:
        """Whether what comes at `now` belongs into another file."""
        most, every = self._rotation.max_bytes, self._rotation.every
        full = most is not None and self._size + len(self._waiting) >= most
        return self._regular and (full or (every is not None and now >= self._opened + every))

    def rotate(self, now: int) -> None:
        """Close this file and open the next."""
        self.close()
        self._open(now)

    def write(self, data: bytes) -> int:
        self._waiting += data
        return len(data)

    def flush(self, *, sync: bool = False) -> None:
        """Into the file, whence a killed process cannot take it back. sync: and onto the disk."""
        assert self._file is not None
        data, self._waiting = self._waiting, bytearray()
        view, written = memoryview(data), 0
        try:
            while written < len(view):
                written += os.write(self._file, view[written:])
        except OSError:
            if self._regular:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, self._size)
            raise
        self._size += written
        if sync and self._regular:
            os.fsync(self._file)

    def tick(self) -> None:
        """About once a second."""
        self.flush(sync=self._fsync != "none")

    def written(self) -> None:
        """A piece that belongs together is whole."""
        if self._fsync == "always":
            self.flush(sync=True)

    def close(self) -> None:
        """Flush, and close the file whether that goes well or not. Closing again does nothing."""
        if self._file is None:
            return
        try:
            self.flush(sync=self._fsync != "none")
        finally:
            file, self._file = self._file, None
            os.close(file)

    def _open(self, now: int) -> None:
        name = datetime.fromtimestamp(now // NS, UTC).strftime(self._pattern)
        self.path, self._file = self._create(name)
        self._regular = stat.S_ISREG(os.fstat(self._file).st_mode)
        self._opened, self._size = now, 0

    def _create(self, name: str) -> tuple[str, int]:
        if os.path.exists(name) and not os.path.isfile(name):
            return name, os.open(name, os.O_WRONLY)
        stem, suffix = os.path.splitext(name)
        taken = (f"{stem}-{number:05d}{suffix}" for number in count(1))
        if self._numbered:
            names = (f"{stem}-{number:05d}{suffix}" for number in self._numbers)
        else:
            names = (one for names in ((name,), taken) for one in names)
        for one in names:
            with contextlib.suppress(FileExistsError):
                # 0o600: what is recorded is what people sent.
                return one, os.open(one, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        raise AssertionError("numbers do not end")
