"""Kafka's error codes. The facts are in data/errors.txt.

In: a code of the wire, or a name, of old or of now. Out: what Kafka calls it. An unknown code is never an
exception: brokers of tomorrow send them.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

_FILE = Path(__file__).with_name("data") / "errors.txt"
_LINE = re.compile(
    r"(?P<code>-?\d+) (?P<name>\w+)(?P<retriable> retriable)?(?P<metadata> metadata)? since (?P<since>[\d.]+)"
    r"(?: formerly (?P<former>[\w ]+))?: (?P<meaning>.+)$"
)


class ErrorCode(NamedTuple):
    """One error of Kafka's protocol."""

    code: int
    name: str
    retriable: bool
    refresh_metadata: bool
    """A retry needs fresh metadata."""
    since: str
    """The release that introduced it."""
    former_names: tuple[str, ...]
    meaning: str


def error_name(code: int) -> str:
    """Kafka's name of a code, e.g. REQUEST_TIMED_OUT for 7; UNKNOWN_<code> for one that no release has."""
    error = _by_code().get(code)
    return f"UNKNOWN_{code}" if error is None else error.name


def error(code: int) -> ErrorCode | None:
    """What is known of a code; None for one that no release has."""
    return _by_code().get(code)


def error_code(name: str) -> int | None:
    """The code of a name, or of a former name; None where there is none."""
    for known in _by_code().values():
        if name == known.name or name in known.former_names:
            return known.code
    return None


def codes() -> list[ErrorCode]:
    """Every error code, ascending."""
    return list(_by_code().values())


@cache
def _by_code() -> dict[int, ErrorCode]:
    found = {}
    for line in _FILE.read_text("utf-8").splitlines():
        match = _LINE.match(line)
        if match is None:
            assert not line or line.startswith("#"), line
            continue
        found[int(match["code"])] = ErrorCode(
            code=int(match["code"]),
            name=match["name"],
            retriable=match["retriable"] is not None,
            refresh_metadata=match["metadata"] is not None,
            since=match["since"],
            former_names=tuple((match["former"] or "").split()),
            meaning=match["meaning"],
        )
    return found
