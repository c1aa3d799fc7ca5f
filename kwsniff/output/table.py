"""Lines for people: one row per exchange or fault, printed as it comes, in columns of fixed places.

In: the dicts of `jsonl`. Out: text rows. On a terminal rows fit its width and errors are coloured; elsewhere
nothing is cut or coloured. Bytes from the wire never reach the terminal as control characters.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, TextIO

from rich.cells import cell_len, set_cell_size
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

Line = dict[str, Any]

_BAD = Style.parse("red")
_ODD = Style.parse("yellow")
_DIM = Style.parse("dim")
_HEAD = Style.parse("bold")
_PLAIN = Style.null()
_SURROGATE = re.compile("[\udc80-\udcff]")
_GAP = "  "


class _Column(NamedTuple):
    title: str
    width: int
    right: bool = False


_COLUMNS = (
    _Column("time", 12),
    _Column("client", 21),
    _Column("client id", 14),
    _Column("API", 22),
    _Column("topic / group", 24),
    _Column("ms", 9, right=True),
    _Column("outcome", 0),
)
# Where the terminal is narrow, columns give way in this order, down to that width.
_SHRINKING = ((2, 8), (3, 18), (4, 14), (1, 15), (4, 8), (3, 12), (1, 10))
_OUTCOME = 16


class Table:
    """Rows in text: `header()` once, then `row(line)` for every line."""

    def __init__(self, terminal: TextIO | None) -> None:
        """terminal: where the rows go when it may be one; None: to a file."""
        console = Console(file=terminal or io.StringIO())
        self._fitted = console.is_terminal
        self._colours = ColorSystem.STANDARD if self._fitted and console.color_system else None
        self._total = console.width if self._fitted else 0
        self._widths = [column.width for column in _COLUMNS]
        if self._fitted:
            self._fit()
        self._date = ""

    def header(self) -> str:
        return self._text([(column.title, _HEAD) for column in _COLUMNS])

    def row(self, line: Line) -> str:
        """The row of an exchange's or a fault's line (with a row for the date where a new day begins)."""
        return self.dated(*self.undated(line))

    def undated(self, line: Line) -> tuple[str, str]:
        """The line's date, and its row without regard to the rows before."""
        cells = _fault_cells(line) if "fault" in line["kwsniff"] else _exchange_cells(line)
        date, _, time = (line["timestamp"] or "").rstrip("Z").partition("T")
        return date, self._text([(time[:12], _DIM), *cells])

    def dated(self, date: str, row: str) -> str:
        """The row, below one for the date where a new day begins."""
        if date == self._date or not date:
            return row
        self._date = date
        return f"{self._render(f'-- {date} (UTC)', _DIM)}\n{row}"

    def _fit(self) -> None:
        room = self._total - len(_GAP) * (len(_COLUMNS) - 1) - sum(self._widths) - _OUTCOME
        for index, narrowest in _SHRINKING:
            taken = min(max(-room, 0), self._widths[index] - narrowest)
            self._widths[index] -= taken
            room += taken

    def _text(self, cells: Sequence[tuple[str, Style]]) -> str:
        made: list[str] = []
        used = 0
        for (text, style), column, width in zip(cells, _COLUMNS, self._widths, strict=True):
            shown = escape(text)
            last = column is _COLUMNS[-1]
            if self._fitted:
                shown = _cut(shown, max(self._total - used, 1) if last else width)
            pad = " " * max(0 if last else width - cell_len(shown), 0)
            made.append(
                pad + self._render(shown, style) if column.right else self._render(shown, style) + pad
            )
            used += width + len(_GAP)
        return _GAP.join(made).rstrip()

    def _render(self, text: str, style: Style) -> str:
        return style.render(text, color_system=self._colours) if self._colours and text else text


def escape(text: str) -> str:
    """Printable text: control characters, bidi overrides and undecodable bytes as \\xNN or \\uNNNN."""
    if text.isprintable():
        return text
    text = _SURROGATE.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", text)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _cut(text: str, width: int) -> str:
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width) if width < 4 else set_cell_size(text, width - 2) + ".."


def _exchange_cells(line: Line) -> list[tuple[str, Style]]:
    extra, header = line["kwsniff"], line["requestHeader"]
    milliseconds = line["totalTimeMs"]
    return [
        (extra["client"], _PLAIN),
        ((header and header["clientId"]) or "", _PLAIN),
        (_api(header, extra), _HEAD),
        (_about(extra), _PLAIN),
        ("" if milliseconds is None else f"{milliseconds:.3f}", _PLAIN),
        _outcome(extra),
    ]


def _api(header: dict[str, Any] | None, extra: dict[str, Any]) -> str:
    if header is None:
        return "SASL token"
    key, name, version = (header[f"requestApi{part}"] for part in ("Key", "KeyName", "Version"))
    if key is None:
        return f"? (correlation id {header['correlationId']})"
    if version is None:
        return f"{name or key} ({extra['protocol']})"
    return f"{name or f'API {key}'} v{version}"


def _about(extra: dict[str, Any]) -> str:
    topics = extra["topics"]
    shown = ", ".join(topics[:3]) + (f" and {len(topics) - 3} more" if len(topics) > 3 else "")
    group = f"group {extra['groupId']}" if extra["groupId"] else ""
    return " ".join(filter(None, (shown, group)))


def _outcome(extra: dict[str, Any]) -> tuple[str, Style]:
    said: list[str] = []
    if extra["outcome"] != "answered":
        said.append(extra["outcome"])
    errors = Counter((error["name"] or f"error {error['code']}") for error in extra["errors"])
    said += [name if count == 1 else f"{name} ({count} times)" for name, count in errors.items()]
    said += [f"{fault['reason']}: {fault['message']}" for fault in extra["faults"]]
    if errors or extra["faults"]:
        return ", ".join(said), _BAD
    return (", ".join(said), _ODD) if said else ("answered", _DIM)


def _fault_cells(line: Line) -> list[tuple[str, Style]]:
    extra = line["kwsniff"]
    fault = extra["fault"]
    where = ", ".join(f"{name} {fault[name]}" for name in ("packet", "offset") if fault[name] is not None)
    told = f"{fault['reason']}: {fault['message']}" + (f" ({where})" if where else "")
    return [
        (extra["client"] or extra["file"] or "", _PLAIN),
        ("", _PLAIN),
        ("fault", _BAD),
        ("", _PLAIN),
        ("", _PLAIN),
        (told, _BAD),
    ]
