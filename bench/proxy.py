"""What the proxy costs in front of a real broker: throughput, processor time, latency, memory.

    python bench/proxy.py                  # all of it: about a quarter of an hour
    python bench/proxy.py --scale 0.05     # does it work here? a minute
    python bench/proxy.py --runs 1 --ways direct,proxy,record

In: Apache Kafka from its jars (tests/brokers says what that needs), one node on loopback, and this machine's
cores, which broker, proxy and client share. Ways to the broker take turns within a run, so that what slows
the machine slows all of them; ratios are of one run. Out: tables, bench/proxy.md at full scale, else
build/bench/proxy.md. The clients are proxy_clients.py, a process each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from proxy_clients import HOST, PARTITIONS, TOPIC, Row
from proxy_report import Results, report

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "brokers"))

PRODUCERS = (1, 16)
FLOOD = 1_000_000
RIVAL = "github.com/grepplabs/kafka-proxy@latest"
WAYS = {"proxy": (), "log": ("--log", "{folder}/log.jsonl"), "record": ("--record", "{folder}/talk.pcapng")}
"""Options of `kwsniff proxy`; besides `direct` and `kafka-proxy`."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Way:
    name: str
    port: int
    pid: int | None = None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"


class Bench:
    """One broker, the ways to it, and what was measured."""

    def __init__(self, cluster: Any, ways: list[Way], results: Results) -> None:
        from confluent_kafka.admin import AdminClient

        self.cluster, self.ways, self.results = cluster, ways, results
        self.broker = cluster.nodes[0].process.pid
        self._topics = 0
        self._admin = AdminClient({"bootstrap.servers": ways[0].bootstrap})

    def warm_up(self) -> None:
        """Until the broker's hot code is compiled; not measured."""
        for way in self.ways:
            self._produced(way, 4, max(10 * self.results.scale, 3), None)
            *_, _ = _client(
                "flood", {"port": way.port, "requests": max(int(FLOOD * self.results.scale / 20), 20_000)}
            )

    def throughput(self, producers: int, runs: int) -> None:
        """As fast as it goes, then at half of what went without a proxy."""
        seconds = max(8 * self.results.scale, 1)
        direct = []
        for rate_of in ("maximum", "half"):
            rate = None if rate_of == "maximum" else median(direct) / 2
            for run in range(runs):
                for way in self.ways:
                    row = self._produced(way, producers, seconds, rate)
                    row |= {"run": run, "offered": rate, "at": rate_of}
                    self.results.throughput.append(row)
                    if way.name == "direct" and rate is None:
                        direct.append(row["rate"])

    def _produced(self, way: Way, producers: int, seconds: float, rate: float | None) -> Row:
        topic = self._create_topic()
        before = self._cpu(way)
        load = {"bootstrap": way.bootstrap, "topic": topic, "producers": producers, "rate": rate}
        *_, told = _client("produce", load | {"seconds": seconds})
        broker, proxy = (now - then for now, then in zip(self._cpu(way), before, strict=True))
        self._delete_topic(topic)
        row = {"way": way.name, "producers": producers, "rate": told["bytes"] / told["seconds"]}
        per_gb = 1e9 / told["bytes"]
        costs = {"client": told["cpu"] * per_gb, "broker": broker * per_gb, "proxy": proxy * per_gb}
        print(f"{way.name}, {producers} producers: {row['rate'] / 1e6:.0f} MB/s", file=sys.stderr)
        return row | costs

    def latency(self) -> None:
        scale = self.results.scale
        load = {"ports": {way.name: way.port for way in self.ways}}
        load |= {"rounds": max(round(8 * scale), 2), "seconds": 2 if scale >= 0.5 else 0.5}
        *_, self.results.latency = _client("latency", load)

    def memory(self) -> None:
        wanted = max(int(FLOOD * self.results.scale), 20_000)
        for way in self.ways:
            if way.pid is None:
                continue
            samples = [(0, _resident(way.pid))]
            for told in _client("flood", {"port": way.port, "requests": wanted}):
                samples.append((told["answered"], _resident(way.pid)))
            seconds = told["seconds"]
            row = {"way": way.name, "requests": told["answered"], "rate": told["answered"] / seconds}
            for part in (0, 0.1, 0.5, 1):
                row[f"{part:.0%}"] = next(kb for count, kb in samples if count >= told["answered"] * part)
            self.results.memory.append(row)
            print(
                f"{way.name}: {row['rate']:,.0f} requests/s, {row['10%']:,} to {row['100%']:,} kB",
                file=sys.stderr,
            )

    def _cpu(self, way: Way) -> tuple[float, float]:
        return _cpu(self.broker), _cpu(way.pid) if way.pid else 0.0

    def _create_topic(self) -> str:
        self._topics += 1
        name = f"{TOPIC}-{self._topics}"
        self.create_topic(name)
        return name

    def create_topic(self, name: str) -> None:
        from confluent_kafka.admin import NewTopic

        config = {"file.delete.delay.ms": "1000", "segment.bytes": str(256 << 20)}
        for made in self._admin.create_topics([NewTopic(name, PARTITIONS, 1, config=config)]).values():
            made.result(30)
        time.sleep(0.5)

    def _delete_topic(self, name: str) -> None:
        for gone in self._admin.delete_topics([name]).values():
            gone.result(30)
        time.sleep(0.5)


@contextlib.contextmanager
def _kwsniff(name: str, upstream: int, folder: Path) -> Iterator[Way]:
    port = _free_port()
    options = [option.format(folder=folder) for option in WAYS[name]]
    argv = [sys.executable, "-m", "kwsniff", "proxy", "-q", "--listen", f"{HOST}:{port}"]
    with _process([*argv, "--upstream", f"{HOST}:{upstream}", *options], port, folder / f"{name}.log") as pid:
        yield Way(name, port, pid)


@contextlib.contextmanager
def _rival(upstream: int, folder: Path, program: Path) -> Iterator[Way]:
    port = _free_port()
    argv = [program, "server", "--bootstrap-server-mapping", f"{HOST}:{upstream},{HOST}:{port}"]
    with _process([*map(str, argv), "--log-level", "warn"], port, folder / "kafka-proxy.log") as pid:
        yield Way("kafka-proxy", port, pid)


@contextlib.contextmanager
def _process(argv: list[str], port: int, log: Path) -> Iterator[int]:
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=output)
    try:
        _reached(process, port, log)
        yield process.pid
        if process.poll() is not None:
            raise SystemExit(f"{argv[0]} ended:\n{log.read_text()[-2000:]}")
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _reached(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise SystemExit(f"nobody listens on port {port}:\n{log.read_text()[-2000:]}")


def _rival_program(cache: Path) -> Path:
    """kafka-proxy, built from its module with `go install`. RuntimeError says why there is none."""
    if found := shutil.which("kafka-proxy"):
        return Path(found)
    program = cache / "bin" / "kafka-proxy"
    if not program.exists():
        if shutil.which("go") is None:
            raise RuntimeError("no `go` on the path")
        environment = os.environ | {"GOBIN": str(program.parent)}
        ran = subprocess.run(
            ["go", "install", RIVAL], capture_output=True, text=True, env=environment, timeout=600
        )
        if ran.returncode != 0:
            raise RuntimeError(" ".join(ran.stderr.split()))
    return program


def _client(kind: str, load: Row) -> Iterator[Row]:
    """What the client says, line by line; its result is the last."""
    argv = [sys.executable, str(HERE / "proxy_clients.py"), kind, json.dumps(load)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode != 0:
        raise SystemExit(f"the client failed: {kind} {load}")


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _resident(pid: int) -> int:
    """In kB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def _free_port() -> int:
    """One with room behind it for the brokers' listeners, below those that clients get."""
    for port in range(21_000, 30_000, 50):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise SystemExit("no free port")


def main() -> None:
    parser = argparse.ArgumentParser(description="What the proxy costs in front of a real broker.")
    parser.add_argument("--scale", type=float, default=1.0, help="of times and numbers (1)")
    parser.add_argument("--runs", type=int, help="of each throughput (5; a trial: 1)")
    parser.add_argument(
        "--ways", default="direct,proxy,log,kafka-proxy", help="direct and others, with commas"
    )
    given = parser.parse_args()
    import broker_jars

    results = Results(f"Kafka {broker_jars.NEWEST_4}", given.scale)
    measure(results, given.runs or (5 if given.scale >= 0.5 else 1), given.ways.split(","))
    place = HERE / "proxy.md" if given.scale == 1 else Path("build/bench/proxy.md")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(report(results))
    print(report(results))


def measure(results: Results, runs: int, names: list[str]) -> None:
    import broker_jars
    from broker_cluster import Cluster

    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kwsniff-bench-")))
        jars = broker_jars.jars(broker_jars.NEWEST_4)
        cluster = stack.enter_context(Cluster(jars, 1, folder / "kafka", jvm=("-Xms1g", "-Xmx1g")))
        port = cluster.nodes[0].ports["INTERNAL"]
        ways = [Way("direct", port)]
        for name in names:
            if name in WAYS:
                ways.append(stack.enter_context(_kwsniff(name, port, folder)))
            elif name == "kafka-proxy":
                try:
                    program = _rival_program(broker_jars.cache())
                    ways.append(stack.enter_context(_rival(port, folder, program)))
                except RuntimeError as why:
                    results.notes.append(f"kafka-proxy is not here: it could not be built ({why}).")
        bench = Bench(cluster, ways, results)
        bench.create_topic(TOPIC)
        bench.warm_up()
        for producers in PRODUCERS:
            bench.throughput(producers, runs)
        bench.latency()
        bench.memory()


if __name__ == "__main__":
    main()
