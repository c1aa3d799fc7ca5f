"""results.json -> a plot (PNG): seconds per capture and program, and messages against the Python libraries.

    python bench/chart.py build/bench/results.json build/bench/results.png

Log scales: the bars differ by factors of a hundred. Shorter is better.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
from report import many

mpl.use("Agg")
from matplotlib import pyplot as plt

OURS, THEIRS, FLOOR = "#0b6e4f", "#b0b7bf", "#dfe3e6"
LIBRARIES = {"kwsniff": OURS, "kio": "#d98324", "kafka-python": "#7a8b99"}


def _colour(name: str) -> str:
    return OURS if name.startswith("kwsniff") else FLOOR if name == "cat" else THEIRS


def programs(axes: Any, name: str, found: dict[str, Any]) -> None:
    bars = [
        (program, median(x["wall"] for x in samples), median(x["peak"] for x in samples))
        for program, samples in found["samples"].items()
        if not any("wrong" in x for x in samples)
    ]
    bars.sort(key=lambda bar: -bar[1])
    spent = [seconds for _, seconds, _ in bars]
    axes.barh([bar[0] for bar in bars], spent, color=[_colour(bar[0]) for bar in bars])
    axes.set_xscale("log")
    axes.set_xlim(min(spent) / 2, max(spent) * 12)
    for at, (_, seconds, peak) in enumerate(bars):
        axes.text(seconds * 1.1, at, f"{seconds:,.2f} s, {peak / 1e6:,.0f} MB", va="center", fontsize=8)
    facts = found["facts"]
    axes.set_title(f"{name}: {facts['about']}\n{facts['bytes'] / 1e6:,.0f} MB", fontsize=9)
    axes.set_xlabel("seconds (log scale; shorter is better) and peak memory")


def messages(axes: Any, rows: list[dict[str, Any]], title: str) -> None:
    """A group of bars per row; microseconds per call."""
    height = 0.8 / len(LIBRARIES)
    for place, (library, colour) in enumerate(LIBRARIES.items()):
        shown = [(at, median(row["ns"][library])) for at, row in enumerate(rows) if library in row["ns"]]
        at = [-(at + place * height) for at, _ in shown]
        spent = [ns / 1000 for _, ns in shown]
        axes.barh(at, spent, height=height, color=colour, label=library)
        for y, value in zip(at, spent, strict=True):
            axes.text(value * 1.1, y, f"{value:,.1f}", va="center", fontsize=7)
    axes.set_xscale("log")
    axes.set_xlim(right=axes.get_xlim()[1] * 3)
    axes.set_yticks([-(at + height) for at in range(len(rows))])
    axes.set_yticklabels([_label(row) for row in rows])
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("microseconds per call (log scale; shorter is better)")
    axes.legend(fontsize=8)


def _label(row: dict[str, Any]) -> str:
    return row["name"] if row["doing"] == "records" else f"{row['name']}\n{many(row)}"


def draw(results: dict[str, Any], target: Path) -> None:
    panels = [
        (programs, name, found) for name, found in results["captures"].items() if len(found["samples"]) > 1
    ]
    decoded = [row for row in results["messages"] if row["doing"] == "decode"]
    records = [row for row in results["messages"] if row["doing"] == "records"]
    texts = [
        (messages, decoded, "Decoding one message"),
        (messages, records, "Decoding a batch of 100-byte records, CRC checked"),
    ]
    panels += [panel for panel in texts if panel[1]]
    if not panels:
        return
    heights = [3.4 if panel[0] is programs else 1.0 + 0.55 * len(panel[1]) for panel in panels]
    figure, axes = plt.subplots(
        len(panels), 1, figsize=(10, sum(heights)), height_ratios=heights, squeeze=False, layout="constrained"
    )
    for place, (paint, *what) in zip(axes[:, 0], panels, strict=True):
        paint(place, *what)
        place.spines[["top", "right"]].set_visible(False)
        place.tick_params(labelsize=8)
    told = results["machine"]
    figure.suptitle(f"{told['cpu']}, {told['date'][:10]}; medians of {results['runs']}", fontsize=9)
    figure.savefig(target, dpi=110)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
    print(sys.argv[2], file=sys.stderr)
