"""The observer that feeds the console: faults that nothing else tells of, and numbers for the live line."""

from __future__ import annotations

from collections.abc import Callable

from kwsniff.errors import Reason
from kwsniff.hooks import hookimpl
from kwsniff.model import Fault
from kwsniff.passing import Passed

_TOLD = frozenset((Reason.FRAME_INCOMPLETE, Reason.PLUGIN_FAILED))
"""Faults that an operator is told of. Those that close a connection are told with its closing; all others are
in the log, with the exchange in which they are."""


class Status:
    """A plugin. say: (line, kind)."""

    def __init__(self, say: Callable[[str, str], None]) -> None:
        self._say = say
        self.exchanges = self.faults = 0
        self._before = 0

    @hookimpl
    def exchanged(self, passed: Passed) -> None:  # noqa: ARG002 - counted only
        self.exchanges += 1

    @hookimpl
    def faulted(self, fault: Fault) -> None:
        self.faults += 1
        if fault.reason in _TOLD:
            who = "" if fault.conn is None else f"connection {fault.conn}, client {fault.conn.client}: "
            self._say(f"{who}{fault.message}", f"fault {fault.reason}")

    def line(self, connections: int, seconds: float) -> str:
        """How things are, since the last time this was asked."""
        rate = (self.exchanges - self._before) / seconds if seconds > 0 else 0.0
        self._before = self.exchanges
        numbers = f"{rate:,.0f} exchanges/s, {self.exchanges:,} in all, {self.faults:,} faults"
        return f"{connections:,} connections, {numbers}"
