"""Packets -> a pcapng file that Wireshark, tcpdump and `kwsniff.capture.files` read.

One section, little-endian, times in nanoseconds, an interface for each link type when its first packet comes.
Writes to a file object that the caller opens, flushes and closes.
"""

from __future__ import annotations

from struct import Struct
from typing import IO

from kwsniff.errors import EncodeError
from kwsniff.model import Packet

_BLOCK = Struct("<2I")
_ENHANCED = Struct("<7I")
_OPTION = Struct("<2H")
_END = bytes(4)
_MAX_OPTION = 0xFFFF
_SECTION, _INTERFACE, _ENHANCED_PACKET = 0x0A0D0D0A, 1, 6
_COMMENT, _USER_APPLICATION, _TSRESOL = 1, 4, 9
_UNKNOWN_LENGTH = b"\xff" * 8


class PcapngWriter:
    """Writes packets as enhanced packet blocks. The section header is written at once."""

    def __init__(self, file: IO[bytes], *, application: str = "kwsniff", snaplen: int = 0) -> None:
        """snaplen: what the interfaces declare; 0 is no limit."""
        self._file = file
        self._snaplen = snaplen
        self._interfaces: dict[int, int] = {}
        body = Struct("<I2H").pack(0x1A2B3C4D, 1, 0) + _UNKNOWN_LENGTH
        self.bytes_written = self._block(_SECTION, body + _option(_USER_APPLICATION, application) + _END)

    def write(self, packet: Packet) -> int:
        """Append one packet with its comment; returns the bytes written.

        A comment of more than 65,535 bytes is split at a line's end into several, as its reader joins them
        again. EncodeError (and nothing is written): a single line is longer than that, or `ts` is not in
        0..2**64-1.
        """
        if not 0 <= packet.ts < 1 << 64:
            raise EncodeError(f"{packet.ts} is no time of a packet", path="ts")
        options = b""
        if packet.comment is not None:
            options = b"".join(_option(_COMMENT, text) for text in _split(packet.comment)) + _END
        written = 0
        interface = self._interfaces.get(packet.linktype)
        if interface is None:
            interface = self._interfaces[packet.linktype] = len(self._interfaces)
            body = Struct("<2HI").pack(packet.linktype, 0, self._snaplen)
            written = self._block(_INTERFACE, body + _OPTION.pack(_TSRESOL, 1) + b"\x09\0\0\0" + _END)
        length = len(packet.data)
        padding = bytes(-length & 3)
        size = _ENHANCED.size + length + len(padding) + len(options) + 4
        high, low = packet.ts >> 32, packet.ts & 0xFFFF_FFFF
        head = _ENHANCED.pack(_ENHANCED_PACKET, size, interface, high, low, length, packet.wire_length)
        self._file.write(b"".join((head, packet.data, padding, options, size.to_bytes(4, "little"))))
        written += size
        self.bytes_written += written
        return written

    def _block(self, kind: int, body: bytes) -> int:
        size = len(body) + 12
        self._file.write(_BLOCK.pack(kind, size) + body + size.to_bytes(4, "little"))
        return size


def _option(code: int, text: str) -> bytes:
    value = text.encode("utf-8", "replace")
    return _OPTION.pack(code, len(value)) + value + bytes(-len(value) & 3)


def _split(comment: str) -> list[str]:
    """The comment in parts that fit an option."""
    if len(comment.encode("utf-8", "replace")) <= _MAX_OPTION:
        return [comment]
    parts: list[str] = []
    size = _MAX_OPTION + 1
    for line in comment.split("\n"):
        length = len(line.encode("utf-8", "replace"))
        if length > _MAX_OPTION:
            raise EncodeError(
                f"a line of {length} bytes, a pcapng comment holds {_MAX_OPTION}", path="comment"
            )
        if size + 1 + length > _MAX_OPTION:
            parts.append(line)
            size = length
        else:
            parts[-1] += "\n" + line
            size += 1 + length
    return parts
