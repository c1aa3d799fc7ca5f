"""The command line: `kwsniff COMMAND ...`. One file per command; each is imported when it is run.

Commands parse options and print; what they find out is found out elsewhere. Exit status: 0 fine, 1 a finding,
2 wrong usage or an unreadable input, 130 interrupted.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from kwsniff.cli.failure import Guarded

# Name -> its line in the help: importing the commands for it would cost the start-up time of all of them.
COMMANDS = {
    "decode": "Show what captures hold: JSON lines, or a table for people.",
    "proxy": "Stand between clients and brokers: see, record and change what they say.",
    "audit": "Find the clients that a Kafka release would refuse.",
    "edit": "Cut captures by time, connection and content, and take the names out.",
    "diff": "Show what differs between the exchanges of two captures.",
    "rules": "Check rule files, and try them on captures.",
    "ca": "Make a certificate authority for the proxy.",
    "apis": "Look up the protocol: APIs, versions, fields.",
}


class _Commands(Guarded):
    """A group whose commands are imported by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f"kwsniff.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"kwsniff {version('kwsniff')}")
        ctx.exit()


_EPILOG = """\b
Examples:
  kwsniff decode capture.pcapng
  kwsniff decode --format table --filter 'size(kwsniff.errors) > 0' *.pcap.gz
  kwsniff audit --target 4.0 capture.pcapng
"""
_OPTIONS: dict[str, Any] = {
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 100}
}


@click.group("kwsniff", cls=_Commands, epilog=_EPILOG, **_OPTIONS)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version."
)
def main() -> None:
    """See what Kafka clients and brokers say to each other, on any protocol version ever released.

    Reads pcap and pcapng files, also compressed (.gz, .zst), and `-` for standard input.
    """
