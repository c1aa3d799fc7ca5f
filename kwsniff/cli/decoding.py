"""What `decode` does when its options are understood: events -> lines or rows, in one process or in several.

In: a `Task` and where to write. Out: bytes, the summary's counts, and a line for each file that cannot be
read. Of several processes each reads everything and makes the lines of its share (output.share); `workers`
puts them together.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO

from kwsniff.cli.reading import say_if_slow, until_refused
from kwsniff.output.share import Share, without_body

if TYPE_CHECKING:
    from kwsniff.cli.turns import Turns
    from kwsniff.cli.workers import Workers
    from kwsniff.model import Exchange, Fault, Session
    from kwsniff.output.present import Options
    from kwsniff.output.progress import Advance
    from kwsniff.output.summary import Summary
    from kwsniff.output.table import Table
    from kwsniff.policy.expression import Expression
    from kwsniff.policy.rehearsal import Rehearsal
    from kwsniff.reader import ReadOptions

Line = dict[str, Any]
Put = Callable[[bytes], object]


@dataclass(frozen=True)
class Task:
    """What is to be decoded, and how it is to be shown. form: json or table."""

    files: tuple[str, ...]
    options: ReadOptions
    shape: Options
    condition: Expression | None
    form: str
    rehearsal: Rehearsal | None = None
    """Rules that are tried on it; of one process only, since they count over all connections."""

    @property
    def quick(self) -> bool:
        """Whether nobody needs to see a line's fields."""
        return self.form == "json" and self.condition is None and self.rehearsal is None


def decode_alone(task: Task, stream: BinaryIO, advance: Advance | None, summary: Summary) -> list[str]:
    """All in this process. Returns what there is to say of files that cannot be read."""
    from kwsniff.output.jsonl import encode
    from kwsniff.output.ordinary import writer

    say_if_slow()
    _collect_less_often()
    shown: Callable[[Line], bytes] = encode
    if task.form == "table":
        table = _table(stream is getattr(sys.stdout, "buffer", None))
        stream.write(table.header().encode() + b"\n")

        def shown(line: Line) -> bytes:
            return table.row(line).encode()

    put = stream.write
    flush = stream.flush if stream.isatty() else None  # there each line is seen as it comes

    def write(line: Line) -> None:
        put(shown(line))
        put(b"\n")
        if flush is not None:
            flush()

    lines = writer(task.shape) if task.quick and flush is None else None
    problems: list[str] = []
    found = _read(task, replace(task.options, progress=advance), lines, problems)
    _show(task, _without_ordinary(found, lines, put, None, summary), write, summary)
    return problems


def team(task: Task, count: int, *, to_stdout: bool, advancing: bool) -> Workers:
    """The processes that share a task: for `decode_together`. To be called before any thread is started."""
    from kwsniff.cli.workers import Workers

    say_if_slow()
    _collect_less_often()
    table = _table(to_stdout) if task.form == "table" else None

    def work(mine: int, turns: Turns) -> dict[str, Any]:
        return _part(task, Share(count, mine), table, turns, advancing and mine == 0)

    return Workers(count, work, live=to_stdout and sys.stdout.isatty())


def decode_together(
    task: Task, workers: Workers, stream: BinaryIO, advance: Advance | None, summary: Summary
) -> list[str]:
    """Writes what the processes make; as `decode_alone`."""
    put: Callable[[memoryview], object] = stream.write
    flush = stream.flush if stream.isatty() else None
    if task.form == "table":
        table = _table(stream is getattr(sys.stdout, "buffer", None))
        stream.write(table.header().encode() + b"\n")
        put = _Dated(table, stream.write).put
    plain = put

    def put_and_flush(text: memoryview) -> None:
        plain(text)
        if flush is not None:
            flush()

    try:
        workers.join(put if flush is None else put_and_flush, advance)
    finally:
        for told in workers.told:
            summary.add(told["counts"])
        _add_failures(task.condition, [told["failures"] for told in workers.told])
    problems: list[str] = workers.told[0]["problems"]
    return problems


class _Dated:
    """Rows of several processes, a date and a tab in front of each -> rows of one table."""

    def __init__(self, table: Table, put: Put) -> None:
        self._table, self._put = table, put
        self._rest = b""

    def put(self, text: memoryview) -> None:
        *rows, self._rest = (self._rest + text.tobytes()).split(b"\n")
        for row in rows:
            date, _, shown = row.decode().partition("\t")
            self._put(self._table.dated(date, shown).encode() + b"\n")


def _part(task: Task, share: Share, table: Table | None, turns: Turns, advancing: bool) -> dict[str, Any]:
    """What one of several processes does, and has to tell."""
    from kwsniff.output.jsonl import encode
    from kwsniff.output.ordinary import writer
    from kwsniff.output.summary import Summary

    summary, condition = Summary(), task.condition
    problems: list[str] = []
    failures: list[Any] = [0, -1, None]  # how many, the turn of the last one, and what it was

    def write(line: Line) -> None:
        if table is None:
            turns.put(encode(line) + b"\n")
        else:
            turns.put(b"%b\t%b\n" % tuple(text.encode() for text in table.undated(line)))

    def read(done: int, total: int | None) -> None:
        turns.read = done
        if advancing:
            turns.progress(done, total)

    def failed() -> None:
        assert condition is not None
        failures[:] = condition.errors, turns.number, condition.last_error

    lines = writer(task.shape, share, texts=task.quick)
    found = _until_told(_read(task, replace(task.options, progress=read), lines, problems), turns)
    left = _without_ordinary(found, lines, turns.put, turns.turn, summary)
    _show(task, _own(left, share, turns, summary), write, summary, failed)
    return {"counts": summary.counts(), "failures": failures, "problems": problems}


def _until_told(found: Iterator[list[Any]], turns: Turns) -> Iterator[list[Any]]:
    for batch in found:
        yield batch
        if turns.pause():
            return


def _own(
    found: Iterator[Exchange | Fault | Session], share: Share, turns: Turns, summary: Summary
) -> Iterator[Exchange | Fault | Session]:
    """Those that are this process's to show. All see the sessions; the first counts them."""
    from kwsniff.model import Exchange, Session

    for event in found:
        if isinstance(event, Session):
            if share.mine == 0:
                yield event
            continue
        owner = share.owner(event)
        turns.turn(owner)
        if owner != share.mine:
            continue
        if isinstance(event, Exchange) and share.mine:
            before = without_body(event)
            yield event
            summary.undecodable(without_body(event) - before)
        else:
            yield event


def _add_failures(condition: Expression | None, failures: list[list[Any]]) -> None:
    """What the filter could not be evaluated on: the last one in the order of the output is to be shown."""
    if condition is not None and failures:
        condition.errors = sum(count for count, _, _ in failures)
        _, _, condition.last_error = max(failures, key=lambda failure: failure[1])


def _read(task: Task, options: ReadOptions, lines: Any, problems: list[str]) -> Iterator[list[Any]]:
    from kwsniff.reader import batches

    return until_refused(batches(task.files, options, lines), problems)


def _collect_less_often() -> None:
    """Frames that wait for their turn are many and make no cycles: to search them often is in vain."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _without_ordinary(
    batches: Iterator[list[Any]],
    lines: Any,
    put: Put,
    turn: Callable[[int], None] | None,
    summary: Summary,
) -> Iterator[Exchange | Fault | Session]:
    """Writes ordinary exchanges straight away; the others are left over."""
    if lines is None:
        for batch in batches:
            yield from batch
        return
    try:
        for batch in batches:
            at = 0
            while (at := lines.put(batch, at, put, turn)) < len(batch):
                yield batch[at]
                at += 1
    finally:
        summary.ordinary(lines.counts)


def _show(
    task: Task,
    found: Iterator[Exchange | Fault | Session],
    write: Callable[[Line], None],
    summary: Summary,
    failed: Callable[[], None] | None = None,
) -> None:
    """failed: told when the filter could not be evaluated on a line."""
    condition = task.condition
    if task.rehearsal is not None:
        found = task.rehearsal.tried(found)
    for line in _lines(found, task.shape, summary):
        shown = True
        if condition is not None:
            errors = condition.errors
            shown = condition.matches(line)
            if failed is not None and condition.errors != errors:
                failed()
        if shown:
            write(line)
        summary.line(line, shown=shown)
        del line  # a line may be large: not two at a time


def _lines(found: Iterator[Exchange | Fault | Session], shape: Options, summary: Summary) -> Iterator[Line]:
    from kwsniff.model import Exchange, Session
    from kwsniff.output import jsonl

    for event in found:
        if isinstance(event, Exchange):
            yield jsonl.line(event, shape)
        elif isinstance(event, Session):
            summary.session(event)
        else:
            yield jsonl.fault_line(event)


def _table(to_stdout: bool) -> Table:
    from kwsniff.output.table import Table

    return Table(sys.stdout if to_stdout else None)
