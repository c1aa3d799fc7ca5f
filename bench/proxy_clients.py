"""The clients of proxy.py, each a process of its own: what is to be done as JSON, results as JSON on stdout.

python bench/proxy_clients.py produce|latency|flood '{...}'
"""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
import threading
import time
from statistics import quantiles
from typing import Any

HOST = "127.0.0.1"
SIZE = 1000
TOPIC = "bench"
PARTITIONS = 4
RATE = 1000
DEPTH, CONNECTIONS = 50, 8
PRODUCE, METADATA = (0, 9), (3, 9)

Row = dict[str, Any]


def produce(load: Row) -> Row:
    """Messages of 1 kB, acks=all, as fast as it goes or at a rate; all must be there in the end."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    errors: list[Any] = []
    settings = {"bootstrap.servers": load["bootstrap"], "acks": "all", "linger.ms": 5}
    settings |= {
        "delivery.report.only.error": True,
        "queue.buffering.max.kbytes": 262_144 // load["producers"],
    }
    producers = [
        Producer(settings, on_delivery=lambda error, _: errors.append(error))
        for _ in range(load["producers"])
    ]
    value = os.urandom(SIZE)
    for producer in producers:
        producer.produce(load["topic"], value)
        producer.flush(30)
    cpu, begun = _own_cpu(), time.perf_counter()
    sent = _send(producers, load, value, begun)
    left = sum(producer.flush(120) for producer in producers)
    spent, cpu = time.perf_counter() - begun, _own_cpu() - cpu
    reader = Consumer({"bootstrap.servers": load["bootstrap"], "group.id": "bench"})
    ends = [reader.get_watermark_offsets(TopicPartition(load["topic"], n), 30) for n in range(PARTITIONS)]
    reader.close()
    stored = sum(end for _, end in ends) - len(producers)
    if errors or left or stored != sent:
        raise SystemExit(f"{sent} messages sent, {stored} stored, {left} left, errors {errors[:3]}")
    return {"bytes": sent * SIZE, "seconds": spent, "cpu": cpu}


def _send(producers: list[Any], load: Row, value: bytes, begun: float) -> int:
    sent, count, rate = 0, len(producers), load["rate"]
    end = begun + load["seconds"]
    while (now := time.perf_counter()) < end:
        due = 200 if rate is None else int((now - begun) * rate / SIZE) - sent
        if due < 1:
            time.sleep(0.002)
        for _ in range(due):
            producer = producers[sent % count]
            try:
                producer.produce(load["topic"], value)
                sent += 1
            except BufferError:  # its queue is full: the broker is the limit
                producer.poll(0.005)
    return sent


def latency(load: Row) -> Row:
    """One request at a time, 1,000 a second, the ways in turns: milliseconds until the answer is there."""
    found: Row = {}
    sockets = {way: socket.create_connection((HOST, port)) for way, port in load["ports"].items()}
    for connection in sockets.values():
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for measured in range(-1, load["rounds"]):
        for name, frame in (("Produce", _produce_frame(0)), ("Metadata", _metadata_frame(0))):
            for way, connection in sockets.items():
                took = _paced(connection, frame, load["seconds"])
                if measured >= 0:
                    found.setdefault(name, {}).setdefault(way, []).append(took)
    return {
        name: {way: [_quantiles(took) for took in rounds] for way, rounds in ways.items()}
        for name, ways in found.items()
    }


def _paced(connection: socket.socket, frame: bytes, seconds: float) -> list[float]:
    """A request that is late because the answer before it was late began when it was due."""
    took, due = [], time.perf_counter()
    for _ in range(max(int(seconds * RATE), 100)):
        due += 1 / RATE
        behind = time.perf_counter() > due
        if not behind:
            time.sleep(max(due - time.perf_counter(), 0))
        begun = due if behind else time.perf_counter()
        connection.sendall(frame)
        _answers(connection, 1)
        took.append((time.perf_counter() - begun) * 1e3)
    return took


def _quantiles(took: list[float]) -> Row:
    cuts = quantiles(took, n=100)
    return {"median": cuts[49], "p99": cuts[98]}


def flood(load: Row) -> Row:
    """Pipelined requests on several connections; says on stdout how many were answered, now and then."""
    chunk = b"".join(_produce_frame(n) if n % 2 else _metadata_frame(n) for n in range(DEPTH))
    each = load["requests"] // CONNECTIONS // DEPTH
    answered = [0] * CONNECTIONS

    def run(number: int) -> None:
        with socket.create_connection((HOST, load["port"])) as connection:
            for _ in range(each):
                connection.sendall(chunk)
                _answers(connection, DEPTH)
                answered[number] += DEPTH

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(CONNECTIONS)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.2)
        print(json.dumps({"answered": sum(answered)}), flush=True)
    if sum(answered) != each * DEPTH * CONNECTIONS:
        raise SystemExit(f"only {sum(answered)} of {each * DEPTH * CONNECTIONS} requests were answered")
    return {"answered": sum(answered), "seconds": time.perf_counter() - begun}


def _answers(connection: socket.socket, count: int) -> None:
    """Read so many frames, and not a byte more."""
    for _ in range(count):
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        if size == 0 or len(connection.recv(size, socket.MSG_WAITALL)) < size:
            raise SystemExit("the connection was closed")


def _produce_frame(correlation_id: int) -> bytes:
    """acks=all, one record of 1 kB."""
    from kwsniff.wire import records

    batch = {"codec": "none", "records": [{"key": None, "value": b"x" * SIZE, "timestamp": 1}]}
    data = records.encode_records([batch | {"baseOffset": 0, "partitionLeaderEpoch": -1}])
    partition = {"index": correlation_id % PARTITIONS, "records": data}
    topic = {"name": TOPIC, "partitionData": [partition]}
    return _frame(PRODUCE, correlation_id, {"acks": -1, "timeoutMs": 30_000, "topicData": [topic]})


def _metadata_frame(correlation_id: int) -> bytes:
    return _frame(METADATA, correlation_id, {"topics": [{"name": TOPIC}]})


def _frame(api: tuple[int, int], correlation_id: int, body: Row) -> bytes:
    from kwsniff import wire

    message, version = wire.request_of(api[0]), api[1]
    assert message is not None
    header = {"requestApiKey": api[0], "requestApiVersion": version}
    header |= {"correlationId": correlation_id, "clientId": "bench"}
    kind = wire.header_versions(*api)[0]
    frame = wire.encode("RequestHeader", kind, header) + wire.encode(message.name, version, body)
    return len(frame).to_bytes(4, "big") + frame


def _own_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


LOADS = {"produce": produce, "latency": latency, "flood": flood}

if __name__ == "__main__":
    print(json.dumps(LOADS[sys.argv[1]](json.loads(sys.argv[2]))))
