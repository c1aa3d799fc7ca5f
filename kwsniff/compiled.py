"""The compiled twins of hot functions: there, or not.

A package that was installed without a C compiler works the same, slower. KWSNIFF_PURE=1 in the environment
leaves the twins aside, for tests and for comparison.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

PURE = os.environ.get("KWSNIFF_PURE") == "1"


def compiled(name: str) -> Any:
    """The extension module of that name, or None: use the Python that specifies it."""
    if PURE:
        return None
    try:
        return import_module(name)
    except ImportError:
        return None
