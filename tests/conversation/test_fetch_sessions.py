"""Fetch sessions are remembered in bounds: the oldest are forgotten, whatever a client makes grow."""

from collections import OrderedDict

import pytest

from kwsniff import wire
from kwsniff.conversation import fetch_sessions
from kwsniff.conversation.bodies import decode_body
from kwsniff.conversation.fetch_sessions import FetchSessions
from kwsniff.model import ConnectionId, Endpoint, Frame, Side

CONN = ConnectionId(Endpoint("client", 1), Endpoint("broker", 2))
VERSION = 11


def frame(side: Side, body: bytes, body_at: int) -> Frame:
    return Frame(0, CONN, side, bytes(body_at) + body, 1, VERSION, 0, None, body_at, decode_body)


def fetch(session: int, epoch: int, partitions: range) -> Frame:
    topic = {
        "topic": "t",
        "partitions": [{"partition": p, "fetchOffset": 0, "partitionMaxBytes": 1} for p in partitions],
    }
    body = {"sessionId": session, "sessionEpoch": epoch, "topics": [topic] if partitions else []}
    return frame(Side.REQUEST, wire.encode("FetchRequest", VERSION, body), 10)


def answer(session: int) -> Frame:
    return frame(Side.RESPONSE, wire.encode("FetchResponse", VERSION, {"sessionId": session}), 4)


def test_the_oldest_session_is_forgotten_when_all_together_have_too_many_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_sessions, "_MOST_PARTITIONS", 10)
    sessions = FetchSessions()
    for session in (1, 2):
        assert sessions.fetched(fetch(0, 0, range(4)), answer(session)) is None
    read = sessions.fetched(fetch(1, 1, range(0)), answer(1))
    assert read is not None
    assert [found.partition for found in read] == [0, 1, 2, 3]
    sessions.fetched(fetch(0, 0, range(5)), answer(3))  # 13 partitions: session 2 was asked for longest ago
    assert sessions.fetched(fetch(2, 1, range(0)), answer(2)) == ()
    read = sessions.fetched(fetch(1, 2, range(0)), answer(1))
    assert read is not None
    assert len(read) == 4


def test_one_session_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "_MOST_PARTITIONS", 10)
    sessions = FetchSessions()
    sessions.fetched(fetch(0, 0, range(4)), answer(1))
    for epoch in range(1, 20):
        sessions.fetched(fetch(1, epoch, range(4 * epoch, 4 * epoch + 4)), answer(1))
        held: OrderedDict[object, dict[object, object]] = sessions._sessions  # type: ignore[assignment]
        assert sum(map(len, held.values())) <= 10
