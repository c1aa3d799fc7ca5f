"""The quick way to a JSON line against the one that specifies it: byte for byte, or not at all."""

import copy
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwsniff import reader
from kwsniff.model import Exchange, Frame
from kwsniff.output import jsonl, ordinary
from kwsniff.output.present import Options
from kwsniff.wire import codec

pytestmark = pytest.mark.skipif(not codec.COMPILED, reason="kwsniff was built without a C compiler")

ROOT = Path(__file__).parent.parent
CAPTURES = sorted((ROOT.parent / "captures").iterdir())
FORMS = [Options(), Options(body=False), Options(records=True), Options(records=True, body=False)]


@cache
def exchanges(path: Path) -> list[Exchange]:
    return [event for event in reader.events([str(path)]) if isinstance(event, Exchange)]


def quick(exchange: Exchange, options: Options) -> bytes | None:
    found = ordinary.writer(options).exchange(exchange)
    return found and found[0]


def slow(exchange: Exchange, options: Options) -> tuple[bytes, bool]:
    line = jsonl.line(exchange, options)
    return jsonl.encode(line) + b"\n", bool(line["kwsniff"]["errors"])


@pytest.mark.parametrize("options", FORMS, ids=["body", "no body", "records", "records, no body"])
@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.name)
def test_every_exchange_of_the_captures(path: Path, options: Options) -> None:
    writer = ordinary.writer(options)
    for exchange in exchanges(path):
        found = writer.exchange(exchange)
        if found is not None:
            assert found == slow(exchange, options)


def test_nearly_all_exchanges_go_the_quick_way() -> None:
    ways = Counter(
        quick(exchange, FORMS[0]) is not None
        for path in CAPTURES
        if "mock" not in path.name  # whose answers have faults
        for exchange in exchanges(path)
    )
    assert ways[True] > 5 * ways[False]


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_damaged_frames(data: st.DataObject) -> None:
    exchange = copy.copy(data.draw(st.sampled_from(exchanges(CAPTURES[data.draw(st.integers(0, 5))]))))
    for side in ("request", "response"):
        frame = getattr(exchange, side)
        if frame is not None and data.draw(st.booleans()):
            setattr(exchange, side, damaged(frame, data))
    options = data.draw(st.sampled_from(FORMS))
    found = quick(exchange, options)
    assert found is None or found == slow(exchange, options)[0]


def damaged(frame: Frame, data: st.DataObject) -> Frame:
    """The frame with some bytes of its body changed, its end cut off, or something behind it."""
    raw = bytearray(frame.raw)
    for _ in range(data.draw(st.integers(0, 3))):
        if len(raw) > frame.body_at >= 0:
            raw[data.draw(st.integers(frame.body_at, len(raw) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.sampled_from([len(raw), len(raw), max(len(raw) - 1, 0)]))
    other = copy.copy(frame)
    other.__dict__.clear()
    other.raw = bytes(raw[:end]) + data.draw(st.sampled_from([b"", b"", b"\0"]))
    return other
