"""Plugins in their order: who is called with what, what verdicts make of a frame, what a failure does."""

from __future__ import annotations

import importlib.metadata
import textwrap
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from passing_builders import CONN, MS, NOW, answered, asked, passed, passing, request_bytes, response_bytes

from kwsniff.errors import ConfigError, PluginFailed, Reason
from kwsniff.hooks import hookimpl
from kwsniff.model import Fault, Frame, Ledger, Peer, Protocol, Session, Side
from kwsniff.passing import (
    Close,
    Delay,
    Drop,
    Forward,
    Passing,
    Replace,
    Reset,
    Respond,
    Throttle,
)
from kwsniff.policy.chain import Chain, load, replaced

METADATA, PRODUCE, FETCH = 3, 0, 1
OF_A = {"topics": [{"name": "a"}], "allowAutoTopicCreation": True}
OF_B = {"topics": [{"name": "b"}], "allowAutoTopicCreation": True}


class Asks:
    """A plugin that answers every request with the same, and keeps what it saw."""

    def __init__(self, answer: Any = None, apis: Any = None) -> None:
        self.answer, self.apis = answer, apis
        self.saw: list[bytes] = []

    @hookimpl
    def wants(self) -> Any:
        return self.apis

    @hookimpl
    def request(self, passing: Passing) -> Any:
        self.saw.append(passing.frame.raw)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Hears:
    """A plugin that keeps what it is told."""

    def __init__(self, fails: Exception | None = None, required: bool = False) -> None:
        self.fails, self.required = fails, required
        self.heard: list[tuple[str, Any]] = []

    def hear(self, hook: str, what: Any) -> None:
        self.heard.append((hook, what))
        if self.fails is not None:
            raise self.fails

    @hookimpl
    def opened(self, session: Session) -> None:
        self.hear("opened", session)

    @hookimpl
    def exchanged(self, passed: Any) -> None:
        self.hear("exchanged", passed)

    @hookimpl
    def faulted(self, fault: Fault) -> None:
        self.hear("faulted", fault)

    @hookimpl
    def closed(self, session: Session) -> None:
        self.hear("closed", session)

    @hookimpl
    def tick(self, now: int) -> None:
        self.hear("tick", now)

    @hookimpl
    def stopped(self, now: int) -> None:
        self.hear("stopped", now)


def metadata(body: dict[str, Any] = OF_A) -> Passing:
    return passing(asked(METADATA, 4, body))


def session() -> Session:
    return Session(CONN, NOW, NOW + 9, NOW, NOW + 9, "kafka", Peer(), Ledger(), Ledger())


# ---- verdicts


def test_each_plugin_sees_the_frame_as_the_one_before_left_it() -> None:
    other = request_bytes(METADATA, 4, OF_B)
    first, second = Asks(Replace(other)), Asks(Delay(5))
    frame = metadata()
    original = frame.frame
    verdicts = Chain([("first", first), ("second", second)]).request(frame)
    assert verdicts == [("first", Replace(other)), ("second", Delay(5))]
    assert (first.saw, second.saw) == ([original.raw], [other])
    assert frame.frame.raw == other
    assert frame.original is original
    assert frame.frame.body == {**original.body, "topics": [{"name": "b"}]}  # type: ignore[dict-item]
    assert (frame.frame.size, frame.frame.ts) == (len(other) + 4, original.ts)


@pytest.mark.parametrize("end", [Drop(), Close("no"), Reset(), Respond(response_bytes(METADATA, 4, {}))])
def test_drop_close_reset_and_respond_end_the_chain(end: Any) -> None:
    behind = Asks(Delay(1))
    chain = Chain([("throttle", Asks(Throttle(100))), ("ender", Asks([end, Delay(3)])), ("behind", behind)])
    assert chain.request(metadata()) == [
        ("throttle", Throttle(100)),
        ("ender", end),
        ("ender", Delay(3)),  # of the same plugin: how the answer is to be given
    ]
    assert behind.saw == []


def test_forward_is_no_news_and_labels_follow_the_plugins_name() -> None:
    chain = Chain([("rules", Asks([("slow", Delay(7)), ("slow", Forward())])), ("other", Asks(Forward()))])
    assert chain.request(metadata()) == [("rules:slow", Delay(7))]


def test_verdicts_may_be_yielded() -> None:
    class Yields:
        @hookimpl
        def response(self, passing: Passing) -> Any:
            yield Delay(1)
            yield Delay(len(passing.frame.raw))

    frame = answered(METADATA, 4, {})
    assert Chain([("y", Yields())]).response(passing(frame)) == [
        ("y", Delay(1)),
        ("y", Delay(len(frame.raw))),
    ]


def test_a_plugin_is_asked_only_for_the_apis_that_it_wants() -> None:
    produce, every = Asks(apis=["Produce"]), Asks()
    chain = Chain([("produce", produce), ("hears", Hears())])
    assert [api for api in range(100) if chain.wants(api)] == [PRODUCE]
    assert not chain.wants(31_000)
    chain.request(metadata())
    assert produce.saw == []
    chain = Chain([("produce", produce), ("every", every)])
    assert all(chain.wants(api) for api in (PRODUCE, FETCH, 31_000))
    chain.request(metadata())
    assert (len(produce.saw), len(every.saw)) == (0, 1)


@pytest.mark.parametrize("name", ["ListOffsets", "LIST_OFFSETS", "listoffsets", "list_offsets"])
def test_apis_are_named_as_people_write_them(name: str) -> None:
    assert Chain([("x", Asks(apis=name))]).wants(2)


def test_wants_is_asked_again_on_demand_and_stays_where_the_answer_is_wrong() -> None:
    plugin = Asks(apis=["Produce"])
    chain = Chain([("x", plugin)])
    plugin.apis = ["Fetch"]
    assert (chain.wants(PRODUCE), chain.wants(FETCH)) == (True, False)
    chain.renew()
    assert (chain.wants(PRODUCE), chain.wants(FETCH)) == (False, True)
    plugin.apis = ["Fetsh"]
    with pytest.raises(ConfigError, match=r"plugin x: wants: there is no API Fetsh \(did you mean Fetch\?\)"):
        chain.renew()
    assert (chain.wants(PRODUCE), chain.wants(FETCH)) == (False, True)


# ---- replacements


def test_a_response_is_replaced_and_decodes_as_its_request_says() -> None:
    raw = response_bytes(METADATA, 9, {"controllerId": 5})
    frame = replaced(answered(METADATA, 9, {"controllerId": 1}), raw)
    assert frame.body is not None
    assert frame.body["controllerId"] == 5
    assert frame.faults == ()


@pytest.mark.parametrize(
    ("frame", "raw"),
    [
        (asked(METADATA, 4, OF_A), request_bytes(METADATA, 5, OF_A)),
        (asked(METADATA, 4, OF_A), request_bytes(METADATA, 4, OF_A, correlation=8)),
        (asked(METADATA, 4, OF_A), request_bytes(36, 0, {})),
        (asked(METADATA, 4, OF_A), b"\0\3\0"),
        (asked(METADATA, 4, OF_A), "text"),
        (answered(METADATA, 4, {}), response_bytes(METADATA, 4, {}, correlation=8)),
        (answered(METADATA, 4, {}), b"\0"),
    ],
)
def test_what_the_other_side_would_take_for_something_else_is_no_replacement(frame: Frame, raw: Any) -> None:
    with pytest.raises(ValueError):
        replaced(frame, raw)


def test_a_bare_token_cannot_be_replaced() -> None:
    frame = asked(METADATA, 4, OF_A)
    frame.protocol = Protocol.SASL
    with pytest.raises(ValueError, match="sasl"):
        replaced(frame, frame.raw)


# ---- failures


WRONG = [
    RuntimeError("boom"),
    Delay(-1),
    Throttle(0),
    Replace(b"short"),
    "text",
    [Delay(1), None],
    [Delay(1)] * 65,
    7,
    Respond("text"),  # type: ignore[arg-type]
    Respond(bytearray(8)),  # type: ignore[arg-type]
    Close(None),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("answer", WRONG, ids=repr)
def test_a_plugin_that_fails_changes_nothing_and_the_others_are_told(answer: Any) -> None:
    before, behind, hears = Asks(Delay(2)), Asks(Delay(3)), Hears()
    chain = Chain([("before", before), ("bad", Asks(answer)), ("behind", behind), ("hears", hears)])
    frame = metadata()
    raw = frame.frame.raw
    assert chain.request(frame) == [("before", Delay(2)), ("behind", Delay(3))]
    assert (frame.frame.raw, behind.saw) == (raw, [raw])
    ((_, fault),) = hears.heard
    assert (fault.reason, fault.conn, fault.side, fault.api, fault.version, fault.correlation_id) == (
        Reason.PLUGIN_FAILED,
        CONN,
        Side.REQUEST,
        METADATA,
        4,
        7,
    )
    assert fault.message.startswith("plugin bad failed in request: ")
    assert (fault.ts, chain.failures) == (NOW, {"bad": 1})


def test_what_a_failing_plugin_had_done_to_the_passing_is_undone() -> None:
    class Meddles:
        @hookimpl
        def request(self, passing: Passing) -> None:
            passing.tags.append("half")
            passing.verdicts.append(("me", Drop()))
            passing.frame = asked(METADATA, 4, OF_B)
            raise RuntimeError

    frame = metadata()
    raw = frame.frame.raw
    assert Chain([("m", Meddles())]).request(frame) == []
    assert (frame.frame.raw, frame.tags) == (raw, [])


def test_a_tag_that_is_no_text_fails_where_it_was_given() -> None:
    class Tags:
        @hookimpl
        def request(self, passing: Passing) -> None:
            passing.tags += ["fine", 7]  # type: ignore[list-item]

    chain, frame = Chain([("t", Tags())]), metadata()
    assert chain.request(frame) == []
    assert (frame.tags, chain.failures) == ([], {"t": 1})


def test_a_response_cannot_be_responded_to() -> None:
    class Confused:
        @hookimpl
        def response(self) -> Any:
            return Respond(b"")

    chain = Chain([("c", Confused())])
    assert chain.response(passing(answered(METADATA, 4, {}))) == []
    assert chain.failures == {"c": 1}


@given(st.lists(st.sampled_from(["fails", "delays", "replaces", "drops", "nothing"]), max_size=8))
def test_any_mix_of_plugins_leaves_the_frame_of_the_last_that_replaced_it(kinds: list[str]) -> None:
    replacement = request_bytes(METADATA, 4, OF_B)
    answers = {"fails": OSError(), "delays": Delay(1), "replaces": Replace(replacement), "drops": Drop()}
    chain = Chain([(str(i), Asks(answers.get(kind))) for i, kind in enumerate(kinds)])
    frame = metadata()
    verdicts = chain.request(frame)
    reached = kinds[: kinds.index("drops") + 1] if "drops" in kinds else kinds
    assert [name for name, _ in verdicts] == [
        str(i) for i, kind in enumerate(reached) if kind not in ("fails", "nothing")
    ]
    assert (frame.frame.raw == replacement) is ("replaces" in reached)
    assert chain.failures.total() == reached.count("fails")


def test_a_required_plugins_failure_is_raised() -> None:
    plugin = Asks(OSError(28, "No space left on device"))
    plugin.required = True  # type: ignore[attr-defined]
    with pytest.raises(PluginFailed, match=r"^rec: OSError: \[Errno 28\] No space left on device$"):
        Chain([("rec", plugin)]).request(metadata())


# ---- observers


def test_observers_are_told_everything_in_their_order() -> None:
    hears = Hears()
    chain = Chain([("h", hears)])
    exchange = passed(asked(METADATA, 4, OF_A), answered(METADATA, 4, {}))
    fault = Fault(NOW, Reason.NOT_KAFKA, "a TLS client on a plain port", CONN)
    over = session()
    chain.opened(over)
    chain.exchanged(exchange)
    chain.faulted(fault)
    chain.closed(over)
    chain.tick(NOW)
    chain.stopped(NOW)
    assert hears.heard == [
        ("opened", over), ("exchanged", exchange), ("faulted", fault), ("closed", over),
        ("tick", NOW), ("stopped", NOW),
    ]  # fmt: skip


def test_an_observer_that_fails_is_told_to_the_others_once() -> None:
    bad, good = Hears(ValueError("no")), Hears()
    chain = Chain([("bad", bad), ("good", good)])
    exchange = passed(asked(METADATA, 4, OF_A), answered(METADATA, 4, {}))
    chain.exchanged(exchange)
    assert [hook for hook, _ in good.heard] == ["exchanged", "faulted"]
    fault = good.heard[1][1]
    assert fault.message == "plugin bad failed in exchanged: ValueError: no"
    assert (fault.ts, fault.conn) == (NOW + MS, CONN)
    # That it fails in `faulted`, too, is counted but no news.
    assert chain.failures == {"bad": 2}


def test_all_are_told_before_a_required_observers_failure_is_raised() -> None:
    recorder, log = Hears(OSError("disk full"), required=True), Hears()
    chain = Chain([("recorder", recorder), ("log", log)])
    with pytest.raises(PluginFailed, match=r"^recorder: OSError: disk full$"):
        chain.tick(NOW)
    assert log.heard == [("tick", NOW)]


def test_a_hook_takes_the_arguments_that_it_wants() -> None:
    class Counts:
        count = 0

        @hookimpl
        def exchanged(self) -> None:
            self.count += 1

    plugin = Counts()
    Chain([("c", plugin)]).exchanged(passed(asked(METADATA, 4, OF_A), None))
    assert plugin.count == 1


# ---- what is refused at load


def module(body: str) -> str:
    return "from kwsniff.hooks import hookimpl\n" + textwrap.dedent(body)


REFUSED = {
    "there is no hook exchangd (did you mean exchanged?)": "@hookimpl\ndef exchangd(passed): ...",
    "request is not marked with @hookimpl": "def request(passing): ...\n@hookimpl\ndef closed(): ...",
    "has no hook": "x = 1",
    "is a wrapper": "@hookimpl(wrapper=True)\ndef request(passing): return (yield)",
    "asks for a place": "@hookimpl(tryfirst=True)\ndef request(passing): ...",
    "is async": "@hookimpl\nasync def request(passing): ...",
    "'frame'": "@hookimpl\ndef request(frame): ...",
    "there is no API Fetsh (did you mean Fetch?)": """
        @hookimpl
        def wants(): return ['Fetsh']
        @hookimpl
        def request(): ...
        """,
    "ZeroDivisionError: division by zero (line 2 of x.py)": "1 / 0",
    "SyntaxError": "def",
    "ValueError: no folder (line 4 of x.py)": """
        class plugin:
            def __init__(self): raise ValueError('no folder')""",
}


@pytest.mark.parametrize("told", REFUSED)
def test_mistakes_are_named_before_the_first_byte(tmp_path: Any, told: str) -> None:
    path = tmp_path / "x.py"
    path.write_text(module(REFUSED[told]))
    with pytest.raises(ConfigError) as caught:
        Chain([load(str(path))])
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "plugin" in str(caught.value)


def test_a_module_is_a_plugin_and_each_load_has_its_own(tmp_path: Any) -> None:
    path = tmp_path / "count.py"
    path.write_text(module("seen = []\n@hookimpl\ndef exchanged(passed): seen.append(passed)\n"))
    (name, one), (_, other) = load(str(path)), load(str(path))
    Chain([(name, one)]).exchanged(passed(asked(METADATA, 4, OF_A), None))
    assert (name, len(one.seen), len(other.seen)) == ("count", 1, 0)  # type: ignore[attr-defined]


def test_a_module_may_hold_its_plugin_as_an_object_or_a_class(tmp_path: Any) -> None:
    text = """
        from dataclasses import dataclass, field
        @dataclass
        class plugin:
            seen: list[int] = field(default_factory=list)
            @hookimpl
            def tick(self, now): self.seen.append(now)
        """
    path = tmp_path / "x.py"
    path.write_text("from __future__ import annotations\n" + module(text))
    _, plugin = load(str(path))
    Chain([("x", plugin)]).tick(5)
    assert plugin.seen == [5]  # type: ignore[attr-defined]


def test_an_entry_point_is_found_by_name(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tmp_path / "sniffplug-1.dist-info"
    found.mkdir()
    (found / "METADATA").write_text("Metadata-Version: 2.1\nName: sniffplug\nVersion: 1\n")
    (found / "entry_points.txt").write_text("[kwsniff]\nplug = sniffplug_module:Plug\n")
    text = "class Plug:\n    @hookimpl\n    def tick(self): self.ticked = True\n"
    (tmp_path / "sniffplug_module.py").write_text(module(text))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert importlib.metadata.version("sniffplug") == "1"
    name, plugin = load("plug")
    Chain([(name, plugin)]).tick(1)
    assert (name, plugin.ticked) == ("plug", True)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"called plugg \(did you mean plug\?\)"):
        load("plugg")


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("no/such.py", "plugin no/such.py: there is no such file"),
        ("nosuch", "no installed plugin is called nosuch"),
    ],
)
def test_what_is_not_there_is_said(spec: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load(spec)


def test_a_file_that_is_no_python_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(ConfigError, match=r"its name ends in \.py"):
        load(str(path))


def test_two_plugins_cannot_have_one_name() -> None:
    with pytest.raises(ConfigError, match="two plugins called x"):
        Chain([("x", Hears()), ("x", Hears())])
    one = Hears()
    with pytest.raises(ConfigError, match="plugin y"):
        Chain([("x", one), ("y", one)])
