"""Packet -> TCP segment: link layer, VLAN tags, IPv4 and IPv6 with options, extension headers and fragments.

Anything else gives None and is counted by reason. Checksums are not verified: with offloading, a capture on
the sending host has none. Refuses to know connections. No I/O, no clock: time is the packets' own.
"""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv6Address
from struct import Struct

from kwsniff.capture.fragments import Fragments
from kwsniff.capture.frames import FIND_IP, IPV4, IPV6
from kwsniff.capture.parsed import MAX_PACKET
from kwsniff.model import Endpoint, Packet, Segment

_TCP = 6
_IPV4_TCP = Struct(">BxH2xHxB14xIIBB").unpack_from
"""Of an IPv4 header without options and the TCP header behind it: version and length, total length, fragment,
protocol, seq, ack, data offset, flags."""
_IPV4_TCP_SIZE = 34
_IPV4_HEAD = Struct(">BxHHHxB").unpack_from
_IPV6_HEAD = Struct(">B3xHB").unpack_from
_TCP_HEAD = Struct(">IIBB").unpack_from
_ETHERNET, _IPV4_TYPE = 1, b"\x08\x00"

_FRAGMENT, _AUTHENTICATION = 44, 51
_EXTENSIONS = frozenset({0, 43, 60, 135, 139, 140, _AUTHENTICATION})
"""Hop-by-hop, routing, destination options, mobility, HIP, shim6: all say their length in units of 8 bytes,
but authentication in units of 4 (RFC 4302 section 2.2)."""

_MAX_PAIRS = 1 << 14


class _Ignored(Exception):
    """There is no TCP segment in this packet, for the reason in args."""


class LinkDecoder:
    """Decodes the packets of one input, in their order.

    `ignored` counts the packets that gave no segment: not_ip, not_tcp, bad_header, header_cut (by a snaplen),
    unsupported_linktype. Fragments that wait for the rest of their datagram are not in it.
    """

    def __init__(self) -> None:
        self.ignored: Counter[str] = Counter()
        self.fragments = Fragments()
        self._pairs: dict[bytes, tuple[Endpoint, Endpoint]] = {}

    def decode(self, packet: Packet) -> Segment | None:
        """The TCP segment in (or completed by) this packet."""
        try:
            return self._decode(packet)
        except _Ignored as ignored:
            self.ignored[ignored.args[0]] += 1
            return None

    def _decode(self, packet: Packet) -> Segment | None:
        data = packet.data
        if packet.linktype == _ETHERNET and data[12:14] == _IPV4_TYPE:
            at = 14
        else:
            find = FIND_IP.get(packet.linktype)
            if find is None:
                raise _Ignored("unsupported_linktype")
            kind, at = find(data)
            if kind == IPV6:
                return self._ipv6(packet, at)
            if kind != IPV4:
                raise _Ignored("not_ip")
        if len(data) < at + _IPV4_TCP_SIZE:
            return self._ipv4(packet, at)
        first, total, fragment, protocol, seq, ack, offset, flags = _IPV4_TCP(data, at)
        start = at + 20 + (offset >> 4) * 4
        end = at + total
        if first != 0x45 or protocol != _TCP or fragment & 0x3FFF or offset < 0x50 or start > end:
            return self._ipv4(packet, at)
        payload = data[start:end]
        ends = data[at + 12 : at + 24]
        src, dst = self._pairs.get(ends) or self._pair(ends)
        cut = end - start - len(payload)
        return Segment(packet.ts, src, dst, seq, ack, flags, payload, cut, packet.number)

    def _ipv4(self, packet: Packet, at: int) -> Segment | None:
        data = packet.data
        if len(data) < at + 20:
            raise _short(packet)
        first, total, identification, fragment, protocol = _IPV4_HEAD(data, at)
        header = (first & 0xF) * 4
        # 0: the host handed a segment of more than 64 KiB, or one it had not split yet, to its network card.
        end = at + total if total else _wire_end(packet)
        if first >> 4 != 4 or header < 20 or at + header > end:
            raise _Ignored("bad_header")
        if protocol != _TCP:
            raise _Ignored("not_tcp")
        addresses = data[at + 12 : at + 20]
        start = at + header
        if not fragment & 0x3FFF:
            return self._tcp(packet, data, start, end, addresses)
        more = bool(fragment & 0x2000)
        key = (identification, addresses)
        whole = self.fragments.add(
            key, packet.ts, (fragment & 0x1FFF) * 8, end - start, more, data[start:end]
        )
        return whole and self._tcp(packet, whole.data, 0, whole.length, addresses)

    def _ipv6(self, packet: Packet, at: int) -> Segment | None:
        data = packet.data
        if len(data) < at + 40:
            raise _short(packet)
        first, length, protocol = _IPV6_HEAD(data, at)
        if first >> 4 != 6:
            raise _Ignored("bad_header")
        # 0: a jumbogram (RFC 2675), or offloading as with IPv4.
        end = at + 40 + length if length else _wire_end(packet)
        addresses = data[at + 8 : at + 40]
        at += 40
        protocol, at = _skip_extensions(data, protocol, at)
        if protocol != _FRAGMENT:
            return self._upper(packet, data, protocol, at, end, addresses)
        if len(data) < at + 8:
            raise _short(packet)
        if at + 8 > end:
            raise _Ignored("bad_header")
        field = int.from_bytes(data[at + 2 : at + 4], "big")
        protocol, key = data[at], (data[at + 4 : at + 8], addresses)
        at += 8
        if not field & 0xFFF9:  # an atomic fragment (RFC 6946)
            return self._upper(packet, data, *_skip_extensions(data, protocol, at), end, addresses)
        whole = self.fragments.add(key, packet.ts, field & 0xFFF8, end - at, bool(field & 1), data[at:end])
        if whole is None:
            return None
        protocol, at = _skip_extensions(whole.data, protocol, 0)
        return self._upper(packet, whole.data, protocol, at, whole.length, addresses)

    def _upper(
        self, packet: Packet, data: bytes, protocol: int, at: int, end: int, addresses: bytes
    ) -> Segment | None:
        if protocol != _TCP:
            raise _Ignored("not_tcp") if at <= len(data) else _short(packet)
        return self._tcp(packet, data, at, end, addresses)

    def _tcp(self, packet: Packet, data: bytes, at: int, end: int, addresses: bytes) -> Segment | None:
        if len(data) < at + 14:
            raise _short(packet)
        seq, ack, offset, flags = _TCP_HEAD(data, at + 4)
        start = at + (offset >> 4) * 4
        if offset < 0x50 or start > end:
            raise _Ignored("bad_header")
        payload = data[start:end]
        ends = addresses + data[at : at + 4]
        src, dst = self._pairs.get(ends) or self._pair(ends)
        cut = end - start - len(payload)
        return Segment(packet.ts, src, dst, seq, ack, flags, payload, cut, packet.number)

    def _pair(self, ends: bytes) -> tuple[Endpoint, Endpoint]:
        """Both ends of a segment from its addresses and ports; remembered, as text is dear."""
        half = len(ends) // 2 - 2
        source = Endpoint(_text(ends[:half]), int.from_bytes(ends[-4:-2], "big"))
        destination = Endpoint(_text(ends[half:-4]), int.from_bytes(ends[-2:], "big"))
        if len(self._pairs) >= _MAX_PAIRS:
            self._pairs.clear()
        self._pairs[ends] = pair = source, destination
        return pair


def _short(packet: Packet) -> _Ignored:
    """A header does not fit: into the capture, or into the packet itself."""
    return _Ignored("header_cut" if len(packet.data) < packet.wire_length else "bad_header")


def _wire_end(packet: Packet) -> int:
    """Where the packet ended on the wire, as the capture says; believed within reason."""
    return max(min(packet.wire_length, MAX_PACKET), len(packet.data))


def _skip_extensions(data: bytes, protocol: int, at: int) -> tuple[int, int]:
    """The first header that is none of IPv6's own: its number and offset. Behind `data` where that is too
    short."""
    while protocol in _EXTENSIONS:
        if len(data) < at + 8:
            return protocol, len(data) + 1
        length = (data[at + 1] + 2) * 4 if protocol == _AUTHENTICATION else (data[at + 1] + 1) * 8
        protocol, at = data[at], at + length
    return protocol, at


def _text(address: bytes) -> str:
    if len(address) == 4:
        return "{}.{}.{}.{}".format(*address)
    # Python writes IPv4-mapped addresses in two ways, depending on its version; RFC 5952 section 5 has this
    # one.
    if address[:12] == b"\0" * 10 + b"\xff\xff":
        return "::ffff:{}.{}.{}.{}".format(*address[12:])
    return str(IPv6Address(address))
