"""Captures -> events: the wiring of the hops that decode, shared by the command line, `read` and the
pipeline.

In: paths and options. Out: exchanges and faults ordered by time within a window, and each connection's
session when it ends. Knows no output format. A file that breaks off is decoded up to the break, which is a
fault; one that cannot be read at all is named at the end in a ConfigError, after the others.
"""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kwsniff.capture.files import open_capture
from kwsniff.capture.link import LinkDecoder
from kwsniff.capture.scan import scanner
from kwsniff.capture.tcp import Reassembler
from kwsniff.compiled import compiled
from kwsniff.conversation.connection import DEFAULT_MAX_FRAME, Connection, Event, Shared
from kwsniff.conversation.recorded import with_records
from kwsniff.errors import CaptureError, ConfigError, NotACapture
from kwsniff.model import Chunk, Decoded, Endpoint, Exchange, Fault, Run, Session
from kwsniff.output import jsonl
from kwsniff.policy.expression import Expression, compile_filter

NS = 1_000_000_000
WINDOW = 10 * NS
"""Capture time within which output is in order."""
WINDOW_EVENTS = 10_000
WINDOW_BYTES = 32 * 1024 * 1024
"""Frame bytes that may wait for their turn: memory is worth more than order."""
_ROTATION = 60 * NS
"""A file of the same series that begins within this time behind the last packet of the one before."""

_lane: Any = compiled("kwsniff._lane")
_order: Any = compiled("kwsniff._order")

Place = Callable[[Any], tuple[int, int, int]]
Progress = Callable[[int, int | None], None]
"""(bytes read of all files so far, their size or None)."""


@dataclass(frozen=True)
class ReadOptions:
    """port: broker ports taken for Kafka whatever they carry. start, end: ns, of an event's own time."""

    port: tuple[int, ...] = ()
    max_frame: int = DEFAULT_MAX_FRAME
    start: int | None = None
    end: int | None = None
    progress: Progress | None = None


def events(paths: Iterable[str], options: ReadOptions | None = None) -> Iterator[Event]:
    """Everything that the captures tell, in order."""
    for batch in batches(paths, options or ReadOptions()):
        yield from batch


def batches(paths: Iterable[str], options: ReadOptions, lines: Any = None) -> Iterator[list[Any]]:
    """The same, many at a time. lines: a `_line.Lines`, whose lines stand for ordinary exchanges then."""
    for batch in in_order(_Input(options, lines).read(list(paths))):
        if options.start is None and options.end is None:
            yield batch
        else:
            yield [event for event in batch if isinstance(event, Session) or _within(event.ts, options)]


def in_order(found: Iterable[list[Any]]) -> Iterator[list[Any]]:
    """Sort by time within the window."""
    refused: list[ConfigError] = []
    make = Window if _order is None else _order.Window
    window: Window = make(_place, WINDOW, WINDOW_EVENTS, WINDOW_BYTES)
    for batch in _until_refused(found, refused):
        if ready := window.feed(batch):
            yield ready
    yield window.rest()
    for error in refused:
        raise error


class Window:
    """Events wait here until none before them can come. Limits: ns of capture time, events, bytes."""

    def __init__(self, place: Place, most_time: int, most_events: int, most_bytes: int) -> None:
        self._place = place
        self._most = most_time, most_events, most_bytes
        self._heap: list[tuple[int, int, int, Any]] = []
        self._newest = self._held = self._number = 0

    def feed(self, events: list[Any]) -> list[Any]:
        """The events whose turn it is now that these have come, in order."""
        heap = self._heap
        most_time, most_events, most_bytes = self._most
        for event in events:
            when, known, weight = self._place(event)
            self._number += 1
            heapq.heappush(heap, (when, self._number, weight, event))
            self._held += weight
            self._newest = max(self._newest, known)
        ready: list[Any] = []
        while heap and (
            heap[0][0] <= self._newest - most_time or len(heap) > most_events or self._held > most_bytes
        ):
            _, _, weight, event = heapq.heappop(heap)
            self._held -= weight
            ready.append(event)
        return ready

    def rest(self) -> list[Any]:
        """All that still waits, in order."""
        return [heapq.heappop(self._heap)[3] for _ in range(len(self._heap))]


def _place(event: Event) -> tuple[int, int, int]:
    """When an event was, the capture time at which it became known, and the bytes that it holds."""
    if not isinstance(event, Exchange):
        when = event.last if isinstance(event, Session) else event.ts
        return when, when, 0
    request, response = event.request, event.response
    if response is None:
        return event.ts, event.ts, event.weight
    if request is None:
        return response.ts, response.end, event.weight
    return request.ts, response.end, event.weight


def _until_refused(found: Iterable[list[Event]], refused: list[ConfigError]) -> Iterator[list[Event]]:
    """The events up to the error that says which files could not be read: it comes last, behind them all."""
    try:
        yield from found
    except ConfigError as error:
        refused.append(error)


class Conversations:
    """Chunks of many connections -> events. What a file, an interface and a merged input have in common."""

    def __init__(self, options: ReadOptions, lines: Any = None) -> None:
        self._shared = Shared(max_frame=options.max_frame, ports=frozenset(options.port))
        if lines is not None and _lane is not None:
            self._shared.lane = partial(_lane.Lane, lines)
        self._connections: dict[tuple[Endpoint, Endpoint], Connection] = {}

    def feed(self, item: Chunk | Run, file: str | None) -> list[Event]:
        if not isinstance(item, Chunk):
            connection = item.slot
            if connection is None:
                connection = item.slot = self._connection(item.chunks()[0])
            return connection.feed_run(item, file)  # type: ignore[no-any-return]
        if item.closed and not item.data and not item.lost and self._key(item) not in self._connections:
            return []
        connection = self._connection(item)
        found = connection.feed(item, file)
        if item.closed and connection.finished:
            del self._connections[self._key(item)]
            found += connection.end()
        return found

    def _connection(self, chunk: Chunk) -> Connection:
        key = self._key(chunk)
        connection = self._connections.get(key)
        if connection is None:
            connection = self._connections[key] = Connection(chunk, self._shared)
        return connection

    @staticmethod
    def _key(chunk: Chunk) -> tuple[Endpoint, Endpoint]:
        src, dst = chunk.src, chunk.dst
        return (src, dst) if src <= dst else (dst, src)

    def end(self) -> Iterator[list[Event]]:
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            yield connection.end()


@dataclass
class _Input:
    """The state that goes from file to file."""

    options: ReadOptions
    lines: Any
    done: int = 0
    total: int | None = None
    last: int | None = None
    file: str | None = None
    bad: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.conversations = Conversations(self.options, self.lines)
        self.links = LinkDecoder()
        self.streams = Reassembler()

    def read(self, paths: list[str]) -> Iterator[list[Event]]:
        if self.options.progress is not None:
            self.total = _size(paths)
        for path in paths:
            try:
                yield from self._file(path)
            except (NotACapture, ConfigError) as error:
                self.bad.append(str(error))
            except CaptureError as error:
                yield [self._broken(error)]
        yield from self._flush()
        if self.bad:
            raise ConfigError("\n".join(self.bad))

    def _file(self, path: str) -> Iterator[list[Event]]:
        report, feed = self.options.progress, self.conversations.feed
        with open_capture(path) as capture:
            scan = scanner(capture)
            first = scan.first()
            if first is not None:
                yield from self._begin(first, path)
            self.file = path
            try:
                for items in scan.batches(self.links, self.streams):
                    found: list[Event] = []
                    for item in items:
                        found += feed(item, path)
                    yield found
                    if report is not None:
                        report(self.done + capture.bytes_read, self.total)
            finally:
                self.last = scan.last if scan.last is not None else self.last
            self.done += capture.bytes_read

    def _begin(self, ts: int, path: str) -> Iterator[list[Event]]:
        """Connections go on into a file that continues the one before (a rotated capture), else they end."""
        if self.last is None or self.file is None:
            return
        if not (0 <= ts - self.last <= _ROTATION and _same_series(self.file, path)):
            yield from self._flush()

    def _flush(self) -> Iterator[list[Event]]:
        for chunk in self.streams.flush():
            yield self.conversations.feed(chunk, self.file)
        yield from self.conversations.end()
        self.links, self.streams = LinkDecoder(), self.streams.successor()

    def _broken(self, error: CaptureError) -> Fault:
        return Fault(
            ts=self.last or 0,
            reason=error.reason,
            message=error.message,
            packet=error.packet or None,
            file=error.file,
            file_offset=error.offset,
        )


def _size(paths: list[str]) -> int | None:
    """Bytes of all files; None where one has no size (standard input) or cannot be asked."""
    try:
        return sum(os.stat(path).st_size for path in paths)
    except OSError:
        return None


def _same_series(one: str, other: str) -> bool:
    """Whether two names are those of one rotated capture: alike but for digits (tcpdump -C and -G,
    dumpcap -b), or for one letter."""
    first, second = (re.sub(r"\d+", "", path) for path in (one, other))
    return len(first) == len(second) and sum(a != b for a, b in zip(first, second, strict=True)) <= 1


def _within(ts: int, options: ReadOptions) -> bool:
    return (options.start is None or ts >= options.start) and (options.end is None or ts < options.end)


def read(
    paths: Iterable[str],
    options: ReadOptions,
    *,
    filter: str | None = None,
    records: bool = False,
    body: bool = True,
) -> Iterator[Event]:
    """`kwsniff.read`: the filter is compiled at once, the files are read as the events are asked for."""
    condition = compile_filter(filter) if filter is not None else None
    return _chosen(events(paths, options), condition, records, body)


def _chosen(
    found: Iterator[Event], condition: Expression | None, records: bool, body: bool
) -> Iterator[Event]:
    for event in found:
        if condition is not None and not _matches(event, condition):
            continue
        if isinstance(event, Exchange):
            for frame in (event.request, event.response):
                if frame is not None and not body:
                    frame.__dict__["decoded"] = Decoded(None)
                elif frame is not None and records:
                    frame.__dict__["decoded"] = with_records(frame, event.request)
        yield event


def _matches(event: Event, condition: Expression) -> bool:
    if isinstance(event, Session):
        return True
    return condition.matches(jsonl.line(event) if isinstance(event, Exchange) else jsonl.fault_line(event))
