"""Exchange or Fault -> the JSON line: the names of Kafka's own request log, everything else under `kwsniff`.

In: events of the reader. Out: `line` and `fault_line` give a dict in the order of the log's fields, `encode`
its bytes. Never raises, whatever an exchange holds. Writes nothing, filters nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

from msgspec import json

from kwsniff import wire
from kwsniff.conversation.facts import facts, topic_name
from kwsniff.model import Exchange, Fault, Frame, Protocol, Side
from kwsniff.output.present import Options, present, present07, present_token
from kwsniff.output.recordset import Budget, RecordFault
from kwsniff.output.strings import mend
from kwsniff.output.times import timestamp
from kwsniff.wire import kafka07, releases

Line = dict[str, Any]
_UNKNOWN = "unknown"  # as Kafka's own log has it for a client that never told

_DEFAULT = Options()
_encoder = json.Encoder()


def encode(line: Line) -> bytes:
    """The line as JSON, without the newline. Strings that are not UTF-8 are mended in `line` itself."""
    try:
        return _encoder.encode(line)
    except UnicodeEncodeError:
        return _encoder.encode(mend(line))


def line(exchange: Exchange, options: Options = _DEFAULT) -> Line:
    """One exchange. Bytes are still bytes in it, and keys of `_tags` ints: `encode` makes them text."""
    request, response = exchange.request, exchange.response
    told = facts(exchange)
    asked, answered, found, raw_strings = _bodies(exchange, options)
    conn, peer = exchange.conn, exchange.peer
    frame = request or response
    latency = exchange.latency
    extra = {
        "outcome": exchange.outcome,
        "client": str(conn.client),
        "broker": str(conn.broker),
        "session": conn.session,
        "protocol": frame.protocol if frame else Protocol.KAFKA,
        "requestBytes": request.size if request else None,
        "responseBytes": response.size if response else None,
        "file": frame.file if frame else None,
        "requestPacket": (request.packet or None) if request else None,
        "responsePacket": (response.packet or None) if response else None,
        "topics": told.topics,
        "groupId": told.group_id,
        "errors": told.errors,
        "tags": exchange.tags,
        "faults": [fault_object(fault) for fault in _faults(exchange)] + found,
    }
    if exchange.fetched is not None:
        extra["fetched"] = _fetched(exchange, options)
    if raw_strings and options.body:
        extra["rawStrings"] = raw_strings
    return {
        "timestamp": timestamp(exchange.ts),
        "requestHeader": _header(request, response),
        "request": asked,
        "response": answered,
        "connection": str(conn),
        "totalTimeMs": None if latency is None else latency / 1e6,
        "throttleTimeMs": told.throttle_ms,
        "securityProtocol": peer.security_protocol,
        "principal": peer.principal,
        "clientInformation": {
            "softwareName": peer.software_name or _UNKNOWN,
            "softwareVersion": peer.software_version or _UNKNOWN,
        },
        "kwsniff": extra,
    }


def fault_line(fault: Fault) -> Line:
    """A fault that belongs to no exchange."""
    conn = fault.conn
    return {
        "timestamp": None if conn is None and fault.ts <= 0 else timestamp(fault.ts),
        "connection": None if conn is None else str(conn),
        "kwsniff": {
            "file": fault.file,
            "session": None if conn is None else conn.session,
            "client": None if conn is None else str(conn.client),
            "broker": None if conn is None else str(conn.broker),
            "fault": fault_object(fault),
        },
    }


def fault_object(fault: Fault) -> dict[str, Any]:
    """A fault as it stands in `kwsniff.faults` and in a line of its own."""
    return {
        "reason": fault.reason,
        "message": fault.message,
        "side": fault.side,
        "api": fault.api,
        "version": fault.version,
        "correlationId": fault.correlation_id,
        "path": fault.path or None,
        "offset": fault.offset,
        "packet": fault.packet or None,
        "lost": fault.lost,
        "fileOffset": fault.file_offset,
    }


def _header(request: Frame | None, response: Frame | None) -> dict[str, Any] | None:
    frame = request or response
    if frame is None or frame.protocol is Protocol.SASL:
        return None
    api: int | None = frame.api if frame.api >= 0 else None
    return {
        "requestApiKey": api,
        "requestApiKeyName": _api_name(api, frame.protocol),
        "requestApiVersion": frame.version,
        "correlationId": frame.correlation_id,
        "clientId": frame.client_id,
        "requestApiVersionDeprecated": _deprecated(api, frame.version),
    }


@lru_cache(maxsize=1024)
def _api_name(api: int | None, protocol: Protocol) -> str | None:
    if api is None:
        return None
    if protocol is Protocol.KAFKA07:
        return kafka07.NAMES.get(api)
    return wire.api_name(api) if wire.request_of(api) else None


@lru_cache(maxsize=1024)
def _deprecated(api: int | None, version: int | None) -> bool:
    return api is not None and version is not None and releases.deprecated(api, version)


def _faults(exchange: Exchange) -> Iterator[Fault]:
    yield from exchange.faults
    for frame in (exchange.request, exchange.response):
        if frame is not None:
            yield from frame.faults


def _fetched(exchange: Exchange, options: Options) -> list[dict[str, Any]]:
    return [
        {
            "topic": topic or topic_name(exchange, topic_id or ""),
            "partition": partition,
            "fetchOffset": str(offset) if options.int64_as_string else offset,
        }
        for topic, topic_id, partition, offset in exchange.fetched or ()
    ]


def _bodies(
    exchange: Exchange, options: Options
) -> tuple[Line | None, Line | None, list[dict[str, Any]], dict[str, str]]:
    """(request, response, faults that their records show, strings of records that are not UTF-8)."""
    shown: list[Line | None] = []
    found: list[dict[str, Any]] = []
    raw_strings: dict[str, str] = {}
    names = partial(topic_name, exchange)
    for frame in (exchange.request, exchange.response):
        body, budget = (None, None) if frame is None else _body(frame, exchange.request, options, names)
        shown.append(body if options.body else None)
        if frame is not None and budget is not None:
            found += _record_faults(frame, budget.faults)
            raw_strings |= budget.raw_strings
    return shown[0], shown[1], found, raw_strings


def _body(
    frame: Frame, request: Frame | None, options: Options, names: Callable[[str], str]
) -> tuple[Line | None, Budget | None]:
    body = frame.body
    if body is None:
        return None, None
    if frame.protocol is Protocol.SASL:
        return present_token(body), None
    asked = request.body if request is not None and request is not frame else None
    if frame.protocol is Protocol.KAFKA07:
        return present07(body, asked, options, len(frame.raw))
    message = wire.request_of(frame.api) if frame.side is Side.REQUEST else wire.response_of(frame.api)
    if message is None or frame.version is None:
        return body, None
    return present(message, frame.version, body, asked, options, names, len(frame.raw))


def _record_faults(frame: Frame, faults: list[RecordFault]) -> Iterator[dict[str, Any]]:
    """Faults of records know their place in a field's bytes; the fields stand in the frame in that order."""
    places: dict[int, int] = {}
    behind = 0
    for fault in faults:
        at = places.get(id(fault.data))
        if at is None:
            at = places[id(fault.data)] = frame.raw.find(fault.data, behind)
            behind = max(at, 0) + len(fault.data)
        yield {
            "reason": fault.reason,
            "message": fault.message,
            "side": frame.side,
            "api": frame.api if frame.version is not None else None,
            "version": frame.version,
            "correlationId": frame.correlation_id,
            "path": fault.path,
            "offset": at + fault.offset if at >= 0 else None,
            "packet": frame.packet or None,
            "lost": None,
            "fileOffset": None,
        }
