"""One message at a time: kwsniff.wire against kio and kafka-python. Run as a program; prints JSON.

    python bench/messages.py [--runs 3] [--seconds 0.2]

In: messages and record batches made here, the same bytes for all. Out: a list of rows, each with the
nanoseconds that a call takes in each library, run by run. A library that cannot do a row is absent from it.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from random import Random
from time import perf_counter_ns
from typing import Any

import templates

from kwsniff import wire
from kwsniff.wire import records

Call = Callable[[], Any]
FETCH, METADATA = 12, 12
KIO_NAMES = {"FetchRequest": "fetch.v12.request", "FetchResponse": "fetch.v12.response"}
KIO_NAMES |= {"MetadataRequest": "metadata.v12.request", "MetadataResponse": "metadata.v12.response"}
KAFKA_PYTHON = {"Fetch": "kafka.protocol.consumer", "Metadata": "kafka.protocol.metadata"}


def fetch_request(partitions: int) -> dict[str, Any]:
    asked = [
        {"partition": index, "currentLeaderEpoch": 7, "fetchOffset": 10**6 + index, "logStartOffset": 0,
         "partitionMaxBytes": 1 << 20}
        for index in range(partitions)
    ]  # fmt: skip
    return {"maxWaitMs": 500, "minBytes": 1, "topics": [{"topic": "orders", "partitions": asked}]}


def fetch_response(partitions: int) -> dict[str, Any]:
    random = Random(1)
    held = records.encode_records([templates.batch(random, "none", 2, 100)])
    told = [
        {"partitionIndex": index, "errorCode": 0, "highWatermark": 10**6, "lastStableOffset": 10**6,
         "logStartOffset": 0, "abortedTransactions": [], "records": held}
        for index in range(partitions)
    ]  # fmt: skip
    return {"sessionId": 0, "responses": [{"topic": "orders", "partitions": told}]}


def metadata_response(topics: int) -> dict[str, Any]:
    partitions = [
        {"errorCode": 0, "partitionIndex": index, "leaderId": index % 3 + 1, "leaderEpoch": 7,
         "replicaNodes": [1, 2, 3], "isrNodes": [1, 2, 3], "offlineReplicas": []}
        for index in range(3)
    ]  # fmt: skip
    told = [{"errorCode": 0, "name": f"topic-{index}", "partitions": partitions} for index in range(topics)]
    brokers = [{"nodeId": node, "host": f"kafka-{node}.example.com", "port": 9092} for node in (1, 2, 3)]
    return {"brokers": brokers, "clusterId": "lkc-9y2Xb1QfTt6a", "controllerId": 1, "topics": told}


MESSAGES = [
    ("FetchRequest", FETCH, fetch_request, "partitions", (1, 100, 1000)),
    ("FetchResponse", FETCH, fetch_response, "partitions", (1, 100, 1000)),
    ("MetadataResponse", METADATA, metadata_response, "topics", (1, 100, 1000)),
]
BATCHES = [("none", 1000), ("lz4", 1000), ("snappy", 1000), ("zstd", 1000), ("gzip", 1000), ("none", 1)]


def rows(runs: int, seconds: float) -> list[dict[str, Any]]:
    made = []
    for name, version, build, what, sizes in MESSAGES:
        for size in sizes:
            body = build(size)
            data = wire.encode(name, version, body)
            for doing, calls in (
                ("decode", decoders(name, version, data)),
                ("encode", encoders(name, version, data)),
            ):
                row = {"name": f"{name} v{version}", "doing": doing, "size": size, "what": what}
                made.append(row | {"bytes": len(data), "ns": timed(calls, runs, seconds)})
    for codec, count in BATCHES:
        data = records.encode_records([templates.batch(Random(2), codec, count, 100)])
        row = {
            "name": f"batch of {count}, {codec}",
            "doing": "records",
            "size": count,
            "what": "100-byte records",
        }
        made.append(row | {"bytes": len(data), "ns": timed(record_readers(data, codec), runs, seconds)})
    return made


def decoders(name: str, version: int, data: bytes) -> dict[str, Call]:
    calls: dict[str, Call] = {"kwsniff": lambda: wire.decode(name, version, data)}
    if kio := _kio(name):
        read, _ = kio
        calls["kio"] = lambda: read(data, 0)
    if (cls := _kafka_python(name, version)) is not None:
        calls["kafka-python"] = lambda: cls.decode(data)
    return calls


def encoders(name: str, version: int, data: bytes) -> dict[str, Call]:
    """Each library writes what it has read itself; the bytes must be those that it has read."""
    body = wire.decode(name, version, data)
    calls: dict[str, Call] = {"kwsniff": lambda: wire.encode(name, version, body)}
    if kio := _kio(name):
        read, write = kio
        entity, _ = read(data, 0)

        def with_kio() -> bytes:
            stream = io.BytesIO()
            write(stream, entity)
            return stream.getvalue()

        calls["kio"] = with_kio
    if (cls := _kafka_python(name, version)) is not None:
        message = cls.decode(data)
        calls["kafka-python"] = lambda: message.encode()
    for library, call in list(calls.items()):
        if bytes(call()) != data:
            print(f"{library} writes {name} otherwise than it was read: left out", file=sys.stderr)
            del calls[library]
    return calls


def record_readers(data: bytes, codec: str) -> dict[str, Call]:
    """Every record with key, value, offset and timestamp, the batch's CRC checked."""
    calls: dict[str, Call] = {"kwsniff": lambda: wire.decode_records(data)}
    if (kio := _maybe("kio.records.readers")) and codec == "none":
        calls["kio"] = lambda: kio.read_batch(data, 0)
    if kafka := _maybe("kafka.record"):

        def with_kafka_python() -> list[Any]:
            batch = kafka.MemoryRecords(data).next_batch()
            assert batch.validate_crc()
            return list(batch)

        calls["kafka-python"] = with_kafka_python
    return calls


def timed(calls: dict[str, Call], runs: int, seconds: float) -> dict[str, list[float]]:
    """Nanoseconds a call; the libraries take turns in each run."""
    found: dict[str, list[float]] = {library: [] for library in calls}
    for _ in range(runs):
        for library, call in calls.items():
            found[library].append(_per_call(call, seconds * 1e9))
    return found


def _per_call(call: Call, enough: float) -> float:
    count = 1
    while True:
        start = perf_counter_ns()
        for _ in range(count):
            call()
        spent = perf_counter_ns() - start
        if spent >= enough:
            return spent / count
        count = max(count * 2, int(count * enough * 1.1 / max(spent, 1)))


def _maybe(module: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return import_module(module)
    except ImportError:
        return None


def _kio(name: str) -> Any:
    serial, module = _maybe("kio.serial"), _maybe(f"kio.schema.{KIO_NAMES[name]}")
    if not serial or not module:
        return None
    cls = getattr(module, name)
    return serial.entity_reader(cls), serial.entity_writer(cls)


def _kafka_python(name: str, version: int) -> Any:
    stem = name.removesuffix("Request").removesuffix("Response")
    cls = getattr(_maybe(KAFKA_PYTHON[stem]), name, None)
    return None if cls is None else cls[version]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Messages and records, library against library.")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.2, help="that a measurement takes at least (0.2)")
    given = parser.parse_args()
    json.dump(rows(given.runs, given.seconds), sys.stdout)
