"""Rules as values: what a rule file says once it is read and checked. Equal rules compare equal.

Built by `rule_file`, carried out by `rules`; they can be pickled, for Spark. Times are nanoseconds, sizes
bytes, APIs keys. Nothing here reads, checks or acts.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct

from kwsniff.model import Side
from kwsniff.wire.schema import Versions


class On(StrEnum):
    """When a rule is asked."""

    REQUEST = "request"
    """A request is about to go to the broker."""
    RESPONSE = "response"
    """A response is about to go to the client."""
    EXCHANGE = "exchange"
    """An exchange is over, whatever its outcome."""
    SESSION = "session"
    """A connection has ended."""


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Log(Struct, frozen=True):
    """A line in the log."""

    text: str = ""


class Tag(Struct, frozen=True):
    """For kwsniff.tags of the exchange's line."""

    names: tuple[str, ...]


class RaiseAlert(Struct, frozen=True):
    """Somebody is told. to: a file, an http(s) URL, or None for where alerts go by default."""

    severity: Severity = Severity.WARNING
    text: str = ""
    to: str | None = None


class Count(Struct, frozen=True):
    """One more of this metric."""

    metric: str


class DelayBy(Struct, frozen=True):
    """Held back for latency, give or take as much as jitter."""

    latency: int
    jitter: int = 0


class ThrottleTo(Struct, frozen=True):
    bytes_per_second: int


class DropIt(Struct, frozen=True):
    """It does not go on: the client waits until its own timeout, then reconnects."""


class CloseIt(Struct, frozen=True):
    why: str = ""


class ResetIt(Struct, frozen=True):
    pass


class AnswerError(Struct, frozen=True):
    """A valid answer of that API and version which says this error, wherever it has a place for one."""

    code: int


class AnswerBody(Struct, frozen=True):
    """This answer; what it leaves out has its default."""

    body: dict[str, Any]


class Step(Struct, frozen=True):
    """One name of a path. index: None where it is no array, ALL, or the number of an element."""

    key: str
    index: int | None = None


ALL = -1


class Assignment(Struct, frozen=True):
    """names: the field holds topics; those that are keys get their values."""

    path: str
    steps: tuple[Step, ...]
    value: Any = None
    names: dict[str, str] | None = None
    topic: bool = False
    """The field holds topic names: what a request is told differently is told back in its answer."""


class SetFields(Struct, frozen=True):
    fields: tuple[Assignment, ...]


class RenameTopics(Struct, frozen=True):
    """The client's name of a topic -> the broker's, in all of a request; the other way in its answer."""

    names: dict[str, str]


class RedactRecords(Struct, frozen=True):
    """topics: patterns (globs); empty: all."""

    topics: tuple[str, ...] = ()
    keys: bool = False
    values: bool = False
    headers: bool = False


class Corrupt(Struct, frozen=True):
    """crc: of every batch of records. truncate: so many bytes of the body's end are cut off."""

    crc: bool = False
    truncate: int = 0


Action = (
    Log
    | Tag
    | RaiseAlert
    | Count
    | DelayBy
    | ThrottleTo
    | DropIt
    | CloseIt
    | ResetIt
    | AnswerError
    | AnswerBody
    | SetFields
    | RenameTopics
    | RedactRecords
    | Corrupt
)


class Rule(Struct, frozen=True, kw_only=True):
    """None: any."""

    name: str
    on: On
    then: tuple[Action, ...]
    apis: tuple[int, ...] | None = None
    versions: tuple[Versions, ...] | None = None
    client_id: str | None = None
    """A glob; a client without id has the empty one."""
    side: Side | None = None
    """Of an exchange: it must have this frame."""
    when: str | None = None
    chance: float = 1.0
    limit: int | None = None
    """How often it fires at most: in total, of all connections of this process."""
    goes_on: bool = False
    """Whether later rules are asked although this one fired."""
    line: int = 0
    """Where it stands in its file."""

    def takes_version(self, version: int | None) -> bool:
        if self.versions is None:
            return True
        return version is not None and any(span.covers(version) for span in self.versions)


class RuleSet(Struct, frozen=True):
    seed: int = 0
    rules: tuple[Rule, ...] = ()
    file: str = ""
