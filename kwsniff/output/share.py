"""Whose lines are whose, where several processes decode the same input and each makes some of its lines.

In: an exchange or fault. Out: the number of the process that makes its line. It depends on nothing but the
event itself, by the packet of its request's end (else its response's): all processes agree without a word and
neighbours in the output mostly have the same owner. `_line.pyx` reckons the same for pairs of which it makes
no event.
"""

from __future__ import annotations

from typing import NamedTuple

from kwsniff.model import Exchange, Fault, Frame, Protocol

PACKETS = 512
"""Packets in a row whose exchanges belong to one process: some hundred kB of a busy connection."""


class Share(NamedTuple):
    """The part of one process. jobs: how many there are; mine: which this is, from 0."""

    jobs: int = 1
    mine: int = 0

    def owner(self, event: Exchange | Fault) -> int:
        if isinstance(event, Exchange):
            frame = event.request or event.response
            return 0 if frame is None else frame.packet // PACKETS % self.jobs
        return (event.packet or 0) // PACKETS % self.jobs


ALONE = Share()


def without_body(exchange: Exchange) -> int:
    """Bytes that the ledgers count as undecoded because somebody asked in vain for a frame's body."""
    return sum(map(_in_vain, filter(None, (exchange.request, exchange.response))))


def _in_vain(frame: Frame) -> int:
    decoded = frame.__dict__.get("decoded")
    if decoded is None or decoded.body is not None:
        return 0
    nobody_knows = (
        frame.protocol is Protocol.KAFKA and frame.version is None
    )  # a response without its request
    return 0 if nobody_knows else frame.size - frame.lost
