"""A decoded body -> the body of the JSON line: records counted or decoded, secrets hidden, payloads opened.

In: a body as the codec gives it, never changed. Out: a dict that shares with it whatever needs no treatment,
and the faults that only a look into the records shows. What needs treatment is planned once per message and
version from the schema. Knows neither exchanges nor JSON text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import lru_cache, partial
from typing import Any, NamedTuple

from kwsniff import wire
from kwsniff.output.recordset import Budget, decoded, summary
from kwsniff.output.recordset import Field as RecordsField
from kwsniff.output.redact import REDACTED, hides
from kwsniff.wire import embedded, kafka07
from kwsniff.wire.codec import VARIANT
from kwsniff.wire.embedded import CONTROL_TYPES
from kwsniff.wire.records import read_slice
from kwsniff.wire.schema import Field, Message

Body = dict[str, Any]
DEFAULT_MAX_DECOMPRESSED = 64 << 20
_FORWARDED = {
    "EnvelopeRequest": ("requestData", "request", wire.request_of),
    "EnvelopeResponse": ("responseData", "response", wire.response_of),
}
_SLICE = "unalignedRecords"  # of FetchSnapshot (KIP-630): begins and ends in the middle of a batch


class Options(NamedTuple):
    """How lines are to look: the options of `kwsniff decode` of the same names."""

    records: bool = False
    body: bool = True
    int64_as_string: bool = False
    max_decompressed: int = DEFAULT_MAX_DECOMPRESSED


class _Context(NamedTuple):
    options: Options
    topic_name: Callable[[str], str]
    budget: Budget
    partial: bool  # responses may end in a cut-off batch


class _Place(NamedTuple):
    """Where in the body: the path, the topic around it, and whether a config entry around it is hidden."""

    path: str
    topic: str | None = None
    hidden: bool = False


class _Node(NamedTuple):
    """The fields of a struct that need treatment (key -> treatment, nested struct), and its topic's keys."""

    fields: dict[str, tuple[str, _Node | None]]
    name_key: str | None
    id_key: str | None


def present(
    message: Message,
    version: int,
    body: Body,
    asked: Body | None,
    options: Options,
    topic_name: Callable[[str], str],
    size: int,
) -> tuple[Body, Budget]:
    """(body as the JSON line shows it, what came up in its records). topic_name: topic id -> name, or the id.

    asked: of a response, the body of its request. size: bytes of the frame, which bound the records shown.
    """
    budget = budget_of(options, size, message.type)
    context = _Context(options, topic_name, budget, message.type == "response")
    opened = embedded.expand(message.name, version, body, asked)
    if message.name in _FORWARDED:
        opened = _forwarded(message.name, opened, body if asked is None else asked, context)
    return _treated(message.name, version, opened, context), budget


def _record_payload(payload: Body, context: _Context) -> Body:
    """Key or value of an internal topic, opened: metadata records carry configs and SCRAM keys."""
    if payload["type"] in CONTROL_TYPES.values():
        return payload
    return _treated(payload["type"], payload["version"], payload, context)


def _treated(name: str, version: int, body: Body, context: _Context) -> Body:
    node = plan(name, version, body.get(VARIANT), context.options.int64_as_string)
    return body if node is None else _struct(node, body, _Place(""), context)


def _forwarded(name: str, body: Body, asked: Body, context: _Context) -> Body:
    """The message inside of an Envelope (KIP-590); one that cannot be read may hold any secret."""
    key, side, of_api = _FORWARDED[name]
    inner = body.get(key)
    if not isinstance(inner, dict):
        return {**body, key: inner and REDACTED}
    message = of_api(wire.request_header(asked["requestData"])[0]["requestApiKey"])
    assert message is not None  # or it would not have been opened
    return {**body, key: {**inner, side: _treated(message.name, inner["version"], inner[side], context)}}


def present_token(body: Body) -> Body:
    """A bare SASL token: all of it is secret."""
    return {key: value if value is None else REDACTED for key, value in body.items()}


def present07(body: Body, asked: Body | None, options: Options, size: int) -> tuple[Body, Budget]:
    """As `present`, of Kafka 0.7. asked: of a response, the body of its request, which knows the offsets."""
    budget = budget_of(options, size, "request" if asked is None else "response")
    shown = deepcopy(body)
    for path, holder, key, base in kafka07.record_fields(shown, asked):
        data = holder.pop(key)
        reader = partial(kafka07.Scan, base_offset=base)
        count = partial(kafka07.summarise_message_set, base_offset=base)
        field = RecordsField(data, path, None, asked is not None, reader, count)
        _show_records(holder, key, field, options, budget)
    return shown, budget


def budget_of(options: Options, size: int, side: str) -> Budget:
    """What a body of a frame of `size` bytes may show of its records."""
    most = max(options.max_decompressed, 4 * size)
    return Budget(most, options.max_decompressed, options.int64_as_string, side)


@lru_cache(maxsize=4096)
def plan(name: str, version: int, variant: str | None, int64_as_string: bool) -> _Node | None:
    """What of a message needs treatment; None: nothing, the body is shown as it is."""
    message = wire.message(name)
    fields = next((other.fields for other in message.variants if other.variant == variant), message.fields)
    return _plan(fields, version, int64_as_string)


def _plan(fields: tuple[Field, ...], version: int, int64_as_string: bool) -> _Node | None:
    found: dict[str, tuple[str, _Node | None]] = {}
    keys: dict[str | None, str] = {}
    for field in fields:
        if not field.versions.covers(version):
            continue
        if not field.array:
            keys.setdefault(field.entity, field.key)
        nested = _plan(field.fields, version, int64_as_string) if field.is_struct else None
        treatment = _treatment(field, int64_as_string)
        if treatment or nested:
            found[field.key] = (treatment or "struct", nested)
    return _Node(found, keys.get("topicName"), keys.get("topicId")) if found else None


def _treatment(field: Field, int64_as_string: bool) -> str | None:
    if field.mark:
        return field.mark
    if field.type == "records":
        return "records"
    if field.type == "float64":
        return "float"
    return "int64" if int64_as_string and field.type == "int64" else None


def _struct(node: _Node, body: Body, place: _Place, context: _Context) -> Body:
    topic = _topic(node, body, context) or place.topic
    hidden = place.hidden
    shown: Body = {}
    for key, value in body.items():
        treated = node.fields.get(key)
        if treated is None or value is None:
            shown[key] = value
            continue
        treatment, nested = treated
        path = f"{place.path}.{key}" if place.path else key
        if treatment == "struct":
            # The synonyms of a config carry no flag of their own.
            hidden_below = hidden or ("isSensitive" in body and hides(body))
            below = _Place(path, topic, hidden_below)
            shown[key] = _structs(nested, value, below, context) if nested else value
        elif treatment == "records":
            _records(shown, key, value, _Place(path, topic), context)
        elif treatment == "secret" or (treatment == "config" and (hidden or hides(body))):
            shown[key] = REDACTED
        else:
            shown[key] = _scalars(_SCALARS.get(treatment), value)
    return shown


def _structs(node: _Node, value: Any, place: _Place, context: _Context) -> Any:
    if isinstance(value, list):
        return [
            _struct(node, item, place._replace(path=f"{place.path}[{i}]"), context)
            if isinstance(item, dict)
            else item
            for i, item in enumerate(value)
        ]
    return _struct(node, value, place, context) if isinstance(value, dict) else value


def _topic(node: _Node, body: Body, context: _Context) -> str | None:
    name = body.get(node.name_key) if node.name_key else None
    if not name and node.id_key and node.id_key in body:
        name = context.topic_name(body[node.id_key])
    return name or None


def _records(shown: Body, key: str, data: Any, place: _Place, context: _Context) -> None:
    if not isinstance(data, bytes):
        shown[key] = data
        return
    treat = partial(_record_payload, context=context)
    field = RecordsField(data, place.path, place.topic, context.partial, treat=treat)
    if key == _SLICE:
        at, _ = read_slice(data, max_decompressed=context.options.max_decompressed)
        field = field._replace(data=data[at:])
    _show_records(shown, key, field, context.options, context.budget)


def _show_records(shown: Body, key: str, field: RecordsField, options: Options, budget: Budget) -> None:
    if options.records:
        shown[key] = decoded(field, budget)
    else:
        shown[f"{key}SizeInBytes"] = len(field.data)
        shown[f"{key}Summary"] = summary(field, budget)


def _float(value: Any) -> Any:
    """JSON has no such numbers; these are the names that Kafka's JSON (Jackson) gives them."""
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_SCALARS: Mapping[str, Callable[[Any], Any]] = {"float": _float, "int64": str}


def _scalars(show: Callable[[Any], Any] | None, value: Any) -> Any:
    if show is None:
        return value
    return [show(item) for item in value] if isinstance(value, list) else show(value)
