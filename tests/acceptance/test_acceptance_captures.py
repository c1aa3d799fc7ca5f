"""One conversation in every container, link layer and byte order: the lines are the same."""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from acceptance_builders import START, Run, Tape, ethernet, kwsniff, pcap, run, shown

from kwsniff.capture.pcapng_writer import PcapngWriter
from kwsniff.model import Packet


def tape(broker: str = "10.0.0.2", client: str = "10.0.0.1", **more: Any) -> Tape:
    made = Tape()
    link = made.link((client, 40001), (broker, 9092), **more).open()
    link.metadata(1).metadata(2, "b" * 200).close()
    return made


def meaning(result: Run) -> list[Any]:
    return [
        (x["timestamp"], x["request"], x["response"], x["kwsniff"]["requestPacket"], x["totalTimeMs"])
        for x in result.lines
    ]


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    found = meaning(shown(tape().pcap(), tmp_path_factory.mktemp("w")))
    assert len(found) == 2
    return found


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("nano", [False, True])
def test_pcap(tmp_path: Path, wanted: list[Any], order: str, nano: bool) -> None:
    assert meaning(shown(tape().pcap(order, nano), tmp_path)) == wanted


def cooked(ip: bytes) -> bytes:
    return struct.pack(">HHH8sH", 0, 1, 6, bytes(8), 0x86DD if ip[0] >> 4 == 6 else 0x0800) + ip


def cooked2(ip: bytes) -> bytes:
    kind = 0x86DD if ip[0] >> 4 == 6 else 0x0800
    return struct.pack(">HHIHBB8s", kind, 0, 1, 1, 0, 6, bytes(8)) + ip


def tagged(*tags: int) -> Callable[[bytes], bytes]:
    def wrap(ip: bytes) -> bytes:
        frame = ethernet(ip)
        kinds = b"".join(struct.pack(">HH", kind, 7) for kind in tags)
        return frame[:12] + kinds + frame[12:]

    return wrap


def null(order: str) -> Callable[[bytes], bytes]:
    return lambda ip: struct.pack(order + "I", 30 if ip[0] >> 4 == 6 else 2) + ip


LINKS = {
    "ethernet": (1, ethernet),
    "802.1Q": (1, tagged(0x8100)),
    "802.1ad": (1, tagged(0x88A8, 0x8100)),
    "QinQ 9100": (1, tagged(0x9100, 0x8100)),
    "SLL": (113, cooked),
    "SLL2": (276, cooked2),
    "NULL <": (0, null("<")),
    "NULL >": (0, null(">")),
    "LOOP": (108, null(">")),
    "RAW 101": (101, bytes),
    "RAW 12": (12, bytes),
    "RAW 14": (14, bytes),
}


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
def test_link_layers(tmp_path: Path, wanted: list[Any], link: str, six: bool) -> None:
    kind, wrap = LINKS[link]
    made = tape("fd00::2", "fd00::1") if six else tape()
    assert meaning(shown(made.pcap(linktype=kind, wrap=wrap), tmp_path)) == wanted


def test_ipv4_and_ipv6_types(tmp_path: Path, wanted: list[Any]) -> None:
    assert meaning(shown(tape().pcap(linktype=228, wrap=bytes), tmp_path)) == wanted
    six = tape("::1", "::1")
    result = shown(six.pcap(linktype=229, wrap=bytes), tmp_path)
    assert meaning(result) == wanted
    assert result.lines[0]["kwsniff"]["broker"] == "[::1]:9092"
    assert result.lines[0]["connection"] == "[::1]:9092-[::1]:40001-0"


def test_ethernet_padding_is_no_data(tmp_path: Path, wanted: list[Any]) -> None:
    assert (
        meaning(shown(tape().pcap(wrap=lambda ip: ethernet(ip).ljust(60, b"\xaa") + b"FCS!"), tmp_path))
        == wanted
    )


def extended(ip: bytes) -> bytes:
    """Hop-by-hop, destination options and routing in front of TCP."""
    options = b"\x3c\0" + bytes(6) + b"\x2b\0" + bytes(6) + b"\x06\0" + bytes(6)
    head = struct.pack(">IHBB", 6 << 28, len(ip) - 40 + len(options), 0, 64) + ip[8:40]
    return head + options + ip[40:]


def test_ipv6_extension_headers(tmp_path: Path, wanted: list[Any]) -> None:
    made = tape("fd00::2", "fd00::1")
    assert meaning(shown(made.pcap(wrap=lambda ip: ethernet(extended(ip))), tmp_path)) == wanted


def fragments(ip: bytes, size: int = 64) -> list[bytes]:
    number = sum(ip) & 0xFFFF
    if ip[0] >> 4 == 4:
        data = ip[20:]
        parts = [(at, data[at : at + size]) for at in range(0, len(data), size)]
        fields = [(at >> 3 | (0x2000 if at + size < len(data) else 0), part) for at, part in parts]
        return [
            struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(part), number, field, 64, 6, 0) + ip[12:20] + part
            for field, part in fields
        ]
    data = ip[40:]
    return [
        struct.pack(">IHBB", 6 << 28, 8 + len(data[at : at + size]), 44, 64) + ip[8:40]
        + struct.pack(">BBHI", 6, 0, at | (at + size < len(data)), number) + data[at : at + size]
        for at in range(0, len(data), size)
    ]  # fmt: skip


@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("backwards", [False, True])
def test_fragments(tmp_path: Path, wanted: list[Any], six: bool, backwards: bool) -> None:
    made = tape("fd00::2", "fd00::1") if six else tape()
    packets = []
    for ts, ip in made.packets:
        parts = fragments(ip)
        packets += [(ts, part) for part in (reversed(parts) if backwards else parts)]
    assert len(packets) > len(made.packets)
    got = meaning(shown(pcap(packets), tmp_path))
    assert [x[:3] for x in got] == [x[:3] for x in wanted]


# pcapng


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body += bytes(-len(body) % 4)
    size = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + size + body + size


def option(code: int, value: bytes, order: str = "<") -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(linktype: int, resolution: int, order: str = "<", offset: int | None = None) -> bytes:
    options = option(9, bytes([resolution]), order)
    options += option(14, struct.pack(order + "q", offset), order) if offset is not None else b""
    return block(1, struct.pack(order + "HHI", linktype, 0, 0) + options + bytes(4), order)


def enhanced(data: bytes, units: int, index: int = 0, order: str = "<", options: bytes = b"") -> bytes:
    head = struct.pack(order + "IIIII", index, units >> 32, units & 0xFFFFFFFF, len(data), len(data))
    return block(6, head + data + bytes(-len(data) % 4) + options, order)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(("resolution", "divisor"), [(6, 1000), (9, 1), (3, 10**6)])
def test_pcapng_resolutions(
    tmp_path: Path, wanted: list[Any], order: str, resolution: int, divisor: int
) -> None:
    out = section(order) + interface(1, resolution, order)
    out += b"".join(enhanced(ethernet(ip), ts // divisor, 0, order) for ts, ip in tape().packets)
    assert meaning(shown(out, tmp_path, name="a.pcapng")) == wanted


def test_pcapng_of_binary_resolution_and_offset(tmp_path: Path, wanted: list[Any]) -> None:
    seconds = START // 10**9
    out = section() + interface(1, 0x80 | 20, offset=seconds)
    for ts, ip in tape().packets:
        out += enhanced(ethernet(ip), -(-((ts - seconds * 10**9) << 20) // 10**9))
    got = meaning(shown(out, tmp_path, name="a.pcapng"))
    assert [x[1:4] for x in got] == [x[1:4] for x in wanted]
    assert [x[0][:23] for x in got] == [x[0][:23] for x in wanted]


def test_pcapng_of_many_sections_interfaces_and_strange_blocks(tmp_path: Path, wanted: list[Any]) -> None:
    strange = (
        block(0xBAD, b"skip me") + block(4, b"\0\0\0\0") + block(5, bytes(16)) + block(0x80000BAD, b"x" * 5)
    )
    out = b""
    for i, (ts, ip) in enumerate(tape().packets):
        order = "<>"[i % 2]
        out += section(order) + interface(101, 6, order) + interface(1, 9, order)
        out += strange if order == "<" else b""
        out += enhanced(ethernet(ip), ts, 1, order, option(1, b"a comment", order) + bytes(4))
    assert meaning(shown(out, tmp_path, name="a.pcapng")) == wanted


def test_simple_packets_have_no_time(tmp_path: Path, wanted: list[Any]) -> None:
    out = section() + interface(1, 6)
    for _, ip in tape().packets:
        out += block(3, struct.pack("<I", len(ethernet(ip))) + ethernet(ip))
    got = meaning(shown(out, tmp_path, name="a.pcapng"))
    assert [x[1:4] for x in got] == [x[1:4] for x in wanted]


def test_what_our_writer_writes(tmp_path: Path, wanted: list[Any]) -> None:
    out = io.BytesIO()
    writer = PcapngWriter(out)
    for ts, ip in tape().packets:
        writer.write(Packet(ts, 1, ethernet(ip), len(ip) + 14, "a\ncomment"))
    assert meaning(shown(out.getvalue(), tmp_path, name="a.pcapng")) == wanted


# compression, standard input, several files


@pytest.mark.parametrize(
    "pack", [gzip.compress, zstandard.compress, lambda d: gzip.compress(d[:99]) + gzip.compress(d[99:])]
)
def test_compressed_whatever_the_name(
    tmp_path: Path, wanted: list[Any], pack: Callable[[bytes], bytes]
) -> None:
    assert meaning(shown(pack(tape().pcap()), tmp_path)) == wanted
    assert meaning(shown(pack(tape().pcap()), tmp_path, name="a.gz")) == wanted


def test_standard_input(wanted: list[Any]) -> None:
    result = kwsniff("decode", "-", stdin=gzip.compress(tape().pcap()))
    assert meaning(result) == wanted
    assert {x["kwsniff"]["file"] for x in result.lines} <= {"-", "<stdin>"}


@pytest.mark.parametrize("cut", range(1, 11))
def test_a_connection_goes_on_in_the_next_file_of_a_rotation(
    tmp_path: Path, wanted: list[Any], cut: int
) -> None:
    packets = tape().packets
    first, second = tmp_path / "1.pcap", tmp_path / "2.pcap"
    first.write_bytes(pcap(packets[:cut]))
    second.write_bytes(pcap(packets[cut:]))
    result = run("decode", first, second)
    assert [x[:3] for x in meaning(result)] == [x[:3] for x in wanted]
    assert len({x["connection"] for x in result.lines}) == 1
    assert result.faults == []


def test_a_segment_s_frame_over_two_files_is_of_both(tmp_path: Path) -> None:
    made = Tape()
    made.link(mss=20).open().metadata(1, "a-long-topic-name")
    first, second = tmp_path / "1.pcap", tmp_path / "2.pcap"
    first.write_bytes(pcap(made.packets[:5]))
    second.write_bytes(pcap(made.packets[5:]))
    (line,) = run("decode", first, second).lines
    assert line["kwsniff"]["outcome"] == "answered"
    assert line["totalTimeMs"] > 1


def test_two_captures_of_other_days_are_two_sessions(tmp_path: Path) -> None:
    first, second = tmp_path / "1.pcap", tmp_path / "2.pcap"
    for path, day in ((first, 0), (second, 1)):
        path.write_bytes(pcap([(ts + day * 86_400 * 10**9, ip) for ts, ip in tape().packets]))
    result = run("decode", first, second)
    assert len(result.lines) == 4
    assert {x["kwsniff"]["file"] for x in result.lines} == {str(first), str(second)}
    assert [x["kwsniff"]["session"] for x in result.lines] == [0, 0, 1, 1]


def test_what_only_the_end_of_a_file_tells_is_of_that_file(tmp_path: Path) -> None:
    """Too short to be sure of its start before the input ends."""
    made = Tape()
    made.link().ask(3, 1, 1, {"topics": []})
    (line,) = shown(made.pcap(), tmp_path).exchanges
    assert line["kwsniff"]["file"] == str(tmp_path / "a.pcap")


def test_a_bad_file_among_good_ones(tmp_path: Path) -> None:
    good, bad, empty, cut = (tmp_path / name for name in ("good.pcap", "bad.pcap", "empty.pcap", "cut.pcap"))
    good.write_bytes(tape().pcap())
    bad.write_bytes(b"PK\3\4 no capture at all")
    empty.write_bytes(b"")
    cut.write_bytes(tape().pcap()[:-5])
    result = run("decode", bad, empty, tmp_path / "missing.pcap", tmp_path, good, cut)
    assert result.status == 2
    assert len(result.exchanges) == 4
    (fault,) = result.faults
    assert fault["reason"] == "capture_truncated"
    named = [line for line in result.err.splitlines() if line.startswith("kwsniff: /")]
    assert len(named) == 4
    assert run("decode", cut).status == 0
    assert run("decode", "--strict", cut).status == 1
