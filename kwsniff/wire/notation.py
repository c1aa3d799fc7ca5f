"""The schema notation, text -> Message values. One line per field, nested by two spaces; `#` is a comment.

    api 1 Fetch v0-18 flexible v12+
      request
        Name: type [vA-B] [tag N] [= default] [ignorable] [inflexible] [secret | config]

An api has a request and a response; any other message (header, data, metadata, coordinator-key or -value) has
its fields directly below. A type is a primitive, an entity type of types.schema, or a struct: its fields are
nested below, or stand once in a `struct` of the same message. `[T]` is an array; `T?` may be null, `T?v7+`
from version 7 on. Versions are v3, v3-5 or v3+ (to the message's last); without them, those of what encloses
the line. `variant`: other bytes under the same version number, with the releases that wrote them.
Notes on a message: listeners, formerly (other names), deprecated, unstable, until (the last release that had
it). `store` names the internal topic of the messages behind it.
Refuses to know where texts come from and how anything is encoded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from kwsniff.wire.schema import KINDS, PRIMITIVES, Field, Message, Versions


class SchemaError(ValueError):
    """A schema file that does not follow the notation. The text begins with file and line."""


class _Line(NamedTuple):
    file: str
    number: int
    text: str
    below: list[_Line]

    def wrong(self, why: str) -> SchemaError:
        return SchemaError(f"{self.file}:{self.number}: {why}: {self.text!r}")


def _lines(file: str, text: str) -> list[_Line]:
    """The lines as a tree by indentation, without comments and empty lines."""
    roots: list[_Line] = []
    levels = [roots]
    for number, raw in enumerate(text.splitlines(), 1):
        content = raw.partition("#")[0].rstrip()
        if not content:
            continue
        stripped = content.lstrip(" ")
        depth, odd = divmod(len(content) - len(stripped), 2)
        line = _Line(file, number, stripped, [])
        if odd or depth >= len(levels) or stripped[0] == "\t":
            raise line.wrong("the indentation is not two spaces a level")
        del levels[depth + 1 :]
        levels[depth].append(line)
        levels.append(line.below)
    return roots


_VERSIONS = re.compile(r"v(\d+)(?:(\+)|-(\d+))?$")


def _versions(line: _Line, text: str | None, base: Versions) -> Versions:
    """`v3`, `v3-5` or `v3+` within `base`; None: all of it."""
    if text is None:
        return base
    match = _VERSIONS.match(text)
    if match is None:
        raise line.wrong(f"{text} is no version range")
    low = int(match[1])
    high = base.max if match[2] else int(match[3] or low)
    within = Versions(max(low, base.min), min(high, base.max))
    if within.min > within.max:
        raise line.wrong(f"no version of {text} is in {base}")
    return within


_FIELD = re.compile(
    r"(?P<name>\w+): (?:\[(?P<element>\w+)\]|(?P<type>\w+))(?P<null>\?(?P<nullv>v[\d+-]+)?)?"
    r"(?: (?P<versions>v[\d+-]+))?(?: tag (?P<tag>\d+))?(?: = (?P<default>\S+))?"
    r"(?P<ignorable> ignorable)?(?P<inflexible> inflexible)?(?: (?P<mark>secret|config))?$"
)
_NULLABLE = ("string", "bytes", "records")


def _default(line: _Line, type_: str, compound: bool, text: str | None) -> Any:
    if text is None:
        return None if compound else PRIMITIVES[type_]
    if text == "null":
        return None
    try:
        if type_ == "bool":
            return {"true": True, "false": False}[text]
        if type_ == "float64":
            return float(text)
        if type_ in ("string", "bytes", "records", "uuid") or compound:
            raise ValueError
        return int(text, 0)
    except (KeyError, ValueError):
        raise line.wrong(f"{text} is no default of {type_}") from None


class _Body:
    """The fields, shared structs and variant lines of one message."""

    def __init__(self, lines: list[_Line], versions: Versions, entities: dict[str, str]) -> None:
        self.versions = versions
        self.entities = entities
        words = [(line.text.split(), line) for line in lines]
        self.struct_lines = {word[1]: line for word, line in words if word[0] == "struct"}
        self.variant_lines = [line for word, line in words if word[0] == "variant"]
        self.structs: dict[str, tuple[Field, ...]] = {}
        self.open: list[str] = []
        own = [line for word, line in words if word[0] not in ("struct", "variant")]
        self.fields = self._fields(own, versions)

    def _fields(self, lines: list[_Line], base: Versions) -> tuple[Field, ...]:
        made: list[Field] = []
        for line in lines:
            field = self._field(line, base)
            for other in made:
                same = other.key == field.key or (other.tag is not None and other.tag == field.tag)
                if same and _within(other.versions, field.versions):
                    raise line.wrong(f"the same name or tag as {other.name}")
            made.append(field)
        return tuple(made)

    def _field(self, line: _Line, base: Versions) -> Field:
        match = _FIELD.match(line.text)
        if match is None:
            raise line.wrong("not a field")
        part = match.groupdict()
        written = part["element"] or part["type"]
        type_ = self.entities.get(written, written)
        compound = part["element"] is not None or type_ not in PRIMITIVES
        versions = _versions(line, part["versions"], base)
        nullable = _versions(line, part["nullv"], versions) if part["null"] else None
        if nullable and not compound and type_ not in _NULLABLE:
            raise line.wrong(f"{type_} cannot be null")
        if part["default"] == "null" and nullable is None:
            raise line.wrong("a default of null needs a type that can be null")
        return Field(
            name=part["name"],
            key=part["name"][0].lower() + part["name"][1:],
            type=type_,
            entity=written if written in self.entities else None,
            array=part["element"] is not None,
            versions=versions,
            nullable=nullable,
            tag=None if part["tag"] is None else int(part["tag"]),
            default=_default(line, type_, compound, part["default"]),
            default_null=part["default"] == "null",
            ignorable=part["ignorable"] is not None,
            flexible=part["inflexible"] is None,
            mark=part["mark"],
            fields=self._nested(line, type_, versions),
        )

    def _nested(self, line: _Line, type_: str, versions: Versions) -> tuple[Field, ...]:
        if type_ in PRIMITIVES:
            if line.below:
                raise line.below[0].wrong(f"{type_} has no fields")
            return ()
        if line.below:
            return self._fields(line.below, versions)
        if type_ not in self.structs:
            self.structs[type_] = self._shared(line, type_)
        return _narrowed(self.structs[type_], versions)

    def _shared(self, line: _Line, name: str) -> tuple[Field, ...]:
        if name not in self.struct_lines:
            raise line.wrong(f"unknown type {name}")
        if name in self.open:
            raise line.wrong(f"{name} contains itself")
        self.open.append(name)
        struct = self.struct_lines[name]
        words = struct.text.split()
        base = _versions(struct, words[2] if len(words) > 2 else None, self.versions)
        fields = self._fields(struct.below, base)
        self.open.pop()
        return fields


def _within(a: Versions, b: Versions) -> Versions | None:
    low, high = max(a.min, b.min), min(a.max, b.max)
    return Versions(low, high) if low <= high else None


def _narrowed(fields: tuple[Field, ...], base: Versions) -> tuple[Field, ...]:
    """The fields of a shared struct as far as they exist in the versions of one use of it."""
    kept = []
    for field in fields:
        versions = _within(field.versions, base)
        if versions == field.versions:
            kept.append(field)
        elif versions:
            nullable = field.nullable and _within(field.nullable, versions)
            below = _narrowed(field.fields, versions)
            kept.append(replace(field, versions=versions, nullable=nullable, fields=below))
    return tuple(kept)


_HEAD = re.compile(r"(api|" + "|".join(KINDS) + r") (?:(\d+) )?(\w+) (v[\d-]+)(?: flexible (v\d+\+))?$")
_VARIANT = re.compile(r"variant (\S+) (v\d+)( flexible)?$")
_NOTES = ("listeners", "formerly", "deprecated", "unstable", "until")


class _File:
    """The messages of one file."""

    def __init__(self, file: str, text: str, entities: dict[str, str]) -> None:
        self.entities = entities
        self.store: str | None = None
        self.messages: list[Message] = []
        for line in _lines(file, text):
            word, _, rest = line.text.partition(" ")
            if word == "store":
                self.store = rest
            elif word == "type":
                self._entity(line)
            else:
                self._message(line)

    def _entity(self, line: _Line) -> None:
        words = line.text.split()
        if len(words) != 4 or words[2] != "=" or words[3] not in PRIMITIVES:
            raise line.wrong("not `type name = primitive`")
        self.entities[words[1]] = words[3]

    def _message(self, line: _Line) -> None:
        match = _HEAD.match(line.text)
        if match is None:
            raise line.wrong("neither a message nor a type nor a store")
        kind, key, name = match[1], match[2], match[3]
        versions = _versions(line, match[4], Versions(0, 2**15 - 1))
        flexible = _versions(line, match[5], versions) if match[5] else None
        notes = {below.text.split()[0]: below for below in line.below if below.text.split()[0] in _NOTES}
        rest = [below for below in line.below if below not in notes.values()]
        parts = [("", kind, rest)]
        if kind == "api":
            parts = [(below.text.capitalize(), below.text, below.below) for below in rest]
            if [below.text for below in rest] != ["request", "response"]:
                raise line.wrong("an api has a request and a response")
        for suffix, type_, lines in parts:
            body = _Body(lines, versions, self.entities)
            made = Message(
                name=name + suffix,
                type=type_,
                api_key=int(key) if key else None,
                versions=versions,
                flexible=flexible,
                fields=body.fields,
                store=self.store,
                **_notes(notes, versions, suffix),
            )
            variants = tuple(self._variant(made, below) for below in body.variant_lines)
            self.messages.append(replace(made, variants=variants))

    def _variant(self, message: Message, line: _Line) -> Message:
        match = _VARIANT.match(line.text)
        if match is None:
            raise line.wrong("not `variant releases vN [flexible]`")
        versions = _versions(line, match[2], message.versions)
        fields = _Body(line.below, versions, self.entities).fields
        flexible = versions if match[3] else None
        return replace(message, versions=versions, flexible=flexible, fields=fields, variant=match[1])


def _notes(notes: dict[str, _Line], versions: Versions, suffix: str) -> dict[str, Any]:
    words = {word: line.text.split()[1:] for word, line in notes.items()}
    made: dict[str, Any] = {"listeners": tuple(words.get("listeners", ()))}
    made["aliases"] = tuple(former + suffix for former in words.get("formerly", ()))
    made["until"] = words["until"][0] if "until" in words else None
    for word in ("deprecated", "unstable"):
        made[word] = _versions(notes[word], words[word][0], versions) if word in words else None
    return made


def parse(file: str, text: str, entities: Mapping[str, str]) -> list[Message]:
    """The messages of a schema text. `file` is its name for errors; `entities`: entity type -> primitive.

    Raises SchemaError, which names file and line.
    """
    return _File(file, text, dict(entities)).messages


def entities(file: str, text: str) -> dict[str, str]:
    """The entity types that a text declares, each with its primitive. Raises SchemaError."""
    return _File(file, text, {}).entities
