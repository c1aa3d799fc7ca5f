"""`kwsniff decode` as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_builders import Capture, metadata, ordinary
from click.testing import CliRunner, Result

from kwsniff.cli import main


@pytest.fixture
def capture(tmp_path: Path) -> str:
    path = tmp_path / "a.pcap"
    path.write_bytes(ordinary())
    return str(path)


def run(*args: str, **extra: Any) -> Result:
    result = CliRunner().invoke(main, args, **extra)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(text) for text in result.stdout.splitlines()]


def test_a_line_per_exchange_and_a_summary(capture: str) -> None:
    result = run("decode", capture)
    assert result.exit_code == 0
    first, second = lines(result)
    assert first["timestamp"] == "2026-11-21T06:00:00.002000000Z"
    assert first["kwsniff"]["topics"] == ["orders"]
    assert (first["kwsniff"]["requestPacket"], first["kwsniff"]["responsePacket"]) == (3, 4)
    assert first["totalTimeMs"] == 1.0
    assert second["kwsniff"]["errors"][0]["name"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert result.stderr.splitlines()[0] == "kwsniff: 2 exchanges, 1 connection, 0 faults"


def test_quiet_says_nothing(capture: str) -> None:
    for option in ("-q", "--quiet", "--no-summary"):
        assert run("decode", option, capture).stderr == ""


def test_a_filter(capture: str) -> None:
    result = run("decode", "--filter", '"missing" in kwsniff.topics', capture)
    assert [line["kwsniff"]["topics"] for line in lines(result)] == [["missing"]]
    assert result.stderr.splitlines()[0].endswith("; 1 line shown")


def test_a_filter_that_fails_on_lines_says_so(capture: str) -> None:
    result = run("decode", "--filter", "request.acks == 1", capture)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "the filter could not be evaluated on 2 lines: Key not found in map" in result.stderr


def test_a_table(capture: str) -> None:
    result = run("decode", "--format", "table", capture)
    rows = result.stdout.splitlines()
    assert rows[0].split() == [
        "time",
        "client",
        "client",
        "id",
        "API",
        "topic",
        "/",
        "group",
        "ms",
        "outcome",
    ]
    assert rows[1] == "-- 2026-11-21 (UTC)"
    assert rows[2].split() == [
        "06:00:00.002",
        "10.0.0.1:40001",
        "app",
        "METADATA",
        "v1",
        "orders",
        "1.000",
        "answered",
    ]
    assert rows[3].endswith("UNKNOWN_TOPIC_OR_PARTITION")


def test_no_body(capture: str) -> None:
    assert {line["request"] for line in lines(run("decode", "--no-body", capture))} == {None}


def test_start_and_end(capture: str) -> None:
    def shown(*args: str) -> list[str]:
        return [line["kwsniff"]["topics"][0] for line in lines(run("decode", *args, capture))]

    second = "2026-11-21T06:00:00.004Z"
    assert shown("--start", second) == ["missing"]
    assert shown("--end", second) == ["orders"]
    assert shown("--start", "1795240800", "--end", "2026-11-21T08:00:01+02:00") == ["orders", "missing"]


def test_output_to_a_file(capture: str, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    result = run("decode", "-o", str(target), capture)
    assert (result.exit_code, result.stdout) == (0, "")
    assert target.read_text() == run("decode", capture).stdout


def test_a_frame_over_the_limit_is_a_fault_and_strict_minds(capture: str) -> None:
    long = Capture()
    conversation = long.client()
    metadata(conversation)
    metadata(conversation, "x" * 200)
    Path(capture).write_bytes(long.bytes())
    result = run("decode", "--max-frame", "100", capture)
    assert result.exit_code == 0
    assert "frame_too_large" in result.stdout
    assert run("decode", "--strict", "--max-frame", "100", capture).exit_code == 1
    assert run("decode", "--strict", capture).exit_code == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["decode"], "kwsniff: Missing argument 'FILE...'; see kwsniff decode --help"),
        (["decode", "--frobnicate", "x"], "kwsniff: No such option '--frobnicate'"),
        (
            ["decode", "--filter", "foo", "CAPTURE"],
            "kwsniff: filter, column 1: no field 'foo'; there are timestamp",
        ),
        (["decode", "--max-frame", "lots", "CAPTURE"], "'lots' is no size: write 4096, 512K, 100M or 1G"),
        (["decode", "--max-frame", "0", "CAPTURE"], "'0' is no size"),
        (["decode", "--start", "noon", "CAPTURE"], "'noon' is no time: write 2026-11-21T06:00:00Z"),
        (["decode", "--port", "99999", "CAPTURE"], "99999 is not in the range"),
        (
            ["decode", "-o", "/nowhere/out", "CAPTURE"],
            "kwsniff: cannot write /nowhere/out: No such file or directory",
        ),
        (["decode", "--format", "xml", "CAPTURE"], "'xml' is not one of 'json', 'table'"),
        (["dekode", "CAPTURE"], "kwsniff: there is no command 'dekode' (did you mean 'decode'?)"),
        (["audit", "CAPTURE"], "kwsniff: Missing option '--target'"),
        (["audit", "--target", "9.9", "CAPTURE"], "kwsniff: unknown Kafka release 9.9"),
        (["diff", "CAPTURE", "-"], "standard input will not do"),
        (["apis", "Fetchh"], "there is no API or message 'Fetchh' (did you mean Fetch?)"),
        (["apis", "Fetch", "--version", "99"], "FetchRequest has the versions v0-18, not v99"),
        (["apis", "--version", "1"], "--version needs the NAME"),
    ],
)
def test_a_mistake_is_told_in_one_line(args: list[str], message: str, capture: str) -> None:
    result = run(*(capture if arg == "CAPTURE" else arg for arg in args))
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert message in line


def test_files_that_cannot_be_read_are_named_and_the_others_decoded(capture: str, tmp_path: Path) -> None:
    empty, text, missing = (str(tmp_path / name) for name in ("empty.pcap", "text.pcap", "missing.pcap"))
    Path(empty).write_bytes(b"")
    Path(text).write_text("once upon a time there was no capture\n")
    result = run("decode", "-q", empty, capture, text, missing, str(tmp_path))
    assert result.exit_code == 2
    assert len(lines(result)) == 2
    told = result.stderr.splitlines()
    assert len(told) == 4
    for line, name in zip(told, (empty, text, missing, str(tmp_path)), strict=True):
        assert line.startswith("kwsniff: ")
        assert name in line


def test_what_was_decoded_before_a_bad_file_is_written(capture: str, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    assert run("decode", "-o", str(target), capture, str(tmp_path / "missing.pcap")).exit_code == 2
    assert len(target.read_text().splitlines()) == 2


def test_a_file_that_breaks_off(capture: str) -> None:
    Path(capture).write_bytes(ordinary()[:-10])
    result = run("decode", capture)
    assert result.exit_code == 0
    broken = [line["kwsniff"]["fault"] for line in lines(result) if "fault" in line["kwsniff"]]
    assert [fault["reason"] for fault in broken] == ["capture_truncated"]
    assert run("decode", "--strict", capture).exit_code == 1


def program(*args: str, **extra: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "kwsniff", *args], capture_output=True, check=False, **extra)


def test_standard_input() -> None:
    result = program("decode", "-", input=ordinary())
    assert result.returncode == 0
    assert [json.loads(line)["kwsniff"]["topics"] for line in result.stdout.splitlines()] == [
        ["orders"],
        ["missing"],
    ]


def test_a_reader_that_has_had_enough(tmp_path: Path) -> None:
    capture = Capture()
    conversation = capture.client()
    for _ in range(500):
        metadata(conversation)
    path = tmp_path / "long.pcap"
    path.write_bytes(capture.bytes())
    process = subprocess.Popen(
        [sys.executable, "-m", "kwsniff", "decode", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process:
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize("to_file", [False, True])
def test_ctrl_c_says_what_was_done(
    capture: str, tmp_path: Path, to_file: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kwsniff import reader

    usual = reader.batches

    def interrupted(*args: Any) -> Any:
        yield next(iter(usual(*args)))[:1]
        raise KeyboardInterrupt

    monkeypatch.setattr(reader, "batches", interrupted)
    target = tmp_path / "out.jsonl"
    result = run("decode", capture, *(["-o", str(target)] if to_file else []))
    assert result.exit_code == 130
    told = result.stderr.splitlines()
    assert told[0] == "kwsniff: interrupted" + (f"; {target} is left as it was" if to_file else "")
    assert told[1].startswith("kwsniff: 1 exchange, ")
    assert len(result.stdout.splitlines()) == (0 if to_file else 1)
    assert not target.exists()


def test_help_imports_nothing_heavy() -> None:
    code = "import sys, kwsniff.cli as c; c.main(['--help'], standalone_mode=False); print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    loaded = set(result.stdout.splitlines()[-1].split())
    heavy = {
        "rich",
        "cel_expr_python",
        "msgspec",
        "asyncio",
        "kwsniff.wire",
        "kwsniff.model",
        "zstandard",
        "lz4",
    }
    assert not loaded & heavy
    assert "decode" in result.stdout


@pytest.mark.parametrize("command", [[], ["decode"], ["audit"], ["diff"], ["apis"]])
def test_help_has_examples(command: list[str]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert f"Examples:\n    kwsniff {' '.join(command)}".rstrip() in result.stdout


def test_version() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("kwsniff 0.")


def test_no_command_is_help() -> None:
    result = run()
    assert result.exit_code == 2
    assert "Commands:" in result.stderr


def test_a_full_disk(capture: str) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full")
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [sys.executable, "-m", "kwsniff", "decode", capture],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert result.returncode == 2
    assert b"Traceback" not in result.stderr
    assert b"kwsniff: cannot write standard output: No space left on device" in result.stderr
