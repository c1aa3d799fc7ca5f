"""Where the time goes: kwsniff on one workload under cProfile, or under perf for what is compiled.

    python bench/hotspots.py C [--scale 0.1] [--perf] [--lines 25] [-- --no-body]

cProfile names every Python function and takes 2 to 3 times as long for it; compiled functions are one line
each, and what they call in C is inside. perf (Linux) sees the C functions, of Python the interpreter.
What is behind `--` goes to `kwsniff decode`.
"""

from __future__ import annotations

import argparse
import os
import pstats
import subprocess
import sys
from pathlib import Path

import inputs

DECODE = ("-m", "kwsniff", "decode", "--quiet")


def with_cprofile(argv: list[str], result: Path, lines: int) -> None:
    subprocess.run(
        (sys.executable, "-m", "cProfile", "-o", result, *DECODE, *argv),
        check=True,
        stdout=subprocess.DEVNULL,
    )
    pstats.Stats(str(result)).strip_dirs().sort_stats("tottime").print_stats(lines)


def with_perf(argv: list[str], result: Path, lines: int) -> None:
    record = ("perf", "record", "--quiet", "--output", result, "--freq", "999")
    environment = os.environ | {"PYTHONPERFSUPPORT": "1"}  # from Python 3.12 on
    subprocess.run(
        (*record, sys.executable, *DECODE, *argv), check=True, stdout=subprocess.DEVNULL, env=environment
    )
    shown = subprocess.run(
        ("perf", "report", "--stdio", "--input", result, "--sort", "dso,symbol", "--percent-limit", "0.5"),
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    told = [line for line in shown.splitlines() if line.strip() and not line.startswith("#")]
    print("\n".join(told[:lines]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Where the time goes.", epilog="Behind --: options of decode."
    )
    parser.add_argument("name", choices=inputs.WORKLOADS, help="the workload")
    parser.add_argument("--scale", type=float, default=0.1, help="of the capture (0.1)")
    parser.add_argument("--perf", action="store_true", help="perf instead of cProfile")
    parser.add_argument("--lines", type=int, default=25, help="that are shown (25)")
    own, _, rest = " ".join(sys.argv[1:]).partition(" -- ")
    given = parser.parse_args(own.split())
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    folder = inputs.FOLDER / "profiles"
    inputs.write(given.name, folder, given.scale)
    argv = [*rest.split(), str(folder / f"{given.name}.pcap")]
    name = "".join([given.name, *rest.split()])
    if given.perf:
        with_perf(argv, folder / f"{name}.perf", given.lines)
    else:
        with_cprofile(argv, folder / f"{name}.prof", given.lines)


if __name__ == "__main__":
    main()
