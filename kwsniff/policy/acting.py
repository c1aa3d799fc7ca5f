"""A rule's actions, carried out on one frame: verdicts for the proxy, words for the `Act`.

In: a frame on its way (Passing) and the actions of the rules that fired, one after the other. Out: verdicts,
each with its rule's name; `frame` is what the next rule sees. What cannot be done is told and the frame goes
on as it was; only where it would carry what is to be hidden it does not go on. Decides and sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from kwsniff import wire
from kwsniff.conversation import refusal
from kwsniff.conversation.headers import PRODUCE, acks, maybe_request_header
from kwsniff.errors import DecodeError, EncodeError, UnknownMessage
from kwsniff.model import Body, Frame
from kwsniff.passing import Close, Delay, Drop, Passing, Replace, Reset, Respond, Throttle, Verdict
from kwsniff.policy import record_changes, rule_fields, ruleset
from kwsniff.policy.actions import Act, Alert, Note, Occasion
from kwsniff.policy.chain import replaced
from kwsniff.policy.firing import Moment, draw
from kwsniff.policy.record_changes import Names
from kwsniff.policy.rule_actions import ends
from kwsniff.policy.ruleset import Action, On
from kwsniff.wire import walk
from kwsniff.wire.errors import error_name
from kwsniff.wire.schema import Message

NAMES = "kwsniff.rules.names"
"""Where a request's frame keeps the Names that its answer is to be told: it lives as long as the frame."""


class Work:
    """One frame in the hands of the rules."""

    def __init__(self, moment: Moment, passing: Passing, seed: int, act: Act) -> None:
        self.frame = passing.frame
        self.verdicts: list[tuple[str, Verdict]] = []
        self.ended = False
        self.rule = ""
        self.act = act
        self.moment = moment
        self.passing = passing
        self.seed = seed

    @property
    def occasion(self) -> Occasion:
        return of_frame(self.moment, self.frame, self.passing.now)

    def carry_out(self, rule: ruleset.Rule) -> None:
        """Everything that the rule says, up to what ends it."""
        self.rule = rule.name
        for action in rule.then:
            if self.ended:
                speak(action, self.rule, self.occasion, self.passing.tags, self.act)
                continue
            try:
                self._do(action)
            except (EncodeError, DecodeError, UnknownMessage, ValueError) as error:
                self.fail(action, str(error))

    def tell_back(self, names: Names) -> None:
        """To an answer, before any rule: its client is to see its own names of topics."""
        self.rule = names.rule
        try:
            name, version, body = self.message()
            if names.back(name, version, body):
                self.replace(refusal.reencode(self.frame, body))
        except (EncodeError, DecodeError, UnknownMessage, ValueError) as error:
            self.act.failed(self.rule, f"rename: {' '.join(str(error).split())}")

    def _do(self, action: Action) -> None:
        do = _DO.get(type(action))
        if do is None:
            speak(action, self.rule, self.occasion, self.passing.tags, self.act)
            return
        do(self, action)
        self.ended = self.ended or ends(action, self.moment.on)

    def fail(self, action: Action, why: str) -> None:
        """Nothing may go on that should have been redacted."""
        self.act.failed(self.rule, f"{_WORDS.get(type(action), 'it')}: {' '.join(why.split())}")
        if isinstance(action, ruleset.RedactRecords):
            self.close("what it was to redact cannot be read")

    def close(self, why: str) -> None:
        self.decide(Close(f"rule {self.rule}: {why}" if why else f"rule {self.rule}"))
        self.ended = True

    def decide(self, verdict: Verdict) -> None:
        self.verdicts.append((self.rule, verdict))

    def replace(self, raw: bytes) -> None:
        """The frame goes on with these bytes. ValueError where the other side could not take them for it."""
        if raw != self.frame.raw:
            self.frame = replaced(self.frame, raw)
            self.decide(Replace(raw))

    def message(self) -> tuple[str, int, Body]:
        """Name, version and a copy of the body, to be changed."""
        frame = self.frame
        seek = wire.request_of if self.moment.on is On.REQUEST else wire.response_of
        message, body = seek(frame.api), frame.body
        if message is None or frame.version is None or body is None:
            raise EncodeError("the frame cannot be decoded")
        return message.name, frame.version, deepcopy(body)


def of_frame(moment: Moment, frame: Frame, now: int) -> Occasion:
    return Occasion(
        ts=now,
        conn=moment.conn,
        on=moment.on,
        side=frame.side,
        number=moment.number,
        api=frame.api,
        version=frame.version,
        correlation_id=frame.correlation_id,
        client_id=moment.client_id,
    )


def speak(action: Action, rule: str, occasion: Occasion, tags: list[str], act: Act) -> None:
    """The actions that leave the frame alone: all that there are for exchanges and sessions."""
    if isinstance(action, ruleset.Tag):
        tags.extend(name for name in action.names if name not in tags)
    elif isinstance(action, ruleset.Log):
        act.log(Note(rule, action.text, occasion))
    elif isinstance(action, ruleset.RaiseAlert):
        act.alert(Alert(rule, action.severity, action.text, action.to, occasion))
    elif isinstance(action, ruleset.Count):
        act.count(action.metric, rule)


def _delay(work: Work, action: ruleset.DelayBy) -> None:
    give_or_take = draw(work.seed, work.rule, work.moment, "jitter") * 2 - 1
    work.decide(Delay(action.latency + round(action.jitter * give_or_take)))


def _throttle(work: Work, action: ruleset.ThrottleTo) -> None:
    work.decide(Throttle(action.bytes_per_second))


def _drop(work: Work, _: ruleset.DropIt) -> None:
    work.decide(Drop())


def _close(work: Work, action: ruleset.CloseIt) -> None:
    work.close(action.why)


def _reset(work: Work, _: ruleset.ResetIt) -> None:
    work.decide(Reset())


def _error(work: Work, action: ruleset.AnswerError) -> None:
    asked = _asked(work)
    if asked is None:
        return
    raw = refusal.answer(asked, action.code)
    if raw is None:
        what = f"{wire.api_name(asked.api)} v{asked.version}"
        why = (
            "wants no answer (acks=0)"
            if _wants_no_answer(asked)
            else "has no place for an error in its answer"
        )
        work.close(f"{error_name(action.code)}: {what} {why}")
        return
    _give(work, raw)


def _respond(work: Work, action: ruleset.AnswerBody) -> None:
    asked = _asked(work)
    if asked is None:
        return
    if _wants_no_answer(asked):
        work.close("it wants no answer (acks=0)")
        return
    _give(work, refusal.respond(asked, action.body))


def _asked(work: Work) -> Frame | None:
    """The request in its client's own words."""
    if work.moment.on is On.REQUEST:
        return work.passing.original
    if work.passing.request is None:
        work.act.failed(work.rule, "the response is to no request that was seen")
    return work.passing.request


def _give(work: Work, raw: bytes) -> None:
    if work.moment.on is On.REQUEST:
        work.decide(Respond(raw))
    else:
        work.replace(raw)


def _wants_no_answer(request: Frame) -> bool:
    if request.api != PRODUCE:
        return False
    header = maybe_request_header(request.raw)
    return header is not None and acks(request.raw, header) == 0


def _set(work: Work, action: ruleset.SetFields) -> None:
    _, _, body = work.message()
    renamed: list[list[tuple[Any, Any]]] = []
    for assignment in action.fields:
        changed = rule_fields.assign(body, assignment)
        if assignment.topic and work.moment.on is On.REQUEST:
            renamed.append(changed)
    work.replace(refusal.reencode(work.frame, body))
    for changed in renamed:
        _remember(work, changed)


def _rename(work: Work, action: ruleset.RenameTopics) -> None:
    frame = work.frame
    if _names_topics(wire.request_of(frame.api), frame.version):
        name, version, body = work.message()
        if record_changes.rename(name, version, body, lambda topic: action.names.get(topic, topic)):
            work.replace(refusal.reencode(frame, body))
    if _names_topics(wire.response_of(frame.api), frame.version):
        # All of them: an answer may name topics that its request did not (Metadata of all topics).
        _remember(work, list(action.names.items()))


def _names_topics(message: Message | None, version: int | None) -> bool:
    return message is not None and version is not None and walk.names_topics(message.name, version)


def _remember(work: Work, changes: list[tuple[Any, Any]]) -> None:
    work.passing.original.__dict__.setdefault(NAMES, Names(work.rule)).renamed(changes)


def _redact(work: Work, action: ruleset.RedactRecords) -> None:
    name, version, body = work.message()
    known = work.passing.topic_names

    def topic_name(topic_id: str) -> str:
        told = known.get(topic_id)
        return topic_id if told is None else told[1]

    if record_changes.redact(name, version, body, action, topic_name):
        work.replace(refusal.reencode(work.frame, body))


def _corrupt(work: Work, action: ruleset.Corrupt) -> None:
    if action.crc:
        name, version, body = work.message()
        if record_changes.break_crc(name, version, body):
            work.replace(refusal.reencode(work.frame, body))
    if action.truncate:
        raw, begin = work.frame.raw, max(work.frame.body_at, 0)
        work.replace(raw[: max(begin, len(raw) - action.truncate)])


_DO: dict[type, Callable[[Work, Any], None]] = {
    ruleset.DelayBy: _delay,
    ruleset.ThrottleTo: _throttle,
    ruleset.DropIt: _drop,
    ruleset.CloseIt: _close,
    ruleset.ResetIt: _reset,
    ruleset.AnswerError: _error,
    ruleset.AnswerBody: _respond,
    ruleset.SetFields: _set,
    ruleset.RenameTopics: _rename,
    ruleset.RedactRecords: _redact,
    ruleset.Corrupt: _corrupt,
}
_WORDS = {
    ruleset.AnswerError: "error",
    ruleset.AnswerBody: "respond",
    ruleset.SetFields: "set",
    ruleset.RenameTopics: "rename",
    ruleset.RedactRecords: "redact",
    ruleset.Corrupt: "corrupt",
}
