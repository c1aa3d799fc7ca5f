"""`kwsniff decode --jobs N`: to the last byte what one process says, and what if a process ends too early."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_builders import Capture, metadata
from click.testing import CliRunner, Result

from kwsniff.cli import decoding, main
from kwsniff.cli.turns import AHEAD, Turns
from kwsniff.cli.workers import WorkerError, Workers, processes
from kwsniff.errors import ConfigError
from kwsniff.model import Exchange
from kwsniff.output.share import PACKETS, Share
from kwsniff.reader import events

CAPTURES = sorted(map(str, (Path(__file__).parents[2] / "captures").iterdir()))


def run(*args: str) -> Result:
    result = CliRunner().invoke(main, args)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def said(result: Result) -> tuple[bytes, str, int]:
    return result.stdout_bytes, result.stderr, result.exit_code


def long_capture(path: Path) -> str:
    """Four connections side by side over many shares; every seventh answer has an error."""
    capture = Capture()
    conversations = [capture.client(40001 + number) for number in range(4)]
    for number in range(6 * PACKETS // 2):
        metadata(conversations[number * number % 4], f"topic-{number}", code=3 * (number % 7 == 0))
    path.write_bytes(capture.bytes())
    return str(path)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> str:
    return long_capture(tmp_path_factory.mktemp("jobs") / "long.pcap")


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--records",
        "--no-body --strict",
        "--format table",
        "--int64-as-string --start 2026-11-21T06:21:19",
        "--records --end 2026-11-21T06:21:25",
        "--filter size(kwsniff.errors)>0",
        "--format table --filter request.acks==1",
    ],
)
def test_the_same_as_one_process(options: str, long: str) -> None:
    args = ["decode", *options.split(), *CAPTURES, long]
    alone = said(run(*args))
    assert alone[0]
    for jobs in ("2", "3"):
        assert said(run(*args, "--jobs", jobs)) == alone


def test_every_process_has_lines_to_make(long: str) -> None:
    share = Share(3, 0)
    owners = [share.owner(event) for event in events([long]) if isinstance(event, Exchange)]
    assert min(owners.count(owner) for owner in range(3)) > len(owners) // 4


def test_a_file_that_cannot_be_read_is_named_once(long: str, tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no capture")
    args = ["decode", long, str(text), str(tmp_path / "missing.pcap"), CAPTURES[0]]
    alone = said(run(*args))
    assert alone[2] == 2
    assert alone[1].count("notes.txt") == alone[1].count("missing.pcap") == 1
    assert said(run(*args, "--jobs", "2")) == alone


def test_nothing_but_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pcap")
    assert said(run("decode", "--jobs", "2", missing)) == said(run("decode", missing))


def test_to_a_file(long: str, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    assert run("decode", "--jobs", "2", "-q", "-o", str(target), long).output == ""
    assert target.read_bytes() == run("decode", "-q", long).stdout_bytes


def test_standard_input_and_pipes_are_refused(long: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for name, shown in (("-", "standard input"), (str(pipe), str(pipe))):
        for jobs in ("2", "0"):
            result = run("decode", "--jobs", jobs, long, name)
            assert (result.exit_code, result.stdout) == (2, "")
            way_out = "save it to a file first, or leave --jobs out"
            assert result.stderr == f"kwsniff: --jobs: {shown} can only be read once; {way_out}\n"


def test_0_is_as_many_as_there_are_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 5}, raising=False)
    assert (processes(0), processes(1), processes(7)) == (3, 1, 7)
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert processes(0) == 4
    monkeypatch.delattr(os, "fork")
    assert processes(0) == 1
    with pytest.raises(ConfigError, match="cannot fork"):
        processes(2)


# What ends too early


KILLED = "was ended by SIGKILL (short of memory? fewer --jobs need less); what was decoded is not complete"


def die(*_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def no_memory(*_: Any) -> Any:
    raise MemoryError


def fail(*_: Any) -> Any:
    raise ValueError("of two\nlines")


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (
            die,
            KILLED,
        ),
        (no_memory, "is out of memory; fewer --jobs need less"),
        (fail, "failed (ValueError: of two lines); without --jobs it says more"),
    ],
)
@pytest.mark.parametrize("which", [0, 1])
def test_a_process_that_ends_too_early(
    long: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[..., Any],
    told: str,
    which: int,
) -> None:
    usual = decoding._part
    monkeypatch.setattr(decoding, "_part", lambda *args: end() if args[1].mine == which else usual(*args))
    target = tmp_path / "out.jsonl"
    target.write_text("as it was")
    result = run("decode", "--jobs", "2", "-o", str(target), long)
    assert (result.exit_code, result.output) == (2, f"kwsniff: a worker process {told}\n")
    assert target.read_text() == "as it was"
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize("what", ["bytes", "turns", "owner"])
def test_processes_that_did_not_read_the_same(what: str) -> None:
    def work(mine: int, turns: Turns) -> dict[str, Any]:
        turns.turn(1)
        if what == "bytes":
            turns.read = mine
        elif what == "turns" and mine:
            turns.turn(0)
        elif mine == 0:
            turns.turn(0)
            turns.turn(1)
        return {}

    with Workers(2, work) as team, pytest.raises(WorkerError, match="an input was changed meanwhile"):
        team.join(lambda _: None)


def test_one_that_is_far_ahead_waits() -> None:
    """The last turn is the only one of process 1, which comes there first, with more than it may keep."""
    piece = b"b" * (AHEAD // 4)

    def work(mine: int, turns: Turns) -> dict[str, Any]:
        for _ in range(1000 if mine == 0 else 0):
            turns.put(b"a")
        turns.turn(1)
        for _ in range(12 if mine == 1 else 0):
            turns.put(piece)
        return {"mine": mine}

    out: list[bytes] = []
    with Workers(2, work) as team:
        team.join(lambda data: out.append(bytes(data)))
    assert b"".join(out) == b"a" * 1000 + 12 * piece
    assert [told["mine"] for told in team.told] == [0, 1]


def test_a_piece_without_bytes_does_not_keep_a_process_busy_for_ever() -> None:
    there, here = os.pipe()
    os.set_blocking(here, False)
    turns = Turns(0, here, mmap.mmap(-1, 1), live=False)

    def late(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(5)
    try:
        turns.fail("")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        os.close(here)
        os.close(there)


def test_progress_is_the_first_process_s() -> None:
    def work(mine: int, turns: Turns) -> dict[str, Any]:
        if mine == 0:
            turns.progress(5, 10)
            turns.progress(10, None)
        return {}

    seen: list[tuple[int, int | None]] = []
    with Workers(2, work) as team:
        team.join(lambda _: None, lambda done, total: seen.append((done, total)))
    assert seen == [(5, 10), (10, None)]


def test_no_process_can_be_made(long: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    result = run("decode", "--jobs", "2", long)
    expected = "kwsniff: --jobs: cannot start 2 processes: Resource temporarily unavailable\n"
    assert (result.exit_code, result.output) == (2, expected)


# As a program


def start(*args: str, **extra: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "kwsniff", "decode", *args]
    return subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True, **extra)


def nobody_is_left(process: subprocess.Popen[bytes]) -> bool:
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_ctrl_c(long: str) -> None:
    """The terminal tells all processes. The first waits for its reader, as the pipe does not hold it all."""
    with start("--jobs", "2", long, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"{"
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    told = errors.decode().splitlines()
    assert process.returncode == 130
    assert told[0] == "kwsniff: interrupted"
    assert told[1].startswith("kwsniff: ")
    assert " exchange" in told[1]
    assert nobody_is_left(process)


def test_ctrl_c_leaves_the_file_as_it_was(long: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a process works: it is the parent that is told, and it waits for nobody."""
    parent = os.getpid()
    usual = decoding._part

    def part(*args: Any) -> dict[str, Any]:
        if args[1].mine == 0:
            os.kill(parent, signal.SIGINT)
        return usual(*args)

    monkeypatch.setattr(decoding, "_part", part)
    target = tmp_path / "out.jsonl"
    result = run("decode", "--jobs", "2", "-o", str(target), long)
    assert result.exit_code == 130
    told = result.stderr.splitlines()
    assert told[0] == f"kwsniff: interrupted; {target} is left as it was"
    assert told[1].startswith("kwsniff: ")
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_has_had_enough(long: str) -> None:
    with start("--jobs", "2", long, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
    assert nobody_is_left(process)


def test_a_worker_is_killed_while_all_wait_for_the_reader(long: str) -> None:
    children = Path("/proc/self/task")
    if not children.exists():
        pytest.skip("needs /proc to find the worker processes")
    many = [long] * 40  # more than all pipes and processes hold
    with start("--jobs", "2", "--filter", "true", *many, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"{"
        listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(listed[1]), signal.SIGKILL)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert errors.startswith(b"kwsniff: a worker process was ended by SIGKILL")
    assert errors.count(b"\n") == 1
    assert nobody_is_left(process)


@pytest.mark.parametrize("form", ["json", "table"])
def test_on_a_terminal(form: str) -> None:
    shown = []
    for jobs in ("1", "2"):
        ours, theirs = os.openpty()
        with start("-q", "--jobs", jobs, "--format", form, CAPTURES[0], stdout=theirs) as process:
            os.close(theirs)
            shown.append(read_all(ours))
        assert process.returncode == 0
    assert shown[0] == shown[1]
    assert shown[0].count(b"\n") > 10


def read_all(handle: int) -> bytes:
    """Of a terminal, whose end Linux tells by an error."""
    data = b""
    try:
        while piece := os.read(handle, 65536):
            data += piece
    except OSError:
        pass
    os.close(handle)
    return data
