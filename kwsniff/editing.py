"""Captures -> a capture: a part of them, anonymised or not, at other times.

In: paths, what is wanted (`Edit`), and a binary stream. Out: pcapng, and what was done (`Done`). Where frames
are left out or changed, the rest is told anew (`retelling`); else the packets are those of the captures, for
which these are read twice. Memory is bounded; the ends of chosen connections are remembered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address
from typing import IO

from kwsniff.capture.files import open_capture
from kwsniff.capture.frames import FIND_IP, IPV4, IPV6
from kwsniff.capture.link import LinkDecoder
from kwsniff.capture.pcapng_writer import PcapngWriter
from kwsniff.errors import CaptureError, ConfigError, NotACapture
from kwsniff.model import ConnectionId, Endpoint, Exchange, Fault, Packet, Session
from kwsniff.output.blanking import Blanker
from kwsniff.reader import events
from kwsniff.retelling import Done, Edit, Retimed, Retold

_NO_CONNECTION = "there is no such connection; a client is written 10.0.0.1:40001"


def edit(paths: list[str], wanted: Edit, stream: IO[bytes]) -> Done:
    """Raises ConfigError: a file cannot be read, a connection is not there, a time is none of a packet's."""
    done = Done()
    pairs = None
    if wanted.condition is None and wanted.names is None:
        pairs = _copyable(paths, wanted, done)
    if pairs is not None and wanted.connections and not pairs:
        raise ConfigError(_NO_CONNECTION)
    done.copied = pairs is not None
    out = Retimed(PcapngWriter(stream), wanted.timing, done)
    if pairs is not None:
        for packet in _copies(paths, wanted, pairs, done):
            out.write(packet)
    else:
        Retold(wanted, out, done).all(events(paths, wanted.options))
    if wanted.connections and not done.matched:
        raise ConfigError(_NO_CONNECTION)
    return done


def _copyable(paths: list[str], wanted: Edit, done: Done) -> set[tuple[Endpoint, Endpoint]] | None:
    """The ends of the connections that are wanted (empty: all); None where the packets hold secrets."""
    pairs: set[tuple[Endpoint, Endpoint]] = set()
    if wanted.keep_secrets and not wanted.connections:
        return pairs
    if "-" in paths:
        raise ConfigError("standard input is read once: to copy its packets needs --keep-secrets, without"
                          " --connection")  # fmt: skip
    blankers: dict[ConnectionId, Blanker] = {}
    for event in events(paths, replace(wanted.options, start=None, end=None)):
        if isinstance(event, Session):
            blankers.pop(event.conn, None)
        if isinstance(event, Fault) or not wanted.chosen(event.conn):
            continue
        pairs.add((event.conn.client, event.conn.broker))
        if isinstance(event, Exchange) and not wanted.keep_secrets:
            blanker = blankers.setdefault(event.conn, Blanker())
            for frame in (event.request, event.response):
                if frame is not None and blanker.blanked(frame, event.request).raw != frame.raw:
                    return None
    done.matched = bool(pairs)
    return pairs if wanted.connections else set()


def _copies(
    paths: list[str], wanted: Edit, pairs: set[tuple[Endpoint, Endpoint]], done: Done
) -> Iterator[Packet]:
    """The packets of these connections, and the fragments of datagrams between their hosts."""
    both = pairs | {(broker, client) for client, broker in pairs}
    hosts = {(src.host, dst.host) for src, dst in both}
    seen = set()
    for packet, ends in _with_ends(paths, wanted, bool(pairs), done):
        if pairs and not (ends in both or ends in hosts):
            continue
        if ends in both:
            seen.add(min(ends, ends[::-1]))
        done.connections = len(seen)
        yield packet


def _with_ends(
    paths: list[str], wanted: Edit, looking: bool, done: Done
) -> Iterator[tuple[Packet, tuple[Endpoint, Endpoint] | tuple[str, str] | None]]:
    """The packets within the time, with both their ends; of a fragment the hosts; None without."""
    start, end = wanted.options.start, wanted.options.end
    links = LinkDecoder()
    for path in paths:
        last = 0
        try:
            with open_capture(path) as capture:
                for packet in capture:
                    last = packet.ts
                    ends = _ends(links, packet) if looking else None
                    if (start is None or last >= start) and (end is None or last < end):
                        yield packet, ends
        except NotACapture as error:
            raise ConfigError(str(error)) from error
        except CaptureError as error:
            done.faults.append(Fault(ts=last, reason=error.reason, message=str(error), file=path))


def _ends(links: LinkDecoder, packet: Packet) -> tuple[Endpoint, Endpoint] | tuple[str, str] | None:
    ignored = links.ignored.total()
    segment = links.decode(packet)
    if segment is not None:
        return segment.src, segment.dst
    if links.ignored.total() > ignored:
        return None
    kind, at = FIND_IP[packet.linktype](packet.data)  # a fragment, or it would have been ignored
    first, size = {IPV4: (at + 12, 4), IPV6: (at + 8, 16)}[kind]
    hosts = [packet.data[place : place + size] for place in (first, first + size)]
    return str(ip_address(hosts[0])), str(ip_address(hosts[1]))
