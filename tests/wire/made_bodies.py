"""Bodies made from the schema: every field of a version set to something, for any message."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterator
from random import Random
from typing import Any

from kwsniff.wire import schema
from kwsniff.wire.schema import Field, Message

RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
}
TEXTS = ("", "orders", "naïve-größe", "\U0001f680", 'it\'s "q"\\', "\t\n", "x" * 200)


def every_version() -> Iterator[tuple[Message, int]]:
    """Every message at every version, without variants."""
    for message in schema.messages():
        for version in range(message.versions.min, message.versions.max + 1):
            yield message, version


class Maker:
    """Makes bodies with whatever `random` says. `tame`: only what every implementation can represent."""

    def __init__(self, random: Random, *, tame: bool = False) -> None:
        self.random = random
        self.tame = tame

    def body(self, message: Message, version: int) -> dict[str, Any]:
        return self._struct(message.fields, version, message.flexible_in(version))

    def _struct(self, fields: tuple[Field, ...], version: int, flexible: bool) -> dict[str, Any]:
        body = {f.key: self._value(f, version, flexible) for f in fields if f.versions.covers(version)}
        if flexible and not self.tame and self.random.random() < 0.2:
            body["_tags"] = {self.random.randint(50, 300): self._bytes(), 2**32 - 1: b""}
        return body

    def _value(self, field: Field, version: int, flexible: bool) -> Any:
        if field.null_in(version) and self.random.random() < 0.3:
            return None
        if field.array:
            count = self.random.choice((0, 1, 1, 2))
            return [self._one(field, version, flexible) for _ in range(count)]
        return self._one(field, version, flexible)

    def _one(self, field: Field, version: int, flexible: bool) -> Any:
        random = self.random
        if field.is_struct:
            return self._struct(field.fields, version, flexible)
        if field.type in RANGES:
            low, high = (0, 100) if self.tame else RANGES[field.type]
            return random.choice((low, high, 0, 1, random.randint(low, high)))
        if field.type == "bool":
            return random.random() < 0.5
        if field.type == "float64":
            return random.choice((0.0, -1.5, 1e300, float("inf")))
        if field.type == "uuid":
            raw = random.choice((bytes(16), bytes(random.randrange(256) for _ in range(16))))
            return urlsafe_b64encode(raw)[:22].decode()
        if field.type == "string":
            return self._text()
        return self._bytes()

    def _text(self) -> str:
        if self.tame or self.random.random() < 0.7:
            return self.random.choice(TEXTS)
        return self._bytes().decode("utf-8", "surrogateescape")

    def _bytes(self) -> bytes:
        return bytes(self.random.randrange(256) for _ in range(self.random.choice((0, 1, 3, 130))))
