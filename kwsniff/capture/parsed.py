"""What a format parser (pcap, pcapng) makes of the bytes at hand. Parsers do no I/O: bytes in, this out."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kwsniff.model import Packet

MAX_PACKET = 1 << 24
"""The longest packet that we believe in. libpcap stops at 256 KiB; offloading engines give up to 512 KiB and
IPv6 jumbograms more, so we are liberal, while a damaged length is still recognised 255 times of 256."""


class Parsed(NamedTuple):
    packets: list[Packet]
    used: int
    """Bytes done with. What follows is incomplete, or at fault."""
    need: int = 0
    """Bytes that must be at hand behind `used` for the next step."""
    skip: int = 0
    """Bytes behind `used` that are of no interest and too many to hold."""
    fault: str | None = None
    """Why nothing behind `used` can be read."""


class Parser(Protocol):
    count: int
    """Packets parsed so far."""
    started: bool
    """The file's header was read and found good."""

    def parse(self, data: bytes) -> Parsed:
        """The packets that `data` holds whole; the rest is to be given again, with more behind it.

        The call that finds the file's header goes no further.
        """
        ...
