"""A frame's bytes without its secrets: each replaced by as many bytes of filler, so that the rest decodes.

In: frames in the order of their connection. Out: bytes, and in a few words what was done to them. What is
secret the schema marks, and `redact` says it of settings. Where it cannot be told which bytes are the secret
ones (a body that does not decode, an API that nobody knows), the whole body is filler: rather too much than a
password. Of SASL tokens the name stays, as in the JSON line. Knows nothing of files.
"""

from __future__ import annotations

import base64
import re
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import json

from kwsniff import wire
from kwsniff.conversation.sasl import Authentication
from kwsniff.errors import DecodeError, EncodeError, Reason, UnknownMessage
from kwsniff.model import Body, Frame, Protocol, Side
from kwsniff.output.present import plan
from kwsniff.output.redact import hides
from kwsniff.wire.codec import VARIANT
from kwsniff.wire.schema import Field, Message

FILLER = b"x"
FETCH, SASL_HANDSHAKE = 1, 17
_METADATA = "__cluster_metadata"
_METADATA_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
_MARKERS = (_METADATA.encode(), bytes(15) + b"\1")
"""A Fetch answer without either is of no metadata: as a name, and as a topic id."""
_OPAQUE = {"EnvelopeRequest": "requestData", "EnvelopeResponse": "responseData"}
_BEARER = re.compile(rb"(\x01auth=bearer )[^.\x01]*\.([\w=-]+)\.", re.IGNORECASE)
_SNAPSHOT = "FetchSnapshotResponse"


class Blanked(NamedTuple):
    """raw: the frame's bytes, the frame's own where it has no secrets. done: what was done to them, or ""."""

    raw: bytes
    done: str = ""


class Blanker:
    """Blanks the frames of one connection; remembers its SASL mechanism, which tokens do not tell."""

    def __init__(self) -> None:
        self._mechanism = ""

    def blanked(self, frame: Frame, request: Frame | None = None) -> Blanked:
        """request: of a response, the request that it answers."""
        if frame.protocol is Protocol.KAFKA07:
            return Blanked(frame.raw)  # it has no secrets
        if frame.protocol is Protocol.SASL:
            return Blanked(token(frame.raw, self._mechanism), "token replaced by filler")
        message = wire.request_of(frame.api) if frame.side is Side.REQUEST else wire.response_of(frame.api)
        if message is None:
            return _without_body(frame, "its API is not known")
        if frame.api == SASL_HANDSHAKE and frame.side is Side.REQUEST:
            self._mechanism = (frame.body or {}).get("mechanism") or ""
        if not _may_hold_secrets(message) or (
            frame.api == FETCH and not any(marker in frame.raw for marker in _MARKERS)
        ):
            return Blanked(frame.raw)
        if frame.body is None or frame.version is None or frame.body_at < 0:
            return _without_body(frame, "it does not decode")
        return self._body(message, frame, frame.body, frame.version, request)

    def _body(
        self, message: Message, frame: Frame, body: Body, version: int, request: Frame | None
    ) -> Blanked:
        asked = request.body if request is not None else None
        cleaned = _cleaned(message, version, body, asked, self._mechanism)
        if cleaned == body and not frame.faults:
            return Blanked(frame.raw)
        try:
            encoded = wire.encode(message.name, version, cleaned)
        except (EncodeError, UnknownMessage):
            return _without_body(frame, "it cannot be written again")
        trailing = sum(
            len(frame.raw) - (fault.offset or 0)
            for fault in frame.faults
            if fault.reason is Reason.TRAILING_BYTES
        )
        return Blanked(frame.raw[: frame.body_at] + encoded + FILLER * trailing, "secrets replaced by filler")


def token(data: bytes, mechanism: str) -> bytes:
    """A SASL token of which only the user's name, and what is no secret of the mechanism's form, is left."""
    if mechanism == "PLAIN":  # RFC 4616: [authzid] NUL authcid NUL passwd
        parts = data.split(b"\0")
        if len(parts) == 3:
            return b"\0".join((*parts[:2], FILLER * len(parts[2])))
    if mechanism.startswith("SCRAM-"):  # RFC 5802
        return b",".join(map(_scram, data.split(b",")))
    if mechanism == "OAUTHBEARER":
        return _bearer(data)
    if data[:1] == b"\x60":  # RFC 2743 section 3.1: what makes it known as GSSAPI's first token
        at = 2 + (data[1] & 0x7F if data[1:2] > b"\x7f" else 0)
        kept = at + 2 + data[at + 1] if data[at : at + 1] == b"\x06" and len(data) > at + 1 else 0
        return data[:kept] + FILLER * len(data[kept:])
    return FILLER * len(data)


def _bearer(data: bytes) -> bytes:
    """RFC 7628, with a JWT whose claims are the name alone; where that does not fit, nothing is left."""
    reader = Authentication("OAUTHBEARER")
    reader.client_token(data)
    reader.server_token(b"")
    found = _BEARER.search(data)
    blank = FILLER * len(data)
    if found is None or reader.principal is None:
        return blank
    start, end = found.span(2)
    claims = json.encode({"sub": reader.principal.removeprefix("User:").encode("utf-8", "replace").decode()})
    coded = base64.urlsafe_b64encode(claims.ljust((end - start) * 3 // 4)).rstrip(b"=")
    if len(coded) != end - start:
        return blank
    head = blank[: found.start()] + found[1] + blank[found.end(1) : start - 1]
    return head + b"." + coded + b"." + blank[end + 1 :]


def _scram(attribute: bytes) -> bytes:
    """One attribute: its letter stays, of the name also the value. GS2 flags have no value."""
    if attribute in (b"n", b"y") or attribute.startswith(b"n="):
        return attribute
    kept = 2 if attribute[1:2] == b"=" else 0
    return attribute[:kept] + FILLER * len(attribute[kept:])


def _without_body(frame: Frame, why: str) -> Blanked:
    """The header as it was, the rest filler. An API that nobody knows may as well carry secrets."""
    at = frame.body_at
    if frame.side is Side.RESPONSE:
        at = max(at, 4)  # the correlation id, also of one that answers nothing
    elif at < 0:  # a header whose tags are broken: all up to the client id is sound
        at = 10 + max(int.from_bytes(frame.raw[8:10], "big", signed=True), 0)
    return Blanked(frame.raw[:at] + FILLER * len(frame.raw[at:]), f"body replaced by filler, as {why}")


@lru_cache(maxsize=1024)
def _may_hold_secrets(message: Message) -> bool:
    """In any of its versions: what is said of it need not be true of the bytes."""
    return (
        message.name in _OPAQUE
        or message.name in ("FetchResponse", _SNAPSHOT)
        or any(_marked(variant.fields) for variant in (message, *message.variants))
    )


def _marked(fields: tuple[Field, ...]) -> bool:
    return any(field.mark or _marked(field.fields) for field in fields)


def _cleaned(message: Message, version: int, body: Body, asked: Body | None, mechanism: str) -> Body:
    """The body with filler for secrets; shares with it what has none."""
    if (key := _OPAQUE.get(message.name)) is not None:
        inner = _forwarded(message, body.get(key), (asked or body).get("requestData"))
        return {**body, key: inner}
    node = plan(message.name, version, body.get(VARIANT), False)
    if node is None:
        return body
    return _struct(node, body, mechanism, metadata=message.name == _SNAPSHOT, hidden=False)


def _struct(node: Any, body: Body, mechanism: str, *, metadata: bool, hidden: bool) -> Body:
    """hidden: whether a sensitive config entry is around; metadata: whether records are of KRaft's log."""
    metadata = (
        metadata or body.get(node.name_key) == _METADATA or body.get(node.id_key) in (_METADATA, _METADATA_ID)
    )
    cleaned = dict(body)
    for key, (treatment, nested) in node.fields.items():
        value = body.get(key)
        if value is None:
            continue
        if treatment == "struct":
            below = hidden or ("isSensitive" in body and hides(body))  # as its synonyms have no flag
            cleaned[key] = _below(nested, value, mechanism, metadata=metadata, hidden=below)
        elif treatment == "records" and metadata:
            cleaned[key] = b""  # credentials and settings, under a checksum and perhaps compressed
        elif treatment == "secret" and key == "authBytes":
            cleaned[key] = token(value, mechanism)
        elif treatment == "secret" or (treatment == "config" and (hidden or hides(body))):
            cleaned[key] = _filler(value)
    return cleaned


def _below(node: Any, value: Any, mechanism: str, *, metadata: bool, hidden: bool) -> Any:
    if isinstance(value, list):
        return [_below(node, item, mechanism, metadata=metadata, hidden=hidden) for item in value]
    if not isinstance(value, dict) or node is None:
        return value
    return _struct(node, value, mechanism, metadata=metadata, hidden=hidden)


def _filler(value: Any) -> Any:
    if isinstance(value, str):
        return FILLER.decode() * len(value.encode("utf-8", "surrogateescape"))
    return FILLER * len(value) if isinstance(value, bytes) else value


def _forwarded(message: Message, data: bytes | None, asked: bytes | None) -> bytes | None:
    """A frame inside of an Envelope (KIP-590). One that does not decode may hold any secret."""
    if not data:
        return data
    try:
        header, at = wire.request_header(asked or b"")
        api, version = header["requestApiKey"], header["requestApiVersion"]
        if message.name == "EnvelopeRequest":
            inner, body = wire.request_of(api), wire.decode_request(data)[1]
        else:
            inner, body = wire.response_of(api), wire.decode_response(data, api, version)[1]
            at = len(data) - len(wire.encode(inner.name, version, body)) if inner else 0
        if inner is None or inner.name in _OPAQUE or at < 4:
            return _filler(data)  # type: ignore[no-any-return]
        return data[:at] + wire.encode(inner.name, version, _cleaned(inner, version, body, None, ""))
    except (DecodeError, EncodeError, UnknownMessage):
        return _filler(data)  # type: ignore[no-any-return]
