"""Rule files: what they mean, and what is said of the ones that cannot be right."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwsniff.errors import ConfigError
from kwsniff.model import Side
from kwsniff.policy import ruleset
from kwsniff.policy.rule_actions import ALLOWED
from kwsniff.policy.rule_file import load, loads, reload
from kwsniff.policy.rule_sentence import sentence
from kwsniff.policy.ruleset import On, Rule
from kwsniff.wire.schema import Versions

DATA = Path(__file__).parents[1] / "data" / "rules"
OFFSET = "topics[*].partitions[*].fetchOffset"
OF_SESSIONS = (
    "timestamp, connection, totalTimeMs, securityProtocol, principal, clientInformation,"
    " kwsniff.{broker, client, file, protocol, requestBytes, responseBytes, session}"
)
MS = 1_000_000


def rule(text: str, head: str = "") -> Rule:
    """The one rule whose keys these are."""
    body = "".join(f"    {row}\n" for row in dedent(text).strip().splitlines())
    (made,) = loads(f"version: 1\n{head}rules:\n  - name: r\n{body}".encode()).rules
    return made


def refused(text: str | bytes) -> list[str]:
    """What is said of the file, without its name: `line: what`."""
    data = text if isinstance(text, bytes) else dedent(text).lstrip("\n").encode()
    with pytest.raises(ConfigError) as caught:
        loads(data, "f.yaml")
    rows = str(caught.value).splitlines()
    assert all(row.startswith("f.yaml:") and row.isprintable() for row in rows)
    return [row.removeprefix("f.yaml:") for row in rows]


def wrong(text: str) -> str:
    """The one thing that is wrong with a rule of these keys; its first line is line 4."""
    body = "".join(f"    {row}\n" for row in dedent(text).strip().splitlines())
    (said,) = refused(f"version: 1\nrules:\n  - name: r\n{body}".encode())
    return said


# ---- what a file means


def test_the_example() -> None:
    found = load(DATA / "issue.yaml")
    assert found.seed == 42
    assert found.rules == (
        Rule(
            name="slow-orders",
            on=On.RESPONSE,
            apis=(1,),
            when='kwsniff.topics.exists(t, t == "orders") && totalTimeMs < 50',
            chance=0.3,
            limit=100,
            then=(ruleset.DelayBy(200 * MS, 50 * MS), ruleset.Tag(("slowed",))),
            line=5,
        ),
        Rule(name="fence-producer", on=On.REQUEST, apis=(0,), then=(ruleset.AnswerError(6),), line=12),
    )


def test_every_action_in_a_sentence() -> None:
    said = [sentence(rule) for rule in load(DATA / "everything.yaml").rules]
    assert said == (DATA / "everything.txt").read_text().splitlines()


def test_all_that_there_is_to_do_is_in_that_file() -> None:
    done = {type(action) for rule in load(DATA / "everything.yaml").rules for action in rule.then}
    done |= {type(action) for rule in load(DATA / "issue.yaml").rules for action in rule.then}
    assert len(done) == len(ALLOWED)


@pytest.mark.parametrize(
    ("written", "ns"),
    [("200ms", 200 * MS), ("2s", 2000 * MS), ("1.5s", 1500 * MS), ("50 us", 50_000), ("2m", 120_000 * MS),
     ("0s", 0), ("0.25ms", 250_000), ("24h", 86_400_000 * MS)],
)  # fmt: skip
def test_times(written: str, ns: int) -> None:
    assert rule(f"on: request\nthen: {{delay: {written}}}").then == (ruleset.DelayBy(ns),)


@pytest.mark.parametrize(
    ("written", "size"),
    [("4096", 4096), ("100K", 102_400), ("100 KB/s", 102_400), ("1MiB/s", 1 << 20), ("2g", 2 << 30)],
)
def test_rates(written: str, size: int) -> None:
    assert rule(f"on: request\nthen: {{throttle: {written}}}").then == (ruleset.ThrottleTo(size),)


@pytest.mark.parametrize(
    "written", ["ListOffsets", "LIST_OFFSETS", "list_offsets", "[ListOffsets]", "ListOffset"]
)
def test_an_api_by_any_of_its_names(written: str) -> None:
    assert rule(f"on: request\napi: {written}\nthen: drop").apis == (2,)


@pytest.mark.parametrize(
    ("written", "spans"),
    [
        ("3", [(3, 3)]),
        ("0-11", [(0, 11)]),
        ("v4", [(4, 4)]),
        ("[0, 2-3]", [(0, 0), (2, 3)]),
        ("12+", [(12, 32767)]),
    ],
)
def test_versions(written: str, spans: list[tuple[int, int]]) -> None:
    found = rule(f"on: request\napi: Fetch\nversion: {written}\nthen: drop").versions
    assert found == tuple(Versions(*span) for span in spans)


@pytest.mark.parametrize(
    ("written", "code"),
    [("NOT_LEADER_OR_FOLLOWER", 6), ("NOT_LEADER_FOR_PARTITION", 6), ("6", 6), ("UNKNOWN_SERVER_ERROR", -1)],
)
def test_errors_by_name_former_name_and_number(written: str, code: int) -> None:
    assert rule(f"on: request\napi: Fetch\nthen: {{error: {written}}}").then == (ruleset.AnswerError(code),)


def test_side_alone_says_when() -> None:
    assert rule("side: response\nthen: drop").on is On.RESPONSE
    made = rule("on: exchange\nside: response\nthen: {tag: x}")
    assert (made.on, made.side) == (On.EXCHANGE, Side.RESPONSE)


def test_values_are_what_the_field_is() -> None:
    """Of plain YAML, `no` is false and 1.5 a number; of a string they are text, as is a quoted null."""
    made = rule(
        """
        on: request
        api: ApiVersions
        then: {set: {clientSoftwareName: no, clientSoftwareVersion: 1.5}}
        """
    )
    (given,) = made.then
    assert isinstance(given, ruleset.SetFields)
    assert [field.value for field in given.fields] == ["no", "1.5"]
    made = rule(
        """
        on: request
        api: Metadata
        version: 10+
        then:
          respond:
            topics:
              - {errorCode: LEADER_NOT_AVAILABLE, name: ~, topicId: AAAAAAAAAAAAAAAAAAAAAQ, partitions: []}
        """
    )
    topic = {"errorCode": 5, "name": None, "topicId": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": []}
    assert made.then == (ruleset.AnswerBody({"topics": [topic]}),)


# ---- what is wrong with a file


def test_every_mistake_is_named_in_one_go() -> None:
    assert refused(
        """
        version: 2
        sed: 42
        rules:
          - name: a
            on: request
            api: Fetch
            then:
              - set: {"topics[*].partitions[*].fetchOfset": 5}
              - dely: 200ms
          - name: b
            on: answer
            chance: 2
            then: []
          - then: drop
            on: session
        """
    ) == [
        "1: rule files of version 1 are read, not of '2'",
        "2: no key 'sed' in a rule file, did you mean `seed`?",
        "8: no field `fetchOfset` in FetchRequest, did you mean `fetchOffset`?",
        "9: no action 'dely', did you mean `delay`?",
        "11: no moment 'answer'; there are request, response, exchange, session",
        "12: chance is a number from 0 to 1, or a percentage, not '2'",
        "14: a rule needs a `name`",
        "14: `drop` cannot be done on session, only on request or response",
    ]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("on: request\nthn: drop\nthen: drop", "5: no key 'thn' in a rule, did you mean `then`?"),
        ("then: drop", "3: a rule needs `on`: request, response, exchange, session"),
        ("on: request", "3: a rule needs `then`: its actions"),
        ("on: request\nthen:", "5: a rule needs `then`: its actions"),
        ("on: request\napi: Fech\nthen: drop", "5: no API 'Fech', did you mean `Fetch`?"),
        ("on: request\napi: [Fetch, FETHC]\nthen: drop", "5: no API 'FETHC', did you mean `Fetch`?"),
        ("on: request\napi: []\nthen: drop", "5: api is a word or a list of words"),
        ("on: request\nversion: 1..3\nthen: drop",
         "5: version is a number or a range such as 0-11 or 4+, not '1..3'"),
        ("on: request\nversion: 9-3\nthen: drop", "5: '9-3' is no range of versions"),
        ("on: request\napi: Fetch\nversion: 40-50\nthen: drop",
         "6: FETCH has the versions v0-18, none of these"),
        ("on: request\nside: response\nthen: drop", "5: on request there is no response"),
        ("on: request\nlimit: 0\nthen: drop", "5: limit is a number from 1 to 9223372036854775807, not 0"),
        ("on: request\nlimit: few\nthen: drop", "5: limit is a whole number, not 'few'"),
        ("on: request\ncontinue: maybe\nthen: drop", "5: continue is true or false, not 'maybe'"),
        ("on: request\nclient_id: [a]\nthen: drop", "5: client_id is a text, not a list"),
        ("on: session\nclient_id: a\nthen: log", "5: a session has no `client_id`"),
        ("on: request\nthen: 7", "5: no action '7'; there are " + ", ".join(ALLOWED)),
        ("on: request\nthen: [[drop]]", "5: an action is a word or `name: value`, not a list"),
        ("on: request\nthen: {drop: 5}", "5: `drop` takes nothing behind it"),
        ("on: request\nthen: {delay: 200}", "5: delay is a time such as 200ms, 1.5s or 2m, not '200'"),
        ("on: request\nthen: delay", "5: delay is a time such as 200ms, 1.5s or 2m, not nothing"),
        ("on: request\nthen: {delay: 25h}", "5: delay is at most 24h, not '25h'"),
        ("on: request\nthen: {delay: {jitter: 2ms}}", "5: delay needs `latency`"),
        ("on: request\nthen: {delay: {latency: 1ms, jitter: 2ms}}",
         "5: jitter is give or take: it cannot be more than latency"),
        ("on: request\nthen: {delay: {latncy: 1ms}}",
         "5: no key 'latncy' in delay, did you mean `latency`?"),
        ("on: request\nthen: {throttle: 0}",
         "5: throttle is a number of bytes such as 4096, 100K or 1M, not '0'"),
        ("on: request\nthen: {error: NOT_LEADER_FOR_PARTITON}",
         "5: no error 'NOT_LEADER_FOR_PARTITON', did you mean `NOT_LEADER_OR_FOLLOWER`?"),
        ("on: request\nthen: {error: 30000}", "5: no error '30000'"),
        ("on: request\nthen: {error: NONE}", "5: NONE is no error; `respond` gives any answer"),
        ("on: request\nthen: [drop, {delay: 1s}]", "5: behind `drop` there is nothing left for `delay`"),
        ("on: request\nthen: [{error: 6}, close]", "5: behind `error` there is nothing left for `close`"),
        ("on: response\nthen: {rename: {a: b}}", "5: `rename` cannot be done on response, only on request"),
        ("on: request\nthen: {rename: {a: c, b: c}}",
         "5: two topics get one name: its answers could not be told apart"),
        ("on: request\nthen: {rename: {a b: c}}", "5: 'a b' is no name of a topic"),
        ("on: request\nthen: {rename: a}", "5: rename is a map (`key: value`), not 'a'"),
        ("on: request\nthen: {alert: high}",
         "5: no severity 'high'; there are info, warning, critical"),
        ("on: request\nthen: {alert: {webhook: example.org}}",
         "5: webhook is a URL: http://host... or https://host..."),
        ("on: request\nthen: {alert: {webhook: 'http://h', file: a}}",
         "5: an alert goes to a `file` or to a `webhook`; for both, write two"),
        ("on: request\nthen: {count: my metric}",
         "5: count is the name of a metric (letters, digits, _), not 'my metric'"),
        ("on: request\nthen: {redact: value}", "5: no part of a record 'value', did you mean `values`?"),
        ("on: request\nthen: {redact: {topics: a}}",
         "5: say what of the records to redact: `keys: true`, `values: true`, `headers: true`"),
        ("on: request\napi: Fetch\nthen: {redact: values}",
         "6: FetchRequest carries no records for `redact`"),
        ("on: request\napi: Fetch\nthen: {corrupt: crc}",
         "6: FetchRequest carries no records for `corrupt: crc`"),
        ("on: request\nthen: {corrupt: {truncate: 0}}", "5: truncate is a number from 1 to 1048576, not 0"),
        ("on: request\nthen: {set: {maxWaitMs: 1}}",
         "5: `set` needs to know the fields: give the rule an `api`"),
        ("on: request\napi: Fetch\nthen: {set: {maxWaitMs: 5000000000}}",
         "6: `maxWaitMs` (int32) is a number from -2147483648 to 2147483647, not 5000000000"),
        ("on: request\napi: Fetch\nthen: {set: {maxWaitMs: soon}}",
         "6: `maxWaitMs` (int32) is a whole number, not 'soon'"),
        ("on: request\napi: Fetch\nthen: {set: {rackId: ~}}", "6: `rackId` is a string, not '~'"),
        ("on: request\napi: Fetch\nthen: {set: {fetchOfset: 1}}",
         "6: no field `fetchOfset` in FetchRequest, did you mean `fetchOffset`? It is `{fetchOffset}`"),
        ("on: request\napi: Fetch\nthen: {set: {fetchOffset: 1}}",
         "6: no field `fetchOffset` in FetchRequest; there is `{fetchOffset}`"),
        ("on: request\napi: [Fetch, Produce]\nthen: {set: {maxWaitMs: 1}}",
         "6: no field `maxWaitMs` in ProduceRequest"),
        ("on: request\napi: Fetch\nthen: {set: {topics.partitions: 1}}",
         "6: `topics` is an array: write `topics[*]`"),
        ("on: request\napi: Fetch\nthen: {set: {'maxWaitMs[*]': 1}}",
         "6: `maxWaitMs` is no array: write `maxWaitMs`"),
        ("on: request\napi: Fetch\nthen: {set: {maxWaitMs.x: 1}}",
         "6: `maxWaitMs` of FetchRequest is an int32: nothing is below it"),
        ("on: request\napi: Fetch\nversion: 13+\nthen: {set: {'topics[*].topic': a}}",
         "7: `topics[*].topic` is in FetchRequest only in v0-12"),
        ("on: request\napi: Fetch\nthen: {set: {'topics[-1].topic': a}}",
         "6: 'topics[-1].topic' is no path: write topics[*].partitions[*].fetchOffset"),
        ("on: request\napi: [Fetch, Produce]\nthen: {respond: {}}",
         "6: `respond` is the answer of one API: make a rule of its own for each"),
        ("on: request\napi: Heartbeat\nthen: {respond: {throttleTime: 5}}",
         "6: no field `throttleTime` in HeartbeatResponse, did you mean `throttleTimeMs`?"),
        ("on: request\napi: Fetch\nversion: 0-6\nthen: {respond: {sessionId: 5}}",
         "7: `sessionId` is in FetchResponse only in v7-18"),
        ("on: request\nwhen: kwsniff.topic == 'x'\nthen: drop",
         "5: when, column 9: no field 'topic' in kwsniff (did you mean 'topics'?): kwsniff.^topic == 'x'"),
        ("on: request\nwhen: 1 +\nthen: drop", "5: when, column 4: the expression ends too early: 1 +^"),
        ("on: request\nwhen: totalTimeMs > 5\nthen: drop",
         "5: when: on request there is no answer yet: response and totalTimeMs are null"),
        ("on: session\nwhen: request.acks == 1\nthen: log",
         "5: when: a session has no request; it has {session}"),
    ],
)  # fmt: skip
def test_a_mistake(keys: str, said: str) -> None:
    assert wrong(keys) == said.replace("{fetchOffset}", OFFSET).replace("{session}", OF_SESSIONS)


@pytest.mark.parametrize("on", list(On))
@pytest.mark.parametrize("name", list(ALLOWED))
def test_which_moment_allows_which_action(name: str, on: On) -> None:
    """On frames all that changes or holds them; on what is over only what speaks of it."""
    given = {
        "delay": "1s", "throttle": "1K", "error": "6", "rename": "{a: b}", "redact": "values",
        "corrupt": "crc", "tag": "x", "count": "x", "set": "{throttleTimeMs: 1}",
        "respond": "{throttleTimeMs: 1}",
    }  # fmt: skip
    speaks = ["log", "alert", "count"]
    expected = {
        On.REQUEST: set(ALLOWED),
        On.RESPONSE: set(ALLOWED) - {"rename"},
        On.EXCHANGE: {*speaks, "tag"},
        On.SESSION: set(speaks),
    }[on]
    api = {"redact": "api: [Produce]\n", "corrupt": "api: [Produce]\n"}.get(name, "api: Fetch\n")
    if name in ("redact", "corrupt") and on is On.RESPONSE:
        api = "api: Fetch\n"
    if name == "set" and on is On.REQUEST:
        given["set"] = "{maxWaitMs: 1}"
    keys = f"on: {on}\n{'' if on is On.SESSION else api}then: {{{name}: {given.get(name, '')}}}"
    if name in expected:
        assert rule(keys).on is on
    else:
        assert f"`{name}` cannot be done on {on}" in wrong(keys)


def test_two_rules_of_one_name() -> None:
    text = "version: 1\nrules:\n- {name: a, on: request, then: drop}\n- {name: a, on: response, then: drop}\n"
    assert refused(text) == ["4: rule 'a' is there already, in line 3"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1: a rule file is a map (`key: value`), not nothing"),
        ("version: 1\n", "1: `rules` is a list: `rules:`, then `- name: ...` for each"),
        ("rules: []\n", "1: `version: 1` is missing"),
        ("version: 1\nversion: 1\nrules: []\n", "2: `version` stands here twice"),
        ("version: 1\nrules: [\n", "3: no YAML: expected the node content, but found '<stream end>'"),
        ("version: 1\nrules: []\n---\nversion: 1\n", "3: a second document begins here; a rule file is one"),
        ("version: 1\n? [a]\n: b\n", "2: a key is a word, not a list or map"),
        (b"version: 1\nrules: caf\xe9\n", "2: this is not UTF-8"),
        (b"version: 1\nrules: \x07\n", "2: no YAML: special characters are not allowed"),
        ("version: 1\nrules: !!python/object/apply:os.system [ls]\n",
         "2: tags (!) are not read; quote a text that begins with one"),
        ("version: 1\nx: &x [a]\ny: *x\n",
         "2: anchors and aliases (& and *) are not read; quote a text that begins with one"),
        ("version: 1\nrules: " + "[" * 5000, "2: nested more than 24 deep"),
        ("version: 1\nrules: []\n#" + "x" * (256 * 1024), "1: the file has more than 262144 bytes"),
    ],
)  # fmt: skip
def test_a_file_that_is_none(text: str | bytes, said: str) -> None:
    assert refused(text) == [said]


def test_of_many_mistakes_the_first_twenty() -> None:
    rules = "".join(f"- {{name: r{i}, on: nothing, then: drop}}\n" for i in range(30))
    said = refused(f"version: 1\nrules:\n{rules}")
    assert (len(said), said[-1]) == (21, " and 10 more")


PIECES = "version: rules: 1 - name on request then drop set {} [ ] : ' | > & * ! ? # , 0-3 Fetch when"


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([*PIECES.split(), " ", "\n", "\n  ", "\t", '"']), max_size=30)
    .map("".join)
    .map(str.encode)
    | st.binary(max_size=60)
)
def test_any_bytes_are_rules_or_refused(data: bytes) -> None:
    try:
        said = loads(data).file
    except ConfigError as error:
        said = str(error).partition(":")[0]
    assert said == "rules"


# ---- reading again


def test_a_bad_file_keeps_the_rules_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("version: 1\nrules: [{name: a, on: request, then: drop}]\n")
    first, why = reload(path, ruleset.RuleSet())
    assert ([rule.name for rule in first.rules], why) == (["a"], None)
    path.write_text("version: 1\nrules: [{name: a, on: request, then: drp}]\n")
    assert reload(path, first) == (first, f"{path}:2: no action 'drp', did you mean `drop`?")
    path.unlink()
    assert reload(path, first) == (first, f"{path}: cannot read the rules: No such file or directory")
    path.write_text("version: 1\nrules: []\n")
    assert reload(path, first) == (ruleset.RuleSet(file=str(path)), None)
