"""Time grows with the input, not with its square; memory with limits, not with the file. Scaled down."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from acceptance_builders import MS, Tape, request, response

from kwsniff import reader
from kwsniff.model import Exchange, Outcome


def seconds(tmp_path: Path, tape: Tape) -> float:
    path = tmp_path / "a.pcap"
    path.write_bytes(tape.pcap())
    began = time.process_time()
    for _ in reader.events([str(path)]):
        pass
    return time.process_time() - began


PIN = b"\x05\xff\xff\xff\0\3\0\1\0\0\0\x09\0\3app"


def lost_request(filler: bytes, size: int) -> Tape:
    """A request is lost; behind it stand bytes that look like beginnings of large requests."""
    tape = Tape()
    link = tape.link(mss=1448).open().metadata(1)
    link.client(b"x" * 40, captured=False).client(PIN + filler * (size // len(filler)))
    return tape


def lost_answer(filler: bytes, size: int) -> Tape:
    tape = Tape()
    link = tape.link(mss=1448).open().metadata(1)
    link.ask(3, 1, 0x00FFFFFF, {"topics": []}).ask(3, 1, 0, {"topics": []})
    link.broker(b"x" * 40, captured=False).broker(filler * (size // len(filler)))
    return tape


def tiny_segments(_: bytes, size: int) -> Tape:
    tape = Tape()
    tape.link(mss=3).open().client(request(3, 1, 1, bytes(size // 20)))
    return tape


SHAPES: dict[str, tuple[Callable[[bytes, int], Tape], bytes]] = {
    "request starts": (lost_request, b"\x05\xff\xff\xff\0\3\0\1"),
    "request zeros": (lost_request, bytes(8)),
    "answer starts": (lost_answer, b"\0\xff\xff\xff"),
    "answer zeros": (lost_answer, bytes(8)),
    "tiny segments": (tiny_segments, b""),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_four_times_the_bytes_take_about_four_times_as_long(tmp_path: Path, shape: str) -> None:
    make, filler = SHAPES[shape]
    small, large = (seconds(tmp_path, make(filler, size)) for size in (150_000, 600_000))
    assert large < max(small, 0.1) * 10


def test_thousands_of_waiting_requests_and_a_gap(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open().metadata(1)
    link.client(b"".join(request(3, 1, n, {"topics": []}) for n in range(8000)))
    link.broker(b"x" * 100, captured=False).broker(bytes(range(256)) * 1000)
    assert seconds(tmp_path, tape) < 10


def test_many_pipelined_requests(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link(mss=1448).open()
    link.client(b"".join(request(3, 1, n, {"topics": []}) for n in range(10_000)))
    link.broker(b"".join(response(3, 1, n, {}) for n in range(10_000)))
    path = tmp_path / "a.pcap"
    path.write_bytes(tape.pcap())
    found = Counter(e.outcome for e in reader.events([str(path)]) if isinstance(e, Exchange))
    assert found == {Outcome.ANSWERED: 10_000}


def test_many_connections(tmp_path: Path) -> None:
    tape = Tape()
    for number in range(2000):
        tape.link((f"10.1.{number % 200}.{number // 200}", 30_000 + number)).open().metadata(number)
    path = tmp_path / "a.pcap"
    path.write_bytes(tape.pcap())
    found = Counter(e.outcome for e in reader.events([str(path)]) if isinstance(e, Exchange))
    assert found == {Outcome.ANSWERED: 2000}


_MEASURED = """
import re, sys
from kwsniff.cli import main
try:
    main(["decode", "-q", "-o", "/dev/null", *sys.argv[1:]])
finally:
    print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024)
"""


def test_memory_stays_bounded_over_a_long_capture(tmp_path: Path) -> None:
    """60 MB in frames of 64 KB: the same few MB as for 6."""
    tape = Tape()
    link = tape.link(mss=16_000).open()
    body = {
        "acks": 1,
        "topicData": [{"name": "t", "partitionData": [{"index": 0, "records": bytes(64_000)}]}],
    }
    for number in range(900):
        link.exchange(0, 7, number, body, {})
        tape.now += 100 * MS
    path = tmp_path / "a.pcap"
    path.write_bytes(tape.pcap())
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, str(path)], capture_output=True, check=False, timeout=60
    )
    assert int(done.stdout.split()[-1]) < 150
