"""How commands read captures: what cannot be read is kept for the end, the rest is decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kwsniff.cli.failure import say
from kwsniff.errors import ConfigError

if TYPE_CHECKING:
    from kwsniff.model import Exchange, Fault, Session
    from kwsniff.reader import ReadOptions


def read(
    files: Sequence[str], options: ReadOptions, problems: list[str]
) -> Iterator[Exchange | Fault | Session]:
    """The events of the files; `problems` gets a line for each that is no readable capture."""
    from kwsniff.compiled import PURE
    from kwsniff.reader import events
    from kwsniff.wire import codec

    if not codec.COMPILED and not PURE:
        say("some ten times slower than it could be: it was installed without a C compiler")
    try:
        yield from events(files, options)
    except ConfigError as error:
        problems += str(error).splitlines()
