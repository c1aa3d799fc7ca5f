"""Nanoseconds since the epoch <-> RFC 3339 text in UTC. Exact: no float is involved."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from kwsniff.errors import ConfigError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CYCLE = 146_097 * 86_400  # seconds in 400 years, after which the calendar repeats
_EPOCH_SECONDS = re.compile(r"(\d{1,12})(?:\.(\d{1,9}))?")
_ISO = re.compile(r"(.*:\d\d)[.,](\d{1,9})(.*)", re.DOTALL)


def timestamp(ns: int) -> str:
    """`2026-11-21T06:00:00.123456789Z`. Any int gives text, however absurd the capture's clock."""
    seconds, rest = divmod(ns, 1_000_000_000)
    return f"{_second(seconds)}.{rest:09d}Z"


@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    cycles, seconds = divmod(seconds, _CYCLE)
    moment = _EPOCH + timedelta(seconds=seconds)
    return f"{moment.year + 400 * cycles:04d}{moment:-%m-%dT%H:%M:%S}"


def parse_time(text: str) -> int:
    """ISO 8601 (without an offset: UTC) or seconds since the epoch -> nanoseconds. ConfigError otherwise."""
    seconds = _EPOCH_SECONDS.fullmatch(text.strip())
    if seconds and (seconds[2] or len(seconds[1]) != len("20261121")):  # else a date without dashes
        return int(seconds[1]) * 1_000_000_000 + int((seconds[2] or "").ljust(9, "0"))
    found = _ISO.fullmatch(text.strip())
    whole, rest = (found[1] + found[3], found[2].ljust(9, "0")) if found else (text.strip(), "0")
    try:
        moment = datetime.fromisoformat(whole)
    except ValueError:
        raise ConfigError(
            f"'{text}' is no time: write 2026-11-21T06:00:00Z, 2026-11-21 or seconds since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + int(rest)
