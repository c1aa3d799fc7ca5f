"""The log of a proxy: a plugin that writes one JSON line per exchange, off the way of the frames.

In: exchanges and faults. Out: the lines of `jsonl`, appended to a file or standard output by a thread of its
own; bodies are decoded there, too. Between the two is a queue that is bounded in events and in bytes: what
does not fit is shed, counted, and told in one line when there is room again. Nothing here waits for a disk or
a reader; a log that cannot be written is said once and shed from then on.
"""

from __future__ import annotations

import os
import sys
import threading
from queue import Empty, SimpleQueue
from typing import Any

from kwsniff.errors import ConfigError, KwsniffError, Reason
from kwsniff.hooks import hookimpl
from kwsniff.model import Exchange, Fault
from kwsniff.output import jsonl, ordinary
from kwsniff.output.present import Options
from kwsniff.passing import Passed

CAPACITY, CAPACITY_BYTES = 10_000, 64 << 20
"""Events that wait at most, and bytes that they hold."""
_AT_ONCE = 16
"""Lines made in one go: while they are, the other thread may have to wait for the interpreter."""
_STOP = 5.0
"""Seconds that the end of the proxy waits for lines still to be written."""

Item = Exchange | Fault | dict[str, Any]


class LogFailed(KwsniffError):
    """The log cannot be written any more."""


class Log:
    """path: appended to; "-" is standard output. ConfigError where it cannot be opened.

    `shed` counts lines that were not written, `written` those that were.
    """

    def __init__(
        self,
        path: str,
        options: Options | None = None,
        *,
        capacity: int = CAPACITY,
        capacity_bytes: int = CAPACITY_BYTES,
    ) -> None:
        self._path, self._options = path, options or Options()
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            self._file = sys.stdout.fileno() if path == "-" else os.open(path, flags, 0o600)
        except OSError as error:
            raise ConfigError(f"cannot log into {path}: {error.strerror}") from error
        self.written = 0
        self._most, self._most_bytes = capacity, capacity_bytes
        # Each counter has one thread that changes it, so none needs a lock.
        self._put = self._put_bytes = self._refused = self._told = 0
        self._taken = self._taken_bytes = self._lost = 0
        self._error: str | None = None
        self._said = False
        self._lines = ordinary.writer(self._options)
        self._queue: SimpleQueue[tuple[Item | None, int]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="kwsniff log", daemon=True)
        self._thread.start()

    @property
    def shed(self) -> int:
        return self._refused + self._lost

    @hookimpl
    def exchanged(self, passed: Passed) -> None:
        exchange = passed.exchange
        self._add(exchange, exchange.weight, exchange.ts)

    @hookimpl
    def faulted(self, fault: Fault) -> None:
        self._add(fault, 0, fault.ts)

    def say(self, line: dict[str, Any], ts: int = 0) -> None:
        """A line of somebody else's."""
        self._add(line, 0, ts)

    @hookimpl
    def tick(self) -> None:
        if self._error is not None and not self._said:
            self._said = True
            raise LogFailed(f"cannot write {self._path}: {self._error}; the log ends here")

    @hookimpl
    def stopped(self, now: int) -> None:
        """What waits is written, within a few seconds."""
        self._tell_shed(now)
        self._queue.put((None, 0))
        self._thread.join(_STOP)
        if not self._thread.is_alive() and self._path != "-" and self._file >= 0:
            os.close(self._file)
            self._file = -1
        self.tick()

    def _add(self, item: Item, size: int, ts: int) -> None:
        waiting, waiting_bytes = self._put - self._taken, self._put_bytes - self._taken_bytes
        full = waiting >= self._most or (waiting > 0 and waiting_bytes + size > self._most_bytes)
        if full or self._error is not None or self._file < 0:
            self._refused += 1
            return
        self._tell_shed(ts)
        self._enqueue(item, size)

    def _enqueue(self, item: Item, size: int) -> None:
        self._put += 1
        self._put_bytes += size
        self._queue.put((item, size))

    def _tell_shed(self, ts: int) -> None:
        """One line for all that was shed since there was room last."""
        count, self._told = self._refused - self._told, self._refused
        if count and self._error is None:
            text = f"{count} lines of this log were shed, since it was not written as fast as they came"
            self._enqueue(Fault(ts=ts, reason=Reason.LOG_SHED, message=text, lost=count), 0)

    # In the thread

    def _run(self) -> None:
        going = True
        while going:
            taken = [self._queue.get()]
            try:
                while len(taken) < _AT_ONCE:
                    taken.append(self._queue.get_nowait())
            except Empty:
                pass
            items = [item for item, _ in taken if item is not None]
            going = len(items) == len(taken)
            try:
                if self._error is None:
                    self._write(items)
            except OSError as error:
                self._error = error.strerror or str(error)
            except Exception as error:  # a mistake of ours must not end the thread in silence
                self._error = f"{type(error).__name__}: {error}"
            if self._error is None:
                self.written += len(items)
            else:
                self._lost += len(items)
            self._taken += len(items)
            self._taken_bytes += sum(size for _, size in taken)

    def _write(self, items: list[Item]) -> None:
        parts: list[bytes] = []
        at = 0
        while at < len(items):
            if self._lines is not None:
                at = self._lines.put(items, at, parts.append)
            if at < len(items):
                parts.append(_line(items[at], self._options) + b"\n")
                at += 1
        view = memoryview(b"".join(parts))
        while view:
            view = view[os.write(self._file, view) :]


def _line(item: Item, options: Options) -> bytes:
    if isinstance(item, Exchange):
        return jsonl.encode(jsonl.line(item, options))
    return jsonl.encode(jsonl.fault_line(item) if isinstance(item, Fault) else item)
