"""Which config values are secrets. What else is secret (tokens, HMACs, salted passwords) the schema marks.

In: one config entry of a body, a dict with `name` and what the message tells about it. Out: hide it or not.
Follows Kafka's own rule for its logs: a setting that Kafka does not know is hidden, for it may be anything
(KafkaConfig.maybeSensitive); an answer in which the broker says whether a value is sensitive is believed,
unless the name says otherwise.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

REDACTED = "<redacted>"
_PASSWORD = 9  # configType of DescribeConfigs (KIP-569)
_TELLING = re.compile(
    r"passw(or)?d|passphrase|pwd|secret|credential|jaas|token|api[._-]?key|(^|[._-])keys?($|[._-])"
    r"|keystore\.key|certificate\.chain|truststore\.certificates",
    re.IGNORECASE,
)
_LISTENER = re.compile(r"^listener\.name\.[^.]+\.(?:(?:plain|gssapi|oauthbearer|scram-sha-\d+)\.)?")

# Settings of topics, brokers, groups and client metrics whose type is not PASSWORD.
_NAMES = """
cleanup.policy compression.type compression.gzip.level compression.lz4.level compression.zstd.level
delete.retention.ms file.delete.delay.ms flush.messages flush.ms index.interval.bytes
follower.replication.throttled.replicas leader.replication.throttled.replicas
follower.replication.throttled.rate leader.replication.throttled.rate
replica.alter.log.dirs.io.max.bytes.per.second local.retention.bytes local.retention.ms
max.compaction.lag.ms max.message.bytes message.downconversion.enable message.format.version
message.timestamp.after.max.ms message.timestamp.before.max.ms message.timestamp.difference.max.ms
message.timestamp.type min.cleanable.dirty.ratio min.compaction.lag.ms min.insync.replicas preallocate
remote.storage.enable remote.log.copy.disable remote.log.delete.on.disable errors.deadletterqueue.topic.name
retention.bytes retention.ms segment.bytes segment.index.bytes segment.jitter.ms segment.ms
internal.segment.bytes unclean.leader.election.enable advertised.listeners listeners
listener.security.protocol.map background.threads broker.id node.id broker.rack controller.quorum.voters
controller.quorum.bootstrap.servers controller.listener.names process.roles auto.create.topics.enable
auto.leader.rebalance.enable connection.creation.rate connections.max.idle.ms connections.max.reauth.ms
max.connections max.connections.per.ip max.connections.per.ip.overrides max.connection.creation.rate
default.replication.factor num.partitions delete.topic.enable group.initial.rebalance.delay.ms
group.max.session.timeout.ms group.min.session.timeout.ms group.max.size
group.coordinator.rebalance.protocols inter.broker.listener.name inter.broker.protocol.version
security.inter.broker.protocol log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size
log.cleaner.delete.retention.ms log.cleaner.enable log.cleaner.io.buffer.load.factor
log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second log.cleaner.max.compaction.lag.ms
log.cleaner.min.cleanable.ratio log.cleaner.min.compaction.lag.ms log.cleaner.threads log.cleanup.policy
log.dir log.dirs log.flush.interval.messages log.flush.interval.ms log.index.interval.bytes
log.index.size.max.bytes log.local.retention.bytes log.local.retention.ms log.message.downconversion.enable
log.message.format.version log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms
log.message.timestamp.difference.max.ms log.message.timestamp.type log.preallocate log.retention.bytes
log.retention.check.interval.ms log.retention.hours log.retention.minutes log.retention.ms log.roll.hours
log.roll.jitter.ms log.roll.ms log.segment.bytes log.segment.delete.delay.ms message.max.bytes
metadata.log.dir metric.reporters num.io.threads num.network.threads num.recovery.threads.per.data.dir
num.replica.fetchers num.replica.alter.log.dirs.threads offsets.retention.minutes
offsets.topic.num.partitions offsets.topic.replication.factor offsets.topic.segment.bytes
principal.builder.class producer.id.expiration.ms queued.max.requests quota.window.num
quota.window.size.seconds remote.fetch.max.wait.ms remote.log.index.file.cache.total.size.bytes
remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
remote.log.manager.fetch.max.bytes.per.second remote.log.reader.threads remote.log.storage.system.enable
replica.fetch.max.bytes replica.lag.time.max.ms request.timeout.ms sasl.enabled.mechanisms
sasl.mechanism.inter.broker.protocol sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
sasl.kerberos.ticket.renew.window.factor sasl.oauthbearer.token.endpoint.url
delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms delegation.token.max.lifetime.ms
socket.receive.buffer.bytes socket.request.max.bytes socket.send.buffer.bytes ssl.allow.dn.changes
ssl.allow.san.changes ssl.cipher.suites ssl.client.auth ssl.enabled.protocols
ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.keymanager.algorithm
ssl.keystore.location ssl.keystore.type ssl.principal.mapping.rules ssl.protocol ssl.provider
ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.location ssl.truststore.type
transaction.max.timeout.ms transaction.partition.verification.enable transaction.state.log.min.isr
transaction.state.log.num.partitions transaction.state.log.replication.factor transactional.id.expiration.ms
transaction.two.phase.commit.enable zookeeper.connect consumer.session.timeout.ms
consumer.heartbeat.interval.ms consumer.assignment.interval.ms share.session.timeout.ms
share.heartbeat.interval.ms share.record.lock.duration.ms share.auto.offset.reset share.isolation.level
share.delivery.count.limit share.partition.max.record.locks share.renew.acknowledge.enable
share.assignment.interval.ms streams.session.timeout.ms streams.heartbeat.interval.ms
streams.num.standby.replicas streams.initial.rebalance.delay.ms streams.assignment.interval.ms interval.ms
match metrics
"""
_PLAIN = frozenset(_NAMES.split())


def hides(entry: dict[str, Any]) -> bool:
    """Whether the value of this config entry is not to be shown.

    entry: `name` or `configName`, with `isSensitive` and `configType` where the message has them.
    """
    if entry.get("isSensitive") or entry.get("configType") == _PASSWORD:
        return True
    name = entry.get("name")
    if not isinstance(name, str):
        return True
    told = "isSensitive" in entry or "source" in entry  # a synonym carries its source; its entry the flag
    return _hidden_name(name, told)


@lru_cache(maxsize=4096)
def _hidden_name(name: str, told: bool) -> bool:
    if _LISTENER.sub("", name) in _PLAIN:
        return False
    return True if not told else _TELLING.search(name) is not None
