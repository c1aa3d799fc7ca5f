"""An ordinary exchange -> the bytes of its JSON line, straight from the wire: no dicts in between.

Ordinary is what nearly all exchanges are: whole frames of Kafka 0.8+ with nothing to repair, hide or open.
For every other one the answer is None, and `jsonl.line` with `jsonl.encode` says the same more slowly; those
two are the specification, and a test holds this to them byte for byte. Needs the compiled codec.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from msgspec import json

from kwsniff import wire
from kwsniff.compiled import compiled
from kwsniff.conversation.facts import FIND_COORDINATOR, sought_group, topic_name
from kwsniff.model import ConnectionId, Exchange, Frame, Peer, Protocol, Side
from kwsniff.output.present import Options
from kwsniff.output.times import timestamp
from kwsniff.wire import codec, releases
from kwsniff.wire.errors import error_name

_records = compiled("kwsniff.wire._records")
_json = json.Encoder().encode
_API_VERSIONS = 18
_UNSUPPORTED_VERSION = b"\x00\x23"
_NULL: tuple[bytes, Any] = (b"null", ((), (), None, (), 0, (), ()))
_UNKNOWN = "unknown"
_MOST_SHARED = 4096
_shared: dict[tuple[int, int], tuple[ConnectionId, Peer, tuple[str, str, str]]] = {}


def maybe_encoded(exchange: Exchange, options: Options) -> tuple[bytes, bool] | None:
    """(the line, whether its answer has errors), or None where it takes `jsonl.line` to make it."""
    request, response = exchange.request, exchange.response
    if request is None or exchange.faults or exchange.tags or exchange.fetched is not None:
        return None
    if options.records or options.int64_as_string:
        return None
    asked = _body(request, options.body)
    if asked is None:
        return None
    answered = _NULL if response is None else _body(response, options.body)
    if answered is None:
        return None
    try:
        return _line(exchange, request, response, asked, answered), bool(answered[1][3])
    except UnicodeEncodeError:
        return None


def _body(frame: Frame, shown: bool) -> tuple[bytes, Any] | None:
    """(JSON of the body, its facts), or None."""
    if frame.protocol is not Protocol.KAFKA or frame.lost or frame.body_at < 0:
        return None
    raw, at = frame.raw, frame.body_at
    if frame.api == _API_VERSIONS and raw[at : at + 2] == _UNSUPPORTED_VERSION:
        return None
    program = _program(frame.api, frame.version or 0, frame.side is Side.REQUEST)
    if program is None:
        return None
    partial = frame.side is Side.RESPONSE
    found = program.body_json(raw, at) if shown else (b"null", program.body_facts(raw, at))
    if found is None or found[1] is None:
        return None
    text, facts = found
    if frame.api == FIND_COORDINATOR and not partial:
        # Whether its key is a group depends on another field.
        facts = (*facts[:2], sought_group(frame, program.decode(raw, at)[0]), *facts[3:])
    if facts[5]:
        text = _with_summaries(text, raw, facts[5], partial)
    return None if text is None else (text if shown else b"null", facts)


@lru_cache(maxsize=4096)
def _program(api: int, version: int, request: bool) -> Any:
    message = wire.request_of(api) if request else wire.response_of(api)
    if _records is None or message is None or not message.versions.covers(version):
        return None
    return codec.program(message, version)


def _with_summaries(text: bytes, raw: bytes, places: Any, partial: bool) -> bytes | None:
    """The body's text with the summary of each records field in its place; None where one is faulty."""
    parts: list[bytes] = []
    before = 0
    for splice, at, size, *_ in places:
        summary = _records.summary_json(raw[at : at + size], partial, False)
        if summary is None:
            return None
        parts += (text[before:splice], summary)
        before = splice
    parts.append(text[before:])
    return b"".join(parts)


def _line(
    exchange: Exchange,
    request: Frame,
    response: Frame | None,
    asked: tuple[bytes, Any],
    answered: tuple[bytes, Any],
) -> bytes:
    before, within, behind = _connection(exchange.conn, exchange.peer)
    header, named = _header(request.api, request.version or 0, request.client_id)
    topics, errors = _topics(exchange, asked[1], answered[1]), answered[1][3]
    head = f'{{"timestamp":"{timestamp(request.ts)}{header}{request.correlation_id}{named}'
    size, packet, latency = ("null", "null", "null") if response is None else _answered(exchange, response)
    tail = (
        f'{before}{latency},"throttleTimeMs":{answered[1][4]}{within}{exchange.outcome.value}{behind}'
        f'{request.size},"responseBytes":{size},"file":{_text(request.file)},'
        f'"requestPacket":{request.packet},"responsePacket":{packet},'
        f'"topics":{_names(topics) if topics else "[]"},"groupId":{_text(asked[1][2] or answered[1][2])},'
        f'"errors":{_errors(exchange, errors) if errors else "[]"},"tags":[],"faults":[]}}}}'
    )
    return b"".join((head.encode(), asked[0], b',"response":', answered[0], tail.encode()))


def _answered(exchange: Exchange, response: Frame) -> tuple[int, int, str]:
    """responseBytes, responsePacket, totalTimeMs."""
    latency = (exchange.latency or 0) / 1e6
    # Python and JSON encoders write exponents in different ways.
    text = repr(latency) if 1e-4 <= latency < 1e15 else _json(latency).decode()
    return response.size, response.packet, text


def _topics(exchange: Exchange, asked: Any, answered: Any) -> tuple[str, ...]:
    if not (asked[1] or answered[1]):
        return asked[0] if asked[0] == answered[0] or not answered[0] else _distinct(asked[0] + answered[0])
    names = [*asked[0], *(topic_name(exchange, topic_id) for topic_id in asked[1])]
    names += [*answered[0], *(topic_name(exchange, topic_id) for topic_id in answered[1])]
    return _distinct(names)


def _distinct(names: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _errors(exchange: Exchange, errors: Any) -> str:
    found = [
        {
            "code": code,
            "name": error_name(code),
            "topic": topic or (topic_id and topic_name(exchange, topic_id)),
            "partition": partition,
        }
        for code, topic, topic_id, partition in errors
    ]
    return _json(found).decode()


def _connection(conn: ConnectionId, peer: Peer) -> tuple[str, str, str]:
    """What a connection's exchanges share. Kept by identity, because to hash a peer costs more."""
    key = (id(conn), id(peer))
    found = _shared.get(key)
    if found is None:
        if len(_shared) >= _MOST_SHARED:
            _shared.clear()
        found = _shared[key] = (conn, peer, _connection_parts(conn, peer))
    return found[2]


def _connection_parts(conn: ConnectionId, peer: Peer) -> tuple[str, str, str]:
    software = {
        "softwareName": peer.software_name or _UNKNOWN,
        "softwareVersion": peer.software_version or _UNKNOWN,
    }
    before = f',"connection":{_text(str(conn))},"totalTimeMs":'
    within = f',"securityProtocol":{_text(peer.security_protocol)},"principal":{_text(peer.principal)},'
    within += f'"clientInformation":{_json(software).decode()},"kwsniff":{{"outcome":"'
    behind = f'","client":{_text(str(conn.client))},"broker":{_text(str(conn.broker))},'
    behind += f'"session":{conn.session},"protocol":"kafka","requestBytes":'
    return before, within, behind


@lru_cache(maxsize=4096)
def _header(api: int, version: int, client_id: str | None) -> tuple[str, str]:
    """What stands around the correlation id."""
    deprecated = "true" if releases.deprecated(api, version) else "false"
    before = f'","requestHeader":{{"requestApiKey":{api},"requestApiKeyName":"{wire.api_name(api)}",'
    before += f'"requestApiVersion":{version},"correlationId":'
    behind = f',"clientId":{_text(client_id)},"requestApiVersionDeprecated":{deprecated}}},"request":'
    return before, behind


@lru_cache(maxsize=4096)
def _names(topics: tuple[str, ...]) -> str:
    return _json(topics).decode()


@lru_cache(maxsize=4096)
def _text(value: str | None) -> str:
    return _json(value).decode()
