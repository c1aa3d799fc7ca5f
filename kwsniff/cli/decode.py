"""`kwsniff decode`: captures -> JSON lines or a table."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import click

from kwsniff.cli import options as given
from kwsniff.cli.failure import FINDING, FINE, INTERRUPTED, WRONG, quiet_pipe, say

if TYPE_CHECKING:
    from kwsniff.cli.decoding import Task
    from kwsniff.cli.workers import Workers
    from kwsniff.output.summary import Summary
    from kwsniff.policy.expression import Expression
    from kwsniff.policy.rehearsal import Rehearsal

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


@click.command(epilog=_EPILOG)
@given.FILES
@click.option(
    "--filter", "expression", metavar="CEL", help="Show only lines for which this expression is true."
)
@click.option(
    "--rules", "rule_file", metavar="FILE",
    help="Try the rules of `kwsniff proxy`: tags go into the lines, the summary says how often each fires.",
)  # fmt: skip
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
@click.option(
    "--jobs", type=click.IntRange(0, 64), metavar="N", default=1, show_default=True,
    help="Decode in N processes; 0: one for each CPU. The output is the same. Pays with --filter, --records"
    " and --format table, hardly otherwise. Files only, no pipes.",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Exit with status 1 when there was any fault.")
@click.option("-q", "--quiet", "--no-summary", is_flag=True, help="No summary and no progress.")
def decode(
    files: tuple[str, ...],
    expression: str | None,
    rule_file: str | None,
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
    jobs: int,
    strict: bool,
    quiet: bool,
) -> int:
    """Show what captures hold, one line per exchange of a request and its response.

    Every line is a JSON object with the field names of Kafka's own request log. What cannot be decoded is a
    fault, told where it happened; a summary goes to standard error.
    """
    from kwsniff.cli.decoding import Task, decode_alone, decode_together
    from kwsniff.output.atomic import output
    from kwsniff.output.present import Options
    from kwsniff.output.progress import progress
    from kwsniff.output.summary import Summary
    from kwsniff.reader import ReadOptions

    options = ReadOptions(port=port, max_frame=max_frame, start=start, end=end)
    shape = Options(records and form == "json", not no_body, int64_as_string, max_decompressed)
    if rule_file is not None and jobs != 1:
        raise click.UsageError("--rules counts over all connections, so it goes without --jobs")
    task = Task(files, options, shape, _compiled(expression), form, _rehearsal(rule_file))
    summary = Summary()
    status = FINE
    try:
        with _team(task, jobs, target, quiet) as workers, output(target) as stream:
            with progress("decoding", wanted=not (quiet or stream.isatty())) as advance:
                if workers is None:
                    problems = decode_alone(task, stream, advance, summary)
                else:
                    problems = decode_together(task, workers, stream, advance, summary)
                for problem in problems:
                    say(problem)
            status = WRONG if problems else FINE
    except KeyboardInterrupt:
        status = INTERRUPTED
        say("interrupted" + (f"; {target} is left as it was" if target not in (None, "-") else ""))
    except BrokenPipeError:
        return quiet_pipe()
    if not quiet and not (status == WRONG and summary.empty):
        _tell(summary, task)
    return FINDING if status == FINE and strict and summary.faults else status


def _team(
    task: Task, jobs: int, target: str | None, quiet: bool
) -> contextlib.AbstractContextManager[Workers | None]:
    """Several processes, where that is wanted."""
    if jobs == 1:
        return contextlib.nullcontext()
    from kwsniff.cli.decoding import team
    from kwsniff.cli.workers import processes, refuse_unrepeatable

    refuse_unrepeatable(task.files)
    count = processes(jobs)
    if count == 1:
        return contextlib.nullcontext()
    return team(task, count, to_stdout=target in (None, "-"), advancing=not quiet and sys.stderr.isatty())


def _compiled(expression: str | None) -> Expression | None:
    if expression is None:
        return None
    from kwsniff.policy.expression import compile_filter

    return compile_filter(expression)


def _rehearsal(rule_file: str | None) -> Rehearsal | None:
    if rule_file is None:
        return None
    from kwsniff.output import jsonl
    from kwsniff.policy.rehearsal import Rehearsal
    from kwsniff.policy.rule_file import load

    return Rehearsal(load(rule_file), jsonl.line)


def _tell(summary: Summary, task: Task) -> None:
    from kwsniff.output.table import escape

    condition = task.condition
    text = summary.text(
        filtered=condition is not None,
        filter_errors=condition.errors if condition else 0,
        filter_error=escape(condition.last_error or "") if condition else None,
    )
    click.echo(f"kwsniff: {text}", err=True)
    for ready in task.rehearsal.ready if task.rehearsal else ():
        times = "once" if ready.fired == 1 else f"{ready.fired:,} times"
        click.echo(f"kwsniff:   rule {ready.rule.name} would have fired {times}", err=True)
