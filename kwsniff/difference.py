"""What differs between two captures of the same conversation, by meaning.

In: the exchanges of both, each given twice: once to learn what is the same (only digests are kept), once to
look into what is not. Out: differences. Exchanges are aligned per connection and API, connections by client
id and likeness. Correlation ids, times, ports and identifiers made up anew each time do not count.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import partial
from typing import Any, NamedTuple

from msgspec import json

from kwsniff import wire
from kwsniff.conversation.facts import topic_name
from kwsniff.model import ConnectionId, Exchange, Fault, Frame, Protocol, Session
from kwsniff.wire.schema import ZERO_UUID

Event = Exchange | Fault | Session
Api = tuple[Protocol, int]

_TIME = re.compile(r"(^t|T)imestamp(Ms)?$|^(throttle|logAppend)TimeMs$|^time$")
_PORT = re.compile(r"(^p|P)ort$")
# Made up by the broker or the client each time they run; the same conversation has others tomorrow.
_MADE_UP = {"memberId", "leader", "producerId", "sessionId", "clusterId", "incarnationId", "directoryId"}
_MADE_UP |= {"replicaDirectoryId", "clientInstanceId", "tokenId", "hmac", "authBytes"}
_CHECKED = {"crc", "batchLength", "messageSize"}  # follow from what is compared anyway
_MAX_ALIGNED = 2_000  # exchanges of one API on one connection; more are paired by position
_MAX_SHOWN = 1_000  # pairs that are looked into


class Where(NamedTuple):
    """An exchange in its capture: the request's packet (the response's when that is all there is), and the
    exchange's number, because a packet may hold several."""

    file: str | None
    packet: int
    number: int


class Difference(NamedTuple):
    """path: the field, or "" when a whole exchange is only in one of them (the other `where` is None)."""

    client_id: str | None
    api: str
    where: tuple[Where | None, Where | None]
    path: str
    values: tuple[Any, Any]


@dataclass
class _Stream:
    """The exchanges of one connection, by API, as digests."""

    conn: ConnectionId
    client_id: str | None = None
    said: dict[Api, list[tuple[bytes, Where]]] = field(default_factory=lambda: defaultdict(list))

    @property
    def counts(self) -> Counter[Api]:
        return Counter({api: len(said) for api, said in self.said.items()})


class Comparison(NamedTuple):
    """differences: of the first pairs that differ, and what stands alone. more: pairs not looked into."""

    differences: list[Difference]
    more: int


def compare(first: Callable[[], Iterable[Event]], second: Callable[[], Iterable[Event]]) -> Comparison:
    """Each argument opens its capture anew. Memory: some 100 bytes an exchange, and the pairs that differ."""
    pairs, alone = _compare(_streams(first()), _streams(second()))
    shown = pairs[:_MAX_SHOWN]
    bodies = [
        _meanings(capture(), {pair[side] for pair in shown}) for side, capture in enumerate((first, second))
    ]
    found: list[Difference] = []
    for left, right in shown:
        one, other = bodies[0][left], bodies[1][right]
        fields = _fields("", one.content, other.content)
        found += [Difference(one.client_id, one.api, (left, right), path, values) for path, values in fields]
    for client_id, api, side, where in alone:
        both = (where, None) if side == 0 else (None, where)
        found.append(Difference(client_id, _name(api), both, "", (None, None)))
    return Comparison(found, len(pairs) - len(shown))


def _streams(events: Iterable[Event]) -> list[_Stream]:
    streams: dict[ConnectionId, _Stream] = {}
    for where, event in _numbered(events):
        stream = streams.setdefault(event.conn, _Stream(event.conn))
        if event.request is not None and stream.client_id is None:
            stream.client_id = event.request.client_id
        digest = hashlib.blake2b(json.encode(meaning(event)), digest_size=12).digest()
        stream.said[_api(event)].append((digest, where))
    return list(streams.values())


_Pairs = list[tuple[Where, Where]]
_Alone = list[tuple[str | None, Api, int, Where]]


def _compare(left: list[_Stream], right: list[_Stream]) -> tuple[_Pairs, _Alone]:
    """Pairs of exchanges that differ, and exchanges that only one side has."""
    pairs: _Pairs = []
    alone: _Alone = []
    for one, other in _matched(left, right):
        known = one or other
        assert known is not None
        for api in dict.fromkeys((*(one.said if one else ()), *(other.said if other else ()))):
            said = [stream.said.get(api, []) if stream else [] for stream in (one, other)]
            for a, b in _aligned(*said):
                if a is not None and b is not None:
                    pairs.append((a, b))
                elif a is not None:
                    alone.append((known.client_id, api, 0, a))
                elif b is not None:
                    alone.append((known.client_id, api, 1, b))
    return pairs, alone


def _matched(left: list[_Stream], right: list[_Stream]) -> Iterator[tuple[_Stream | None, _Stream | None]]:
    """Connections that belong together: of one client id, the likest first come."""
    free: dict[str | None, list[_Stream]] = defaultdict(list)
    for stream in right:
        free[stream.client_id].append(stream)
    for stream in left:
        candidates = free[stream.client_id]
        if not candidates:
            yield stream, None
            continue
        counts = stream.counts
        best = max(candidates[:_MAX_ALIGNED], key=lambda other: _likeness(stream, counts, other))
        candidates.remove(best)
        yield stream, best
    for candidates in free.values():
        for stream in candidates:
            yield None, stream


def _likeness(stream: _Stream, counts: Counter[Api], other: _Stream) -> tuple[int, int]:
    """Exchanges that may be the same; among equals, how many begin alike."""
    others = other.counts
    same = sum(
        said[0][0] == other.said[api][0][0] for api, said in stream.said.items() if other.said.get(api)
    )
    return (counts & others).total() - abs(counts.total() - others.total()), same


_Said = list[tuple[bytes, Where]]


def _aligned(left: _Said, right: _Said) -> Iterator[tuple[Where | None, Where | None]]:
    """What is not the same: pairs that stand in each other's place, and what stands alone."""
    start = 0
    while start < min(len(left), len(right)) and left[start][0] == right[start][0]:
        start += 1
    end = 0
    while end < min(len(left), len(right)) - start and left[-1 - end][0] == right[-1 - end][0]:
        end += 1
    left, right = left[start : len(left) - end], right[start : len(right) - end]
    if max(len(left), len(right)) > _MAX_ALIGNED:
        yield from _zipped(left, right)
        return
    matcher = SequenceMatcher(None, [a for a, _ in left], [b for b, _ in right], autojunk=False)
    for tag, i, i_end, j, j_end in matcher.get_opcodes():
        if tag != "equal":
            yield from _zipped(left[i:i_end], right[j:j_end])


def _zipped(left: _Said, right: _Said) -> Iterator[tuple[Where | None, Where | None]]:
    for i in range(max(len(left), len(right))):
        a, b = left[i : i + 1], right[i : i + 1]
        if not a or not b or a[0][0] != b[0][0]:
            yield (a[0][1] if a else None), (b[0][1] if b else None)


class _Meaning(NamedTuple):
    client_id: str | None
    api: str
    content: dict[str, Any]


def _meanings(events: Iterable[Event], wanted: set[Where]) -> dict[Where, _Meaning]:
    found: dict[Where, _Meaning] = {}
    for where, event in _numbered(events) if wanted else ():
        if where in wanted:
            client_id = event.request.client_id if event.request else None
            found[where] = _Meaning(client_id, _name(_api(event)), meaning(event))
    return found


def meaning(exchange: Exchange) -> dict[str, Any]:
    """An exchange without what differs from run to run."""
    from kwsniff.output.jsonl import encode, line
    from kwsniff.output.present import Options

    shown = json.decode(encode(line(exchange, Options(records=True))))
    header = shown["requestHeader"] or {}
    return {
        "version": header.get("requestApiVersion"),
        "clientId": header.get("clientId"),
        "outcome": shown["kwsniff"]["outcome"],
        "faults": [(fault["reason"], fault["side"], fault["path"]) for fault in shown["kwsniff"]["faults"]],
        "principal": shown["principal"],
        "request": _normal(shown["request"], partial(topic_name, exchange)),
        "response": _normal(shown["response"], partial(topic_name, exchange)),
    }


def _normal(value: Any, names: Callable[[str], str]) -> Any:
    """A body without made-up identifiers, times and ports; topic ids by their names where known."""
    if isinstance(value, list):
        return [_normal(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _normal_field(key, item, names)
        for key, item in value.items()
        if key not in _MADE_UP and key not in _CHECKED and not _PORT.search(key)
    }


def _normal_field(key: str, value: Any, names: Callable[[str], str]) -> Any:
    if isinstance(value, int) and value > 0 and _TIME.search(key):
        return "<time>"
    if key == "topicId" and isinstance(value, str) and value != ZERO_UUID:
        name = names(value)
        return "<topic id>" if name == value else name
    return _normal(value, names)


def _fields(path: str, one: Any, other: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """The places in which two values differ; nested as deep as messages are."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys((*one, *other)):
            below = f"{path}.{key}" if path else str(key)
            yield from _fields(below, one.get(key), other.get(key))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for i, pair in enumerate(zip(one, other, strict=True)):
            yield from _fields(f"{path}[{i}]", *pair)
    elif one != other:
        yield path, (one, other)


def _api(exchange: Exchange) -> Api:
    frame = _frame(exchange)
    return frame.protocol, frame.api


def _frame(exchange: Exchange) -> Frame:
    frame = exchange.request or exchange.response
    assert frame is not None
    return frame


def _numbered(events: Iterable[Event]) -> Iterator[tuple[Where, Exchange]]:
    exchanges = (event for event in events if isinstance(event, Exchange))
    for number, exchange in enumerate(exchanges):
        frame = _frame(exchange)
        yield Where(frame.file, frame.packet, number), exchange


def _name(api: Api) -> str:
    protocol, key = api
    if protocol is Protocol.KAFKA07:
        from kwsniff.wire import kafka07

        return f"{kafka07.NAMES.get(key, key)} (0.7)"
    if key < 0:
        return "SASL token" if protocol is Protocol.SASL else "unmatched response"
    return wire.api_name(key)
