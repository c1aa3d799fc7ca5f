"""A frame's bytes with other names, addresses, keys and values in them, so that the rest decodes as before.

In: frames in the order of their connection, and pseudonyms. Out: bytes. Every text and every opaque field of
the schema is taken for a name unless `naming` knows better; numbers, times and the order of things stay, and
so do codecs, offsets and the lengths of keys and values. Checksums are right again, those that were wrong are
wrong again. What cannot be read through is refused (`Unreadable`): it may hold anything. Knows no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Any

from kwsniff import wire
from kwsniff.errors import DecodeError, EncodeError, KwsniffError, Reason, UnknownMessage
from kwsniff.model import Body, Frame, Protocol, Side
from kwsniff.output.blanking import FILLER, SASL_HANDSHAKE, Blanker
from kwsniff.output.naming import HOST, PRINCIPAL, kind_of
from kwsniff.output.pseudonyms import Pseudonyms
from kwsniff.wire import codec, records, schema
from kwsniff.wire.schema import Field

_CRC_AT = {0: 12, 1: 12, 2: 17}
_MARKERS = (b"\0\0\0\0", b"\0\0\0\1")
_MARKER_SIZE = 6
"""Of a transaction's end (KIP-98), which brokers write: the keys, and the length of the value."""
_VERSION = Struct(">h")
_PAYLOADS = {
    "assignment": "ConsumerProtocolAssignment",
    "memberAssignment": "ConsumerProtocolAssignment",
    "memberMetadata": "ConsumerProtocolSubscription",
    "metadata": "ConsumerProtocolSubscription",
}
"""Bytes in which the members of a group tell each other topics; what else they hold is opaque."""
_FALLBACK = {"errorCode", "apiKeys"}
"""Version 0 of an ApiVersions answer, which also answers versions that the broker does not have (KIP-511)."""
_ANYBODY = frozenset(("", "*", "ANONYMOUS"))


class Unreadable(KwsniffError):
    """A frame that cannot be read through, so that nobody knows what it names."""


class Anonymiser:
    """The frames of one connection."""

    def __init__(self, names: Pseudonyms) -> None:
        self._names = names
        self._blanker = Blanker()
        self._mechanism = ""

    def anonymised(self, frame: Frame, request: Frame | None = None) -> bytes:
        """request: of a response, the request that it answers. Secrets are filler. Raises Unreadable."""
        if frame.protocol is Protocol.KAFKA07:
            raise Unreadable("of Kafka 0.7")
        if frame.api == SASL_HANDSHAKE and frame.side is Side.REQUEST:
            self._mechanism = (frame.body or {}).get("mechanism") or ""
        if frame.protocol is Protocol.SASL:
            return self._token(self._blanker.blanked(frame, request).raw)
        if frame.body is None or frame.version is None or frame.lost:
            raise Unreadable("that cannot be decoded")
        try:
            return self._kafka(frame, frame.version, request)
        except (DecodeError, EncodeError, UnknownMessage) as error:
            raise Unreadable("that cannot be decoded") from error

    def _kafka(self, frame: Frame, version: int, request: Frame | None) -> bytes:
        message = wire.request_of(frame.api) if frame.side is Side.REQUEST else wire.response_of(frame.api)
        if message is None or message.name.startswith("Envelope"):
            raise Unreadable("that cannot be decoded" if message is None else "inside of others (Envelope)")
        raw = self._blanker.blanked(frame, request).raw
        left_over = sum(
            len(frame.raw) - (fault.offset or 0)
            for fault in frame.faults
            if fault.reason is Reason.TRAILING_BYTES
        )
        raw = raw[: len(raw) - left_over]
        of_request, of_response = wire.header_versions(frame.api, version)
        if frame.side is Side.REQUEST:
            (header, body), kind, header_version = wire.decode_request(raw), "RequestHeader", of_request
        else:
            header, body = wire.decode_response(raw, frame.api, version)
            kind, header_version = "ResponseHeader", of_response
        if header.get("clientId"):
            header["clientId"] = self._names.name("client", header["clientId"])
        asked = (request.body if request is not None else body) or {}
        layout = codec.layout(message, version, body)
        changed = self._struct(layout.name, layout.fields, version, body, asked)
        if codec.VARIANT in body:
            changed[codec.VARIANT] = body[codec.VARIANT]
        if frame.api == wire.API_VERSIONS and body.keys() == _FALLBACK:
            version = 0
        head = wire.encode(kind, header_version, _tagless(header))
        return head + wire.encode(message.name, version, changed) + FILLER * left_over

    def _struct(self, name: str, fields: Sequence[Field], version: int, body: Body, asked: Body) -> Body:
        """A copy of a struct. What the schema does not know is filler."""
        there = _there(tuple(fields), version)
        changed: Body = {}
        for key, value in body.items():
            field = there.get(key)
            if field is not None:
                changed[key] = self._value(name, field, version, value, body, asked)
        return _tagless(changed | {"_tags": body["_tags"]}) if body.get("_tags") else changed

    def _value(self, name: str, field: Field, version: int, value: Any, holder: Body, asked: Body) -> Any:
        if isinstance(value, list):
            return [self._value(name, field, version, item, holder, asked) for item in value]
        if isinstance(value, dict):
            return self._struct(name, field.fields, version, value, asked)
        if isinstance(value, str):
            if field.type == "uuid":
                return self._names.uuid(value)
            return self._text(kind_of(name, field, value, holder, asked), value)
        if isinstance(value, bytes):
            return self._records(value) if field.type == "records" else self._bytes(field, value)
        return value

    def _text(self, kind: str | None, value: str) -> str:
        if kind is None or value in _ANYBODY:
            return value
        if kind == HOST:
            return self._names.host(value)
        if kind == PRINCIPAL:
            type_, colon, user = value.partition(":")
            if colon and user in _ANYBODY:
                return value
            named = self._names.name("user", user if colon else value)
            return f"User:{named}" if colon and type_ == "User" else named
        return self._names.name(kind, value)

    def _bytes(self, field: Field, value: bytes) -> bytes:
        if field.key == "authBytes":
            return self._token(value)
        payload = _PAYLOADS.get(field.key)
        if payload is not None and len(value) > _VERSION.size:
            found = self._payload(payload, value)
            if found is not None:
                return found
        return self._names.content(field.key, value)

    def _payload(self, name: str, data: bytes) -> bytes | None:
        """A subscription or an assignment of consumers; None: it is none. A higher version is read as the
        highest that is known, as consumers do."""
        message = schema.message(name)
        version = min(_VERSION.unpack_from(data)[0], message.versions.max)
        try:
            body = codec.decode_exact(message, version, data, _VERSION.size)
            changed = self._struct(name, message.fields, version, body, {})
            return data[: _VERSION.size] + codec.encode(message, version, changed)
        except (DecodeError, EncodeError, UnknownMessage):
            return None

    def _token(self, token: bytes) -> bytes:
        """A SASL token whose secrets are filler already, with another name for the user's."""
        if self._mechanism == "PLAIN" and token.count(b"\0") == 2:
            authzid, authcid, password = token.split(b"\0")
            return b"\0".join((self._user(authzid), self._user(authcid), password))
        if self._mechanism.startswith("SCRAM-"):
            return b",".join(
                part[:2] + self._user(part[2:]) if part.startswith(b"n=") else part
                for part in token.split(b",")
            )
        return FILLER * len(token)

    def _user(self, name: bytes) -> bytes:
        return self._names.name("user", name.decode("utf-8", "surrogateescape")).encode()

    def _records(self, data: bytes) -> bytes:
        """Entry by entry, as one may unpack to much. A cut-off one at the end is left out."""
        out: list[bytes] = []
        for entry in records.Scan(data):
            if isinstance(entry, DecodeError):
                raise entry
            control = bool(entry.header.get("isControl"))
            found = [self._record(record, control) for record in entry.records()]
            written = records.encode_records([{**entry.header, "records": found}])
            if not entry.header["crcValid"]:
                at = _CRC_AT[entry.header["magic"]]
                wrong = bytes(byte ^ 0xFF for byte in written[at : at + 4])
                written = written[:at] + wrong + written[at + 4 :]
            out.append(written)
        return b"".join(out)

    def _record(self, record: Body, control: bool) -> Body:
        key, value = record["key"], record["value"]
        content = self._names.content
        # The flag of the batch alone proves nothing.
        is_marker = control and key in _MARKERS and not record["headers"]
        kept = is_marker and value is not None and len(value) == _MARKER_SIZE
        return {
            **record,
            "key": key if key is None or is_marker else content("key", key),
            "value": value if value is None or kept else content("value", value),
            "headers": [
                {
                    "key": content("header", header["key"].encode("utf-8", "surrogateescape")).decode(),
                    "value": None if header["value"] is None else content("value", header["value"]),
                }
                for header in record["headers"]
            ],
        }


@lru_cache(maxsize=8192)
def _there(fields: tuple[Field, ...], version: int) -> dict[str, Field]:
    return {field.key: field for field in fields if field.versions.covers(version)}


def _tagless(body: Body) -> Body:
    """Tags that nobody knows, as long as they were."""
    tags = body.get("_tags")
    return {**body, "_tags": {tag: FILLER * len(raw) for tag, raw in tags.items()}} if tags else body
