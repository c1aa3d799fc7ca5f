"""Streams of bytes -> a pcap file, as a capture of TCP connections would hold them.

In: what each end of a connection says, in order. Out: Ethernet, IPv4 and TCP (timestamps option, checksums
valid) with handshake, delayed acknowledgements and FIN, written as it comes. No loss, no disorder: speed is
measured on captures that are fine. Knows nothing of Kafka.
"""

from __future__ import annotations

from struct import Struct
from typing import BinaryIO

CLIENT, BROKER = 0, 1
FIN, SYN, PSH, ACK = 0x01, 0x02, 0x08, 0x10
BLOCK = 1 << 20

_FILE = Struct("<IHHiIII")
_RECORD = Struct("<IIII")
_IP = Struct(">BBHHHBBH8s")
_TCP = Struct(">HHIIBBHHH4sII")
_TIMESTAMPS = b"\x01\x01\x08\x0a"  # NOP NOP, then kind and length (RFC 7323)
_SYN_OPTIONS = Struct(">BBHBBBB")
_TICK = 12
"""Microseconds between packets."""


class Capture:
    """A pcap file that is being written. `written` counts its bytes, `now` is in microseconds."""

    def __init__(self, stream: BinaryIO, now: int) -> None:
        self._stream = stream
        self._parts: list[bytes] = []
        self._held = 0
        self.now = now
        self.packets = 0
        self.written = 0
        self._put(_FILE.pack(0xA1B2C3D4, 2, 4, 0, 0, 262_144, 1))

    def packet(self, *parts: bytes) -> None:
        size = sum(map(len, parts))
        self._put(_RECORD.pack(self.now // 1_000_000, self.now % 1_000_000, size, size), *parts)
        self.packets += 1
        self.now += _TICK

    def _put(self, *parts: bytes) -> None:
        size = sum(map(len, parts))
        self._parts += parts
        self._held += size
        self.written += size
        if self._held >= BLOCK:
            self.flush()

    def flush(self) -> None:
        self._stream.write(b"".join(self._parts))
        self._parts, self._held = [], 0


class _End:
    """One end of a connection: what it has said, and what its headers have in common."""

    __slots__ = ("addresses", "echo", "ethernet", "kept", "number", "port", "said", "seq", "sums", "unacked")

    def __init__(self, ip: bytes, port: int, to_ip: bytes, seq: int) -> None:
        self.addresses = ip + to_ip
        self.ethernet = b"\x02\x00" + to_ip + b"\x02\x00" + ip + b"\x08\x00"
        self.port = port
        self.seq = seq
        self.sums = _sum(self.addresses)
        self.kept = b""
        self.said = self.number = self.echo = self.unacked = 0


class Connection:
    """One TCP connection; `said[end]` is how many bytes of that end are in the capture by now."""

    def __init__(
        self, capture: Capture, client: tuple[bytes, int], broker: tuple[bytes, int], mss: int, seq: int
    ) -> None:
        self._capture = capture
        self._mss = mss
        self._ends = (
            _End(*client, broker[0], seq & 0xFFFFFFFF),
            _End(*broker, client[0], seq * 48271 & 0xFFFFFFFF),
        )

    def open(self) -> None:
        self._emit(CLIENT, b"", SYN)
        self._emit(BROKER, b"", SYN | ACK)
        self._emit(CLIENT, b"", ACK)

    def said(self, end: int) -> int:
        return self._ends[end].said

    def say(self, end: int, data: bytes) -> None:
        """Full segments go out; what does not fill one waits, as with Nagle's algorithm."""
        me, mss = self._ends[end], self._mss
        data = me.kept + data
        full = len(data) // mss * mss
        for at in range(0, full, mss):
            self._emit(end, data[at : at + mss], ACK)
        me.kept = data[full:]

    def push(self, end: int) -> None:
        """What waits goes out."""
        me = self._ends[end]
        if me.kept:
            self._emit(end, me.kept, ACK | PSH)
            me.kept = b""

    def close(self) -> None:
        self._emit(CLIENT, b"", FIN | ACK)
        self._emit(BROKER, b"", FIN | ACK)
        self._emit(CLIENT, b"", ACK)

    def _emit(self, end: int, payload: bytes, flags: int) -> None:
        me, other, capture = self._ends[end], self._ends[1 - end], self._capture
        now = capture.now // 1000 & 0xFFFFFFFF
        ack = other.seq if flags & ACK else 0
        options = _SYN_OPTIONS.pack(2, 4, self._mss + 12, 1, 3, 3, 7) if flags & SYN else b""
        offset = (_TCP.size + len(options)) // 4 << 4
        size = _TCP.size + len(options) + len(payload)
        fields = [me.port, other.port, me.seq, ack, offset, flags, 4096, 0, 0, _TIMESTAMPS, now, me.echo]
        fields[7] = -(_sum(_TCP.pack(*fields) + options + payload) + me.sums + 6 + size) % 0xFFFF
        me.number = me.number + 1 & 0xFFFF
        sums = 0x4500 + 20 + size + me.number + 0x4000 + 0x4006 + me.sums
        ip = _IP.pack(0x45, 0, 20 + size, me.number, 0x4000, 64, 6, -sums % 0xFFFF, me.addresses)
        capture.packet(me.ethernet, ip, _TCP.pack(*fields), options, payload)
        me.seq = me.seq + len(payload) + (1 if flags & (SYN | FIN) else 0) & 0xFFFFFFFF
        me.said += len(payload)
        me.unacked, other.echo, other.unacked = me.unacked + bool(payload), now, 0
        if me.unacked == 2:  # RFC 1122 4.2.3.2: at least every second segment
            self._emit(1 - end, b"", ACK)


def _sum(data: bytes) -> int:
    """The ones' complement sum of 16-bit words (RFC 1071): 2**16 is 1 modulo 65535."""
    return int.from_bytes(data if len(data) % 2 == 0 else data + b"\0", "big") % 0xFFFF
