"""The pcapng format: bytes -> packets. No I/O here; `kwsniff.capture.files` feeds it.

Several sections (each with its own byte order) and interfaces, any time resolution, comments. Blocks without
packets are passed over: name resolution, statistics, decryption secrets, custom ones.
https://datatracker.ietf.org/doc/html/draft-ietf-opsawg-pcapng
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from kwsniff.capture.parsed import MAX_PACKET, Parsed
from kwsniff.model import Packet

MAGIC = b"\x0a\x0d\x0d\x0a"
BYTE_ORDER_MAGICS = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}

_SECTION = 0x0A0D0D0A
_INTERFACE, _OBSOLETE, _SIMPLE, _ENHANCED = 1, 2, 3, 6
_MAX_BLOCK = MAX_PACKET + (1 << 20)
_MAX_SKIPPED = 1 << 20
"""A block of no interest that is longer is not even held."""
_MAX_INTERFACES = 1 << 16
_END_OF_OPTIONS, _COMMENT, _TSRESOL, _TSOFFSET = 0, 1, 9, 14


class _Corrupt(Exception):
    """This block cannot be what it claims to be."""


class _Interface(NamedTuple):
    linktype: int
    snaplen: int
    multiplier: int
    divisor: int
    offset: int
    """A time t of this interface is t * multiplier // divisor + offset nanoseconds."""


class PcapngParser:
    """One pcapng file, from its first byte on."""

    def __init__(self) -> None:
        self.count = 0
        self.started = False
        self.interfaces: list[_Interface] = []
        self._set_order("<")
        self._packet_of: dict[int, Callable[[bytes, int, int], Packet]] = {
            _ENHANCED: self._enhanced,
            _SIMPLE: self._simple,
            _OBSOLETE: self._obsolete,
        }

    def _set_order(self, order: str) -> None:
        self.order = order
        self._block_head = Struct(order + "2I").unpack_from
        self._block_tail = Struct(order + "I").unpack_from
        self._enhanced_head = Struct(order + "5I").unpack_from
        self._obsolete_head = Struct(order + "2H4I").unpack_from
        self._option_head = Struct(order + "2H").unpack_from

    def parse(self, data: bytes) -> Parsed:
        """The packets that `data` holds whole; the rest is to be given again, with more behind it."""
        packets: list[Packet] = []
        at, end, need = 0, len(data), 12
        packet_of, begun = self._packet_of, self.started
        try:
            while at + 12 <= end and self.started is begun:
                kind, size = self._block_head(data, at)
                if kind == _SECTION:
                    size = self._section_size(data, at)
                if size < 12 or size & 3:
                    raise _Corrupt(f"the block's length is {size}, which cannot be")
                stop = at + size
                if stop > end:
                    if kind not in packet_of and kind not in (_SECTION, _INTERFACE) and size > _MAX_SKIPPED:
                        return Parsed(packets, at, skip=size)
                    if size > _MAX_BLOCK:
                        raise _Corrupt(f"the block's length is {size}, which cannot be")
                    need = size
                    break
                (again,) = self._block_tail(data, stop - 4)
                if again != size:
                    raise _Corrupt(f"the block's length is {size} at its start and {again} at its end")
                if kind in packet_of:
                    packets.append(packet_of[kind](data, at, stop - 4))
                    self.count += 1
                elif kind == _INTERFACE:
                    self._interface(data, at, stop - 4)
                elif kind == _SECTION:
                    self._section(data, at, size)
                at = stop
        except _Corrupt as corrupt:
            return Parsed(packets, at, fault=str(corrupt))
        return Parsed(packets, at, need if self.started is begun else 0)

    def _section_size(self, data: bytes, at: int) -> int:
        order = BYTE_ORDER_MAGICS.get(data[at + 8 : at + 12])
        if order is None:
            raise _Corrupt("the section header has no byte-order magic")
        if order != self.order:
            self._set_order(order)
        size: int = self._block_tail(data, at + 4)[0]
        return size

    def _section(self, data: bytes, at: int, size: int) -> None:
        if size < 28:
            raise _Corrupt("the section header is too short")
        major, minor = self._option_head(data, at + 12)
        if major != 1:
            raise _Corrupt(f"pcapng version {major}.{minor} is not known (1.0 is)")
        self.interfaces = []
        self.started = True

    def _interface(self, data: bytes, at: int, stop: int) -> None:
        if stop - at < 16:
            raise _Corrupt("the interface description is too short")
        if len(self.interfaces) == _MAX_INTERFACES:
            raise _Corrupt(f"the section has more than {_MAX_INTERFACES} interfaces")
        linktype, _ = self._option_head(data, at + 8)
        (snaplen,) = self._block_tail(data, at + 12)
        resolution, offset = 6, 0
        for code, value in self._options(data, at + 16, stop):
            if code == _TSRESOL and value:
                resolution = value[0]
            elif code == _TSOFFSET and len(value) == 8:
                offset = int.from_bytes(value, "little" if self.order == "<" else "big", signed=True)
        exponent = resolution & 0x7F
        divisor = 1 << exponent if resolution & 0x80 else 10**exponent
        multiplier = 1_000_000_000
        if multiplier % divisor == 0:
            multiplier, divisor = multiplier // divisor, 1
        interface = _Interface(linktype, snaplen, multiplier, divisor, offset * 1_000_000_000)
        self.interfaces.append(interface)

    def _enhanced(self, data: bytes, at: int, stop: int) -> Packet:
        if stop - at < 28:
            raise _Corrupt("the packet block is too short")
        index, high, low, length, wire_length = self._enhanced_head(data, at + 8)
        return self._packet(data, at + 28, stop, index, high << 32 | low, length, wire_length)

    def _obsolete(self, data: bytes, at: int, stop: int) -> Packet:
        if stop - at < 28:
            raise _Corrupt("the packet block is too short")
        index, _, high, low, length, wire_length = self._obsolete_head(data, at + 8)
        return self._packet(data, at + 28, stop, index, high << 32 | low, length, wire_length)

    def _packet(
        self, data: bytes, at: int, stop: int, index: int, time: int, length: int, wire_length: int
    ) -> Packet:
        after = at + length
        if after > stop:
            raise _Corrupt(f"the packet's length is {length}, more than its block has")
        try:
            linktype, _, multiplier, divisor, offset = self.interfaces[index]
        except IndexError:
            raise _Corrupt(f"the packet is of interface {index}, which is not described") from None
        ts = time * multiplier // divisor + offset
        if ts >> 63:
            ts = 0  # before 1970 or after 2262: not a time
        comment = None
        options = at + (length + 3 & ~3)
        if options < stop:
            comment = self._comment(data, options, stop)
        return Packet(ts, linktype, data[at:after], wire_length, comment, self.count + 1)

    def _simple(self, data: bytes, at: int, stop: int) -> Packet:
        """A simple packet block has no time; it is 0 here, as nothing is known."""
        if stop - at < 12:
            raise _Corrupt("the packet block is too short")
        if not self.interfaces:
            raise _Corrupt("the packet is of interface 0, which is not described")
        (wire_length,) = self._block_tail(data, at + 8)
        linktype, snaplen, *_ = self.interfaces[0]
        length = min(wire_length, snaplen or wire_length)
        if at + 12 + length > stop:
            raise _Corrupt(f"the packet's length is {length}, more than its block has")
        return Packet(0, linktype, data[at + 12 : at + 12 + length], wire_length, None, self.count + 1)

    def _comment(self, data: bytes, at: int, stop: int) -> str | None:
        texts = [
            value.decode("utf-8", "replace")
            for code, value in self._options(data, at, stop)
            if code == _COMMENT
        ]
        return "\n".join(texts) if texts else None

    def _options(self, data: bytes, at: int, stop: int) -> list[tuple[int, bytes]]:
        """The options up to the first that does not fit: they are extras, no reason to give up the packet."""
        options = []
        while at + 4 <= stop:
            code, length = self._option_head(data, at)
            at += 4
            if code == _END_OF_OPTIONS or at + length > stop:
                break
            options.append((code, data[at : at + length]))
            at += length + 3 & ~3
        return options
