"""Rules that change while the proxy runs: when their file does, or when somebody says so (SIGHUP).

A file with a mistake leaves the rules as they were, and what is wrong with it is said once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from kwsniff.errors import ConfigError
from kwsniff.policy import rule_file
from kwsniff.policy.ruleset import RuleSet

_Stamp = tuple[int, int, int]


class Replaceable(Protocol):
    """The rule engine, as far as it matters here."""

    def replace(self, ruleset: RuleSet) -> None: ...


class Reloading:
    """renew: tells the chain that other APIs may be wanted now. say: a line for the operator."""

    def __init__(
        self,
        path: Path,
        current: RuleSet,
        rules: Replaceable,
        renew: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._path = path
        self._current = current
        self._rules = rules
        self._renew = renew
        self._say = say
        self._stamp = _stamp(path)

    def poll(self) -> None:
        """Read the file again where it is another one than before."""
        stamp = _stamp(self._path)
        if stamp != self._stamp and stamp is not None:
            self.reload()

    def reload(self) -> None:
        """Read the file again in any case."""
        self._stamp = _stamp(self._path)
        ruleset, wrong = rule_file.reload(self._path, self._current)
        if wrong is None and ruleset != self._current:
            wrong = self._take(ruleset)
        if wrong is not None:
            self._say(f"the rules stay as they were: {wrong}")
        else:
            self._say(f"{len(self._current.rules):,} rules read from {self._path}")

    def _take(self, ruleset: RuleSet) -> str | None:
        """What is wrong with the rules, found out by the plugins; they stay then."""
        before = self._current
        self._rules.replace(ruleset)
        try:
            self._renew()
        except ConfigError as error:
            self._rules.replace(before)
            return str(error)
        self._current = ruleset
        return None


def _stamp(path: Path) -> _Stamp | None:
    """What changes with a file; None while it is being replaced."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
