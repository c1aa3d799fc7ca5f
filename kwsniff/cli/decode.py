"""`kwsniff decode`: captures -> JSON lines or a table."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from kwsniff.cli import options as given
from kwsniff.cli.failure import FINDING, FINE, INTERRUPTED, WRONG, quiet_pipe, say
from kwsniff.cli.reading import read_batches

if TYPE_CHECKING:
    from kwsniff.model import Exchange, Fault, Session
    from kwsniff.output.present import Options
    from kwsniff.output.summary import Summary
    from kwsniff.policy.expression import Expression
    from kwsniff.reader import ReadOptions

_EPILOG = """\b
Examples:
  kwsniff decode capture.pcapng > lines.jsonl
  kwsniff decode --format table capture.pcap
  kwsniff decode --records --filter '"orders" in kwsniff.topics' *.pcap.gz
  kwsniff decode --filter 'totalTimeMs > 100 && requestHeader.requestApiKeyName == "PRODUCE"' a.pcap
  tcpdump -U -w - port 9092 | kwsniff decode -
\b
Filters are CEL (https://cel.dev) over the fields of the JSON line: timestamp, requestHeader, request,
response, connection, totalTimeMs, throttleTimeMs, securityProtocol, principal, clientInformation, kwsniff.
The fields of request and response are those that `kwsniff apis NAME` shows.
"""

Write = Callable[[dict[str, Any]], None]


@click.command(epilog=_EPILOG)
@given.FILES
@click.option(
    "--filter", "expression", metavar="CEL", help="Show only lines for which this expression is true."
)
@click.option("--records", is_flag=True, help="Decode the records of Produce and Fetch, not only count them.")
@click.option("--no-body", is_flag=True, help="Leave request and response out; the rest of the line stays.")
@click.option(
    "--format", "form", type=click.Choice(["json", "table"]), default="json", show_default=True,
    help="JSON lines for programs, a table for people.",
)  # fmt: skip
@click.option(
    "-o", "--output", "target", metavar="FILE", help="Write here; the file is there when it is whole."
)
@given.port
@given.start
@given.end
@given.max_frame
@click.option(
    "--max-decompressed", type=given.Size(), metavar="SIZE", default="64M", show_default=True,
    help="Record batches that are larger unpacked are not unpacked.",
)  # fmt: skip
@click.option(
    "--int64-as-string",
    is_flag=True,
    help="Write 64-bit integers as strings, for JavaScript (filters see strings, too).",
)
@click.option("--strict", is_flag=True, help="Exit with status 1 when there was any fault.")
@click.option("-q", "--quiet", "--no-summary", is_flag=True, help="No summary and no progress.")
def decode(
    files: tuple[str, ...],
    expression: str | None,
    records: bool,
    no_body: bool,
    form: str,
    target: str | None,
    port: tuple[int, ...],
    start: int | None,
    end: int | None,
    max_frame: int,
    max_decompressed: int,
    int64_as_string: bool,
    strict: bool,
    quiet: bool,
) -> int:
    """Show what captures hold, one line per exchange of a request and its response.

    Every line is a JSON object with the field names of Kafka's own request log. What cannot be decoded is a
    fault, told where it happened; a summary goes to standard error.
    """
    from kwsniff.output.atomic import output
    from kwsniff.output.present import Options
    from kwsniff.output.progress import progress
    from kwsniff.output.summary import Summary
    from kwsniff.reader import ReadOptions

    condition = _compiled(expression)
    shape = Options(records and form == "json", not no_body, int64_as_string, max_decompressed)
    summary = Summary()
    status = FINE
    try:
        with output(target) as stream, progress("decoding", wanted=not (quiet or stream.isatty())) as advance:
            options = ReadOptions(port=port, max_frame=max_frame, start=start, end=end, progress=advance)
            quick = stream.write if form == "json" and condition is None and not stream.isatty() else None
            status = _run(files, options, shape, condition, _writer(form, stream), summary, quick)
    except KeyboardInterrupt:
        status = INTERRUPTED
        say("interrupted" + (f"; {target} is left as it was" if target not in (None, "-") else ""))
    except BrokenPipeError:
        return quiet_pipe()
    if not quiet and not (status == WRONG and summary.empty):
        _tell(summary, condition)
    return FINDING if status == FINE and strict and summary.faults else status


def _compiled(expression: str | None) -> Expression | None:
    if expression is None:
        return None
    from kwsniff.policy.expression import compile_filter

    return compile_filter(expression)


def _run(
    files: tuple[str, ...],
    options: ReadOptions,
    shape: Options,
    condition: Expression | None,
    write: Write,
    summary: Summary,
    quick: Callable[[bytes], object] | None,
) -> int:
    """Writes what is to be shown. A file that cannot be read is named after the others were decoded.

    quick: what writes bytes, where lines need not be dicts first.
    """
    from kwsniff.output.ordinary import writer

    problems: list[str] = []
    lines = None if quick is None else writer(shape)
    _collect_less_often()
    found = read_batches(files, options, problems, lines)
    for line in _lines(_without_ordinary(found, lines, quick, summary), shape, summary):
        shown = condition is None or condition.matches(line)
        if shown:
            write(line)
        summary.line(line, shown=shown)
        del line  # a line may be large: not two at a time
    for problem in problems:
        say(problem)
    return WRONG if problems else FINE


def _collect_less_often() -> None:
    """Frames that wait for their turn are many and make no cycles: to search them often is in vain."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _without_ordinary(
    batches: Iterator[list[Any]], lines: Any, put: Callable[[bytes], object] | None, summary: Summary
) -> Iterator[Exchange | Fault | Session]:
    """Writes ordinary exchanges straight away; the others are left over."""
    if lines is None:
        for batch in batches:
            yield from batch
        return
    try:
        for batch in batches:
            at = 0
            while (at := lines.put(batch, at, put)) < len(batch):
                yield batch[at]
                at += 1
    finally:
        summary.ordinary(lines.counts)


def _lines(
    found: Iterator[Exchange | Fault | Session], shape: Options, summary: Summary
) -> Iterator[dict[str, Any]]:
    from kwsniff.model import Exchange, Session
    from kwsniff.output import jsonl

    for event in found:
        if isinstance(event, Exchange):
            yield jsonl.line(event, shape)
        elif isinstance(event, Session):
            summary.session(event)
        else:
            yield jsonl.fault_line(event)


def _writer(form: str, stream: BinaryIO) -> Write:
    """What writes one line; on a terminal each line is seen as it comes."""
    put = stream.write
    flush = stream.flush if stream.isatty() else None
    if form == "json":
        from kwsniff.output.jsonl import encode as shown
    else:
        from kwsniff.output.table import Table

        table = Table(sys.stdout if stream is getattr(sys.stdout, "buffer", None) else None)
        put(table.header().encode() + b"\n")

        def shown(line: dict[str, Any]) -> bytes:
            return table.row(line).encode()

    def write(line: dict[str, Any]) -> None:
        put(shown(line))
        put(b"\n")
        if flush is not None:
            flush()

    return write


def _tell(summary: Summary, condition: Expression | None) -> None:
    from kwsniff.output.table import escape

    text = summary.text(
        filtered=condition is not None,
        filter_errors=condition.errors if condition else 0,
        filter_error=escape(condition.last_error or "") if condition else None,
    )
    click.echo(f"kwsniff: {text}", err=True)
