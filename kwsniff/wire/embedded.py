"""Payloads inside of payloads: what bytes fields, and the keys and values of internal topics, hold.

In: a body as the codec gives it, or key and value of a record. Out: a copy in which every payload that
parses and re-encodes to the same bytes is a dict; any other stays bytes, so that nothing is lost. Never
raises for what it is given. Where the payloads are is the table `_FIELDS`; their layouts are schema
messages.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import Any

from kwsniff.errors import DecodeError, EncodeError, UnknownMessage
from kwsniff.wire import codec, connect, schema
from kwsniff.wire.encoder import write_uvarint
from kwsniff.wire.primitives import Bad, Body, read_uvarint
from kwsniff.wire.schema import Message

CONTROL_TYPES = {
    0: "ABORT",
    1: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}
"""Control record type -> its name in Kafka's ControlRecordType."""

_CONTROL_VALUES = {
    0: "EndTxnMarker",
    1: "EndTxnMarker",
    2: "LeaderChangeMessage",
    3: "SnapshotHeaderRecord",
    4: "SnapshotFooterRecord",
    5: "KRaftVersionRecord",
    6: "VotersRecord",
}
_METADATA_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
_COORDINATOR_STORES = ("__consumer_offsets", "__transaction_state", "__share_group_state")
_METADATA_STORES = {
    "__cluster_metadata": "__cluster_metadata",
    _METADATA_TOPIC_ID: "__cluster_metadata",
    "__remote_log_metadata": "__remote_log_metadata",
}
_STREAMS = "stream"
"""The name of the assignor of Kafka Streams."""

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_TYPE = Struct(">hh")

_Trail = tuple[Body, ...]
"""The structs around a field, the innermost first."""
_Read = Callable[[bytes, _Trail], Body | None]
_Framed = tuple[Body, Body] | None


def expand(name: str, version: int, body: Body, request: Body | None = None) -> Body:  # noqa: ARG001
    """A copy of a message's body with its embedded payloads decoded; what is not changed is shared with it.

    Group subscriptions and assignments and the principal of an Envelope become {"version": N, ...fields}; an
    Envelope's requestData {"version", "requestHeader", "request"}, its responseData {"version",
    "responseHeader", "response"} if the (unexpanded) body of its request is given. The rest stays bytes.
    `version` is that of the message; no payload depends on it.
    """
    for path, read in _FIELDS.get(name, ()):
        body = _rebuilt(body, path.split("."), (), read)
    if name == "EnvelopeResponse" and request is not None:
        body = _rebuilt(body, ["responseData"], (request,), _forwarded_response)
    return body


def _rebuilt(body: Body, path: list[str], trail: _Trail, read: _Read) -> Body:
    key, *below = path
    value = body.get(key)
    trail = (body, *trail)
    new: Any = None
    if below and isinstance(value, dict):
        new = _rebuilt(value, below, trail, read)
    elif below and isinstance(value, list):
        new = [_rebuilt(one, below, trail, read) if isinstance(one, dict) else one for one in value]
    elif not below and isinstance(value, bytes) and value:
        new = read(value, trail)
    return body if new is None else {**body, key: new}


def _exact(message: Message, version: int, data: bytes, at: int = 0) -> Body | None:
    """The message that fills `data` from `at` on, if it has that version and writes the same bytes."""
    try:
        body = codec.decode_exact(message, version, data, at)
        same = codec.encode(message, version, body) == data[at:]
    except (DecodeError, EncodeError, UnknownMessage):
        return None
    return body if same else None


def _versioned(message: Message, data: bytes, lenient: bool = False) -> Body | None:
    """A message behind its version. lenient: a higher version than those known is read as the highest."""
    if len(data) < 2:
        return None
    version: int = _INT16.unpack_from(data)[0]
    known = min(version, message.versions.max) if lenient else version
    body = _exact(message, known, data, 2)
    return None if body is None else {"version": version} | body


def _near(trail: _Trail, *keys: str) -> Any:
    """The value of the first of the keys in the nearest struct that has it."""
    return next((around[key] for around in trail for key in keys if around.get(key) is not None), None)


def _subscription(data: bytes, trail: _Trail) -> Body | None:
    protocol_type = _near(trail, "protocolType")
    body = None
    if protocol_type in (None, "consumer"):
        body = _versioned(schema.message("ConsumerProtocolSubscription"), data, lenient=True)
        if body is not None:
            if _near(trail, "name", "protocolName", "protocolData", "protocol") == _STREAMS:
                body = _rebuilt(body, ["userData"], (), _streams)
            return body
    if protocol_type in (None, "connect"):
        body = _versioned(connect.message("ConnectProtocolMetadata"), data, lenient=True)
        return body and _rebuilt(body, ["allocation"], (), _connect_assignment)
    return None


def _assignment(data: bytes, trail: _Trail) -> Body | None:
    protocol_type = _near(trail, "protocolType")
    body = None
    if protocol_type in (None, "consumer"):
        body = _versioned(schema.message("ConsumerProtocolAssignment"), data, lenient=True)
    if body is None and protocol_type in (None, "connect"):
        body = _connect_assignment(data, trail)
    return body


def _connect_assignment(data: bytes, _trail: _Trail) -> Body | None:
    return _versioned(connect.message("ConnectProtocolAssignment"), data, lenient=True)


def _streams(data: bytes, _trail: _Trail) -> Body | None:
    """The user data of a Streams member. Its version is an int32, and the first field of the message."""
    if len(data) < 4:
        return None
    return _exact(schema.message("SubscriptionInfoData"), _INT32.unpack_from(data)[0], data)


def _principal(data: bytes, _trail: _Trail) -> Body | None:
    return _versioned(schema.message("DefaultPrincipalData"), data)


def _frame(data: bytes, header_name: str, header_version: int, message: Message, version: int) -> _Framed:
    """Header and body of a whole request or response, if both write the same bytes."""
    try:
        header, at = codec.decode(schema.message(header_name), header_version, data)
        same = codec.encode(schema.message(header_name), header_version, header) == data[:at]
        body = _exact(message, version, data, at) if same else None
    except (DecodeError, EncodeError, UnknownMessage):
        return None
    return None if body is None else (header, expand(message.name, version, body))


def _api(data: bytes, side: str) -> tuple[Message, int, bool] | None:
    """Message, version and whether that is flexible, as the header of a request says. Not of an Envelope."""
    if len(data) < _TYPE.size:
        return None
    key, version = _TYPE.unpack_from(data)
    stem = schema.api_stem(key)
    if stem is None or stem == "Envelope":
        return None
    message = schema.message(stem + side)
    return message, version, message.flexible_in(version)


def _forwarded_request(data: bytes, _trail: _Trail) -> Body | None:
    """A whole request: header and body (KIP-590). An Envelope inside of an Envelope stays bytes."""
    if (api := _api(data, "Request")) is None:
        return None
    message, version, flexible = api
    framed = _frame(data, "RequestHeader", 2 if flexible else 1, message, version)
    return framed and {"version": version, "requestHeader": framed[0], "request": framed[1]}


def _forwarded_response(data: bytes, trail: _Trail) -> Body | None:
    asked = trail[1].get("requestData")
    if not isinstance(asked, bytes) or (api := _api(asked, "Response")) is None:
        return None
    message, version, flexible = api
    header_version = 1 if flexible and message.name != "ApiVersionsResponse" else 0
    framed = _frame(data, "ResponseHeader", header_version, message, version)
    return framed and {"version": version, "responseHeader": framed[0], "response": framed[1]}


_FIELDS: dict[str, tuple[tuple[str, _Read], ...]] = {
    "JoinGroupRequest": (("protocols.metadata", _subscription),),
    "JoinGroupResponse": (("members.metadata", _subscription),),
    "SyncGroupRequest": (("assignments.assignment", _assignment),),
    "SyncGroupResponse": (("assignment", _assignment),),
    "DescribeGroupsResponse": (
        ("groups.members.memberMetadata", _subscription),
        ("groups.members.memberAssignment", _assignment),
    ),
    "EnvelopeRequest": (("requestData", _forwarded_request), ("requestPrincipal", _principal)),
    "GroupMetadataValue": (
        ("members.subscription", _subscription),
        ("members.assignment", _assignment),
    ),
    "ConsumerGroupMemberMetadataValue": (
        ("classicMemberMetadata.supportedProtocols.metadata", _subscription),
    ),
}
"""Message -> the paths of its payloads, and what reads them."""


def opens(topic: str | None) -> bool:
    """Whether `expand_record` may find something in plain records of that topic."""
    return topic in _COORDINATOR_STORES or topic in _METADATA_STORES


def expand_record(
    topic: str | None, key: bytes | None, value: bytes | None, is_control: bool
) -> tuple[Body | bytes | None, Body | bytes | None]:
    """Key and value of a record of an internal topic, or of a control batch, as far as they can be decoded.

    A decoded one is {"type", "version", ...fields}: the message's name and the version that it was written
    in. (ConsumerGroupRegularExpressionValue has a field `version` of its own, which is then the one shown.)
    The key of a control record is {"type": "COMMIT", "version"}, by Kafka's ControlRecordType. topic: its
    name, None where not known.
    """
    if is_control:
        return _control(key, value)
    if topic in _COORDINATOR_STORES:
        return _coordinator(topic, key, value)
    if topic in _METADATA_STORES and value:
        return key, _metadata(_METADATA_STORES[topic], value) or value
    return key, value


_Pair = tuple[Body | bytes | None, Body | bytes | None]


def _control(key: bytes | None, value: bytes | None) -> _Pair:
    if key is None or len(key) != _TYPE.size:
        return key, value
    version, kind = _TYPE.unpack(key)
    if kind not in CONTROL_TYPES:
        return key, value
    message = schema.message(_CONTROL_VALUES[kind])
    body: Body | None = None
    if value and kind < 2:
        body = _versioned(message, value)
    elif value and len(value) >= 2:  # flexible structs, whose first field is their own version
        own = min(_INT16.unpack_from(value)[0], message.versions.max)
        body = _exact(message, own, value)
    shown = value if body is None else {"type": message.name} | body
    return {"type": CONTROL_TYPES[kind], "version": version}, shown


@cache
def _of_store(store: str) -> dict[tuple[str, int], list[Message]]:
    """(message type, record type) -> the messages of an internal topic that have it."""
    found: dict[tuple[str, int], list[Message]] = {}
    for message in schema.messages():
        if message.store == store and message.api_key is not None:
            found.setdefault((message.type, message.api_key), []).append(message)
    return found


def _coordinator(store: str, key: bytes | None, value: bytes | None) -> _Pair:
    if key is None or len(key) < 2:
        return key, value
    kind: int = _INT16.unpack_from(key)[0]
    for message in _of_store(store).get(("coordinator-key", kind), ()):
        body = _exact(message, message.versions.min, key, 2)
        if body is not None:
            named = {"type": message.name, "version": message.versions.min} | body
            return named, value and (_coordinator_value(store, kind, value) or value)
    return key, value


def _coordinator_value(store: str, kind: int, value: bytes) -> Body | None:
    if store == "__consumer_offsets" and kind == 0:  # both types of an offset commit have the value of type 1
        kind = 1
    for message in _of_store(store).get(("coordinator-value", kind), ()):
        body = _versioned(message, value)
        if body is not None:
            return {"type": message.name} | expand(message.name, body["version"], body)
    return None


def _metadata(store: str, value: bytes) -> Body | None:
    """Frame version, record type and version as unsigned varints, then the record (KIP-631)."""
    try:
        frame, at = read_uvarint(value, 0)
        kind, at = read_uvarint(value, at)
        version, at = read_uvarint(value, at)
    except (Bad, IndexError):
        return None
    head = bytearray()
    for number in (frame, kind, version):
        write_uvarint(number, head)
    if frame > 1 or bytes(head) != value[:at]:
        return None
    for message in _of_store(store).get(("metadata", kind), ()):
        body = _exact(message, version, value, at)
        if body is not None:
            return {"type": message.name, "version": version} | body
    return None
