"""Incremental fetch sessions (KIP-227): which partitions a Fetch really reads.

A session begins with a full Fetch (epoch 0) whose answer gives it an id; later Fetches name only what
changed. One instance serves all connections of an input, as a client keeps its session over a reconnect.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from kwsniff.model import Body, Endpoint, FetchedPartition, Frame

FETCH = 1
_LIMIT = 10_000
_MOST_PARTITIONS = 1_000_000
"""Of all sessions together."""
_NEW_SESSION_EPOCH, _FINAL_EPOCH = 0, -1
_NO_SESSION = bytes(4) + b"\xff\xff\xff\xff"
"""sessionId 0, sessionEpoch -1: behind replicaId (until v14), three int32 and isolationLevel."""
_SESSION_ERRORS = {70, 71, 106}
"""FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR."""

_Partitions = dict[tuple[str, int], FetchedPartition]


class FetchSessions:
    """Feed it every answered Fetch of version 7 or above, in order."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[tuple[Endpoint, int], _Partitions] = OrderedDict()
        self._count = 0

    def fetched(self, request: Frame, response: Frame | None) -> tuple[FetchedPartition, ...] | None:
        """What an incremental Fetch reads; None for a Fetch that names its partitions itself."""
        if _without_session(request):
            return None
        body = request.body
        if body is None or "sessionEpoch" not in body:
            return None
        epoch = body["sessionEpoch"]
        answer = response.body if response else None
        session_id = body["sessionId"] or (answer or {}).get("sessionId", 0)
        key = (request.conn.broker, session_id)
        if epoch == _FINAL_EPOCH or (answer is not None and answer.get("errorCode") in _SESSION_ERRORS):
            self._count -= len(self._sessions.pop(key, ()))
            return None
        full = epoch == _NEW_SESSION_EPOCH
        if full and not session_id:
            return None
        before = self._sessions.pop(key, {})
        partitions: _Partitions = {} if full else before
        self._count -= len(before)
        _update(partitions, body)
        self._sessions[key] = partitions
        self._count += len(partitions)
        while len(self._sessions) > _LIMIT or self._count > _MOST_PARTITIONS:
            self._count -= len(self._sessions.popitem(last=False)[1])
        return None if full else tuple(partitions.values())


def _without_session(request: Frame) -> bool:
    """Whether a Fetch neither has nor wants a session. Read from its bytes: most need no body for it."""
    at = request.body_at + (17 if (request.version or 0) < 15 else 13)
    return request.body_at >= 0 and request.raw[at : at + 8] == _NO_SESSION


def _update(partitions: _Partitions, body: Body) -> None:
    for topic in body.get("forgottenTopicsData", ()):
        for index in topic["partitions"]:
            partitions.pop((_key(topic), index), None)
    for found in _named(body):
        partitions[(found.topic or found.topic_id or "", found.partition)] = found


def _named(body: Body) -> Iterator[FetchedPartition]:
    for topic in body["topics"]:
        for partition in topic["partitions"]:
            yield FetchedPartition(
                topic.get("topic"), topic.get("topicId"), partition["partition"], partition["fetchOffset"]
            )


def _key(topic: Body) -> str:
    return topic.get("topic") or topic.get("topicId") or ""
