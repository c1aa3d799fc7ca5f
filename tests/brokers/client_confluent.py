"""The programs with confluent-kafka (librdkafka)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from client_plan import ABORTED, COMMITTED, COMMITTED_TOO, PARTITIONS, Access, eventually, in_group, values
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

NAME = "confluent"
FAULTS = (("METADATA", "trailing_bytes"), ("ALTER_USER_SCRAM_CREDENTIALS", "trailing_bytes"))
"""Of librdkafka 2.16: it asks for all topics by a count of four bytes where Metadata v13 has a compact array,
and ends AlterUserScramCredentials v0 with a byte too many. Brokers do not mind what is left over."""
_WAIT_S = 30


def roundtrip(access: Access, topic: str) -> list[bytes]:
    create(access, topic)
    produce(access, topic, values(0))
    return sorted(consume(access, topic, len(values(0))))


def group(access: Access, topic: str, **settings: Any) -> list[bytes]:
    create(access, topic)
    return in_group(
        lambda messages: produce(access, topic, messages), lambda: _Member(access, topic, settings)
    )


def transactions(access: Access, topic: str) -> dict[str, Any]:
    create(access, topic)
    producer = Producer(settings(access) | {"transactional.id": topic, "linger.ms": 5})
    producer.init_transactions(_WAIT_S)
    reader = Consumer(settings(access) | {"group.id": topic})
    for messages, end in (
        (COMMITTED, producer.commit_transaction),
        (ABORTED, producer.abort_transaction),
        (COMMITTED_TOO, producer.commit_transaction),
    ):
        producer.begin_transaction()
        for value in messages:
            producer.produce(topic, value, key=value[:3])
        if end == producer.commit_transaction:
            sent = [TopicPartition(topic, 0, 17)]
            producer.send_offsets_to_transaction(sent, reader.consumer_group_metadata(), _WAIT_S)
        producer.flush(_WAIT_S)
        end(_WAIT_S)
    committed = len(COMMITTED + COMMITTED_TOO)
    told = {
        "read_committed": sorted(consume(access, topic, committed, "read_committed")),
        "read_uncommitted": sorted(consume(access, topic, committed + len(ABORTED), "read_uncommitted")),
        "offset sent": reader.committed([TopicPartition(topic, 0)], timeout=_WAIT_S)[0].offset,
    }
    reader.close()
    return told


ADMIN_EXPECTED = {
    "retention, cleanup": ("3600000", "compact,delete"),
    "partitions": 5,
    "offsets": (0, 60),
    "after deletion": 10,
    "group": "STABLE",
    "acl": 1,
    "scram": ["SCRAM_SHA_256"],
    "gone": True,
}


def admin(access: Access, topic: str) -> dict[str, Any]:
    client = AdminClient(settings(access))
    told: dict[str, Any] = {}
    create(access, topic)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    changes = (("retention.ms", "3600000"), ("cleanup.policy", "compact,delete"))
    resource.incremental_configs = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in changes
    ]
    _results(client.incremental_alter_configs([resource]))
    configs = ADMIN_EXPECTED["retention, cleanup"]
    told["retention, cleanup"] = eventually(lambda: _configs(client, topic), configs)
    _results(client.create_partitions([NewPartitions(topic, 5)]))
    told["partitions"] = eventually(lambda: len(_topics(client)[topic].partitions), 5)
    told |= _offsets(access, client, topic) | _group(access, client, topic) | _security(client, topic)
    client.describe_cluster(include_authorized_operations=True).result(_WAIT_S)
    _results(client.delete_topics([topic], operation_timeout=_WAIT_S))
    told["gone"] = eventually(lambda: topic not in _topics(client), True)
    return told


def _configs(client: AdminClient, topic: str) -> tuple[str, str]:
    described = _results(client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))[0]
    return (described["retention.ms"].value, described["cleanup.policy"].value)


def _topics(client: AdminClient) -> dict[str, Any]:
    return dict(client.list_topics(timeout=_WAIT_S).topics)


def _offsets(access: Access, client: AdminClient, topic: str) -> dict[str, Any]:
    place = TopicPartition(topic, 0)
    produce(access, topic, values(0), partition=0)
    ends = [
        _results(client.list_offsets({place: spec}, isolation_level=IsolationLevel.READ_COMMITTED))[0].offset
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
    ]
    deleted = _results(client.delete_records([TopicPartition(topic, 0, 10)]))[0]
    return {"offsets": tuple(ends), "after deletion": deleted.low_watermark}


def _group(access: Access, client: AdminClient, topic: str) -> dict[str, Any]:
    member = _Member(access, topic, {})
    while not member.assigned():
        member.poll()
    listed = client.list_consumer_groups().result(_WAIT_S).valid
    assert topic in [each.group_id for each in listed]
    state = _results(client.describe_consumer_groups([topic]))[0].state.name
    member.close()
    _results(client.delete_consumer_groups([topic]))
    return {"group": state}


def _security(client: AdminClient, topic: str) -> dict[str, Any]:
    binding = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:bob", "*",
        AclOperation.READ, AclPermissionType.DENY,
    )  # fmt: skip
    _results(client.create_acls([binding]))
    wanted = AclBindingFilter(
        ResourceType.TOPIC, topic, ResourcePatternType.ANY, None, None,
        AclOperation.ANY, AclPermissionType.ANY,
    )  # fmt: skip
    found = eventually(lambda: len(client.describe_acls(wanted).result(_WAIT_S)), 1)
    _results(client.delete_acls([wanted]))
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    _results(
        client.alter_user_scram_credentials([UserScramCredentialUpsertion(topic, credential, b"bob-secret")])
    )
    return {"acl": found, "scram": eventually(lambda: _mechanisms(client, topic), ["SCRAM_SHA_256"])}


def _mechanisms(client: AdminClient, user: str) -> list[str]:
    try:
        told = _results(client.describe_user_scram_credentials([user]))[0]
    except KafkaException:  # no such user, as far as that broker knows
        return []
    return [info.mechanism.name for info in told.scram_credential_infos]


def settings(access: Access) -> dict[str, Any]:
    told = {"bootstrap.servers": access.bootstrap, "security.protocol": access.protocol}
    if access.mechanism:
        told |= {
            "sasl.mechanism": access.mechanism,
            "sasl.username": access.user,
            "sasl.password": access.password,
        }
    if access.ca:
        told["ssl.ca.location"] = str(access.ca)
    return told


class _Member:
    def __init__(self, access: Access, topic: str, more: dict[str, Any]) -> None:
        fast = {} if more.get("group.protocol") == "consumer" else {"heartbeat.interval.ms": 300}
        common = {"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._consumer = Consumer(settings(access) | common | fast | more)
        self._consumer.subscribe([topic])

    def poll(self) -> list[bytes]:
        return [_value(message) for message in self._consumer.consume(100, 0.2)]

    def assigned(self) -> int:
        return len(self._consumer.assignment())

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


def create(access: Access, topic: str) -> None:
    client = AdminClient(settings(access))
    _results(client.create_topics([NewTopic(topic, PARTITIONS)], operation_timeout=_WAIT_S))


def produce(access: Access, topic: str, messages: Sequence[bytes], **more: Any) -> None:
    """Each third with another codec; a broken delivery is raised."""
    for number, codec in enumerate(("none", "lz4", "zstd")):
        producer = Producer(settings(access) | {"compression.type": codec, "linger.ms": 2})
        errors = []
        for value in messages[number::3]:
            producer.produce(
                topic, value, key=value[:4], headers=[("codec", codec.encode())],
                on_delivery=lambda error, _, errors=errors: errors.append(error), **more,
            )  # fmt: skip
        assert producer.flush(_WAIT_S) == 0
        assert set(errors) == {None}, errors


def consume(access: Access, topic: str, count: int, isolation: str = "read_committed") -> list[bytes]:
    """`count` messages, and whatever more comes within a moment."""
    own = {"group.id": f"{topic}-{isolation}", "isolation.level": isolation}
    consumer = Consumer(settings(access) | own | {"enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    found: list[bytes] = []
    for _ in range(_WAIT_S * 5):
        found += [_value(message) for message in consumer.consume(100, 0.2)]
        if len(found) >= count:
            break
    found += [_value(message) for message in consumer.consume(100, 0.2)]
    consumer.close()
    return found


def _value(message: Any) -> bytes:
    assert message.error() is None, message.error()
    return bytes(message.value())


def _results(futures: dict[Any, Any]) -> list[Any]:
    return [future.result(_WAIT_S) for future in futures.values()]
