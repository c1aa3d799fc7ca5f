"""The data types, in the order in which a byte travels: Packet, Segment, Chunk, Frame, Exchange.

They are values: nothing here reads, writes, or knows how a field came to be. Times are int nanoseconds
since the epoch, sizes are bytes. `packet` is always the 1-based number of a packet in its file, as
Wireshark counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple
from typing import Protocol as Protocol_

from msgspec import Struct, field

from kwsniff.errors import Reason

Body = dict[str, Any]
_REFERENCE = 8


class Endpoint(NamedTuple):
    """One end of a TCP connection. `host` is the address in text form (IPv6 without brackets)."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Packet(Struct, frozen=True, gc=False):
    """One captured packet, from its link-layer header on."""

    ts: int
    linktype: int
    """LINKTYPE_ value (https://www.tcpdump.org/linktypes.html)."""
    data: bytes
    wire_length: int
    """Length on the wire; more than len(data) where a snaplen cut it."""
    comment: str | None = None
    number: int = 0


class Flag:
    """TCP flags (RFC 9293 section 3.1)."""

    FIN = 0x01
    SYN = 0x02
    RST = 0x04
    PSH = 0x08
    ACK = 0x10


class Segment(Struct, frozen=True, gc=False):
    """One TCP segment. seq and ack are the raw 32-bit numbers of the header."""

    ts: int
    src: Endpoint
    dst: Endpoint
    seq: int
    ack: int
    flags: int
    payload: bytes
    cut: int = 0
    """Payload bytes that were on the wire behind `payload` but are not in the capture (snaplen)."""
    packet: int = 0


class Chunk(Struct, frozen=True, gc=False):
    """The next bytes of one direction of a connection, in order; all of them from one packet.

    A chunk may be without data: one with `opened` starts a session, one with `closed` ends this direction.
    """

    ts: int
    src: Endpoint
    dst: Endpoint
    data: bytes
    lost: int = 0
    """Bytes missing from the capture just before `data`."""
    closed: bool = False
    """This direction ends behind `data` (FIN or RST)."""
    packet: int = 0
    opened: bool = False
    """The connection's handshake was seen here; src is the client (who sent the SYN)."""
    session: int = 0
    """Counts the sessions of this pair of endpoints in the input, from 0."""


class Run(Protocol_):
    """Chunks of one direction that follow one another, not yet cut apart: what a compiled scan gives."""

    slot: Any
    """Belongs to who reads the session; None at first."""

    @property
    def src(self) -> Endpoint: ...
    @property
    def dst(self) -> Endpoint: ...
    @property
    def size(self) -> int:
        """Bytes of data."""

    @property
    def latest(self) -> int:
        """The highest time in it."""

    def chunks(self) -> list[Chunk]: ...
    def data(self) -> bytes: ...
    def mark(self, offset: int) -> tuple[int, int]:
        """ts and packet of the byte at `offset`."""


class Side(StrEnum):
    """Which way a frame travels."""

    REQUEST = "request"
    RESPONSE = "response"


class Outcome(StrEnum):
    """What became of a request, or of a response without one."""

    ANSWERED = "answered"
    NO_ACK = "no_ack"
    """Produce with acks=0: Kafka sends no response."""
    LOST = "lost"
    """The response fell into a gap of the capture, or behind its end."""
    CLOSED = "closed"
    """The connection ended first."""
    UNMATCHED = "unmatched"
    """A response whose request was not seen."""


class ConnectionId(NamedTuple):
    """The identity of a session: its two ends, told apart, and a count for reused ports."""

    client: Endpoint
    broker: Endpoint
    session: int = 0

    def __str__(self) -> str:
        return f"{self.broker}-{self.client}-{self.session}"


class Fault(Struct, frozen=True, gc=False):
    """An error of theirs, as data. `reason` is for programs, `message` for people."""

    ts: int
    reason: Reason
    message: str
    conn: ConnectionId | None = None
    side: Side | None = None
    api: int | None = None
    version: int | None = None
    correlation_id: int | None = None
    path: str = ""
    offset: int | None = None
    """Bytes from the start of the frame (behind its size prefix), or of the stream's direction."""
    packet: int | None = None
    lost: int | None = None
    file: str | None = None
    file_offset: int | None = None
    raw: bytes = b""
    """The first bytes that were at fault, at most 64."""


class Decoded(NamedTuple):
    """What a frame's bytes mean: the body (None where undecodable) and what was wrong with it."""

    body: Body | None
    faults: tuple[Fault, ...] = ()


class Protocol(StrEnum):
    KAFKA = "kafka"
    KAFKA07 = "kafka07"
    SASL = "sasl"


class Frame(Struct, dict=True, eq=False):
    """One size-delimited request or response: header parsed, `body` decoded when first asked for."""

    ts: int
    """When its first byte was captured."""
    conn: ConnectionId
    side: Side
    raw: bytes
    """The frame behind its size prefix; what was captured of it where `lost` is not 0."""
    api: int
    version: int | None
    correlation_id: int | None
    client_id: str | None
    body_at: int
    """Where the body begins in `raw`."""
    decoder: Callable[[Frame], Decoded]
    protocol: Protocol = Protocol.KAFKA
    end: int = 0
    """When its last byte was captured."""
    packet: int = 0
    """The packet with its last byte."""
    size: int = 0
    """Bytes on the wire, the 4 of the size prefix included."""
    lost: int = 0
    """Bytes of it that the capture does not hold."""
    cut_off: bool = False
    """The connection, or the capture, ended inside it."""
    file: str | None = None

    @cached_property
    def decoded(self) -> Decoded:
        return self.decoder(self)

    @property
    def body(self) -> Body | None:
        """The message as a plain dict, or None where it could not be decoded (see `faults`)."""
        return self.decoded.body

    @property
    def faults(self) -> tuple[Fault, ...]:
        return self.decoded.faults


class Peer(Struct, frozen=True, gc=False):
    """What a session has told about its client so far. None: not known."""

    software_name: str | None = None
    software_version: str | None = None
    principal: str | None = None
    """As Kafka writes it, e.g. User:alice; None when the session's start was not seen."""
    security_protocol: str | None = None


class FetchedPartition(NamedTuple):
    """One partition that a Fetch reads, by its own words or by its fetch session's memory (KIP-227)."""

    topic: str | None
    topic_id: str | None
    partition: int
    offset: int


class Exchange(Struct, eq=False):
    """A request with its response. One of the two may be missing; `outcome` says why."""

    request: Frame | None
    response: Frame | None
    outcome: Outcome
    conn: ConnectionId
    peer: Peer = Peer()
    faults: tuple[Fault, ...] = ()
    """Faults that are not of a body: gaps, incomplete frames. Those of bodies are in the frames."""
    fetched: tuple[FetchedPartition, ...] | None = None
    """For a Fetch in an incremental session: every partition it really reads."""
    topic_names: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Topic id -> (ts when learnt, name): what the input has told so far."""
    tags: list[str] = field(default_factory=list)

    @property
    def ts(self) -> int:
        frame = self.request or self.response
        return frame.ts if frame else 0

    @property
    def weight(self) -> int:
        """Bytes that it holds: of its frames, and of the list of what is fetched, which a small frame can
        make long."""
        held = len(self.fetched) * _REFERENCE if self.fetched else 0
        for frame in (self.request, self.response):
            if frame is not None:
                held += len(frame.raw)
        return held

    @property
    def latency(self) -> int | None:
        """Nanoseconds from the request's first byte to the response's last; None without both."""
        if self.request is None or self.response is None:
            return None
        return self.response.end - self.request.ts


class Ledger(Struct):
    """Where the bytes of one direction went. seen == decoded + undecoded; lost was never seen."""

    seen: int = 0
    decoded: int = 0
    lost: int = 0
    undecoded: int = 0


class Session(Struct, eq=False):
    """One connection, told when it ends (or the input does)."""

    conn: ConnectionId
    opened: int | None
    """When its SYN was captured; None where it began before the capture."""
    closed: int | None
    first: int
    last: int
    protocol: str | None
    """kafka, kafka07, or what the first bytes look like: tls, http, ..., unknown."""
    peer: Peer
    requests: Ledger
    responses: Ledger
    exchanges: int = 0
    faults: int = 0
    file: str | None = None

    @property
    def client(self) -> Endpoint:
        return self.conn.client

    @property
    def broker(self) -> Endpoint:
        return self.conn.broker
