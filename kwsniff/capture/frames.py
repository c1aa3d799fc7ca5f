"""Link-layer headers: a packet's bytes and link type -> where its IP header begins.

The numbers are LINKTYPE_ values of https://www.tcpdump.org/linktypes.html. Refuses to look into IP.
"""

from __future__ import annotations

from collections.abc import Callable

IPV4, IPV6 = 0x0800, 0x86DD

_VLAN_TAGS = frozenset({0x8100, 0x88A8, 0x9100, 0x9200})
_PPPOE_SESSION = 0x8864
_PPP_PROTOCOLS = {0x0021: IPV4, 0x0057: IPV6}
_BSD_FAMILIES = {2: IPV4, 10: IPV6, 24: IPV6, 28: IPV6, 30: IPV6}
"""AF_INET is 2 everywhere; AF_INET6 differs: Linux, NetBSD and OpenBSD, FreeBSD, macOS."""

Found = tuple[int, int]
"""EtherType (0: none that we know) and the offset of what it describes."""


def _ether(type_at: int, payload_at: int) -> Callable[[bytes], Found]:
    """A header with an EtherType, then any number of VLAN tags, then perhaps PPPoE."""

    def find(data: bytes) -> Found:
        kind, at = int.from_bytes(data[type_at : type_at + 2], "big"), payload_at
        while kind in _VLAN_TAGS:
            kind = int.from_bytes(data[at + 2 : at + 4], "big")
            at += 4
        return _ppp(data, at + 6) if kind == _PPPOE_SESSION else (kind, at)

    return find


def _ppp(data: bytes, at: int = 0) -> Found:
    if data[at : at + 2] == b"\xff\x03":
        at += 2
    # Protocol field compression (RFC 1661 section 6.5): an odd first byte is the whole field.
    length = 1 if data[at : at + 1] and data[at] & 1 else 2
    return _PPP_PROTOCOLS.get(int.from_bytes(data[at : at + length], "big"), 0), at + length


def _loopback(data: bytes) -> Found:
    """The family is in the byte order of the machine that captured."""
    little, big = int.from_bytes(data[:4], "little"), int.from_bytes(data[:4], "big")
    return _BSD_FAMILIES.get(little) or _BSD_FAMILIES.get(big) or 0, 4


def _raw(data: bytes) -> Found:
    version = data[0] >> 4 if data else 0
    return {4: IPV4, 6: IPV6}.get(version, 0), 0


FIND_IP: dict[int, Callable[[bytes], Found]] = {
    0: _loopback,
    1: _ether(12, 14),
    9: _ppp,
    12: _raw,
    14: _raw,
    50: _ppp,
    51: lambda data: _ppp(data, 6),
    101: _raw,
    108: _loopback,
    113: _ether(14, 16),
    228: _raw,
    229: _raw,
    276: _ether(0, 20),
}
