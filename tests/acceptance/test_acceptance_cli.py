"""The command line as a stranger types it: options, filters, exit statuses, broken surroundings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from acceptance_builders import ROOT, Tape, kwsniff, run

CAPTURE = ROOT / "captures" / "franz-admin-kfake.pcapng"


@pytest.fixture
def three(tmp_path: Path) -> Path:
    tape = Tape()
    link = tape.link().open()
    link.metadata(1).metadata(2, "payments")
    link.exchange(3, 1, 3, {"topics": [{"name": "x"}]}, {"topics": [{"name": "x", "errorCode": 3}]}).close()
    path = tmp_path / "three.pcap"
    path.write_bytes(tape.pcap())
    return path


def numbers(result) -> list[int]:
    return [line["requestHeader"]["correlationId"] for line in result.lines]


FILTERS = {
    'requestHeader.requestApiKeyName == "METADATA"': [1, 2, 3],
    'kwsniff.topics.exists(t, t == "payments")': [2],
    '"payments" in kwsniff.topics': [2],
    "size(kwsniff.errors) > 0": [3],
    "kwsniff.errors.exists(e, e.code == 3)": [3],
    'kwsniff.errors.exists(e, e.name.startsWith("UNKNOWN"))': [3],
    "totalTimeMs < 50": [1, 2, 3],
    "totalTimeMs > 0.5 && totalTimeMs < 1.5": [1, 2, 3],
    'request.topics[0].name == "x"': [3],
    'request.topics.exists(t, t.name.matches("pay.*"))': [2],
    'timestamp >= "2026-11-21T06:00:00.005" && timestamp < "2026-11-21T06:00:00.006"': [2],
    'kwsniff.outcome == "answered" && requestHeader.correlationId != 2': [1, 3],
    'principal == "User:ANONYMOUS"': [1, 2, 3],
    'clientInformation.softwareName == "unknown"': [1, 2, 3],
    "has(request.topics)": [1, 2, 3],
    "!has(request.groupId)": [1, 2, 3],
    'requestHeader.clientId == null || requestHeader.clientId == "app"': [1, 2, 3],
    "kwsniff.requestBytes > 30": [2],
    "kwsniff.requestPacket == 4": [1],
    "true": [1, 2, 3],
    "false": [],
}


@pytest.mark.parametrize("expression", FILTERS)
def test_filters(three: Path, expression: str) -> None:
    result = run("decode", "--filter", expression, three)
    assert (result.status, numbers(result)) == (0, FILTERS[expression])


WRONG_FILTERS = {
    "requestHeader.requestApiKeyNam == 'x'": "requestApiKeyName",
    "kwsniff.topic == 'x'": "topics",
    "request.topicz == 'x'": "topic",
    "response.trottleTimeMs > 1": "throttleTimeMs",
    "kwsnif.topics == []": "kwsniff",
    "totalTime > 3": "totalTimeMs",
    "topics == []": "kwsniff.topics",
    "timestamp > 5": "",
    "timestamp + ": "",
    "'a' == 5": "",
    "timestamp": "bool",
    "1 + 1": "bool",
    "((((": "",
    "": "",
    "kwsniff.errors.exists(e, e.kode == 3)": "code",
    "foo(timestamp)": "foo",
    "\x00": "",
    "'unterminated": "",
}


@pytest.mark.parametrize("expression", WRONG_FILTERS)
def test_wrong_filters_are_refused_before_anything_is_read(three: Path, expression: str) -> None:
    result = run("decode", "--filter", expression, three)
    assert result.status == 2
    assert result.out == b""
    (line,) = result.err.splitlines()
    assert "filter" in line
    if WRONG_FILTERS[expression] not in ("", "bool"):
        assert WRONG_FILTERS[expression] in line
        assert "^" in line


def test_a_filter_that_fails_on_some_lines_is_false_there_and_counted(three: Path) -> None:
    result = run("decode", "--filter", "response.topics[0].errorCode > 2", three)
    assert numbers(result) == [3]
    result = run("decode", "--filter", "response.topics[1].errorCode > 2", three)
    assert numbers(result) == []
    assert "could not be evaluated on 3 lines" in result.err


def test_a_filter_over_fault_lines_and_capture_faults(three: Path) -> None:
    three.write_bytes(three.read_bytes()[:-10])
    assert run("decode", "--filter", 'kwsniff.fault.reason == "capture_truncated"', three).faults


def test_filters_with_int64_as_strings_see_strings(three: Path) -> None:
    assert run("decode", "--int64-as-string", "--filter", "kwsniff.requestBytes > 0", three).status == 0


def test_times(three: Path) -> None:
    for start, wanted in {
        "2026-11-21T06:00:00.005Z": [2, 3],
        "2026-11-21T07:00:00.005+01:00": [2, 3],
        "1795240800.005": [2, 3],
        "2026-11-21": [1, 2, 3],
        "2026-11-22": [],
    }.items():
        assert numbers(run("decode", "--start", start, three)) == wanted
    assert numbers(run("decode", "--end", "2026-11-21T06:00:00.005Z", three)) == [1]
    assert numbers(
        run("decode", "--start", "2026-11-21T06:00:00.004", "--end", "2026-11-21T06:00:00.007", three)
    ) == [2]
    assert run("decode", "--start", "yesterday", three).status == 2


def test_no_body(three: Path) -> None:
    for line in run("decode", "--no-body", three).lines:
        assert (line["request"], line["response"]) == (None, None)
        assert line["kwsniff"]["topics"]


def test_port_forces(tmp_path: Path) -> None:
    tape = Tape()
    tape.link(broker=("10.0.0.2", 7777)).open().client(b"\0\0\0\x10" + b"junkjunkjunkjunk")
    path = tmp_path / "a.pcap"
    path.write_bytes(tape.pcap())
    assert [f["reason"] for f in run("decode", path).faults] == ["not_kafka"]
    forced = run("decode", "--port", "7777", path)
    assert "not_kafka" not in [f["reason"] for f in forced.faults]
    assert run("decode", "--port", "0", path).status == 2
    assert run("decode", "--port", "x", path).status == 2


@pytest.mark.parametrize("size", ["0", "-1", "ten", "1T", ""])
def test_wrong_sizes(three: Path, size: str) -> None:
    assert run("decode", "--max-frame", size, three).status == 2
    assert run("decode", "--max-decompressed", size, three).status == 2


def test_output_is_whole_or_the_old_one(three: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    assert run("decode", "-o", target, three).status == 0
    before = target.read_bytes()
    assert len(before.splitlines()) == 3
    assert run("decode", "-o", target, "--filter", "nonsense", three).status == 2
    assert target.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.jsonl", "three.pcap"]


@pytest.mark.parametrize("target", ["no/such/dir/x.jsonl", ".", "/proc/version", "/dev/full"])
def test_output_that_cannot_be_written(three: Path, tmp_path: Path, target: str) -> None:
    where = target if target.startswith("/") else tmp_path / target
    result = kwsniff("decode", "-q", "-o", where, three)
    assert result.status == 2
    assert result.out == b""
    assert len(result.err.splitlines()) == 1
    assert "Traceback" not in result.err
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.mark.parametrize("command", ["decode", "audit", "diff"])
@pytest.mark.parametrize("file", ["missing.pcap", ".", "empty", "/dev/null", "text.txt"])
def test_files_that_are_no_captures(tmp_path: Path, command: str, file: str) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "text.txt").write_text("hello")
    path = file if file.startswith("/") else tmp_path / file
    more = {"decode": [], "audit": ["--target", "4.0"], "diff": [CAPTURE]}[command]
    result = run(command, *more, path)
    assert result.status == 2
    named = [line for line in result.err.splitlines() if str(path) in line]
    assert len(named) == 1
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    "args",
    [
        ["decod"],
        ["decode"],
        ["decode", "--nope", "x"],
        ["apis", "Fech"],
        ["audit", "x"],
        ["diff", "a"],
        ["--nope"],
        [],
    ],
)
def test_wrong_usage(args: list[str]) -> None:
    result = run(*args)
    assert result.status == 2
    assert result.err
    assert "Traceback" not in result.err


def test_near_misses() -> None:
    assert "Fetch" in run("apis", "Fech").err
    assert "decode" in run("decod").err


@pytest.mark.parametrize(
    "name", ["Fetch", "FETCH", "FetchRequest", "1", "fetch", "list_offsets", "ListOffset", "AlterIsr"]
)
def test_apis_by_any_name(name: str) -> None:
    result = run("apis", name)
    assert result.status == 0
    assert len(result.out.splitlines()) > 5


def test_apis_lists_every_key() -> None:
    text = run("apis").out.decode()
    for name in (
        "PRODUCE",
        "LEADER_AND_ISR",
        "CONTROLLED_SHUTDOWN",
        "SHARE_FETCH",
        "STREAMS_GROUP_HEARTBEAT",
    ):
        assert name in text


def test_a_closed_pipe() -> None:
    files = " ".join([str(CAPTURE)] * 5)
    for form in ("json", "table"):
        done = subprocess.run(
            f"{sys.executable} -m kwsniff decode -q --format {form} {files} | head -n 1",
            shell=True, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.stderr == b""
        assert len(done.stdout.splitlines()) == 1


def test_ctrl_c_leaves_the_old_output(tmp_path: Path) -> None:
    fifo, target = tmp_path / "fifo", tmp_path / "out"
    os.mkfifo(fifo)
    target.write_bytes(b"old")
    process = subprocess.Popen(
        [sys.executable, "-m", "kwsniff", "decode", "-o", target, fifo], stderr=subprocess.PIPE
    )
    with fifo.open("wb") as stream:
        stream.write(CAPTURE.read_bytes())
        stream.flush()
        deadline = time.monotonic() + 20
        while not list(tmp_path.glob(".out*")) and time.monotonic() < deadline:
            os.sched_yield()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert target.read_bytes() == b"old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fifo", "out"]


def test_strict(three: Path, tmp_path: Path) -> None:
    assert run("decode", "--strict", three).status == 0
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(three.read_bytes()[:-3])
    assert (run("decode", cut).status, run("decode", "--strict", cut).status) == (0, 1)
    assert run("decode", "--strict", cut, tmp_path / "none").status == 2


def test_int64_as_string(three: Path) -> None:
    tape = Tape()
    body = {"topics": [{"topic": "t", "partitions": [{"partition": 0, "fetchOffset": 2**62}]}]}
    tape.link().open().exchange(1, 4, 1, body, {"responses": []})
    three.write_bytes(tape.pcap())
    (line,) = run("decode", "--int64-as-string", three).lines
    assert line["request"]["topics"][0]["partitions"][0]["fetchOffset"] == str(2**62)
    assert isinstance(line["kwsniff"]["requestBytes"], int)
    (line,) = run("decode", three).lines
    assert line["request"]["topics"][0]["partitions"][0]["fetchOffset"] == 2**62


def test_the_table_is_for_people(three: Path) -> None:
    text = run("decode", "--format", "table", three).out.decode()
    assert "METADATA v1" in text
    assert "UNKNOWN_TOPIC_OR_PARTITION" in text
    assert "payments" in text
    assert "\x1b" not in text


def test_escape_sequences_of_the_wire_do_not_reach_the_terminal(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open()
    link.exchange(3, 1, 1, {"topics": [{"name": "\x1b[31mred\r\n"}]}, {}, client_id="\x1b]0;title\x07")
    path = tmp_path / "a.pcap"
    path.write_bytes(tape.pcap())
    for args in (
        ("decode", "--format", "table"),
        ("audit", "--target", "4.0"),
        ("audit", "--target", "4.0", "--format", "markdown"),
    ):
        result = run(*args, path)
        assert "\x1b" not in result.out.decode() + result.err
        assert "\x07" not in result.out.decode()


def test_the_summary_accounts_for_every_byte(three: Path) -> None:
    err = run("decode", three).err
    assert "3 exchanges" in err
    sizes = [
        sum(x["kwsniff"][k] for x in run("decode", three).lines) for k in ("requestBytes", "responseBytes")
    ]
    assert f"{sum(sizes):,} seen, {sum(sizes):,} decoded, 0 not decoded, 0 lost" in err


def test_diff(three: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pcap"
    tape = Tape()
    tape.now += 77 * 10**9
    link = tape.link(("10.0.0.9", 51234)).open()
    link.metadata(101).metadata(102, "payments")
    link.exchange(3, 1, 103, {"topics": [{"name": "x"}]}, {"topics": [{"name": "x", "errorCode": 5}]}).close()
    other.write_bytes(tape.pcap())
    assert run("diff", three, three).status == 0
    result = run("diff", "--format", "json", three, other)
    assert result.status == 1
    (found,) = [json.loads(line) for line in result.out.splitlines()]
    assert (found["path"], found["a"], found["b"]) == ("response.topics[0].errorCode", 3, 5)


def test_help_is_fast_and_imports_nothing_heavy() -> None:
    heavy = ("rich", "cel_expr_python", "lz4", "zstandard", "snappy", "scapy")
    code = f"import sys, kwsniff.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=20)
    assert done.stdout == b"[]\n"
