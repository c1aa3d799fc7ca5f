"""What is decided of a frame on its way through the proxy: verdicts, and what they are decided upon.

Values, as those of `model`: who decides (plugins, rules) and who carries it out (conversation.intercept)
know of each other only these.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from kwsniff.model import Exchange, FetchedPartition, Frame, Peer


class Forward(Struct, frozen=True, gc=False):
    """Let it go on as it is; ends the chain for nobody."""


class Replace(Struct, frozen=True, gc=False):
    """Go on with these bytes instead: a whole frame of the same side, without size prefix."""

    raw: bytes


class Delay(Struct, frozen=True, gc=False):
    """Hold it back for so many nanoseconds; what comes behind it on this connection waits too."""

    ns: int


class Throttle(Struct, frozen=True, gc=False):
    """Let this frame go at so many bytes a second."""

    bytes_per_second: int


class Respond(Struct, frozen=True, gc=False):
    """Answer a request with this frame (no size prefix), in its turn; the broker never sees the request."""

    raw: bytes


class Drop(Struct, frozen=True, gc=False):
    """It does not go on. Answers behind it stay in order; the client waits for this one in vain."""


class Close(Struct, frozen=True, gc=False):
    """Both sides are closed, after what was sent before has left. `why` is for the log."""

    why: str = ""


class Reset(Struct, frozen=True, gc=False):
    """Both sides get a TCP RST."""


Verdict = Forward | Replace | Delay | Throttle | Respond | Drop | Close | Reset


class Passing(Struct, eq=False, kw_only=True):
    """A frame on its way through the proxy, as the next plugin sees it."""

    frame: Frame
    """As the plugin before left it."""
    original: Frame
    """As it was received."""
    request: Frame | None = None
    """Of a response: the request that it answers, as the client sent it."""
    number: int = 0
    """Of the frame in its direction of its connection, from 0."""
    now: int = 0
    """When it was whole: ns since the epoch."""
    verdicts: list[tuple[str, Verdict]] = field(default_factory=list)
    """What was decided so far, and by whom (plugin name, or plugin:rule)."""
    tags: list[str] = field(default_factory=list)
    """For kwsniff.tags of the exchange's line."""
    peer: Peer = Peer()
    """What the connection has told about its client so far."""
    topic_names: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """As in Exchange: topic id -> (when learnt, name), of all connections."""
    fetched: tuple[FetchedPartition, ...] | None = None
    """Of the response to a Fetch in an incremental session: as in Exchange."""


class Passed(Struct, eq=False, kw_only=True):
    """An exchange that went through the proxy, told to observers when it is over."""

    exchange: Exchange
    """As the client saw it: its request as sent, the response that it was given. Its line is the log's."""
    sent: Frame | None
    """The request as the broker got it; None where it never did."""
    received: Frame | None
    """The response as the broker gave it."""
    verdicts: list[tuple[str, Verdict]] = field(default_factory=list)
    """Of both frames, in order."""
    number: int = 0
    """Of the request in its direction of its connection (Passing.number); of a response without one, its."""
    proxy_ns: int = 0
    """Time that the proxy itself held the two frames, delays by rule included; the rest is the broker's."""
