"""The words of a rule file -> values: durations, rates, versions, names of APIs and errors.

In: a node of rule_text. Out: what it means, or a Mistake with what can be written instead. Knows no rule,
no action and no message's fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from typing import TypeVar

from kwsniff.policy.rule_text import List, Map, Mistake, Node, Text, printable
from kwsniff.wire import errors, schema
from kwsniff.wire.schema import Versions

Word = TypeVar("Word", bound=str)

_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_DURATION = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?\s*(ns|us|µs|ms|s|m|h)")
_LONGEST = 24 * 3600 * 10**9
_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"(\d{1,12})\s*([KMG]?)(?:i?B)?\s*(?:/\s*s)?", re.IGNORECASE)
_SPAN = re.compile(r"v?(\d{1,5})(?:\s*-\s*v?(\d{1,5})|(\+))?")
_NULLS = ("", "~", "null", "Null", "NULL")
_BOOLS = {"true": True, "false": False}
_NEWEST = 32767


def near(name: str, known: Iterable[str]) -> str:
    """`, did you mean `x`?`, or nothing. Case and underscores make no difference."""
    spelled = {_bare(word): word for word in sorted(known)}
    close = get_close_matches(_bare(name), spelled, n=1, cutoff=0.6)
    return f", did you mean `{spelled[close[0]]}`?" if close else ""


def _bare(name: str) -> str:
    return name.replace("_", "").lower()


def said(node: Node) -> str:
    """A node in a message."""
    if isinstance(node, Text):
        return f"'{printable(node.text)}'" if node.text or node.quoted else "nothing"
    return "a list" if isinstance(node, List) else "a map"


def is_null(node: Node) -> bool:
    return isinstance(node, Text) and not node.quoted and node.text in _NULLS


def mapping(node: Node, what: str) -> Map:
    if not isinstance(node, Map):
        raise Mistake(node.line, f"{what} is a map (`key: value`), not {said(node)}")
    return node


def texts(node: Node, what: str) -> list[Text]:
    """A word, or a list of words."""
    items = node.items if isinstance(node, List) else [node]
    if not items or not all(isinstance(item, Text) and not is_null(item) for item in items):
        raise Mistake(node.line, f"{what} is a word or a list of words")
    return [item for item in items if isinstance(item, Text)]


def text(node: Node, what: str, most: int = 1000, *, lines: bool = False) -> str:
    """lines: there may be several."""
    if not isinstance(node, Text) or is_null(node):
        raise Mistake(node.line, f"{what} is a text, not {said(node)}")
    if not node.text or len(node.text) > most or not _shown(node.text, lines):
        raise Mistake(node.line, f"{what} is a text of 1 to {most} printable characters")
    return node.text


def _shown(given: str, lines: bool) -> bool:
    return (given.replace("\n", "").replace("\t", "") if lines else given).isprintable()


def integer(node: Node, what: str, least: int, most: int) -> int:
    if not isinstance(node, Text) or node.quoted or not re.fullmatch(r"[+-]?\d{1,20}", node.text):
        raise Mistake(node.line, f"{what} is a whole number, not {said(node)}")
    if not least <= int(node.text) <= most:
        raise Mistake(node.line, f"{what} is a number from {least} to {most}, not {node.text}")
    return int(node.text)


def fraction(node: Node, what: str) -> float:
    if isinstance(node, Text) and (match := re.fullmatch(r"(\d*\.?\d+)(\s*%)?", node.text)):
        value = float(match[1]) / (100 if match[2] else 1)
        if 0 <= value <= 1:
            return value
    raise Mistake(node.line, f"{what} is a number from 0 to 1, or a percentage, not {said(node)}")


def flag(node: Node, what: str) -> bool:
    if isinstance(node, Text) and not node.quoted and node.text.lower() in _BOOLS:
        return _BOOLS[node.text.lower()]
    raise Mistake(node.line, f"{what} is true or false, not {said(node)}")


def choice(node: Node, what: str, words: Iterable[Word]) -> Word:
    """One of the words, as it is in `words`."""
    known: dict[str, Word] = {str(word): word for word in words}
    if isinstance(node, Text) and node.text in known:
        return known[node.text]
    given = node.text if isinstance(node, Text) else ""
    hint = near(given, known) or f"; there are {', '.join(known)}"
    raise Mistake(node.line, f"no {what} {said(node)}{hint}")


def duration(node: Node, what: str) -> int:
    """`200ms`, `1.5s`, `2m` -> ns."""
    match = _DURATION.fullmatch(node.text) if isinstance(node, Text) else None
    if match is None:
        raise Mistake(node.line, f"{what} is a time such as 200ms, 1.5s or 2m, not {said(node)}")
    unit = _UNITS[match[3]]
    ns = int(match[1]) * unit + int((match[2] or "0").ljust(9, "0")) * unit // 10**9
    if ns > _LONGEST:
        raise Mistake(node.line, f"{what} is at most 24h, not {said(node)}")
    return ns


def size(node: Node, what: str) -> int:
    """`100K`, `1MB`, `512`; also with `/s` -> bytes, with K, M and G as powers of 1024."""
    match = _SIZE.fullmatch(node.text) if isinstance(node, Text) else None
    if match is None or int(match[1]) == 0:
        raise Mistake(node.line, f"{what} is a number of bytes such as 4096, 100K or 1M, not {said(node)}")
    return int(match[1]) * _SIZES[match[2].upper()]


def versions(node: Node) -> tuple[Versions, ...]:
    """`3`, `0-11`, `4+`, or a list of such."""
    spans = []
    for word in texts(node, "version"):
        match = _SPAN.fullmatch(word.text)
        if match is None:
            raise Mistake(word.line, f"version is a number or a range such as 0-11 or 4+, not {said(word)}")
        low = int(match[1])
        high = _NEWEST if match[3] else int(match[2] or low)
        if not low <= high <= _NEWEST:
            raise Mistake(word.line, f"{said(word)} is no range of versions")
        spans.append(Versions(low, high))
    return tuple(spans)


@cache
def _apis() -> dict[str, int]:
    """Every way to write an API, without case and underscores -> key."""
    found: dict[str, int] = {}
    for message in schema.messages():
        if message.type == "request" and message.api_key is not None:
            for name in (message.name, *message.aliases):
                found.setdefault(_bare(name.removesuffix("Request")), message.api_key)
    return found


def api(node: Text) -> int:
    """`Fetch`, `FETCH`, `ListOffsets`, `LIST_OFFSETS` -> key."""
    key = _apis().get(_bare(node.text))
    if key is None:
        names = [name for known in _apis().values() if (name := schema.api_stem(known))]
        hint = near(node.text, names) or "; `kwsniff apis` lists them"
        raise Mistake(node.line, f"no API {said(node)}{hint}")
    return key


def apis(node: Node) -> tuple[int, ...]:
    return tuple(dict.fromkeys(api(word) for word in texts(node, "api")))


def error_code(node: Node) -> int:
    """`NOT_LEADER_OR_FOLLOWER`, a former name, or a number; not 0, which is none."""
    names = [known.name for known in errors.codes() if known.code != 0]
    if not isinstance(node, Text) or is_null(node):
        raise Mistake(node.line, f"error is a name of Kafka's, such as {names[6]}, not {said(node)}")
    if re.fullmatch(r"-?\d{1,5}", node.text) and not node.quoted:
        code: int | None = int(node.text)
        if errors.error(int(node.text)) is None:
            code = None
    else:
        code = errors.error_code(node.text.upper())
    if code is None:
        raise Mistake(node.line, f"no error {said(node)}{near(node.text, names)}")
    if code == 0:
        raise Mistake(node.line, "NONE is no error; `respond` gives any answer")
    return code
