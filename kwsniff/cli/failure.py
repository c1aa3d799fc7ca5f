"""How the command line fails: one line on standard error, an exit status, and never a traceback.

`Guarded` is the group that all commands hang on; `status_of` is what a command's work runs under.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

import click

from kwsniff.errors import KwsniffError

FINE, FINDING, WRONG, INTERRUPTED = 0, 1, 2, 130


class Guarded(click.Group):
    """A click group whose errors are one line each."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        try:
            result = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            result = WRONG
        except click.UsageError as error:
            say(_usage(error))
            result = WRONG
        except (click.ClickException, KwsniffError) as error:
            say(error.format_message() if isinstance(error, click.ClickException) else str(error))
            result = WRONG
        except (KeyboardInterrupt, click.Abort):
            result = INTERRUPTED
        if standalone_mode:
            self._leave(result if isinstance(result, int) else FINE)
        return result

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would make it exit status 1
            return quiet_pipe()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            close = get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f" (did you mean '{close[0]}'?)" if close else ""
            raise click.UsageError(f"there is no command '{args[0]}'{hint}", error.ctx) from None

    def _leave(self, status: int) -> NoReturn:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            status = quiet_pipe()
        except OSError as error:
            say(f"cannot write standard output: {error.strerror or error}")
            status = WRONG
            quiet_pipe()
        sys.exit(status)


def say(text: str) -> None:
    """An error, each of its lines named as ours."""
    for line in text.splitlines() or [""]:
        click.echo(f"kwsniff: {line}", err=True)


def quiet_pipe() -> int:
    """The reader of our output has had enough: nobody's fault. Keeps Python from complaining at its end."""
    with contextlib.suppress(OSError, ValueError):  # not a real file, as under a test
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FINE


def _usage(error: click.UsageError) -> str:
    text = " ".join(error.format_message().split()).rstrip(".")
    where = error.ctx.command_path if error.ctx else "kwsniff"
    return f"{text}; see {where} --help"
