"""The PROXY protocol, sans-IO: who really is the client, told in front of a connection's bytes.

https://www.haproxy.org/download/3.1/doc/proxy-protocol.txt. Version 2 is written; 2 and 1 are read. Out of
bytes come the two addresses; what cannot be a header is a ValueError, one line. Knows no sockets.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import NamedTuple

from kwsniff.model import Endpoint

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_V1 = b"PROXY "
_V1_LONGEST = 107
_HEAD = struct.Struct(">12sBBH")
_PORTS = struct.Struct(">HH")
_LOCAL, _PROXY = 0x20, 0x21
_TCP4, _TCP6 = 0x11, 0x21
_LONGEST = 4096
"""Of a header's addresses and TLVs that we accept: nobody sends more than some hundred bytes."""


class Header(NamedTuple):
    """What a header says, and how many bytes it has. Without addresses: LOCAL, UNKNOWN (a health check)."""

    client: Endpoint | None
    target: Endpoint | None
    size: int


def write(client: Endpoint, target: Endpoint) -> bytes:
    """A version 2 header: `client` has connected to `target`. Addresses of both families become IPv6."""
    found = [ipaddress.ip_address(end.host.partition("%")[0]) for end in (client, target)]
    if all(address.version == 4 for address in found):
        family = _TCP4
    else:
        family = _TCP6
        found = [_six(address) for address in found]
    body = b"".join(address.packed for address in found) + _PORTS.pack(client.port, target.port)
    return _HEAD.pack(SIGNATURE, _PROXY, family, len(body)) + body


def maybe_header(data: bytes) -> Header | None:
    """The header at the beginning of a connection; None: more bytes are needed. ValueError: there is none."""
    if data.startswith(SIGNATURE):
        return _maybe_v2(data)
    if data.startswith(_V1):
        return _maybe_v1(data)
    if SIGNATURE.startswith(data) or _V1.startswith(data):
        return None
    raise ValueError(f"no PROXY protocol header (begins {data[:16].hex()})")


def needed(data: bytes) -> int:
    """How many more bytes may be read without reading past the header (`maybe_header(data)` is None)."""
    if len(data) < len(SIGNATURE):  # no version 1 header is shorter either
        return len(SIGNATURE) - len(data)
    if not data.startswith(SIGNATURE):
        return 1
    length = 0 if len(data) < _HEAD.size else _HEAD.unpack_from(data)[3]
    return int(_HEAD.size + length - len(data))


def _maybe_v2(data: bytes) -> Header | None:
    if len(data) < _HEAD.size:
        return None
    _, command, family, length = _HEAD.unpack_from(data)
    if command not in (_LOCAL, _PROXY):
        raise ValueError(f"a PROXY protocol header with version and command {command:#04x}")
    if length > _LONGEST:
        raise ValueError(f"a PROXY protocol header of {length} bytes, more than {_LONGEST}")
    end = _HEAD.size + length
    if len(data) < end:
        return None
    size = {_TCP4: 4, _TCP6: 16}.get(family)
    if command == _LOCAL or size is None:
        return Header(None, None, end)
    if length < 2 * size + _PORTS.size:
        raise ValueError(f"a PROXY protocol header too short for its addresses ({length} bytes)")
    at = _HEAD.size
    hosts = [_text(data[at : at + size]), _text(data[at + size : at + 2 * size])]
    ports = _PORTS.unpack_from(data, at + 2 * size)
    return Header(Endpoint(hosts[0], ports[0]), Endpoint(hosts[1], ports[1]), end)


def _maybe_v1(data: bytes) -> Header | None:
    end = data.find(b"\r\n", 0, _V1_LONGEST)
    if end < 0:
        if len(data) >= _V1_LONGEST:
            raise ValueError("a PROXY protocol line without an end")
        return None
    words = data[:end].decode("ascii", "replace").split(" ")
    if words[1] == "UNKNOWN":
        return Header(None, None, end + 2)
    try:
        if words[1] not in ("TCP4", "TCP6") or len(words) != 6:
            raise ValueError
        ends = [Endpoint(str(ipaddress.ip_address(words[2 + i])), _port(words[4 + i])) for i in (0, 1)]
    except ValueError:
        raise ValueError(f"a PROXY protocol line that is none: {data[:end]!r}") from None
    return Header(ends[0], ends[1], end + 2)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise ValueError
    return int(text)


def _text(packed: bytes) -> str:
    """IPv4 that was mapped is told as IPv4."""
    address = ipaddress.ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _six(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv6Address:
    """IPv4-mapped (RFC 4291 section 2.5.5.2), where the other end is IPv6."""
    if isinstance(address, ipaddress.IPv6Address):
        return address
    return ipaddress.IPv6Address(f"::ffff:{address}")
