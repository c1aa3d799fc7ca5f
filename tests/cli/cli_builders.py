"""Small captures, byte by byte: what a client and a broker say, in Ethernet, IPv4 and TCP, in a pcap file."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from kwsniff import wire

BROKER_PORT = 9092
CLIENT_IP, BROKER_IP = bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2))
FIN, SYN, ACK = 0x01, 0x02, 0x10
START = 1_795_240_800  # 2026-11-21T06:00:00Z


@dataclass
class Capture:
    """Conversations, one packet after the other, a millisecond apart."""

    packets: list[bytes] = field(default_factory=list)

    def client(self, port: int = 40001, *, handshake: bool = True) -> Conversation:
        conversation = Conversation(self, port)
        if handshake:
            conversation.send(True, b"", SYN)
            conversation.send(False, b"", SYN | ACK)
        return conversation

    def bytes(self) -> bytes:
        out = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
        for i, packet in enumerate(self.packets):
            out += struct.pack("<IIII", START, i * 1000, len(packet), len(packet)) + packet
        return out


@dataclass
class Conversation:
    capture: Capture
    port: int
    client_id: str = "app"
    raw_client_id: bytes | None = None
    sequence: list[int] = field(default_factory=lambda: [1000, 5000])
    correlation_id: int = 0

    def send(self, to_broker: bool, payload: bytes, flags: int = ACK) -> None:
        side = 0 if to_broker else 1
        ports = (self.port, BROKER_PORT) if to_broker else (BROKER_PORT, self.port)
        hosts = (CLIENT_IP, BROKER_IP) if to_broker else (BROKER_IP, CLIENT_IP)
        tcp = struct.pack(
            ">HHIIBBHHH", *ports, self.sequence[side], self.sequence[1 - side], 0x50, flags, 65535, 0, 0
        )
        size = 20 + len(tcp) + len(payload)
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, size, 0, 0, 64, 6, 0, *hosts)
        self.capture.packets.append(bytes(12) + b"\x08\x00" + ip + tcp + payload)
        self.sequence[side] += len(payload) + bool(flags & (SYN | FIN))

    def ask(self, api: int, version: int, body: dict[str, object]) -> None:
        self.correlation_id += 1
        message = wire.request_of(api)
        assert message is not None
        client_id = self.raw_client_id or self.client_id.encode()
        header = struct.pack(">hhih", api, version, self.correlation_id, len(client_id)) + client_id
        header += b"\0" if message.flexible_in(version) else b""
        self._frame(True, header + wire.encode(message.name, version, body))

    def answer(self, api: int, version: int, body: dict[str, object]) -> None:
        message = wire.response_of(api)
        assert message is not None
        header = struct.pack(">i", self.correlation_id)
        header += b"\0" if message.flexible_in(version) and api != 18 else b""
        self._frame(False, header + wire.encode(message.name, version, body))

    def exchange(self, api: int, version: int, asked: dict[str, object], answered: dict[str, object]) -> None:
        self.ask(api, version, asked)
        self.answer(api, version, answered)

    def close(self) -> None:
        self.send(True, b"", FIN | ACK)
        self.send(False, b"", FIN | ACK)

    def _frame(self, to_broker: bool, frame: bytes) -> None:
        self.send(to_broker, struct.pack(">i", len(frame)) + frame)


API_VERSIONS, METADATA, PRODUCE = 18, 3, 0


def negotiate(conversation: Conversation, offers: dict[int, tuple[int, int]]) -> None:
    keys = [{"apiKey": api, "minVersion": low, "maxVersion": high} for api, (low, high) in offers.items()]
    conversation.exchange(
        API_VERSIONS,
        3,
        {"clientSoftwareName": "rdkafka", "clientSoftwareVersion": "2.5.0"},
        {"apiKeys": keys},
    )


def metadata(conversation: Conversation, topic: str = "orders", version: int = 1, code: int = 0) -> None:
    conversation.exchange(
        METADATA,
        version,
        {"topics": [{"name": topic}]},
        {
            "brokers": [{"nodeId": 1, "host": "b", "port": 9092}],
            "topics": [{"name": topic, "errorCode": code}],
        },
    )


def ordinary() -> bytes:
    """Metadata of two topics, the second with an error."""
    capture = Capture()
    conversation = capture.client()
    metadata(conversation)
    metadata(conversation, "missing", code=3)
    conversation.close()
    return capture.bytes()
