"""Frame bytes -> the routing fields of a header, nothing more.

The reader of a frame wants these four numbers before it knows whether the rest is worth decoding. What cannot
be a header is None or a reason, never an exception: on this path every byte is somebody else's.
"""

from __future__ import annotations

import struct
from functools import cache, lru_cache
from typing import NamedTuple

from kwsniff import wire
from kwsniff.compiled import compiled

_FIXED = struct.Struct(">hhi")
_LENGTH = struct.Struct(">h")
_CORRELATION = struct.Struct(">i")
PRODUCE = 0
_NONE, _UNUSUAL = 255, 254

_cut = compiled("kwsniff.conversation._cut")
_client_ids: dict[bytes, str] = {}
"""Client ids as they were read, a thousand at most: a connection has one, an input has few."""


class RequestHeader(NamedTuple):
    """api, version, correlation_id, client_id as on the wire; body_at: where the body begins in the frame.

    body_at is -1 where the header's tag section is broken: the routing fields stand, the rest cannot be read.
    """

    api: int
    version: int
    correlation_id: int
    client_id: str | None
    body_at: int


def maybe_request_header(frame: bytes) -> RequestHeader | None:
    """The header of a request frame (without size prefix); None where the bytes cannot be one."""
    if _cut is not None:
        found = _cut.request_header(frame, _client_ids, _first_flexible())
        if found is not None:
            return RequestHeader._make(found)
    return plain_request_header(frame)


def plain_request_header(frame: bytes) -> RequestHeader | None:
    """The specification of `maybe_request_header`, and its way with all that is unusual."""
    if len(frame) < 8:
        return None
    api, version, correlation_id = _FIXED.unpack_from(frame)
    if api < 0 or version < 0:
        return None
    request_header = _versions(api, version)[0]
    if request_header == 0:
        return RequestHeader(api, version, correlation_id, None, 8)
    if len(frame) < 10:
        return None
    (length,) = _LENGTH.unpack_from(frame, 8)
    at = 10 + max(length, 0)
    if length < -1 or at > len(frame):
        return None
    client_id = None if length < 0 else frame[10:at].decode("utf-8", "surrogateescape")
    if request_header >= 2:
        at = skip_tags(frame, at) or -1
    return RequestHeader(api, version, correlation_id, client_id, at)


def response_body_at(frame: bytes, api: int, version: int) -> int | None:
    """Where the body of a response frame begins; None where its header is cut short."""
    if len(frame) < 4:
        return None
    return skip_tags(frame, 4) if _versions(api, version)[1] >= 1 else 4


def correlation_id(frame: bytes) -> int | None:
    return _CORRELATION.unpack_from(frame)[0] if len(frame) >= 4 else None


def acks(frame: bytes, header: RequestHeader) -> int | None:
    """The acks of a Produce request: 0 says that no response will come. None where it cannot be told."""
    at: int | None = header.body_at
    if at is None or at < 0:
        return None
    if header.version >= 9:
        found = uvarint(frame, at)
        at = None if found is None else found[1] + max(found[0] - 1, 0)
    elif header.version >= 3:
        length = _LENGTH.unpack_from(frame, at)[0] if at + 2 <= len(frame) else 0
        at += 2 + max(length, 0)
    if at is None or at + 2 > len(frame):
        return None
    return int(_LENGTH.unpack_from(frame, at)[0])


@cache
def _first_flexible() -> bytes:
    """Of each API key the first version whose request header is version 2."""
    return bytes(_first_flexible_of(api) for api in range(128))


def _first_flexible_of(api: int) -> int:
    message = wire.request_of(api)
    if message is None or wire.header_versions(api, 0)[0] == 0:
        return _UNUSUAL
    return _NONE if message.flexible is None else message.flexible.min


@lru_cache(maxsize=4096)
def _versions(api: int, version: int) -> tuple[int, int]:
    """Of the request and the response header; an API that nobody knows is taken for a non-flexible one."""
    return wire.header_versions(api, version) if wire.request_of(api) else (1, 0)


def uvarint(data: bytes, at: int) -> tuple[int, int] | None:
    """An unsigned varint of at most 5 bytes: (value, end), or None."""
    value = 0
    for shift, byte in zip(range(0, 35, 7), data[at : at + 5], strict=False):
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + shift // 7 + 1
    return None


def skip_tags(data: bytes, at: int) -> int | None:
    """The end of the tag section at `at`, or None where there is no whole one."""
    count = uvarint(data, at)
    if count is None or count[0] > len(data):
        return None
    at = count[1]
    for _ in range(count[0]):
        tag = uvarint(data, at)
        size = uvarint(data, tag[1]) if tag else None
        if size is None:
            return None
        at = size[1] + size[0]
    return at if at <= len(data) else None
