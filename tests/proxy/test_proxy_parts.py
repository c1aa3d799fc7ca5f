"""The smaller parts of the proxy: console, rules read again, alerts, required plugins, brokers that move."""

from __future__ import annotations

import http.server
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from passing_builders import CONN
from standing import Broker, Run, client, heartbeat, metadata, standing

from kwsniff.errors import ConfigError
from kwsniff.hooks import hookimpl
from kwsniff.model import ConnectionId, Endpoint, Session, Side
from kwsniff.passing import Passed, Passing
from kwsniff.policy import rule_file
from kwsniff.policy.actions import Alert, Note, Occasion
from kwsniff.policy.ruleset import On, RuleSet, Severity
from kwsniff.proxy.alerting import Alerting
from kwsniff.proxy.console import Console
from kwsniff.proxy.reloading import Reloading


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_lines_of_one_kind_are_counted_not_repeated() -> None:
    stream, clock = io.StringIO(), Clock()
    console = Console(stream, clock=clock, status=False)
    for number in range(5):
        console.say(f"client {number}: refused", "refused")
    console.say("something else")
    clock.now = 1.5
    console.flush()
    console.say("client 9: refused", "refused")
    console.close()
    assert stream.getvalue().splitlines() == [
        "kwsniff: client 0: refused",
        "kwsniff: something else",
        "kwsniff: refused: 4 more of this kind",
        "kwsniff: client 9: refused",
    ]


def test_what_is_said_cannot_steer_the_terminal() -> None:
    stream = io.StringIO()
    Console(stream, status=False).say("client \x1b[2J\u202e\udcff said")
    assert stream.getvalue() == "kwsniff: client \\x1b[2J\\u202e\\udcff said\n"


def test_the_status_line_makes_room_for_lines_and_leaves_nothing() -> None:
    stream = io.StringIO()
    console = Console(stream, status=True)
    console.status("2 connections")
    console.say("hello")
    console.close()
    assert stream.getvalue() == "\r\x1b[K2 connections\r\x1b[Kkwsniff: hello\n2 connections\r\x1b[K"


def test_a_stderr_that_is_gone_stops_nothing() -> None:
    stream = io.StringIO()
    stream.close()
    Console(stream, status=False).say("hello")


class Taken:
    """A rule engine that writes down what it was given."""

    def __init__(self) -> None:
        self.given: list[RuleSet] = []
        self.refuses = False

    def replace(self, ruleset: RuleSet) -> None:
        self.given.append(ruleset)

    def renew(self) -> None:
        if self.refuses:
            raise ConfigError("no such API")


def reloading(path: Path, taken: Taken) -> tuple[Reloading, list[str]]:
    said: list[str] = []
    return Reloading(path, rule_file.load(path), taken, taken.renew, said.append), said


def test_rules_that_the_plugins_refuse_are_taken_back(tmp_path: Path) -> None:
    path, taken = tmp_path / "rules.yaml", Taken()
    path.write_text("version: 1\nrules: []\n")
    watched, said = reloading(path, taken)
    taken.refuses = True
    path.write_text("version: 1\nseed: 7\nrules: []\n")
    watched.poll()
    assert [ruleset.seed for ruleset in taken.given] == [7, 0]
    assert said == ["the rules stay as they were: no such API"]


def test_a_file_that_is_not_there_for_a_moment_is_no_change(tmp_path: Path) -> None:
    path, taken = tmp_path / "rules.yaml", Taken()
    path.write_text("version: 1\nrules: []\n")
    watched, said = reloading(path, taken)
    path.unlink()
    watched.poll()
    assert (taken.given, said) == ([], [])


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[bytes]]]:
    received: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(302 if self.path == "/elsewhere" else 204)
            self.send_header("Location", "/there")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", received
        server.shutdown()
        serving.join()


def alert(to: str | None) -> Alert:
    occasion = Occasion(ts=0, conn=CONN, on=On.REQUEST, side=Side.REQUEST, api=0, version=9)
    return Alert("slow", Severity.WARNING, "too slow", to, occasion)


def test_an_alert_reaches_its_webhook(webhook: tuple[str, list[bytes]]) -> None:
    url, received = webhook
    said: list[str] = []
    alerting = Alerting(lambda line, _: said.append(line))
    alerting.alert(alert(f"{url}/hook"))
    alerting.close()
    line = json.loads(received[0])
    assert (line["severity"], line["rule"], line["message"]) == ("warning", "slow", "too slow")
    assert line["timestamp"] == "1970-01-01T00:00:00.000000000Z"
    assert said == []


def test_an_alert_that_is_sent_elsewhere_does_not_go_there(webhook: tuple[str, list[bytes]]) -> None:
    url, received = webhook
    said: list[str] = []
    alerting = Alerting(lambda line, _: said.append(line))
    alerting.alert(alert(f"{url}/elsewhere"))
    alerting.close()
    assert len(received) == 1
    assert "did not reach" in said[0]


def test_an_alert_without_an_address_is_said() -> None:
    said: list[str] = []
    Alerting(lambda line, _: said.append(line)).alert(alert(None))
    assert said == [f"warning alert of rule slow: too slow: request PRODUCE v9 of client {CONN.client}"]


def test_notes_and_alerts_are_lines_of_the_log_where_there_is_one() -> None:
    said: list[str] = []
    lines: list[dict[str, Any]] = []
    alerting = Alerting(lambda line, _: said.append(line), lines=lambda line, _: lines.append(line))
    alerting.log(Note("seen", "look", alert(None).occasion))
    alerting.alert(alert(None))
    assert [line["kwsniff"].get("note", {}).get("message") for line in lines] == ["look", None]
    assert lines[1]["kwsniff"]["alert"]["severity"] == "warning"
    assert lines[1]["connection"] == str(CONN)
    assert len(said) == 1


class Failing:
    """A recorder, say, whose disk is full from the second request on."""

    required = True

    def __init__(self) -> None:
        self.seen = 0

    @hookimpl
    def request(self, passing: Passing) -> None:
        assert passing.frame is not None
        self.seen += 1
        if self.seen > 1:
            raise OSError(28, "No space left on device")


def test_a_required_plugin_that_fails_stops_all_connections_and_forwards_nothing(run: Run) -> None:
    async def main() -> None:
        async with (
            Broker() as broker,
            standing(broker.address, plugins=(("tape", Failing()),)) as proxy,
            client(proxy.where) as one,
            client(proxy.where) as two,
        ):
            await one.ask(heartbeat(1))
            await two.send(heartbeat(2))
            assert await two.end() == b""
            assert await one.end() == b""
            assert await proxy.running == 1
            assert len(broker.received) == 1
            (line,) = proxy.lines
            assert line.startswith("stopped forwarding: tape: ")
            assert "No space left on device" in line

    run(main)


class Observer:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.conns: set[ConnectionId] = set()

    @hookimpl
    def opened(self, session: Session) -> None:
        self.told.append("opened")
        self.conns.add(session.conn)

    @hookimpl
    def exchanged(self, passed: Passed) -> None:
        self.told.append(str(passed.exchange.outcome))

    @hookimpl
    def closed(self, session: Session) -> None:
        self.told.append("closed")
        self.conns.add(session.conn)

    @hookimpl
    def stopped(self) -> None:
        self.told.append("stopped")


def test_observers_are_told_of_each_connection_once(run: Run) -> None:
    async def main() -> None:
        observer = Observer()
        async with Broker() as broker, standing(broker.address, plugins=(("observer", observer),)) as proxy:
            async with client(proxy.where) as c:
                await c.ask(metadata(1))
                broker.silent = True
                await c.send(heartbeat(2))
                await proxy.until(lambda: len(broker.received) == 2)
                where = c.address
                c.reset()
            await proxy.until(lambda: proxy.server.connections == 0)
            assert observer.told == ["opened", "answered", "closed", "closed"]
            assert observer.conns == {ConnectionId(where, broker.address, 0)}
        assert observer.told[-1] == "stopped"

    run(main)


def test_a_broker_that_moves_is_found_at_its_new_place(run: Run) -> None:
    async def main() -> None:
        async with Broker() as one, Broker() as two:
            one.nodes = {1: one.address}
            async with standing(one.address) as proxy, client(proxy.where) as c:
                told = (await c.brokers())[1]
                one.nodes = {1: two.address}
                assert (await c.brokers())[1] == told
                async with client(told) as moved:
                    await moved.ask(heartbeat(1))
                assert len(two.received) == 1

    run(main)


def test_the_map_has_the_last_word_about_where_a_broker_is(run: Run) -> None:
    async def main() -> None:
        async with Broker() as one, Broker() as two:
            one.nodes = {5: Endpoint("unreachable.example", 9092)}
            async with standing(one.address, fixed={5: two.address}) as proxy, client(proxy.where) as c:
                told = await c.brokers()
                assert told == {5: Endpoint("127.0.0.1", proxy.where.port + 6)}
                async with client(told[5]) as mapped:
                    await mapped.ask(heartbeat(1))
                assert len(two.received) == 1

    run(main)
