"""`kwsniff edit`: captures -> a capture that holds less, or names nobody."""

from __future__ import annotations

import os
import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from kwsniff.cli import options as given
from kwsniff.cli.failure import FINE, INTERRUPTED, say

if TYPE_CHECKING:
    from kwsniff.output.pseudonyms import Pseudonyms
    from kwsniff.retelling import Choice, Done, Edit

_EPILOG = """\b
Examples:
  kwsniff edit big.pcapng -o small.pcapng --start 2026-11-21T06:00:00Z --end 2026-11-21T06:05:00Z
  kwsniff edit big.pcapng -o one.pcapng --connection 10.0.0.5:40312
  kwsniff edit a.pcap -o failed.pcapng --filter 'size(kwsniff.errors) > 0'
  kwsniff edit a.pcap -o for-the-vendor.pcapng --anonymise
\b
Without --anonymise and --filter the packets are copied as they are, unless they hold passwords or tokens of
Kafka's. What is of no Kafka connection is then copied, too, where --connection does not choose. In all
other cases the frames are told by new TCP connections, whose packets are not those of the capture.
"""
_UNITS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
}


class Shift(click.ParamType[int]):
    """`-1.5h`, `250ms` -> ns."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"([+-]?\d{1,12}(?:\.\d{1,9})?)\s*(ns|us|ms|s|m|h|d)", str(value).strip())
        if match is None:
            self.fail(f"'{value}' is no duration: write 250ms, 90s, -2h or 1d", param, ctx)
        return int(Fraction(match[1]) * _UNITS[match[2]])


class Factor(click.ParamType[Fraction]):
    """`2`, `0.5` -> exactly that."""

    name = "factor"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Fraction:
        match = re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", str(value).strip())
        if match is None or Fraction(match[0]) == 0:
            self.fail(f"'{value}' is no factor: write 2 for twice as fast, 0.5 for half", param, ctx)
        return Fraction(match[0])


class Connection(click.ParamType["Choice"]):
    """`CLIENT` or `CLIENT-BROKER`, each an address with or without a port."""

    name = "connection"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Choice:
        from kwsniff.retelling import Choice

        client, dash, broker = str(value).partition("-")
        try:
            return Choice(_end(client), _end(broker) if dash else None)
        except ValueError:
            text = "write 10.0.0.5, 10.0.0.5:40312 or 10.0.0.5:40312-10.0.0.9:9092 ([::1]:9092 for IPv6)"
            self.fail(f"'{value}' is no connection: {text}", param, ctx)


def _end(text: str) -> tuple[str, int | None]:
    """As `Endpoint` writes it, or the address alone."""
    from ipaddress import ip_address

    match = re.fullmatch(r"\[(.+)\](?::(\d{1,5}))?|([^:]+)(?::(\d{1,5}))?", text)
    host, port = (match[1] or match[3], match[2] or match[4]) if match else (text, None)
    address = ip_address(host)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(address) if mapped is None else f"::ffff:{mapped}", int(port) if port else None


@click.command(epilog=_EPILOG)
@given.FILES
@click.option("-o", "--output", "target", required=True, metavar="FILE", help="Write here (pcapng).")
@given.start
@given.end
@click.option(
    "--connection", "connections", type=Connection(), multiple=True, metavar="CLIENT[-BROKER]",
    help="Only this one: an address with or without port, or two of them. Several are allowed.",
)  # fmt: skip
@click.option(
    "--filter", "expression", metavar="CEL", help="Only exchanges for whose JSON line this is true."
)
@click.option("--anonymise", is_flag=True, help="Other names, addresses, keys and values; see --key.")
@click.option(
    "--key", "--seed", "key", metavar="TEXT", envvar="KWSNIFF_ANONYMISE_KEY", show_envvar=True,
    help="With the same key the same name becomes the same pseudonym; without, until the end of the run.",
)  # fmt: skip
@click.option("--keep-secrets", is_flag=True, help="Passwords and tokens, too.")
@click.option("--shift", type=Shift(), metavar="DURATION", help="Move all times: 90s, -2h.")
@click.option("--at", type=given.Time(), metavar="TIME", help="When the first packet is to be.")
@click.option("--speed", type=Factor(), metavar="FACTOR", default="1", help="2: in half of the time.")
@given.port
@given.max_frame
def edit(
    files: tuple[str, ...],
    target: str,
    start: int | None,
    end: int | None,
    connections: tuple[Choice, ...],
    expression: str | None,
    anonymise: bool,
    key: str | None,
    keep_secrets: bool,
    shift: int | None,
    at: int | None,
    speed: Fraction,
    port: tuple[int, ...],
    max_frame: int,
) -> int:
    """Cut captures by time, connection and content, take the names out, move them in time.

    The output is a pcapng file for Wireshark and kwsniff. Anonymised are topics, groups, clients, users,
    hosts, ids, settings that are not Kafka's, keys, values and headers of records; what cannot be decoded is
    left out. Numbers, sizes of values, times, ports and names of internal topics stay.
    """
    from kwsniff.cli.reading import say_if_slow
    from kwsniff.editing import edit as edited
    from kwsniff.output.atomic import output
    from kwsniff.output.progress import progress
    from kwsniff.policy.expression import compile_filter
    from kwsniff.reader import ReadOptions
    from kwsniff.retelling import Edit, Timing

    _refuse(anonymise, key, keep_secrets, shift, at)
    condition = compile_filter(expression) if expression is not None else None
    names = _pseudonyms(key) if anonymise else None
    timing = Timing(at, speed, shift or 0)
    say_if_slow()
    try:
        with output(target) as stream, progress("editing") as advance:
            options = ReadOptions(port=port, max_frame=max_frame, start=start, end=end, progress=advance)
            wanted = Edit(options, connections, condition, names, keep_secrets, timing)
            done = edited(list(files), wanted, stream)
    except KeyboardInterrupt:
        say(f"interrupted; {target} is left as it was")
        return INTERRUPTED
    _tell(done, wanted, key)
    return FINE


def _refuse(anonymise: bool, key: str | None, keep_secrets: bool, shift: int | None, at: int | None) -> None:
    source = click.get_current_context().get_parameter_source("key")
    if key is not None and not anonymise and source is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("--key is for --anonymise")
    if key == "" and anonymise:
        raise click.UsageError("--key is empty: anybody could find the names again")
    if keep_secrets and anonymise:
        raise click.UsageError("--keep-secrets and --anonymise contradict each other")
    if shift is not None and at is not None:
        raise click.UsageError("--shift and --at both say when: give one of them")


def _pseudonyms(key: str | None) -> Pseudonyms:
    from kwsniff.output.pseudonyms import Pseudonyms

    return Pseudonyms(os.urandom(32) if key is None else key.encode("utf-8", "surrogateescape"))


def _tell(done: Done, wanted: Edit, key: str | None) -> None:
    for fault in done.faults:
        say(f"{fault.file}: {fault.message}" if done.copied is False else fault.message)
    what = _many(done.packets, "packet")
    if done.copied:
        say(f"{what} copied as they are")
    else:
        said = f"{_many(done.exchanges, 'exchange')} of {_many(done.connections, 'connection')}"
        say(f"{said}, told anew in {what}")
    for why, count in sorted(done.left_out.items()):
        say(f"left out: {_many(count, 'frame')} {why}")
    if done.blanked:
        say(f"secrets replaced by filler in {_many(done.blanked, 'frame')} (--keep-secrets leaves them)")
    if wanted.names is not None and key is None:
        say("anonymised with a key that nobody has: give --key to get the same pseudonyms another time")
    if wanted.condition is not None and wanted.condition.errors:
        from kwsniff.output.table import escape

        error = escape(wanted.condition.last_error or "")
        say(
            f"the filter failed on {_many(wanted.condition.errors, 'exchange')}, which are not in it: {error}"
        )


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")
