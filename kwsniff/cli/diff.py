"""`kwsniff diff`: what differs between two captures, by meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kwsniff.cli import options as given
from kwsniff.cli.failure import FINDING, FINE, WRONG, say
from kwsniff.cli.reading import read

if TYPE_CHECKING:
    from kwsniff.difference import Difference, Where

_EPILOG = """\b
Examples:
  kwsniff diff before.pcapng after.pcapng
  kwsniff diff --format json a.pcap b.pcap | jq .path
\b
Not compared: correlation ids, times, ports, and identifiers that are made up anew each time (member ids,
producer ids, fetch sessions, SASL tokens).
"""
_SHOWN = 60  # characters of a value


@click.command(epilog=_EPILOG)
@click.argument("first", metavar="A", type=click.Path(allow_dash=False))
@click.argument("second", metavar="B", type=click.Path(allow_dash=False))
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="For people, or a JSON line per difference.",
)  # fmt: skip
@given.port
@given.max_frame
def diff(first: str, second: str, form: str, port: tuple[int, ...], max_frame: int) -> int:
    """Show what differs between the exchanges of two captures, by meaning.

    Exchanges are compared in their order per connection and API. The exit status is 1 when there is a
    difference.
    """
    from kwsniff.difference import compare
    from kwsniff.output.progress import progress
    from kwsniff.reader import ReadOptions

    if "-" in (first, second):
        raise click.UsageError("diff reads its captures twice: standard input will not do")
    problems: list[str] = []
    with progress("comparing") as advance:
        options = ReadOptions(port=port, max_frame=max_frame, progress=advance)
        found = compare(lambda: read([first], options, problems), lambda: read([second], options, problems))
    if problems:
        for problem in dict.fromkeys(problems):
            say(problem)
        return WRONG
    for difference in found.differences:
        click.echo(_json(difference) if form == "json" else _text(difference))
    count = len(found.differences)
    more = f", and {found.more:,} more exchanges that differ" if found.more else ""
    click.echo(f"kwsniff: {count:,} difference{'' if count == 1 else 's'}{more}", err=True)
    return FINDING if found.differences else FINE


def _text(difference: Difference) -> str:
    from kwsniff.output.table import escape

    left, right = difference.where
    who = f"{difference.client_id or '(no client id)'} {difference.api}"
    if left is None or right is None:
        side, where = ("A", left) if right is None else ("B", right)
        return escape(f"{who}: only in {side} ({_packet(where)})")
    values = " | ".join(_short(value) for value in difference.values)
    return escape(f"{who}: {difference.path}: {values} ({_packet(left)} | {_packet(right)})")


def _packet(where: Where | None) -> str:
    return "" if where is None else f"packet {where.packet}"


def _json(difference: Difference) -> str:
    from kwsniff.output.jsonl import encode

    left, right = difference.where
    return encode(
        {
            "clientId": difference.client_id,
            "api": difference.api,
            "path": difference.path or None,
            "a": difference.values[0],
            "b": difference.values[1],
            "packetA": left.packet if left else None,
            "packetB": right.packet if right else None,
        }
    ).decode()


def _short(value: Any) -> str:
    from kwsniff.output.jsonl import encode

    text = encode({"": value})[4:-1].decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
