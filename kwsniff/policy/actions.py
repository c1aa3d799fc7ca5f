"""What rules tell the world, and to whom: notes, alerts and counts are handed to an `Act`.

Values, and the interface that the proxy (or a test) implements. Nothing here writes, sends or counts.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from kwsniff.model import ConnectionId, Side
from kwsniff.policy.ruleset import On, Severity


class Occasion(Struct, frozen=True, kw_only=True):
    """What made a rule speak. The API's fields are None of a session."""

    ts: int
    conn: ConnectionId
    on: On
    side: Side | None = None
    number: int = 0
    api: int | None = None
    version: int | None = None
    correlation_id: int | None = None
    client_id: str | None = None


class Note(Struct, frozen=True):
    """Of the action `log`."""

    rule: str
    text: str
    occasion: Occasion


class Alert(Struct, frozen=True):
    """Of the action `alert`. to: a file, an http(s) URL, or None: where alerts go by default."""

    rule: str
    severity: Severity
    text: str
    to: str | None
    occasion: Occasion


class Act(Protocol):
    """Called between two packets: it must not block, nor raise."""

    def log(self, note: Note) -> None: ...

    def alert(self, alert: Alert) -> None: ...

    def count(self, metric: str, rule: str) -> None:
        """Of the action `count`: one more."""

    def fired(self, rule: str, on: On) -> None:
        """A rule has fired, whatever it does."""

    def failed(self, rule: str, why: str) -> None:
        """A rule could not do what it was to do; the frame went on (or, for its secrets, did not)."""


class Silent:
    """An `Act` for those who only want to know which rules fire."""

    def log(self, note: Note) -> None: ...
    def alert(self, alert: Alert) -> None: ...
    def count(self, metric: str, rule: str) -> None: ...
    def fired(self, rule: str, on: On) -> None: ...
    def failed(self, rule: str, why: str) -> None: ...
