"""What an exchange is about, whatever its API: topics, group, errors, throttling.

Answers come from the entity types of the schema, so a new API needs no code here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kwsniff import wire
from kwsniff.model import Body, Exchange, Frame, Protocol, Side
from kwsniff.wire import kafka07, walk
from kwsniff.wire.errors import error_name

FIND_COORDINATOR = 10
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
        if frame is None or frame.protocol is Protocol.SASL or frame.body is None:
            continue
        if frame.protocol is Protocol.KAFKA07:
            topics.update(dict.fromkeys(kafka07.topics(frame.body)))
            errors += _errors07(frame)
            continue
        name, version, body = _message(frame), frame.version or 0, frame.body
        if name is None:
            continue
        topics.update(dict.fromkeys(walk.topics(name, version, body)))
        for topic_id in walk.topic_ids(name, version, body):
            topics[topic_name(exchange, topic_id)] = None
        if group_id is None:
            group_id = next(iter(walk.groups(name, version, body)), None)
        if group_id is None and frame.api == FIND_COORDINATOR and frame.side is Side.REQUEST:
            group_id = group_of_key(body)
        if frame.side is Side.RESPONSE:
            errors += _errors(exchange, name, version, body)
            throttle = body.get("throttleTimeMs") or 0
    return Facts(list(topics), group_id, errors, throttle)


def topic_name(exchange: Exchange, topic_id: str) -> str:
    """The topic's name if it was told before this exchange; else the id itself."""
    told = exchange.topic_names.get(topic_id)
    return told[1] if told is not None and told[0] <= _told_by(exchange) else topic_id


def _told_by(exchange: Exchange) -> int:
    return exchange.response.end if exchange.response else exchange.ts


def _message(frame: Frame) -> str | None:
    seek: Callable[[int], Any] = wire.request_of if frame.side is Side.REQUEST else wire.response_of
    message = seek(frame.api)
    return message.name if message else None


def _errors(exchange: Exchange, name: str, version: int, body: Body) -> list[dict[str, Any]]:
    return [
        {
            "code": found.code,
            "name": error_name(found.code),
            "topic": found.topic or (found.topic_id and topic_name(exchange, found.topic_id)),
            "partition": found.partition,
        }
        for found in walk.errors(name, version, body)
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
