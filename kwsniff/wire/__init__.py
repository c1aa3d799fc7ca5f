"""Kafka's wire format: bytes <-> plain dicts, for every API, version and release. Pure: no I/O, no state.

Public and stable: decode, encode, expand, messages, decode_records, decode_request, decode_response.
For the other rooms: message, request_of, response_of, api_name, header_versions, request_header.
A body's keys are Kafka's field names with a lower first letter; bytes stay bytes, a uuid is Kafka's text of
22 characters, a string that is not UTF-8 keeps its bytes as surrogates (PEP 383), unknown tagged fields are
under "_tags": {tag: bytes} of the struct that carried them. "_variant" at the top of a body names the
releases whose deviating layout it has.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from kwsniff.errors import DecodeError, Reason, UnknownMessage
from kwsniff.wire import codec, schema
from kwsniff.wire.schema import Message

__all__ = [
    "Body",
    "MessageInfo",
    "api_name",
    "decode",
    "decode_records",
    "decode_request",
    "decode_response",
    "encode",
    "expand",
    "header_versions",
    "message",
    "messages",
    "request_header",
    "request_of",
    "response_of",
]

Body = dict[str, Any]

API_VERSIONS = 18
CONTROLLED_SHUTDOWN = 7
UNSUPPORTED_VERSION = 35


class MessageInfo(NamedTuple):
    """What there is to decode. Versions are inclusive ranges; flexible ones carry tagged fields (KIP-482)."""

    name: str
    type: str
    """request, response, header, data, metadata, coordinator-key, coordinator-value."""
    api_key: int | None
    """The API key; of metadata and coordinator messages the record type."""
    valid_versions: tuple[int, int]
    flexible_versions: tuple[int, int] | None


def messages() -> list[MessageInfo]:
    """Every message of Kafka 0.8 to 4.x: requests and responses by API key, then the others."""
    return [MessageInfo(m.name, m.type, m.api_key, m.versions, m.flexible) for m in schema.messages()]


def decode(name: str, version: int, data: bytes) -> Body:
    """A message's body, without header and size prefix, e.g. decode("FetchRequest", 12, data).

    Every field of the version is present, a tagged one that is not on the wire with its default.
    Raises DecodeError (reason, path, offset into data, partial body), also for left-over bytes, then with the
    whole body as `.partial`; UnknownMessage for a name or version that no release has.
    """
    return codec.decode_exact(message(name), version, bytes(data))


def encode(name: str, version: int, body: Body) -> bytes:
    """The bytes of a body; a missing key is written as its default.

    Raises EncodeError (with path) for an unknown key, a value of the wrong type or range, and a value that
    the version cannot carry and Kafka's definition does not call ignorable; UnknownMessage as `decode`.
    """
    return codec.encode(message(name), version, body)


def expand(name: str, version: int, body: Body) -> Body:
    """A copy of a body with its embedded payloads (assignments, subscriptions, ...) decoded.

    One that parses and re-encodes to the same bytes becomes {"version": N, ...fields}; others stay bytes.
    """
    from kwsniff.wire import embedded

    return embedded.expand(name, version, body)


def decode_records(data: bytes) -> list[Body]:
    """The record batches and message sets in a `records` field, each a dict with its records."""
    from kwsniff.wire import records

    return records.decode_records(data)


def message(name: str) -> Message:
    """The definition behind a message name, or a former name of it. Raises UnknownMessage."""
    return schema.message(name)


@cache
def request_of(api: int) -> Message | None:
    """The request of an API key, or None where no release has the key."""
    stem = schema.api_stem(api)
    return None if stem is None else schema.message(stem + "Request")


@cache
def response_of(api: int) -> Message | None:
    """The response of an API key, or None where no release has the key."""
    stem = schema.api_stem(api)
    return None if stem is None else schema.message(stem + "Response")


@cache
def api_name(api: int) -> str:
    """As Kafka's ApiKeys has it, e.g. LIST_OFFSETS for 2; UNKNOWN_<key> for a key that no release has."""
    stem = schema.api_stem(api)
    return f"UNKNOWN_{api}" if stem is None else re.sub(r"(?<=[a-z])(?=[A-Z])", "_", stem).upper()


def header_versions(api: int, version: int) -> tuple[int, int]:
    """The versions of request and response header that go with an API and version.

    A version above the known ones counts as flexible when the highest known one is: an ApiVersions request of
    a future version must still be recognised (KIP-511). Raises UnknownMessage for an unknown key.
    """
    request = request_of(api)
    if request is None:
        raise UnknownMessage(f"no API has key {api}")
    if api == CONTROLLED_SHUTDOWN and version == 0:
        return 0, 0
    if request.flexible is None or version < request.flexible.min:
        return 1, 0
    return 2, 0 if api == API_VERSIONS else 1


def request_header(frame: bytes) -> tuple[Body, int]:
    """The header of a request frame (behind its size prefix), and where the body begins.

    Keys: requestApiKey, requestApiVersion, correlationId, clientId (from header version 1), _tags.
    Raises DecodeError; UnknownMessage when the API key is unknown, because then the header's layout is, too.
    """
    routing, _ = codec.decode(schema.message("RequestHeader"), 0, frame)
    version, _ = header_versions(routing["requestApiKey"], routing["requestApiVersion"])
    return codec.decode(schema.message("RequestHeader"), version, frame)


def decode_request(frame: bytes) -> tuple[Body, Body]:
    """Header and body of a request frame (without its size prefix).

    Raises DecodeError (offset from the start of the frame), when the body is at fault with partial = (header,
    partial body); UnknownMessage for an API or version that no release has.
    """
    frame = bytes(frame)
    header, at = request_header(frame)
    request = request_of(header["requestApiKey"])
    assert request is not None  # request_header has looked
    return header, _body_behind(header, request, header["requestApiVersion"], frame, at)


def decode_response(frame: bytes, api: int, version: int) -> tuple[Body, Body]:
    """Header (correlationId, _tags) and body of the response to a request of that API and version.

    A broker that does not know the version of an ApiVersions request answers with error 35 in a body of
    version 0 (KIP-511); it is decoded as that. Errors as `decode_request`.
    """
    frame = bytes(frame)
    response = response_of(api)
    if response is None:
        raise UnknownMessage(f"no API has key {api}")
    header, at = codec.decode(schema.message("ResponseHeader"), header_versions(api, version)[1], frame)
    if api == API_VERSIONS and version > 0:
        body = _maybe_refusal(response, frame, at)
        if body is not None:
            return header, body
    return header, _body_behind(header, response, version, frame, at)


def _maybe_refusal(response: Message, frame: bytes, at: int) -> Body | None:
    """The version 0 body of an ApiVersions answer with error 35; None when it is anything else."""
    if frame[at : at + 2] != UNSUPPORTED_VERSION.to_bytes(2, "big"):
        return None
    try:
        return codec.decode_exact(response, 0, frame, at)
    except DecodeError:
        return None


def _body_behind(header: Body, definition: Message, version: int, frame: bytes, at: int) -> Body:
    try:
        return codec.decode_exact(definition, version, frame, at)
    except DecodeError as error:
        raise DecodeError(
            Reason(error.reason),
            error.message,
            path=error.path,
            offset=error.offset,
            partial=(header, error.partial),
        ) from None
