"""Unchanged clients and real brokers, the proxy between them: they get what they would get without it.

Every conversation must hold what `Proxied.check` holds: no fault, no body that was not decoded, no address of
a broker in an answer, a recording that decodes to the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import broker_cluster
import broker_jars
import client_aiokafka
import client_confluent
import client_java
import client_kafka_python
import pytest
from broker_cluster import PASSWORD, USER, Cluster
from client_plan import GROUP_EXPECTED, STEP, TRANSACTIONS_EXPECTED, Access, values
from through_proxy import Proxied

Start = Callable[..., Proxied]
LIBRARIES = (client_confluent, client_aiokafka, client_kafka_python)
libraries = pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.NAME)
newest = pytest.mark.parametrize("cluster", [broker_jars.NEWEST_4], indirect=True, ids=["kafka-4"])

security = pytest.mark.parametrize(
    ("cluster", "library"),
    [(broker_jars.NEWEST_4, library) for library in LIBRARIES] + [(broker_jars.NEWEST_3, client_confluent)],
    indirect=["cluster"],
    ids=[f"kafka-4-{library.NAME}" for library in LIBRARIES] + ["kafka-3-confluent"],
)

MESSAGES = sorted(values(0))


def names(lines: list[dict[str, Any]]) -> set[str]:
    return {line["requestHeader"]["requestApiKeyName"] for line in lines if line["requestHeader"]}


@libraries
def test_a_group_of_one_member_then_two_then_one(library: Any, proxy: Start) -> None:
    proxied = proxy("PLAIN")
    assert library.group(Access(proxied.bootstrap), f"{library.NAME}-group") == GROUP_EXPECTED
    assert {"PRODUCE", "FETCH", "JOIN_GROUP", "SYNC_GROUP", "OFFSET_COMMIT", "LEAVE_GROUP"} <= names(
        proxied.check()
    )


@newest
def test_a_group_by_the_protocol_of_kip_848(proxy: Start) -> None:
    proxied = proxy("PLAIN")
    access = Access(proxied.bootstrap)
    told = client_confluent.group(access, "confluent-848", **{"group.protocol": "consumer"})
    assert told == GROUP_EXPECTED
    assert "CONSUMER_GROUP_HEARTBEAT" in names(proxied.check())


@libraries
def test_transactions_committed_and_aborted(library: Any, proxy: Start) -> None:
    proxied = proxy("PLAIN")
    told = library.transactions(Access(proxied.bootstrap), f"{library.NAME}-transactions")
    assert told == TRANSACTIONS_EXPECTED
    assert {"INIT_PRODUCER_ID", "END_TXN", "TXN_OFFSET_COMMIT"} <= names(proxied.check())


@libraries
def test_an_admin_client(library: Any, proxy: Start) -> None:
    proxied = proxy("PLAIN")
    assert library.admin(Access(proxied.bootstrap), f"{library.NAME}-admin") == library.ADMIN_EXPECTED
    assert {"CREATE_TOPICS", "DESCRIBE_CONFIGS", "LIST_GROUPS", "DELETE_TOPICS"} <= names(
        proxied.check(*library.FAULTS)
    )


@security
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sasl_passes_through_and_stays_secret(library: Any, mechanism: str, proxy: Start) -> None:
    proxied = proxy("SASL")
    access = Access(proxied.bootstrap, "SASL_PLAINTEXT", mechanism, USER, PASSWORD)
    assert library.roundtrip(access, f"{library.NAME}-{mechanism}") == MESSAGES
    lines = proxied.check()
    assert {line["principal"] for line in lines if line["request"] and "topics" in line["request"]} == {
        f"User:{USER}"
    }
    for file in (proxied.log, proxied.recording):
        assert PASSWORD.encode() not in file.read_bytes()


@security
def test_brokers_speak_tls(library: Any, proxy: Start, cluster: Cluster) -> None:
    proxied = proxy("TLS", "--upstream-tls", "--upstream-ca", str(cluster.certificates / "ca.pem"))
    assert library.roundtrip(Access(proxied.bootstrap), f"{library.NAME}-tls") == MESSAGES
    proxied.check()


@security
def test_both_speak_tls_and_brokers_ask_who_it_is(library: Any, proxy: Start, cluster: Cluster) -> None:
    held = cluster.certificates
    proxied = proxy(
        "MUTUAL", "--upstream-tls", "--upstream-ca", str(held / "ca.pem"),
        "--upstream-cert", str(held / "client.pem"), "--tls-cert", str(held / "broker.pem"),
    )  # fmt: skip
    access = Access(proxied.bootstrap, "SSL", ca=held / "ca.pem")
    assert library.roundtrip(access, f"{library.NAME}-mutual") == MESSAGES
    assert {line["securityProtocol"] for line in proxied.check()} == {"SSL"}


@newest
def test_the_java_client_by_scram(java: str, proxy: Start) -> None:
    proxied = proxy("SASL")
    access = Access(proxied.bootstrap, "SASL_PLAINTEXT", "SCRAM-SHA-512", USER, PASSWORD)
    assert client_java.run(java, "roundtrip", access, "java-scram") == client_java.EXPECTED["roundtrip"]
    assert f"User:{USER}" in {line["principal"] for line in proxied.check()}


@newest
@pytest.mark.parametrize("program", ["group", "transactions", "admin", "share"])
def test_the_java_client(program: str, java: str, proxy: Start) -> None:
    proxied = proxy("PLAIN")
    told = client_java.run(java, program, Access(proxied.bootstrap), f"java-{program}")
    assert client_java.EXPECTED[program].items() <= told.items()
    lines = proxied.check()
    wanted = {"share": "SHARE_FETCH", "admin": "DESCRIBE_QUORUM", "group": "CONSUMER_GROUP_HEARTBEAT"}
    assert wanted.get(program, "METADATA") in names(lines)


@newest
def test_the_guard_refuses_whoever_is_not_the_proxy(cluster: Cluster, proxy: Start) -> None:
    """That no client was refused in the other tests means something."""
    proxied = proxy("PLAIN")
    host, port = cluster.bootstrap("PLAIN").split(":")
    with pytest.raises(OSError):
        broker_cluster.metadata((host, int(port)))
    assert cluster.guard.refused == [(host, int(port))]
    assert len(broker_cluster.metadata(("127.0.0.1", proxied.port))["brokers"]) == len(cluster.nodes)


@newest
def test_a_broker_goes_and_comes_back(cluster: Cluster, proxy: Start) -> None:
    """Every message arrives, by way of whoever leads; the proxy says what happened and goes on."""
    proxied = proxy("PLAIN")
    access = Access(proxied.bootstrap)
    topic, lost = "restart", cluster.nodes[1]
    client_confluent.create(access, topic)
    client_confluent.produce(access, topic, values(0))
    cluster.kill(lost)
    client_confluent.produce(access, topic, values(1))
    cluster.start_node(lost)
    cluster.wait()
    client_confluent.produce(access, topic, values(2))
    assert sorted(client_confluent.consume(access, topic, 3 * STEP)) == GROUP_EXPECTED
    assert proxied.stop() == 0
    assert cluster.guard.refused == []
