"""The compiled window of events against the Python one that specifies it, and both against a sort."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from passing_builders import asked, passed

from kwsniff import reader
from kwsniff.compiled import compiled as compiled_module
from kwsniff.model import FetchedPartition
from kwsniff.output import ordinary
from kwsniff.output.present import Options

_line = compiled_module("kwsniff.output._line")

needs_compiler = pytest.mark.skipif(reader._order is None, reason="kwsniff was built without a C compiler")

INT64 = 2**63 - 1
NO_LIMIT = 2**62


class Event(NamedTuple):
    """number: tells apart those that are alike in all else."""

    when: int
    known: int
    weight: int
    number: int


def place(event: Event) -> tuple[int, int, int]:
    return event.when, event.known, event.weight


def bounded(event: Event) -> tuple[int, int, int]:
    """The compiled window takes all times beyond those of 64 bits for the same one."""
    when, known = (max(-INT64, min(time, INT64)) for time in event[:2])
    return when, known, event.weight


def numbered(batches: list[list[tuple[int, int, int]]]) -> list[list[Event]]:
    found, number = [], 0
    for batch in batches:
        found.append([Event(*event, number + n) for n, event in enumerate(batch)])
        number += len(batch)
    return found


def through(window: Any, batches: list[list[Event]]) -> list[list[Event]]:
    """What comes out behind each batch, and in the end."""
    return [*[window.feed(batch) for batch in batches], window.rest(), window.rest()]


FEW_TIMES = st.integers(-3, 12)
ANY_TIME = st.one_of(FEW_TIMES, st.integers(-(2**62), 2**62), st.integers(-INT64, INT64))
ENORMOUS = st.one_of(
    ANY_TIME, st.integers(), st.sampled_from([2**63, -(2**63), 2**63 - 1, 1 - 2**63, 10**30])
)
LIMITS = st.tuples(
    st.sampled_from([0, 1, 5, 10**10, NO_LIMIT]),
    st.sampled_from([0, 1, 4, 10_000]),
    st.sampled_from([0, 7, 50, NO_LIMIT]),
)


def batches(time: st.SearchStrategy[int]) -> st.SearchStrategy[list[list[Event]]]:
    event = st.tuples(time, time, st.integers(0, 20))
    return st.lists(st.lists(event, max_size=30), max_size=8).map(numbered)


@needs_compiler
@settings(max_examples=300, deadline=None)
@given(st.one_of(batches(FEW_TIMES), batches(ANY_TIME)), LIMITS)
def test_it_does_as_the_specification(given: list[list[Event]], limits: tuple[int, int, int]) -> None:
    compiled = through(reader._order.Window(place, *limits), given)
    assert compiled == through(reader.Window(place, *limits), given)


@needs_compiler
@settings(max_examples=200, deadline=None)
@given(batches(ENORMOUS), LIMITS)
def test_times_of_no_world_are_all_the_same(given: list[list[Event]], limits: tuple[int, int, int]) -> None:
    compiled = through(reader._order.Window(place, *limits), given)
    assert compiled == through(reader.Window(bounded, *limits), given)


BOTH = [
    pytest.param(reader.Window, id="python"),
    pytest.param(reader._order and reader._order.Window, id="compiled", marks=needs_compiler),
]


@pytest.mark.parametrize("make", BOTH)
class TestBoth:
    @settings(max_examples=100, deadline=None)
    @given(st.one_of(batches(FEW_TIMES), batches(st.integers(-(2**60), 2**60))))
    def test_within_the_limits_it_is_a_stable_sort(self, make: Any, given: list[list[Event]]) -> None:
        *early, rest, nothing = through(make(place, NO_LIMIT, 10_000, NO_LIMIT), given)
        events = [event for batch in given for event in batch]
        assert rest == sorted(events, key=lambda event: event.when)
        assert not any(early)
        assert not nothing

    @settings(max_examples=100, deadline=None)
    @given(batches(FEW_TIMES), LIMITS)
    def test_none_is_lost_and_none_waits_beyond_the_limits(
        self, make: Any, given: list[list[Event]], limits: tuple[int, int, int]
    ) -> None:
        most_time, most_events, most_bytes = limits
        window = make(place, *limits)
        waiting: list[Event] = []
        newest = 0
        for batch in given:
            waiting = sorted([*waiting, *batch], key=lambda event: (event.when, event.number))
            newest = max([newest, *(event.known for event in batch)])
            ready = window.feed(batch)
            assert ready == waiting[: len(ready)]
            last = waiting[len(ready) - 1 :]
            waiting = waiting[len(ready) :]
            assert all(event.when > newest - most_time for event in waiting)
            assert len(waiting) <= most_events
            assert sum(event.weight for event in waiting) <= most_bytes or not waiting
            if ready:  # the last of them had to go
                held = sum(event.weight for event in last)
                due = last[0].when <= newest - most_time
                assert due or len(last) > most_events or held > most_bytes
        assert window.rest() == waiting

    def test_by_hand(self, make: Any) -> None:
        window = make(lambda event: (event[0], event[0], 1), 10, 100, 100)
        assert window.feed([(5, "a"), (3, "b"), (5, "c")]) == []
        assert window.feed([(13, "d")]) == [(3, "b")]
        assert window.feed([(15, "e"), (1, "late")]) == [(1, "late"), (5, "a"), (5, "c")]
        assert window.rest() == [(13, "d"), (15, "e")]

    def test_an_event_that_waits_is_held_and_one_that_left_is_not(self, make: Any) -> None:
        event = object()
        count = sys.getrefcount(event)
        window = make(lambda _: (0, 0, 0), 10, 100, 100)
        window.feed([event] * 5)
        assert sys.getrefcount(event) >= count + 5
        assert window.rest() == [event] * 5
        assert sys.getrefcount(event) == count
        window.feed([event] * 5)
        del window
        assert sys.getrefcount(event) == count

    def test_what_place_raises_comes_through(self, make: Any) -> None:
        def bad(event: int) -> tuple[int, int, int]:
            return event, event, 1 // event

        window = make(bad, 10, 100, 100)
        with pytest.raises(ZeroDivisionError):
            window.feed([2, 1, 0])
        assert window.rest() == [1, 2]


def test_small_fetches_of_a_large_session_are_as_heavy_as_what_they_list() -> None:
    listed = tuple(FetchedPartition("t", None, number, 0) for number in range(1_000))
    exchange = passed(asked(1, 7, b""), None).exchange
    alone = reader._place(exchange)[2]
    exchange.fetched = listed
    assert alone == len(exchange.request.raw)  # type: ignore[union-attr]
    assert reader._place(exchange)[2] == alone + 8 * 1_000


@needs_compiler
def test_lines_know_their_place_themselves() -> None:
    path = Path(__file__).parent.parent / "captures" / "kafkapython-group-kfake-nano.pcap"
    found = reader.batches([str(path)], reader.ReadOptions(), ordinary.writer(Options()))
    lines = [event for batch in found for event in batch if isinstance(event, _line.Line)]
    random.Random(1).shuffle(lines)
    assert len(lines) > 50
    events = [[line, Event(line.ts + n % 3 - 1, line.known, 40, n)] for n, line in enumerate(lines)]

    def of_either(event: Any) -> tuple[int, int, int]:
        return place(event) if isinstance(event, Event) else (event.ts, event.known, event.weight)

    # The compiled one would fail if it asked for the place of a line.
    for limits in ((10**7, 10_000, NO_LIMIT), (10**12, 20, NO_LIMIT), (10**12, 10_000, 20_000)):
        compiled = through(reader._order.Window(place, *limits), events)
        assert compiled == through(reader.Window(of_either, *limits), events)
        assert sum(map(len, compiled[:-2])) > 50
