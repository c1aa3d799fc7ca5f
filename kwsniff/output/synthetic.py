"""Bytes that two ends said to each other -> packets of a TCP connection that never was, as raw IP.

In: what each side sent, and when. Out: packets with handshake, sequence numbers, acknowledgements, checksums
and FIN, so that every reader of captures finds a whole session. No segment is lost, late or repeated. Knows
neither Kafka nor files. No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import pairwise
from struct import Struct
from zlib import crc32

from kwsniff.model import ConnectionId, Flag, Packet, Side

LINKTYPE_RAW = 101
"""The packet begins with its IPv4 or IPv6 header."""
SEGMENT = 60_000
"""Bytes of payload at most: with both headers it fits what an IP header can say."""

_IPV4 = Struct(">BxHHHBBH4s4s")
_IPV6 = Struct(">IHBB16s16s")
_TCP = Struct(">HHIIBBHHxx")
_MASK = 0xFFFF_FFFF
_DONT_FRAGMENT, _TTL, _TCP_NUMBER, _WINDOW = 0x4000, 64, 6, 0xFFFF
_SYN_OPTIONS = b"\x02\x04\xea\x60\x03\x03\x0e\x01"
"""Maximum segment size 60,000; windows count in units of 16 KiB, so that none is ever full."""
_NAMELESS = int(IPv4Address("198.18.0.0"))
_NAMELESS_MOST = (1 << 17) - 1


class Addresses:
    """Hosts -> IP addresses. What is a name and no address gets one of 198.18.0.0/15 (RFC 2544: in no real
    network), in the order of asking; past the last one they all share that."""

    def __init__(self) -> None:
        self._named: dict[str, IPv4Address] = {}

    def of(self, host: str) -> IPv4Address | IPv6Address:
        try:
            return ip_address(host.partition("%")[0])  # without zone: no packet has it
        except ValueError:
            pass
        found = self._named.get(host)
        if found is None:
            number = min(len(self._named) + 1, _NAMELESS_MOST)
            found = IPv4Address(_NAMELESS + number)
            if number < _NAMELESS_MOST:
                self._named[host] = found
        return found

    def pair(self, conn: ConnectionId) -> tuple[bytes, bytes]:
        """Client and broker in one family: where one is IPv6, the other's IPv4 is mapped (::ffff:a.b.c.d)."""
        ends = [self.of(conn.client.host), self.of(conn.broker.host)]
        if ends[0].version != ends[1].version:
            ends = [
                end if end.version == 6 else IPv6Address(bytes(10) + b"\xff\xff" + end.packed) for end in ends
            ]
        return ends[0].packed, ends[1].packed


class Conversation:
    """The packets of one connection. `first`: the sequence number of the client's SYN; None: by the name."""

    def __init__(
        self, conn: ConnectionId, addresses: Addresses, opened: int, first: int | None = None
    ) -> None:
        client, broker = addresses.pair(conn)
        ports = conn.client.port & 0xFFFF, conn.broker.port & 0xFFFF
        # Another number for each session of a reused port, else its SYN looks like a repetition.
        start = crc32(f"{conn} {opened}".encode()) if first is None else first
        self._seq = {Side.REQUEST: start & _MASK, Side.RESPONSE: ~start & _MASK}
        self._ends: dict[Side, tuple[bytes, bytes, int, int]] = {
            Side.REQUEST: (client, broker, ports[0], ports[1]),
            Side.RESPONSE: (broker, client, ports[1], ports[0]),
        }

    def open(self, ts: int, comment: str | None = None) -> Iterator[Packet]:
        """SYN, SYN and ACK, ACK."""
        ask, answer = Side.REQUEST, Side.RESPONSE
        yield self._packet(ask, ts, Flag.SYN, b"", comment, ack=0)
        self._seq[ask] += 1
        yield self._packet(answer, ts, Flag.SYN | Flag.ACK, b"")
        self._seq[answer] += 1
        yield self._packet(ask, ts, Flag.ACK, b"")

    def send(
        self, side: Side, parts: tuple[bytes, ...], ts: int, end: int, comment: str | None = None
    ) -> Iterator[Packet]:
        """The parts, one behind the other. ts, end: of the first byte and the last; `comment` is with the
        first. Where they differ there are two segments at least, to carry both times."""
        data = memoryview(b"".join(parts))
        cuts = [*range(0, len(data), SEGMENT), len(data)]
        if len(cuts) == 2 and ts != end and len(data) > 4:
            cuts.insert(1, 4)
        for at, stop in pairwise(cuts):
            when = ts if stop < len(data) else max(ts, end)
            yield self._packet(side, when, Flag.PSH | Flag.ACK, data[at:stop], comment if at == 0 else None)
            self._seq[side] += stop - at

    def note(self, side: Side, ts: int, comment: str) -> Packet:
        """An acknowledgement without data, for what is to be said where nothing was sent."""
        return self._packet(side, ts, Flag.ACK, b"", comment)

    def close(self, ts: int) -> Iterator[Packet]:
        """FIN of both sides, and the last ACK."""
        for side in (Side.REQUEST, Side.RESPONSE):
            yield self._packet(side, ts, Flag.FIN | Flag.ACK, b"")
            self._seq[side] += 1
        yield self._packet(Side.REQUEST, ts, Flag.ACK, b"")

    def reset(self, ts: int) -> Packet:
        return self._packet(Side.RESPONSE, ts, Flag.RST | Flag.ACK, b"")

    def _packet(
        self,
        side: Side,
        ts: int,
        flags: int,
        payload: bytes | memoryview,
        comment: str | None = None,
        ack: int | None = None,
    ) -> Packet:
        src, dst, src_port, dst_port = self._ends[side]
        options = _SYN_OPTIONS if flags & Flag.SYN else b""
        other = Side.RESPONSE if side is Side.REQUEST else Side.REQUEST
        size = 20 + len(options) + len(payload)
        seq = self._seq[side] & _MASK
        ack = self._seq[other] & _MASK if ack is None else ack
        tcp = _TCP.pack(src_port, dst_port, seq, ack, (20 + len(options)) << 2, flags, _WINDOW, 0)
        pseudo = b"".join((src, dst, bytes((0, _TCP_NUMBER)), size.to_bytes(4, "big")))
        checksum = _checksum(b"".join((pseudo, tcp, options, payload)))
        head = _ip(src, dst, size)
        data = b"".join((head, tcp[:16], checksum, b"\0\0", options, payload))
        return Packet(ts, LINKTYPE_RAW, data, len(data), comment)


def _ip(src: bytes, dst: bytes, size: int) -> bytes:
    if len(src) == 16:
        return _IPV6.pack(6 << 28, size, _TCP_NUMBER, _TTL, src, dst)
    head = _IPV4.pack(0x45, 20 + size, 0, _DONT_FRAGMENT, _TTL, _TCP_NUMBER, 0, src, dst)
    return head[:10] + _checksum(head) + head[12:]


def _checksum(data: bytes) -> bytes:
    """The Internet checksum (RFC 1071): a sum in ones' complement is a remainder by 65535."""
    if len(data) & 1:
        data += b"\0"
    number = int.from_bytes(data, "big")
    bits = len(data) * 8
    while bits > 4096:  # folded in halves of whole words first: to divide a long number is slow
        bits = (bits // 2 + 15) & ~15
        number = (number >> bits) + (number & ((1 << bits) - 1))
        bits += 16
    rest = number % 0xFFFF
    return (0xFFFF - (rest or 0xFFFF)).to_bytes(2, "big")
