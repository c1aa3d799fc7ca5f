"""Runs kwsniff and its rivals side by side and writes what came out of it: `make bench`.

In: which workloads, scale, runs. Out: results.json, a table and a plot. Programs take turns within a run, so
that what slows the machine down slows all of them; every ratio is of two times of one run. Keeps itself
small: a child begins as a copy of this process, and its peak memory would be this one's.

    python bench/run.py [--only A,C,messages] [--scale 0.01] [--runs 3] [--rivals kwsniff,tshark]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from time import monotonic
from typing import Any

import report

HERE = Path(__file__).parent
INPUTS = Path("build/bench")
CAPTURES = ("A", "B", "C", "C-apart")
GROWTH = ("C-quarter", "C-connections", "C-deep")
MESSAGES = "messages"
PORT = "tcp.port==9092,kafka"
HEADER_FIELDS = (
    "frame.number", "frame.time_epoch", "tcp.stream", "kafka.api_key", "kafka.api_version",
    "kafka.request_key", "kafka.response_key", "kafka.correlation_id", "kafka.client_id",
)  # fmt: skip
_KWSNIFF = (sys.executable, "-m", "kwsniff", "decode")
_LOOPS = (sys.executable, str(HERE / "loops.py"))


@dataclass(frozen=True)
class Program:
    """One way to go through a capture. The file's name goes behind `argv`."""

    name: str
    argv: tuple[str, ...]
    on: tuple[str, ...] = CAPTURES
    records: bool = False
    """It decodes records."""
    counted: bool = False
    """It says on stderr how many exchanges it saw."""
    option: str | None = None
    """An option of kwsniff's that it needs."""


PROGRAMS = (
    Program("cat", ("cat",)),
    Program("dpkt packet loop", (*_LOOPS, "dpkt")),
    Program("kwsniff packets to streams", (*_LOOPS, "streams")),
    Program("kwsniff --no-body", (*_KWSNIFF, "--no-body"), counted=True),
    Program("kwsniff", _KWSNIFF, on=CAPTURES + GROWTH, counted=True),
    Program("kwsniff --records", (*_KWSNIFF, "--records"), records=True, counted=True),
    Program("kwsniff --jobs 2", (*_KWSNIFF, "--jobs", "2"), counted=True, option="--jobs"),
    Program(
        "tshark -T fields",
        (
            "tshark",
            "-n",
            "-d",
            PORT,
            "-T",
            "fields",
            *(x for name in HEADER_FIELDS for x in ("-e", name)),
            "-r",
        ),
    ),
    Program("tshark -T ek", ("tshark", "-n", "-d", PORT, "-T", "ek", "-r"), records=True),
)


def why_not(program: Program) -> str | None:
    """What keeps a program from being run here."""
    if which(program.argv[0]) is None:
        return f"{program.argv[0]} is not installed"
    if program.argv == (*_LOOPS, "dpkt") and not _version("dpkt"):
        return "dpkt is not installed"
    if program.option and program.option not in _output((*_KWSNIFF, "--help")):
        return f"no option {program.option}"
    return None


def measure(program: Program, file: Path, exchanges: int) -> dict[str, Any]:
    """One run, output thrown away, start-up included -> wall and cpu seconds, peak bytes (of the largest
    process, where there are several), and `wrong` when it failed or saw another number of exchanges."""
    with tempfile.TemporaryFile() as said:
        start = monotonic()
        process = subprocess.Popen(
            (*program.argv, str(file)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = monotonic() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read(1 << 16).decode("utf-8", "replace")
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    sample = {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime, "peak": peak}
    wrong = _wrong(program, process.returncode, text, exchanges)
    return sample | ({"wrong": wrong} if wrong else {})


def _wrong(program: Program, status: int, text: str, exchanges: int) -> str | None:
    if status:
        return f"exit status {status}: {text.strip()[-300:]}"
    if not program.counted:
        return None
    told = re.search(r"([\d,]+) exchanges?, [\d,]+ connections?, ([\d,]+) faults?", text)
    if told and (told[1].replace(",", ""), told[2]) == (str(exchanges), "0"):
        return None
    return f"{exchanges:,} exchanges and no fault expected, told: {text.strip()[:200]}"


def captures(names: list[str], runs: int, scale: float, rivals: list[str]) -> dict[str, Any]:
    """Every program on every capture -> {workload: {"facts", "samples": {program: [...]}, "absent"}}."""
    chosen = [program for program in PROGRAMS if any(program.name.startswith(name) for name in rivals)]
    absent = {program.name: reason for program in chosen if (reason := why_not(program))}
    made: dict[str, Any] = {}
    for name in names:
        say(f"{name}: making the capture")
        subprocess.run(
            (sys.executable, HERE / "inputs.py", name, "--scale", str(scale), "--folder", INPUTS),
            check=True, stdout=subprocess.DEVNULL, env=os.environ | {"KWSNIFF_PURE": "1"},
        )  # fmt: skip
        made[name] = {"facts": json.loads((INPUTS / f"{name}.json").read_text()), "samples": {}, "absent": {}}
    for run in range(1, runs + 1):
        for name, found in made.items():
            for program in chosen:
                if name in program.on and program.name in absent:
                    found["absent"][program.name] = absent[program.name]
                elif name in program.on:
                    sample = measure(program, INPUTS / f"{name}.pcap", found["facts"]["exchanges"])
                    found["samples"].setdefault(program.name, []).append(sample)
                    say(f"{name}, run {run}: {program.name} {sample['wall']:.2f} s {sample.get('wrong', '')}")
    return made


def messages(runs: int, seconds: float) -> list[dict[str, Any]]:
    say("messages: kwsniff.wire, kio, kafka-python")
    text = _output(
        (sys.executable, str(HERE / "messages.py"), "--runs", str(runs), "--seconds", str(seconds))
    )
    found: list[dict[str, Any]] = json.loads(text)
    return found


def machine() -> dict[str, Any]:
    """What the numbers belong to."""
    cpu = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor() or platform.machine(),
    )
    memory = next(
        (int(x.split()[1]) * 1024 for x in _lines("/proc/meminfo") if x.startswith("MemTotal")), None
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    extensions = sorted(path.name.split(".")[0] for path in Path("kwsniff").glob("**/*.so"))
    pure = os.environ.get("KWSNIFF_PURE") == "1"
    told = {name: _version(name) for name in ("kwsniff", "kio", "kafka-python", "dpkt")}
    tshark = _output(("tshark", "--version")).split("\n")[0] if which("tshark") else ""
    return {
        "date": datetime.now().astimezone().isoformat(timespec="minutes"),
        "cpu": f"{cores} x {cpu}",
        "memory": memory,
        "load": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "extensions": [] if pure else extensions,
        "versions": {name: number for name, number in told.items() if number},
        "tshark": next(iter(re.findall(r"\d+\.\d+\.\d+", tshark)), None),
    }


def _lines(path: str) -> Iterable[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return ()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _output(argv: tuple[str, ...]) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="kwsniff and its rivals, side by side.")
    parts = (*CAPTURES, *GROWTH, MESSAGES)
    parser.add_argument("--only", default=",".join(parts), help=f"some of {','.join(parts)}")
    parser.add_argument(
        "--rivals", default="", help="only programs whose names begin so, e.g. kwsniff,tshark"
    )
    parser.add_argument("--runs", type=int, default=3, help="the medians are of (3)")
    parser.add_argument("--scale", type=float, default=1.0, help="of the captures, e.g. 0.01 to try it (1)")
    parser.add_argument("--seconds", type=float, default=0.2, help="per message, library and run (0.2)")
    parser.add_argument(
        "--output", type=Path,
        help="folder of results.json, .md and .png (bench when everything is run, else build/bench)",
    )  # fmt: skip
    given = parser.parse_args()
    given.only = given.only.split(",")
    if unknown := set(given.only) - set(parts):
        parser.error(f"no workload {', '.join(unknown)}: there are {', '.join(parts)}")
    given.whole = set(given.only) == set(parts) and given.scale == 1.0 and not given.rivals
    given.output = given.output or (HERE if given.whole else INPUTS)
    return given


def compile_all() -> None:
    """An installed package has its bytecode; a checkout has it only where Python may write it."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if found := find_spec("kwsniff"):
        for folder in found.submodule_search_locations or ():
            subprocess.run((sys.executable, "-m", "compileall", "-q", folder), check=True)


def main() -> int:
    given = options()
    compile_all()
    names = [name for name in given.only if name != MESSAGES]
    results: dict[str, Any] = {"machine": machine(), "runs": given.runs, "scale": given.scale}
    results["captures"] = captures(names, given.runs, given.scale, given.rivals.split(","))
    results["messages"] = messages(given.runs, given.seconds) if MESSAGES in given.only else []
    given.output.mkdir(parents=True, exist_ok=True)
    raw, table = given.output / "results.json", given.output / "results.md"
    raw.write_text(json.dumps(results, indent=1) + "\n")
    table.write_text(report.text(results))
    say(f"{raw}\n{table}")
    try:
        subprocess.run((sys.executable, HERE / "chart.py", raw, given.output / "results.png"), check=True)
    except subprocess.CalledProcessError:
        say("no plot: see above")
    samples = [
        x for found in results["captures"].values() for many in found["samples"].values() for x in many
    ]
    return 1 if any("wrong" in sample for sample in samples) else 0


if __name__ == "__main__":
    sys.exit(main())
