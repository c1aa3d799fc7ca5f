"""JSON and facts of a body by the reference: output.present with msgspec, and walk; records as holes."""

from __future__ import annotations

from typing import Any
from unittest import mock

import msgspec

from kwsniff import wire
from kwsniff.output import present
from kwsniff.output.present import Options
from kwsniff.wire import decoder, walk

HOLE = {"a hole": None}


def expected_json(name: str, version: int, data: bytes, *, records: bool = False) -> bytes:
    """The body as a line shows it, with HOLE for what stands for records."""
    message = wire.message(name)
    body, _ = decoder.decode(message, version, data)
    with mock.patch.multiple(present, summary=lambda *_: HOLE, decoded=lambda *_: HOLE):
        shown, _ = present.present(message, version, body, body, Options(records), str, len(data))
    return msgspec.json.encode(shown)


def whole_json(found: tuple[bytes, Any]) -> bytes:
    """What the compiled codec made, with HOLE at the splices."""
    text, facts = found
    parts, before = [], 0
    for splice, *_ in facts[5]:
        parts += [text[before:splice], msgspec.json.encode(HOLE)]
        before = splice
    return b"".join([*parts, text[before:]])


def found_facts(name: str, version: int, body: dict[str, Any]) -> tuple[Any, ...]:
    """All but the records fields."""
    return (
        tuple(walk.topics(name, version, body)),
        tuple(walk.topic_ids(name, version, body)),
        next(iter(walk.groups(name, version, body)), None),
        tuple(tuple(found)[:4] for found in walk.errors(name, version, body)),
        body.get("throttleTimeMs") or 0,
        tuple(walk.learned_topics(name, version, body)),
    )
