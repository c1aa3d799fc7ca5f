"""The classic pcap format: bytes -> packets. No I/O here; `kwsniff.capture.files` feeds it.

Both byte orders, microseconds and nanoseconds, and Kuznetzov's variant of old Linux distributions.
https://datatracker.ietf.org/doc/html/draft-ietf-opsawg-pcap
"""

from __future__ import annotations

from struct import Struct

from kwsniff.capture.parsed import MAX_PACKET, Parsed
from kwsniff.model import Packet

_FILE_HEADER = 24
_VARIANTS = {
    # magic: nanoseconds per unit of a time's second field, length of a record's header
    0xA1B2C3D4: (1000, 16),
    0xA1B23C4D: (1, 16),
    0xA1B2CD34: (1000, 24),
}
MAGICS = {
    magic.to_bytes(4, "little" if order == "<" else "big"): (order, *variant)
    for magic, variant in _VARIANTS.items()
    for order in "<>"
}
_LINKTYPE = 0x03FF_FFFF
"""The upper bits tell the length of the frame check sequence."""


class PcapParser:
    """One pcap file, from its first byte on."""

    def __init__(self, magic: bytes) -> None:
        self.order, self.fraction, self.record_header = MAGICS[magic]
        self._record = Struct(self.order + "4I").unpack_from
        self.linktype = 0
        self.count = 0
        self.started = False

    def parse(self, data: bytes) -> Parsed:
        """The packets that `data` holds whole; the rest is to be given again, with more behind it."""
        return self._records(data) if self.started else self._header(data)

    def _header(self, data: bytes) -> Parsed:
        if len(data) < _FILE_HEADER:
            return Parsed([], 0, need=_FILE_HEADER)
        major, minor, _, _, _, linktype = Struct(self.order + "2H4I").unpack_from(data, 4)
        if major != 2:
            return Parsed([], 0, fault=f"pcap version {major}.{minor} is not known (2.4 is)")
        self.linktype = linktype & _LINKTYPE
        self.started = True
        return Parsed([], _FILE_HEADER)

    def _records(self, data: bytes) -> Parsed:
        packets: list[Packet] = []
        append, unpack = packets.append, self._record
        header, fraction, linktype, number = self.record_header, self.fraction, self.linktype, self.count
        at, end = 0, len(data)
        need, fault = header, None
        while at + header <= end:
            seconds, part, length, wire_length = unpack(data, at)
            stop = at + header + length
            if stop > end:
                need = header + length
                if length > MAX_PACKET:
                    fault = f"the packet's length is {length}, which cannot be"
                break
            number += 1
            append(
                Packet(
                    seconds * 1_000_000_000 + part * fraction,
                    linktype,
                    data[at + header : stop],
                    wire_length,
                    None,
                    number,
                )
            )
            at = stop
        self.count = number
        return Parsed(packets, at, need, fault=fault)
