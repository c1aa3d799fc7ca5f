"""What proxy.py measured -> the tables of proxy.md. Measures nothing."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from statistics import median

from proxy_clients import CONNECTIONS, DEPTH, RATE, SIZE, Row


@dataclass
class Results:
    broker: str
    scale: float
    notes: list[str] = field(default_factory=list)
    throughput: list[Row] = field(default_factory=list)
    latency: Row = field(default_factory=dict)
    memory: list[Row] = field(default_factory=list)


def report(results: Results) -> str:
    parts = [f"# The proxy in front of a real broker\n\n{_machine(results)}\n"]
    for at, title in (("maximum", "As fast as it goes"), ("half", "At half of the direct maximum")):
        parts.append(f"## {title}\n\n{_throughput(results.throughput, at)}")
    parts.append(f"## Latency at {RATE:,} requests a second\n\n{_latency(results.latency)}")
    parts.append(f"## Memory\n\n{_memory(results.memory)}")
    return "\n".join(parts)


def _throughput(rows: list[Row], at: str) -> str:
    head = ["producers", "way", "MB/s", "of direct", "least to most", "proxy", "broker", "client"]
    lines = []
    for producers, way in dict.fromkeys((row["producers"], row["way"]) for row in rows):
        mine = [row for row in rows if (row["producers"], row["way"], row["at"]) == (producers, way, at)]
        ratios = [row["rate"] / _beside(rows, row)["rate"] for row in mine]
        cells = [str(producers), way, f"{median(row['rate'] for row in mine) / 1e6:.1f}"]
        cells += [f"{median(ratios):.2f}", f"{min(ratios):.2f} to {max(ratios):.2f}"]
        cells += [f"{median(row[who] for row in mine):.2f}" for who in ("proxy", "broker", "client")]
        lines.append(cells)
    return _table(head, lines) + "\nProxy, broker, client: CPU seconds per GB (10^9 bytes of messages).\n"


def _beside(rows: list[Row], row: Row) -> Row:
    """The direct way in the same run."""
    same = ("producers", "run", "at")
    return next(
        each for each in rows if each["way"] == "direct" and all(each[key] == row[key] for key in same)
    )


def _latency(found: Row) -> str:
    lines = []
    for name, ways in found.items():
        for way, rounds in ways.items():
            cells = [name, way]
            for what in ("median", "p99"):
                cells.append(f"{median(each[what] for each in rounds):.3f}")
                added = [mine[what] - its[what] for mine, its in zip(rounds, ways["direct"], strict=True)]
                cells.append("" if way == "direct" else f"{median(added):.3f}")
            lines.append(cells)
    head = ["request", "way", "median ms", "added", "p99 ms", "added"]
    return _table(head, lines) + "\nMedians of the rounds; added: to the direct way in the same round.\n"


def _memory(rows: list[Row]) -> str:
    parts = ("0%", "10%", "50%", "100%")
    lines = [
        [
            row["way"],
            f"{row['requests']:,}",
            f"{row['rate']:,.0f}",
            *(f"{row[part] / 1000:.1f}" for part in parts),
        ]
        for row in rows
    ]
    head = ["way", "requests", "a second", "MB before", "after 10%", "after 50%", "in the end"]
    about = f"Resident memory; {CONNECTIONS} connections, {DEPTH} requests in flight on each"
    return _table(head, lines) + f"\n{about}, half Produce of 1 kB, half Metadata.\n"


def _table(head: list[str], lines: list[list[str]]) -> str:
    rule = ["---" if number < 2 else "---:" for number in range(len(head))]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [head, rule, *lines])


def _machine(results: Results) -> str:
    python = f"{platform.python_implementation()} {platform.python_version()}"
    system = f"{platform.system()} {platform.release()}"
    told = f"{results.broker}, one node; {python}, {system}; {os.cpu_count()} cores that broker, proxy and"
    told += f" client share. Messages of {SIZE:,} bytes, acks=all, librdkafka's batches (linger.ms=5)."
    scale = "" if results.scale == 1 else f" Only a trial, at scale {results.scale:g}."
    return " ".join([told + scale, *results.notes])
