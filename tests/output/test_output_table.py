"""Rows for people, and the summary."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from output_builders import CONN, NOON, answered, asked, exchange, frame, token

from kwsniff.errors import Reason
from kwsniff.model import Exchange, Fault, Ledger, Outcome, Peer, Session, Side
from kwsniff.output import jsonl
from kwsniff.output.summary import Summary
from kwsniff.output.table import Table, escape

METADATA, JOIN_GROUP = 3, 11


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def row(found: Exchange | Fault, table: Table | None = None) -> str:
    line = jsonl.fault_line(found) if isinstance(found, Fault) else jsonl.line(found)
    return (table or Table(None)).row(line).splitlines()[-1]


def cells(text: str) -> list[str]:
    return re.split(r"\s{2,}", text)


def test_a_row() -> None:
    found = exchange(
        asked(METADATA, 1, {"topics": [{"name": "orders"}]}), answered(METADATA, 1, {"controllerId": 1})
    )
    assert cells(row(found)) == [
        "06:00:00.123", "127.0.0.1:49878", "c", "METADATA v1", "orders", "3.210", "answered",
    ]  # fmt: skip


def test_a_new_day_has_a_row() -> None:
    table = Table(None)
    found = jsonl.line(exchange(asked(METADATA, 1, {"topics": []})))
    assert table.row(found).splitlines()[0] == "-- 2026-11-21 (UTC)"
    assert len(table.row(found).splitlines()) == 1


def test_errors_group_and_outcome() -> None:
    found = exchange(asked(JOIN_GROUP, 1, {"groupId": "g"}), answered(JOIN_GROUP, 1, {"errorCode": 79}))
    assert cells(row(found))[4:] == ["group g", "3.210", "MEMBER_ID_REQUIRED"]
    lost = exchange(asked(JOIN_GROUP, 1, {"groupId": "g"}), outcome=Outcome.LOST)
    assert cells(row(lost))[-1] == "lost"


def test_rows_of_what_is_not_decoded() -> None:
    assert "SASL token" in row(exchange(token(Side.REQUEST, b"x")))
    assert "API 999 v3" in row(exchange(frame(Side.REQUEST, 999, 3, None)))
    unmatched = exchange(None, frame(Side.RESPONSE, -1, None, None), outcome=Outcome.UNMATCHED, peer=Peer())
    assert "? (correlation id 7)" in row(unmatched)
    fault = Fault(NOON, Reason.LOST_BYTES, "9 bytes are missing", conn=CONN, packet=3)
    assert cells(row(fault))[1:] == ["127.0.0.1:49878", "fault", "lost_bytes: 9 bytes are missing (packet 3)"]
    broken = exchange(asked(METADATA, 1, {}), faults=(fault,))
    assert row(broken).endswith("no_ack, lost_bytes: 9 bytes are missing")


def test_no_colour_and_no_cut_outside_of_a_terminal() -> None:
    long = "topic-" + "x" * 200
    text = row(exchange(asked(METADATA, 1, {"topics": [{"name": long}]})))
    assert long in text
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [80, 100, 200])
def test_rows_fit_the_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    table = Table(Terminal())
    long = {"name": "topic-" + "語" * 200}
    error = {"topics": [{"errorCode": 3, "name": "x" * 100}]}
    text = row(exchange(asked(METADATA, 1, {"topics": [long]}), answered(METADATA, 1, error)), table)
    assert "\x1b[31m" in text  # red
    from rich.cells import cell_len

    assert cell_len(re.sub(r"\x1b\[[\d;]*m", "", text)) <= width


@pytest.mark.parametrize("evil", ["\x1b[2J", "a\nb", "\x9b31m", "\u202eabc", "\x7f", "a\tb\r"])
def test_nothing_on_the_wire_controls_the_terminal(evil: str) -> None:
    text = row(exchange(asked(METADATA, 1, {"topics": [{"name": evil}]}, client_id=evil)))
    assert text.isprintable()


def test_bytes_that_are_no_text_are_escaped() -> None:
    assert escape(b"caf\xe9".decode("utf-8", "surrogateescape")) == "caf\\xe9"


def summarised(*found: Exchange | Fault, **told: Any) -> str:
    summary = Summary()
    for event in found:
        summary.line(jsonl.fault_line(event) if isinstance(event, Fault) else jsonl.line(event))
    summary.session(
        Session(CONN, NOON, None, NOON, NOON, "kafka", Peer(), Ledger(1000, 900, 50, 100), Ledger(5, 5))
    )
    return summary.text(**told)


def test_the_summary() -> None:
    bad = exchange(asked(JOIN_GROUP, 1, {}), answered(JOIN_GROUP, 1, {"errorCode": 79}))
    fault = Fault(NOON, Reason.LOST_BYTES, "gone", conn=CONN)
    text = summarised(exchange(asked(METADATA, 1, {})), exchange(asked(METADATA, 1, {})), bad, fault)
    assert text.splitlines() == [
        "3 exchanges, 1 connection, 1 fault",
        "  JOIN_GROUP v1         1  1 with errors",
        "  METADATA v1           2",
        "  outcomes: 2 no_ack, 1 answered",
        "  faults: 1 lost_bytes",
        "  connections: 1 kafka",
        "  bytes: 1,005 seen, 905 decoded, 100 not decoded, 50 lost",
    ]


def test_the_summary_tells_what_the_filter_could_not_do() -> None:
    text = summarised(filtered=True, filter_errors=2, filter_error="no such key")
    assert text.splitlines()[0] == "0 exchanges, 1 connection, 0 faults; 0 lines shown"
    assert text.splitlines()[-1] == "  the filter could not be evaluated on 2 lines: no such key"


def test_the_summary_of_many_connections_is_exact() -> None:
    summary = Summary()
    for _ in range(12_000):
        summary.session(Session(CONN, None, None, 0, 0, "tls", Peer(), Ledger(seen=1, undecoded=1), Ledger()))
    assert summary.text().splitlines()[-1] == "  bytes: 12,000 seen, 0 decoded, 12,000 not decoded, 0 lost"
