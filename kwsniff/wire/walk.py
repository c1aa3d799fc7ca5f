"""What a body names, whatever message it is: topics, groups, errors, record data, secrets; by the schema.

In: a message name, a version, a body as the codec gives it, or the part of one that could be decoded. Out:
the values asked for, in the order of the fields. What to look at is planned once per message, version and
question; subtrees without it are never entered. Refuses to know any message or field by name; never raises
for what a body holds or lacks, only UnknownMessage for a name that no release has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from kwsniff.wire import codec, schema
from kwsniff.wire.schema import ZERO_UUID, Field

Body = dict[str, Any]
Place = tuple[str, Body, str]
"""(path of the field, the dict that holds it, its key there)."""


class FoundError(NamedTuple):
    """An error code other than 0, with topic and partition of the nearest struct around it that has them."""

    code: int
    topic: str | None
    topic_id: str | None
    partition: int | None
    path: str


class _Node(NamedTuple):
    """A struct on the way to what is asked for, or holding it."""

    parts: tuple[tuple[str, bool, _Node | None], ...]
    """(key, whether it is an array, the struct below; None: it is what is asked for)."""
    topic: str
    """The key of its topic name; "", which no body has, where there is none. So for the others."""
    topic_id: str
    partition: str


_Trail = tuple[Any, ...]
"""Where a struct is: () at the top, else (trail around, holder, the holder's node, key, index or None)."""

_QUESTIONS: dict[str, Callable[[Field], bool]] = {
    "topics": lambda field: field.entity == "topicName",
    "topic ids": lambda field: field.entity == "topicId",
    "groups": lambda field: field.entity == "groupId",
    "errors": lambda field: field.entity == "errorCode",
    "records": lambda field: field.type == "records",
    "secrets": lambda field: field.mark == "secret",
    "configs": lambda field: field.mark == "config",
    "floats": lambda field: field.type == "float64",
}


def topics(name: str, version: int, body: Body) -> list[str]:
    """Every topic named, once each, in order of first mention."""
    return _distinct("topics", name, version, body)


def topic_ids(name: str, version: int, body: Body) -> list[str]:
    """Every topic id other than zero, once each, in order of first mention."""
    return [topic_id for topic_id in _distinct("topic ids", name, version, body) if topic_id != ZERO_UUID]


def groups(name: str, version: int, body: Body) -> list[str]:
    """Every group named, once each, in order of first mention."""
    return _distinct("groups", name, version, body)


def learned_topics(name: str, version: int, body: Body) -> list[tuple[str, str]]:
    """(topic id, topic name) of every struct that tells both."""
    learned: dict[tuple[str, str], None] = {}
    for _, node, holder, key in _found("topic ids", name, version, body):
        topic_id, topic = holder[key], holder.get(node.topic)
        if isinstance(topic_id, str) and topic_id != ZERO_UUID and isinstance(topic, str) and topic:
            learned[topic_id, topic] = None
    return list(learned)


@lru_cache(maxsize=8192)
def teaches_topics(name: str, version: int) -> bool:
    """Whether a body may tell both id and name of a topic: only then `learned_topics` is worth its body."""
    return _tells_both(_plan("topic ids", name, version, None))


def _tells_both(node: _Node | None) -> bool:
    if node is None:
        return False
    return any(bool(node.topic) if below is None else _tells_both(below) for _, _, below in node.parts)


def errors(name: str, version: int, body: Body) -> list[FoundError]:
    """Every error code that is not 0 (NONE)."""
    return [
        _error(trail, node, holder, key)
        for trail, node, holder, key in _found("errors", name, version, body)
        if holder[key] != 0
    ]


def topic_places(name: str, version: int, body: Body) -> Iterator[Place]:
    """Every field with the name of a topic, or an array of such."""
    return _places("topics", name, version, body)


def records(name: str, version: int, body: Body) -> Iterator[Place]:
    """Every field with record data that is not null."""
    return _places("records", name, version, body)


def topic_records(name: str, version: int, body: Body) -> Iterator[tuple[Place, str | None, str | None]]:
    """The same, each with name and id of the topic around it."""
    for trail, node, holder, key in _found("records", name, version, body):
        yield (_path(trail, key), holder, key), *_topic_around(trail, node, holder)


def secrets(name: str, version: int, body: Body) -> Iterator[Place]:
    """Every field that is never to be shown: SASL tokens, HMACs, SCRAM credentials."""
    return _places("secrets", name, version, body)


def configs(name: str, version: int, body: Body) -> Iterator[Place]:
    """Every value of a setting; its name is in the same dict."""
    return _places("configs", name, version, body)


def names_topics(name: str, version: int) -> bool:
    """Whether a body may name a topic."""
    return _plan("topics", name, version, None) is not None


def has_floats(name: str, version: int) -> bool:
    """Whether a body may hold floating-point numbers, which JSON cannot always carry."""
    return _plan("floats", name, version, None) is not None


def _distinct(question: str, name: str, version: int, body: Body) -> list[str]:
    seen: dict[str, None] = {}
    for _, _, holder, key in _found(question, name, version, body):
        value = holder[key]
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, str) and item:
                seen[item] = None
    return list(seen)


def _places(question: str, name: str, version: int, body: Body) -> Iterator[Place]:
    for trail, _, holder, key in _found(question, name, version, body):
        yield _path(trail, key), holder, key


def _found(question: str, name: str, version: int, body: Body) -> Iterator[tuple[_Trail, _Node, Body, str]]:
    node = _plan(question, name, version, body.get(codec.VARIANT))
    return iter(()) if node is None else _visit(node, body, ())


def _visit(node: _Node, holder: Body, trail: _Trail) -> Iterator[tuple[_Trail, _Node, Body, str]]:
    for key, array, below in node.parts:
        value = holder.get(key)
        if value is None:
            continue
        if below is None:
            yield trail, node, holder, key
        elif not array:
            if isinstance(value, dict):
                yield from _visit(below, value, (trail, holder, node, key, None))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, dict):
                    yield from _visit(below, item, (trail, holder, node, key, index))


def _path(trail: _Trail, key: str) -> str:
    parts = [key]
    while trail:
        trail, _, _, around, index = trail
        parts.append(around if index is None else f"{around}[{index}]")
    return ".".join(reversed(parts))


def _topic_around(trail: _Trail, node: _Node, holder: Body) -> tuple[str | None, str | None]:
    while True:
        topic, topic_id = holder.get(node.topic) or None, holder.get(node.topic_id)
        if topic or topic_id or not trail:
            return topic, topic_id
        trail, holder, node, _, _ = trail


def _error(trail: _Trail, node: _Node, holder: Body, key: str) -> FoundError:
    topic: str | None = None
    topic_id: str | None = None
    partition: int | None = None
    around, code, path = trail, holder[key], _path(trail, key)
    while True:
        if partition is None:
            partition = holder.get(node.partition)
        if topic is None and topic_id is None:
            topic = holder.get(node.topic) or None
            topic_id = holder.get(node.topic_id)
            topic_id = None if topic_id == ZERO_UUID else topic_id
        if not around:
            return FoundError(code, topic, topic_id, partition, path)
        around, holder, node, _, _ = around


@lru_cache(maxsize=8192)
def _plan(question: str, name: str, version: int, variant: str | None) -> _Node | None:
    """What to look at; None: the message has nothing of the kind."""
    message = schema.message(name)
    fields = next((other.fields for other in message.variants if other.variant == variant), message.fields)
    return _node(fields, version, _QUESTIONS[question])


def _node(fields: tuple[Field, ...], version: int, wanted: Callable[[Field], bool]) -> _Node | None:
    parts: list[tuple[str, bool, _Node | None]] = []
    scalars: dict[str, str] = {}
    for field in fields:
        if not field.versions.covers(version):
            continue
        if field.entity and not field.array:
            scalars.setdefault(field.entity, field.key)
        if wanted(field):
            parts.append((field.key, field.array, None))
        elif field.is_struct:
            below = _node(field.fields, version, wanted)
            if below is not None:
                parts.append((field.key, field.array, below))
    if not parts:
        return None
    return _Node(
        tuple(parts), *(scalars.get(entity, "") for entity in ("topicName", "topicId", "partitionIndex"))
    )
