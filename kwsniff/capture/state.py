"""What of a stream's and a connection's state each segment touches: shared with the compiled scanner.

The classes of `_run` have the same attributes, as machine integers, which the scanner reads and writes in
place: there is one state, whoever handles the next segment. Here is what they mean, and what is used where
the extension is not there. They refuse to know what to do with a segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kwsniff.compiled import compiled
from kwsniff.model import Endpoint

_run = compiled("kwsniff.capture._run")


class PureConnectionState:
    __slots__ = ("done", "last", "session", "slot", "tick")

    session: int
    tick: int
    """Segments seen."""
    last: int
    """The number of its last segment among those of the input."""
    done: bool
    """Both directions have ended."""
    slot: Any
    """For whoever reads this session's chunks; None until set, and again when the session is done."""


class PureStreamState:
    __slots__ = ("acked", "connection", "dst", "next", "peer", "plain", "src", "strays")

    src: Endpoint
    dst: Endpoint
    next: int
    """The position of the byte to deliver next."""
    acked: int | None
    """The highest acknowledgement number that the peer sent."""
    strays: int
    plain: bool
    """Nothing is out of the ordinary: the next segment, if it is the right one, is delivered as it is."""


if TYPE_CHECKING or _run is None:
    ConnectionState = PureConnectionState
    StreamState = PureStreamState
else:
    ConnectionState = _run.ConnectionState
    StreamState = _run.StreamState
