"""Timestamps of nine digits, and times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwsniff.errors import ConfigError
from kwsniff.output.times import parse_time, timestamp


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "1970-01-01T00:00:00.000000000Z"),
        (1_795_240_800_123_456_789, "2026-11-21T06:00:00.123456789Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (253_402_300_799_999_999_999, "9999-12-31T23:59:59.999999999Z"),
        (253_402_300_800_000_000_000, "10000-01-01T00:00:00.000000000Z"),
        (2**64 * 10**9, "584554051223-11-09T07:00:16.000000000Z"),
    ],
)
def test_a_timestamp(ns: int, text: str) -> None:
    assert timestamp(ns) == text


@given(st.datetimes(timezones=st.just(UTC), min_value=datetime(1970, 1, 1), max_value=datetime(9000, 1, 1)))
def test_timestamps_agree_with_datetime(moment: datetime) -> None:
    ns = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
    assert datetime.fromisoformat(timestamp(ns)[:26] + "+00:00") == moment
    assert parse_time(timestamp(ns)) == ns


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2026-11-21T06:00:00.123456789Z", "2026-11-21T06:00:00.123456789Z"),
        ("2026-11-21 06:00:00,5", "2026-11-21T06:00:00.500000000Z"),
        ("2026-11-21T08:00:00+02:00", "2026-11-21T06:00:00.000000000Z"),
        ("2026-11-21", "2026-11-21T00:00:00.000000000Z"),
        ("1795240800", "2026-11-21T06:00:00.000000000Z"),
        ("1795240800.25", "2026-11-21T06:00:00.250000000Z"),
        ("0", "1970-01-01T00:00:00.000000000Z"),
    ],
)
def test_times_as_people_write_them(text: str, same: str) -> None:
    assert timestamp(parse_time(text)) == same


@pytest.mark.parametrize("text", ["", "noon", "2026-13-01", "12:00", "2026-11-21T25:00:00Z", "-5"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ConfigError, match="is no time"):
        parse_time(text)
