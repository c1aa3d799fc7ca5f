"""Kafka 0.7: five requests and their answers, without versions, correlation ids and client ids.

In: frames behind their size prefix. Out: bodies as plain dicts, and the bytes again. A response says
nothing of what it answers: the caller keeps the requests that expect one in order, and hands them in. A
body's message sets stay bytes under `messageSet`; `kafka07_messages` decodes them. Knows nothing of 0.8 and
later, but that none of their requests passes `looks_like_request`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

from kwsniff.errors import DecodeError, EncodeError, Reason
from kwsniff.model import Body
from kwsniff.wire.kafka07_messages import (
    Scan,
    decode_message_set,
    encode_message_set,
    summarise_message_set,
)

__all__ = [
    "ERRORS",
    "NAMES",
    "RecordField",
    "Scan",
    "begins_like_request",
    "decode_message_set",
    "decode_request",
    "decode_response",
    "encode_message_set",
    "encode_request",
    "encode_response",
    "expects_response",
    "looks_like_request",
    "record_fields",
    "summarise_message_set",
    "topics",
]

PRODUCE, FETCH, MULTIFETCH, MULTIPRODUCE, OFFSETS = range(5)

NAMES = {0: "PRODUCE", 1: "FETCH", 2: "MULTIFETCH", 3: "MULTIPRODUCE", 4: "OFFSETS"}
ERRORS = {
    -1: "UNKNOWN",
    0: "NONE",
    1: "OFFSET_OUT_OF_RANGE",
    2: "INVALID_MESSAGE",
    3: "WRONG_PARTITION",
    4: "INVALID_FETCH_SIZE",
}
"""errorCode of 0.7's responses; other meanings than those of later releases."""

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_FETCH = Struct(">iqi")
_TOPIC = re.compile(r"[!-.0-~]{1,255}")
_LEAST_PRODUCE, _LEAST_FETCH = 10, 18
"""Bytes of one entry with an empty topic."""


def expects_response(type_: int) -> bool:
    """Whether a broker answers at all: the produce requests get nothing, not even on an error."""
    return type_ in (FETCH, MULTIFETCH, OFFSETS)


class _Reader:
    """A position in a frame. Every read beyond the end is a DecodeError with the path of the field."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def number(self, layout: Struct, path: str) -> int:
        if self.left < layout.size:
            raise DecodeError(
                Reason.BODY_TRUNCATED, f"{self.left} of {layout.size} bytes", path=path, offset=self.at
            )
        self.at += layout.size
        return int(layout.unpack_from(self.data, self.at - layout.size)[0])

    def sized(self, size: int, path: str) -> bytes:
        if not 0 <= size <= self.left:
            message = f"{size} bytes where {self.left} are left"
            raise DecodeError(Reason.LENGTH_INVALID, message, path=path, offset=self.at)
        self.at += size
        return self.data[self.at - size : self.at]

    def string(self, path: str) -> str | None:
        size = self.number(_INT16, path)
        return None if size < 0 else self.sized(size, path).decode("utf-8", "surrogateescape")

    def count(self, layout: Struct, least: int, path: str) -> int:
        count = self.number(layout, path)
        if not 0 <= count * least <= self.left:
            message = f"{count} entries in {self.left} bytes"
            raise DecodeError(Reason.COUNT_INVALID, message, path=path, offset=self.at - layout.size)
        return count

    def finish(self, body: Body) -> Body:
        if self.left:
            raise DecodeError(
                Reason.TRAILING_BYTES, f"{self.left} bytes left over", offset=self.at, partial=body
            )
        return body


def _read_produce(read: _Reader, path: str = "") -> Body:
    topic, partition = read.string(f"{path}topic"), read.number(_INT32, f"{path}partition")
    size = read.number(_INT32, f"{path}messageSet")
    message_set = read.sized(size, f"{path}messageSet")
    return {"topic": topic, "partition": partition, "messageSet": message_set}


def _read_fetch(read: _Reader, path: str = "") -> Body:
    return {
        "topic": read.string(f"{path}topic"),
        "partition": read.number(_INT32, f"{path}partition"),
        "offset": read.number(_INT64, f"{path}offset"),
        "maxSize": read.number(_INT32, f"{path}maxSize"),
    }


def _read_offsets(read: _Reader) -> Body:
    return {
        "topic": read.string("topic"),
        "partition": read.number(_INT32, "partition"),
        "time": read.number(_INT64, "time"),
        "maxNumOffsets": read.number(_INT32, "maxNumOffsets"),
    }


def _read_multifetch(read: _Reader) -> Body:
    count = read.count(_INT16, _LEAST_FETCH, "fetches")
    return {"fetches": [_read_fetch(read, f"fetches[{index}].") for index in range(count)]}


def _read_multiproduce(read: _Reader) -> Body:
    count = read.count(_INT16, _LEAST_PRODUCE, "produces")
    return {"produces": [_read_produce(read, f"produces[{index}].") for index in range(count)]}


_REQUESTS: dict[int, Callable[[_Reader], Body]] = {
    PRODUCE: _read_produce,
    FETCH: _read_fetch,
    MULTIFETCH: _read_multifetch,
    MULTIPRODUCE: _read_multiproduce,
    OFFSETS: _read_offsets,
}


def decode_request(frame: bytes) -> tuple[int, Body]:
    """A request frame (behind its size prefix) -> (type, body).

    PRODUCE {topic, partition, messageSet: bytes}; FETCH {topic, partition, offset, maxSize}; MULTIFETCH
    {fetches: [FETCH]}; MULTIPRODUCE {produces: [PRODUCE]}; OFFSETS {topic, partition, time, maxNumOffsets}.
    Raises DecodeError: UNKNOWN_API for another type, TRAILING_BYTES with the body as partial.
    """
    read = _Reader(bytes(frame))
    type_ = read.number(_INT16, "type")
    if type_ not in _REQUESTS:
        raise DecodeError(Reason.UNKNOWN_API, f"Kafka 0.7 has no request type {type_}", path="type")
    return type_, read.finish(_REQUESTS[type_](read))


def decode_response(frame: bytes, type_: int, request: Body | None = None) -> Body:
    """The response to a request of that type; its body tells how many sets a MULTIFETCH gets.

    FETCH {errorCode, messageSet: bytes}; MULTIFETCH {errorCode, responses: [FETCH]}; OFFSETS {errorCode,
    offsets: [int]}. Raises DecodeError; UNKNOWN_API for a type that has no response.
    """
    if not expects_response(type_):
        raise DecodeError(Reason.UNKNOWN_API, f"no response belongs to request type {type_}")
    read = _Reader(bytes(frame))
    error_code = read.number(_INT16, "errorCode")
    if type_ == FETCH:
        return {"errorCode": error_code, "messageSet": read.sized(read.left, "messageSet")}
    if type_ == OFFSETS:
        if error_code and not read.left:
            return {"errorCode": error_code, "offsets": []}
        offsets = [
            read.number(_INT64, f"offsets[{index}]") for index in range(read.count(_INT32, 8, "offsets"))
        ]
        return read.finish({"errorCode": error_code, "offsets": offsets})
    wanted = None if request is None else len(request["fetches"])
    responses: list[Body] = []
    body: Body = {"errorCode": error_code, "responses": responses}
    try:
        while read.left if wanted is None else len(responses) < wanted:
            responses.append(_read_inner_set(read, f"responses[{len(responses)}]"))
    except DecodeError as error:
        error.partial = body
        raise
    return read.finish(body)


def _read_inner_set(read: _Reader, path: str) -> Body:
    start = read.at
    size = read.number(_INT32, path)
    if size < 2:
        raise DecodeError(Reason.LENGTH_INVALID, f"a set of {size} bytes", path=path, offset=start)
    error_code = read.number(_INT16, f"{path}.errorCode")
    return {"errorCode": error_code, "messageSet": read.sized(size - 2, f"{path}.messageSet")}


def looks_like_request(frame: bytes) -> bool:
    """Whether a frame is a request of Kafka 0.7 to the last byte: the grammar fits exactly, topics are
    printable, numbers possible, and message sets whole with right checksums.

    In a request of 0.8 or later the API version stands where 0.7 has the length of the topic (or the
    count), and the correlation id where it has the topic's first bytes (or length): no such request passes.
    """
    try:
        _, body = decode_request(frame)
    except DecodeError:
        return False
    entries = _entries(body)
    return bool(entries) and all(_plausible(entry) for entry in entries)


def begins_like_request(head: bytes, size: int) -> bool:
    """The same of a frame of `size` bytes of which only the beginning is at hand: its first entry."""
    read = _Reader(head)
    try:
        type_ = read.number(_INT16, "type")
        many = type_ in (MULTIFETCH, MULTIPRODUCE) and read.number(_INT16, "count") > 0
        if type_ == MULTIFETCH:
            return many and _plausible(_read_fetch(read))
        if type_ != PRODUCE and not many:
            return False
        entry: Body = {"topic": read.string("topic"), "partition": read.number(_INT32, "partition")}
        set_size = read.number(_INT32, "messageSet")
    except DecodeError:
        return False
    room = size - read.at
    entry["messageSet"] = head[read.at : read.at + max(set_size, 0)]
    return (set_size <= room if many else set_size == room) and _plausible(entry, allow_partial=True)


def _entries(body: Body) -> list[Body]:
    """The entries of a request of many, or the one that the body is."""
    for many in ("produces", "fetches"):
        if many in body:
            return list(body[many])
    return [body]


def _plausible(entry: Body, allow_partial: bool = False) -> bool:
    if entry["topic"] is None or not _TOPIC.fullmatch(entry["topic"]):
        return False
    if "messageSet" in entry:
        if entry["partition"] < -1:
            return False
        messages = Scan(entry["messageSet"], allow_partial=allow_partial)
        return bool(entry["messageSet"]) and all(
            not isinstance(one, DecodeError) and one.header["crcValid"] for one in messages
        )
    least = {"partition": 0, "offset": 0, "maxSize": 1, "time": -2, "maxNumOffsets": 1}
    return all(value >= least[key] for key, value in entry.items() if key in least)


class RecordField(NamedTuple):
    """A message set in a body: holder[key], at `path`. base_offset: the log position of its first byte, None
    where not known (a produce request, a response without its request)."""

    path: str
    holder: Body
    key: str
    base_offset: int | None


def record_fields(body: Body, request: Body | None = None) -> Iterator[RecordField]:
    """The message sets of a request's or response's body; of a response with the request that it answers."""
    asked = [] if request is None else _entries(request)
    nested = next((key for key in ("produces", "responses") if key in body), None)
    holders = body[nested] if nested else [body]
    for index, holder in enumerate(holders):
        if "messageSet" in holder:
            path = f"{nested}[{index}].messageSet" if nested else "messageSet"
            offset = asked[index].get("offset") if index < len(asked) else None
            yield RecordField(path, holder, "messageSet", offset)


def topics(body: Body) -> list[str]:
    """The topics that a request names, each once, in order."""
    entries = _entries(body)
    return list(dict.fromkeys(entry["topic"] for entry in entries if entry.get("topic") is not None))


def _string(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    raw = value.encode("utf-8", "surrogateescape")
    return _INT16.pack(len(raw)) + raw


def _write_produce(entry: Body) -> bytes:
    content: bytes = entry["messageSet"]
    return _string(entry["topic"]) + _INT32.pack(entry["partition"]) + _INT32.pack(len(content)) + content


def _write_fetch(entry: Body) -> bytes:
    return _string(entry["topic"]) + _FETCH.pack(entry["partition"], entry["offset"], entry["maxSize"])


def _write_offsets(body: Body) -> bytes:
    return _string(body["topic"]) + _FETCH.pack(body["partition"], body["time"], body["maxNumOffsets"])


def _many(entries: list[Body], write: Callable[[Body], bytes]) -> bytes:
    return _INT16.pack(len(entries)) + b"".join(write(entry) for entry in entries)


_WRITERS: dict[int, Callable[[Body], bytes]] = {
    PRODUCE: _write_produce,
    FETCH: _write_fetch,
    MULTIFETCH: lambda body: _many(body["fetches"], _write_fetch),
    MULTIPRODUCE: lambda body: _many(body["produces"], _write_produce),
    OFFSETS: _write_offsets,
}


def encode_request(type_: int, body: Body) -> bytes:
    """The frame (without size prefix) of a body as `decode_request` gives it. Raises EncodeError."""
    return _written(type_, _WRITERS.get(type_), body, _INT16.pack(type_) if type_ in _WRITERS else b"")


def encode_response(type_: int, body: Body) -> bytes:
    """The frame (without size prefix) of a body as `decode_response` gives it. Raises EncodeError."""
    return _written(type_, _RESPONSE_WRITERS.get(type_), body, b"")


def _written(type_: int, write: Callable[[Body], bytes] | None, body: Body, head: bytes) -> bytes:
    if write is None:
        raise EncodeError(f"Kafka 0.7 has no such message of type {type_}")
    try:
        return head + write(body)
    except (StructError, KeyError, TypeError, AttributeError) as error:
        raise EncodeError(f"no {NAMES[type_]} of Kafka 0.7: {error!r}") from error


def _write_fetched(body: Body) -> bytes:
    content: bytes = body["messageSet"]
    return _INT16.pack(body["errorCode"]) + content


def _write_multifetched(body: Body) -> bytes:
    sets = [_write_fetched(one) for one in body["responses"]]
    return _INT16.pack(body["errorCode"]) + b"".join(_INT32.pack(len(one)) + one for one in sets)


def _write_listed(body: Body) -> bytes:
    offsets: list[Any] = body["offsets"]
    return (
        _INT16.pack(body["errorCode"])
        + _INT32.pack(len(offsets))
        + b"".join(_INT64.pack(one) for one in offsets)
    )


_RESPONSE_WRITERS: dict[int, Callable[[Body], bytes]] = {
    FETCH: _write_fetched,
    MULTIFETCH: _write_multifetched,
    OFFSETS: _write_listed,
}
