"""What a client that has just connected speaks, by its first bytes; what to say of bytes that are no Kafka.

As `connection.Connection` decides for a connection that it saw from its first byte on. Here somebody waits
for the answer: it is given as soon as the bytes allow.
"""

from __future__ import annotations

from typing import NamedTuple

from kwsniff.conversation import detect
from kwsniff.conversation.framer import BadSize
from kwsniff.conversation.headers import maybe_request_header
from kwsniff.conversation.inlet import Inlet
from kwsniff.errors import Reason
from kwsniff.model import Protocol, Side

_ENOUGH_TO_NAME = 12


class Refusal(NamedTuple):
    """Why a connection cannot go on."""

    reason: Reason
    message: str
    offset: int = 0
    raw: bytes = b""
    protocol: str | None = None
    """What it looks like, where its first bytes are to blame."""


def opening(inlet: Inlet, max_frame: int) -> Protocol | Refusal | None:
    """What the client speaks; None: more bytes are needed."""
    framer = inlet.framer
    head = framer.head(4)
    if len(head) < 4:
        return _unread(inlet) if inlet.ended and inlet.first else None
    size = int.from_bytes(head, "big", signed=True)
    if not 0 < size <= max_frame:
        return _bad_opening(inlet, size, max_frame)
    amount = min(size, detect.ENOUGH)
    if inlet.waiting < 4 + amount and not inlet.ended:
        return None
    return detect.first_frame_protocol(framer.head(4 + amount)[4:], size) or _unread(inlet)


def bad_size(found: BadSize, side: Side, first: bytes, max_frame: int) -> Refusal:
    """A size that no frame can have. first: the direction's first bytes."""
    if found.offset == 0 and side is Side.RESPONSE and (name := detect.name_protocol(first)):
        text = f"not Kafka: the broker's side looks like {name.upper()}"
        return Refusal(Reason.NOT_KAFKA, text, 0, first, name)
    if found.size > max_frame:
        text = f"a frame of {found.size} bytes is over the limit of {max_frame}"
        return Refusal(Reason.FRAME_TOO_LARGE, text, found.offset, found.head)
    text = f"a frame cannot have {found.size} bytes"
    return Refusal(Reason.SIZE_INVALID, text, found.offset, found.head)


def _bad_opening(inlet: Inlet, size: int, max_frame: int) -> Refusal | None:
    named = detect.name_protocol(inlet.first) is not None
    if inlet.waiting < _ENOUGH_TO_NAME and not inlet.ended and not named:
        return None
    header = maybe_request_header(inlet.first[4:] + bytes(2))
    if size > max_frame and not named and header is not None and detect.known(header):
        return bad_size(BadSize(size, 0, 0, 0, inlet.first), Side.REQUEST, inlet.first, max_frame)
    return _unread(inlet)


def _unread(inlet: Inlet) -> Refusal:
    name = detect.name_protocol(inlet.first)
    what = f"it looks like {name.upper()}" if name else "its first bytes are no Kafka request"
    hint = " (a TLS client on a plain port)" if name == "tls" else ""
    return Refusal(Reason.NOT_KAFKA, f"not Kafka: {what}{hint}", 0, inlet.first, name or "unknown")
