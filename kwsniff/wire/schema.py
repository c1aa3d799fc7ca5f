"""The protocol as values: Message and Field, from the texts in `schema/` (notation.py says how to read them).

In: nothing but those texts; each file is parsed when one of its messages is first asked for. Out: messages by
name, former name or API key. Refuses to know how anything is encoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from kwsniff.errors import UnknownMessage

FOLDER = Path(__file__).with_name("schema")

ZERO_UUID = "A" * 22
PRIMITIVES: dict[str, Any] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "uint16": 0,
    "uint32": 0,
    "float64": 0.0,
    "uuid": ZERO_UUID,
    "string": "",
    "bytes": b"",
    "records": b"",
}
"""Primitive type -> the default of a field that declares none."""
KINDS = ("header", "data", "metadata", "coordinator-key", "coordinator-value")


class Versions(NamedTuple):
    """An inclusive range of versions."""

    min: int
    max: int

    def covers(self, version: int) -> bool:
        return self.min <= version <= self.max

    def __str__(self) -> str:
        return f"v{self.min}" if self.min == self.max else f"v{self.min}-{self.max}"


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """One field of a struct, with the versions in which it is really there (its parents' included)."""

    name: str
    """As Kafka spells it, e.g. ThrottleTimeMs."""
    key: str
    """As it stands in a body: throttleTimeMs."""
    type: str
    """A key of PRIMITIVES, or the name of a struct (see `fields`). Of an array: its elements' type."""
    entity: str | None
    """topicName, groupId, ...: see types.schema."""
    array: bool
    versions: Versions
    nullable: Versions | None
    tag: int | None
    default: Any
    """A scalar's value. None: null if `default_null`, else an empty array or a struct of defaults."""
    default_null: bool
    ignorable: bool
    flexible: bool
    """False for the client id of headers, which stays in the old encoding in flexible versions."""
    mark: str | None
    """secret: never to be shown. config: the value of a setting, not to be shown when that is sensitive."""
    fields: tuple[Field, ...]

    @property
    def is_struct(self) -> bool:
        return self.type not in PRIMITIVES

    def null_in(self, version: int) -> bool:
        return self.nullable is not None and self.nullable.covers(version)


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A request, response, header, record or embedded structure, in all its versions."""

    name: str
    type: str
    """request, response, or one of KINDS."""
    api_key: int | None
    """Of metadata and coordinator messages: the record type."""
    versions: Versions
    flexible: Versions | None
    fields: tuple[Field, ...]
    variants: tuple[Message, ...] = ()
    variant: str | None = None
    """For a variant: the releases that wrote it, e.g. 2.8.0-2.8.2."""
    aliases: tuple[str, ...] = ()
    """Former names."""
    store: str | None = None
    """The internal topic that it is a record of."""
    listeners: tuple[str, ...] = ()
    """Who serves it: zkBroker, broker, controller."""
    deprecated: Versions | None = None
    """Versions that Kafka 3.9 marks as deprecated (KIP-896)."""
    unstable: Versions | None = None
    """Versions served only with unstable.api.versions.enable."""
    until: str | None = None
    """The last release that defined it; None: the newest still does."""

    def flexible_in(self, version: int) -> bool:
        return self.flexible is not None and self.flexible.covers(version)


_INDEX = re.compile(r"^(?:(api|" + "|".join(KINDS) + r") (?:(\d+) )?(\w+)|  formerly (.+))", re.M)


class _Index(NamedTuple):
    files: dict[str, str]
    """Message name or former name -> file."""
    names: dict[str, str]
    """Former name -> name."""
    apis: dict[int, str]
    """API key -> name without Request or Response."""


@cache
def _texts() -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in sorted(FOLDER.glob("*.schema"))}


@cache
def _index() -> _Index:
    """Where everything is, found without parsing."""
    index = _Index({}, {}, {})
    for file, text in _texts().items():
        name = ""
        sides: tuple[str, ...] = ()
        for match in _INDEX.finditer(text):
            if match[1]:
                name = match[3]
                sides = ("Request", "Response") if match[1] == "api" else ("",)
                if match[1] == "api":
                    index.apis[int(match[2])] = name
                index.files.update((name + side, file) for side in sides)
            else:
                for former in match[4].split():
                    index.names.update((former + side, name + side) for side in sides)
    return index


@cache
def _parsed(file: str) -> dict[str, Message]:
    from kwsniff.wire import notation

    entities = notation.entities("types.schema", _texts()["types.schema"])
    return {message.name: message for message in notation.parse(file, _texts()[file], entities)}


@cache
def message(name: str) -> Message:
    """The message of that name (Kafka's, e.g. FetchRequest), or of a former one (ListOffsetRequest).

    Raises UnknownMessage.
    """
    index = _index()
    name = index.names.get(name, name)
    if name not in index.files:
        raise UnknownMessage(f"no message is called {name}{near(name, index.files)}")
    return _parsed(index.files[name])[name]


def messages() -> Iterator[Message]:
    """Every message: APIs by key, then the others."""
    for file in _texts():
        yield from _parsed(file).values()


def api_stem(api: int) -> str | None:
    """The API's name as messages have it (`ListOffsets` for 2); None where no release has that key."""
    return _index().apis.get(api)


def near(name: str, known: Iterable[str]) -> str:
    """` (did you mean ...?)`, or nothing."""
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), 1)
    return f" (did you mean {close[0]}?)" if close else ""
