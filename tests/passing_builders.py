"""Frames on their way through the proxy, built from bodies."""

from __future__ import annotations

import struct
from typing import Any

from kwsniff import wire
from kwsniff.conversation.bodies import decode_body
from kwsniff.conversation.headers import maybe_request_header
from kwsniff.model import ConnectionId, Endpoint, Exchange, Frame, Outcome, Peer, Side
from kwsniff.passing import Passed, Passing

CONN = ConnectionId(Endpoint("10.0.0.1", 50001), Endpoint("10.0.0.9", 9092), 0)
NOW = 1_700_000_000_000_000_000
MS = 1_000_000


def request_bytes(api: int, version: int, body: dict[str, Any] | bytes, correlation: int = 7) -> bytes:
    """A request frame without size prefix; client id `c`. The header is built by hand."""
    header = struct.pack(">hhih", api, version, correlation, 1) + b"c"
    header += b"\0" * (wire.header_versions(api, version)[0] == 2)
    message = wire.request_of(api)
    assert message is not None
    return header + (body if isinstance(body, bytes) else wire.encode(message.name, version, body))


def response_bytes(api: int, version: int, body: dict[str, Any] | bytes, correlation: int = 7) -> bytes:
    header = struct.pack(">i", correlation) + b"\0" * (wire.header_versions(api, version)[1] == 1)
    message = wire.response_of(api)
    assert message is not None
    return header + (body if isinstance(body, bytes) else wire.encode(message.name, version, body))


def asked(api: int, version: int, body: dict[str, Any] | bytes, correlation: int = 7, ts: int = NOW) -> Frame:
    raw = request_bytes(api, version, body, correlation)
    header = maybe_request_header(raw)
    assert header is not None
    return _frame(Side.REQUEST, raw, api, version, correlation, header.body_at, ts)


def answered(
    api: int, version: int, body: dict[str, Any] | bytes, correlation: int = 7, ts: int = NOW + MS
) -> Frame:
    raw = response_bytes(api, version, body, correlation)
    return _frame(
        Side.RESPONSE, raw, api, version, correlation, 4 + (wire.header_versions(api, version)[1] == 1), ts
    )


def _frame(side: Side, raw: bytes, api: int, version: int, correlation: int, body_at: int, ts: int) -> Frame:
    return Frame(
        ts=ts, conn=CONN, side=side, raw=raw, api=api, version=version, correlation_id=correlation,
        client_id="c", body_at=body_at, decoder=decode_body, end=ts, size=len(raw) + 4,
    )  # fmt: skip


def passing(frame: Frame, request: Frame | None = None) -> Passing:
    return Passing(frame=frame, original=frame, request=request, now=frame.ts)


def passed(request: Frame, response: Frame | None) -> Passed:
    outcome = Outcome.ANSWERED if response else Outcome.CLOSED
    exchange = Exchange(request, response, outcome, CONN, Peer())
    return Passed(exchange=exchange, sent=request, received=response)
