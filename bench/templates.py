"""Kafka exchanges to fill captures with: encoded once, then filled in with a correlation id and an offset.

In: a seeded random generator. Out: templates of requests with their responses, in the versions of Kafka 2.4,
the newest that Wireshark 4.0 knows. Offsets stand outside of what a record batch's CRC covers, so a filled-in
batch is as good as a newly encoded one.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from kwsniff import wire
from kwsniff.wire import records

Body = dict[str, Any]

OFFSET = 0x5AFE_0FF5_E75A_FE0F
CORRELATION_ID = 0x5AFEC0DE
_OFFSET_BYTES = OFFSET.to_bytes(8, "big")
_CORRELATION_BYTES = CORRELATION_ID.to_bytes(4, "big")
NOW = 1_700_000_000_000
"""Milliseconds; when the captures begin."""
ACLS = -(1 << 31)

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH = 0, 1, 2, 3, 8, 9
FIND_COORDINATOR, HEARTBEAT, API_VERSIONS = 10, 12, 18
VERSIONS = {
    PRODUCE: 8, FETCH: 11, LIST_OFFSETS: 5, METADATA: 9, OFFSET_COMMIT: 8, OFFSET_FETCH: 6,
    FIND_COORDINATOR: 3, HEARTBEAT: 4, API_VERSIONS: 3,
}  # fmt: skip

TOPICS = ("orders", "payments", "shipments", "clicks.web", "clicks.app", "inventory-changes", "audit", "mail")
_WORDS = (
    "customer", "status", "shipped", "pending", "amount", "currency", "EUR", "address", "street", "city",
    "country", "carrier", "tracking", "warehouse", "discount", "total", "sku", "quantity", "returned", "paid",
)  # fmt: skip


class Template(NamedTuple):
    """A frame with its size prefix, cut where the correlation id and the offsets belong."""

    before: bytes
    behind: tuple[bytes, ...]

    def fill(self, correlation_id: int, offset: int) -> bytes:
        behind = self.behind
        rest = behind[0] if len(behind) == 1 else offset.to_bytes(8, "big").join(behind)
        return self.before + correlation_id.to_bytes(4, "big") + rest


class Talk(NamedTuple):
    """A request and its response, and the records in both together."""

    request: Template
    response: Template
    records: int = 0


def talk(api: int, client: str, request: Body, response: Body, held: int = 0) -> Talk:
    version = VERSIONS[api]
    versions = wire.header_versions(api, version)
    asking = {"requestApiKey": api, "requestApiVersion": version, "correlationId": CORRELATION_ID}
    told, answered = wire.request_of(api), wire.response_of(api)
    assert told is not None
    assert answered is not None
    return Talk(
        _template(
            wire.encode("RequestHeader", versions[0], asking | {"clientId": client}),
            wire.encode(told.name, version, request),
        ),
        _template(
            wire.encode("ResponseHeader", versions[1], {"correlationId": CORRELATION_ID}),
            wire.encode(answered.name, version, response),
        ),
        held,
    )


def _template(header: bytes, body: bytes) -> Template:
    frame = (len(header) + len(body)).to_bytes(4, "big") + header + body
    before, behind = frame.split(_CORRELATION_BYTES, 1)
    return Template(before, tuple(behind.split(_OFFSET_BYTES)))


def text(random: Random, size: int) -> bytes:
    """Something like JSON, of exactly `size` bytes; it packs to about a third, as event data does."""
    parts = []
    length = 0
    while length < size:
        parts.append(f'"{random.choice(_WORDS)}":"{random.getrandbits(32):08x}",')
        length += len(parts[-1])
    return "".join(parts).encode()[:size]


def batch(random: Random, codec: str, count: int, size: int) -> Body:
    """Messages of `size` bytes, an eighth of it (at most 16 bytes) the key."""
    key = min(size // 8, 16)
    made = [
        {"key": text(random, key), "value": text(random, size - key), "timestamp": NOW + index // 4}
        for index in range(count)
    ]
    return {"codec": codec, "records": made, "partitionLeaderEpoch": 3}


def produce(client: str, topic: str, partition: int, sent: Body) -> Talk:
    """`sent` as a producer sends it: offsets from 0, no leader epoch."""
    plain = records.encode_records([sent | {"baseOffset": 0, "partitionLeaderEpoch": -1}])
    asked = {"index": partition, "records": plain}
    told = {"index": partition, "errorCode": 0, "baseOffset": OFFSET, "logStartOffset": 0, "recordErrors": []}
    return talk(
        PRODUCE,
        client,
        {"acks": -1, "timeoutMs": 30_000, "topicData": [{"name": topic, "partitionData": [asked]}]},
        {"responses": [{"name": topic, "partitionResponses": [told]}], "throttleTimeMs": 0},
        len(sent["records"]),
    )


def fetch(client: str, topic: str, partition: int, stored: Body, size: int = 1 << 20) -> Talk:
    data = records.encode_records([stored | {"baseOffset": 0}])
    asked = {"partition": partition, "fetchOffset": OFFSET, "partitionMaxBytes": size, "logStartOffset": 0}
    told = {
        "partitionIndex": partition,
        "errorCode": 0,
        "highWatermark": 1 << 40,
        "lastStableOffset": 1 << 40,
        "logStartOffset": 0,
        "abortedTransactions": [],
        "records": _OFFSET_BYTES + data[8:],
    }
    request = {
        "replicaId": -1,
        "maxWaitMs": 500,
        "minBytes": 1,
        "sessionEpoch": -1,
        "topics": [{"topic": topic, "partitions": [asked]}],
    }
    response = {"sessionId": 0, "responses": [{"topic": topic, "partitions": [told]}]}
    return talk(FETCH, client, request, response, len(stored["records"]))


def api_versions(client: str) -> Talk:
    keys = [{"apiKey": key, "minVersion": 0, "maxVersion": last} for key, last in VERSIONS.items()]
    return talk(
        API_VERSIONS,
        client,
        {"clientSoftwareName": "apache-kafka-java", "clientSoftwareVersion": "2.4.1"},
        {"errorCode": 0, "apiKeys": keys},
    )


def metadata(random: Random, client: str, topics: int = 2, partitions: int = 3) -> Talk:
    names = random.sample(TOPICS, topics)
    brokers = [
        {"nodeId": node, "host": f"kafka-{node}.example.com", "port": 9092, "rack": None}
        for node in range(1, 4)
    ]
    told = [
        {
            "errorCode": 0,
            "name": name,
            "topicAuthorizedOperations": ACLS,
            "partitions": [_partition(index) for index in range(partitions)],
        }
        for name in names
    ]
    return talk(
        METADATA,
        client,
        {"topics": [{"name": name} for name in names], "allowAutoTopicCreation": False},
        {"brokers": brokers, "clusterId": "lkc-9y2Xb1QfTt6a", "controllerId": 1, "topics": told},
    )


def _partition(index: int) -> Body:
    return {
        "errorCode": 0,
        "partitionIndex": index,
        "leaderId": index % 3 + 1,
        "leaderEpoch": 7,
        "replicaNodes": [1, 2, 3],
        "isrNodes": [1, 2, 3],
        "offlineReplicas": [],
    }


def list_offsets(random: Random, client: str) -> Talk:
    name, partitions = random.choice(TOPICS), random.sample(range(12), random.randint(2, 8))
    asked = [{"partitionIndex": index, "timestamp": -1} for index in partitions]
    told = [
        {"partitionIndex": index, "errorCode": 0, "offset": OFFSET, "leaderEpoch": 7} for index in partitions
    ]
    return talk(
        LIST_OFFSETS,
        client,
        {"replicaId": -1, "topics": [{"name": name, "partitions": asked}]},
        {"topics": [{"name": name, "partitions": told}]},
    )


def heartbeat(random: Random, client: str) -> Talk:
    group = _group(random, client)
    return talk(HEARTBEAT, client, group | {"generationId": 12}, {"throttleTimeMs": 0, "errorCode": 0})


def offset_commit(random: Random, client: str) -> Talk:
    name, partitions = random.choice(TOPICS), random.sample(range(12), random.randint(3, 10))
    asked = [
        {
            "partitionIndex": index,
            "committedOffset": OFFSET,
            "committedLeaderEpoch": 7,
            "committedMetadata": "",
        }
        for index in partitions
    ]
    told = [{"partitionIndex": index, "errorCode": 0} for index in partitions]
    group = _group(random, client) | {"generationIdOrMemberEpoch": 12}
    return talk(
        OFFSET_COMMIT,
        client,
        group | {"topics": [{"name": name, "partitions": asked}]},
        {"topics": [{"name": name, "partitions": told}]},
    )


def offset_fetch(random: Random, client: str) -> Talk:
    name, partitions = random.choice(TOPICS), random.sample(range(12), random.randint(3, 10))
    told = [
        {
            "partitionIndex": index,
            "committedOffset": OFFSET,
            "committedLeaderEpoch": 7,
            "metadata": "",
            "errorCode": 0,
        }
        for index in partitions
    ]
    group = _group(random, client)["groupId"]
    return talk(
        OFFSET_FETCH,
        client,
        {"groupId": group, "topics": [{"name": name, "partitionIndexes": partitions}]},
        {"topics": [{"name": name, "partitions": told}], "errorCode": 0},
    )


def find_coordinator(random: Random, client: str) -> Talk:
    return talk(
        FIND_COORDINATOR,
        client,
        {"key": _group(random, client)["groupId"], "keyType": 0},
        {"errorCode": 0, "errorMessage": None, "nodeId": 2, "host": "kafka-2.example.com", "port": 9092},
    )


def _group(random: Random, client: str) -> Body:
    member = f"{client}-{random.getrandbits(64):016x}-{random.getrandbits(64):016x}"
    return {"groupId": f"group-{random.randrange(40)}", "memberId": member}
