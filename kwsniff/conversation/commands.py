"""What a proxied connection is told to do, who decides upon its frames, and several verdicts as one."""

from __future__ import annotations

from typing import NamedTuple
from typing import Protocol as TypingProtocol

from msgspec import Struct

from kwsniff.model import Fault, Side
from kwsniff.passing import Close, Delay, Drop, Passed, Passing, Reset, Respond, Throttle, Verdict


class Send(Struct, frozen=True, gc=False):
    """Give these bytes to the broker (Side.REQUEST) or to the client (Side.RESPONSE)."""

    side: Side
    data: bytes


class Finish(Struct, frozen=True, gc=False):
    """No more bytes travel that way: half-close."""

    side: Side


class Shut(Struct, frozen=True, gc=False):
    """Close both sides once what was sent before has left; with `reset`, both get a TCP RST."""

    why: str
    reset: bool = False


Command = Send | Finish | Shut


class Judge(TypingProtocol):
    """Who decides: policy.chain.Chain."""

    def wants(self, api: int) -> bool:
        """Whether frames of this API are to be judged."""

    def request(self, passing: Passing) -> list[tuple[str, Verdict]]:
        """What is decided; `passing.frame` is left as it is to go on."""

    def response(self, passing: Passing) -> list[tuple[str, Verdict]]: ...
    def exchanged(self, passed: Passed) -> None: ...
    def faulted(self, fault: Fault) -> None: ...


class Ruling(NamedTuple):
    """Verdicts upon one frame, as one: delays add up, the slowest throttle counts."""

    delay: int = 0
    """ns."""
    rate: int = 0
    """Bytes a second; 0: as fast as may be."""
    end: Respond | Drop | Close | Reset | None = None
    why: str = ""
    """Of `end`: who decided it, and for what reason."""


GO = Ruling()


def ruling(verdicts: list[tuple[str, Verdict]]) -> Ruling:
    """What Replace has done is in the frame already."""
    found = GO
    for name, verdict in verdicts:
        if isinstance(verdict, Delay):
            found = found._replace(delay=found.delay + verdict.ns)
        elif isinstance(verdict, Throttle):
            rate = max(verdict.bytes_per_second, 1)
            found = found._replace(rate=min(found.rate or rate, rate))
        elif isinstance(verdict, Respond | Drop | Close | Reset):
            return found._replace(end=verdict, why=_why(name, verdict))
    return found


def _why(name: str, verdict: Verdict) -> str:
    reason = f": {verdict.why}" if isinstance(verdict, Close) and verdict.why else ""
    return f"{type(verdict).__name__.lower()} by {name}{reason}"
