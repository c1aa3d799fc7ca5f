"""The parts of an ordinary exchange's JSON line that stay the same over many lines, as encoded text.

For the compiled writer of lines (`_line.pyx`), which puts them around what differs. What a line is to look
like is said in `jsonl`; a test holds the writer to that byte for byte.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from msgspec import json

from kwsniff import wire
from kwsniff.compiled import compiled
from kwsniff.conversation.facts import FIND_COORDINATOR, group_of_key
from kwsniff.model import ConnectionId, FetchedPartition, Peer
from kwsniff.output.present import Options, budget_of
from kwsniff.output.recordset import Field, decoded_json
from kwsniff.output.share import ALONE, Share
from kwsniff.wire import codec, releases, walk
from kwsniff.wire.errors import error_name

_UNKNOWN = "unknown"
_line: Any = compiled("kwsniff.output._line")
encoded = json.Encoder().encode


def writer(options: Options, share: Share = ALONE, *, texts: bool = True) -> Any:
    """A `_line.Lines` (see there) for these options; None where lines have to be made by `jsonl`.

    texts=False: for a share whose lines are made by `jsonl`, one that passes over those of others.
    """
    if _line is None or not codec.COMPILED:
        return None
    texts = texts and not options.int64_as_string
    return _line.Lines(options, share, texts) if texts or share != ALONE else None


def connection_text(conn: ConnectionId, peer: Peer) -> tuple[bytes, bytes, bytes]:
    """What a connection's exchanges share: before totalTimeMs, before outcome, before requestBytes.

    Raises UnicodeEncodeError where the client told a name that is no text.
    """
    software = {
        "softwareName": peer.software_name or _UNKNOWN,
        "softwareVersion": peer.software_version or _UNKNOWN,
    }
    before = b',"connection":' + encoded(str(conn)) + b',"totalTimeMs":'
    within = b',"securityProtocol":%b,"principal":%b,"clientInformation":%b,"kwsniff":{"outcome":"' % (
        encoded(peer.security_protocol),
        encoded(peer.principal),
        encoded(software),
    )
    behind = b'","client":%b,"broker":%b,"session":%d,"protocol":"kafka","requestBytes":' % (
        encoded(str(conn.client)),
        encoded(str(conn.broker)),
        conn.session,
    )
    return before, within, behind


def header_text(api: int, version: int) -> tuple[bytes, bytes]:
    """What stands between timestamp and correlation id, and between client id and request."""
    before = f'","requestHeader":{{"requestApiKey":{api},"requestApiKeyName":"{wire.api_name(api)}",'
    before += f'"requestApiVersion":{version},"correlationId":'
    deprecated = "true" if releases.deprecated(api, version) else "false"
    return before.encode(), f',"requestApiVersionDeprecated":{deprecated}}},"request":'.encode()


def programs(api: int, version: int) -> tuple[Any, Any] | None:
    """The compiled forms of request and response; None for what nobody knows."""
    request, response = wire.request_of(api), wire.response_of(api)
    if request is None or response is None:
        return None
    if not (request.versions.covers(version) and response.versions.covers(version)):
        return None
    return codec.program(request, version), codec.program(response, version)


def teaches_topics(api: int, version: int) -> bool:
    """Whether its responses may tell both id and name of a topic."""
    response = wire.response_of(api)
    return response is not None and walk.teaches_topics(response.name, version)


def sought_group(api: int, program: Any, raw: bytes, body_at: int) -> str | None:
    """The group that a FindCoordinator asks for."""
    return group_of_key(program.decode(raw, body_at)[0]) if api == FIND_COORDINATOR else None


@lru_cache(maxsize=1024)
def error_text(code: int) -> bytes:
    return b'{"code":%d,"name":%b,"topic":' % (code, encoded(error_name(code)))


def records_text(data: bytes, topic: str | None, is_response: bool, budget: Any) -> bytes | None:
    """A records field, decoded; None where there is something to be said or opened."""
    return decoded_json(Field(data, "", topic, is_response), budget)


def records_budget(options: Options, size: int, is_response: bool) -> Any:
    return budget_of(options, size, "response" if is_response else "request")


def fetched_text(fetched: tuple[FetchedPartition, ...], names: list[str]) -> bytes:
    """The partitions that a Fetch reads; names: the topic of each."""
    return encoded(
        [
            {"topic": name, "partition": found.partition, "fetchOffset": found.offset}
            for name, found in zip(names, fetched, strict=True)
        ]
    )
