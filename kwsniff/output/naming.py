"""What the text fields of Kafka's messages name: the kind that says which pseudonym they get.

In: a message, one of its fields, and the struct that holds its value. Out: a kind, such as "topic", or None
where the value is a word of Kafka's own. Entity types of the schema come first, then the tables here; text
that neither knows is "text", so that what a later release adds is hidden, too.
"""

from __future__ import annotations

import re

from kwsniff.model import Body
from kwsniff.output.redact import hides
from kwsniff.wire.schema import Field

HOST = "host"
"""The kind of what is an address, or a name for one."""
PRINCIPAL = "principal"
"""The kind of `User:alice`: its first part stays."""

_ENTITIES = {"topicName": "topic", "groupId": "group", "transactionalId": "transaction"}
_KINDS = {
    "clientHost": HOST,
    "clientId": "client",
    "clusterId": "cluster",
    "consumerId": "member",
    "groupInstanceId": "instance",
    "host": HOST,
    "hostFilter": HOST,
    "hostName": HOST,
    "instanceId": "instance",
    "leader": "member",
    "listener": "listener",
    "logDir": "dir",
    "memberId": "member",
    "ownerPrincipalName": "user",
    "path": "dir",
    "principal": PRINCIPAL,
    "principalFilter": PRINCIPAL,
    "principalName": "user",
    "rack": "rack",
    "rackId": "rack",
    "tokenRequesterPrincipalName": "user",
    "user": "user",
    "v0Host": HOST,
}
_VOCABULARY_TEXT = """
clientSoftwareName clientSoftwareVersion entityType feature groupState groupType mechanism mechanisms
ownerPrincipalType principalType requestedMetrics stateFilters statesFilter tokenRequesterPrincipalType
transactionState typesFilter unknownStateFilters
"""
_VOCABULARY = frozenset(_VOCABULARY_TEXT.split())
"""Fields whose values are words of Kafka's, or the name of a client's software."""
_PROTOCOLS = frozenset(
    ("assignorName", "partitionAssignmentStrategy", "protocolData", "protocolName", "protocolType")
) | {"serverAssignor"}
_WORDS_TEXT = {
    "protocol": "connect consumer share streams range roundrobin sticky cooperative-sticky uniform stream"
    " default compatible sessioned RoundRobinAssigner",
    "listener": "PLAINTEXT SSL SASL_PLAINTEXT SASL_SSL EXTERNAL INTERNAL CONTROLLER BROKER REPLICATION",
    "quota": "producer_byte_rate consumer_byte_rate request_percentage controller_mutation_rate"
    " connection_creation_rate",
}
_WORDS = {kind: frozenset(text.split()) for kind, text in _WORDS_TEXT.items()}
"""Names that everybody gives: they stay."""
_OF_GROUPS = frozenset(("JoinGroupRequest", "JoinGroupResponse"))
_USERS = frozenset(("AlterUserScramCredentialsRequest", "DescribeUserScramCredentialsRequest"))
_QUOTAS = frozenset(("AlterClientQuotasRequest", "DescribeClientQuotasResponse"))
_COORDINATORS = frozenset(("FindCoordinatorRequest", "FindCoordinatorResponse"))
_KEY_TYPES = {0: "group", 1: "transaction"}
_CONFIG_RESOURCES = {2: "topic", 32: "group", 16: "metrics"}
_ACL_RESOURCES = {2: "topic", 3: "group", 5: "transaction", 6: "token", 7: PRINCIPAL}
_QUOTA_ENTITIES = {"user": "user", "client-id": "client", "ip": HOST}
_PLAIN_VALUE = re.compile(
    r"-?\d+(\.\d+)?|true|false|compact|delete|compact,delete|delete,compact|producer|uncompressed|none|gzip"
    r"|snappy|lz4|zstd|CreateTime|LogAppendTime|all|classic|consumer|share|streams|earliest|latest"
)


def kind_of(message: str, field: Field, value: str, holder: Body, asked: Body) -> str | None:
    """The kind; None: the value stays. holder: the struct around it. asked: the body of the request, which
    says what the keys of an answer of FindCoordinator are."""
    key = field.key
    if field.entity in _ENTITIES:
        internal = field.entity == "topicName" and value.startswith("__")
        return None if internal else _ENTITIES[field.entity]
    if key in _VOCABULARY:
        return None
    if field.mark == "config":
        return None if _PLAIN_VALUE.fullmatch(value) else "value"
    if key in ("key", "coordinatorKeys") and message in _COORDINATORS:
        return _KEY_TYPES.get(asked.get("keyType", 0), "key")
    if key in ("entityName", "match"):
        return _QUOTA_ENTITIES.get(holder.get("entityType", ""), "text")
    if key in ("resourceName", "resourceNameFilter"):
        return _resource(message, value, holder)
    if key == "name":
        return _of_name(message, value, holder)
    if key == "configurationKeys":
        return "config" if hides({"name": value}) else None
    kind = "protocol" if key in _PROTOCOLS else "quota" if message in _QUOTAS else _KINDS.get(key, "text")
    return None if value in _WORDS.get(kind, ()) else kind


def _of_name(message: str, value: str, holder: Body) -> str | None:
    """A field that is called `name` and no more."""
    if "value" in holder:
        return "config" if hides({"name": value}) else None
    if "port" in holder or message == "UpdateMetadataRequest":
        return None if value in _WORDS["listener"] else "listener"
    if any(key.startswith(("maxVersion", "maxSupportedVersion")) for key in holder):
        return None  # a feature
    if message in _OF_GROUPS:
        return None if value in _WORDS["protocol"] else "protocol"
    return "user" if message in _USERS else "text"


def _resource(message: str, value: str, holder: Body) -> str | None:
    """Of a setting or an ACL; both number their types differently."""
    number = holder.get("resourceType", holder.get("resourceTypeFilter"))
    kind = (_ACL_RESOURCES if "Acl" in message else _CONFIG_RESOURCES).get(number or 0, "resource")
    of_broker = kind == "resource" and value.isdecimal()
    of_kafka = value in ("*", "kafka-cluster") or (kind == "topic" and value.startswith("__"))
    return None if of_broker or of_kafka else kind
