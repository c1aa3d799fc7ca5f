"""What do these first bytes speak? Kafka 0.8+, Kafka 0.7, a bare SASL token, or something else by name.

The answer depends on the stream only, never on how it was cut into chunks: callers hand over the first frame
whole, or its first `ENOUGH` bytes when it is longer. A plausible header is not enough (a ZooKeeper connect
request has one): the body must decode, or the client id must look like one.
"""

from __future__ import annotations

from kwsniff import wire
from kwsniff.conversation.headers import RequestHeader, maybe_request_header
from kwsniff.errors import DecodeError, UnknownMessage
from kwsniff.model import Protocol
from kwsniff.wire import kafka07

ENOUGH = 65_536
"""Bytes of a first frame after which its header has to convince by itself."""

_SIGNATURES = (
    (b"\x16\x03", "tls"),
    (b"\x15\x03", "tls"),
    (b"SSH-", "ssh"),
    (b"GET ", "http"),
    (b"POST ", "http"),
    (b"PUT ", "http"),
    (b"HEAD ", "http"),
    (b"DELETE ", "http"),
    (b"OPTIONS ", "http"),
    (b"CONNECT ", "http"),
    (b"PATCH ", "http"),
    (b"HTTP/", "http"),
    (b"PRI * HTTP/2", "http2"),
    (b"\x0d\x0a\x0d\x0a\x00\x0d\x0aQUIT\x0a", "proxy-protocol"),
    (b"PROXY ", "proxy-protocol"),
)

_GSSAPI_TOKEN = 0x60
"""The tag of an initial GSSAPI token (RFC 2743 section 3.1)."""


def name_protocol(head: bytes) -> str | None:
    """The protocol that these first bytes are known to belong to; None: no idea."""
    return next((name for signature, name in _SIGNATURES if head.startswith(signature)), None)


def first_frame_protocol(frame: bytes, size: int) -> Protocol | None:
    """What a connection speaks whose client's first frame, of `size` bytes, this is, or a prefix of it."""
    whole = len(frame) == size
    if not whole and kafka07.begins_like_request(frame, size):
        # Asked first: for a prefix the header below has little to prove, and no 0.8 request passes this.
        return Protocol.KAFKA07
    header = maybe_request_header(frame)
    if header is not None and _is_kafka(frame, header, whole):
        return Protocol.KAFKA
    if whole and kafka07.looks_like_request(frame):
        return Protocol.KAFKA07
    if frame[:1] == bytes([_GSSAPI_TOKEN]) and _is_gssapi(frame, whole):
        return Protocol.SASL
    return None


def decodes(frame: bytes, header: RequestHeader) -> bool:
    """Whether the whole body is what the header says."""
    message = wire.request_of(header.api)
    if message is None or header.body_at < 0:
        return False
    try:
        wire.decode(message.name, header.version, frame[header.body_at :])
    except (DecodeError, UnknownMessage):
        return False
    return True


def known(header: RequestHeader) -> bool:
    """Whether some release of Kafka has this API and version."""
    message = wire.request_of(header.api)
    return message is not None and message.versions.covers(header.version)


def is_client_id(text: str | None) -> bool:
    """A client id that a person or a library would choose: printable, not empty, not endless."""
    return text is not None and 0 < len(text) <= 255 and text.isprintable()


def _is_kafka(frame: bytes, header: RequestHeader, whole: bool) -> bool:
    named = is_client_id(header.client_id)
    if known(header):
        return named or not whole or decodes(frame, header)
    # A newer Kafka than we know, or somebody's own API: the client id is the only witness.
    return named and header.version <= 100 and header.api <= 10_000


def _is_gssapi(frame: bytes, whole: bool) -> bool:
    """An ASN.1 length that fits, then an object identifier (RFC 2743 section 3.1)."""
    if len(frame) < 4:
        return False
    first, at = frame[1], 2
    if first >= 0x80:
        count = first & 0x7F
        length, at = int.from_bytes(frame[2 : 2 + count], "big"), 2 + count
    else:
        length = first
    return (not whole or at + length == len(frame)) and frame[at : at + 1] == b"\x06"
