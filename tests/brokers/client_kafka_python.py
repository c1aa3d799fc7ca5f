"""The programs with kafka-python."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

from client_plan import ABORTED, COMMITTED, COMMITTED_TOO, PARTITIONS, Access, eventually, in_group, values

with warnings.catch_warnings():  # its own, when it is imported
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import (
        ACL,
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        ACLResourcePatternType,
        ConfigResource,
        ConfigResourceType,
        KafkaAdminClient,
        NewTopic,
        OffsetSpec,
        ResourcePattern,
        ResourcePatternFilter,
        ResourceType,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )
    from kafka.structs import OffsetAndMetadata

NAME = "kafka-python"
FAULTS = ()
_WAIT_S = 30
_CODECS = (None, "lz4", "snappy")


def roundtrip(access: Access, topic: str) -> list[bytes]:
    _create(access, topic)
    _produce(access, topic, values(0))
    return sorted(_consume(access, topic, len(values(0))))


def group(access: Access, topic: str) -> list[bytes]:
    _create(access, topic)
    return in_group(lambda messages: _produce(access, topic, messages), lambda: _Member(access, topic))


def transactions(access: Access, topic: str) -> dict[str, Any]:
    _create(access, topic)
    place = TopicPartition(topic, 0)
    producer = KafkaProducer(**settings(access), transactional_id=topic)
    producer.init_transactions()
    reader = KafkaConsumer(**settings(access), group_id=topic, enable_auto_commit=False)
    for messages, aborted in ((COMMITTED, False), (ABORTED, True), (COMMITTED_TOO, False)):
        producer.begin_transaction()
        sent = [producer.send(topic, value, key=value[:3]) for value in messages]
        producer.flush(_WAIT_S)
        assert all(future.succeeded() for future in sent)
        if aborted:
            producer.abort_transaction()
        else:
            producer.send_offsets_to_transaction(
                {place: OffsetAndMetadata(17, "", -1)}, reader.group_metadata()
            )
            producer.commit_transaction()
    producer.close()
    committed = len(COMMITTED + COMMITTED_TOO)
    told = {
        "read_committed": sorted(_consume(access, topic, committed, "read_committed")),
        "read_uncommitted": sorted(_consume(access, topic, committed + len(ABORTED), "read_uncommitted")),
        "offset sent": reader.committed(place),
    }
    reader.close()
    return told


ADMIN_EXPECTED = {
    "retention": "3600000",
    "partitions": 5,
    "offsets": (0, 60),
    "after deletion": 10,
    "group": "Stable",
    "acl": 1,
    "scram": [ScramMechanism.SCRAM_SHA_256],
    "quorum": "__cluster_metadata",
    "gone": True,
}


def admin(access: Access, topic: str) -> dict[str, Any]:
    told: dict[str, Any] = {}
    _create(access, topic)
    with KafkaAdminClient(**settings(access)) as client:
        client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "3600000"})])
        told["retention"] = eventually(lambda: _retention(client, topic), ADMIN_EXPECTED["retention"])
        client.create_partitions({topic: 5})
        told["partitions"] = eventually(lambda: len(client.describe_topics([topic])[0]["partitions"]), 5)
        told |= _offsets(access, client, topic) | _group(access, client, topic) | _security(client, topic)
        client.describe_cluster()
        client.describe_features()
        told["quorum"] = client.describe_metadata_quorum()["topics"][0]["topic_name"]
        client.delete_topics([topic])
        told["gone"] = eventually(lambda: topic not in client.list_topics(), True)
    return told


def _retention(client: KafkaAdminClient, topic: str) -> str:
    described = client.describe_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all"
    )
    return str(described["topic"][topic]["retention.ms"]["value"])


def _offsets(access: Access, client: KafkaAdminClient, topic: str) -> dict[str, Any]:
    place = TopicPartition(topic, 0)
    _produce(access, topic, values(0), partition=0)
    ends = [
        client.list_partition_offsets({place: spec})[place].offset
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
    ]
    deleted = client.delete_records({place: 10})
    return {"offsets": tuple(ends), "after deletion": deleted[place]["low_watermark"]}


def _group(access: Access, client: KafkaAdminClient, topic: str) -> dict[str, Any]:
    member = _Member(access, topic)
    end = time.monotonic() + _WAIT_S
    while not member.assigned() and time.monotonic() < end:
        member.poll()
    assert topic in [each["group_id"] for each in client.list_groups()]
    state = client.describe_groups([topic])[topic]["group_state"]
    member.close()
    client.delete_groups([topic])
    return {"group": state}


def _security(client: KafkaAdminClient, topic: str) -> dict[str, Any]:
    pattern = ResourcePattern(ResourceType.TOPIC, topic, ACLResourcePatternType.LITERAL)
    client.create_acls([ACL("User:bob", "*", ACLOperation.READ, ACLPermissionType.DENY, pattern)])
    anywhere = ResourcePatternFilter(ResourceType.TOPIC, topic, ACLResourcePatternType.ANY)
    wanted = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, anywhere)
    found = eventually(lambda: len(client.describe_acls(wanted)[0]), 1)
    client.delete_acls([wanted])
    changed = UserScramCredentialUpsertion(topic, ScramMechanism.SCRAM_SHA_256, "bob-secret")
    client.alter_user_scram_credentials([changed])

    def mechanisms() -> list[ScramMechanism]:
        told = client.describe_user_scram_credentials([topic])[topic]["credential_infos"]
        return [info["mechanism"] for info in told]

    return {"acl": found, "scram": eventually(mechanisms, ADMIN_EXPECTED["scram"])}


def settings(access: Access) -> dict[str, Any]:
    told: dict[str, Any] = {"bootstrap_servers": access.bootstrap, "security_protocol": access.protocol}
    if access.mechanism:
        told |= {"sasl_mechanism": access.mechanism}
        told |= {"sasl_plain_username": access.user, "sasl_plain_password": access.password}
    if access.ca:
        told["ssl_cafile"] = str(access.ca)
    return told


class _Member:
    def __init__(self, access: Access, topic: str) -> None:
        self._consumer = KafkaConsumer(
            topic, **settings(access), group_id=topic, auto_offset_reset="earliest",
            enable_auto_commit=False, heartbeat_interval_ms=300,
        )  # fmt: skip

    def poll(self) -> list[bytes]:
        found = self._consumer.poll(timeout_ms=200)
        return [record.value for records in found.values() for record in records]

    def assigned(self) -> int:
        return len(self._consumer.assignment())

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


def _create(access: Access, topic: str) -> None:
    with KafkaAdminClient(**settings(access)) as client:
        client.create_topics([NewTopic(topic, PARTITIONS, -1)])


def _produce(access: Access, topic: str, messages: Sequence[bytes], **more: Any) -> None:
    for number, codec in enumerate(_CODECS):
        producer = KafkaProducer(**settings(access), compression_type=codec)
        sent = [
            producer.send(topic, value, key=value[:4], headers=[("codec", b"x")], **more)
            for value in messages[number::3]
        ]
        producer.flush(_WAIT_S)
        assert all(future.succeeded() for future in sent)
        producer.close()


def _consume(access: Access, topic: str, count: int, isolation: str = "read_committed") -> list[bytes]:
    """`count` messages, and whatever more comes within a moment."""
    consumer = KafkaConsumer(
        **settings(access), auto_offset_reset="earliest", isolation_level=isolation, enable_auto_commit=False
    )
    consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
    found: list[bytes] = []
    for _ in range(_WAIT_S * 5):
        records = consumer.poll(timeout_ms=200)
        found += [record.value for part in records.values() for record in part]
        if len(found) >= count and not records:
            break
    consumer.close()
    return found
