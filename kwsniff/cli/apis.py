"""`kwsniff apis`: the protocol as a reference."""

from __future__ import annotations

import click

_EPILOG = """\b
Examples:
  kwsniff apis
  kwsniff apis Fetch
  kwsniff apis LIST_OFFSETS --version 1
  kwsniff apis ConsumerProtocolSubscription
"""


@click.command(epilog=_EPILOG)
@click.argument("name", required=False)
@click.option("--version", type=click.IntRange(min=0), metavar="N", help="At this version; else the newest.")
def apis(name: str | None, version: int | None) -> None:
    """List all APIs of Kafka's protocol, or the fields of one: NAME is an API, its key, or a message."""
    from kwsniff.output.reference import describe, listing

    if name is None and version is not None:
        raise click.UsageError("--version needs the NAME of an API or message")
    for row in listing() if name is None else describe(name, version):
        click.echo(row)
