"""The codec as the rest of the project sees it, with the layouts that only some releases wrote.

In: a Message, a version, bytes or a body. Out: the other one. This is the seam of the two codecs: _fast.pyx
does the work; what it declines is done by decoder.py and encoder.py, which are the specification and say what
is wrong. They do everything where the extension is not (kwsniff/compiled.py).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kwsniff.compiled import compiled
from kwsniff.errors import DecodeError, EncodeError, Reason
from kwsniff.wire import decoder, encoder
from kwsniff.wire._program import layout as layout_of
from kwsniff.wire.primitives import Body
from kwsniff.wire.schema import Message

_fast = compiled("kwsniff.wire._fast")
COMPILED = _fast is not None
"""Whether the compiled codec is there and wanted."""

VARIANT = "_variant"
"""The key of a body that was decoded by a variant: the releases that write it so."""


@cache
def program(message: Message, version: int) -> Any:
    """The compiled form of a message at a version, a _fast.Program (see _fast.pyi); None: there is none.

    Raises UnknownMessage for a version that the message does not have.
    """
    if _fast is None:
        return None
    return _fast.Program(layout_of(message, version), f"{message.name} v{version}")


def decode(message: Message, version: int, data: bytes, at: int = 0) -> tuple[Body, int]:
    """The body that begins at `at` of `data`, and where it ends; bytes may follow.

    Raises DecodeError: offset from the start of `data`, partial the fields before the error; UnknownMessage
    for a version that the message does not have.
    """
    machine = program(message, version)
    found: tuple[Body, int] | None = None if machine is None else machine.decode(data, at)
    return decoder.decode(message, version, data, at) if found is None else found


def decode_exact(message: Message, version: int, data: bytes, at: int = 0) -> Body:
    """The body that fills `data` from `at` to its end.

    When it does not, a variant of the message that does is used, and named under "_variant".
    Raises DecodeError as `decode`, and when bytes are left (TRAILING_BYTES; partial is then the whole body).
    """
    try:
        body, end = decode(message, version, data, at)
        if end == len(data):
            return body
        raise DecodeError(
            Reason.TRAILING_BYTES, f"{len(data) - end} bytes left over", offset=end, partial=body
        )
    except DecodeError:
        for variant in message.variants:
            body_or_none = _maybe_variant(variant, version, data, at)
            if body_or_none is not None:
                return body_or_none
        raise


def _maybe_variant(variant: Message, version: int, data: bytes, at: int) -> Body | None:
    if not variant.versions.covers(version):
        return None
    try:
        body, end = decode(variant, version, data, at)
    except DecodeError:
        return None
    return {**body, VARIANT: variant.variant} if end == len(data) else None


def layout(message: Message, version: int, body: Body) -> Message:
    """The message, or that variant of it which the body names. Raises EncodeError for an unknown one."""
    name = body.get(VARIANT)
    if name is None:
        return message
    for variant in message.variants:
        if variant.variant == name and variant.versions.covers(version):
            return variant
    raise EncodeError(f"{message.name} v{version} has no variant {name}", path=VARIANT)


def encode(message: Message, version: int, body: Body) -> bytes:
    """The bytes of a body, in the layout that it names under "_variant" if it does.

    Raises EncodeError with the path of the field at fault; UnknownMessage for a version that there is not.
    """
    if VARIANT in body:
        message = layout(message, version, body)
        body = {key: value for key, value in body.items() if key != VARIANT}
    machine = program(message, version)
    data: bytes | None = None if machine is None else machine.encode(body)
    return encoder.encode(message, version, body) if data is None else data
