"""The codecs: the streams that clients write, streams that are cut or that lie, and the ceiling."""

from __future__ import annotations

import gzip
import resource
import subprocess
import sys
import textwrap
import tracemalloc
import zlib
from pathlib import Path
from struct import pack

import lz4.block
import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from wirebytes import uvarint

from kwsniff.errors import DecodeError, EncodeError, Reason
from kwsniff.wire import compression
from kwsniff.wire.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress, decompress

CODECS = (GZIP, SNAPPY, LZ4, ZSTD)
TEXT = b"all work and no play " * 50
XERIAL = b"\x82SNAPPY\x00" + pack(">ii", 1, 1)
MIB = 1 << 20
EITHER = (Reason.DECOMPRESSION_FAILED, Reason.DECOMPRESSION_LIMIT)


def xerial(*blocks: bytes) -> bytes:
    return XERIAL + b"".join(pack(">i", len(block)) + block for block in blocks)


def reason(codec: int, data: bytes, limit: int = 10_000, magic: int = 2) -> Reason:
    with pytest.raises(DecodeError) as caught:
        decompress(codec, data, limit, magic)
    assert caught.value.offset == 0
    return caught.value.reason


def attempt(codec: int, data: bytes, limit: int, magic: int = 2) -> bytes | Reason:
    try:
        return decompress(codec, data, limit, magic)
    except DecodeError as error:
        return error.reason


STREAMS = {
    "nothing to do": (NONE, TEXT),
    "gzip": (GZIP, gzip.compress(TEXT)),
    "gzip members": (GZIP, gzip.compress(TEXT[:100]) + gzip.compress(b"") + gzip.compress(TEXT[100:])),
    "gzip and padding": (GZIP, gzip.compress(TEXT) + b"\0" * 9),
    "snappy, raw": (SNAPPY, snappy.compress(TEXT)),
    "snappy-java": (SNAPPY, xerial(snappy.compress(TEXT))),
    "snappy-java blocks": (
        SNAPPY,
        xerial(*[snappy.compress(TEXT[at : at + 99]) for at in range(0, 1050, 99)]),
    ),
    "lz4": (LZ4, lz4.frame.compress(TEXT)),
    "lz4 of unknown size": (LZ4, lz4.frame.compress(TEXT, store_size=False, block_linked=False)),
    "lz4 with checksums": (LZ4, lz4.frame.compress(TEXT, content_checksum=True, block_checksum=True)),
    "lz4 frames": (LZ4, lz4.frame.compress(TEXT[:100]) + lz4.frame.compress(TEXT[100:], store_size=False)),
    "zstd": (ZSTD, zstandard.compress(TEXT)),
    "zstd of unknown size": (
        ZSTD,
        zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(TEXT),
    ),
    "zstd frames": (
        ZSTD,
        zstandard.compress(TEXT[:9]) + pack("<II", 0x184D2A53, 3) + b"any" + zstandard.compress(TEXT[9:]),
    ),
}


@pytest.mark.parametrize(("codec", "stream"), STREAMS.values(), ids=STREAMS)
def test_reads_what_clients_write(codec: int, stream: bytes) -> None:
    assert decompress(codec, stream, len(TEXT)) == TEXT
    assert reason(codec, stream, len(TEXT) - 1) == Reason.DECOMPRESSION_LIMIT


@pytest.mark.parametrize(("codec", "stream"), STREAMS.values(), ids=STREAMS)
def test_a_stream_cut_at_any_byte(codec: int, stream: bytes) -> None:
    """Frames and snappy-java's blocks may end where another could follow: then it is a shorter stream."""
    for end in range(len(stream)):
        content = attempt(codec, stream[:end], len(TEXT))
        assert content == Reason.DECOMPRESSION_FAILED or TEXT.startswith(content)


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_one_whole_frame_is_needed(codec: int) -> None:
    stream = compress(codec, TEXT)
    for end in range(len(stream)):
        assert reason(codec, stream[:end]) == Reason.DECOMPRESSION_FAILED


@pytest.mark.parametrize("size", [0, 1, 100, 32 * 1024, 32 * 1024 + 1, 200_000])
@pytest.mark.parametrize("codec", [NONE, *CODECS])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_what_is_written_is_read_again(codec: int, magic: int, size: int) -> None:
    data = (TEXT * 200)[:size]
    stream = compress(codec, data, magic)
    assert decompress(codec, stream, size, magic) == data
    assert compress(codec, data, magic) == stream


def test_writes_what_java_writes() -> None:
    data = TEXT * 100
    assert gzip.decompress(compress(GZIP, data)) == data
    assert compress(GZIP, data)[4:8] == bytes(4)  # no time of day
    stream = compress(SNAPPY, data)
    assert stream.startswith(XERIAL)
    length = int.from_bytes(stream[16:20], "big")
    assert snappy.uncompress(stream[20 : 20 + length]) == data[: 32 * 1024]
    frame = lz4.frame.get_frame_info(compress(LZ4, data))
    assert (frame["block_linked"], frame["block_size"], frame["content_size"]) == (False, 64 * 1024, 0)
    assert zstandard.decompress(compress(ZSTD, data)) == data


def test_the_lz4_header_checksum_of_magic_0() -> None:
    """KAFKA-3160: xxHash32 over the frame's magic number too. For FLG 0x60 and BD 0x40 the specification has
    0x82; what Kafka 0.8 to 0.9 wrote instead is worked out here from xxHash's own definition."""
    right, wrong = compress(LZ4, TEXT, 1), compress(LZ4, TEXT, 0)
    assert right[4:7] == b"\x60\x40\x82"
    assert wrong[:6] + right[6:7] + wrong[7:] == right
    assert wrong[6] == xxh32(b"\x04\x22\x4d\x18\x60\x40") >> 8 & 0xFF != 0x82
    assert decompress(LZ4, wrong, 10_000, 0) == decompress(LZ4, right, 10_000, 0) == TEXT
    assert reason(LZ4, wrong, magic=1) == Reason.DECOMPRESSION_FAILED
    sized = lz4.frame.compress(TEXT, store_size=True)
    assert decompress(LZ4, sized[:14] + b"?" + sized[15:], 10_000, 0) == TEXT


def xxh32(data: bytes) -> int:
    """The short-input branch of https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md, literally."""
    prime = (2654435761, 2246822519, 3266489917, 668265263, 374761393)

    def left(value: int, bits: int) -> int:
        return int(f"{value % 2**32:032b}"[bits:] + f"{value % 2**32:032b}"[:bits], 2)

    acc = prime[4] + len(data)
    while len(data) >= 4:
        acc = left(acc + int.from_bytes(data[:4], "little") * prime[2], 17) * prime[3]
        data = data[4:]
    while data:
        acc = left(acc + data[0] * prime[4], 11) * prime[0]
        data = data[1:]
    acc %= 2**32
    acc = (acc ^ acc >> 15) * prime[1] % 2**32
    acc = (acc ^ acc >> 13) * prime[2] % 2**32
    return acc ^ acc >> 16


def test_the_hash_of_this_test_is_xxhash() -> None:
    assert [xxh32(text) for text in (b"", b"a", b"abc")] == [0x02CC5D05, 0x550D7456, 0x32D153FF]


LIES = {
    "snappy that claims 4 GiB": (SNAPPY, uvarint(2**32 - 1) + b"\0" * 100, Reason.DECOMPRESSION_FAILED),
    "snappy of six length bytes": (SNAPPY, b"\xff" * 6, Reason.DECOMPRESSION_FAILED),
    "snappy that claims more than the limit": (
        SNAPPY,
        uvarint(20_000) + b"\0" * 5000,
        Reason.DECOMPRESSION_LIMIT,
    ),
    "a block in a block": (SNAPPY, xerial(XERIAL), Reason.DECOMPRESSION_FAILED),
    "a block of -1 bytes": (SNAPPY, XERIAL + pack(">i", -1), Reason.DECOMPRESSION_FAILED),
    "a block of 2 GiB": (SNAPPY, XERIAL + pack(">i", 2**31 - 1) + b"x", Reason.DECOMPRESSION_FAILED),
    "zstd that claims 8 EiB": (
        ZSTD,
        pack("<IBQ", 0xFD2FB528, 0xE0, 2**63) + b"\x01\0\0",
        Reason.DECOMPRESSION_FAILED,
    ),
    "a zstd window of 1 TiB": (
        ZSTD,
        pack("<IBB", 0xFD2FB528, 0, 30 << 3) + b"\x01\0\0",
        Reason.DECOMPRESSION_FAILED,
    ),
    "a skippable frame of 4 GiB": (ZSTD, pack("<II", 0x184D2A50, 2**32 - 1), Reason.DECOMPRESSION_FAILED),
    "no lz4 frame at all": (LZ4, b"", Reason.DECOMPRESSION_FAILED),
    "a codec of the future": (5, b"", Reason.DECOMPRESSION_FAILED),
}


@pytest.mark.parametrize(("codec", "stream", "expected"), LIES.values(), ids=LIES)
def test_lies_about_sizes_are_refused(codec: int, stream: bytes, expected: Reason) -> None:
    tracemalloc.start()
    try:
        assert reason(codec, stream) == expected
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


def test_there_is_nothing_to_write_with_an_unknown_codec() -> None:
    with pytest.raises(EncodeError):
        compress(5, b"")


@settings(deadline=None)
@given(st.sampled_from([NONE, *CODECS]), st.binary(max_size=200), st.integers(0, 2))
def test_arbitrary_bytes_give_bytes_or_a_decode_error(codec: int, data: bytes, magic: int) -> None:
    content = attempt(codec, data, 1000, magic)
    assert content in EITHER or len(content) <= 1000


@settings(deadline=None)
@given(st.data(), st.sampled_from(CODECS), st.integers(0, 2))
def test_a_changed_stream_gives_bytes_or_a_decode_error(data: st.DataObject, codec: int, magic: int) -> None:
    stream = bytearray(compress(codec, TEXT, magic))
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    content = attempt(codec, bytes(stream), 5000, magic)
    assert content in EITHER or len(content) <= 5000


def zeros(codec: int, size: int) -> bytes:
    """A bomb, made without its content in memory."""
    if codec == GZIP:
        stream = zlib.compressobj(9, wbits=31)
        return b"".join([stream.compress(bytes(MIB)) for _ in range(size // MIB)]) + stream.flush()
    if codec == SNAPPY:
        return xerial(*[snappy.compress(bytes(MIB))] * (size // MIB))
    if codec == LZ4:
        with lz4.frame.LZ4FrameCompressor() as frame:
            parts = [frame.begin(), *(frame.compress(bytes(MIB)) for _ in range(size // MIB)), frame.flush()]
        return b"".join(parts)
    zstd = zstandard.ZstdCompressor().compressobj()
    return b"".join([zstd.compress(bytes(MIB)) for _ in range(size // MIB)]) + zstd.flush()


@pytest.mark.parametrize("codec", CODECS, ids=compression.NAMES.get)
def test_a_bomb_goes_off_at_the_limit(codec: int) -> None:
    bomb = zeros(codec, 128 * MIB)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError) as caught:
            decompress(codec, bomb, 16 * MIB)
        assert caught.value.reason == Reason.DECOMPRESSION_LIMIT
        held, most = tracemalloc.get_traced_memory()
        assert most < 24 * MIB
        assert held < MIB, "the error, which is still alive, keeps the output"
    finally:
        tracemalloc.stop()


def test_bombs_of_half_a_gibibyte_fit_into_a_small_process(tmp_path: Path) -> None:
    """All codecs in one process whose address space the kernel bounds: nothing hides from it."""
    program = textwrap.dedent("""
        import sys
        from kwsniff.errors import DecodeError
        from kwsniff.wire.compression import decompress
        for codec in (1, 2, 3, 4):
            with open(sys.argv[codec], "rb") as file:
                data = file.read()
            try:
                decompress(codec, data, 32 << 20)
            except DecodeError as error:
                print(error.reason)
    """)
    for codec in CODECS:
        (tmp_path / str(codec)).write_bytes(zeros(codec, 512 * MIB))
    done = subprocess.run(
        [sys.executable, "-c", program, *[str(tmp_path / str(codec)) for codec in CODECS]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (320 * MIB, 320 * MIB)),
    )
    assert (done.stdout.split(), done.stderr) == (["decompression_limit"] * 4, "")


@pytest.mark.parametrize(
    ("codec", "part"),
    [(GZIP, gzip.compress(b"")), (LZ4, lz4.frame.compress(b"")), (ZSTD, zstandard.compress(b""))],
    ids=["gzip", "lz4", "zstd"],
)
def test_many_empty_frames_take_linear_time(codec: int, part: bytes) -> None:
    """Were the rest of the input copied for each, 2 MB would be some 100 GB of copying."""
    assert decompress(codec, part * (2_000_000 // len(part)), 10) == b""
