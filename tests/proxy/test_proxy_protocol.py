"""The PROXY protocol, against the examples and the layouts of its specification (versions 1 and 2)."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwsniff.model import Endpoint
from kwsniff.proxy import proxy_protocol
from kwsniff.proxy.proxy_protocol import maybe_header, needed, write

# Section 2.2: the 12 bytes of the signature, version 2 command PROXY, then family and length.
SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a")
TCP4 = SIGNATURE + bytes.fromhex("2111000cc0a80001c0a8000bdcc42384")
CLIENT, BROKER = Endpoint("192.168.0.1", 56516), Endpoint("192.168.0.11", 9092)
TCP6 = SIGNATURE + bytes.fromhex(
    "2121002420010db800000000000000000000000120010db8000000000000000000000002dcc42384"
)


def test_writes_version_2_for_ipv4() -> None:
    assert write(CLIENT, BROKER) == TCP4


def test_writes_version_2_for_ipv6() -> None:
    assert write(Endpoint("2001:db8::1", 56516), Endpoint("2001:db8::2", 9092)) == TCP6


def test_where_families_differ_ipv4_is_mapped() -> None:
    header = maybe_header(write(CLIENT, Endpoint("2001:db8::2", 9092)))
    assert header is not None
    assert header.client == CLIENT


@pytest.mark.parametrize(
    ("data", "client", "target"),
    [
        (TCP4, CLIENT, BROKER),
        (TCP6, Endpoint("2001:db8::1", 56516), Endpoint("2001:db8::2", 9092)),
        # Section 2.1, its worst cases and its example.
        (b"PROXY TCP4 192.168.0.1 192.168.0.11 56516 9092\r\n", CLIENT, BROKER),
        (b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n", Endpoint("2001:db8::1", 1), Endpoint("::1", 2)),
        (b"PROXY UNKNOWN\r\n", None, None),
        (b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", None, None),
        # LOCAL: a health check of the balancer itself. Family UNSPEC. What follows is to be skipped.
        (SIGNATURE + bytes.fromhex("20000000"), None, None),
        (SIGNATURE + bytes.fromhex("20110003aabbcc"), None, None),
        (SIGNATURE + bytes.fromhex("21000003aabbcc"), None, None),
        # A unix socket's addresses say nothing of a TCP client.
        (SIGNATURE + bytes.fromhex("213100d8") + bytes(216), None, None),
        # TLVs behind the addresses.
        (SIGNATURE + bytes.fromhex("21110010c0a80001c0a8000bdcc4238404000100"), CLIENT, BROKER),
    ],
)
def test_reads_and_stops_where_the_header_ends(
    data: bytes, client: Endpoint | None, target: Endpoint | None
) -> None:
    for length in range(len(data)):
        assert maybe_header(data[:length]) is None
    for behind in (b"", b"\0\0\0\x10", b"PROXY TCP4"):
        assert maybe_header(data + behind) == (client, target, len(data))
    at = 0  # a reader that asks how much it may read never takes a byte that belongs to Kafka
    while maybe_header(data[:at]) is None:
        at += needed(data[:at])
    assert at == len(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x00\x00\x00\x1b\x00\x12\x00\x03", "no PROXY protocol header"),
        (b"\x16\x03\x01\x02\x00\x01", "no PROXY protocol header"),
        (b"PROXY TCP4 192.168.0.1 192.168.0.11 56516\r\n", "that is none"),
        (b"PROXY TCP4 300.1.1.1 192.168.0.11 1 2\r\n", "that is none"),
        (b"PROXY TCP4 1.1.1.1 1.1.1.1 1 65536\r\n", "that is none"),
        (b"PROXY UDP4 1.1.1.1 1.1.1.1 1 2\r\n", "that is none"),
        (b"PROXY " + b"A" * 101, "without an end"),
        (SIGNATURE + bytes.fromhex("3111000c") + bytes(12), "version and command 0x31"),
        (SIGNATURE + bytes.fromhex("2211000c") + bytes(12), "version and command 0x22"),
        (SIGNATURE + bytes.fromhex("2111000b") + bytes(11), "too short"),
        (SIGNATURE + bytes.fromhex("2111ffff"), "65535 bytes, more than"),
    ],
)
def test_what_is_no_header_is_said(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        maybe_header(data)


@given(st.binary(max_size=300), st.sampled_from([b"", proxy_protocol.SIGNATURE, b"PROXY "]))
def test_any_bytes_are_a_header_or_need_more_or_are_refused(data: bytes, head: bytes) -> None:
    try:
        header = maybe_header(head + data)
    except ValueError:
        return
    if header is None:
        assert needed(head + data) > 0
    else:
        assert header.size <= len(head + data)


@given(st.ip_addresses(), st.ip_addresses(), st.integers(0, 65535), st.integers(0, 65535))
def test_what_is_written_is_read(client: object, target: object, one: int, two: int) -> None:
    header = maybe_header(write(Endpoint(str(client), one), Endpoint(str(target), two)))
    assert header is not None
    assert header.client is not None
    assert header.target is not None
    assert (header.client.port, header.target.port) == (one, two)
    for found, meant in ((header.client.host, client), (header.target.host, target)):
        assert ip_address(found) in (meant, getattr(meant, "ipv4_mapped", None))
