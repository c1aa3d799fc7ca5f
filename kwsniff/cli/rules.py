"""`kwsniff rules`: what a rule file means, and what it would have fired on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kwsniff.cli import options as given
from kwsniff.cli.failure import FINE, WRONG, Guarded, say
from kwsniff.cli.reading import read

if TYPE_CHECKING:
    from kwsniff.policy.firing import Ready
    from kwsniff.policy.rehearsal import Fired, Rehearsal

_EPILOG = """\b
A rule file:
  version: 1
  seed: 42                        # of chance and jitter
  rules:
    - name: slow-orders
      on: response                # request | response | exchange | session
      api: [Fetch]                # also: version: 0-11, client_id: "billing-*", side (of an exchange)
      when: '"orders" in kwsniff.topics && totalTimeMs < 50'
      chance: 0.3
      limit: 100                  # in total, over all connections of one proxy
      then: [{delay: {latency: 200ms, jitter: 50ms}}, {tag: slowed}]
      continue: true              # else the first rule that matches is the last
\b
Actions, on a request or response:
  delay: 200ms                    or {latency: 200ms, jitter: 50ms}
  throttle: 100K/s
  drop, close, reset              after drop the client waits for its timeout, and notices
  error: NOT_LEADER_OR_FOLLOWER   a valid error answer; where there is no place for one: close
  respond: {throttleTimeMs: 100}  this answer; fields left out have their defaults
  set: {"topics[*].partitions[*].fetchOffset": 0}
  rename: {orders: orders-v2}     topics, in requests; the answer has the client's names again
  redact: {topics: [orders], values: true}      also keys, headers; what cannot be read is not let through
  corrupt: crc                    or {truncate: 10}
Of any moment: log: text, alert: {severity: critical, message: text, webhook: URL}, count: metric,
and tag: word (not on a session).
"""
_PLACES = 5


@click.group(cls=Guarded, epilog=_EPILOG)
def rules() -> None:
    """Check rule files for `kwsniff proxy --rules`, and try them on captures."""


@rules.command()
@click.argument("files", metavar="RULES...", nargs=-1, required=True, type=click.Path())
def check(files: tuple[str, ...]) -> int:
    """Say what each rule of a file means, or what is wrong with it and where.

    The exit status is 2 when anything is.
    """
    from kwsniff.errors import ConfigError
    from kwsniff.policy.rule_file import load
    from kwsniff.policy.rule_sentence import sentence

    status = FINE
    for file in files:
        try:
            ruleset = load(file)
        except ConfigError as error:
            say(str(error))
            status = WRONG
            continue
        for rule in ruleset.rules:
            click.echo(sentence(rule))
        if not ruleset.rules:
            click.echo(f"{file}: no rules")
    return status


@rules.command()
@click.argument("rule_file", metavar="RULES", type=click.Path())
@click.argument("files", metavar="CAPTURE...", nargs=-1, required=True, type=click.Path(allow_dash=True))
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="For people, or a JSON line per rule.",
)  # fmt: skip
@click.option(
    "--places", type=click.IntRange(0, 1_000_000), metavar="N", default=_PLACES, show_default=True,
    help="List the first N places of each rule.",
)  # fmt: skip
@given.port
@given.max_frame
def test(
    rule_file: str, files: tuple[str, ...], form: str, places: int, port: tuple[int, ...], max_frame: int
) -> int:
    """Say which rules would have fired on what captures hold, how often and where.

    Every rule is asked about every exchange as it was captured: nothing is changed, delayed or answered. The
    exit status is 0 whether or not a rule would have fired.
    """
    from kwsniff.model import Exchange, Session
    from kwsniff.output import jsonl
    from kwsniff.output.progress import progress
    from kwsniff.policy.rehearsal import Rehearsal
    from kwsniff.policy.rule_file import load
    from kwsniff.reader import ReadOptions

    rehearsal = Rehearsal(load(rule_file), jsonl.line)
    found: dict[str, list[Fired]] = {ready.rule.name: [] for ready in rehearsal.ready}
    problems: list[str] = []
    with progress("trying the rules") as advance:
        options = ReadOptions(port=port, max_frame=max_frame, progress=advance)
        for event in read(files, options, problems):
            if isinstance(event, Exchange):
                fired = rehearsal.exchange(event)
            elif isinstance(event, Session):
                fired = rehearsal.session(event)
            else:
                continue
            for one in fired:
                if len(found[one.rule]) < places:
                    found[one.rule].append(one)
    _tell(rehearsal, found, form)
    for problem in problems:
        say(problem)
    return WRONG if problems else FINE


def _tell(rehearsal: Rehearsal, found: dict[str, list[Fired]], form: str) -> None:
    from kwsniff.output.jsonl import encode
    from kwsniff.output.table import escape

    for ready in rehearsal.ready:
        shown = [_place(one) for one in found[ready.rule.name]]
        if form == "json":
            click.echo(encode(_as_dict(ready, shown)).decode())
            continue
        click.echo(f"{ready.rule.name}: would have fired {_times(ready.fired)}")
        for place in shown:
            click.echo(escape(_row(place)))
        if ready.fired > len(shown) > 0:
            click.echo(f"  ... and {_times(ready.fired - len(shown))} more")
        if ready.condition is not None and ready.condition.errors:
            count, why = _times(ready.condition.errors), escape(ready.condition.last_error or "")
            click.echo(f"  its `when` could not be evaluated {count}: {why}")


def _place(fired: Fired) -> dict[str, Any]:
    from kwsniff import wire
    from kwsniff.output.times import timestamp

    occasion, frame = fired.occasion, fired.frame
    api = occasion.api if occasion.api is not None and occasion.api >= 0 else None
    return {
        "timestamp": timestamp(occasion.ts),
        "connection": str(occasion.conn),
        "file": fired.file,
        "packet": frame.packet if frame else None,
        "on": occasion.on,
        "api": None if api is None else wire.api_name(api),
        "version": occasion.version,
        "correlationId": occasion.correlation_id,
        "clientId": occasion.client_id,
    }


def _row(place: dict[str, Any]) -> str:
    """`06:21:19.785520991  packet 141 of a.pcap  127.0.0.1:9092-...  FETCH v11 response`"""
    version = "" if place["version"] is None else f" v{place['version']}"
    what = f"{place['api']}{version} {place['on']}" if place["api"] else str(place["on"])
    packet = f"packet {place['packet']} of {place['file']}" if place["packet"] else str(place["file"])
    return f"  {place['timestamp']}  {what}, {packet}, {place['connection']}"


def _as_dict(ready: Ready, places: list[dict[str, Any]]) -> dict[str, Any]:
    condition = ready.condition
    return {
        "rule": ready.rule.name,
        "on": ready.rule.on,
        "line": ready.rule.line,
        "fired": ready.fired,
        "places": places,
        "whenErrors": condition.errors if condition else 0,
        "whenError": condition.last_error if condition else None,
    }


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
