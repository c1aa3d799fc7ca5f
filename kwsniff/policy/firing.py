"""Which rules fire: cheap keys first, then chance, then the expression; the first that matches, unless it
says `continue`.

In: a moment (what happened, on which connection, the number of its frame) and a way to get the JSON line,
asked only by a rule whose cheap keys and chance let it through. Out: the rules that fire, in order; counts.
The same moments give the same rules, in whatever order connections are read; only `limit` counts over all.
Acts upon nothing; has no clock and no randomness.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fnmatch import translate
from hashlib import blake2b
from typing import Any, NamedTuple

from msgspec.structs import replace

from kwsniff.model import ConnectionId, Frame, Protocol
from kwsniff.policy.expression import Expression, compile_filter
from kwsniff.policy.ruleset import On, Rule, RuleSet

Line = dict[str, Any]
_PARTS = 1 << 53
"""Of 1: as many as a float tells apart."""


class Moment(NamedTuple):
    """When a rule may fire. number: of the frame in its direction of its connection, from 0."""

    on: On
    conn: ConnectionId
    number: int
    api: int | None = None
    version: int | None = None
    client_id: str | None = None


def moment(on: On, frame: Frame, number: int, request: Frame | None = None) -> Moment:
    """request: of a response, what it answers; that knows the client's id."""
    client_id = frame.client_id if request is None else request.client_id
    return Moment(on, frame.conn, number, frame.api, frame.version, client_id)


def judged(frame: Frame | None) -> bool:
    """Whether rules are asked about this frame: not about bare SASL tokens and Kafka 0.7, which pass."""
    return frame is not None and frame.protocol is Protocol.KAFKA


def draw(seed: int, rule: str, moment: Moment, what: str = "chance") -> float:
    """A number from 0 up to 1 that only depends on what is given."""
    told = (str(seed), rule, str(moment.conn), moment.on, str(moment.number), what)
    digest = blake2b("\0".join(told).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / _PARTS


class Ready:
    """A rule with its expression and pattern compiled, and how often it has fired."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.fired = 0
        self.condition: Expression | None = None if rule.when is None else compile_filter(rule.when)
        self._client = None if rule.client_id is None else re.compile(translate(rule.client_id))

    def admits(self, moment: Moment, seed: int) -> bool:
        """What can be said without the line."""
        rule = self.rule
        if rule.limit is not None and self.fired >= rule.limit:
            return False
        if rule.versions is not None and not rule.takes_version(moment.version):
            return False
        if self._client is not None and self._client.match(moment.client_id or "") is None:
            return False
        return rule.chance >= 1 or draw(seed, rule.name, moment) < rule.chance


class Firing:
    """The rules of a set, ready to be asked. Of `former`, rules that are the same keep their counts."""

    def __init__(self, ruleset: RuleSet, former: Firing | None = None) -> None:
        self.ruleset = ruleset
        known: dict[str, Ready] = (
            {} if former is None else {_content(ready.rule): ready for ready in former.rules}
        )
        self.rules: list[Ready] = [known.get(_content(rule)) or Ready(rule) for rule in ruleset.rules]
        self._on = {on: [ready for ready in self.rules if ready.rule.on is on] for on in On}
        self._of_api: dict[tuple[On, int | None], tuple[Ready, ...]] = {
            (on, api): tuple(ready for ready in rules if ready.rule.apis is None or api in ready.rule.apis)
            for on, rules in self._on.items()
            for api in {api for ready in rules for api in ready.rule.apis or ()}
        }
        self._any = {
            on: tuple(ready for ready in rules if ready.rule.apis is None) for on, rules in self._on.items()
        }

    def asks(self, *moments: On) -> bool:
        """Whether any rule is asked then."""
        return any(self._on[on] for on in moments)

    def wants(self) -> frozenset[int] | None:
        """The APIs whose frames any rule looks at; None: all."""
        looking = [*self._on[On.REQUEST], *self._on[On.RESPONSE]]
        if any(ready.rule.apis is None for ready in looking):
            return None
        return frozenset(api for ready in looking for api in ready.rule.apis or ())

    def at(self, moment: Moment, line: Callable[[], Line], sides: str = "") -> Iterator[Ready]:
        """The rules that fire, one after the other: what one does to the frame, the next one's line shows.

        sides: of an exchange, the frames that it has.
        """
        seed = self.ruleset.seed
        for ready in self._of_api.get((moment.on, moment.api), self._any[moment.on]):
            rule = ready.rule
            if rule.side is not None and rule.side not in sides.split():
                continue
            if not ready.admits(moment, seed):
                continue
            if ready.condition is not None and not ready.condition.matches(line()):
                continue
            ready.fired += 1
            yield ready
            if not rule.goes_on:
                return


def _content(rule: Rule) -> str:
    """What makes a rule the same when only its place in the file has changed."""
    return repr(replace(rule, line=0))
