"""The rule engine as a plugin of the proxy: frames, exchanges and sessions in, verdicts and words out.

Built with a RuleSet, with what makes the JSON line of an exchange, and with an `Act` to tell alerts and
counts to. Rules of a request see its line with `response` null and no outcome; those of a response the whole
line, as the exchange would be logged if the response left now. `replace` changes the rules between frames.
Reads no files, and has no clock.
"""

from __future__ import annotations

from collections.abc import Callable

from kwsniff.hooks import hookimpl
from kwsniff.model import Decoded, Exchange, Frame, Outcome, Session, Side
from kwsniff.passing import Passed, Passing, Verdict
from kwsniff.policy.acting import NAMES, Work, of_frame, speak
from kwsniff.policy.actions import Act, Occasion
from kwsniff.policy.firing import Firing, Line, Moment, Ready, judged, moment
from kwsniff.policy.ruleset import On, RuleSet
from kwsniff.wire import schema

Lines = Callable[[Exchange], Line]


class Rules:
    """`ready` has each rule with its counts."""

    name = "rules"

    def __init__(self, ruleset: RuleSet, line: Lines, act: Act) -> None:
        self._firing = Firing(ruleset)
        self._line = line
        self._act = act

    @property
    def ruleset(self) -> RuleSet:
        return self._firing.ruleset

    @property
    def ready(self) -> list[Ready]:
        return self._firing.rules

    def replace(self, ruleset: RuleSet) -> None:
        """Other rules from the next frame on; those that have not changed go on counting."""
        self._firing = Firing(ruleset, self._firing)

    @hookimpl
    def wants(self) -> list[str] | None:
        keys = self._firing.wants()
        if keys is None:
            return None
        return [stem for key in sorted(keys) if (stem := schema.api_stem(key)) is not None]

    @hookimpl
    def request(self, passing: Passing) -> list[tuple[str, Verdict]] | None:
        return self._judge(On.REQUEST, passing)

    @hookimpl
    def response(self, passing: Passing) -> list[tuple[str, Verdict]] | None:
        return self._judge(On.RESPONSE, passing)

    @hookimpl
    def exchanged(self, passed: Passed) -> None:
        exchange = passed.exchange
        frame = exchange.request or exchange.response
        if frame is None or not self._firing.asks(On.EXCHANGE):
            return
        now = moment(On.EXCHANGE, frame, passed.number)
        occasion = of_frame(now, frame, exchange.response.end if exchange.response else exchange.ts)
        made: list[tuple[int, Line]] = []

        def line() -> Line:
            """Made once, and again when a rule has added a tag."""
            if not made or made[-1][0] != len(exchange.tags):
                made[:] = [(len(exchange.tags), self._line(exchange))]
            return made[-1][1]

        for ready in self._firing.at(now, line, sides_of(exchange)):
            self._speak(ready, occasion, exchange.tags)

    @hookimpl
    def closed(self, session: Session) -> None:
        if not self._firing.asks(On.SESSION):
            return
        occasion = Occasion(ts=session.last, conn=session.conn, on=On.SESSION)
        for ready in self._firing.at(
            Moment(On.SESSION, session.conn, 0), lambda: session_line(session, self._line)
        ):
            self._speak(ready, occasion, [])

    def _speak(self, ready: Ready, occasion: Occasion, tags: list[str]) -> None:
        self._act.fired(ready.rule.name, occasion.on)
        for action in ready.rule.then:
            speak(action, ready.rule.name, occasion, tags, self._act)

    def _judge(self, on: On, passing: Passing) -> list[tuple[str, Verdict]] | None:
        told = passing.request.__dict__.get(NAMES) if passing.request is not None else None
        if not (told or self._firing.asks(on)) or not judged(passing.frame):
            return None
        now = moment(on, passing.frame, passing.number, passing.request)
        work = Work(now, passing, self.ruleset.seed, self._act)
        if told:
            work.tell_back(told)
        lines = _Lines(self._line, work)
        for ready in self._firing.at(work.moment, lines.now):
            self._act.fired(ready.rule.name, on)
            work.carry_out(ready.rule)
            if work.ended:
                break
        return work.verdicts or None


class _Lines:
    """The line of a frame, made when a rule asks for it, and again when another has changed the frame."""

    def __init__(self, line: Lines, work: Work) -> None:
        self._make = line
        self._work = work
        self._made: tuple[Frame, int, Line] | None = None

    def now(self) -> Line:
        frame, tags = self._work.frame, len(self._work.passing.tags)
        if self._made is None or self._made[0] is not frame or self._made[1] != tags:
            self._made = frame, tags, line_of(frame, self._work.passing, self._make)
        return self._made[2]


def line_of(frame: Frame, passing: Passing, make: Lines) -> Line:
    """The line of an exchange that is not over."""
    asked = frame.side is Side.REQUEST
    line = make(
        Exchange(
            frame if asked else passing.request,
            None if asked else frame,
            Outcome.ANSWERED if asked or passing.request is not None else Outcome.UNMATCHED,
            frame.conn,
            passing.peer,
            fetched=None if asked else passing.fetched,
            topic_names=passing.topic_names,
            tags=passing.tags,
        )
    )
    if asked:
        line["kwsniff"]["outcome"] = None
    return line


def sides_of(exchange: Exchange) -> str:
    frames = (exchange.request, exchange.response)
    return " ".join(side for side, frame in zip(Side, frames, strict=True) if frame is not None)


def session_line(session: Session, make: Lines) -> Line:
    """The line of a session: that of an exchange which took all of it, with neither header nor bodies."""
    begin = session.first if session.opened is None else session.opened
    end = session.last if session.closed is None else session.closed
    asked, answered = (
        Frame(
            begin, session.conn, side, b"", -1, None, None, None, 0, lambda _: Decoded(None),
            end=end, size=ledger.seen, file=session.file,
        )
        for side, ledger in ((Side.REQUEST, session.requests), (Side.RESPONSE, session.responses))
    )  # fmt: skip
    line = make(Exchange(asked, answered, Outcome.CLOSED, session.conn, session.peer))
    line["kwsniff"] |= {"outcome": None, "protocol": session.protocol}
    return line
