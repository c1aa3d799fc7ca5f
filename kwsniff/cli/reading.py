"""How commands read captures: what cannot be read is kept for the end, the rest is decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kwsniff.cli.failure import say
from kwsniff.errors import ConfigError

if TYPE_CHECKING:
    from kwsniff.model import Exchange, Fault, Session
    from kwsniff.reader import ReadOptions


def read(
    files: Sequence[str], options: ReadOptions, problems: list[str]
) -> Iterator[Exchange | Fault | Session]:
    """The events of the files; `problems` gets a line for each that is no readable capture."""
    for batch in read_batches(files, options, problems):
        yield from batch


def read_batches(
    files: Sequence[str], options: ReadOptions, problems: list[str], lines: Any = None
) -> Iterator[list[Any]]:
    """The events of the files, in batches (reader.batches). `problems` as above."""
    from kwsniff.reader import batches

    say_if_slow()
    yield from until_refused(batches(files, options, lines), problems)


def say_if_slow() -> None:
    from kwsniff.compiled import PURE
    from kwsniff.wire import codec

    if not codec.COMPILED and not PURE:
        say("some ten times slower than it could be: it was installed without a C compiler")


def until_refused(found: Iterator[list[Any]], problems: list[str]) -> Iterator[list[Any]]:
    """The batches; the error behind them all, which says what files could not be read, is for `problems`."""
    try:
        yield from found
    except ConfigError as error:
        problems += str(error).splitlines()
