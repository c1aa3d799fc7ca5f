"""Compressed bytes -> plain bytes, as a stream, for .gz and .zst captures.

In: an iterator of byte blocks as they come from the disk, starting at a gzip member or a zstd frame. Out: an
iterator of blocks of at most about 1 MiB, whatever the ratio; several members or frames follow one another.
Everything in front of a break comes out before `Broken` is raised. Knows nothing of captures.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from kwsniff.errors import Reason

if TYPE_CHECKING:
    from zstandard import ZstdDecompressionObj, ZstdDecompressor

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = bytes.fromhex("2a4d18")
"""Behind a byte 0x50..0x5f: a frame to be skipped (RFC 8878 section 3.1.2)."""

_BLOCK = 1 << 20
_GZIP_INPUT = 1 << 14
"""Small, because zlib copies what is left of it for every member, and a member may be of 20 bytes."""
_ZSTD_WINDOW = 1 << 27
"""What `zstd -d` accepts without --long; the window is what a frame makes us hold in memory."""


class Broken(Exception):
    """The compressed stream ends here, before its end."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def is_compressed(head: bytes) -> bool:
    return head[:2] == GZIP_MAGIC or _is_zstd(head)


def decompressed(blocks: Iterator[bytes], head: bytes) -> Iterator[bytes]:
    """The plain bytes of `head` and `blocks` behind it. Raises `Broken`."""
    stream = _Feed(blocks, head)
    return _gunzip(stream) if head[:2] == GZIP_MAGIC else _unzstd(stream)


def _is_zstd(head: bytes) -> bool:
    return head[:4] == ZSTD_MAGIC or (head[1:4] == _ZSTD_SKIPPABLE and head[0] >> 4 == 5)


class _Feed:
    """Blocks with an exact read on top."""

    def __init__(self, blocks: Iterator[bytes], head: bytes) -> None:
        self._blocks = blocks
        self._held = head
        self._at = 0

    def some(self, limit: int) -> bytes:
        """The next bytes, at most `limit`; b"" at the end."""
        if self._at >= len(self._held):
            self._held, self._at = next(self._blocks, b""), 0
        part = self._held[self._at : self._at + limit]
        self._at += len(part)
        return part

    def push_back(self, data: bytes) -> None:
        """Undo reading `data`, which the last call returned the end of."""
        self._at -= len(data)

    def exactly(self, n: int) -> bytes:
        """The next n bytes; fewer at the end."""
        data = self.some(n)
        if len(data) == n:
            return data
        parts = [data]
        while (n := n - len(parts[-1])) and (data := self.some(n)):
            parts.append(data)
        return b"".join(parts)

    def skip(self, n: int) -> int:
        """Pass over n bytes without holding them. How many there were."""
        left = n
        while left and (part := self.some(min(left, _BLOCK))):
            left -= len(part)
        return n - left


def _gunzip(stream: _Feed) -> Iterator[bytes]:
    while head := stream.exactly(2):
        if not head.strip(b"\0"):
            continue  # tapes and some tools pad with zeros; gzip(1) accepts that too
        if head != GZIP_MAGIC:
            if len(head) < 2:
                raise Broken(Reason.CAPTURE_TRUNCATED, "the gzip data ends inside a member's header")
            raise Broken(Reason.CAPTURE_CORRUPT, "what follows the gzip data is not gzip")
        yield from _gzip_member(stream, head)


def _gzip_member(stream: _Feed, head: bytes) -> Iterator[bytes]:
    member = zlib.decompressobj(wbits=31)
    member.decompress(head)
    while not member.eof:
        data = member.unconsumed_tail or stream.some(_GZIP_INPUT)
        # zlib throws away what a failing call had decompressed so far, hence the copy, from which the call is
        # repeated in small steps. It costs 1 % of the call.
        before = member.copy()
        try:
            out = member.decompress(data, _BLOCK)
        except zlib.error as error:
            yield from _up_to_error(before, data)
            raise Broken(Reason.CAPTURE_CORRUPT, f"the gzip data is damaged ({_words(error)})") from None
        if out:
            yield out
        elif not data and not member.eof:
            raise Broken(Reason.CAPTURE_TRUNCATED, "the gzip data is cut short")
    stream.push_back(member.unused_data)


def _up_to_error(member: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    at, step = 0, 1024
    while step and at < len(data):
        before = member.copy()
        try:
            out = member.decompress(data[at : at + step])
        except zlib.error:
            member, step = before, step // 32
            continue
        at += step
        if out:
            yield out


def _words(error: Exception) -> str:
    return str(error).rpartition(": ")[2]


def _unzstd(stream: _Feed) -> Iterator[bytes]:
    # Feeding whole blocks (RFC 8878 section 3.1.1.2) bounds what one call may return to 128 KiB, shows
    # whether the data ends inside a frame, and keeps every good block in front of a damaged one.
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    while head := stream.exactly(4):
        if len(head) == 4 and head[0] >> 4 == 5 and head[1:] == _ZSTD_SKIPPABLE:
            size = int.from_bytes(_whole(stream, 4), "little")
            if stream.skip(size) < size:
                raise _zstd_cut()
        elif head == ZSTD_MAGIC:
            yield from _zstd_frame(stream, decompressor, zstandard.ZstdError)
        elif len(head) < 4:
            raise _zstd_cut()
        else:
            raise Broken(Reason.CAPTURE_CORRUPT, "what follows the zstd data is not zstd")


def _zstd_frame(
    stream: _Feed, decompressor: ZstdDecompressor, zstd_error: type[Exception]
) -> Iterator[bytes]:
    frame: ZstdDecompressionObj = decompressor.decompressobj()
    pieces = _zstd_pieces(stream)
    for piece in pieces:
        try:
            out = frame.decompress(piece)
        except zstd_error as error:
            words = str(error).partition(": ")[2] or str(error)
            raise Broken(Reason.CAPTURE_CORRUPT, f"the zstd data is damaged ({words})") from None
        if out:
            yield out


def _zstd_pieces(stream: _Feed) -> Generator[bytes, None, None]:
    """A frame's header, then each of its blocks, then its checksum."""
    descriptor = _whole(stream, 1)[0]
    single = descriptor >> 5 & 1
    size_length = (single, 2, 4, 8)[descriptor >> 6]
    dictionary_length = (0, 1, 2, 4)[descriptor & 3]
    rest = _whole(stream, (1 - single) + dictionary_length + size_length)
    yield ZSTD_MAGIC + bytes([descriptor]) + rest
    last = 0
    while not last:
        header = _whole(stream, 3)
        value = int.from_bytes(header, "little")
        last, kind, size = value & 1, value >> 1 & 3, value >> 3
        yield header + _whole(stream, 1 if kind == 1 else size)
    if descriptor & 4:
        yield _whole(stream, 4)


def _whole(stream: _Feed, n: int) -> bytes:
    data = stream.exactly(n)
    if len(data) < n:
        raise _zstd_cut()
    return data


def _zstd_cut() -> Broken:
    return Broken(Reason.CAPTURE_TRUNCATED, "the zstd data is cut short")
