"""Builders for the tests of this room: capture files byte by byte, segments by hand."""

from __future__ import annotations

import io
import struct
from pathlib import Path

from kwsniff.capture.files import open_capture
from kwsniff.errors import CaptureError
from kwsniff.model import Chunk, Endpoint, Flag, Packet, Segment

ROOT = Path(__file__).parents[2]
CAPTURES = sorted(p for p in (ROOT / "captures").iterdir() if ".pcap" in p.name)

SECOND = 1_000_000_000


# ---- pcap


def pcap_header(order: str = "<", magic: int = 0xA1B2C3D4, linktype: int = 1, version=(2, 4)) -> bytes:
    return struct.pack(order + "IHHiIII", magic, *version, 0, 0, 262144, linktype)


def pcap_record(data: bytes, order: str = "<", time=(0, 0), wire_length: int | None = None) -> bytes:
    length = len(data) if wire_length is None else wire_length
    return struct.pack(order + "IIII", *time, len(data), length) + data


# ---- pcapng


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body += bytes(-len(body) % 4)
    size = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + size + body + size


def option(code: int, value: bytes, order: str = "<") -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def section(order: str = "<", version=(1, 0)) -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, *version, -1), order)


def interface(linktype: int = 1, snaplen: int = 0, options: bytes = b"", order: str = "<") -> bytes:
    return block(1, struct.pack(order + "HHI", linktype, 0, snaplen) + options, order)


def enhanced(
    data: bytes,
    time: int = 0,
    index: int = 0,
    options: bytes = b"",
    order: str = "<",
    wire_length: int | None = None,
) -> bytes:
    length = len(data) if wire_length is None else wire_length
    head = struct.pack(order + "IIIII", index, time >> 32, time & 0xFFFFFFFF, len(data), length)
    return block(6, head + data + bytes(-len(data) % 4) + options, order)


def simple(data: bytes, wire_length: int, order: str = "<") -> bytes:
    return block(3, struct.pack(order + "I", wire_length) + data, order)


def obsolete(data: bytes, time: int, index: int = 0, order: str = "<") -> bytes:
    head = struct.pack(order + "HHIIII", index, 0, time >> 32, time & 0xFFFFFFFF, len(data), len(data))
    return block(2, head + data, order)


# ---- reading


class Trickle(io.RawIOBase):
    """A pipe that gives one byte at a time."""

    def __init__(self, data: bytes, step: int = 1) -> None:
        self._data = io.BytesIO(data)
        self._step = step

    def readable(self) -> bool:
        return True

    def read(self, n: int = -1) -> bytes:  # noqa: ARG002 - as little as it likes
        return self._data.read(self._step)


def read(data: bytes, step: int = 1 << 30) -> tuple[list[Packet], CaptureError | None]:
    """The packets in the bytes of a file, and what stopped the reading."""
    packets: list[Packet] = []
    try:
        with open_capture("-", stdin=Trickle(data, step)) as reader:
            for packet in reader:
                packets.append(packet)  # noqa: PERF402 - those in front of the error count
    except CaptureError as error:
        return packets, error
    return packets, None


# ---- segments

CLIENT = Endpoint("10.0.0.1", 40000)
BROKER = Endpoint("10.0.0.2", 9092)


def segment(src: Endpoint, seq: int, data: bytes = b"", flags: int = Flag.ACK, **more) -> Segment:
    fields = {"ts": 0, "ack": 0, "dst": CLIENT if src == BROKER else BROKER} | more
    return Segment(src=src, seq=seq % (1 << 32), payload=data, flags=flags, **fields)


def joined(chunks: list[Chunk], src: Endpoint, session: int = 0) -> bytes:
    """One direction's bytes, `?` for each that was lost."""
    mine = [c for c in chunks if c.src == src and c.session == session]
    return b"".join(b"?" * chunk.lost + chunk.data for chunk in mine)
