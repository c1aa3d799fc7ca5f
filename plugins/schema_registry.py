"""Writes the Avro values of Produce and Fetch as JSON lines, by the schemas of a Confluent schema registry.

Such a value begins with a zero byte and the id of its schema in four bytes. Schemas come from a folder
(KWSNIFF_SCHEMAS: files ID.avsc) or from a registry (KWSNIFF_SCHEMA_REGISTRY: its URL). Lines are appended to
KWSNIFF_VALUES (values.jsonl): {"timestamp", "api", "client", "topic", "partition", "offset", "key", "value"}.
A key or value is {"schemaId", "data"}, {"schemaId", "error"}, or null where it is not of that format; a
record with neither has no line. `offset` is null in a Produce: the broker has not given one yet.

Needs fastavro. All is done in a thread: hooks must not wait for a registry or a disk. At most a thousand
exchanges wait for it; those that come then are not decoded, and how many is said at the end. fastavro
believes the counts in its input: not for schemas with arrays of nulls, where few bytes may claim any number.
"""

from __future__ import annotations

import io
import os
import queue
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
from msgspec import json

from kwsniff.conversation.facts import topic_name
from kwsniff.conversation.recorded import with_records
from kwsniff.errors import ConfigError
from kwsniff.hooks import hookimpl
from kwsniff.model import Exchange, Frame
from kwsniff.output.times import timestamp
from kwsniff.passing import Passed

PRODUCE, FETCH = 0, 1
WAITING = 1_000
MOST_SCHEMAS = 10_000
TIMEOUT = 5.0

Fetch = Callable[[int], str | bytes]


class SchemaRegistry:
    def __init__(self) -> None:
        self._fetch = _source()
        self._file = open(os.environ.get("KWSNIFF_VALUES", "values.jsonl"), "ab")  # noqa: SIM115
        self._schemas: dict[int, Any] = {}
        self._queue: queue.Queue[Exchange | None] = queue.Queue(WAITING)
        self._passed_over = 0
        self._thread = threading.Thread(target=self._run, name="schema_registry", daemon=True)
        self._thread.start()

    @hookimpl
    def exchanged(self, passed: Passed) -> None:
        request = passed.exchange.request
        if request is None or request.api not in (PRODUCE, FETCH):
            return
        try:
            self._queue.put_nowait(passed.exchange)
        except queue.Full:
            self._passed_over += 1

    @hookimpl
    def stopped(self) -> None:
        try:
            self._queue.put(None, timeout=TIMEOUT)
        except queue.Full:
            return
        self._thread.join(TIMEOUT)
        if self._passed_over:
            print(f"schema_registry: {self._passed_over} exchanges were not decoded", file=sys.stderr)

    def _run(self) -> None:
        while (exchange := self._queue.get()) is not None:
            try:
                for line in self._lines(exchange):
                    self._file.write(json.encode(line, enc_hook=str) + b"\n")
                self._file.flush()
            except Exception as error:  # one exchange must not end the thread
                print(f"schema_registry: {error}", file=sys.stderr)
        self._file.close()

    def _lines(self, exchange: Exchange) -> Iterator[dict[str, Any]]:
        request = exchange.request
        frame = request if request is None or request.api == PRODUCE else exchange.response
        if frame is None:
            return
        for topic, partition, record in _records(exchange, frame):
            key, value = (self._decoded(record.get(part)) for part in ("key", "value"))
            if key is not None or value is not None:
                yield {
                    "timestamp": timestamp(frame.ts),
                    "api": "PRODUCE" if frame is request else "FETCH",
                    "client": str(exchange.conn.client),
                    "topic": topic,
                    "partition": partition,
                    "offset": None if frame is request else record.get("offset"),
                    "key": key,
                    "value": value,
                }

    def _decoded(self, data: object) -> dict[str, Any] | None:
        if not isinstance(data, bytes) or len(data) < 5 or data[0] != 0:
            return None
        number = int.from_bytes(data[1:5], "big")
        try:
            return {
                "schemaId": number,
                "data": fastavro.schemaless_reader(io.BytesIO(data[5:]), self._schema(number), None),
            }
        except Exception as error:  # their bytes, or somebody's schema
            return {"schemaId": number, "error": f"{type(error).__name__}: {error}"[:200]}

    def _schema(self, number: int) -> Any:
        """The parsed schema; one that could not be had is not asked for again."""
        if number not in self._schemas:
            if len(self._schemas) >= MOST_SCHEMAS:
                raise LookupError("too many schemas")
            try:
                self._schemas[number] = fastavro.parse_schema(json.decode(self._fetch(number)))
            except Exception as error:
                self._schemas[number] = LookupError(f"no schema: {error}")
        if isinstance(self._schemas[number], LookupError):
            raise self._schemas[number]
        return self._schemas[number]


def _source() -> Fetch:
    folder, url = os.environ.get("KWSNIFF_SCHEMAS"), os.environ.get("KWSNIFF_SCHEMA_REGISTRY", "")
    if folder:
        if not Path(folder).is_dir():
            raise ConfigError(f"schema_registry: KWSNIFF_SCHEMAS: {folder} is no folder")
        return lambda number: Path(folder, f"{number}.avsc").read_bytes()
    if not url.startswith(("http://", "https://")):
        raise ConfigError(
            "schema_registry: set KWSNIFF_SCHEMAS to a folder, or KWSNIFF_SCHEMA_REGISTRY to a URL"
        )

    def fetch(number: int) -> str:
        with urllib.request.urlopen(f"{url.rstrip('/')}/schemas/ids/{number}", timeout=TIMEOUT) as answer:
            found = json.decode(answer.read())
        if found.get("schemaType", "AVRO") != "AVRO":
            raise LookupError(f"it is of type {found['schemaType']}")
        return str(found["schema"])

    return fetch


def _records(exchange: Exchange, frame: Frame) -> Iterator[tuple[str | None, int, dict[str, Any]]]:
    """(topic, partition, record) of every record in a Produce request or a Fetch response."""
    body = with_records(frame, exchange.request).body or {}
    for topic in body.get("topicData") or body.get("responses") or ():
        named = topic.get("name") or topic.get("topic") or topic_name(exchange, topic.get("topicId") or "")
        for partition in topic.get("partitionData") or topic.get("partitions") or ():
            number = partition.get("index", partition.get("partitionIndex"))
            for batch in partition.get("records") or ():
                for record in batch.get("records") or ():
                    yield named, number, record


plugin = SchemaRegistry
