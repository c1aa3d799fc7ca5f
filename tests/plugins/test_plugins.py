"""The example plugins, loaded as the proxy loads them and run in a chain."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pytest
from msgspec.structs import replace as changed
from passing_builders import NOW, answered, asked, passed, passing

from kwsniff import wire
from kwsniff.errors import ConfigError
from kwsniff.model import Exchange
from kwsniff.passing import Close, Respond
from kwsniff.policy.chain import Chain, load
from kwsniff.wire import records

PLUGINS = Path(__file__).parents[2] / "plugins"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAKg"


def chain(name: str) -> Chain:
    return Chain([load(str(PLUGINS / f"{name}.py"))])


def batch(key: bytes | None, value: bytes | None, offset: int = 0) -> bytes:
    record = {"offset": offset, "timestamp": NOW // 10**6, "key": key, "value": value, "headers": []}
    return records.encode_records([{"magic": 2, "baseOffset": offset, "records": [record]}])


def test_every_plugin_here_is_tested_and_told_of() -> None:
    readme = (PLUGINS / "README.md").read_text()
    assert {path.stem for path in PLUGINS.glob("*.py")} == {"counter", "topic_firewall", "schema_registry"}
    assert all(f"`{path.name}`" in readme for path in PLUGINS.glob("*.py"))


# ---- counter


def test_the_counter_counts(capsys: pytest.CaptureFixture[str]) -> None:
    plugins = chain("counter")
    for api in (3, 1, 3):
        plugins.exchanged(passed(asked(api, 4, {}), None))
    plugins.stopped(NOW)
    assert capsys.readouterr().err == "       2  METADATA\n       1  FETCH\n"


# ---- the firewall


@pytest.fixture
def firewall(monkeypatch: pytest.MonkeyPatch) -> Chain:
    monkeypatch.setenv("KWSNIFF_FORBIDDEN_TOPICS", "secret-.*|audit")
    return chain("topic_firewall")


def produce(topic: str, acks: int = 1) -> dict[str, Any]:
    return {"acks": acks, "timeoutMs": 9, "topicData": [{"name": topic, "partitionData": [{"index": 3}]}]}


def test_a_request_for_a_forbidden_topic_is_refused_as_a_broker_would(firewall: Chain) -> None:
    frame = passing(asked(0, 9, produce("secret-plans")))
    ((name, verdict),) = firewall.request(frame)
    assert name == "topic_firewall"
    assert isinstance(verdict, Respond)
    header, body = wire.decode_response(verdict.raw, 0, 9)
    assert header["correlationId"] == 7
    (topic,) = body["responses"]
    assert (topic["name"], topic["partitionResponses"][0]["index"]) == ("secret-plans", 3)
    assert topic["partitionResponses"][0]["errorCode"] == 29
    assert frame.tags == ["forbidden-topic"]


@pytest.mark.parametrize("topic", ["orders", "my-secret-plans", "audit-log"])
def test_other_topics_go_on(firewall: Chain, topic: str) -> None:
    assert firewall.request(passing(asked(0, 9, produce(topic)))) == []


def test_where_no_answer_is_due_the_connection_is_closed(firewall: Chain) -> None:
    assert firewall.request(passing(asked(0, 9, produce("audit", acks=0)))) == [
        ("topic_firewall", Close("topic audit is forbidden"))
    ]


def test_a_topic_is_known_by_its_id_once_its_name_was_told(firewall: Chain) -> None:
    partition = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1}
    fetch = {"maxWaitMs": 0, "minBytes": 0, "topics": [{"topicId": TOPIC_ID, "partitions": [partition]}]}
    frame = passing(asked(1, 13, fetch))
    assert firewall.request(frame) == []
    frame.topic_names = {TOPIC_ID: (0, "audit")}
    ((_, verdict),) = firewall.request(frame)
    assert isinstance(verdict, Respond)
    assert wire.decode_response(verdict.raw, 1, 13)[1]["responses"][0]["partitions"][0]["errorCode"] == 29


def test_requests_that_name_nothing_or_do_not_decode_go_on(firewall: Chain) -> None:
    assert firewall.request(passing(asked(18, 3, {}))) == []
    assert firewall.request(passing(asked(3, 4, b"\xff"))) == []
    assert firewall.failures.total() == 0


@pytest.mark.parametrize("pattern", ["", "("])
def test_the_firewall_does_not_start_without_a_pattern(monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    monkeypatch.setenv("KWSNIFF_FORBIDDEN_TOPICS", pattern)
    with pytest.raises(ConfigError, match="KWSNIFF_FORBIDDEN_TOPICS"):
        chain("topic_firewall")


# ---- the schema registry

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "at", "type": "string"}],
}
ORDER = {"id": 42, "at": "noon"}


def confluent(value: dict[str, Any], schema_id: int = 1) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, SCHEMA, value)
    return b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()


def fetched(data: bytes, topic: dict[str, Any], version: int) -> Exchange:
    answer = {"responses": [{**topic, "partitions": [{"partitionIndex": 2, "records": data}]}]}
    return passed(asked(1, version, {}), answered(1, version, answer)).exchange


Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs exchanges through the plugin; gives the lines that it wrote."""
    monkeypatch.setenv("KWSNIFF_VALUES", str(tmp_path / "values.jsonl"))
    if not (tmp_path / "schemas").exists():
        (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "1.avsc").write_text(json.dumps(SCHEMA))
    monkeypatch.setenv("KWSNIFF_SCHEMAS", str(tmp_path / "schemas"))

    def run(*exchanges: Exchange) -> list[dict[str, Any]]:
        plugins = chain("schema_registry")
        for exchange in exchanges:
            over = passed(exchange.request, exchange.response)  # type: ignore[arg-type]
            over.exchange = exchange
            plugins.exchanged(over)
        plugins.stopped(NOW)
        return [json.loads(line) for line in (tmp_path / "values.jsonl").read_bytes().splitlines()]

    return run


def test_values_of_a_produce_are_decoded(values: Run) -> None:
    body = produce("orders")
    body["topicData"][0]["partitionData"][0]["records"] = batch(b"k", confluent(ORDER))
    assert values(passed(asked(0, 9, body), None).exchange) == [
        {
            "timestamp": "2023-11-14T22:13:20.000000000Z", "api": "PRODUCE", "client": "10.0.0.1:50001",
            "topic": "orders", "partition": 3, "offset": None,
            "key": None, "value": {"schemaId": 1, "data": ORDER},
        }
    ]  # fmt: skip


def test_values_of_a_fetch_have_offsets_and_topics_by_id_have_names(values: Run) -> None:
    one = fetched(batch(confluent(ORDER), None, 7), {"topic": "orders"}, 11)
    other = fetched(batch(None, confluent(ORDER), 8), {"topicId": TOPIC_ID}, 13)
    other = changed(other, topic_names={TOPIC_ID: (0, "bills")})
    lines = values(one, other)
    assert [(line["api"], line["topic"], line["partition"], line["offset"]) for line in lines] == [
        ("FETCH", "orders", 2, 7),
        ("FETCH", "bills", 2, 8),
    ]
    assert (lines[0]["key"]["data"], lines[0]["value"]) == (ORDER, None)


def test_what_is_not_of_the_format_has_no_line_and_what_is_broken_says_so(values: Run) -> None:
    data = b"".join(
        batch(None, value, offset)
        for offset, value in enumerate(
            [
                b"",
                b"plain text",
                b"\0\0\0",
                None,
                confluent(ORDER)[:7],
                confluent(ORDER, 99),
                confluent(ORDER),
            ]
        )
    )
    lines = values(fetched(data, {"topic": "orders"}, 11))
    assert [line["offset"] for line in lines] == [4, 5, 6]
    assert "error" in lines[0]["value"]
    assert lines[1]["value"]["error"].startswith("LookupError: no schema")
    assert lines[2]["value"]["data"] == ORDER


@pytest.fixture
def registry() -> Iterator[tuple[str, list[str]]]:
    """A registry on loopback: its URL, and the paths that it was asked for."""
    asked_for: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked_for.append(self.path)
            self.send_response(200 if self.path == "/schemas/ids/1" else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"schema": json.dumps(SCHEMA)}).encode())

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", asked_for
    server.shutdown()
    thread.join()
    server.server_close()


def test_schemas_come_from_a_registry_once_each(
    values: Run, registry: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KWSNIFF_SCHEMAS")
    monkeypatch.setenv("KWSNIFF_SCHEMA_REGISTRY", registry[0])
    data = b"".join(batch(None, confluent(ORDER, number), number) for number in (1, 1, 5, 5))
    lines = values(fetched(data, {"topic": "orders"}, 11))
    assert [line["value"].get("data") for line in lines] == [ORDER, ORDER, None, None]
    assert "404" in lines[3]["value"]["error"]
    assert registry[1] == ["/schemas/ids/1", "/schemas/ids/5"]


@pytest.mark.parametrize(
    ("name", "value"), [("KWSNIFF_SCHEMAS", "/no/such"), ("KWSNIFF_SCHEMA_REGISTRY", "file:///")]
)
def test_the_decoder_does_not_start_without_schemas(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"schema_registry: .*{name}"):
        chain("schema_registry")
