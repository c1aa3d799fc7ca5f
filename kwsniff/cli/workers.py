"""Several processes that go through the same input, each with a part of the output: put together, in turn.

In: how many, and the work, a function that is called in each process with its number and its `Turns`. Out:
the bytes in the order in which one process would have written them, and what each has to tell at its end. All
say the same of whose turn it is, so the parent only copies. Knows nothing of captures and lines. Needs
`fork`, and is to be called before there are threads.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FrameType, TracebackType
from typing import Any, NoReturn

from kwsniff.cli.turns import CHECKED, FAILED, LINES, OVER, PROGRESS, TOLD, Pipe, PipeClosed, Turns
from kwsniff.errors import ConfigError, KwsniffError

_PIPE = 1 << 20
"""Bytes that a pipe shall hold, where one can be told to."""

Work = Callable[[int, Turns], dict[str, Any]]
Progress = Callable[[int, int | None], None]


class WorkerError(KwsniffError):
    """A process has ended too early, or says other things than the rest."""


def processes(wanted: int) -> int:
    """wanted: 0 for as many as there are CPUs for this process."""
    may_use = getattr(os, "sched_getaffinity", None)
    count = wanted or (len(may_use(0)) if may_use else os.cpu_count() or 1)
    if count > 1 and not hasattr(os, "fork"):
        if wanted:
            raise ConfigError("--jobs: this system cannot fork, so there is only --jobs 1")
        return 1
    return count


def refuse_unrepeatable(files: Sequence[str]) -> None:
    """ConfigError for what can only be read once."""
    for file in files:
        mode = stat.S_IFIFO
        if file != "-":
            try:
                mode = os.stat(file).st_mode
            except (OSError, ValueError):  # whoever opens it says what is wrong
                continue
        if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode):
            name = "standard input" if file == "-" else file
            raise ConfigError(
                f"--jobs: {name} can only be read once; save it to a file first, or leave --jobs out"
            )


class _Worker:
    """A process, and what it has told at its end."""

    def __init__(self, pid: int, handle: int) -> None:
        self.handle = handle
        self.pipe = Pipe(handle)
        self.told: dict[str, Any] | None = None
        self._pid: int | None = pid

    def head(self) -> tuple[int, int, int]:
        """Of its next message; what it has to tell, and what went wrong, is taken here."""
        try:
            kind, then, turn = self.pipe.head()
            if kind == TOLD:
                self.told = json.loads(self.pipe.data())
            elif kind == FAILED:
                raise WorkerError(self.pipe.data().decode())
        except PipeClosed:
            raise self._ended() from None
        return kind, then, turn

    def copy(self, put: Callable[[memoryview], object]) -> None:
        try:
            while piece := self.pipe.piece():
                put(piece)
        except PipeClosed:
            raise self._ended() from None

    def last_words(self, *, interrupted: bool) -> dict[str, Any]:
        while self.told is None:
            kind, _, _ = self.head()
            if kind == LINES and not interrupted:
                raise _differ()
        return self.told

    def close(self) -> None:
        """The process is gone when this returns."""
        os.close(self.handle)
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            self._wait(self._pid)

    def _wait(self, pid: int) -> int:
        self._pid = None
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def _ended(self) -> WorkerError:
        code = -signal.SIGKILL if self._pid is None else self._wait(self._pid)
        how = f"ended too early, with status {code}"
        if code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        if code == -signal.SIGKILL:
            how += " (short of memory? fewer --jobs need less)"
        return WorkerError(f"a worker process {how}; what was decoded is not complete")


class Workers:
    """The processes. A context manager, at whose end none of them is left.

    live: somebody looks on, so what is there is shown at once. `told`: what each has told at its end.
    """

    def __init__(self, count: int, work: Work, *, live: bool = False) -> None:
        self.told: list[dict[str, Any]] = []
        self._workers: list[_Worker] = []
        self._stop = mmap.mmap(-1, 1)
        self._writing = False
        # A Ctrl-C is for the parent: it waits until every process is made, and they never see it.
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                for mine in range(count):
                    self._workers.append(self._start(mine, work, live))
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        except OSError as error:
            self._close()
            raise ConfigError(f"--jobs: cannot start {count} processes: {error.strerror or error}") from error
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()

    def join(self, put: Callable[[memoryview], object], progress: Progress | None = None) -> None:
        """Puts out everything in order. KeyboardInterrupt when they were told to stop, WorkerError."""
        try:
            with self._interrupts():
                self._join(put, progress)
                self._hear(interrupted=False)
        except KeyboardInterrupt:
            self._stop[0] = 1
            with contextlib.suppress(WorkerError):
                self._hear(interrupted=True)
            raise

    def _join(self, put: Callable[[memoryview], object], progress: Progress | None) -> None:
        owner = number = 0
        while owner != OVER:
            worker = self._workers[owner]
            kind, then, turn = worker.head()
            if kind == PROGRESS:
                done, total = json.loads(worker.pipe.data())
                if progress is not None:
                    progress(done, total)
            elif kind == LINES and turn == number and (then < len(self._workers) or then == OVER):
                worker.copy(partial(self._put, put))
                number += then != owner
                owner = then
            elif not self._stop[0]:
                raise _differ()
            if self._stop[0]:
                raise KeyboardInterrupt

    def _put(self, put: Callable[[memoryview], object], piece: memoryview) -> None:
        self._writing = True
        try:
            put(piece)
        finally:
            self._writing = False

    def _hear(self, *, interrupted: bool) -> None:
        self.told = [worker.last_words(interrupted=interrupted) for worker in self._workers]
        if interrupted:
            return
        if self._stop[0]:
            raise KeyboardInterrupt
        if any(told[CHECKED] != self.told[0][CHECKED] for told in self.told):
            raise _differ()

    @contextlib.contextmanager
    def _interrupts(self) -> Iterator[None]:
        """The first Ctrl-C ends the writing at once, but no reading: pipes are to stay in step."""

        def interrupt(_number: int, _frame: FrameType | None) -> None:
            again, self._stop[0] = self._stop[0], 1
            if self._writing or again:
                raise KeyboardInterrupt

        ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if not ours or threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _start(self, mine: int, work: Work, live: bool) -> _Worker:
        here, there = os.pipe()
        os.set_blocking(there, False)
        _widen(there)
        try:
            pid = os.fork()
        except OSError:
            os.close(here)
            os.close(there)
            raise
        if pid == 0:
            self._run(mine, work, live, (here, *(worker.handle for worker in self._workers)), there)
        os.close(there)
        return _Worker(pid, here)

    def _run(self, mine: int, work: Work, live: bool, others: Sequence[int], there: int) -> NoReturn:
        """A worker's life. It ends here, whatever happens, without what the parent has to do at its end."""
        status = 1
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            for handle in others:
                os.close(handle)  # or nobody would notice when the parent is gone
            _tell(work, mine, Turns(mine, there, self._stop, live))
            status = 0
        finally:
            os._exit(status)

    def _close(self) -> None:
        while self._workers:
            self._workers.pop().close()


def _tell(work: Work, mine: int, turns: Turns) -> None:
    try:
        turns.end(work(mine, turns))
    except BrokenPipeError:  # the parent has had enough
        raise
    except KwsniffError as error:
        turns.fail(str(error))
    except MemoryError:
        turns.fail("a worker process is out of memory; fewer --jobs need less")
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        turns.fail(f"a worker process failed ({text}); without --jobs it says more")


def _differ() -> WorkerError:
    return WorkerError(
        "the worker processes did not read the same: an input was changed meanwhile;"
        " wait until it is complete, or leave --jobs out"
    )


def _widen(handle: int) -> None:
    """Linux lets a pipe hold more than 64 KiB: processes wait less for one another."""
    import fcntl

    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(handle, fcntl.F_SETPIPE_SZ, _PIPE)
