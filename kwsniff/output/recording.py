"""The recorder: a plugin that keeps what clients and brokers said as a capture, for `decode` and Wireshark.

In: the hooks of a proxy. Out: pcapng files in which every connection is a TCP session over raw IP as the
client saw it, times in nanoseconds. A request is written when it goes to the broker, its answer when it has
left; what a rule or plugin did is a comment of the packet: one line of text, one JSON line. Secrets are
replaced by filler (`blanking`). It fails closed: what cannot be recorded is raised, once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

from kwsniff.capture.pcapng_writer import PcapngWriter
from kwsniff.errors import ConfigError, EncodeError, KwsniffError
from kwsniff.hooks import hookimpl
from kwsniff.model import ConnectionId, Frame, Packet, Session, Side
from kwsniff.output.blanking import Blanker
from kwsniff.output.jsonl import encode
from kwsniff.output.rotation import NS, Fsync, Rotation, Series
from kwsniff.output.synthetic import Addresses, Conversation
from kwsniff.passing import (
    Close,
    Delay,
    Drop,
    Passed,
    Passing,
    Replace,
    Reset,
    Respond,
    Throttle,
    Verdict,
)

_MOST_WAITING = 1 << 20
"""Bytes in memory above which they are not left for the next second."""
_MOST_SAID, _TEXT = 50, 100
"""Verdicts and tags in one comment, and characters of each; a pcapng option holds 65,535 bytes."""


class RecordingFailed(KwsniffError):
    """What is said cannot be recorded any more."""


class _Connection:
    """One connection: its packets, its blanker, and the requests that are recorded without their answers."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.blanker = Blanker()
        self.recorded: dict[int, tuple[Frame, int]] = {}
        """id of a request's frame -> the frame, which keeps the id its own, and how many verdicts it told"""
        self.reset = False


class Recorder:
    """Raises ConfigError where the first file cannot be opened. path: with strftime fields, see `Series`.

    required: a proxy that cannot record stops. now: ns. A file is as large as `rotation` says, and what
    belongs to one frame is in one file. fsync: onto the disk "always" for every frame, at every "interval" of
    a second, or "none": then a crash of the machine may take what a killed process cannot.
    """

    def __init__(
        self,
        path: str,
        *,
        now: int,
        keep_secrets: bool = False,
        rotation: Rotation | None = None,
        fsync: Fsync = "none",
        required: bool = True,
    ) -> None:
        self.required = required
        self.packets = 0
        self._keep_secrets = keep_secrets
        self._addresses = Addresses()
        self._connections: dict[ConnectionId, _Connection] = {}
        self._failed = False
        self._flushed = now
        try:
            self._series = Series(path, now=now, rotation=rotation or Rotation(), fsync=fsync)
            self._writer = PcapngWriter(self._series)  # type: ignore[arg-type]
            self._series.flush()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(f"cannot record into {path}: {why}") from error

    @property
    def path(self) -> str:
        """Of the file that is being written."""
        return self._series.path

    @hookimpl
    def opened(self, session: Session) -> None:
        ts = session.first if session.opened is None else session.opened
        if self._begin(ts):
            self._connection(session.conn, ts)
            self._end(ts)

    @hookimpl
    def request(self, passing: Passing) -> None:
        """It goes to the broker; what never does is recorded when its exchange is over."""
        frame = passing.original
        if self._begin(passing.now):
            connection = self._connection(frame.conn, frame.ts)
            connection.recorded[id(frame)] = frame, len(passing.verdicts)
            self._frame(connection, frame, None, passing.verdicts, passing.tags)
            self._end(passing.now)

    @hookimpl
    def exchanged(self, passed: Passed) -> None:
        exchange = passed.exchange
        ts = exchange.response.end if exchange.response else exchange.ts
        if not self._begin(ts):
            return
        connection = self._connection(exchange.conn, exchange.ts)
        request, response, verdicts = exchange.request, exchange.response, passed.verdicts
        if request is not None:
            _, told = connection.recorded.pop(id(request), (None, None))
            if told is None:
                # The chain ended before it came here, or it is no frame that plugins see.
                told = len(verdicts) if response is None or passed.sent is None else 0
                self._frame(connection, request, None, verdicts[:told], [] if response else exchange.tags)
            verdicts = verdicts[told:]
        if response is not None:
            self._frame(connection, response, request, verdicts, exchange.tags)
        elif verdicts and (comment := _comment(verdicts, exchange.tags, "")):
            self._write([connection.conversation.note(Side.RESPONSE, ts, comment)])
        connection.reset |= any(isinstance(verdict, Reset) for _, verdict in passed.verdicts)
        self._end(ts)

    @hookimpl
    def closed(self, session: Session) -> None:
        connection = self._connections.pop(session.conn, None)
        ts = session.last if session.closed is None else session.closed
        if connection is not None and self._begin(ts):
            said = connection.conversation
            self._write([said.reset(ts)] if connection.reset else said.close(ts))
            self._end(ts)

    @hookimpl
    def tick(self, now: int) -> None:
        if not self._failed:
            self._flushed = now
            self._try(self._series.tick)

    @hookimpl
    def stopped(self) -> None:
        if not self._failed:
            self._try(self._series.close)
            self._failed = True  # nothing more is recorded

    def _connection(self, conn: ConnectionId, ts: int) -> _Connection:
        connection = self._connections.get(conn)
        if connection is None:
            connection = _Connection(Conversation(conn, self._addresses, ts))
            self._connections[conn] = connection
            self._write(connection.conversation.open(ts))
        return connection

    def _frame(
        self,
        connection: _Connection,
        frame: Frame,
        request: Frame | None,
        verdicts: list[tuple[str, Verdict]],
        tags: list[str],
    ) -> None:
        raw, done = frame.raw, ""
        if not self._keep_secrets:
            raw, done = connection.blanker.blanked(frame, request)
        # Of a frame that broke off, the prefix says how long it was to be.
        size = max(frame.size - 4, len(raw)) if frame.lost else len(raw)
        parts = (size.to_bytes(4, "big"), raw)
        comment = _comment(verdicts, tags, done)
        self._write(connection.conversation.send(frame.side, parts, frame.ts, frame.end, comment))

    def _write(self, packets: Iterable[Packet]) -> None:
        for packet in packets:
            try:
                self._writer.write(packet)
            except EncodeError:  # its second line is too long, all of it control characters perhaps
                text = (packet.comment or "").partition("\n")[0]
                self._writer.write(Packet(packet.ts, packet.linktype, packet.data, packet.wire_length, text))
            self.packets += 1

    def _begin(self, ts: int) -> bool:
        """Whether there is still recording; in the file where what comes now belongs."""
        if self._failed:
            return False
        if self._series.due(ts):
            self._try(lambda: self._series.rotate(ts))
            self._writer = PcapngWriter(self._series)  # type: ignore[arg-type]
        return True

    def _end(self, ts: int) -> None:
        """What belongs together is written; lest a second goes by without a tick, it is flushed here."""
        self._try(self._series.written)
        if self._series.waiting > _MOST_WAITING or ts - self._flushed > NS:
            self._flushed = ts
            self._try(self._series.flush)

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            self._failed = True
            self._connections.clear()
            with contextlib.suppress(OSError):
                self._series.close()
            raise RecordingFailed(
                f"cannot write {self.path}: {error.strerror or error}; the recording ends here"
            ) from error


_SHOWN: dict[type, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    Replace: ("replace", lambda verdict: {"bytes": len(verdict.raw) + 4}),
    Delay: ("delay", lambda verdict: {"ns": verdict.ns}),
    Throttle: ("throttle", lambda verdict: {"bytesPerSecond": verdict.bytes_per_second}),
    Respond: ("respond", lambda verdict: {"bytes": len(verdict.raw) + 4}),
    Drop: ("drop", lambda _: {}),
    Close: ("close", lambda verdict: {"why": verdict.why[:_TEXT]}),
    Reset: ("reset", lambda _: {}),
}
"""A verdict's name, and its values; bytes are counted, not shown, as they may hold secrets."""


def _comment(verdicts: list[tuple[str, Verdict]], tags: list[str], done: str) -> str | None:
    """One line for people, one of JSON; None where there is nothing to be said."""
    if not (verdicts or tags or done):
        return None
    said = []
    shown = []
    for by, verdict in verdicts[:_MOST_SAID]:
        name, values = _SHOWN[type(verdict)]
        value = values(verdict)
        said.append(" ".join(f"{by[:_TEXT]}: {name} {' '.join(map(str, value.values()))}".split()))
        shown.append({"by": by[:_TEXT], "verdict": name, **value})
    listed = [tag[:_TEXT] for tag in tags[:_MOST_SAID]]
    if listed:
        said.append(f"tags {', '.join(listed)}")
    if done:
        said.append(done)
    data = {"verdicts": shown, "tags": listed, "blanked": done or None}
    return f"kwsniff: {' '.join('; '.join(said)[: _TEXT * 3].split())}\n{encode({'kwsniff': data}).decode()}"
