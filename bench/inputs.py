"""Writes the captures that `run.py` measures: the same bytes on every machine, made of real Kafka messages.

In: names of workloads and a scale. Out: `NAME.pcap` and `NAME.json` (what is in it: bytes, packets,
connections, exchanges, records) in a folder. Streams: memory does not grow with the file.

    python bench/inputs.py [NAME...] [--scale 1.0] [--folder build/bench]
"""

from __future__ import annotations

import argparse
import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import cycle
from pathlib import Path
from random import Random

import templates
from segments import BROKER, CLIENT, Capture, Connection
from templates import Talk

MEGABYTE = 1_000_000
FOLDER = Path("build/bench")
PORT = 9092
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True)
class Workload:
    """`size` in bytes or `exchanges`: when it ends. in_flight: requests sent before their responses."""

    about: str
    talks: Callable[[Random], list[list[Talk]]]
    size: int | None = None
    exchanges: int | None = None
    connections: int = 10
    in_flight: int = 1
    mss: int = 60_000
    """As on a loopback interface, or before segmentation offload has cut it."""
    together: bool = False
    """Frames share segments, as those of a busy connection do; else each turn ends with a push."""
    apart: bool = False
    """Each frame is pushed at once, as clients without Nagle's algorithm (TCP_NODELAY, all of them) do."""


def large_messages(random: Random) -> list[list[Talk]]:
    """Producers and consumers in turn, each with batches of about 16 messages of 1 kB, of all codecs."""
    batches = [
        templates.batch(random, codec, random.randint(12, 20), 1000) for _ in range(24) for codec in CODECS
    ]
    return _both_ways(batches)


def small_messages(random: Random) -> list[list[Talk]]:
    """Producers and consumers in turn, each with batches of 1000 messages of 100 bytes."""
    return _both_ways(
        [templates.batch(random, codec, 1000, 100) for _ in range(6) for codec in ("none", "lz4")]
    )


def _both_ways(batches: list[templates.Body]) -> list[list[Talk]]:
    topics = templates.TOPICS
    produced, fetched = [], []
    for index, made in enumerate(batches):
        topic, partition = topics[index % len(topics)], index % 12
        produced.append(templates.produce("order-service", topic, partition, made))
        fetched.append(templates.fetch("billing", topic, partition, made))
    return [produced, fetched]


def small_exchanges(random: Random) -> list[list[Talk]]:
    """What groups, clients that start and slow topics say; about 400 bytes with the answer."""
    made = []
    for number in range(32):
        client = f"service-{number}"
        topic = random.choice(templates.TOPICS)
        for size in (100, 150, 200):
            few = templates.batch(random, "none", random.randint(1, 2), size)
            made.append(templates.produce(client, topic, number % 12, few))
            made.append(templates.fetch(client, topic, number % 12, few))
        made += [templates.heartbeat(random, client) for _ in range(2)]
        made += [templates.metadata(random, client, 3, random.randint(3, 9)) for _ in range(2)]
        made += [templates.offset_commit(random, client) for _ in range(3)]
        made += [templates.offset_fetch(random, client) for _ in range(2)]
        made += [templates.list_offsets(random, client) for _ in range(2)]
        made.append(templates.find_coordinator(random, client))
    random.shuffle(made)
    return [made]


def _c(
    about: str, exchanges: int = 260_000, connections: int = 10, in_flight: int = 10, *, apart: bool = False
) -> Workload:
    return Workload(about, small_exchanges, None, exchanges, connections, in_flight, 1400, True, apart)


WORKLOADS = {
    "A": Workload("1 kB messages, about 16 a request, mixed codecs", large_messages, 400 * MEGABYTE),
    "B": Workload("100-byte messages, 1000 a batch, plain and lz4", small_messages, 160 * MEGABYTE),
    "C": _c("260,000 small exchanges, 1400-byte segments, 10 connections"),
    "C-apart": _c("C, each request and each response in packets of its own", apart=True),
    "C-quarter": _c("65,000 small exchanges: C, a quarter of it", 65_000),
    "C-connections": _c("C, on 10,000 connections", connections=10_000),
    "C-deep": _c("C, with 1,000 requests in flight on each connection", in_flight=1_000),
}


class Client:
    """One connection and the requests that wait on it for their answers."""

    def __init__(self, number: int, workload: Workload, capture: Capture, talks: list[Talk]) -> None:
        host = bytes((10, 0, number // 2000 + 1, number % 200 + 10))
        ends = (host, 32_768 + number % 28_000), (bytes((10, 1, 0, number % 3 + 1)), PORT)
        self.connection = Connection(capture, *ends, workload.mss, number * 2_654_435_761 + 12_345)
        self._workload = workload
        self._talks = cycle(talks[number * 7 % len(talks) :] + talks[: number * 7 % len(talks)])
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._asked = self._correlation_id = 0
        self._offset = number * 1_000_000
        self.connection.open()
        self._ask(templates.api_versions("starting"))
        self._turn()

    def round(self, count: int) -> int:
        """`count` requests, then the answers to what has arrived of them -> the records in all of them."""
        held = sum(self._ask(next(self._talks)) for _ in range(count))
        if self._workload.together:
            self._answer()
        else:
            self._turn()
        return held

    def _ask(self, talk: Talk) -> int:
        request = talk.request.fill(self._correlation_id, self._offset)
        self._asked += len(request)
        self._waiting.append((self._asked, talk.response.fill(self._correlation_id, self._offset)))
        self._correlation_id += 1
        self._offset += talk.records
        self._say(CLIENT, request)
        return talk.records

    def _say(self, end: int, frame: bytes) -> None:
        self.connection.say(end, frame)
        if self._workload.apart:
            self.connection.push(end)

    def _answer(self) -> None:
        waiting, arrived = self._waiting, self.connection.said(CLIENT)
        while waiting and waiting[0][0] <= arrived:
            self._say(BROKER, waiting.popleft()[1])

    def _turn(self) -> None:
        self.connection.push(CLIENT)
        self._answer()
        self.connection.push(BROKER)

    def close(self) -> None:
        self._turn()
        self.connection.close()


def write(name: str, folder: Path, scale: float = 1.0) -> dict[str, object]:
    """Makes the capture unless it is there already -> what is in it."""
    told = folder / f"{name}.json"
    wanted = {"name": name, "scale": scale, "maker": _maker()}
    if told.exists() and (facts := json.loads(told.read_text())).items() >= wanted.items():
        return dict(facts)
    folder.mkdir(parents=True, exist_ok=True)
    told.unlink(missing_ok=True)
    with (folder / f"{name}.pcap").open("wb") as stream:
        capture = Capture(stream, templates.NOW * 1000)
        exchanges, records, connections = _fill(capture, WORKLOADS[name], scale)
        capture.flush()
    facts = wanted | {
        "about": WORKLOADS[name].about,
        "bytes": capture.written,
        "packets": capture.packets,
        "connections": connections,
        "exchanges": exchanges,
        "records": records,
    }
    told.write_text(json.dumps(facts, indent=1) + "\n")
    return facts


def _fill(capture: Capture, workload: Workload, scale: float) -> tuple[int, int, int]:
    talks = workload.talks(Random(20_260_101))
    size = workload.size and int(workload.size * scale)
    left = workload.exchanges and int(workload.exchanges * scale)
    connections = min(workload.connections, left // 10 if left else workload.connections) or 1
    clients = [Client(number, workload, capture, talks[number % len(talks)]) for number in range(connections)]
    exchanges, records = len(clients), 0
    left = left and max(left - exchanges, 0)
    for client, count in _rounds(clients, workload.in_flight, left):
        records += client.round(count)
        exchanges += count
        if size and capture.written >= size:
            break
    for client in clients:
        client.close()
    return exchanges, records, connections


def _rounds(clients: list[Client], count: int, left: int | None) -> Iterator[tuple[Client, int]]:
    """Whose turn it is, and for how many requests."""
    for client in cycle(clients):
        count = count if left is None else min(count, left)
        if not count:
            return
        yield client, count
        left = None if left is None else left - count


def _maker() -> str:
    """Changes with the scripts that make the bytes, or with what they are to make."""
    here = Path(__file__).parent
    digest = sha256()
    for script in ("inputs.py", "segments.py", "templates.py"):
        digest.update((here / script).read_bytes())
    return digest.hexdigest()[:12]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the captures that the benchmarks read.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(WORKLOADS)} (all)")
    parser.add_argument("--scale", type=float, default=1.0, help="of the sizes, e.g. 0.01 to try it (1)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help=f"where to write ({FOLDER})")
    given = parser.parse_args()
    for name in given.names or WORKLOADS:
        if name not in WORKLOADS:
            parser.error(f"no workload {name}: there are {', '.join(WORKLOADS)}")
        facts = write(name, given.folder, given.scale)
        shown = ("bytes", "packets", "connections", "exchanges", "records")
        print(f"{name}:", ", ".join(f"{facts[key]:,} {key}" for key in shown))


if __name__ == "__main__":
    main()
