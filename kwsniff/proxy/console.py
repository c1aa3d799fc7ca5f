"""Standard error: lines for the operator, and on a terminal one line that shows how things are.

A line that is said again and again is counted, not repeated: a thousand clients that cannot reach a broker
are one line a second.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TextIO

_QUIET_S = 1.0
_MOST_KINDS = 100
_ERASE = "\r\x1b[K"


class Console:
    """What is said is escaped: names and error texts come from other machines."""

    def __init__(
        self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic, status: bool | None = None
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._live = stream.isatty() if status is None else status
        self._shown = ""
        self._since: dict[str, float] = {}
        self._held: Counter[str] = Counter()

    def say(self, text: str, kind: str | None = None) -> None:
        """One line. kind: lines of the same one are alike, at most one of them is shown in a second."""
        if kind is not None:
            self.flush()
            if kind in self._since:
                self._held[kind] += 1
                return
            if len(self._since) < _MOST_KINDS:
                self._since[kind] = self._clock()
        self._print(text)

    def status(self, text: str) -> None:
        """The live line, on a terminal."""
        if self._live:
            self._shown = text
            self._write(_ERASE + text)

    def flush(self) -> None:
        """Tell how many lines were held back; called now and then."""
        now = self._clock()
        for kind in [kind for kind, since in self._since.items() if now - since >= _QUIET_S]:
            del self._since[kind]
            if count := self._held.pop(kind, 0):
                self._print(f"{kind}: {count:,} more of this kind")

    def close(self) -> None:
        self._since = dict.fromkeys(self._since, float("-inf"))
        self.flush()
        if self._shown:
            self._write(_ERASE)
            self._shown = ""

    def _print(self, text: str) -> None:
        line = f"kwsniff: {_escaped(text)}\n"
        self._write(f"{_ERASE}{line}{self._shown}" if self._shown else line)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # nobody listens: no reason to stop
            self._shown = ""


def _escaped(text: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
