"""A rule file -> a RuleSet. Every mistake is named with file, line and, where something comes near, that.

    version: 1
    seed: 42                       # of chance and jitter; without it 0
    rules:
      - name: slow-orders          # once in a file
        on: response               # request | response | exchange (it is over) | session (it has ended)
        api: [Fetch, PRODUCE]      # cheap keys first: api, version, client_id (a glob), side (of an exchange)
        version: 0-11              # 3, 0-11, 4+, or a list
        when: '"orders" in kwsniff.topics'       # CEL over the JSON line
        chance: 0.3                # of seed, rule, connection, direction and frame number: never of a stream
        limit: 100                 # in total, of all connections of this process, until the rule is changed
        then: [{delay: {latency: 200ms, jitter: 50ms}}, {tag: slowed}]
        continue: true             # ask later rules, too; else the first that matches wins

In: a path. Out: structs (ruleset.py), which act nowhere. The file is read here, watched elsewhere: `reload`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from kwsniff.errors import ConfigError
from kwsniff.model import Side
from kwsniff.policy import rule_values as values
from kwsniff.policy import vocabulary
from kwsniff.policy.expression import compile_filter
from kwsniff.policy.rule_actions import About, actions
from kwsniff.policy.rule_text import MAX_SIZE, List, Map, Mistake, Node, Text, parse, printable, told
from kwsniff.policy.ruleset import Action, On, Rule, RuleSet

Value = TypeVar("Value")

_FILE_KEYS = ("version", "seed", "rules")
_RULE_KEYS = (
    "name", "on", "api", "version", "client_id", "side", "when", "chance", "limit", "then", "continue",
)  # fmt: skip
_NAME = re.compile(r"[\w][\w .:/-]{0,79}", re.ASCII)
_OF_FRAMES = ("api", "version", "client_id", "side")
_OF_SESSIONS = ("client", "broker", "session", "protocol", "requestBytes", "responseBytes", "file")
_SESSION_READS: dict[str, frozenset[str] | None] = {
    "timestamp": None,
    "connection": None,
    "totalTimeMs": None,
    "securityProtocol": None,
    "principal": None,
    "clientInformation": None,
    "kwsniff": frozenset(_OF_SESSIONS),
}
"""What `when` may ask of a session: top-level name -> fields of it, None for all."""


def load(path: str | Path) -> RuleSet:
    """The rules of a file. ConfigError with a line for each mistake."""
    file = str(path)
    try:
        with open(path, "rb") as stream:
            data = stream.read(MAX_SIZE + 1)
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise ConfigError(f"{printable(file, 300)}: cannot read the rules: {why}") from None
    return loads(data, file)


def loads(data: bytes, file: str = "rules") -> RuleSet:
    """The same of the file's bytes."""
    reading = _Reading()
    made = reading.attempt(lambda: reading.file(parse(data), file))
    if reading.mistakes or made is None:
        raise told(printable(file, 300), sorted(reading.mistakes, key=lambda mistake: mistake.line))
    return made


def reload(path: str | Path, current: RuleSet) -> tuple[RuleSet, str | None]:
    """The rules of the changed file, or the current ones and what is wrong with the new."""
    try:
        return load(path), None
    except ConfigError as error:
        return current, str(error)


class _Reading:
    """One file being read. A mistake is kept, and reading goes on behind it."""

    def __init__(self) -> None:
        self.mistakes: list[Mistake] = []

    def attempt(self, read: Callable[[], Value]) -> Value | None:
        try:
            return read()
        except Mistake as mistake:
            self.mistakes.append(mistake)
            return None

    def key(self, found: Map, name: str, read: Callable[[Node], Value]) -> Value | None:
        """The value of a key, or None where it is not there (or wrong)."""
        node = found.pairs.get(name)
        return None if node is None else self.attempt(lambda: read(node))

    def unknown(self, found: Map, known: tuple[str, ...], where: str) -> None:
        for name, line in found.lines.items():
            if name not in known:
                hint = values.near(name, known) or f"; there are {', '.join(known)}"
                self.mistakes.append(Mistake(line, f"no key '{printable(name)}' {where}{hint}"))

    def file(self, node: Node, name: str) -> RuleSet:
        found = values.mapping(node, "a rule file")
        self.unknown(found, _FILE_KEYS, "in a rule file")
        if "version" not in found.pairs:
            self.mistakes.append(Mistake(found.line, "`version: 1` is missing"))
        self.key(found, "version", _file_version)
        seed = self.key(found, "seed", lambda node: values.integer(node, "seed", -(1 << 63), (1 << 63) - 1))
        listed = found.pairs.get("rules")
        if not isinstance(listed, List):
            line = found.line if listed is None else listed.line
            raise Mistake(line, "`rules` is a list: `rules:`, then `- name: ...` for each")
        rules: dict[str, Rule] = {}
        for item in listed.items:
            rule = self.attempt(lambda item=item: self.rule(item))  # type: ignore[misc]
            if rule is None:
                continue
            if rule.name in rules:
                where = rules[rule.name].line
                self.mistakes.append(
                    Mistake(rule.line, f"rule '{rule.name}' is there already, in line {where}")
                )
            rules[rule.name] = rule
        return RuleSet(seed or 0, tuple(rules.values()), name)

    def rule(self, node: Node) -> Rule | None:
        found = values.mapping(node, "a rule")
        before = len(self.mistakes)
        self.unknown(found, _RULE_KEYS, "in a rule")
        name = self.key(found, "name", _name)
        if "name" not in found.pairs:
            self.mistakes.append(Mistake(found.line, "a rule needs a `name`"))
        on, side = self.moment(found)
        apis = self.key(found, "api", values.apis)
        versions = self.key(found, "version", values.versions)
        self.attempt(lambda: _versions_exist(found, apis, versions))
        kwargs: dict[str, Any] = {
            "client_id": self.key(found, "client_id", lambda node: values.text(node, "client_id")),
            "when": self.key(found, "when", lambda node: _when(node, on)),
            "limit": self.key(found, "limit", lambda node: values.integer(node, "limit", 1, (1 << 63) - 1)),
            "goes_on": self.key(found, "continue", lambda node: values.flag(node, "continue")) or False,
        }
        chance = self.key(found, "chance", lambda node: values.fraction(node, "chance"))
        wrong = len(self.mistakes) > before and (apis is None) != ("api" not in found.pairs)
        then = () if on is None or wrong else self.then(found, About(on, apis, versions))
        if len(self.mistakes) > before or name is None or on is None:
            return None
        kwargs["chance"] = 1.0 if chance is None else chance
        return Rule(
            name=name, on=on, then=then, apis=apis, versions=versions, side=side, line=found.line, **kwargs
        )

    def moment(self, found: Map) -> tuple[On | None, Side | None]:
        """`on`; without it, `side` says it. Of an exchange `side` is a condition of its own."""
        on = self.key(found, "on", lambda node: values.choice(node, "moment", On))
        side = self.key(found, "side", lambda node: values.choice(node, "side", Side))
        if "on" not in found.pairs:
            if side is None:
                self.mistakes.append(Mistake(found.line, f"a rule needs `on`: {', '.join(On)}"))
                return None, None
            return On(side.value), None
        if on is On.SESSION:
            for key in _OF_FRAMES:
                if key in found.lines:
                    self.mistakes.append(Mistake(found.lines[key], f"a session has no `{key}`"))
        if on is On.EXCHANGE:
            return on, side
        if on is not None and side is not None and on is not On.SESSION and on.value != side.value:
            self.mistakes.append(Mistake(found.lines["side"], f"on {on} there is no {side}"))
        return on, None

    def then(self, found: Map, about: About) -> tuple[Action, ...]:
        node = found.pairs.get("then")
        if node is None or values.is_null(node) or (isinstance(node, List) and not node.items):
            self.mistakes.append(
                Mistake(node.line if node else found.line, "a rule needs `then`: its actions")
            )
            return ()
        made: list[Action] = []
        for action in actions(node, about):
            if isinstance(action, Mistake):
                self.mistakes.append(action)
            else:
                made.append(action)
        return tuple(made)


def _file_version(node: Node) -> None:
    if not isinstance(node, Text) or node.text != "1":
        raise Mistake(node.line, f"rule files of version 1 are read, not of {values.said(node)}")


def _name(node: Node) -> str:
    if not isinstance(node, Text) or not _NAME.fullmatch(node.text):
        raise Mistake(node.line, "a name is 1 to 80 letters, digits, spaces and . : / - _")
    return node.text


def _when(node: Node, on: On | None) -> str:
    text = values.text(node, "when", 10_000, lines=True)
    try:
        expression = compile_filter(text)
    except ConfigError as error:
        raise Mistake(node.line, re.sub(r"^filter\b", "when", str(error))) from None
    for name, fields in expression.reads.items() if on is On.SESSION else ():
        known = _SESSION_READS.get(name, frozenset())
        if name not in _SESSION_READS or (known is not None and (fields is None or not fields <= known)):
            there = ", ".join(
                n if f is None else f"{n}.{{{', '.join(sorted(f))}}}" for n, f in _SESSION_READS.items()
            )
            raise Mistake(node.line, f"when: a session has no {name}{_below(fields, known)}; it has {there}")
    if on is On.REQUEST and (expression.reads.get("response") or "totalTimeMs" in expression.reads):
        raise Mistake(node.line, "when: on request there is no answer yet: response and totalTimeMs are null")
    return text


def _below(fields: frozenset[str] | None, known: frozenset[str] | None) -> str:
    extra = sorted((fields or frozenset()) - (known or frozenset()))
    return f".{extra[0]}" if extra and known else ""


def _versions_exist(found: Map, apis: tuple[int, ...] | None, versions: tuple[Any, ...] | None) -> None:
    from kwsniff import wire

    for api in apis or ():
        request = wire.request_of(api)
        if request is None or versions is None:
            continue
        has = request.versions
        if not any(span.min <= has.max and has.min <= span.max for span in versions):
            line = found.lines["version"]
            raise Mistake(line, f"{wire.api_name(api)} has the versions {has}, none of these")


assert set(_SESSION_READS) <= set(vocabulary.TOP_LEVEL)
