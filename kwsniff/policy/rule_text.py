"""The text of a rule file -> a tree of its values, each with its line. YAML, but only what rules need of it.

In: bytes. Out: Text, List and Map nodes; nothing is converted, so `on` stays a word and `0-11` a range.
Refused, with the line: tags, anchors and aliases (a few bytes of them can stand for gigabytes), keys that
come twice, nesting and files beyond all reason. Knows nothing of rules.
"""

from __future__ import annotations

from collections.abc import Iterator

import yaml
from msgspec import Struct

from kwsniff.errors import ConfigError

MAX_SIZE = 256 * 1024
"""Bytes of a file: more than a thousand rules."""
MAX_DEPTH = 24


class Text(Struct, frozen=True):
    """A scalar as it is written. quoted, or a block (`|`, `>`): it is text whatever it looks like."""

    line: int
    text: str
    quoted: bool = False


class List(Struct, frozen=True):
    line: int
    items: list[Node]


class Map(Struct, frozen=True):
    line: int
    pairs: dict[str, Node]
    lines: dict[str, int]
    """Key -> the line that it stands on."""


Node = Text | List | Map


class Mistake(Exception):
    """Something that is wrong, and the line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


class _Open(Struct):
    """A list or map that has not ended; `key` waits for its value."""

    node: List | Map
    key: Text | None = None


def parse(data: bytes) -> Node:
    """The one document in `data`. Raises Mistake."""
    if len(data) > MAX_SIZE:
        raise Mistake(1, f"the file has more than {MAX_SIZE} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Mistake(data.count(b"\n", 0, error.start) + 1, "this is not UTF-8") from None
    try:
        return _tree(yaml.parse(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = error.problem or error.context or "this is no YAML"
        raise Mistake(mark.line + 1 if mark else 1, f"no YAML: {_printable(why)}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise Mistake(line, f"no YAML: {error.reason}") from None
    except (ValueError, OverflowError):  # such as the escape "\UFFFFFFFF", which no character has
        raise Mistake(1, "no YAML: an escape that stands for no character") from None


def _tree(events: Iterator[yaml.Event]) -> Node:
    root: Node | None = None
    pending: list[_Open] = []
    for event in events:
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.DocumentStartEvent) and root is not None:
            raise Mistake(line, "a second document begins here; a rule file is one")
        if isinstance(event, yaml.CollectionEndEvent):
            pending.pop()
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        node = _node(event, line)
        if pending:
            _put(pending[-1], node)
        else:
            root = node
        if not isinstance(node, Text):
            pending.append(_Open(node))
            if len(pending) > MAX_DEPTH:
                raise Mistake(line, f"nested more than {MAX_DEPTH} deep")
    return Text(1, "") if root is None else root


def _node(event: yaml.NodeEvent, line: int) -> Node:
    if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
        raise Mistake(line, "anchors and aliases (& and *) are not read; quote a text that begins with one")
    if getattr(event, "tag", None) not in (None, "!"):
        raise Mistake(line, "tags (!) are not read; quote a text that begins with one")
    if isinstance(event, yaml.ScalarEvent):
        return Text(line, event.value, event.style is not None)
    return List(line, []) if isinstance(event, yaml.SequenceStartEvent) else Map(line, {}, {})


def _put(where: _Open, node: Node) -> None:
    if isinstance(where.node, List):
        where.node.items.append(node)
    elif where.key is not None:
        where.node.pairs[where.key.text] = node
        where.node.lines[where.key.text] = where.key.line
        where.key = None
    elif not isinstance(node, Text):
        raise Mistake(node.line, "a key is a word, not a list or map")
    elif node.text in where.node.pairs:
        raise Mistake(node.line, f"`{printable(node.text)}` stands here twice")
    else:
        where.key = node


def printable(text: str, most: int = 60) -> str:
    """As it may stand in a message of one line."""
    text = text if len(text) <= most else f"{text[:most]}..."
    return _printable(text)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def told(file: str, mistakes: list[Mistake], most: int = 20) -> ConfigError:
    """The mistakes as the user reads them, a line each: `file:line: what`."""
    rows = [f"{file}:{mistake.line}: {mistake.message}" for mistake in mistakes[:most]]
    if len(mistakes) > most:
        rows.append(f"{file}: and {len(mistakes) - most} more")
    return ConfigError("\n".join(rows))
