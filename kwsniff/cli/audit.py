"""`kwsniff audit`: who breaks on a Kafka release."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from kwsniff.cli import options as given
from kwsniff.cli.failure import FINDING, FINE, WRONG, say
from kwsniff.cli.reading import read

if TYPE_CHECKING:
    from kwsniff.audit import ApiReport, Client, ClientReport, Report

_EPILOG = """\b
Examples:
  kwsniff audit --target 4.0 capture.pcapng
  kwsniff audit --target 4.0 --format markdown *.pcap.gz > report.md
\b
Verdicts, per client and API:
  breaks   it sent a version that the release refuses, though the broker offered a newer one that the
           release takes, or it never asked the broker what it offers
  unknown  the version was the most that the broker offered, or the broker's answer was not seen
  ok       the release serves every version that it sent
"""


@click.command(epilog=_EPILOG)
@given.FILES
@click.option("--target", required=True, metavar="RELEASE", help="The Kafka release to come, such as 4.0.")
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "markdown"]), default="table", show_default=True,
    help="For people, for programs, or for a report.",
)  # fmt: skip
@given.port
@given.max_frame
def audit(files: tuple[str, ...], target: str, form: str, port: tuple[int, ...], max_frame: int) -> int:
    """Find the clients that a Kafka release would refuse: by address, client id and software.

    Clients are listed with the versions that the release does not serve and the packets that show them. The
    exit status is 1 when a client breaks.
    """
    from kwsniff.audit import Verdict
    from kwsniff.audit import audit as audited
    from kwsniff.output.progress import progress
    from kwsniff.reader import ReadOptions
    from kwsniff.wire import releases

    releases.served(target, 0)  # a release that there is not is told before the work
    problems: list[str] = []
    with progress("auditing") as advance:
        options = ReadOptions(port=port, max_frame=max_frame, progress=advance)
        report = audited(read(files, options, problems), target)
    for row in _FORMS[form](report):
        click.echo(row)
    for problem in problems:
        say(problem)
    if problems:
        return WRONG
    return FINDING if report.verdict is Verdict.BREAKS else FINE


def _json(report: Report) -> Iterator[str]:
    from msgspec import json

    from kwsniff.audit import as_dict
    from kwsniff.output.jsonl import encode

    yield json.format(encode(as_dict(report)), indent=2).decode()


def _table(report: Report) -> Iterator[str]:
    from kwsniff.output.table import escape

    if not report.clients:
        yield "no Kafka request was seen"
    for entry in report.clients:
        yield f"{entry.verdict:8} {escape(_who(entry.client))}, {_many(entry.connections, 'connection')}"
        for api in _bad(entry):
            yield f"  {api.verdict:8} {_refused(api)}; {report.target} serves {_span(api.served)}"
            yield f"           {escape(api.reason)}"
            yield f"           seen in {escape(_evidence(api))}"
        good = [api for api in entry.apis if not api.reason]
        if good:
            yield f"  {'ok':8} {', '.join(f'{api.name} {_versions(api)}' for api in good)}"
    yield f"{report.target}: {report.verdict}"


def _markdown(report: Report) -> Iterator[str]:
    yield f"# Clients on Kafka {report.target}: {report.verdict}"
    yield ""
    yield "| client | verdict | API | sent | served | offered | why | packets |"
    yield "|---|---|---|---|---|---|---|---|"
    for entry in report.clients:
        for api in _bad(entry):
            cells = (
                _who(entry.client), api.verdict, api.name, _versions(api), _span(api.served),
                _span(api.offered), api.reason, _evidence(api),
            )  # fmt: skip
            yield _row(cells)
        if entry.verdict == "ok":
            names = ", ".join(api.name for api in entry.apis)
            yield _row((_who(entry.client), "ok", names, "", "", "", "", ""))


_FORMS: dict[str, Callable[[Report], Iterator[str]]] = {"table": _table, "json": _json, "markdown": _markdown}


def _row(cells: tuple[str, ...]) -> str:
    from kwsniff.output.table import escape

    return "| " + " | ".join(escape(cell).replace("|", "\\|") for cell in cells) + " |"


def _who(client: Client) -> str:
    software = " ".join(part for part in (client.software_name, client.software_version) if part)
    return f"{client.address} {client.client_id or '(no client id)'} ({software or 'software unknown'})"


def _bad(entry: ClientReport) -> list[ApiReport]:
    return [api for api in entry.apis if api.reason]


def _refused(api: ApiReport) -> str:
    count = sum(use.requests for use in api.uses if use.refused)
    return f"{api.name} {_versions(api)}: {_many(count, 'request')}"


def _versions(api: ApiReport) -> str:
    """The versions that matter: those refused, or all of an API without any."""
    uses = [use for use in api.uses if use.refused] if api.reason else api.uses
    return ", ".join("" if use.version is None else f"v{use.version}" for use in uses)


def _evidence(api: ApiReport) -> str:
    """`packet 12, 15 of a.pcap`"""
    files: dict[str | None, list[int]] = {}
    for use in api.uses:
        for packet in use.packets if use.refused else ():
            files.setdefault(packet.file, []).append(packet.number)
    return "; ".join(
        f"{'packet' if len(numbers) == 1 else 'packets'} {', '.join(map(str, numbers))} of {file}"
        for file, numbers in files.items()
    )


def _span(versions: tuple[int, int] | None) -> str:
    from kwsniff.audit import span

    return "none" if versions is None else span(versions)


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")
