"""The programs with aiokafka. Its event loop runs while somebody waits for something, and only then."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from client_plan import ABORTED, COMMITTED, COMMITTED_TOO, PARTITIONS, Access, in_group, values

NAME = "aiokafka"
FAULTS = ()
_WAIT_S = 30
_CODECS = (None, "lz4", "gzip")


def roundtrip(access: Access, topic: str) -> list[bytes]:
    return asyncio.run(_roundtrip(access, topic))


def group(access: Access, topic: str) -> list[bytes]:
    with asyncio.Runner() as runner:
        runner.run(_create(access, topic))
        return in_group(
            lambda messages: runner.run(_produce(access, topic, messages)),
            lambda: _Member(runner, access, topic),
        )


def transactions(access: Access, topic: str) -> dict[str, Any]:
    return asyncio.run(_transactions(access, topic))


ADMIN_EXPECTED = {
    "retention": "3600000",
    "partitions": 5,
    "after deletion": 10,
    "group": "Stable",
    "group offset": 0,
    "gone": True,
}


def admin(access: Access, topic: str) -> dict[str, Any]:
    return asyncio.run(_admin(access, topic))


async def _roundtrip(access: Access, topic: str) -> list[bytes]:
    await _create(access, topic)
    await _produce(access, topic, values(0))
    return sorted(await _consume(access, topic, len(values(0)), "read_committed"))


async def _transactions(access: Access, topic: str) -> dict[str, Any]:
    await _create(access, topic)
    place = TopicPartition(topic, 0)
    producer = AIOKafkaProducer(**settings(access), transactional_id=topic)
    await producer.start()
    for messages, aborted in ((COMMITTED, False), (ABORTED, True), (COMMITTED_TOO, False)):
        await producer.begin_transaction()
        await asyncio.gather(*[await producer.send(topic, value, key=value[:3]) for value in messages])
        if aborted:
            await producer.abort_transaction()
        else:
            await producer.send_offsets_to_transaction({place: 17}, topic)
            await producer.commit_transaction()
    await producer.stop()
    committed = len(COMMITTED + COMMITTED_TOO)
    reader = AIOKafkaConsumer(**settings(access), group_id=topic, enable_auto_commit=False)
    await reader.start()
    told = {
        "read_committed": sorted(await _consume(access, topic, committed, "read_committed")),
        "read_uncommitted": sorted(
            await _consume(access, topic, committed + len(ABORTED), "read_uncommitted")
        ),
        "offset sent": await reader.committed(place),
    }
    await reader.stop()
    return told


async def _admin(access: Access, topic: str) -> dict[str, Any]:
    told: dict[str, Any] = {}
    await _create(access, topic)
    client = AIOKafkaAdminClient(**settings(access))
    await client.start()
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "3600000"})
    await client.alter_configs([resource])
    told["retention"] = await _eventually(lambda: _retention(client, topic), ADMIN_EXPECTED["retention"])
    await client.create_partitions({topic: NewPartitions(5)})
    told["partitions"] = await _eventually(lambda: _partitions(client, topic), 5)
    await _produce(access, topic, values(0), partition=0)
    place = TopicPartition(topic, 0)
    told["after deletion"] = (await client.delete_records({place: RecordsToDelete(10)}))[place]
    told |= await _group(access, client, topic)
    await client.describe_cluster()
    await client.delete_topics([topic])
    told["gone"] = await _eventually(lambda: _gone(client, topic), True)
    await client.close()
    return told


async def _retention(client: AIOKafkaAdminClient, topic: str) -> str:
    answers = await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    return {entry[0]: entry[1] for entry in answers[0].resources[0][4]}["retention.ms"]


async def _partitions(client: AIOKafkaAdminClient, topic: str) -> int:
    return len((await client.describe_topics([topic]))[0]["partitions"])


async def _gone(client: AIOKafkaAdminClient, topic: str) -> bool:
    return topic not in await client.list_topics()


async def _eventually(read: Callable[[], Coroutine[Any, Any, Any]], wanted: Any) -> Any:
    """As `client_plan.eventually`."""
    for _ in range(200):
        if (found := await read()) == wanted:
            break
        await asyncio.sleep(0.05)
    return found


async def _group(access: Access, client: AIOKafkaAdminClient, topic: str) -> dict[str, Any]:
    consumer = _consumer(access, topic)
    await consumer.start()
    place = TopicPartition(topic, 1)
    async with asyncio.timeout(_WAIT_S):
        while place not in consumer.assignment():
            await asyncio.sleep(0.05)
    await consumer.commit({place: 0})
    assert topic in [name for name, _ in await client.list_consumer_groups()]
    described = await client.describe_consumer_groups([topic])
    offsets = await client.list_consumer_group_offsets(topic)
    await consumer.stop()
    return {"group": described[0].groups[0][2], "group offset": offsets[place].offset}


class _Member:
    def __init__(self, runner: asyncio.Runner, access: Access, topic: str) -> None:
        self._run = runner.run

        async def made() -> AIOKafkaConsumer:
            consumer = _consumer(access, topic)
            await consumer.start()
            return consumer

        self._consumer = self._run(made())

    def poll(self) -> list[bytes]:
        found = self._run(self._consumer.getmany(timeout_ms=200))
        return [record.value for records in found.values() for record in records]

    def assigned(self) -> int:
        return len(self._consumer.assignment())

    def commit(self) -> None:
        self._run(self._consumer.commit())

    def close(self) -> None:
        self._run(self._consumer.stop())


def settings(access: Access) -> dict[str, Any]:
    told: dict[str, Any] = {"bootstrap_servers": access.bootstrap, "security_protocol": access.protocol}
    if access.mechanism:
        told |= {"sasl_mechanism": access.mechanism}
        told |= {"sasl_plain_username": access.user, "sasl_plain_password": access.password}
    if access.ca:
        told["ssl_context"] = ssl.create_default_context(cafile=access.ca)
    return told


def _consumer(access: Access, topic: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic, **settings(access), group_id=topic, auto_offset_reset="earliest",
        enable_auto_commit=False, heartbeat_interval_ms=300, rebalance_timeout_ms=5000,
    )  # fmt: skip


async def _create(access: Access, topic: str) -> None:
    client = AIOKafkaAdminClient(**settings(access))
    await client.start()
    answer = await client.create_topics([NewTopic(topic, PARTITIONS, 1)])
    assert answer.topic_errors[0][1] == 0, answer
    await client.close()


async def _produce(access: Access, topic: str, messages: Sequence[bytes], **more: Any) -> None:
    for number, codec in enumerate(_CODECS):
        producer = AIOKafkaProducer(**settings(access), compression_type=codec)
        await producer.start()
        sent = [
            await producer.send(topic, value, key=value[:4], headers=[("codec", b"x")], **more)
            for value in messages[number::3]
        ]
        await asyncio.gather(*sent)
        await producer.stop()


async def _consume(access: Access, topic: str, count: int, isolation: str) -> list[bytes]:
    """`count` messages, and whatever more comes within a moment."""
    consumer = AIOKafkaConsumer(
        **settings(access), auto_offset_reset="earliest", isolation_level=isolation, enable_auto_commit=False
    )
    await consumer.start()
    consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
    found: list[bytes] = []
    for _ in range(_WAIT_S * 5):
        records = await consumer.getmany(timeout_ms=200)
        found += [record.value for part in records.values() for record in part]
        if len(found) >= count and not records:
            break
    await consumer.stop()
    return found
