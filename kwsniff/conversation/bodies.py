"""Frame -> its body and what was wrong with it. Where the codec's exceptions become Faults.

Reached through `Frame.body`, so only for frames whose body somebody wants.
"""

from __future__ import annotations

from kwsniff import wire
from kwsniff.errors import DecodeError, Reason, UnknownMessage
from kwsniff.model import Body, Decoded, Fault, Frame, Side
from kwsniff.wire import kafka07

_HEAD = 64


def decode_body(frame: Frame) -> Decoded:
    """A request or response of Kafka 0.8+."""
    if frame.lost:
        return Decoded(None, (missing(frame),))
    try:
        return Decoded(_decode(frame))
    except UnknownMessage as error:
        reason, text = Reason.UNKNOWN_VERSION, str(error)
        if wire.request_of(frame.api) is None:
            # Of a known API the bytes may be a secret that only its schema could tell.
            reason = Reason.UNKNOWN_API
            text += f"; the body begins {frame.raw[frame.body_at :][:_HEAD].hex()}"
        return Decoded(None, (fault_of(frame, reason, text, offset=frame.body_at),))
    except DecodeError as error:
        return _undecodable(frame, error, max(frame.body_at, 0) if frame.side is Side.REQUEST else 0)


def decode_token(frame: Frame) -> Decoded:
    """A bare SASL token. The body has the shape of a SaslAuthenticate body, so that it is redacted alike."""
    return Decoded({"authBytes": frame.raw})


def decode_body07(frame: Frame, asked: Frame | None = None) -> Decoded:
    """A request or response of Kafka 0.7; a response needs the request that it answers."""
    if frame.lost:
        return Decoded(None, (missing(frame),))
    try:
        if frame.side is Side.REQUEST:
            return Decoded(kafka07.decode_request(frame.raw)[1])
        asked_body = (asked.body if asked else None) or {}
        return Decoded(kafka07.decode_response(frame.raw, frame.api, asked_body))
    except DecodeError as error:
        return _undecodable(frame, error, 0)


def missing(frame: Frame) -> Fault:
    """What is to be said of a frame that is not all there."""
    if frame.cut_off:
        reason, text = Reason.FRAME_INCOMPLETE, "incomplete frame: the stream ends {} bytes short of its {}"
    else:
        reason, text = Reason.LOST_BYTES, "{} of the frame's {} bytes are not in the capture"
    text = text.format(frame.lost, frame.size)
    return fault_of(frame, reason, text, offset=len(frame.raw), lost=frame.lost)


def _decode(frame: Frame) -> Body:
    version = frame.version or 0
    if frame.side is Side.REQUEST:
        name = _name(frame, "Request")
        if frame.body_at < 0:
            return wire.decode_request(frame.raw)[1]
        return wire.decode(name, version, frame.raw[frame.body_at :])
    _name(frame, "Response")
    return wire.decode_response(frame.raw, frame.api, version)[1]


def _name(frame: Frame, kind: str) -> str:
    message = wire.request_of(frame.api) if kind == "Request" else wire.response_of(frame.api)
    if message is None:
        raise UnknownMessage(f"unknown API key {frame.api}")
    return message.name


def _undecodable(frame: Frame, error: DecodeError, base: int) -> Decoded:
    body = error.partial if error.reason is Reason.TRAILING_BYTES else None
    if isinstance(body, tuple):
        body = body[1]
    offset = base + error.offset
    found = fault_of(frame, error.reason, error.message, path=error.path, offset=offset)
    return Decoded(body, (found,))


def fault_of(
    frame: Frame,
    reason: Reason,
    message: str,
    *,
    path: str = "",
    offset: int | None = None,
    lost: int | None = None,
) -> Fault:
    """A fault in `frame`: whose, where, and the bytes from `offset` on."""
    return Fault(
        ts=frame.ts,
        reason=reason,
        message=message,
        conn=frame.conn,
        side=frame.side,
        api=frame.api if frame.version is not None else None,
        version=frame.version,
        correlation_id=frame.correlation_id,
        path=path,
        offset=offset,
        packet=frame.packet,
        lost=lost,
        file=frame.file,
        raw=frame.raw[offset : offset + _HEAD] if offset is not None else b"",
    )
