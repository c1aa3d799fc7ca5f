"""The option types that several commands share: sizes, times, ports."""

from __future__ import annotations

import re
from typing import Any

import click

from kwsniff.errors import ConfigError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Size(click.ParamType[int]):
    """`100M`, `64 MiB`, `4096`: bytes, with K, M and G as powers of 1024."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d{1,15})\s*([KMG]?)(?:i?B)?", str(value).strip(), re.IGNORECASE)
        if match is None or int(match[1]) == 0:
            self.fail(f"'{value}' is no size: write 4096, 512K, 100M or 1G", param, ctx)
        return int(match[1]) * _UNITS[match[2].upper()]


class Time(click.ParamType[int]):
    """ISO 8601 (UTC unless it says otherwise), or seconds since the epoch -> ns."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from kwsniff.output.times import parse_time

        if isinstance(value, int):
            return value
        try:
            return parse_time(str(value))
        except ConfigError as error:
            self.fail(str(error), param, ctx)


PORT = click.IntRange(1, 65535)
FILES = click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(allow_dash=True))
port = click.option(
    "--port",
    type=PORT,
    multiple=True,
    help="Take this port for a Kafka broker's, whatever its bytes look like.",
)
start = click.option("--start", type=Time(), metavar="TIME", help="Only what began at this time or later.")
end = click.option("--end", type=Time(), metavar="TIME", help="Only what began before this time.")
max_frame = click.option(
    "--max-frame", type=Size(), metavar="SIZE", default="100M", show_default=True,
    help="Larger requests and responses are not decoded.",
)  # fmt: skip
