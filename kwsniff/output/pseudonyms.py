"""Names, addresses and bytes -> others in their place, always the same for the same key.

In: a secret key, and what is to be hidden with its kind. Out: a pseudonym that without the key tells nothing
but its kind (names), its length (bytes) or its range (addresses: private stays private). Keyed BLAKE2; for
IPv4 a permutation of each range, so that two addresses never become one. No state, no I/O, no clock.
"""

from __future__ import annotations

import base64
from functools import lru_cache
from hashlib import blake2b, shake_256
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address

_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" * 4
"""Of a byte's value its letter: bytes in place of others can be read aloud."""
_RESERVED = 100
"""UUIDs that Kafka gives out to nobody; two of them mean something (none, the metadata topic)."""
_RANGES = tuple(map(IPv4Network, ("10.0.0.0/8", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
_UNICAST = range(1 << 24, 224 << 24)
_EVERYTHING = IPv4Network("0.0.0.0/0")
_ROUNDS = 8


class Pseudonyms:
    """Those of one key."""

    def __init__(self, key: bytes) -> None:
        # What is given may be longer than BLAKE2 takes.
        self._key = blake2b(key, person=b"kwsniff").digest()
        # Of bytes none are remembered: they may be large, and are rarely repeated.
        self.name = lru_cache(maxsize=65_536)(self._name)
        self.host = lru_cache(maxsize=65_536)(self._host)
        self.uuid = lru_cache(maxsize=65_536)(self._uuid)

    def _name(self, kind: str, text: str) -> str:
        """`topic-` and 16 hexadecimal digits; the empty text stays."""
        return f"{kind}-{self._digest(kind, _raw(text), 8).hex()}" if text else text

    def content(self, kind: str, data: bytes) -> bytes:
        """As many other bytes. Where there are few, two may well become the same."""
        seed = self._digest(kind, data, 64)
        return shake_256(seed).digest(len(data)).translate(_LETTERS)

    def _uuid(self, text: str) -> str:
        data = base64.urlsafe_b64decode(text + "==")
        if int.from_bytes(data, "big") < _RESERVED:
            return text
        return base64.urlsafe_b64encode(self._digest("uuid", data, 16)).rstrip(b"=").decode()

    def _host(self, text: str) -> str:
        """An address for an address, a name for a name; what comes before the last `/` of Java's text of an
        address goes."""
        slash, bare = ("/", text.rpartition("/")[2]) if "/" in text else ("", text)
        if not bare or bare == "*":
            return text
        try:
            address = ip_address(bare.partition("%")[0])
        except ValueError:
            return slash + self._name("host", bare)
        return slash + str(self._address(address))

    def _address(self, address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
        if isinstance(address, IPv4Address):
            return self._ipv4(address)
        if address.ipv4_mapped is not None:
            return IPv6Address((0xFFFF << 32) + int(self._ipv4(address.ipv4_mapped)))
        if address.is_unspecified:
            return address
        # A local address (RFC 4193): nobody's. 120 bits do not meet by chance.
        return IPv6Address(b"\xfd" + self._digest("ipv6", address.packed, 15))

    def _ipv4(self, address: IPv4Address) -> IPv4Address:
        """Another of the same range. Outside of those that are private: any other unicast address, which may
        be somebody's by chance."""
        for network in _RANGES:
            if address in network:
                return IPv4Address(self._permuted(int(address), network))
        if int(address) not in _UNICAST:
            return address  # 0.0.0.0, broadcast, multicast: no host
        number = int(address)
        while True:
            number = self._permuted(number, _EVERYTHING)
            found = IPv4Address(number)
            if number in _UNICAST and not any(found in network for network in _RANGES):
                return found

    def _permuted(self, number: int, network: IPv4Network) -> int:
        """A Feistel network over the bits of the host part."""
        half = (32 - network.prefixlen) // 2
        mask = (1 << half) - 1
        base = int(network.network_address)
        left, right = (number - base) >> half, (number - base) & mask
        for turn in range(_ROUNDS):
            said = f"{network} {turn} {right}".encode()
            left, right = right, left ^ (int.from_bytes(self._digest("ipv4", said, 4), "big") & mask)
        return base + (left << half) + right

    def _digest(self, kind: str, data: bytes, size: int) -> bytes:
        return blake2b(kind.encode() + b"\0" + data, digest_size=size, key=self._key).digest()


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
