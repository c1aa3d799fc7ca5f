"""The log of a proxy: its lines are those of `decode`, and nobody waits for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed
from passing_builders import CONN, NOW, answered, asked, passed

import kwsniff
from kwsniff.errors import ConfigError, Reason
from kwsniff.hooks import hookimpl
from kwsniff.model import Exchange, Fault, FetchedPartition
from kwsniff.output import jsonl
from kwsniff.output.log import Log, LogFailed
from kwsniff.output.present import Options
from kwsniff.passing import Passed
from kwsniff.policy.chain import Chain

CAPTURES = Path(__file__).parents[2] / "captures"
EXCHANGE = passed(asked(3, 4, {"topics": [{"name": "a"}]}), answered(3, 4, {}))
NOT_KAFKA = Fault(NOW, Reason.NOT_KAFKA, "a TLS client on a plain port", CONN)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


class Stuck:
    """A reader of the log that does not read: a pipe, full at first."""

    def __init__(self, tmp_path: Path, **options: Any) -> None:
        path = tmp_path / "pipe"
        os.mkfifo(path)
        self.end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        filler = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        self.filled = 0
        try:
            while True:
                self.filled += os.write(filler, b"\n" * 512)
        except BlockingIOError:
            pass
        self.log = Log(str(path), **options)
        os.close(filler)

    def read(self) -> list[dict[str, Any]]:
        """All that is written until the log ends."""
        os.set_blocking(self.end, True)
        with os.fdopen(self.end, "rb") as file:
            file.read(self.filled)
            self.log.stopped(NOW)
            return [json.loads(line) for line in file.read().splitlines()]


@pytest.mark.parametrize("options", [Options(), Options(body=False), Options(int64_as_string=True)])
@pytest.mark.parametrize("name", ["confluent-txn-mock.pcap", "confluent-sasl-kfake-sasl.pcap"])
def test_its_lines_are_those_of_decode(tmp_path: Path, name: str, options: Options) -> None:
    exchanges = [e for e in kwsniff.read(str(CAPTURES / name)) if isinstance(e, Exchange)]
    exchanges[1].tags.append("slowed")
    log = Log(str(tmp_path / "log"), options)
    for exchange in exchanges:
        log.exchanged(Passed(exchange=exchange, sent=exchange.request, received=exchange.response))
    log.faulted(NOT_KAFKA)
    log.say({"note": "a rule's"})
    log.stopped(NOW)
    expected = [jsonl.encode(jsonl.line(exchange, options)) for exchange in exchanges]
    expected += [jsonl.encode(jsonl.fault_line(NOT_KAFKA)), b'{"note":"a rule\'s"}']
    assert (tmp_path / "log").read_bytes().splitlines() == expected
    assert (log.written, log.shed) == (len(expected), 0)


def test_a_log_is_appended_to(tmp_path: Path) -> None:
    for _ in range(2):
        log = Log(str(tmp_path / "log"))
        log.exchanged(EXCHANGE)
        log.stopped(NOW)
    assert len(lines(tmp_path / "log")) == 2
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_what_does_not_fit_is_shed_and_told_once(tmp_path: Path) -> None:
    stuck = Stuck(tmp_path, capacity=5)
    for _ in range(12):  # none of these waits
        stuck.log.exchanged(EXCHANGE)
    assert stuck.log.shed == 7
    found = stuck.read()
    assert ["fault" in line["kwsniff"] for line in found] == [False] * 5 + [True]
    fault = found[-1]["kwsniff"]["fault"]
    assert (fault["reason"], fault["lost"]) == ("log_shed", 7)
    assert stuck.log.written == 6


def test_shedding_is_told_where_it_happened(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log"), capacity=0)
    log.exchanged(EXCHANGE)
    log.exchanged(EXCHANGE)
    log._most = 100
    log.exchanged(EXCHANGE)
    log.exchanged(EXCHANGE)
    log.stopped(NOW)
    found = lines(tmp_path / "log")
    assert [line["kwsniff"].get("fault", {}).get("lost") for line in found] == [2, None, None]


def test_bytes_are_bounded_too_but_for_one_frame(tmp_path: Path) -> None:
    large = passed(asked(0, 9, bytes(5_000)), None)
    stuck = Stuck(tmp_path, capacity_bytes=8_000)
    for _ in range(3):
        stuck.log.exchanged(large)
    assert stuck.log.shed == 2
    assert [line["kwsniff"]["requestBytes"] for line in stuck.read()[:1]] == [large.exchange.request.size]  # type: ignore[union-attr]


def test_what_is_fetched_counts_too(tmp_path: Path) -> None:
    small = passed(asked(1, 7, b""), None)
    small.exchange.fetched = (FetchedPartition("t", None, 0, 0),) * 1_000
    stuck = Stuck(tmp_path, capacity_bytes=10_000)
    for _ in range(3):
        stuck.log.exchanged(small)
    assert stuck.log.shed == 2
    stuck.read()


def test_a_log_that_cannot_be_written_is_said_once_and_the_proxy_goes_on() -> None:
    told: list[Fault] = []

    class Hears:
        @hookimpl
        def faulted(self, fault: Fault) -> None:
            told.append(fault)

    log = Log("/dev/full")
    chain = Chain([("log", log), ("hears", Hears())])
    chain.exchanged(EXCHANGE)
    chain.stopped(NOW)  # waits for the thread
    chain.tick(NOW)
    chain.exchanged(EXCHANGE)
    assert [fault.message for fault in told] == [
        "plugin log failed in stopped: cannot write /dev/full: No space left on device; the log ends here"
    ]
    assert (log.written, log.shed) == (0, 3)  # both exchanges, and its own fault


def test_a_line_that_cannot_be_made_does_not_end_the_thread_in_silence(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log"))
    log.say({"key": object()})
    with pytest.raises(LogFailed, match="TypeError"):
        log.stopped(NOW)


def test_a_file_that_cannot_be_opened_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match=r"^cannot log into no/such/log: No such file or directory$"):
        Log("no/such/log")


def test_a_dash_is_standard_output() -> None:
    script = """
import sys
from kwsniff.output.log import Log
log = Log("-")
log.say({"a": 1})
log.stopped(0)
print("still open")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == b'{"a":1}\nstill open\n'


def test_secrets_are_redacted(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log"))
    log.exchanged(passed(asked(36, 0, {"authBytes": b"\0alice\0secret"}), None))
    log.stopped(NOW)
    (line,) = lines(tmp_path / "log")
    assert line["request"]["authBytes"] == "<redacted>"


def test_a_frame_from_nowhere_has_a_line(tmp_path: Path) -> None:
    exchange = passed(changed(asked(3, 4, b"\xff"), api=30_000), None)
    log = Log(str(tmp_path / "log"))
    log.exchanged(exchange)
    log.stopped(NOW)
    assert lines(tmp_path / "log")[0]["requestHeader"]["requestApiKey"] == 30_000
