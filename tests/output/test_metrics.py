"""The page of a scrape, as Prometheus' own parser reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace as changed
from passing_builders import CONN, MS, NOW, answered, asked, passed
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kwsniff.errors import Reason
from kwsniff.model import Fault, Ledger, Peer, Protocol, Session
from kwsniff.output.metrics import Metrics
from kwsniff.passing import Close, Delay
from kwsniff.policy.chain import Chain


def page(metrics: Metrics) -> Mapping[tuple[str, ...], float]:
    """(sample name without kwsniff_, label values in the order of their names) -> value."""
    found = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            name = sample.name.removeprefix("kwsniff_")
            found[(name, *(value for _, value in sorted(sample.labels.items())))] = sample.value
    return found


def metadata(topic: str, error: int = 0, client: str = "c", **frame: Any) -> Any:
    request = changed(asked(3, 4, {"topics": [{"name": topic}]}), client_id=client, **frame)
    return passed(request, answered(3, 4, {"topics": [{"name": topic, "errorCode": error}]}))


def session() -> Session:
    return Session(CONN, NOW, None, NOW, NOW, "kafka", Peer(), Ledger(), Ledger())


def test_connections_are_counted_and_those_open() -> None:
    metrics = Metrics()
    chain = Chain([("metrics", metrics)])
    assert page(metrics)["connections_open",] == 0
    for _ in range(3):
        chain.opened(session())
    chain.closed(session())
    assert (page(metrics)["connections_open",], page(metrics)["connections_total",]) == (2, 3)


def test_exchanges_are_counted_by_what_they_are() -> None:
    metrics = Metrics()
    chain = Chain([("metrics", metrics)])
    one, bad, lost = metadata("orders"), metadata("orders", 3), metadata("bills", 5)
    lost = passed(lost.exchange.request, None)
    for each in (one, bad, lost):
        chain.exchanged(each)
    found = page(metrics)
    assert found["requests_total", "METADATA", "4"] == 3
    assert found["exchanges_total", "METADATA", "answered"] == 2
    assert found["exchanges_total", "METADATA", "closed"] == 1
    assert found["errors_total", "METADATA", "UNKNOWN_TOPIC_OR_PARTITION"] == 1
    assert (found["topic_exchanges_total", "orders"], found["topic_exchanges_total", "bills"]) == (2, 1)
    assert found["topic_errors_total", "orders"] == 1
    assert found["client_requests_total", "c"] == 3
    asked_bytes = sum(each.exchange.request.size for each in (one, bad, lost))
    answered_bytes = one.exchange.response.size + bad.exchange.response.size
    assert (found["bytes_total", "request"], found["bytes_total", "response"]) == (
        asked_bytes,
        answered_bytes,
    )


def test_latency_is_split_into_the_brokers_and_the_proxys() -> None:
    metrics = Metrics()
    over = metadata("a")
    over.exchange.response = changed(over.exchange.response, end=NOW + 12 * MS)
    over.proxy_ns = 3 * MS
    metrics.exchanged(over)
    found = page(metrics)
    assert found["proxy_seconds_sum", "METADATA"] == 0.003
    assert found["broker_seconds_sum", "METADATA"] == 0.009
    assert {key[2]: value for key, value in found.items() if key[0] == "broker_seconds_bucket"} == {
        "0.0005": 0, "0.001": 0, "0.0025": 0, "0.005": 0, "0.01": 1, "0.025": 1, "0.05": 1, "0.1": 1,
        "0.25": 1, "0.5": 1, "1.0": 1, "2.5": 1, "5.0": 1, "10.0": 1, "30.0": 1, "+Inf": 1,
    }  # fmt: skip
    over.sent = over.received = None  # answered by a rule: no time of any broker
    metrics.exchanged(over)
    found = page(metrics)
    assert (found["broker_seconds_count", "METADATA"], found["proxy_seconds_count", "METADATA"]) == (1, 2)


def test_faults_are_counted_wherever_they_stand() -> None:
    metrics = Metrics()
    chain = Chain([("metrics", metrics)])
    chain.faulted(Fault(NOW, Reason.NOT_KAFKA, "a TLS client", CONN))
    broken = passed(asked(3, 4, b"\xff"), None)
    broken.exchange.faults = (Fault(NOW, Reason.FRAME_INCOMPLETE, "", CONN),)
    chain.exchanged(broken)
    found = page(metrics)
    assert {key[1]: value for key, value in found.items() if key[0] == "faults_total"} == {
        "not_kafka": 1,
        "frame_incomplete": 1,
        "body_truncated": 1,
    }


def test_rules_and_verdicts_are_counted() -> None:
    metrics = Metrics()
    metrics.fired("slow", "response")
    metrics.fired("slow", "response")
    metrics.count("orders_seen", "slow")
    over = metadata("a")
    over.verdicts = [("rules:slow", Delay(1)), ("rules:slow", Delay(2)), ("shop", Close())]
    metrics.exchanged(over)
    found = page(metrics)
    assert found["rule_hits_total", "response", "slow"] == 2
    assert found["rule_counts_total", "orders_seen", "slow"] == 1
    assert (found["verdicts_total", "delay"], found["verdicts_total", "close"]) == (2, 1)


def test_shed_log_lines_are_asked_for() -> None:
    metrics = Metrics()
    assert page(metrics)["log_lines_shed_total",] == 0
    metrics.watch_shed(lambda: 7)
    assert page(metrics)["log_lines_shed_total",] == 7


def test_names_are_told_apart_up_to_a_limit() -> None:
    metrics = Metrics(top=3)
    for number in range(10):
        for _ in range(2):
            metrics.exchanged(metadata(f"t{number}", client=f"c{number}"))
            metrics.fired(f"r{number}", "request")
            metrics.count(f"m{number}", f"r{number}")
    found = page(metrics)
    assert {key[1]: value for key, value in found.items() if key[0] == "topic_exchanges_total"} == {
        "t0": 2, "t1": 2, "t2": 2, "other": 14,
    }  # fmt: skip
    assert {key[1] for key in found if key[0] == "client_requests_total"} == {"c0", "c1", "c2", "other"}
    assert {key[2] for key in found if key[0] == "rule_hits_total"} == {"r0", "r1", "r2", "other"}
    assert {key[1] for key in found if key[0] == "rule_counts_total"} == {"m0", "m1", "m2", "other"}


def test_what_hostile_frames_claim_is_bounded_too() -> None:
    metrics = Metrics()
    for number in range(200, 300):
        metrics.exchanged(metadata("a", number, version=number))
        metrics.exchanged(metadata("a", api=number))
    found = page(metrics)
    assert {key[1:] for key in found if key[0] == "requests_total"} == {
        ("METADATA", "unknown"),
        ("unknown", "unknown"),
    }
    assert {key[1:] for key in found if key[0] == "errors_total"} == {("METADATA", "unknown")}


@pytest.mark.parametrize("client", ["\udcff\udcfe", 'a"b\\c\nd', "x" * 10_000, "", None])
def test_any_client_id_makes_a_page_that_can_be_read(client: Any) -> None:
    metrics = Metrics()
    metrics.exchanged(metadata("a", client=client))
    ((_, label),) = [key for key in page(metrics) if key[0] == "client_requests_total"]
    assert len(label) <= 128
    assert label == {"\udcff\udcfe": "??", "x" * 10_000: "x" * 128, None: ""}.get(client, client)


def test_tokens_are_counted_and_not_shown() -> None:
    metrics = Metrics()
    token = changed(asked(3, 1, {}), protocol=Protocol.SASL, raw=b"\0alice\0secret", version=None)
    metrics.exchanged(passed(token, None))
    assert page(metrics)["requests_total", "sasl", ""] == 1
    assert b"secret" not in metrics.text()


def test_nothing_is_in_the_registry_that_all_share() -> None:
    before = generate_latest(REGISTRY)
    one, other = Metrics(), Metrics()
    one.exchanged(metadata("orders"))
    assert b"kwsniff" not in generate_latest(REGISTRY)
    assert b"kwsniff" not in before
    assert ("topic_exchanges_total", "orders") not in page(other)
