"""The compiled codec: see _fast.pyx."""

from typing import Any, TypeAlias

from kwsniff.wire._program import Layout

FoundError: TypeAlias = tuple[int, str | None, str | None, int | None]
"""Code, topic, topic id, partition."""
RecordsPlace: TypeAlias = tuple[int, int, int, str, str | None, str | None]
"""Splice (bytes into the JSON text), offset in the data, size, key, topic, topic id."""
Facts: TypeAlias = tuple[
    tuple[str, ...],
    tuple[str, ...],
    str | None,
    tuple[FoundError, ...],
    int,
    tuple[RecordsPlace, ...],
    tuple[tuple[str, str], ...],
]
"""Topics, topic ids, first group, errors, throttleTimeMs, records fields, learned (topic id, topic)."""

class Program:
    name: str
    def __init__(self, layout: Layout, name: str = "") -> None: ...
    def decode(self, data: bytes, at: int = 0) -> tuple[dict[str, Any], int] | None: ...
    def encode(self, body: dict[str, Any]) -> bytes | None: ...
    def body_json(
        self, data: bytes, at: int = 0, end: int = -1, records: bool = False
    ) -> tuple[bytes, Facts] | None: ...
    def body_facts(self, data: bytes, at: int = 0, end: int = -1) -> Facts | None: ...
