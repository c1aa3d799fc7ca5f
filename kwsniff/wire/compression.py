"""The compression codecs of record sets, bounded.

In: the codec number of a batch's attributes, the compressed bytes, a ceiling. Out: the bytes, never more than
the ceiling; whatever the input declares about its size is checked before memory is taken for it.
Knows the byte streams that Kafka clients write (gzip members, snappy raw and in snappy-java's stream, LZ4
frames with the wrong header checksum of magic 0, zstd frames) and nothing of what is inside. The libraries
load on first use.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from io import BytesIO
from struct import Struct

from kwsniff.errors import DecodeError, EncodeError, Reason

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

NAMES: dict[int, str] = {NONE: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
NUMBERS: dict[str, int] = {name: number for number, name in NAMES.items()}

_CHUNK = 1 << 20
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK = 32 * 1024
"""Uncompressed bytes per block, the default of snappy-java's stream and of Kafka's Java client."""
_SNAPPY_RATIO = 22
"""No snappy element gives more than 64 bytes for 3 (format_description.txt of google/snappy, section 2.2)."""
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_WINDOW = 1 << 27
"""The largest window a zstd decoder takes by default (RFC 8878 section 3.1.1.1.2), Kafka's too."""
_INT32 = Struct(">i")
_UINT32_LE = Struct("<I")


def decompress(codec: int, data: bytes, limit: int, magic: int = 2) -> bytes:
    """The content of a compressed record set, at most `limit` bytes.

    codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd. magic: of the message or batch; 0 has its own LZ4 frames.
    Raises DecodeError: DECOMPRESSION_LIMIT for more than `limit` bytes, DECOMPRESSION_FAILED otherwise.
    Its offset is that of the data, not a position inside of the stream.
    """
    reader = _READERS.get(codec)
    if reader is None:
        raise _failed(codec, "no such codec")
    try:
        return reader(data, limit, magic)
    except DecodeError as error:
        reason, message = error.reason, error.message
    # A new one: through its traceback the other would keep alive all that has been decompressed.
    raise DecodeError(reason, message)


def compress(codec: int, data: bytes, magic: int = 2) -> bytes:
    """The inverse, in the stream format of Kafka's Java client. The same input gives the same bytes."""
    writer = _WRITERS.get(codec)
    if writer is None:
        raise EncodeError(f"no such codec: {codec}")
    return writer(data, magic)


def _failed(codec: int, why: object) -> DecodeError:
    name = NAMES.get(codec, str(codec))
    return DecodeError(Reason.DECOMPRESSION_FAILED, f"{name}: {why}")


def _over(codec: int, limit: int) -> DecodeError:
    return DecodeError(Reason.DECOMPRESSION_LIMIT, f"{NAMES[codec]}: decompresses to more than {limit} bytes")


class _Sink:
    """Collects a stream's output up to the limit. `room` is one more than may still come: asking the
    library for that many bytes shows an excess."""

    def __init__(self, codec: int, limit: int) -> None:
        self.codec = codec
        self.limit = limit
        self.room = limit + 1
        self._first = b""
        self._rest: BytesIO | None = None

    @property
    def ask(self) -> int:
        return min(self.room, _CHUNK)

    def put(self, chunk: bytes) -> None:
        self.room -= len(chunk)
        if self.room <= 0:
            raise _over(self.codec, self.limit)
        if self._rest is not None:
            self._rest.write(chunk)
        elif not self._first:
            self._first = chunk
        else:
            self._rest = BytesIO()
            self._rest.write(self._first)
            self._rest.write(chunk)

    def value(self) -> bytes:
        return self._first if self._rest is None else self._rest.getvalue()


def _read_none(data: bytes, limit: int, _magic: int) -> bytes:
    if len(data) > limit:
        raise _over(NONE, limit)
    return data


def _read_gzip(data: bytes, limit: int, _magic: int) -> bytes:
    sink = _Sink(GZIP, limit)
    view = memoryview(data)
    at = 0
    while True:
        member = zlib.decompressobj(31)
        step = 4096  # zlib copies the input it leaves; whole inputs would make many small members quadratic
        try:
            while not member.eof:
                piece = view[at : at + step]
                if not piece:
                    raise _failed(GZIP, "the stream is cut off")
                at += len(piece)
                step = min(2 * step, 1 << 16)
                chunk = member.decompress(piece, sink.ask)
                while chunk:
                    sink.put(chunk)
                    chunk = member.decompress(member.unconsumed_tail, sink.ask)
        except zlib.error as error:
            raise _failed(GZIP, error) from error
        at -= len(member.unused_data)
        if data[at : at + 2] != b"\x1f\x8b":  # what is no further member Java's GZIPInputStream ignores too
            return sink.value()


def _read_snappy(data: bytes, limit: int, _magic: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _snappy_block(data, limit, limit)
    sink = _Sink(SNAPPY, limit)
    at, end = len(_XERIAL_HEADER), len(data)
    if end < at:
        raise _failed(SNAPPY, "the stream header is cut off")
    while at < end:
        if end - at < 4:
            raise _failed(SNAPPY, "a block length is cut off")
        size = _INT32.unpack_from(data, at)[0]
        at += 4
        if not 0 <= size <= end - at:
            raise _failed(SNAPPY, f"a block of {size} bytes where {end - at} are left")
        sink.put(_snappy_block(data[at : at + size], sink.room - 1, limit))
        at += size
    return sink.value()


def _snappy_block(data: bytes, room: int, limit: int) -> bytes:
    import snappy

    declared = shift = at = 0
    while True:
        if at >= min(len(data), 5):
            raise _failed(SNAPPY, "the length of a block is no varint")
        byte = data[at]
        declared |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if byte < 0x80:
            break
    if declared > _SNAPPY_RATIO * len(data):
        raise _failed(SNAPPY, f"a block of {len(data)} bytes cannot hold the {declared} bytes it declares")
    if declared > room:
        raise _over(SNAPPY, limit)
    try:
        return bytes(snappy.uncompress(data))
    except snappy.UncompressError as error:
        raise _failed(SNAPPY, "a block is corrupt") from error


def _read_lz4(data: bytes, limit: int, magic: int) -> bytes:
    import lz4.frame

    sink = _Sink(LZ4, limit)
    view = memoryview(_with_right_checksum(data) if magic == 0 else data)
    if not view:
        raise _failed(LZ4, "there is no frame")
    while view:
        context = lz4.frame.create_decompression_context()
        ended = False
        while not ended:
            try:
                chunk, used, ended = lz4.frame.decompress_chunk(context, view, max_length=sink.ask)
            except RuntimeError as error:
                raise _failed(LZ4, error) from error
            if not chunk and not used and not ended:
                raise _failed(LZ4, "the frame is cut off")
            sink.put(chunk)
            view = view[used:]
    return sink.value()


def _read_zstd(data: bytes, limit: int, _magic: int) -> bytes:
    import zstandard

    _check_zstd_frames(data)
    sink = _Sink(ZSTD, limit)
    library = zstandard.ZstdDecompressor(max_window_size=max(_ZSTD_WINDOW, limit))
    try:
        with library.stream_reader(data, read_across_frames=True) as stream:
            while chunk := stream.read(sink.ask):
                sink.put(chunk)
    except (zstandard.ZstdError, MemoryError) as error:
        raise _failed(ZSTD, error) from error
    return sink.value()


def _check_zstd_frames(data: bytes) -> None:
    """Walks the frames and blocks (RFC 8878 section 3.1.1): the library's stream reader takes a cut-off frame
    for the end of the input and says nothing."""
    at, end = 0, len(data)
    while True:
        if at + 8 > end:
            raise _failed(ZSTD, "the stream is cut off")
        magic = _UINT32_LE.unpack_from(data, at)[0]
        if magic & 0xFFFFFFF0 == 0x184D2A50:  # a skippable frame
            at += 8 + _UINT32_LE.unpack_from(data, at + 4)[0]
        elif magic == _ZSTD_MAGIC:
            at = _zstd_frame_end(data, at)
        else:
            raise _failed(ZSTD, "no zstd frame")
        if at > end:
            raise _failed(ZSTD, "the stream is cut off")
        if at == end:
            return


def _zstd_frame_end(data: bytes, at: int) -> int:
    """Where the frame that begins at `at` ends; beyond the data when it is cut off."""
    flags = data[at + 4]
    single_segment = flags >> 5 & 1
    content_size = (single_segment, 2, 4, 8)[flags >> 6]
    at += 5 + (not single_segment) + (0, 1, 2, 4)[flags & 3] + content_size
    while True:
        block = data[at : at + 3]
        if len(block) < 3:
            return len(data) + 1
        header = int.from_bytes(block, "little")
        at += 3 + (1 if header >> 1 & 3 == 1 else header >> 3)
        if header & 1:
            return at + 4 * (flags >> 2 & 1)


def _write_none(data: bytes, _magic: int) -> bytes:
    return data


def _write_gzip(data: bytes, _magic: int) -> bytes:
    stream = zlib.compressobj(wbits=31)
    return stream.compress(data) + stream.flush()


def _write_snappy(data: bytes, _magic: int) -> bytes:
    import snappy

    out = [_XERIAL_HEADER]
    for at in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(snappy.compress(data[at : at + _XERIAL_BLOCK]))
        out += [_INT32.pack(len(block)), block]
    return b"".join(out)


def _write_lz4(data: bytes, magic: int) -> bytes:
    import lz4.frame

    frame: bytes = lz4.frame.compress(
        data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
    )
    if magic:
        return frame
    # KAFKA-3160: magic 0 hashes the frame's magic number too; FLG and BD stand at 4 and 5, the checksum at 6.
    return frame[:6] + bytes([_xxh32(frame[:6]) >> 8 & 0xFF]) + frame[7:]


def _write_zstd(data: bytes, _magic: int) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(data)


def _with_right_checksum(frame: bytes) -> bytes:
    """The first LZ4 frame with the header checksum of its specification (readers of magic 0 ignore it)."""
    if len(frame) < 7 or not frame.startswith(_LZ4_MAGIC):
        return frame
    flags = frame[4]
    at = 6 + 8 * (flags >> 3 & 1) + 4 * (flags & 1)
    if len(frame) <= at:
        return frame
    return frame[:at] + bytes([_xxh32(frame[4:at]) >> 8 & 0xFF]) + frame[at + 1 :]


def _xxh32(data: bytes) -> int:
    """xxHash32 with seed 0 of less than 16 bytes (all that an LZ4 frame header needs)."""

    def rotated(value: int, bits: int) -> int:
        return (value << bits | value >> 32 - bits) & 0xFFFFFFFF

    mask = 0xFFFFFFFF
    value = 374761393 + len(data)
    words = len(data) // 4 * 4
    for at in range(0, words, 4):
        value = value + _UINT32_LE.unpack_from(data, at)[0] * 3266489917 & mask
        value = rotated(value, 17) * 668265263 & mask
    for byte in data[words:]:
        value = rotated(value + byte * 374761393 & mask, 11) * 2654435761 & mask
    value = (value ^ value >> 15) * 2246822519 & mask
    value = (value ^ value >> 13) * 3266489917 & mask
    return value ^ value >> 16


_READERS: dict[int, Callable[[bytes, int, int], bytes]] = {
    NONE: _read_none,
    GZIP: _read_gzip,
    SNAPPY: _read_snappy,
    LZ4: _read_lz4,
    ZSTD: _read_zstd,
}
_WRITERS: dict[int, Callable[[bytes, int], bytes]] = {
    NONE: _write_none,
    GZIP: _write_gzip,
    SNAPPY: _write_snappy,
    LZ4: _write_lz4,
    ZSTD: _write_zstd,
}
