"""What an exchange is about, whatever its API: topics, group, errors, throttling.

Answers come from the entity types of the schema, so a new API needs no code here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kwsniff import wire
from kwsniff.model import Body, Exchange, Frame, Protocol, Side
from kwsniff.wire import codec, kafka07, walk
from kwsniff.wire.errors import error_name
from kwsniff.wire.schema import Message

FIND_COORDINATOR = 10
_BY_BODY = {FIND_COORDINATOR, wire.API_VERSIONS}
"""What a key names depends on another field; the answer's version on its error code."""
_GROUP_KEY_TYPE = 0


class Facts(NamedTuple):
    """errors: dicts of code, name, topic, partition, as in the JSON log."""

    topics: list[str]
    group_id: str | None
    errors: list[dict[str, Any]]
    throttle_ms: int


def facts(exchange: Exchange) -> Facts:
    """Of both frames, topic ids resolved as far as the input had told their names by then."""
    topics: dict[str, None] = {}
    group_id: str | None = None
    errors: list[dict[str, Any]] = []
    throttle = 0
    for found in exchange.fetched or ():
        topics[found.topic or topic_name(exchange, found.topic_id or "")] = None
    for frame in (exchange.request, exchange.response):
        if frame is None or frame.protocol is Protocol.SASL:
            continue
        if frame.protocol is Protocol.KAFKA07:
            topics.update(dict.fromkeys(kafka07.topics(frame.body or {})))
            errors += _errors07(frame)
            continue
        named = _from_bytes(frame) or _from_body(frame)
        if named is None:
            continue
        topics.update(dict.fromkeys(named.topics))
        for topic_id in named.topic_ids:
            topics[topic_name(exchange, topic_id)] = None
        group_id = group_id or named.group_id
        if frame.side is Side.RESPONSE:
            errors += _errors(exchange, named)
            throttle = named.throttle_ms
    return Facts(list(topics), group_id, errors, throttle)


def topic_name(exchange: Exchange, topic_id: str) -> str:
    """The topic's name if it was told before this exchange; else the id itself."""
    told = exchange.topic_names.get(topic_id)
    return told[1] if told is not None and told[0] <= _told_by(exchange) else topic_id


def _told_by(exchange: Exchange) -> int:
    return exchange.response.end if exchange.response else exchange.ts


class _Named(NamedTuple):
    """What one body names. errors: (code, topic, topic id, partition) of each."""

    topics: Iterable[str]
    topic_ids: Iterable[str]
    group_id: str | None
    errors: Iterable[tuple[int, str | None, str | None, int | None]]
    throttle_ms: int


def _from_bytes(frame: Frame) -> _Named | None:
    """Without a body, where nobody has made one yet: a large one costs a second. None: it takes one."""
    if "decoded" in frame.__dict__ or frame.version is None or frame.lost or frame.api in _BY_BODY:
        return None
    message = _message(frame)
    if message is None or not message.versions.covers(frame.version):
        return None
    tags = wire.header_versions(frame.api, frame.version)[1] > 0 and frame.side is Side.RESPONSE
    if frame.body_at < (5 if tags else 4):
        return None
    program = codec.program(message, frame.version)
    found = None if program is None else program.body_facts(frame.raw, frame.body_at)
    return None if found is None else _Named(*found[:5])


def _from_body(frame: Frame) -> _Named | None:
    message, version, body = _message(frame), frame.version or 0, frame.body
    if message is None or body is None:
        return None
    group_id = next(iter(walk.groups(message.name, version, body)), None)
    if frame.api == FIND_COORDINATOR and frame.side is Side.REQUEST:
        group_id = group_of_key(body)
    return _Named(
        walk.topics(message.name, version, body),
        walk.topic_ids(message.name, version, body),
        group_id,
        [found[:4] for found in walk.errors(message.name, version, body)],
        body.get("throttleTimeMs") or 0,
    )


def _message(frame: Frame) -> Message | None:
    return wire.request_of(frame.api) if frame.side is Side.REQUEST else wire.response_of(frame.api)


def _errors(exchange: Exchange, named: _Named) -> list[dict[str, Any]]:
    return [
        {
            "code": code,
            "name": error_name(code),
            "topic": topic or (topic_id and topic_name(exchange, topic_id)),
            "partition": partition,
        }
        for code, topic, topic_id, partition in named.errors
    ]


def group_of_key(body: Body) -> str | None:
    """FindCoordinator names groups by a key whose meaning is another field (v0: always a group)."""
    if body.get("keyType", _GROUP_KEY_TYPE) != _GROUP_KEY_TYPE:
        return None
    keys = body.get("coordinatorKeys") or [body.get("key")]
    return keys[0] if keys else None


def _errors07(frame: Frame) -> list[dict[str, Any]]:
    if frame.side is Side.REQUEST or frame.body is None:
        return []
    return [
        {"code": code, "name": kafka07.ERRORS.get(code, f"UNKNOWN_{code}"), "topic": None, "partition": None}
        for entry in (frame.body, *frame.body.get("responses", ()))
        if (code := entry.get("errorCode", 0)) != 0
    ]
