"""Which Kafka release serves which versions of which API. The facts are in data/releases.txt.

In: a release as people write it (4.0, 4.0.1, 0.10.2.1) and an API key. Out: a version range, or None. One
without a patch number stands for its newest patch. Served, not advertised: brokers of 4.x list Produce from
version 0 although they refuse 0 to 2 (KAFKA-18659).
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kwsniff.errors import ConfigError
from kwsniff.wire import schema

_FILE = Path(__file__).with_name("data") / "releases.txt"
_NEWEST_PATCH = 1 << 30

_Release = tuple[int, ...]
_Change = tuple[_Release, tuple[int, int] | None]


class _Table(NamedTuple):
    lines: tuple[str, ...]
    changes: dict[int, list[_Change]]
    """API key -> (release, the range from then on), oldest first."""


def releases() -> list[str]:
    """The release lines known, oldest first: 0.8.0 ... 0.11.0, 1.0 ... 4.3."""
    return list(_table().lines)


def served(release: str, api: int) -> tuple[int, int] | None:
    """The versions of an API that a broker of that release serves to clients; None: it does not serve it.

    Raises ConfigError for a release that there is not.
    """
    wanted = _number(release)
    found = None
    for since, versions in _table().changes.get(api, ()):
        if since > wanted:
            break
        found = versions
    return found


def deprecated(api: int, version: int) -> bool:
    """Whether Kafka 3.9 marks that version of the API as deprecated (KIP-896)."""
    stem = schema.api_stem(api)
    if stem is None:
        return False
    versions = schema.message(stem + "Request").deprecated
    return versions is not None and versions.covers(version)


@cache
def _number(release: str) -> _Release:
    """A release as a tuple that sorts, its newest patch when none is given."""
    for line in _table().lines:
        if release == line:
            return (*_digits(line), _NEWEST_PATCH)
        if re.fullmatch(re.escape(line) + r"\.\d+", release):
            return _digits(release)
    raise ConfigError(f"unknown Kafka release {release}{_near(release)}")


def _near(release: str) -> str:
    lines = _table().lines
    close = [line for line in lines if line.startswith(release + ".")]
    if close:
        return f" (did you mean {' or '.join(close[-3:])}?)"
    return schema.near(release, lines) or f" (known: {lines[0]} to {lines[-1]})"


def _digits(release: str) -> _Release:
    return tuple(int(part) for part in release.split("."))


@cache
def _table() -> _Table:
    lines: tuple[str, ...] = ()
    changes: dict[int, list[_Change]] = {}
    for line in _FILE.read_text("utf-8").splitlines():
        if line.startswith("releases "):
            lines = tuple(line.split()[1:])
        elif line and not line.startswith("#"):
            api, _, points = line.partition(": ")
            changes[int(api.split()[0])] = [_change(point) for point in points.split(", ") if point != "-"]
    return _Table(lines, changes)


def _change(point: str) -> _Change:
    """`3.2 v0-9`, or `4.0 -`."""
    release, versions = point.split()
    if versions == "-":
        return _digits(release), None
    low, _, high = versions.removeprefix("v").partition("-")
    return _digits(release), (int(low), int(high or low))
