"""A rule in a sentence, as `kwsniff rules check` says what it means.

In: a Rule. Out: text of one line. Knows neither files nor frames.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kwsniff import wire
from kwsniff.policy import rule_fields, ruleset
from kwsniff.policy.rule_text import printable
from kwsniff.policy.ruleset import Action, On, Rule
from kwsniff.wire.errors import error_name

_UNITS = ((3600 * 10**9, "h"), (60 * 10**9, "m"), (10**9, "s"), (10**6, "ms"), (10**3, "us"), (1, "ns"))
_MOMENTS = {
    On.REQUEST: "a request",
    On.RESPONSE: "a response",
    On.EXCHANGE: "an exchange that is over",
    On.SESSION: "a connection that has ended",
}


def sentence(rule: Rule) -> str:
    """`slow: on a response of FETCH v0-11, when ...: delay it by 200ms ± 50ms. Later rules are not asked.`"""
    about = _MOMENTS[rule.on]
    if rule.apis is not None:
        about += f" of {_either([wire.api_name(api) for api in rule.apis])}"
    if rule.versions is not None:
        about += f" {_either([str(span) if span.max < 32767 else f'v{span.min}+' for span in rule.versions])}"
    if rule.client_id is not None:
        about += f" by client {printable(rule.client_id)}"
    if rule.side is not None:
        about += f" that has a {rule.side}"
    parts = [f"on {about}"]
    if rule.when is not None:
        parts.append(f"when {printable(' '.join(rule.when.split()), 300)}")
    if rule.chance < 1:
        parts.append(f"with a chance of {rule.chance:g}")
    if rule.limit is not None:
        parts.append("once" if rule.limit == 1 else f"at most {rule.limit:,} times")
    acts = ", then ".join(act(rule, action) for action in rule.then)
    later = " Later rules are asked, too." if rule.goes_on else ""
    return f"{rule.name}: {', '.join(parts)}: {acts}.{later}"


def act(rule: Rule, action: Action) -> str:
    return _SAY[type(action)](rule, action)


def duration(ns: int) -> str:
    """`200ms`, `1.5s`"""
    unit, name = next(((unit, name) for unit, name in _UNITS if ns >= unit), (1, "ns"))
    return f"{ns / unit:.6g}{name}" if ns else "0s"


def size(count: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count:,} bytes"


def _either(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _quoted(text: str) -> str:
    return f" '{printable(text)}'" if text else ""


def _alert(_: Rule, action: Any) -> str:
    to = f" to {printable(action.to, 200)}" if action.to else ""
    return f"raise an alert ({action.severity}){_quoted(action.text)}{to}"


def _delay(_: Rule, action: Any) -> str:
    jitter = f" ± {duration(action.jitter)}" if action.jitter else ""
    return f"delay it by {duration(action.latency)}{jitter}"


def _answer(rule: Rule, what: str) -> str:
    if rule.on is On.REQUEST:
        return f"answer {what} (the broker never sees it)"
    return f"put an answer {what} in its place"


def _set(rule: Rule, action: Any) -> str:
    return "set " + ", ".join(_assignment(rule, given) for given in action.fields)


def _assignment(rule: Rule, given: ruleset.Assignment) -> str:
    where = _there(rule, given)
    back = ", and back in the answer" if given.topic and rule.on is On.REQUEST else ""
    if given.names is not None:
        return f"{given.path} from {_names(given.names)}{back}{where}"
    value = "null" if given.value is None else printable(str(given.value))
    return f"{given.path} to {value}{back}{where}"


def _there(rule: Rule, given: ruleset.Assignment) -> str:
    """` (only v0-12 have it)`, where the rule has other versions, too."""
    for api in rule.apis or ():
        message = wire.request_of(api) if rule.on is On.REQUEST else wire.response_of(api)
        assert message is not None  # the rule was checked
        asked = rule.versions or (message.versions,)
        having = rule_fields.spans(message, given.steps)
        lacking = [
            version
            for version in range(message.versions.min, message.versions.max + 1)
            if any(span.covers(version) for span in asked)
            and not any(span.covers(version) for span in having)
        ]
        if lacking:
            return f" (in {_either([str(span) for span in having])} only)"
    return ""


def _names(names: dict[str, str]) -> str:
    return ", ".join(f"{old} to {new}" for old, new in names.items())


def _redact(_: Rule, action: Any) -> str:
    parts = [part for part in ("keys", "values", "headers") if getattr(action, part)]
    topics = f" of {_either([printable(topic) for topic in action.topics])}" if action.topics else ""
    return f"redact {' and '.join(parts)} of the records{topics}"


def _corrupt(_: Rule, action: Any) -> str:
    parts = ["spoil the CRC of its records"] if action.crc else []
    if action.truncate:
        parts.append(f"cut the last {size(action.truncate)} off")
    return " and ".join(parts)


_SAY: dict[type, Callable[[Rule, Any], str]] = {
    ruleset.Log: lambda _, action: f"log{_quoted(action.text) or ' it'}",
    ruleset.Tag: lambda _, action: f"tag it {', '.join(map(printable, action.names))}",
    ruleset.RaiseAlert: _alert,
    ruleset.Count: lambda _, action: f"count it as {action.metric}",
    ruleset.DelayBy: _delay,
    ruleset.ThrottleTo: lambda _, action: f"let it go at {size(action.bytes_per_second)} a second",
    ruleset.DropIt: lambda *_: "drop it (the client waits for its timeout, and notices)",
    ruleset.CloseIt: lambda _, action: f"close the connection{_quoted(action.why)}",
    ruleset.ResetIt: lambda *_: "reset the connection",
    ruleset.AnswerError: lambda rule, action: _answer(rule, f"with error {error_name(action.code)}"),
    ruleset.AnswerBody: lambda rule, _: _answer(rule, "with a given body"),
    ruleset.SetFields: _set,
    ruleset.RenameTopics: lambda _, action: f"rename topics: {_names(action.names)}, and back in the answer",
    ruleset.RedactRecords: _redact,
    ruleset.Corrupt: _corrupt,
}
