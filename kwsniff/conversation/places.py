"""The order of answers: each request has a place, and what answers it leaves when its turn has come.

Brokers answer in order. An answer of the proxy's own waits until all before it are answered; those which the
broker has passed over, answering a later one, are waited for no longer. Knows no bytes and no time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from msgspec import Struct, field

from kwsniff.model import Frame, Peer, Protocol
from kwsniff.passing import Verdict

OVERHEAD = 1000
"""Bytes that a waiting request takes beside its own, about."""


class Place(Struct, eq=False):
    """One request, from its last byte until its exchange is over."""

    request: Frame
    """As the client sent it."""
    number: int
    peer: Peer
    due: bool
    """An answer is to come."""
    sent: Frame | None = None
    """As it goes to the broker; None: it does not."""
    received: Frame | None = None
    """The response as the broker gave it, where it is not what the client gets."""
    left: int | None = None
    """When it went to the broker: ns; None: it has not."""
    open: bool = True
    """It counts as in flight."""
    verdicts: list[tuple[str, Verdict]] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    answer: bytes | None = None
    """What the proxy itself answers."""
    rate: int = 0
    """At how many bytes a second it does; 0: at once."""
    over: bool = False
    """Its exchange is over."""


class Places:
    """Of one connection."""

    def __init__(self) -> None:
        self.waiting = 0
        """Bytes of the requests that have a place, and of what is kept with them."""
        self._by_request: dict[int, Place] = {}
        self._turns: OrderedDict[int, Place] = OrderedDict()
        """Those whose turn is not over."""
        self._tokens = False

    def add(self, place: Place) -> None:
        if place.request.protocol is Protocol.KAFKA and self._tokens:
            self._end_tokens()
        self._tokens = place.request.protocol is Protocol.SASL
        # By identity: the place keeps its frame alive, so that no other can get the same id.
        key = id(place.request)
        self._by_request[key] = self._turns[key] = place
        self.waiting += place.request.size + OVERHEAD

    def of(self, request: Frame) -> Place | None:
        return self._by_request.get(id(request))

    def remove(self, request: Frame) -> Place | None:
        """Its exchange is over."""
        key = id(request)
        place = self._by_request.pop(key, None)
        if place is not None:
            self._turns.pop(key, None)
            place.over = True
            self.waiting -= request.size + OVERHEAD + len(place.answer or b"")
        return place

    def fill(self, place: Place, answer: bytes) -> None:
        """The proxy answers it, when its turn has come."""
        if place.over:
            return  # it has got another one meanwhile (a repeated correlation id)
        place.answer = answer
        self.waiting += len(answer)

    def before(self, place: Place) -> Iterator[Place]:
        """The broker answers this one: those before it that the proxy answers. Then its turn is over too."""
        while id(place.request) in self._turns:
            _, first = self._turns.popitem(last=False)
            if first is not place and first.answer is not None:
                yield first

    def ready(self) -> Iterator[Place]:
        """Those that the proxy answers and before which nothing is waited for."""
        while self._turns:
            first = next(iter(self._turns.values()))
            if first.due and first.answer is None:
                return
            self._turns.popitem(last=False)
            if first.answer is not None:
                yield first

    def _end_tokens(self) -> None:
        """A client that goes on has no answer to its last token to wait for (GSSAPI)."""
        for place in self._turns.values():
            place.due = place.due and place.request.protocol is not Protocol.SASL
