"""Answers that no broker gave: an error in answer to a request of any API and version, or a given body.

In: a request's frame and an error code. Out: the bytes of a whole response frame (without size prefix) that
says so: for every topic, partition, group, resource, ... that the request names, where the answer has errors
for them, and for the whole. Requests and answers are matched by the schema; what the schema cannot tell is in
the tables here, all of it read off what Kafka's brokers answer. Refuses to know why a request is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from kwsniff import wire
from kwsniff.conversation.headers import PRODUCE, RequestHeader, acks
from kwsniff.errors import EncodeError, Reason, UnknownMessage
from kwsniff.model import Body, Frame, Protocol, Side
from kwsniff.wire import codec
from kwsniff.wire.errors import error_code as code_of
from kwsniff.wire.schema import Field, Message

API_VERSIONS = 18
UNSUPPORTED_VERSION = 35

_IDENTITIES = frozenset(
    ("topicName", "topicId", "partitionIndex", "groupId", "transactionalId", "producerId")
)
_TELLING = {
    "entityName",
    "entityType",
    "feature",
    "groupInstanceId",
    "id",
    "key",
    "memberId",
    "name",
    "resourceName",
    "resourceType",
}
"""Fields without an entity type that say what an item is about."""

_ALIASES = {"coordinatorKeys": "key", "index": "partitionIndex", "user": "name"}
"""Other names for that in some messages."""

_MIRRORED = {
    ("AlterUserScramCredentialsResponse", "results"): ("deletions", "upsertions"),
    ("AlterClientQuotasResponse", "entity"): ("entity",),
}
"""Arrays of answers that are made from these of the request, each of its items once."""

_ASIDE = "topicConfigErrorCode"
"""An error code that does not tell whether what was asked for was done."""

_NONE: dict[str, Body] = {
    "CreateDelegationTokenResponse": {
        "principalType": "User",
        "principalName": "ANONYMOUS",
        "tokenRequesterPrincipalType": "User",
        "tokenRequesterPrincipalName": "ANONYMOUS",
        "issueTimestampMs": -1,
        "expiryTimestampMs": -1,
        "maxTimestampMs": -1,
    },
    "DeleteRecordsResponse": {"lowWatermark": -1},
    "DescribeClientQuotasResponse": {"entries": None},
    "DescribeShareGroupOffsetsResponse": {"startOffset": -1},
    "FetchResponse": {"highWatermark": -1},
    "FindCoordinatorResponse": {"port": -1},
    "InitProducerIdResponse": {"producerEpoch": -1},
    "JoinGroupResponse": {"protocolName": None},
    "OffsetFetchResponse": {"committedOffset": -1},
    "ProduceResponse": {"baseOffset": -1},
}
"""What brokers say for "none" where the schema's default says something else. Null: where it may be."""

_PARTITION_ERRORS = """
    OFFSET_OUT_OF_RANGE CORRUPT_MESSAGE UNKNOWN_TOPIC_OR_PARTITION INVALID_FETCH_SIZE LEADER_NOT_AVAILABLE
    NOT_LEADER_OR_FOLLOWER REPLICA_NOT_AVAILABLE MESSAGE_TOO_LARGE OFFSET_METADATA_TOO_LARGE
    INVALID_TOPIC_EXCEPTION RECORD_LIST_TOO_LARGE NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND
    TOPIC_AUTHORIZATION_FAILED INVALID_TIMESTAMP TOPIC_ALREADY_EXISTS INVALID_PARTITIONS
    INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT UNSUPPORTED_FOR_MESSAGE_FORMAT KAFKA_STORAGE_ERROR
    FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH UNSUPPORTED_COMPRESSION_TYPE OFFSET_NOT_AVAILABLE
    PREFERRED_LEADER_NOT_AVAILABLE ELIGIBLE_LEADERS_NOT_AVAILABLE ELECTION_NOT_NEEDED
    NO_REASSIGNMENT_IN_PROGRESS GROUP_SUBSCRIBED_TO_TOPIC INVALID_RECORD UNSTABLE_OFFSET_COMMIT
    SNAPSHOT_NOT_FOUND POSITION_OUT_OF_RANGE UNKNOWN_TOPIC_ID INCONSISTENT_TOPIC_ID NEW_LEADER_ELECTED
    OFFSET_MOVED_TO_TIERED_STORAGE INVALID_RECORD_STATE FENCED_STATE_EPOCH
"""
"""Errors of a topic or partition. Clients look for them there, and drop the whole answer of a Fetch, or fail
for good, when they find one of them at the top."""


class _Asked(NamedTuple):
    """A struct of the request, or an element of its array."""

    fields: tuple[Field, ...]
    body: Body
    known: Body
    """What it and the structs around it say of what they are about: role -> value."""


class _Place(NamedTuple):
    """Where an error code goes."""

    holder: Body
    key: str
    of_partition: bool


def answer(request: Frame, error_code: int) -> bytes | None:
    """The response frame that refuses a request; None where no answer can: there is no room for an error in
    it, it would be about nothing (a request for all topics), or the request wants none (acks=0).

    A request whose body cannot be read is refused as a whole, where its API has an error for the whole.
    """
    if request.protocol is not Protocol.KAFKA or request.version is None:
        return None
    if request.api == API_VERSIONS and (
        error_code == UNSUPPORTED_VERSION or not _response(request).versions.covers(request.version)
    ):
        return respond(request, _fallback(request.version, error_code))
    response = wire.response_of(request.api)
    if response is None or not response.versions.covers(request.version) or _wants_none(request):
        return None
    body = _refused(request, response, error_code)
    return None if body is None else respond(request, body)


def respond(request: Frame, body: Body) -> bytes:
    """The response frame with a given body, in answer to a request.

    Raises EncodeError for what its version cannot carry, UnknownMessage for an API or version that there is
    not.
    """
    version = request.version or 0
    header = {"correlationId": request.correlation_id or 0}
    name = _response(request).name
    return wire.encode("ResponseHeader", wire.header_versions(request.api, version)[1], header) + _encoded(
        name, request.api, version, body
    )


def reencode(frame: Frame, body: Body) -> bytes:
    """A frame of either side with another body behind its own header; what it has behind its body stays too.

    Raises as `respond`, and EncodeError where the frame's header cannot be read.
    """
    message = wire.request_of(frame.api) if frame.side is Side.REQUEST else wire.response_of(frame.api)
    if message is None:
        raise UnknownMessage(f"no API has key {frame.api}")
    if frame.body_at < 0:
        raise EncodeError("the frame's header cannot be read")
    raw = frame.raw
    left_over = [fault.offset for fault in frame.faults if fault.reason is Reason.TRAILING_BYTES]
    tail = raw[left_over[0] :] if left_over and left_over[0] is not None else b""
    return raw[: frame.body_at] + _encoded(message.name, frame.api, frame.version or 0, body) + tail


def _encoded(name: str, api: int, version: int, body: Body) -> bytes:
    if api == API_VERSIONS and name.endswith("Response") and _is_fallback(body):
        version = 0
    return wire.encode(name, version, body)


def _is_fallback(body: Body) -> bool:
    """Whether it is the answer to a version of ApiVersions that the broker does not have (KIP-511)."""
    return body.get("errorCode") == UNSUPPORTED_VERSION and body.keys() <= {"errorCode", "apiKeys"}


def _fallback(version: int, error_code: int) -> Body:
    """It offers ApiVersions below the version that is refused, as a broker without that one would."""
    highest = min(wire.message("ApiVersionsRequest").versions.max, max(version - 1, 0))
    entry = {"apiKey": API_VERSIONS, "minVersion": 0, "maxVersion": highest}
    return {"errorCode": error_code, "apiKeys": [entry]}


def _response(request: Frame) -> Message:
    message = wire.response_of(request.api)
    if message is None:
        raise UnknownMessage(f"no API has key {request.api}")
    return message


def _wants_none(request: Frame) -> bool:
    if request.api != PRODUCE:
        return False
    header = RequestHeader(PRODUCE, request.version or 0, 0, request.client_id, request.body_at)
    return acks(request.raw, header) == 0


def _refused(request: Frame, response: Message, error_code: int) -> Body | None:
    """The body with the code in its places; None where it has none."""
    version, asked_body = request.version or 0, request.body or {}
    asked_message = wire.request_of(request.api)
    assert asked_message is not None  # it has a response
    variant = asked_body.get(codec.VARIANT)
    asked = codec.layout(asked_message, version, asked_body)
    for other in response.variants:
        if variant is not None and other.variant == variant:
            response = other
    making = _Making(response, version)
    body = making.struct(response.fields, _Asked(asked.fields, asked_body, {}))
    places = making.places
    if error_code in _of_partitions():
        places = [place for place in places if place.of_partition] or places
    for place in places:
        place.holder[place.key] = error_code
    if response.variant is not None:
        body[codec.VARIANT] = response.variant
    return body if places else None


class _Making:
    """An answer in the making: what it is about, no more than a broker that refuses it would say, and where
    its errors go."""

    def __init__(self, response: Message, version: int) -> None:
        self.places: list[_Place] = []
        self._name = response.name
        self._version = version
        self._none = _NONE.get(response.name, {})

    def struct(self, fields: Sequence[Field], asked: _Asked) -> Body:
        """The fields that are not to be written as their defaults."""
        body: Body = {}
        there = [field for field in fields if field.versions.covers(self._version)]
        of_leader = any(field.key == "leaderId" for field in there)
        for field in there:
            if _is_error(field):
                about = {"topicName", "topicId", "partitionIndex"} & asked.known.keys()
                self.places.append(_Place(body, field.key, bool(about)))
            elif field.array and field.is_struct and self._is_mirrored(field):
                body[field.key] = [self.struct(field.fields, item) for item in self._items(field, asked)]
            elif field.key in self._none:
                self._say_none(field, body)
            elif field.is_struct and not field.array and field.nullable is None:
                body[field.key] = self.struct(field.fields, asked)
            elif not field.array:
                self._say(field, body, asked.known, of_leader)
        return body

    def _say_none(self, field: Field, body: Body) -> None:
        value = self._none[field.key]
        if value is not None or field.null_in(self._version):
            body[field.key] = value

    def _say(self, field: Field, body: Body, known: Body, of_leader: bool) -> None:
        value = known.get(_role(field) or "")
        if value is not None or (_role(field) in known and field.null_in(self._version)):
            body[field.key] = value
        elif field.key.lower().endswith("errormessage") and field.null_in(self._version):
            body[field.key] = None  # as Kafka where the code says it all
        elif field.entity == "brokerId" or (of_leader and field.key == "leaderEpoch"):
            body[field.key] = -1

    def _is_mirrored(self, field: Field) -> bool:
        return (self._name, field.key) in _MIRRORED or _has_errors(field, self._version)

    def _items(self, field: Field, asked: _Asked) -> Iterator[_Asked]:
        """What the request names that an array of the answer has items for."""
        explicit = _MIRRORED.get((self._name, field.key))
        if explicit is None:
            yield from _elements(_source(asked.fields, field, self._version), asked)
            return
        seen: list[Body] = []
        for source in (f for f in asked.fields if f.key in explicit):
            for item in _elements((source,), asked):
                if item.known not in seen:
                    seen.append(item.known)
                    yield item


def _elements(path: tuple[Field, ...], asked: _Asked) -> Iterator[_Asked]:
    """Every element at the end of a path of arrays of the request."""
    if not path:
        return
    first, role = path[0], _role(path[0])
    for value in asked.body.get(first.key) or ():
        if not isinstance(value, dict):
            said = {} if role is None else {role: value}
            yield _Asked((), {}, {**asked.known, **said})
            continue
        said = {known: value.get(f.key) for f in first.fields if not f.array and (known := _role(f))}
        element = _Asked(first.fields, value, {**asked.known, **said})
        if len(path) == 1:
            yield element
        else:
            yield from _elements(path[1:], element)


def _source(fields: tuple[Field, ...], wanted: Field, version: int) -> tuple[Field, ...]:
    """The arrays of the request, one in the other, that say most of what an item of the answer is about."""
    said = [field for field in wanted.fields if field.versions.covers(version) and not _is_error(field)]
    roles = frozenset(role for field in said if (role := _role(field)) and not field.array)
    if roles:
        return _best(fields, roles, version)[1]
    # Items that say nothing of their own follow the order of the request's (ACLs, quotas).
    if any(not field.array and field.key != "errorMessage" for field in said):
        return ()
    return tuple(field for field in fields if field.array and field.versions.covers(version))[:1]


def _best(fields: Sequence[Field], roles: frozenset[str], version: int) -> tuple[int, tuple[Field, ...]]:
    """How many of the roles the best path of arrays says, and the path; the first of equals."""
    best: tuple[int, tuple[Field, ...]] = (0, ())
    for field in fields:
        if not field.array or not field.versions.covers(version):
            continue
        own = roles & _said(field, version)
        deeper = _best(field.fields, roles - own, version)
        if len(own) + deeper[0] > best[0]:
            best = (len(own) + deeper[0], (field, *deeper[1]))
    return best


def _said(array: Field, version: int) -> frozenset[str]:
    """What an element of an array says of what it is about."""
    fields = (
        [field for field in array.fields if field.versions.covers(version) and not field.array]
        if array.is_struct
        else [array]
    )
    return frozenset(role for field in fields if (role := _role(field)))


def _role(field: Field) -> str | None:
    if field.is_struct:
        return None
    if field.entity is not None:
        return field.entity if field.entity in _IDENTITIES else None
    return _ALIASES.get(field.key, field.key if field.key in _TELLING else None)


def _is_error(field: Field) -> bool:
    return field.entity == "errorCode" and field.key != _ASIDE


def _has_errors(field: Field, version: int) -> bool:
    return any(
        (_is_error(below) or _has_errors(below, version)) and below.versions.covers(version)
        for below in field.fields
    )


@cache
def _of_partitions() -> frozenset[int]:
    return frozenset(code for name in _PARTITION_ERRORS.split() if (code := code_of(name)) is not None)
