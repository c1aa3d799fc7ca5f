"""Whole capture files from conversations: Kafka frames, TCP segments with any seq, IP, a link layer, pcap.

The headers are packed by hand from the RFCs and the protocol guide; bodies come from `wire.encode`, which the
golden vectors hold.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from kwsniff import wire

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10
START = 1_795_240_800_000_000_000  # 2026-11-21T06:00:00Z
MS = 1_000_000
ROOT = Path(__file__).parents[2]


def sized(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def request(api: int, version: int, number: int, body: Any = b"", client_id: str | None = "app") -> bytes:
    name = (client_id or "").encode()
    header = struct.pack(">hhi", api, version, number)
    kinds = wire.header_versions(api, version) if wire.request_of(api) else (1, 0)
    if kinds[0] >= 1:
        header += struct.pack(">h", -1 if client_id is None else len(name)) + name
    header += b"\0" if kinds[0] >= 2 else b""
    if isinstance(body, dict):
        body = wire.encode(wire.request_of(api).name, version, body)
    return sized(header + body)


def response(api: int, version: int, number: int, body: Any = b"") -> bytes:
    kinds = wire.header_versions(api, version) if wire.request_of(api) else (1, 0)
    if isinstance(body, dict):
        body = wire.encode(wire.response_of(api).name, version, body)
    return sized(struct.pack(">i", number) + (b"\0" if kinds[1] >= 1 else b"") + body)


def ethernet(ip: bytes) -> bytes:
    kind = b"\x86\xdd" if ip[0] >> 4 == 6 else b"\x08\x00"
    return bytes(12) + kind + ip


def ip_tcp(src: tuple[str, int], dst: tuple[str, int], seq: int, ack: int, flags: int, data: bytes) -> bytes:
    tcp = struct.pack(">HHIIBBHHH", src[1], dst[1], seq % 2**32, ack % 2**32, 0x50, flags, 65535, 0, 0) + data
    a, b = ip_address(src[0]).packed, ip_address(dst[0]).packed
    if len(a) == 16:
        return struct.pack(">IHBB", 6 << 28, len(tcp), 6, 64) + a + b + tcp
    return struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + a + b + tcp


@dataclass
class Tape:
    """Packets as (ns, IP packet, IP bytes that were on the wire)."""

    packets: list[tuple[int, bytes]] = field(default_factory=list)
    now: int = START

    def add(self, ip: bytes) -> None:
        self.packets.append((self.now, ip))
        self.now += MS

    def link(self, client: tuple[str, int] = ("10.0.0.1", 40001), broker=("10.0.0.2", 9092), **more) -> Link:
        return Link(self, client, broker, **more)

    def pcap(
        self, order: str = "<", nano: bool = True, linktype: int = 1, wrap=ethernet, snaplen=1 << 18
    ) -> bytes:
        return pcap(self.packets, order, nano, linktype, wrap, snaplen)


def pcap(packets, order="<", nano=True, linktype=1, wrap=ethernet, snaplen=1 << 18) -> bytes:
    magic = 0xA1B23C4D if nano else 0xA1B2C3D4
    out = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snaplen, linktype)]
    for ts, ip in packets:
        data = wrap(ip)
        part = ts % 10**9 // (1 if nano else 1000)
        cut = data[:snaplen]
        out += [struct.pack(order + "IIII", ts // 10**9, part, len(cut), len(data)), cut]
    return b"".join(out)


@dataclass
class Link:
    """One TCP connection. `client`/`broker` send; None as data of a `lost` one: not captured."""

    tape: Tape
    client_end: tuple[str, int]
    broker_end: tuple[str, int]
    seq: list[int] = field(default_factory=lambda: [1000, 5000])
    mss: int = 60_000

    def open(self) -> Link:
        self.send(0, b"", SYN)
        self.send(1, b"", SYN | ACK)
        self.send(0, b"")
        return self

    def send(self, side: int, data: bytes, flags: int = ACK, captured: bool = True) -> Link:
        ends = (self.client_end, self.broker_end) if side == 0 else (self.broker_end, self.client_end)
        ack = self.seq[1 - side] if flags & ACK else 0
        if captured:
            self.tape.add(ip_tcp(*ends, self.seq[side], ack, flags, data))
        self.seq[side] += len(data) + bool(flags & (SYN | FIN))
        return self

    def client(self, *parts: bytes, captured: bool = True) -> Link:
        for data in parts:
            for at in range(0, len(data), self.mss):
                self.send(0, data[at : at + self.mss], captured=captured)
        return self

    def broker(self, *parts: bytes, captured: bool = True) -> Link:
        for data in parts:
            for at in range(0, len(data), self.mss):
                self.send(1, data[at : at + self.mss], captured=captured)
        return self

    def ask(self, api: int, version: int, number: int, body: Any = b"", **more: Any) -> Link:
        return self.client(request(api, version, number, body, **more))

    def answer(self, api: int, version: int, number: int, body: Any = b"") -> Link:
        return self.broker(response(api, version, number, body))

    def exchange(self, api: int, version: int, number: int, asked: Any, answered: Any, **more: Any) -> Link:
        return self.ask(api, version, number, asked, **more).answer(api, version, number, answered)

    def metadata(self, number: int, topic: str = "orders", version: int = 1) -> Link:
        return self.exchange(
            3, version, number, {"topics": [{"name": topic}]},
            {"brokers": [{"nodeId": 1, "host": "b", "port": 9092}], "topics": [{"name": topic}]},
        )  # fmt: skip

    def close(self) -> Link:
        return self.send(0, b"", FIN | ACK).send(1, b"", FIN | ACK).send(0, b"")


@dataclass
class Run:
    status: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def exchanges(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if "requestHeader" in line]

    @property
    def faults(self) -> list[dict[str, Any]]:
        return [line["kwsniff"]["fault"] for line in self.lines if "fault" in line["kwsniff"]]


def kwsniff(*args: Any, stdin: bytes | None = None) -> Run:
    """The command as a user runs it."""
    done = subprocess.run(
        [sys.executable, "-m", "kwsniff", *map(str, args)],
        input=stdin,
        capture_output=True,
        timeout=120,
        check=False,
    )
    return Run(done.returncode, done.stdout, done.stderr.decode())


def decode(*args: Any, **more: Any) -> Run:
    return kwsniff("decode", *args, **more)


def run(*args: Any, **more: Any) -> Run:
    """The command in this process: the same, and faster."""
    from click.testing import CliRunner

    from kwsniff.cli import main

    done = CliRunner().invoke(main, [str(arg) for arg in args], **more)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Run(done.exit_code, done.stdout_bytes, done.stderr)


def shown(data: bytes, tmp_path: Path, *options: Any, name: str = "a.pcap") -> Run:
    """`kwsniff decode` of one capture; every line keeps to the contract."""
    from line_contract import problems

    path = tmp_path / name
    path.write_bytes(data)
    result = run("decode", *options, path)
    for line in result.lines:
        assert problems(line) == [], line
    return result
