"""Strings that are not UTF-8 in a line that is to be JSON: shown as U+FFFD, kept byte for byte beside it.

In: a finished line whose strings may hold surrogate escapes (PEP 383), as the codec leaves undecodable bytes.
Out: the same dict, mended in place, with `kwsniff.rawStrings: {path: base64}`. Runs only on lines that the
encoder refused, so that the others pay nothing.
"""

from __future__ import annotations

import base64
import re
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")


def mend(line: dict[str, Any]) -> dict[str, Any]:
    """Replaces what is not Unicode; each exact string stands once in rawStrings, by its place in the line."""
    extra = line.get("kwsniff", {})  # reports have none: theirs are only replaced
    raw: dict[str, str] = extra.pop("rawStrings", {})
    seen: set[str] = set()
    for name, value in line.items():
        line[name] = mend_value(value, name, raw, seen)
    extra["rawStrings"] = raw
    return line


def mend_value(value: Any, path: str, raw: dict[str, str], seen: set[str] | None = None) -> Any:
    """The same for a part of a line: mended in place and returned; what was mended is added to `raw`.

    seen: strings that were mended elsewhere; those below `kwsniff` only repeat them.
    """
    seen = set() if seen is None else seen
    root = {path: value}
    pending: list[tuple[Any, Any, Any, str]] = [(root, path, value, path)]
    while pending:
        holder, key, value, path = pending.pop()
        if isinstance(value, str):
            if _SURROGATE.search(value) is None:
                continue
            holder[key] = _SURROGATE.sub("\ufffd", value)
            if value not in seen or not path.startswith("kwsniff."):
                raw[path] = base64.b64encode(_bytes(value)).decode()
            seen.add(value)
        elif isinstance(value, dict):
            pending.extend((value, k, v, f"{path}.{k}") for k, v in reversed(value.items()))
        elif isinstance(value, list):
            pending.extend((value, i, value[i], f"{path}[{i}]") for i in range(len(value) - 1, -1, -1))
    return next(iter(root.values()))


def _bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that no byte stands for: not from the wire
        return text.encode("utf-8", "surrogatepass")
