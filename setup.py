"""Builds what is compiled: every `.pyx` below kwsniff. The rest of the build is in pyproject.toml.

Each extension is optional: where there is no compiler (or no Cython) the install goes on without it, and the
reference implementation in Python does the work.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from setuptools import Extension, setup

SOURCES = sorted(Path("kwsniff").glob("**/*.pyx"))
FLAGS = [] if os.name == "nt" else os.environ.get("KWSNIFF_CFLAGS", "-O3 -fno-strict-aliasing").split()
PARTS = {".pyx", ".pxd", ".pxi"}
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "nonecheck": False,
    "cdivision": True,
}


def extensions() -> list[Any]:
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    modules = [
        Extension(
            ".".join(path.with_suffix("").parts),
            [path.as_posix()],
            extra_compile_args=FLAGS,
            extra_link_args=[flag for flag in FLAGS if flag.startswith("-fsanitize")],
            depends=[other.as_posix() for other in path.parent.iterdir() if other.suffix in PARTS],
            optional=True,
        )
        for path in SOURCES
    ]
    return list(cythonize(modules, build_dir="build/cython", compiler_directives=DIRECTIVES))


setup(ext_modules=extensions())
