"""Capture files in every format and state -> packets, and what is said about those that break."""

import gzip
import io
import os
import random
import struct

import dpkt
import pytest
import zstandard
from capture_bytes import (
    CAPTURES,
    ROOT,
    SECOND,
    Trickle,
    block,
    enhanced,
    interface,
    obsolete,
    option,
    pcap_header,
    pcap_record,
    read,
    section,
    simple,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from kwsniff.capture.files import open_capture
from kwsniff.errors import CaptureError, ConfigError, NotACapture, Reason

PCAP = pcap_header() + b"".join(pcap_record(b"x" * n, time=(n, 0)) for n in (1, 60, 0, 200))
PCAPNG = section() + interface() + b"".join(enhanced(b"x" * n, n) for n in (1, 60, 0, 203))


def fields(packets):
    return [(p.number, p.ts, p.linktype, p.data, p.wire_length) for p in packets]


# ---- pcap


@pytest.mark.parametrize("step", [1 << 30, 1])
@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(("magic", "unit"), [(0xA1B2C3D4, 1000), (0xA1B23C4D, 1)])
def test_pcap_in_both_byte_orders_and_resolutions(order, magic, unit, step):
    data = pcap_header(order, magic, linktype=101)
    data += pcap_record(b"one", order, (1_700_000_000, 999_999), wire_length=1500)
    data += pcap_record(b"", order, (0xFFFFFFFF, 0))
    packets, error = read(data, step)
    assert error is None
    assert fields(packets) == [
        (1, 1_700_000_000 * SECOND + 999_999 * unit, 101, b"one", 1500),
        (2, 0xFFFFFFFF * SECOND, 101, b"", 0),
    ]


def test_pcap_of_kuznetzov_has_longer_record_headers():
    record = struct.pack("<IIIIIHBB", 5, 6, 3, 3, 2, 0x0800, 0, 0) + b"abc"
    packets, error = read(pcap_header(magic=0xA1B2CD34) + record * 2)
    assert error is None
    assert fields(packets) == [(n, 5 * SECOND + 6000, 1, b"abc", 3) for n in (1, 2)]


def test_pcap_linktype_without_the_bits_of_the_frame_check_sequence():
    packets, _ = read(pcap_header(linktype=0x24000001) + pcap_record(b"x"))
    assert packets[0].linktype == 1


def test_pcap_packet_larger_than_a_read():
    big = bytes(3 << 20)
    packets, error = read(pcap_header() + pcap_record(b"a") + pcap_record(big) + pcap_record(b"b"), 1 << 18)
    assert error is None
    assert [p.data for p in packets] == [b"a", big, b"b"]


# ---- pcapng


@pytest.mark.parametrize("step", [1 << 30, 1])
@pytest.mark.parametrize("order", "<>")
def test_pcapng_blocks(order, step):
    comments = (
        option(1, b"first", order)
        + option(2, b"\0\0\0\1", order)
        + option(1, "zweitens \u00e4".encode(), order)
    )
    data = section(order) + interface(1, 0, order=order)
    data += enhanced(b"plain", 7, order=order, wire_length=99)
    data += block(0x0BAD, b"unknown", order) + block(5, bytes(12), order)
    data += enhanced(b"noted", 8, options=comments + option(0, b"", order), order=order)
    data += obsolete(b"old", 9, order=order)
    packets, error = read(data, step)
    assert error is None
    assert fields(packets) == [(1, 7000, 1, b"plain", 99), (2, 8000, 1, b"noted", 5), (3, 9000, 1, b"old", 3)]
    assert [p.comment for p in packets] == [None, "first\nzweitens ä", None]


def test_pcapng_comment_without_end_of_options_and_not_utf8():
    packets, _ = read(section() + interface() + enhanced(b"x", options=option(1, b"a\xff")))
    assert packets[0].comment == "a\ufffd"


def test_pcapng_options_that_do_not_fit_are_passed_over():
    bad = struct.pack("<HH", 1, 500) + b"abcd"
    packets, error = read(section() + interface() + enhanced(b"x", options=option(1, b"ok") + bad))
    assert error is None
    assert packets[0].comment == "ok"


@pytest.mark.parametrize(
    ("resolution", "time", "ns"),
    [
        (None, 1_700_000_000_123_456, 1_700_000_000_123_456_000),
        (6, 5, 5000),
        (9, 1_700_000_000_123_456_789, 1_700_000_000_123_456_789),
        (0, 3, 3 * SECOND),
        (12, 1_999, 1),
        (0x80, 3, 3 * SECOND),
        (0x80 | 10, 1536, 3 * SECOND // 2),
        (0x80 | 32, 1 << 31, SECOND // 2),
        (127, 1 << 63, 0),
    ],
)
def test_pcapng_time_resolution(resolution, time, ns):
    options = b"" if resolution is None else option(9, bytes([resolution]))
    packets, _ = read(section() + interface(options=options) + enhanced(b"", time))
    assert packets[0].ts == ns


@pytest.mark.parametrize("order", "<>")
def test_pcapng_time_offset(order):
    options = option(14, struct.pack(order + "q", -100), order)
    packets, _ = read(
        section(order) + interface(options=options, order=order) + enhanced(b"", 101_000_000, order=order)
    )
    assert packets[0].ts == SECOND


def test_pcapng_time_that_is_none_becomes_0():
    packets, error = read(section() + interface() + enhanced(b"", (1 << 64) - 1) + enhanced(b"", 1))
    assert error is None
    assert [p.ts for p in packets] == [0, 1000]


def test_pcapng_sections_have_their_own_interfaces_and_byte_order():
    first = (
        section("<") + interface(1) + interface(113, options=option(9, b"\x09")) + enhanced(b"a", 5, index=1)
    )
    second = section(">") + interface(101, order=">") + enhanced(b"b", 5, order=">")
    packets, error = read(first + second)
    assert error is None
    assert fields(packets) == [(1, 5, 113, b"a", 1), (2, 5000, 101, b"b", 1)]


def test_pcapng_simple_packets_are_cut_by_the_snaplen_of_interface_0():
    data = section() + interface(101, snaplen=5) + simple(b"hel", 3) + simple(b"hello", 1500)
    packets, error = read(data)
    assert error is None
    assert fields(packets) == [(1, 0, 101, b"hel", 3), (2, 0, 101, b"hello", 1500)]


def test_pcapng_large_blocks_of_no_interest_are_not_held():
    secrets = block(10, bytes(40 << 20))
    packets, error = read(section() + interface() + secrets + enhanced(b"x"), 1 << 16)
    assert error is None
    assert len(packets) == 1
    packets, error = read(section() + interface() + enhanced(b"x") + secrets[:-1], 1 << 16)
    assert (len(packets), error.reason, error.packet) == (1, Reason.CAPTURE_TRUNCATED, 2)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (struct.pack("<III", 6, 8, 8), "length is 8"),
        (struct.pack("<II", 6, 33) + bytes(40), "length is 33"),
        (struct.pack("<II", 6, 0xFFFFFFFC) + bytes(40), "length is 4294967292"),
        (enhanced(b"x")[:-4] + b"\0\0\0\1", "36 at its start and 16777216 at its end"),
        (enhanced(b"x", index=1), "interface 1"),
        (block(6, bytes(16)), "too short"),
        (block(6, struct.pack("<IIIII", 0, 0, 0, 9, 9) + b"x"), "length is 9"),
        (block(2, bytes(16)), "too short"),
        (block(3, b""), "too short"),
        (simple(b"abc", 30), "length is 30"),
        (block(1, b""), "too short"),
        (block(0x0A0D0D0A, bytes(16)), "no byte-order magic"),
        (section(version=(2, 0)), "version 2.0"),
    ],
)
def test_pcapng_damage_is_named_where_it_is(broken, words):
    good = section() + interface() + enhanced(b"fine")
    packets, error = read(good + broken + enhanced(b"never read"))
    assert [p.data for p in packets] == [b"fine"]
    assert (error.reason, error.packet, error.offset) == (Reason.CAPTURE_CORRUPT, 2, len(good))
    assert words in error.message
    assert not isinstance(error, NotACapture)


def test_pcapng_packet_in_front_of_every_interface():
    for packet in (enhanced(b"x"), simple(b"x", 1), obsolete(b"x", 0)):
        assert "interface 0" in read(section() + packet)[1].message


# ---- what is no capture


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"\n", "inside its header"),
        (pcap_header()[:3], "inside its header"),
        (pcap_header()[:23], "cut short"),
        (section()[:27], "cut short"),
        (section(version=(2, 0)), "version 2.0"),
        (pcap_header(version=(1, 7)), "version 1.7"),
        (b"\x0a\x0d\x0d\x0a" + bytes(40), "byte-order magic"),
        (b'{"timestamp": 1}\n', "JSON"),
        (b"PK\x03\x04....", "zip"),
        (b"\x04\x22\x4d\x18....", "lz4 -d"),
        (b"hello world", "68 65 6c 6c 6f"),
        (gzip.compress(b""), "empty"),
        (gzip.compress(PCAP)[:8], "cut short"),
        (gzip.compress(b"hello world"), "68 65 6c 6c 6f"),
        (b"\x1f\x8b\x08\xff" + bytes(40), "gzip data is damaged"),
        (zstandard.compress(b"hello world"), "68 65 6c 6c 6f"),
    ],
)
@pytest.mark.parametrize("step", [1 << 30, 1])
def test_no_capture(data, words, step):
    with pytest.raises(NotACapture, match=r"^<stdin>: ") as raised:
        open_capture("-", stdin=Trickle(data, step))
    assert words in str(raised.value)
    assert raised.value.packet == 0


def test_a_file_with_nothing_but_its_header_is_a_capture():
    for header in (pcap_header(), section(), section() + interface()):
        assert read(header) == ([], None)


def test_files_that_cannot_be_opened(tmp_path):
    for path in (tmp_path / "missing.pcap", tmp_path):
        with pytest.raises(ConfigError, match=str(path)) as raised:
            open_capture(str(path))
        assert "\n" not in str(raised.value)
    with pytest.raises(ConfigError):
        open_capture("nul\0byte")


def test_a_disk_that_fails_is_the_users_business():
    class Failing(Trickle):
        def read(self, n: int = -1) -> bytes:
            data = super().read(n)
            if not data:
                raise OSError(5, "Input/output error")
            return data

    with open_capture("-", stdin=Failing(PCAP, 64)) as reader:
        packets = iter(reader)
        assert len([next(packets) for _ in range(4)]) == 4
        with pytest.raises(ConfigError, match="<stdin>: cannot read it \\(input/output error\\)"):
            next(packets)


# ---- compression


def zstd_frames(data: bytes) -> bytes:
    skippable = b"\x53\x2a\x4d\x18\x05\0\0\0-----"
    checked = zstandard.ZstdCompressor(write_checksum=True)
    return checked.compress(data[:90]) + skippable + zstandard.compress(data[90:])


def zstd_streamed(data: bytes) -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    parts = [
        stream.compress(data[:50]),
        stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK),
        stream.compress(data[50:]),
    ]
    return b"".join(parts) + stream.flush()


COMPRESSIONS = {
    "gzip": gzip.compress,
    "gzip-members": lambda data: gzip.compress(data[:33]) + gzip.compress(b"") + gzip.compress(data[33:]),
    "gzip-padded": lambda data: gzip.compress(data) + bytes(512),
    "zstd": zstandard.compress,
    "zstd-frames": zstd_frames,
    "zstd-streamed": zstd_streamed,
}


@pytest.mark.parametrize("step", [1 << 30, 1])
@pytest.mark.parametrize("plain", [PCAP, PCAPNG], ids=["pcap", "pcapng"])
@pytest.mark.parametrize("compress", COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_compressed_files_give_the_same_packets(compress, plain, step):
    assert read(compress(plain), step) == read(plain)


@pytest.mark.parametrize("compress", COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_every_truncation_of_a_compressed_file_gives_a_prefix_then_an_error(compress):
    whole, _ = read(PCAP)
    data = compress(PCAP)
    for length in range(len(data)):
        packets, error = read(data[:length])
        assert packets == whole[: len(packets)]
        assert error is None or error.reason == Reason.CAPTURE_TRUNCATED


def test_everything_in_front_of_damage_in_gzip_is_read():
    noise = random.Random(1).randbytes(300_000)
    plain = pcap_header() + b"".join(pcap_record(noise[n : n + 1000]) for n in range(0, 300_000, 1000))
    data = bytearray(gzip.compress(plain))
    data[-8] ^= 1  # of the checksum
    packets, error = read(bytes(data))
    assert (len(packets), error.reason, error.offset) == (300, Reason.CAPTURE_CORRUPT, len(plain))
    data = gzip.compress(plain[:200_000]) + b"garbage"
    packets, error = read(data)
    assert (len(packets), error.reason) == (196, Reason.CAPTURE_CORRUPT)
    assert "gzip" in error.message


def test_everything_in_front_of_damage_in_zstd_is_read():
    noise = random.Random(1).randbytes(300_000)
    plain = pcap_header() + b"".join(pcap_record(noise[n : n + 1000]) for n in range(0, 300_000, 1000))
    data = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(plain))
    data[-1] ^= 1
    packets, error = read(bytes(data))
    assert (len(packets), error.reason, error.offset) == (300, Reason.CAPTURE_CORRUPT, len(plain))
    packets, error = read(zstandard.compress(plain[:200_000]) + b"garbage")
    assert (len(packets), error.reason) == (196, Reason.CAPTURE_CORRUPT)


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_a_bomb_is_read_in_bounded_memory(compress):
    import tracemalloc

    data = compress(section() + interface() + block(10, bytes(200 << 20)) + enhanced(b"x"))
    tracemalloc.start()
    packets, error = read(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(packets), error) == (1, None)
    assert peak < 16 << 20


# ---- truncation and damage


@pytest.mark.parametrize("plain", [PCAP, PCAPNG], ids=["pcap", "pcapng"])
def test_every_truncation_gives_a_prefix_then_an_error(plain):
    whole, _ = read(plain)
    ends = 0
    for length in range(len(plain)):
        packets, error = read(plain[:length])
        assert packets == whole[: len(packets)]
        if error is None:
            ends += 1
        else:
            assert error.reason == Reason.CAPTURE_TRUNCATED
            assert error.offset <= length
            assert isinstance(error, NotACapture) or error.packet == len(packets) + 1
    assert ends == (4 if plain is PCAP else 5)  # a cut between two records cannot be noticed


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([PCAP, PCAPNG, gzip.compress(PCAP), zstandard.compress(PCAPNG), zstd_frames(PCAP)]),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=6),
)
def test_damaged_files_give_packets_or_a_capture_error(data, changes):
    damaged = bytearray(data)
    for place, change in changes:
        damaged[int(place * len(data))] ^= change
    packets, _ = read(bytes(damaged))
    assert [p.number for p in packets] == list(range(1, len(packets) + 1))


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([pcap_header(), section(), section() + interface()]),
    st.binary(max_size=200),
    st.integers(1, 64),
)
def test_the_packets_do_not_depend_on_how_the_bytes_arrive(header, data, step):
    packets, error = read(header + data)
    again, other = read(header + data, step)
    assert packets == again
    assert str(error) == str(other)


def test_an_impossible_length_is_corrupt_and_not_waited_for():
    record = struct.pack("<IIII", 1, 1, 0xFFFFFFFF, 60)
    packets, error = read(PCAP + record + bytes(100))
    assert (len(packets), error.reason, error.packet, error.offset) == (
        4,
        Reason.CAPTURE_CORRUPT,
        5,
        len(PCAP),
    )


def test_the_error_names_file_packet_and_byte(tmp_path):
    path = tmp_path / "cut.pcap"
    path.write_bytes(PCAP[:-1])
    with open_capture(str(path)) as reader, pytest.raises(CaptureError) as raised:
        list(reader)
    where = len(PCAP) - 216
    assert str(raised.value) == (
        f"{path}: the file is cut short: the last 215 bytes are part of 216 (packet 4, byte {where})"
    )
    assert raised.value.file == str(path)


# ---- how it is read


def test_progress_is_by_bytes_on_disk(tmp_path):
    path = tmp_path / "a.pcap.gz"
    path.write_bytes(gzip.compress(PCAP))
    with open_capture(str(path)) as reader:
        assert reader.size == path.stat().st_size
        assert len(list(reader)) == 4
        assert reader.bytes_read == reader.size


def test_a_pipe_gives_its_packets_as_they_come():
    source, sink = os.pipe()
    with os.fdopen(source, "rb") as pipe, os.fdopen(sink, "wb", buffering=0) as capture:
        capture.write(PCAP[:24])
        with open_capture("-", stdin=pipe) as reader:
            assert reader.size is None
            batches = reader.read_batches()
            for n in (1, 2):
                capture.write(pcap_record(b"x" * n))
                assert [p.data for p in next(batches)] == [b"x" * n]
            capture.close()
            assert list(batches) == []


def test_standard_input_is_the_default(monkeypatch):
    class Terminal:
        buffer = io.BytesIO(PCAP)

    monkeypatch.setattr("sys.stdin", Terminal)
    with open_capture("-") as reader:
        assert len(list(reader)) == 4


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.name)
def test_real_captures_as_dpkt_reads_them(path):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        kind = dpkt.pcapng if ".pcapng" in path.name else dpkt.pcap
        expected = [(float(ts), data) for ts, data in kind.Reader(file)]
    with open_capture(str(path)) as reader:
        packets = list(reader)
    assert [p.data for p in packets] == [data for _, data in expected]
    assert [p.ts / SECOND for p in packets] == pytest.approx([ts for ts, _ in expected], abs=1e-5)


MALFORMED = ROOT / "tests" / "data" / "malformed"


@pytest.mark.parametrize(
    ("name", "packets", "reason", "offset"),
    [
        ("caplen-negative.pcap", 0, Reason.CAPTURE_CORRUPT, 24),
        ("trunc-mid-record-header.pcap", 0, Reason.CAPTURE_TRUNCATED, 24),
        ("ng-block-length-odd.pcapng", 0, Reason.CAPTURE_CORRUPT, 48),
        ("ng-truncated-block.pcapng", 24, Reason.CAPTURE_TRUNCATED, 3392),
        ("gzip-truncated.pcap.gz", 7, Reason.CAPTURE_TRUNCATED, 668),
    ],
)
def test_damaged_samples(name, packets, reason, offset):
    before, error = read((MALFORMED / name).read_bytes())
    assert (len(before), error.reason, error.offset, error.packet) == (packets, reason, offset, packets + 1)
