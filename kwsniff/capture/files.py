"""A capture file, pipe or standard input -> numbered packets.

pcap and pcapng, plain or in gzip or zstd, told by their first bytes. Memory is bounded by one block and the
largest packet. Everything in front of a break is yielded before `CaptureError` names it. Refuses to know what
is in a packet.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from types import TracebackType
from typing import IO

from kwsniff.capture.decompress import GZIP_MAGIC, ZSTD_MAGIC
from kwsniff.capture.parsed import Parsed, Parser
from kwsniff.capture.pcap import MAGICS, PcapParser
from kwsniff.capture.pcapng import MAGIC, PcapngParser
from kwsniff.capture.source import Source
from kwsniff.errors import CaptureError, NotACapture, Reason
from kwsniff.model import Packet

_LOOKALIKES = {
    b"\xfd7zXZ\0": "xz data; decompress it first (xz -d)",
    b"BZh": "bzip2 data; decompress it first (bzip2 -d)",
    b"\x04\x22\x4d\x18": "lz4 data; decompress it first (lz4 -d)",
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"7z\xbc\xaf": "a 7z archive; unpack it first",
    b"snoop\0": "a snoop capture; convert it with editcap -F pcap",
    b"GMBU": "a Microsoft Network Monitor capture; convert it with editcap -F pcap",
    b"RTSS": "a Microsoft Network Monitor capture; convert it with editcap -F pcap",
    b"\x4d\x53\x53\x52": "Windows event trace data; convert it with etl2pcapng",
    b"PAR1": "Parquet data",
    b"{": "JSON text",
    b"[": "JSON text",
}
_MAGICS = (*MAGICS, MAGIC, GZIP_MAGIC, ZSTD_MAGIC)
_ACCEPTED = "pcap and pcapng are read, also as .gz and .zst"


def open_capture(path: str, *, stdin: IO[bytes] | None = None) -> PacketReader:
    """Open a capture; `-` is standard input (`stdin` in its place, if given).

    Raises ConfigError when it cannot be opened, NotACapture when it has no readable header.
    """
    source = Source(path, stdin)
    try:
        return PacketReader(source)
    except BaseException:
        source.close()
        raise


class PacketReader:
    """Iterates over the packets of one capture, numbered from 1. A context manager; it is read once.

    Iteration raises CaptureError at a break, when everything in front of it has been yielded; ConfigError
    when the disk fails.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.file = source.name
        self.parser = self._choose()
        while not self.parser.started:
            self.bring(self.parser.parse(source.data))

    @property
    def bytes_read(self) -> int:
        """Bytes of the file itself read so far (compressed ones of a compressed file)."""
        return self._source.bytes_read

    @property
    def size(self) -> int | None:
        """The file's length on disk, None for a pipe."""
        return self._source.size

    def __iter__(self) -> Iterator[Packet]:
        return chain.from_iterable(self.read_batches())

    def read_batches(self) -> Iterator[list[Packet]]:
        """The packets in lists, as they come out of one read: cheaper than one by one."""
        while True:
            parsed = self.parser.parse(self.window)
            if parsed.packets:
                yield parsed.packets
            if not self.bring(parsed):
                return

    @property
    def window(self) -> bytes:
        """The bytes at hand: what `parser` parses next, as far as it was read."""
        return self._source.data

    def close(self) -> None:
        self._source.close()

    def __enter__(self) -> PacketReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _choose(self) -> Parser:
        self._source.advance(0, 4)
        head = self._source.data[:4]
        if head in MAGICS:
            return PcapParser(head)
        if head == MAGIC:
            return PcapngParser()
        raise self._not_a_capture()

    def _not_a_capture(self) -> NotACapture:
        self._source.advance(0, 8)
        head = self._source.data
        broken = self._source.broken
        reason = Reason.CAPTURE_CORRUPT
        if not head and broken:
            text, reason = broken.message, broken.reason
        elif not head:
            text, reason = "the file is empty", Reason.CAPTURE_TRUNCATED
        elif any(magic.startswith(head) for magic in _MAGICS):
            text, reason = "the file ends inside its header", Reason.CAPTURE_TRUNCATED
        else:
            known = (what for magic, what in _LOOKALIKES.items() if head.startswith(magic))
            text = f"not a capture: {next(known, 'its first bytes are ' + head[:8].hex(' '))}; {_ACCEPTED}"
        return NotACapture(text, file=self.file, reason=reason)

    def bring(self, parsed: Parsed) -> bool:
        """Bring the bytes for the step after `parsed`. False where the input ends well; raises as iteration
        does."""
        source = self._source
        source.advance(parsed.used, 0)
        if parsed.fault is not None:
            raise self._error(Reason.CAPTURE_CORRUPT, parsed.fault)
        if source.skip(parsed.skip) if parsed.skip else source.advance(0, parsed.need):
            return True
        if source.broken:
            raise self._error(source.broken.reason, source.broken.message)
        if parsed.skip:
            raise self._error(
                Reason.CAPTURE_TRUNCATED, f"the file is cut short in a block of {parsed.skip} bytes"
            )
        if left := len(source.data):
            text = f"the file is cut short: the last {left} bytes are part of {parsed.need}"
            raise self._error(Reason.CAPTURE_TRUNCATED, text)
        return False

    def _error(self, reason: Reason, message: str) -> CaptureError:
        offset, packet = self._source.offset, self.parser.count + 1
        if self.parser.started:
            return CaptureError(message, file=self.file, packet=packet, offset=offset, reason=reason)
        return NotACapture(f"unreadable header: {message}", file=self.file, offset=offset, reason=reason)
