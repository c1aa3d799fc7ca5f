"""Frame -> its body with the records fields decoded, for those who want records as Python values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial

from kwsniff import wire
from kwsniff.conversation.bodies import fault_of
from kwsniff.errors import DecodeError
from kwsniff.model import Body, Decoded, Frame, Protocol, Side
from kwsniff.wire import kafka07, walk

_Place = tuple[str, Body, str, Callable[[bytes], list[Body]]]


def with_records(frame: Frame, request: Frame | None) -> Decoded:
    """The frame's body, each records field a list of batches; what cannot be decoded of one is a fault."""
    if frame.body is None or frame.protocol is Protocol.SASL:
        return frame.decoded
    body = deepcopy(frame.body)
    faults = list(frame.faults)
    for path, holder, key, decode in _places(frame, body, request):
        data = holder[key]
        if not data:
            continue
        try:
            holder[key] = decode(data)
        except DecodeError as error:
            holder[key] = error.partial or []
            at = frame.raw.find(data)
            offset = at + error.offset if at >= 0 else None
            faults.append(fault_of(frame, error.reason, error.message, path=path + error.path, offset=offset))
    return Decoded(body, tuple(faults))


def _places(frame: Frame, body: Body, request: Frame | None) -> Iterator[_Place]:
    if frame.protocol is Protocol.KAFKA07:
        asked = request.body if request is not None and request is not frame else None
        for path, holder, key, base in kafka07.record_fields(body, asked):
            yield path, holder, key, partial(kafka07.decode_message_set, base_offset=base)
        return
    message = wire.request_of(frame.api) if frame.side is Side.REQUEST else wire.response_of(frame.api)
    if message is not None and frame.version is not None:
        for path, holder, key in walk.records(message.name, frame.version, body):
            yield path, holder, key, wire.decode_records
