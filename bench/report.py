"""Results -> the markdown tables of results.md. Measures nothing.

    python bench/report.py build/bench/results.json

Ratios are medians of the runs' own ratios, with the least and the greatest; all else are medians.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

EK, FIELDS, DPKT = "tshark -T ek", "tshark -T fields", "dpkt packet loop"
GOALS = [
    ("full decode to JSON lines", "kwsniff", EK, {"A": 50, "C": 50, "C-apart": 50, "B": None}),
    ("the same, records too", "kwsniff --records", EK, {"B": 15, "A": None, "C": None}),
    ("headers only", "kwsniff --no-body", FIELDS, {"A": 1, "B": 1, "C": 10, "C-apart": 10}),
    (
        "packets to ordered streams",
        "kwsniff packets to streams",
        DPKT,
        {"C": 5, "C-apart": 5, "A": None, "B": None},
    ),
]
"""What, with which of ours, against whom, and how many times as fast it is to be on which workload."""

Samples = list[dict[str, float]]
Rows = list[list[str]]


def text(results: dict[str, Any]) -> str:
    parts = ["# Results\n", _machine(results), _inputs(results["captures"])]
    if compared := _ratios(results["captures"]):
        parts += ["## Ratios\n", _table(_RATIO_HEAD, compared)]
    for name, found in results["captures"].items():
        if len(found["samples"]) > 1:
            parts += [
                f"## {name}: {found['facts']['about']}\n",
                _table(_PROGRAM_HEAD, list(_programs(found))),
            ]
    growth = list(_growth(results["captures"]))
    if len(growth) > 1:
        parts += ["## Time per exchange, as the input grows\n", _table(_GROWTH_HEAD, growth)]
    for title, doing in (("Messages", ("decode", "encode")), ("Records, CRC checked", ("records",))):
        rows = [_message(row) for row in results["messages"] if row["doing"] in doing]
        if rows:
            parts += [f"## {title}\n", _table(_MESSAGE_HEAD, rows)]
    return "\n".join(parts)


def _machine(results: dict[str, Any]) -> str:
    told = results["machine"]
    memory = f", {told['memory'] / 2**30:.0f} GiB" if told["memory"] else ""
    versions = [f"{name} {number}" for name, number in told["versions"].items()]
    versions.append(f"tshark {told['tshark']}" if told["tshark"] else "no tshark")
    compiled = ", ".join(told["extensions"]) or "nothing (pure Python)"
    scale = "" if results["scale"] == 1 else f" Captures at {results['scale']:g} of their size."
    return (
        f"{told['date']}; {told['cpu']}{memory}; {told['system']}; load {told['load']:.1f} at the start.  \n"
        f"Python {told['python']}, {', '.join(versions)}. Compiled: {compiled}.  \n"
        f"Runs: {results['runs']}, of which the medians are.{scale} All programs read from the page cache and"
        " write to /dev/null; start-up is included.\n"
    )


def _inputs(captures: dict[str, Any]) -> str:
    head = ["capture", "what", "MB", "packets", "connections", "exchanges", "records"]
    rows = []
    for name, found in captures.items():
        facts = found["facts"]
        counts = [f"{facts[key]:,}" for key in ("packets", "connections", "exchanges", "records")]
        rows.append([name, facts["about"], f"{facts['bytes'] / 1e6:.0f}", *counts])
    return _table(head, rows) if rows else ""


_RATIO_HEAD = ["times as fast", "with", "as", "on", "measured", "least to most", "goal"]


def _ratios(captures: dict[str, Any]) -> Rows:
    rows = []
    for what, ours, theirs, goals in GOALS:
        for name, goal in sorted(goals.items()):
            samples = captures.get(name, {}).get("samples", {})
            if ours in samples and theirs in samples:
                found = ratios(samples[theirs], samples[ours])
                spread = f"{min(found):.3g} to {max(found):.3g}"
                rows.append([what, ours, theirs, name, f"**{median(found):.3g}**", spread, f"{goal or ''}"])
    return rows


def ratios(theirs: Samples, ours: Samples) -> list[float]:
    """How many times as fast ours was, run by run."""
    return [a["wall"] / b["wall"] for a, b in zip(theirs, ours, strict=True)]


_PROGRAM_HEAD = [
    "program", "s", "cpu s", "MB/s", "exchanges/s", "records/s", "peak MB", "ek / it", "fields / it",
]  # fmt: skip


def _programs(found: dict[str, Any]) -> Iterator[list[str]]:
    samples, facts = found["samples"], found["facts"]
    for name, own in samples.items():
        wrong = next((x["wrong"] for x in own if "wrong" in x), None)
        if wrong:
            yield [name, f"failed: {wrong}".replace("|", "/").replace("\n", " "), *[""] * 7]
            continue
        wall = middle(own, "wall")
        above = name.startswith(("kwsniff", "tshark")) and "streams" not in name
        decodes = "--records" in name or name == EK
        yield [
            name,
            f"{wall:.2f}",
            f"{middle(own, 'cpu'):.2f}",
            f"{facts['bytes'] / 1e6 / wall:,.0f}",
            f"{facts['exchanges'] / wall:,.0f}" if above else "",
            f"{facts['records'] / wall:,.0f}" if decodes else "",
            f"{middle(own, 'peak') / 1e6:,.0f}",
            *(_times(samples, rival, own) if rival != name else "1" for rival in (EK, FIELDS)),
        ]
    for name, reason in found["absent"].items():
        yield [name, reason, *[""] * 7]


def _times(samples: dict[str, Samples], rival: str, own: Samples) -> str:
    return f"{median(ratios(samples[rival], own)):.3g}" if rival in samples else ""


def middle(samples: Samples, key: str) -> float:
    return median(sample[key] for sample in samples)


_GROWTH_HEAD = ["capture", "what", "exchanges", "connections", "us per exchange", "peak MB"]


def _growth(captures: dict[str, Any]) -> Iterator[list[str]]:
    for name, found in captures.items():
        own = found["samples"].get("kwsniff")
        if own and name.startswith("C"):
            facts = found["facts"]
            spent = middle(own, "wall") / facts["exchanges"] * 1e6
            counts = [f"{facts[key]:,}" for key in ("exchanges", "connections")]
            yield [name, facts["about"], *counts, f"{spent:.2f}", f"{middle(own, 'peak') / 1e6:,.0f}"]


_MESSAGE_HEAD = [
    "what",
    "doing",
    "bytes",
    "kwsniff",
    "kio",
    "kafka-python",
    "kio / kwsniff",
    "kafka-python / kwsniff",
]


def _message(row: dict[str, Any]) -> list[str]:
    spent = row["ns"]
    ours = spent["kwsniff"]
    records = row["doing"] == "records"
    shown: Callable[[float], str] = (
        (lambda ns: f"{row['size'] / ns * 1e9:,.0f}/s") if records else (lambda ns: f"{ns / 1000:,.1f} us")
    )
    rivals = ("kio", "kafka-python")
    times = [
        f"{median(a / b for a, b in zip(spent[rival], ours, strict=True)):.3g}" if rival in spent else ""
        for rival in rivals
    ]
    what = row["name"] if records else f"{row['name']}, {many(row)}"
    cells = [shown(median(spent[name])) if name in spent else "" for name in ("kwsniff", *rivals)]
    return [what, row["doing"], f"{row['bytes']:,}", *cells, *times]


def many(row: dict[str, Any]) -> str:
    """How large a message is."""
    return f"{row['size']:,} {row['what'] if row['size'] != 1 else row['what'].removesuffix('s')}"


def _table(head: list[str], rows: Rows) -> str:
    """Words to the left, numbers to the right."""
    numbers = [
        all(row[at][:1].isdigit() or row[at][:1] in "*" for row in rows if row[at]) for at in range(len(head))
    ]
    lines = [head, ["---:" if number else "---" for number in numbers], *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


if __name__ == "__main__":
    print(text(json.loads(Path(sys.argv[1]).read_text())))
