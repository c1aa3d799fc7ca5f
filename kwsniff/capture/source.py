"""A path or standard input -> a window over its plain bytes, moving forward.

Opens, decompresses (told by the first bytes, not by the name), reads in large blocks and holds only what the
caller has not done with. Refuses to know what a packet is.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from kwsniff.capture.decompress import Broken, decompressed, is_compressed
from kwsniff.errors import ConfigError

BLOCK = 120 << 10
"""120 KiB a read: larger ones gain nothing, but from 128 KiB on (M_MMAP_THRESHOLD) glibc maps and unmaps the
memory of each, which costs more than to read it."""


class Source:
    """The bytes of one capture file.

    `data` holds the plain bytes from `offset` on; `broken` is what ended them early, if anything did.
    `bytes_read` counts bytes of the file itself, as it is on disk; `size` is its whole length, None for a
    pipe.
    """

    def __init__(self, path: str, stdin: IO[bytes] | None = None) -> None:
        self.name = "<stdin>" if path == "-" else path
        self.bytes_read = 0
        self.size: int | None = None
        self.offset = 0
        self.data = b""
        self.broken: Broken | None = None
        self._close: Callable[[], None] = lambda: None
        self._read = self._open(path, stdin)
        try:
            head = self._block()
            while len(head) < 4 and (block := self._block()):
                head += block
        except ConfigError:
            self._close()
            raise
        blocks = iter(self._block, b"")
        if is_compressed(head):
            self._blocks: Iterator[bytes] = decompressed(blocks, head)
        else:
            self.data, self._blocks = head, blocks

    def _open(self, path: str, stdin: IO[bytes] | None) -> Callable[[int], bytes | None]:
        if path == "-":
            stream: Any = stdin if stdin is not None else sys.stdin.buffer
            # read1 returns what a pipe holds now; read would wait for a full block of a slow live capture.
            return getattr(stream, "read1", stream.read)  # type: ignore[no-any-return]
        try:
            file = Path(path).open("rb", buffering=0)  # noqa: SIM115 - closed by close()
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path}: cannot open it ({_why(error)})") from None
        self._close = file.close
        info = os.fstat(file.fileno())
        self.size = info.st_size if stat.S_ISREG(info.st_mode) else None
        return file.read

    def _block(self) -> bytes:
        try:
            block = self._read(BLOCK)
        except OSError as error:
            raise ConfigError(f"{self.name}: cannot read it ({_why(error)})") from None
        if block is None:
            raise ConfigError(f"{self.name}: cannot read it (it is set to non-blocking)")
        self.bytes_read += len(block)
        return block

    def advance(self, used: int, need: int = 1) -> bool:
        """Let go of the first `used` bytes of `data`, then read until it holds `need` bytes.

        False when the input ended first; `data` then holds all there is.
        """
        self.offset += used
        parts = [self.data[used:]]
        held = len(parts[0])
        while held < need:
            try:
                block = next(self._blocks, b"")
            except Broken as broken:
                self.broken, block = broken, b""
            if not block:
                break
            parts.append(block)
            held += len(block)
        self.data = b"".join(parts)
        return held >= need

    def skip(self, n: int) -> bool:
        """Pass over the first n bytes without holding them. False when the input ended first."""
        while n > len(self.data):
            n -= len(self.data)
            if not self.advance(len(self.data)):
                return False
        self.offset += n
        self.data = self.data[n:]
        return True

    def close(self) -> None:
        self._close()

    def __enter__(self) -> Source:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _why(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
