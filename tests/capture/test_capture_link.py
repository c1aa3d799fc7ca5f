"""Packets -> TCP segments: link types, VLANs, IPv4, IPv6, fragments. scapy builds them."""

import shutil
import struct
import subprocess
from functools import partial

import pytest
from capture_bytes import CAPTURES, SECOND
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP, fragment
from scapy.layers.inet6 import (
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    fragment6,
)
from scapy.layers.ipsec import AH
from scapy.layers.l2 import ARP, CookedLinux, CookedLinuxV2, Dot1AD, Dot1Q, Ether, Loopback
from scapy.layers.ppp import PPP, PPPoE

from kwsniff.capture import fragments
from kwsniff.capture.files import open_capture
from kwsniff.capture.frames import FIND_IP
from kwsniff.capture.link import LinkDecoder
from kwsniff.model import Endpoint, Packet, Segment

TCP_HEADER = TCP(sport=40000, dport=9092, seq=0xFFFFFFF0, ack=7, flags="PA")
ETHER = partial(
    Ether, src="02:00:00:00:00:01", dst="02:00:00:00:00:02"
)  # scapy would ask the network for them
PAYLOAD = b"payload of a segment"
V4 = IP(src="10.0.0.1", dst="192.168.255.254")
V6 = IPv6(src="2001:db8::1", dst="fe80::2:0:0:3")
EXPECTED = {
    4: (Endpoint("10.0.0.1", 40000), Endpoint("192.168.255.254", 9092)),
    6: (Endpoint("2001:db8::1", 40000), Endpoint("fe80::2:0:0:3", 9092)),
}


def packet(data, linktype: int = 1, wire_length: int | None = None, ts: int = 5, number: int = 3) -> Packet:
    data = bytes(data)
    return Packet(ts, linktype, data, len(data) if wire_length is None else wire_length, None, number)


def decode(data, linktype: int = 1, wire_length: int | None = None) -> Segment | None:
    return LinkDecoder().decode(packet(data, linktype, wire_length))


def reason(data, linktype: int = 1, wire_length: int | None = None) -> str:
    decoder = LinkDecoder()
    assert decoder.decode(packet(data, linktype, wire_length)) is None
    ((why, count),) = decoder.ignored.items()
    assert count == 1
    return why


def expected(version: int = 4, payload: bytes = PAYLOAD, cut: int = 0) -> Segment:
    src, dst = EXPECTED[version]
    return Segment(5, src, dst, 0xFFFFFFF0, 7, 0x18, payload, cut, 3)


def with_type(cooked, ip):
    """scapy does not set the protocol of a cooked header by itself."""
    cooked.proto = 0x0800 if isinstance(ip, IP) else 0x86DD
    return cooked / ip


LINKS = {
    "ether": (1, lambda ip: ETHER() / ip),
    "vlan": (1, lambda ip: ETHER() / Dot1Q(vlan=7) / ip),
    "qinq": (1, lambda ip: ETHER() / Dot1AD(vlan=7) / Dot1Q(vlan=8) / Dot1Q(vlan=9) / ip),
    "pppoe": (1, lambda ip: ETHER(type=0x8864) / PPPoE(sessionid=1) / PPP() / ip),
    "sll": (113, lambda ip: with_type(CookedLinux(), ip)),
    "sll-vlan": (113, lambda ip: CookedLinux(proto=0x8100) / Dot1Q(vlan=7) / ip),
    "sll2": (276, lambda ip: with_type(CookedLinuxV2(), ip)),
    "null-little": (0, lambda ip: struct.pack("<I", 2 if isinstance(ip, IP) else 30) + bytes(ip)),
    "null-big": (0, lambda ip: struct.pack(">I", 2 if isinstance(ip, IP) else 24) + bytes(ip)),
    "loop": (108, lambda ip: Loopback(type=2 if isinstance(ip, IP) else 28) / ip),
    "raw": (101, lambda ip: ip),
    "raw-12": (12, lambda ip: ip),
    "raw-14": (14, lambda ip: ip),
    "ip": (228, lambda ip: ip),
    "ip6": (229, lambda ip: ip),
    "ppp": (9, lambda ip: PPP() / ip),
    "ppp-hdlc": (9, lambda ip: b"\xff\x03" + bytes(PPP() / ip)),
    "ppp-compressed": (9, lambda ip: bytes(PPP() / ip)[1:]),
}


@pytest.mark.parametrize(
    ("name", "version"),
    [(name, v) for name in LINKS for v in (4, 6) if (name, v) not in {("ip", 6), ("ip6", 4)}],
)
def test_link_types(name, version):
    linktype, wrap = LINKS[name]
    ip = {4: V4, 6: V6}[version] / TCP_HEADER / PAYLOAD
    data = bytes(wrap(ip))
    if linktype == 113 and b"\x81\x00" not in data[:16]:
        assert data[14:16] == {4: b"\x08\x00", 6: b"\x86\xdd"}[version]
    assert decode(data, linktype) == expected(version)


OPTIONS = [("MSS", 1460), ("NOP", None), ("WScale", 7), ("Timestamp", (1, 2))]


@pytest.mark.parametrize(
    ("version", "ip"),
    [
        (4, IP(src=V4.src, dst=V4.dst, options=b"\x94\x04\x00\x00" + b"\x01" * 36) / TCP_HEADER),
        (4, V4 / TCP(**(TCP_HEADER.fields | {"options": OPTIONS}))),
        (6, V6 / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / TCP_HEADER),
        (6, V6 / IPv6ExtHdrRouting(addresses=["2001:db8::9"]) / TCP_HEADER),
        (6, V6 / AH(nh=6, payloadlen=4, spi=1, seq=1, icv=bytes(12)) / TCP_HEADER),
        (6, V6 / IPv6ExtHdrFragment(id=1) / IPv6ExtHdrDestOpt() / TCP_HEADER),
    ],
    ids=["ip-options", "tcp-options", "hop-by-hop", "routing", "ah", "atomic-fragment"],
)
def test_options_and_extension_headers_are_passed_over(version, ip):
    got = decode(ETHER() / ip / PAYLOAD)
    assert got is not None
    assert (got.payload, got.src, got.cut) == (PAYLOAD, EXPECTED[version][0], 0)


@pytest.mark.parametrize("version", [4, 6])
def test_padding_behind_the_ip_packet_is_no_payload(version):
    ip = {4: V4, 6: V6}[version]
    data = bytes(ETHER() / ip / TCP_HEADER / b"ab") + b"\xee" * 6
    assert decode(data) == expected(version, b"ab")
    assert decode(bytes(ETHER() / ip / TCP_HEADER) + b"\xee" * 6) == expected(version, b"")


@pytest.mark.parametrize("version", [4, 6])
def test_a_snaplen_cut_is_counted(version):
    data = bytes(ETHER() / {4: V4, 6: V6}[version] / TCP_HEADER / PAYLOAD)
    header = len(data) - len(PAYLOAD)
    for kept in range(len(PAYLOAD) + 1):
        assert decode(data[: header + kept], 1, len(data)) == expected(
            version, PAYLOAD[:kept], len(PAYLOAD) - kept
        )
    for length in range(14, header - 6):
        assert reason(data[:length], 1, len(data)) == "header_cut"
        assert reason(data[:length]) == "bad_header"


@pytest.mark.parametrize("version", [4, 6])
def test_total_length_0_is_offloading_and_may_be_more_than_64k(version):
    jumbo = PAYLOAD * 10_000
    ip = {4: IP(src=V4.src, dst=V4.dst, len=0), 6: IPv6(src=V6.src, dst=V6.dst, plen=0)}[version]
    data = bytes(ETHER() / ip / TCP_HEADER / jumbo)
    assert decode(data) == expected(version, jumbo)
    assert decode(data[:-100], 1, len(data)) == expected(version, jumbo[:-100], 100)


def test_addresses_in_text():
    for text in ("::1", "::", "2001:db8:0:1:1:1:1:1", "::ffff:10.1.2.3", "2001:db8::1:0:0:1"):
        got = decode(IPv6(src=text, dst="::1") / TCP_HEADER, 101)
        assert got is not None
        assert got.src.host == text


def test_what_is_no_tcp_is_counted_by_reason():
    assert reason(ETHER() / ARP()) == "not_ip"
    assert reason(ETHER() / V4 / UDP() / b"x") == "not_tcp"
    assert reason(ETHER() / V6 / UDP() / b"x") == "not_tcp"
    assert reason(b"", 147) == "unsupported_linktype"
    assert reason(b"\x50" * 60, 101) == "not_ip"
    assert reason(IP(ihl=4) / TCP_HEADER, 101) == "bad_header"
    assert reason(IP(len=30) / TCP_HEADER, 101) == "bad_header"
    assert reason(V4 / TCP(dataofs=4), 101) == "bad_header"
    assert reason(V4 / TCP(dataofs=15), 101) == "bad_header"
    assert reason(V6 / TCP(dataofs=15), 101) == "bad_header"
    assert reason(b"\0" * 12 + b"\x08\0" + bytes(V6 / TCP_HEADER)) == "bad_header"
    assert reason(b"\0" * 12 + b"\x86\xdd" + bytes(V4 / TCP_HEADER / PAYLOAD)) == "bad_header"


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(FIND_IP)), st.binary(max_size=120), st.integers(0, 1 << 32))
def test_random_bytes_never_raise(linktype, data, wire_length):
    LinkDecoder().decode(packet(data, linktype, wire_length))


VALID = [
    bytes(ETHER() / V4 / TCP_HEADER / PAYLOAD),
    bytes(ETHER() / Dot1Q() / V6 / IPv6ExtHdrHopByHop() / TCP_HEADER / PAYLOAD),
    *(bytes(ETHER() / part) for part in fragment(V4 / TCP_HEADER / PAYLOAD * 4, 24)),
    *(
        bytes(ETHER() / part)
        for part in fragment6(V6 / IPv6ExtHdrFragment() / TCP_HEADER / (PAYLOAD * 90), 1280)
    ),
]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(VALID), st.integers(0, 90), st.integers(0, 255), st.integers(0, 100)),
        max_size=8,
    )
)
def test_damaged_packets_never_raise(changes):
    decoder = LinkDecoder()
    for data, place, value, length in changes:
        damaged = bytearray(data)
        damaged[place % len(data)] = value
        decoder.decode(packet(bytes(damaged[: 14 + length])))
        decoder.decode(packet(bytes(damaged)))


def test_many_endpoints_are_forgotten_not_hoarded():
    decoder = LinkDecoder()
    for n in range(40_000):
        ip = struct.pack(">BBHHHBBHII", 0x45, 0, 40, 0, 0, 64, 6, 0, n, 1)
        got = decoder.decode(packet(ip + struct.pack(">HHIIBBHHH", 1, 2, 3, 4, 0x50, 16, 0, 0, 0), 101))
        assert got is not None
        assert got.src.host == f"0.0.{n >> 8}.{n & 255}"
    assert len(decoder._pairs) <= 1 << 14


# ---- fragments

LONG = bytes(range(256)) * 5
PARTS = {
    4: [
        bytes(ETHER() / part) for part in fragment(IP(src=V4.src, dst=V4.dst, id=9) / TCP_HEADER / LONG, 200)
    ],
    6: [bytes(ETHER() / p) for p in fragment6(V6 / IPv6ExtHdrFragment(id=9) / TCP_HEADER / (LONG * 5), 1280)],
}
WHOLE = {4: LONG, 6: LONG * 5}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([4, 6]), st.data())
def test_fragments_in_any_order_and_repeated(version, data):
    order = data.draw(st.permutations(PARTS[version]))
    repeated = data.draw(st.lists(st.sampled_from(order[:-1]), max_size=3))
    decoder = LinkDecoder()
    got = [decoder.decode(packet(part)) for part in repeated + list(order)]
    assert got[-1] == expected(version, WHOLE[version])
    assert got[:-1] == [None] * (len(got) - 1)
    assert not decoder.ignored


def raw_fragment(offset: int, data: bytes, more: bool, wire: int | None = None, key: int = 1) -> Packet:
    length = 20 + (len(data) if wire is None else wire)
    head = struct.pack(">BBHHHBBHII", 0x45, 0, length, key, more << 13 | offset // 8, 64, 6, 0, 1, 2)
    return packet(head + data, 101, length)


SEGMENT = struct.pack(">HHIIBBHHH", 1, 2, 3, 4, 0x50, 16, 0, 0, 0) + b"0123456789abcdef"


def test_overlapping_fragments_first_copy_wins():
    decoder = LinkDecoder()
    assert decoder.decode(raw_fragment(24, SEGMENT[24:32], True)) is None
    assert decoder.decode(raw_fragment(16, SEGMENT[16:24] + b"X" * 8 + SEGMENT[32:], False)) is None
    got = decoder.decode(raw_fragment(0, SEGMENT[:16] + b"Y" * 20, True))
    assert got is not None
    assert got.payload == b"0123456789abcdef"


def test_fragments_that_a_snaplen_cut():
    decoder = LinkDecoder()
    assert decoder.decode(raw_fragment(0, SEGMENT[:22], True, wire=24)) is None
    got = decoder.decode(raw_fragment(24, SEGMENT[24:], False))
    assert got is not None
    assert (got.payload, got.cut) == (b"01", 14)


def test_fragments_behind_the_end_are_dropped():
    decoder = LinkDecoder()
    assert decoder.decode(raw_fragment(24, SEGMENT[24:], False)) is None
    assert decoder.decode(raw_fragment(40, b"X" * 8, False)) is None
    assert decoder.decode(raw_fragment(0xFFF8, b"X" * 8, True)) is None
    got = decoder.decode(raw_fragment(0, SEGMENT[:24], True))
    assert got is not None
    assert got.payload == b"0123456789abcdef"


def test_fragments_are_bounded_by_count_bytes_and_age(monkeypatch):
    monkeypatch.setattr(fragments, "MAX_DATAGRAMS", 3)
    decoder = LinkDecoder()
    for key in range(5):
        decoder.decode(raw_fragment(0, SEGMENT[:24], True, key=key))
    assert decoder.fragments.forgotten == 2
    ends = [decoder.decode(raw_fragment(24, SEGMENT[24:], False, key=key)) for key in (4, 3, 2)]
    assert all(ends)

    monkeypatch.setattr(fragments, "MAX_BYTES", 5000)
    decoder = LinkDecoder()
    for key in range(3):
        decoder.decode(raw_fragment(0, bytes(4000), True, key=key))
    assert decoder.fragments.forgotten == 1

    store = fragments.Fragments()
    assert store.add("a", 0, 0, 8, True, bytes(8)) is None
    assert store.add("a", 31 * SECOND, 8, 8, False, bytes(8)) is None
    assert store.forgotten == 1
    assert store.add("b", 99 * SECOND, 8, 8, False, bytes(8)) is None
    assert store.forgotten == 2


# ---- tshark on real captures

FIELDS = "frame.number tcp.seq_raw tcp.ack_raw tcp.len tcp.flags tcp.srcport tcp.dstport tcp.payload"
FIELDS += " ip.src ipv6.src"


@pytest.mark.tshark
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize(
    "name",
    ["snap96.pcap", "sll2.pcap", "ipv6-kfake6.pcap", "sasl-frag.pcap", "matrix-vlan.pcap", "disorder.pcap"],
)
def test_real_captures_as_tshark_reads_them(name):
    (path,) = [path for path in CAPTURES if path.name.endswith(name)]
    command = ["tshark", "-r", path, "-Y", "tcp", "-T", "fields"]
    command += [part for field in FIELDS.split() for part in ("-e", field)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    theirs = [line.split("\t") for line in lines]
    decoder = LinkDecoder()
    with open_capture(str(path)) as reader:
        segments = [segment for p in reader if (segment := decoder.decode(p))]
    assert len(segments) == len(theirs) > 0
    for got, (number, seq, ack, length, flags, sport, dport, payload, v4, v6) in zip(
        segments, theirs, strict=True
    ):
        assert (got.packet, got.seq, got.ack) == (int(number), int(seq), int(ack))
        assert (got.src, got.dst.port) == (Endpoint(v4 or v6, int(sport)), int(dport))
        assert (got.payload.hex(), len(got.payload) + got.cut) == (payload, int(length))
        assert got.flags == int(flags, 16) & 0xFF


def test_every_packet_of_the_captures_is_a_segment_or_a_fragment():
    for path in CAPTURES:
        decoder = LinkDecoder()
        with open_capture(str(path)) as reader:
            count = sum(decoder.decode(p) is not None for p in reader)
        assert count > 0
        assert not decoder.ignored
