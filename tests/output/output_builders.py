"""Exchanges as the conversation would hand them over, built from bodies."""

from __future__ import annotations

from typing import Any

from kwsniff import wire
from kwsniff.model import (
    ConnectionId,
    Decoded,
    Endpoint,
    Exchange,
    Fault,
    Frame,
    Outcome,
    Peer,
    Protocol,
    Side,
)

CLIENT = Endpoint("127.0.0.1", 49878)
BROKER = Endpoint("127.0.0.1", 9092)
CONN = ConnectionId(CLIENT, BROKER, 0)
NOON = 1_795_240_800_123_456_789  # 2026-11-21T06:00:00.123456789Z


def frame(side: Side, api: int, version: int | None, body: Any, **fields: Any) -> Frame:
    """A frame that decodes to `body`. Its bytes, unless given, are those of the body."""
    faults: tuple[Fault, ...] = fields.pop("faults", ())
    raw = fields.pop("raw", None)
    if raw is None:
        raw = encoded(side, api, version, body)
    values: dict[str, Any] = {
        "ts": NOON if side is Side.REQUEST else NOON + 1_000_000,
        "end": NOON + 3_210_000,
        "conn": CONN,
        "correlation_id": 7,
        "client_id": "c" if side is Side.REQUEST else None,
        "body_at": 0,
        "decoder": lambda _: Decoded(body, faults),
        "packet": 42 if side is Side.REQUEST else 43,
        "size": 1118 if side is Side.REQUEST else 58,
        "file": "a.pcapng",
        **fields,
    }
    return Frame(side=side, raw=raw, api=api, version=version, **values)


def encoded(side: Side, api: int, version: int | None, body: Any) -> bytes:
    message = wire.request_of(api) if side is Side.REQUEST else wire.response_of(api)
    if message is None or version is None or body is None:
        return b""
    return wire.encode(message.name, version, body)


def whole(side: Side, api: int, version: int, body: dict[str, Any]) -> dict[str, Any]:
    """The body with every field of its version, as the codec gives it."""
    message = wire.request_of(api) if side is Side.REQUEST else wire.response_of(api)
    assert message is not None
    return wire.decode(message.name, version, wire.encode(message.name, version, body))


def asked(api: int, version: int, body: dict[str, Any], **fields: Any) -> Frame:
    return frame(Side.REQUEST, api, version, whole(Side.REQUEST, api, version, body), **fields)


def answered(api: int, version: int, body: dict[str, Any], **fields: Any) -> Frame:
    return frame(Side.RESPONSE, api, version, whole(Side.RESPONSE, api, version, body), **fields)


def exchange(request: Frame | None, response: Frame | None = None, **fields: Any) -> Exchange:
    outcome = Outcome.ANSWERED if response else Outcome.NO_ACK
    values: dict[str, Any] = {
        "outcome": outcome,
        "conn": CONN,
        "peer": Peer("librdkafka", "2.5.0", "User:ANONYMOUS", "PLAINTEXT"),
        **fields,
    }
    return Exchange(request, response, **values)


def token(side: Side, data: bytes) -> Frame:
    """A bare SASL token."""
    body = {"authBytes": data}
    return frame(side, -1, None, body, raw=data, protocol=Protocol.SASL, correlation_id=None, client_id=None)
