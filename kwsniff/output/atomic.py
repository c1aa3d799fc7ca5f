"""A file that is whole or not there: written beside its place and renamed into it.

`-` is standard output. What interrupts the writing leaves the old file as it was; Ctrl-C leaves it too.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kwsniff.errors import ConfigError

_BUFFER = 1 << 18


@contextlib.contextmanager
def output(target: str | None) -> Iterator[BinaryIO]:
    """A binary stream to `target` (None or `-`: standard output). ConfigError where it cannot be written."""
    if target is None or target == "-":
        with _writable("standard output"):
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        return
    path = Path(os.path.realpath(target))  # a symbolic link stays one
    with _writable(target):
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            with open(path, "wb", buffering=_BUFFER) as stream:  # a named pipe: nothing to be atomic about
                yield stream
            return
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:64]}.", suffix=".tmp", dir=path.parent)
        try:
            with open(handle, "wb", buffering=_BUFFER) as stream:
                yield stream
                stream.flush()
                os.fsync(handle)
            os.chmod(name, stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o666 & ~_umask())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise


@contextlib.contextmanager
def _writable(target: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ConfigError(f"cannot write {target}: {error.strerror or error}") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
