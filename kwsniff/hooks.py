"""What a plugin of the proxy can do: the hook specifications (pluggy), and the markers to implement them.

A plugin is a module or an object with functions of these names, marked with `hookimpl`, each taking those of
the arguments that it wants. Plugins are called one at a time, each seeing a frame as the last one left it.
A verdict of Respond, Drop, Close or Reset ends the chain; what only tells (exchanged, closed, ...) tells all.
An exception in a plugin is a fault of its connection and the frame goes on; where the plugin has
`required = True` the proxy stops. A frame's body is shared by all: who changes it changes a copy, and answers
with Replace. Hooks run between two packets of the network: none may block.
"""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from kwsniff.model import Fault, Session
from kwsniff.passing import Passed, Passing, Verdict

PROJECT = "kwsniff"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

Labelled = tuple[str, Verdict]
"""A verdict with a label of the plugin's own: it is told as the plugin's name, a colon, and the label."""


class Hooks:
    """Every hook there is. What is marked and is none of them is refused when it is loaded."""

    @hookspec
    def wants(self) -> Iterable[str] | None:
        """The APIs whose frames `request` and `response` are to be called for, by the names that
        `kwsniff apis` lists (e.g. "Produce"); None: all."""

    @hookspec
    def opened(self, session: Session) -> None:
        """A client has connected, and the broker has been reached."""

    @hookspec
    def request(self, passing: Passing) -> Verdict | Iterable[Verdict | Labelled] | None:
        """A request is whole and about to go to the broker. None: let it go on."""

    @hookspec
    def response(self, passing: Passing) -> Verdict | Iterable[Verdict | Labelled] | None:
        """A response is whole and about to go to the client. None: let it go on."""

    @hookspec
    def exchanged(self, passed: Passed) -> None:
        """An exchange is over: what both sides saw of it has left, or will not."""

    @hookspec
    def faulted(self, fault: Fault) -> None:
        """Something was wrong with what a side sent, or with a plugin."""

    @hookspec
    def closed(self, session: Session) -> None:
        """The connection is over; its ledgers and peer are final."""

    @hookspec
    def tick(self, now: int) -> None:
        """About a second has gone by; now is ns since the epoch."""

    @hookspec
    def stopped(self, now: int) -> None:
        """The proxy is at its end, every connection is over: close files here."""
