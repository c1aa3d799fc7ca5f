"""Real clients, unchanged, through the proxy to a mock cluster of three brokers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from confluent_kafka import Consumer, Producer
from mock_cluster import mock_cluster, proxy
from standing import free_ports

from kwsniff.model import Endpoint
from kwsniff.proxy.authority import create

COUNT = 200


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[Endpoint]]:
    with mock_cluster() as found:
        yield found


def produce(topic: str, **config: Any) -> Producer:
    """All messages are delivered, to all partitions."""
    producer = Producer({"linger.ms": 5, **config})
    failed: list[object] = []
    for number in range(COUNT):
        producer.produce(
            topic, key=str(number), value=f"v{number}", on_delivery=lambda error, _: failed.append(error)
        )
    assert producer.flush(8) == 0
    assert failed == [None] * COUNT
    return producer


def consume(topic: str, **config: Any) -> set[str]:
    """The values that a consumer group gets."""
    consumer = Consumer({"group.id": f"group-{topic}", "auto.offset.reset": "earliest", **config})
    consumer.subscribe([topic])
    found: set[str] = set()
    until = time.monotonic() + 9
    while len(found) < COUNT and time.monotonic() < until:
        for message in consumer.consume(COUNT, timeout=0.2):
            assert message.error() is None
            value = message.value()
            assert value is not None
            found.add(value.decode())
    consumer.close()
    return found


def upstream(cluster: list[Endpoint]) -> str:
    return ",".join(map(str, cluster))


def lines(text: str) -> list[dict[str, Any]]:
    """Log lines without what only a capture, or only a log, can know."""
    found = [json.loads(line) for line in text.splitlines()]
    for line in found:
        for key in ("file", "requestPacket", "responsePacket"):
            line["kwsniff"].pop(key, None)
        for fault in [*line["kwsniff"].get("faults", ()), line["kwsniff"].get("fault") or {}]:
            fault.pop("packet", None)
            fault.pop("file", None)
    return sorted(found, key=lambda line: (line["connection"], line["timestamp"], json.dumps(line)))


def test_confluent_produces_and_consumes_and_the_log_is_what_the_recording_says(
    cluster: list[Endpoint], tmp_path: Path
) -> None:
    log, recording, listen = tmp_path / "log.jsonl", tmp_path / "talk.pcapng", free_ports()
    with proxy(
        "--listen", f"127.0.0.1:{listen}", "--upstream", upstream(cluster),
        "--log", log, "--record", recording, "--metrics", "127.0.0.1:0",
    ) as running:  # fmt: skip
        bootstrap = {"bootstrap.servers": str(running.where)}
        told = produce("orders", **bootstrap).list_topics("orders", timeout=5)
        known, partitions = told.brokers, told.topics["orders"].partitions
        assert {n: (b.host, b.port) for n, b in known.items()} == {
            node: ("127.0.0.1", listen + 1 + node) for node in (1, 2, 3)
        }
        assert consume("orders", **bootstrap) == {f"v{number}" for number in range(COUNT)}
        assert running.stop() == 0
    # Messages went to each leader by its own listener.
    logged = lines(log.read_text())
    producing = {line["kwsniff"]["broker"] for line in logged if _api(line) == "PRODUCE"}
    assert producing == {str(cluster[partition.leader - 1]) for partition in partitions.values()}
    decoded = subprocess.run(
        [sys.executable, "-m", "kwsniff", "decode", "--quiet", recording],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert lines(decoded.stdout) == logged
    assert {"JOIN_GROUP", "SYNC_GROUP", "FETCH", "OFFSET_COMMIT"} <= {_api(line) for line in logged}


def _api(line: dict[str, Any]) -> str | None:
    header = line.get("requestHeader")
    return header["requestApiKeyName"] if header else None


def test_aiokafka_produces_and_consumes(cluster: list[Endpoint]) -> None:
    async def main(where: Endpoint) -> set[str]:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=str(where)) as producer:
            for number in range(COUNT):
                await producer.send("payments", f"v{number}".encode())
            await producer.flush()
        consumer = aiokafka.AIOKafkaConsumer(
            "payments", bootstrap_servers=str(where), group_id="group-aio", auto_offset_reset="earliest"
        )
        found: set[str] = set()
        async with consumer, asyncio.timeout(9):
            while len(found) < COUNT:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found |= {record.value.decode() for record in records}
        return found

    with proxy("--listen", f"127.0.0.1:{free_ports()}", "--upstream", upstream(cluster)) as running:
        assert asyncio.run(main(running.where)) == {f"v{number}" for number in range(COUNT)}
        assert running.stop() == 0


def test_a_client_with_tls_needs_only_the_authority(cluster: list[Endpoint], tmp_path: Path) -> None:
    """The mock cluster speaks none: TLS ends at the proxy."""
    trusted = create(tmp_path / "ca", "tests")
    with proxy(
        "--listen", f"127.0.0.1:{free_ports()}", "--upstream", upstream(cluster), "--tls-ca", tmp_path / "ca",
    ) as running:  # fmt: skip
        config = {
            "bootstrap.servers": str(running.where),
            "security.protocol": "SSL",
            "ssl.ca.location": str(trusted),
        }
        produce("secrets", **config)
        assert consume("secrets", **config) == {f"v{number}" for number in range(COUNT)}
        assert running.stop() == 0


def test_a_rule_is_seen_by_an_unchanged_client(cluster: list[Endpoint], tmp_path: Path) -> None:
    """It retries after NOT_LEADER_OR_FOLLOWER, and all is delivered in the end."""
    rules, log = tmp_path / "rules.yaml", tmp_path / "log.jsonl"
    rules.write_text(
        "version: 1\nrules:\n  - name: fence\n    on: request\n    api: Produce\n    limit: 1\n"
        "    then: [{error: NOT_LEADER_OR_FOLLOWER}, {tag: fenced}]\n"
    )
    with proxy(
        "--listen", f"127.0.0.1:{free_ports()}", "--upstream", upstream(cluster),
        "--rules", rules, "--log", log,
    ) as running:  # fmt: skip
        produce("fenced", **{"bootstrap.servers": str(running.where)})
        assert running.stop() == 0
    fenced = [line for line in lines(log.read_text()) if line["kwsniff"]["tags"] == ["fenced"]]
    assert len(fenced) == 1
    assert {error["name"] for error in fenced[0]["kwsniff"]["errors"]} == {"NOT_LEADER_OR_FOLLOWER"}
