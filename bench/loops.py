"""Captures below Kafka: dpkt's packet loop, and kwsniff's packets -> ordered streams. Run as a program.

    python bench/loops.py dpkt|streams FILE...

Prints the bytes of TCP payload, so that both can be seen to have done the work.
"""

from __future__ import annotations

import sys
from pathlib import Path


def dpkt_packets(path: Path) -> int:
    """The loop of dpkt's own examples: each packet down to its TCP payload, nothing put in order."""
    import dpkt

    total = 0
    with path.open("rb") as stream:
        for _, data in dpkt.pcap.Reader(stream):
            packet = dpkt.ethernet.Ethernet(data).data
            if isinstance(packet, dpkt.ip.IP) and isinstance(packet.data, dpkt.tcp.TCP):
                total += len(packet.data.data)
    return total


def streams(path: Path) -> int:
    """Hops 1 to 3: every connection's bytes in order, as the framer gets them."""
    from kwsniff.capture.files import open_capture
    from kwsniff.capture.link import LinkDecoder
    from kwsniff.capture.scan import scanner
    from kwsniff.capture.tcp import Reassembler
    from kwsniff.model import Chunk

    links, reassembler = LinkDecoder(), Reassembler()
    total = 0
    with open_capture(str(path)) as capture:
        scan = scanner(capture)
        scan.first()
        for items in scan.batches(links, reassembler):
            for item in items:
                total += len(item.data if isinstance(item, Chunk) else item.data())
    return total + sum(len(chunk.data) for chunk in reassembler.flush())


LOOPS = {"dpkt": dpkt_packets, "streams": streams}

if __name__ == "__main__":
    for name in sys.argv[2:]:
        print(LOOPS[sys.argv[1]](Path(name)))
