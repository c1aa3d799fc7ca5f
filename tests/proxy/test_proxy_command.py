"""The command as a process: what it says, how it ends, what it makes of mistakes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from mock_cluster import mock_cluster, proxy
from standing import free_ports, heartbeat, metadata

import kwsniff
from kwsniff.cli import main
from kwsniff.model import Endpoint, Exchange


@pytest.fixture(scope="module")
def broker() -> Iterator[Endpoint]:
    with mock_cluster() as found:
        yield found[0]


def listen() -> str:
    return f"127.0.0.1:{free_ports()}"


def exchange(where: Endpoint, data: bytes) -> bytes:
    """One request, one answer."""
    with socket.create_connection(where, timeout=5) as sock:
        sock.sendall(data)
        answer = sock.recv(4)
        size = int.from_bytes(answer, "big")
        while len(answer) < 4 + size:
            answer += sock.recv(4 + size - len(answer))
        return answer


def until(condition: Callable[[], bool]) -> None:
    """What another process does, within five seconds."""
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_status_0(broker: Endpoint, number: signal.Signals) -> None:
    with proxy("--listen", listen(), "--upstream", broker) as running:
        where = running.where
        exchange(where, metadata(1))
        assert running.stop(number) == 0
        assert "Traceback" not in "\n".join(running.lines)


def test_the_second_signal_does_not_wait() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        upstream = Endpoint(*silent.getsockname())
        with (
            proxy("--listen", listen(), "--upstream", upstream, "--drain", "1h") as running,
            socket.create_connection(running.where, timeout=5) as client,
        ):
            client.sendall(heartbeat(1))
            asked, _ = silent.accept()
            with asked:
                assert asked.recv(4, socket.MSG_WAITALL) == heartbeat(1)[:4]
                running.process.send_signal(signal.SIGTERM)
                time.sleep(0.2)  # two signals at once are one
                assert running.process.poll() is None
                assert running.stop() == 0
        assert "cut connections: 1, unanswered requests: 1" in running.lines


SMALL_FILES = ("sh", "-c", 'ulimit -f 8 && exec "$@"', "sh")
"""As if the disk were full after some kilobytes."""


def test_a_full_disk_under_the_recorder_ends_it_with_status_1(broker: Endpoint, tmp_path: Path) -> None:
    recording = tmp_path / "talk.pcapng"
    with proxy(
        "--listen", listen(), "--upstream", broker, "--record", recording, "--record-fsync", "always",
        before=SMALL_FILES,
    ) as running:  # fmt: skip
        where = running.where
        forwarded = 0
        with contextlib.suppress(OSError):  # until it is gone
            while exchange(where, metadata(forwarded)):
                forwarded += 1
        assert running.process.wait(10) == 1
        running.stop()
        (line,) = [line for line in running.lines if "stopped forwarding" in line]
        assert f"{recording}: File too large" in line
        assert forwarded > 3
    recorded = [event for event in kwsniff.read(recording) if isinstance(event, Exchange)]
    assert 3 < len(recorded) <= forwarded + 1


def test_a_recorder_that_may_fail_does_not_end_it(broker: Endpoint, tmp_path: Path) -> None:
    with proxy(
        "--listen", listen(), "--upstream", broker,
        "--record", tmp_path / "talk.pcapng", "--record-fail-open", before=SMALL_FILES,
    ) as running:  # fmt: skip
        where = running.where
        for number in range(100):
            assert exchange(where, metadata(number))
        assert "plugin recorder failed" in running.until("File too large")
        assert running.stop() == 0


def test_a_recording_that_cannot_begin_is_a_mistake() -> None:
    result = CliRunner().invoke(
        main, ["proxy", "--listen", ":0", "--upstream", "b:1", "--record", "/dev/full"]
    )
    assert result.exit_code == 2
    assert result.stderr == "kwsniff: cannot record into /dev/full: No space left on device\n"


def test_an_address_that_is_taken_ends_it_with_status_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = Endpoint(*taken.getsockname())
        with proxy("--listen", where, "--upstream", "localhost:1") as running:
            assert running.process.wait(10) == 2
            running.stop()
            assert running.lines == [f"cannot listen on {where}: Address already in use"]
        with proxy("--listen", listen(), "--upstream", "localhost:1", "--metrics", where) as running:
            assert running.process.wait(10) == 2
            running.stop()
            assert running.lines == [f"cannot listen on {where} for metrics: Address already in use"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--upstream", "b:1"], "Missing option '--listen'"),
        (["--listen", "nowhere", "--upstream", "b:1"], "'nowhere' is no HOST:PORT"),
        (["--listen", ":0", "--upstream", "b:1,"], "'' is no HOST:PORT"),
        (["--listen", ":0", "--upstream", "b:1", "--map", "1"], "'1' is no NODE=HOST:PORT"),
        (["--listen", ":0", "--upstream", "b:1", "--map", "1=a:1", "--map", "1=b:1"], "the same node twice"),
        (["--listen", ":0", "--upstream", "b:1", "--port-range", "9-1"], "'9-1' is no range of ports"),
        (["--listen", ":0", "--upstream", "b:1", "--sni"], "it needs --tls-ca"),
        (["--listen", ":0", "--upstream", "b:1", "--tls-key", "k"], "--tls-key needs --tls-cert or --tls-ca"),
        (["--listen", ":0", "--upstream", "b:1", "--tls-cert", "c", "--tls-ca", "d"], "one certificate, or"),
        (
            ["--listen", ":0", "--upstream", "b:1", "--tls-ca", "/nowhere"],
            "make one with kwsniff ca /nowhere",
        ),
        (["--listen", ":0", "--upstream", "b:1", "--upstream-ca", "c"], "--upstream-ca needs --upstream-tls"),
        (["--listen", ":0", "--upstream", "b:1", "--keep-secrets"], "--keep-secrets needs --record"),
        (["--listen", ":0", "--upstream", "b:1", "--rules", "/nowhere"], "/nowhere: cannot read the rules"),
        (["--listen", ":0", "--upstream", "b:1", "--plugin", "./no.py"], "there is no such file"),
        (["--listen", ":0", "--upstream", "b:1", "--record", "/no/where"], "cannot record into /no/where"),
        (["--listen", ":0", "--upstream", "b:1", "--log", "/no/where"], "cannot log into /no/where"),
        (["--listen", ":0", "--upstream", "b:1", "--advertise", "h:1"], "a host without a port, not 'h:1'"),
        (["--listen", ":0", "--upstream", "b:1", "--drain", "soon"], "'soon' is no duration"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(main, ["proxy", *arguments])
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_ca_makes_one_and_says_what_to_do_with_it(tmp_path: Path) -> None:
    made = CliRunner().invoke(main, ["ca", str(tmp_path / "ca")])
    assert made.exit_code == 0
    assert f"{tmp_path}/ca/ca.pem" in made.stdout
    again = CliRunner().invoke(main, ["ca", str(tmp_path / "ca")])
    assert again.exit_code == 2
    assert "is there already" in again.stderr
    unnamed = CliRunner().invoke(main, ["ca", str(tmp_path / "other"), "--name", ""])
    assert unnamed.exit_code == 2


RULE = """
version: 1
rules:
  - name: closing
    on: request
    api: Metadata
    then: [{close: gone}]
"""


def test_rules_are_read_again_when_they_change_and_a_mistake_leaves_them(
    broker: Endpoint, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("version: 1\nrules: []\n")
    with proxy("--listen", listen(), "--upstream", broker, "--rules", rules) as running:
        where = running.where
        exchange(where, metadata(1))
        rules.write_text(RULE)
        running.until("1 rules read from")
        assert closes(where)
        rules.write_text(RULE.replace("api:", "apis:"))
        line = running.until("the rules stay as they were")
        assert f"{rules}:6" in line
        assert "did you mean" in line
        assert closes(where)
        rules.write_text("version: 1\nrules: []\n")
        running.process.send_signal(signal.SIGHUP)
        running.until("0 rules read from")
        exchange(where, metadata(1))
        assert running.stop() == 0


def closes(where: Endpoint) -> bool:
    with socket.create_connection(where, timeout=5) as client:
        client.sendall(metadata(1))
        try:
            return client.recv(1) == b""
        except ConnectionResetError:
            return True


def test_metrics_are_served_and_nothing_else(broker: Endpoint) -> None:
    with proxy("--listen", listen(), "--upstream", broker, "--metrics", "127.0.0.1:0") as running:
        page = f"http://{running.until('metrics at').split()[-1]}"
        exchange(running.where, metadata(1))
        text = ""

        def counted() -> bool:
            nonlocal text
            with urllib.request.urlopen(f"{page}/metrics", timeout=5) as answer:
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                text = answer.read().decode()
            return 'api="METADATA"' in text

        until(counted)
        for path, method, status in (("/else", "GET", 404), ("/metrics", "POST", 405)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(urllib.request.Request(page + path, method=method), timeout=5)
            assert refused.value.code == status
            refused.value.close()
        with socket.create_connection(page.removeprefix("http://").split(":"), timeout=5) as rude:
            rude.sendall(b"GET /" + b"a" * 100_000)
            assert b" 431 " in rude.recv(100)
        assert running.stop() == 0


def test_the_log_on_standard_output_is_lines_of_json(broker: Endpoint) -> None:
    with proxy("--listen", listen(), "--upstream", broker, "--log", "-", "--no-body") as running:
        exchange(running.where, metadata(77))
        assert running.stop() == 0
        assert running.process.stdout is not None
        (line,) = [json.loads(line) for line in running.process.stdout]
    assert line["requestHeader"]["correlationId"] == 77
    assert line["request"] is None


def test_a_plugin_is_asked_and_its_failure_harms_nobody(broker: Endpoint, tmp_path: Path) -> None:
    plugin = tmp_path / "failing.py"
    plugin.write_text(
        "from kwsniff.hooks import hookimpl\n\n@hookimpl\ndef request(passing):\n    raise KeyError('mine')\n"
    )
    with proxy("--listen", listen(), "--upstream", broker, "--plugin", plugin) as running:
        assert exchange(running.where, metadata(1))
        assert "plugin failing failed in request: KeyError: 'mine'" in running.until("failing")
        assert running.stop() == 0


def test_alerts_of_rules_reach_their_file(broker: Endpoint, tmp_path: Path) -> None:
    rules, alerts = tmp_path / "rules.yaml", tmp_path / "alerts.jsonl"
    rules.write_text(
        "version: 1\nrules:\n  - name: seen\n    on: request\n    api: Metadata\n"
        f"    then: [{{alert: {{severity: critical, message: look here, file: {alerts}}}}}]\n"
    )
    with proxy("--listen", listen(), "--upstream", broker, "--rules", rules) as running:
        exchange(running.where, metadata(5))
        assert running.stop() == 0
    (alert,) = [json.loads(line) for line in alerts.read_text().splitlines()]
    assert (alert["severity"], alert["rule"], alert["message"]) == ("critical", "seen", "look here")
    assert (alert["requestApiKey"], alert["correlationId"], alert["clientId"]) == (3, 5, "t")


def test_it_works_without_uvloop(broker: Endpoint, tmp_path: Path) -> None:
    (tmp_path / "uvloop.py").write_text("raise ImportError")
    arguments = ["proxy", "--listen", listen(), "--upstream", str(broker)]
    started = subprocess.Popen(
        [sys.executable, "-m", "kwsniff", *arguments],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with started:
        assert started.stderr is not None
        assert "listening on" in started.stderr.readline()
        host, _, port = arguments[2].partition(":")
        assert exchange(Endpoint(host, int(port)), metadata(1))
        started.terminate()
        assert started.wait(10) == 0
