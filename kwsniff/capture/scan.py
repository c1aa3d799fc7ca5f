"""A capture -> the chunks of its connections, by the window: the hops of reading, link layer and TCP in one.

`Scanner` does it packet by packet, as `LinkDecoder` and `Reassembler` say; its twin in `_scan` does the same
for ordinary packets in C, and gives the others to them. Data in order comes from the twin as a `Run`: chunks
of one direction that follow one another, not yet cut apart. Refuses to know who reads the chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from kwsniff.capture.files import PacketReader
from kwsniff.capture.link import LinkDecoder
from kwsniff.capture.tcp import Reassembler
from kwsniff.compiled import compiled
from kwsniff.model import Chunk, Packet

if TYPE_CHECKING:
    from kwsniff.capture import _run, _scan

    Item = Chunk | _run.Run

compiled_scan = compiled("kwsniff.capture._scan")


class Scanner:
    """One capture. Feeds the state that it is given, which may have seen other captures and will see more."""

    def __init__(self, capture: PacketReader) -> None:
        self._batches = capture.read_batches()
        self._begun: list[Packet] = []
        self.last: int | None = None
        """Capture time of the last packet that was read."""

    def first(self) -> int | None:
        """Capture time of the first packet; None: there is none. To be asked before `batches`.

        Raises as iterating over the capture does.
        """
        self._begun = next(self._batches, [])
        return self._begun[0].ts if self._begun else None

    def batches(self, links: LinkDecoder, streams: Reassembler) -> Iterator[list[Item]]:
        """What each window of the capture makes deliverable, in the order of packets. Perhaps nothing.

        Raises as iterating over the capture does, when all in front of the break was yielded.
        """
        decode, feed = links.decode, streams.feed
        for packets in chain([self._begun], self._batches):
            items: list[Item] = []
            for packet in packets:
                segment = decode(packet)
                if segment is not None:
                    items += feed(segment)
                self.last = packet.ts
            yield items


def scanner(capture: PacketReader) -> Scanner | _scan.Scanner:
    """The fastest scanner there is."""
    return compiled_scan.Scanner(capture) if compiled_scan else Scanner(capture)


def chunks(items: Iterable[Item]) -> Iterator[Chunk]:
    """Items one chunk at a time."""
    for item in items:
        if isinstance(item, Chunk):
            yield item
        else:
            yield from item.chunks()
