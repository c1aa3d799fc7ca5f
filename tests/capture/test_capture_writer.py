"""Packets -> pcapng, as we, dpkt, scapy and tshark read it back."""

import io
import shutil
import subprocess

import dpkt
import pytest
from capture_bytes import SECOND, read
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.utils import RawPcapNgReader

from kwsniff.capture.pcapng_writer import PcapngWriter
from kwsniff.errors import EncodeError
from kwsniff.model import Packet

PACKETS = [
    Packet(1_700_000_000_123_456_789, 1, bytes(61), 61, "verdict: delay\n{}", 1),
    Packet(1_700_000_000_123_456_790, 101, b"E" * 20, 60, None, 2),
    Packet(0, 1, b"", 0, "", 3),
]


def written(packets) -> bytes:
    file = io.BytesIO()
    writer = PcapngWriter(file)
    header = writer.bytes_written
    assert header == len(file.getvalue())
    assert (
        header + sum(writer.write(packet) for packet in packets)
        == len(file.getvalue())
        == writer.bytes_written
    )
    return file.getvalue()


def test_what_is_written_is_read_back():
    assert read(written(PACKETS)) == (PACKETS, None)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.builds(
            Packet,
            ts=st.integers(0, (1 << 63) - 1),
            linktype=st.sampled_from([0, 1, 101, 113, 276]),
            data=st.binary(max_size=70),
            wire_length=st.integers(0, 0xFFFFFFFF),
            comment=st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        )
    )
)
def test_any_packets_are_read_back(packets):
    again, error = read(written(packets))
    assert error is None
    assert [p.number for p in again] == list(range(1, len(packets) + 1))
    assert [(p.ts, p.linktype, p.data, p.wire_length, p.comment) for p in again] == [
        (p.ts, p.linktype, p.data, p.wire_length, p.comment) for p in packets
    ]


def test_others_read_it():
    data = written([PACKETS[0], PACKETS[2]])
    assert [(round(float(ts)), d) for ts, d in dpkt.pcapng.Reader(io.BytesIO(data))] == [
        (1_700_000_000, bytes(61)),
        (0, b""),
    ]
    with RawPcapNgReader(io.BytesIO(written(PACKETS))) as scapy:
        packets = list(scapy)
    assert [bytes(d) for d, _ in packets] == [p.data for p in PACKETS]
    assert [m.wirelen for _, m in packets] == [61, 60, 0]
    assert [(m.tshigh << 32 | m.tslow, m.tsresol) for _, m in packets] == [(p.ts, SECOND) for p in PACKETS]


@pytest.mark.tshark
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_reads_it(tmp_path):
    path = tmp_path / "a.pcapng"
    path.write_bytes(written(PACKETS[:2]))
    fields = ["frame.number", "frame.time_epoch", "frame.len", "frame.cap_len", "frame.comment"]
    command = ["tshark", "-r", path, "-T", "fields", *(part for field in fields for part in ("-e", field))]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines == [
        "1\t1700000000.123456789\t61\t61\tverdict: delay\\n{}",
        "2\t1700000000.123456790\t60\t20\t",
    ]


def test_long_comments_are_split_at_lines_and_joined_again():
    comment = "\n".join(["a" * 40_000, "b" * 20_000, "", "c" * 65_535, "d"])
    packets, _ = read(written([Packet(0, 1, b"x", 1, comment)]))
    assert packets[0].comment == comment


@pytest.mark.parametrize(
    "packet",
    [Packet(0, 1, b"x", 1, "ok\n" + "a" * 65_536), Packet(-1, 1, b"x", 1), Packet(1 << 64, 1, b"x", 1)],
)
def test_what_cannot_be_written_is_refused_and_leaves_the_file_whole(packet):
    file = io.BytesIO()
    writer = PcapngWriter(file)
    with pytest.raises(EncodeError):
        writer.write(packet)
    writer.write(PACKETS[1])
    assert [p.data for p in read(file.getvalue())[0]] == [PACKETS[1].data]
