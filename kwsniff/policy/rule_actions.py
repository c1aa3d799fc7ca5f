"""`then` of a rule: its actions, read and checked against what the rule is asked about.

In: nodes, and the rule's moment, APIs and versions. Out: Action structs, or a Mistake. `ALLOWED` says which
moment allows which action. Carries nothing out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from kwsniff import wire
from kwsniff.errors import EncodeError, UnknownMessage
from kwsniff.policy import rule_fields, ruleset
from kwsniff.policy.rule_text import List, Map, Mistake, Node, Text, printable
from kwsniff.policy.rule_values import (
    choice,
    duration,
    error_code,
    flag,
    integer,
    is_null,
    mapping,
    near,
    said,
    size,
    text,
    texts,
)
from kwsniff.policy.ruleset import Action, Assignment, On, Severity
from kwsniff.wire.schema import Field, Message, Versions

_FRAMES = frozenset((On.REQUEST, On.RESPONSE))
_ALWAYS = frozenset(On)
_MOST = 1 << 20
_METRIC = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,99}")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class About(NamedTuple):
    """What a rule is asked about. apis: None where it is any."""

    on: On
    apis: tuple[int, ...] | None
    versions: tuple[Versions, ...] | None

    def spans(self, message: Message) -> tuple[Versions, ...]:
        return self.versions or (message.versions,)

    def messages(self, line: int, action: str) -> list[Message]:
        """What the rule's frames are."""
        if self.apis is None:
            raise Mistake(line, f"`{action}` needs to know the fields: give the rule an `api`")
        seek = wire.request_of if self.on is On.REQUEST else wire.response_of
        return [message for api in self.apis if (message := seek(api)) is not None]


def _log(node: Node, _: About) -> Action:
    return ruleset.Log("" if is_null(node) else text(node, "log"))


def _tag(node: Node, _: About) -> Action:
    return ruleset.Tag(tuple(text(word, "a tag", 100) for word in texts(node, "tag")))


def _alert(node: Node, _: About) -> Action:
    if is_null(node):
        return ruleset.RaiseAlert()
    if isinstance(node, Text):
        return ruleset.RaiseAlert(choice(node, "severity", Severity))
    pairs = _keys(node, "alert", ("severity", "message", "file", "webhook"))
    severity = Severity.WARNING
    if "severity" in pairs:
        severity = choice(pairs["severity"], "severity", Severity)
    message = text(pairs["message"], "message") if "message" in pairs else ""
    if "file" in pairs and "webhook" in pairs:
        raise Mistake(node.line, "an alert goes to a `file` or to a `webhook`; for both, write two")
    to = text(pairs["file"], "file") if "file" in pairs else None
    if "webhook" in pairs:
        to = text(pairs["webhook"], "webhook")
        if not _is_url(to):
            raise Mistake(pairs["webhook"].line, "webhook is a URL: http://host... or https://host...")
    return ruleset.RaiseAlert(severity, message, to)


def _is_url(given: str) -> bool:
    try:
        url = urlsplit(given)
        return url.scheme in ("http", "https") and bool(url.hostname) and (url.port or 1) > 0
    except ValueError:
        return False


def _count(node: Node, _: About) -> Action:
    name = text(node, "count")
    if not _METRIC.fullmatch(name):
        raise Mistake(node.line, f"count is the name of a metric (letters, digits, _), not {said(node)}")
    return ruleset.Count(name)


def _delay(node: Node, _: About) -> Action:
    if not isinstance(node, Map):
        return ruleset.DelayBy(duration(node, "delay"))
    pairs = _keys(node, "delay", ("latency", "jitter"))
    if "latency" not in pairs:
        raise Mistake(node.line, "delay needs `latency`")
    latency = duration(pairs["latency"], "latency")
    jitter = duration(pairs["jitter"], "jitter") if "jitter" in pairs else 0
    if jitter > latency:
        raise Mistake(pairs["jitter"].line, "jitter is give or take: it cannot be more than latency")
    return ruleset.DelayBy(latency, jitter)


def _throttle(node: Node, _: About) -> Action:
    return ruleset.ThrottleTo(size(node, "throttle"))


def _nothing(name: str, made: Action) -> Callable[[Node, About], Action]:
    def read(node: Node, _: About) -> Action:
        if not is_null(node):
            raise Mistake(node.line, f"`{name}` takes nothing behind it")
        return made

    return read


def _close(node: Node, _: About) -> Action:
    return ruleset.CloseIt("" if is_null(node) else text(node, "close"))


def _error(node: Node, _: About) -> Action:
    return ruleset.AnswerError(error_code(node))


def _respond(node: Node, about: About) -> Action:
    messages = About(On.RESPONSE, about.apis, None).messages(node.line, "respond")
    if len(messages) != 1:
        raise Mistake(node.line, "`respond` is the answer of one API: make a rule of its own for each")
    message, spans = messages[0], about.spans(messages[0])
    body = rule_fields.body_of(message, node, spans)
    why = ""
    for version in _each(message, spans):
        try:
            wire.encode(message.name, version, body)
        except (EncodeError, UnknownMessage) as error:
            why = why or f"v{version} cannot carry it: {printable(str(error), 200)}"
        else:
            return ruleset.AnswerBody(body)
    raise Mistake(node.line, f"no version of {message.name} can carry this answer; {why}")


def _each(message: Message, spans: tuple[Versions, ...]) -> Iterator[int]:
    for version in range(message.versions.max, message.versions.min - 1, -1):
        if any(span.covers(version) for span in spans):
            yield version


def _set(node: Node, about: About) -> Action:
    pairs = mapping(node, "set")
    if not pairs.pairs:
        raise Mistake(node.line, "set is `path: value`, such as `maxWaitMs: 100`")
    messages = about.messages(node.line, "set")
    return ruleset.SetFields(
        tuple(
            _assignment(key, pairs.lines[key], value, messages, about) for key, value in pairs.pairs.items()
        )
    )


def _assignment(path: str, line: int, node: Node, messages: list[Message], about: About) -> Assignment:
    """The same path and value have to fit in every API of the rule."""
    made: Assignment | None = None
    for message in messages:
        spans = about.spans(message)
        steps = rule_fields.find(message, path, spans, line)
        field = rule_fields.field_at(message, steps, spans)
        topic = field.entity == "topicName"
        if topic and isinstance(node, Map) and (not field.array or steps[-1].index is not None):
            made = Assignment(path, steps, names=_topics(node), topic=True)
            continue
        element = steps[-1].index is not None
        value = rule_fields.value_of(message, node, field, element, spans)
        made = Assignment(path, steps, value, topic=topic)
    assert made is not None  # a rule's list of APIs is not empty
    return made


def _topics(node: Map) -> dict[str, str]:
    names: dict[str, str] = {}
    for own, other in node.pairs.items():
        for name, line in ((own, node.lines[own]), (text(other, "a topic"), other.line)):
            if not _TOPIC.fullmatch(name):
                raise Mistake(line, f"'{printable(name)}' is no name of a topic")
        names[own] = text(other, "a topic")
    if not names:
        raise Mistake(node.line, "a map of topics is `client's name: broker's name`")
    return names


def _rename(node: Node, _: About) -> Action:
    names = _topics(mapping(node, "rename"))
    if len(set(names.values())) < len(names):
        raise Mistake(node.line, "two topics get one name: its answers could not be told apart")
    return ruleset.RenameTopics(names)


def _redact(node: Node, about: About) -> Action:
    parts = ("keys", "values", "headers")
    wanted: dict[str, bool]
    if isinstance(node, Map):
        pairs = _keys(node, "redact", ("topics", *parts))
        topics = (
            tuple(text(word, "a topic") for word in texts(pairs["topics"], "topics"))
            if "topics" in pairs
            else ()
        )
        wanted = {part: flag(pairs[part], part) for part in parts if part in pairs}
    else:
        topics = ()
        wanted = {choice(word, "part of a record", parts): True for word in texts(node, "redact")}
    if not any(wanted.values()):
        raise Mistake(
            node.line, "say what of the records to redact: `keys: true`, `values: true`, `headers: true`"
        )
    _holding_records(node.line, "redact", about)
    return ruleset.RedactRecords(topics, **wanted)


def _corrupt(node: Node, about: About) -> Action:
    if isinstance(node, Text):
        wanted = choice(node, "corruption", ("crc", "truncate"))
        made = ruleset.Corrupt(crc=True) if wanted == "crc" else ruleset.Corrupt(truncate=1)
    else:
        pairs = _keys(node, "corrupt", ("crc", "truncate"))
        cut = integer(pairs["truncate"], "truncate", 1, _MOST) if "truncate" in pairs else 0
        made = ruleset.Corrupt("crc" in pairs and flag(pairs["crc"], "crc"), cut)
    if not made.crc and not made.truncate:
        raise Mistake(node.line, "corrupt is `crc` or `truncate: N` (bytes)")
    if made.crc:
        _holding_records(node.line, "corrupt: crc", about)
    return made


def _holding_records(line: int, action: str, about: About) -> None:
    for message in about.messages(line, action) if about.apis is not None else ():
        if not _has_records(message.fields):
            raise Mistake(line, f"{message.name} carries no records for `{action}`")


def _has_records(fields: tuple[Field, ...]) -> bool:
    return any(field.type == "records" or _has_records(field.fields) for field in fields)


class _Kind(NamedTuple):
    read: Callable[[Node, About], Action]
    on: frozenset[On]


ALLOWED: dict[str, _Kind] = {
    "log": _Kind(_log, _ALWAYS),
    "tag": _Kind(_tag, _FRAMES | {On.EXCHANGE}),
    "alert": _Kind(_alert, _ALWAYS),
    "count": _Kind(_count, _ALWAYS),
    "delay": _Kind(_delay, _FRAMES),
    "throttle": _Kind(_throttle, _FRAMES),
    "drop": _Kind(_nothing("drop", ruleset.DropIt()), _FRAMES),
    "close": _Kind(_close, _FRAMES),
    "reset": _Kind(_nothing("reset", ruleset.ResetIt()), _FRAMES),
    "error": _Kind(_error, _FRAMES),
    "respond": _Kind(_respond, _FRAMES),
    "set": _Kind(_set, _FRAMES),
    "rename": _Kind(_rename, frozenset((On.REQUEST,))),
    "redact": _Kind(_redact, _FRAMES),
    "corrupt": _Kind(_corrupt, _FRAMES),
}
"""Name of an action -> how it is read, and when it is allowed."""

_END = (ruleset.DropIt, ruleset.CloseIt, ruleset.ResetIt)
_ANSWERS = (ruleset.AnswerError, ruleset.AnswerBody)
_FRAME_ACTIONS = (
    ruleset.DelayBy,
    ruleset.ThrottleTo,
    ruleset.SetFields,
    ruleset.RenameTopics,
    ruleset.RedactRecords,
    ruleset.Corrupt,
    *_END,
    *_ANSWERS,
)


def ends(action: Action, on: On) -> bool:
    """Whether nothing is left to act upon behind it."""
    return isinstance(action, _END) or (on is On.REQUEST and isinstance(action, _ANSWERS))


def actions(node: Node, about: About) -> Iterator[Action | Mistake]:
    """Each action of `then`, or what is wrong with it."""
    ended: str | None = None
    for item in node.items if isinstance(node, List) else [node]:
        try:
            for name, line, value in _named(item):
                made = _action(name, line, value, about)
                if ended and isinstance(made, _FRAME_ACTIONS):
                    yield Mistake(line, f"behind `{ended}` there is nothing left for `{name}`")
                ended = ended or (name if ends(made, about.on) else None)
                yield made
        except Mistake as mistake:
            yield mistake


def _action(name: str, line: int, value: Node, about: About) -> Action:
    kind = ALLOWED.get(name)
    if kind is None:
        hint = near(name, ALLOWED) or f"; there are {', '.join(ALLOWED)}"
        raise Mistake(line, f"no action '{printable(name)}'{hint}")
    if about.on not in kind.on:
        allowed = " or ".join(on for on in On if on in kind.on)
        raise Mistake(line, f"`{name}` cannot be done on {about.on}, only on {allowed}")
    return kind.read(value, about)


def _named(item: Node) -> Iterator[tuple[str, int, Node]]:
    """(name, line, what is behind it): `drop`, or `{delay: 200ms}`."""
    if isinstance(item, Text) and not is_null(item):
        yield item.text, item.line, Text(item.line, "")
    elif isinstance(item, Map) and item.pairs:
        for name, value in item.pairs.items():
            yield name, item.lines[name], value
    else:
        raise Mistake(item.line, f"an action is a word or `name: value`, not {said(item)}")


def _keys(node: Node, what: str, known: tuple[str, ...]) -> dict[str, Node]:
    found = mapping(node, what)
    for key in found.pairs:
        if key not in known:
            hint = near(key, known) or f"; there are {', '.join(known)}"
            raise Mistake(found.lines[key], f"no key '{printable(key)}' in {what}{hint}")
    return found.pairs
