"""Progress by bytes on a terminal's standard error; nothing anywhere else.

rich is imported only when there is something to show.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

Advance = Callable[[int, int | None], None]
"""(bytes done, bytes in all or None): what the reader calls now and then."""


@contextlib.contextmanager
def progress(title: str, *, wanted: bool = True) -> Iterator[Advance | None]:
    """A function to tell the progress to, or None when nobody would see it."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)

        def advance(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total)

        yield advance
