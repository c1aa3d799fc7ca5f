"""Real conversations through the interceptor: what its recorder keeps decodes to what its log says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kwsniff
from kwsniff.conversation.intercept import Interceptor
from kwsniff.conversation.topics import TopicNames
from kwsniff.hooks import hookimpl
from kwsniff.model import ConnectionId, Exchange, Fault, Ledger, Outcome, Peer, Session, Side
from kwsniff.output import jsonl
from kwsniff.output.log import Log
from kwsniff.output.recording import Recorder
from kwsniff.passing import Delay, Drop, Passing, Replace, Respond, Verdict
from kwsniff.policy.chain import Chain

CAPTURES = Path(__file__).parents[2] / "captures"
MS = 1_000_000
NAMES = [
    "confluent-txn-mock.pcap",
    "confluent-ipv6-kfake6.pcap",
    "confluent-sasl-kfake-sasl.pcap",
    "franz-admin-kfake.pcapng",
    "java-admin-kfake.pcap",
    "kafkajs-group-mock.pcapng",
    "kafkapython-old-0.10-old10.pcap",
    "sarama-matrix-mock.pcap",
]


class Meddles:
    """Decides by the correlation id, so that every kind of verdict comes up."""

    @hookimpl
    def response(self, passing: Passing) -> Verdict | None:
        if (passing.frame.correlation_id or 0) < 4:
            return None  # a client waits until it is let in, as this capture that is played does not
        kinds = {1: Delay(3 * MS), 2: Drop(), 3: Replace(passing.frame.raw), 4: Delay(0)}
        return kinds.get((passing.frame.correlation_id or 0) % 7)

    @hookimpl
    def request(self, passing: Passing) -> Verdict | None:
        correlation = passing.frame.correlation_id or 0
        if correlation % 11 == 5 and passing.frame.api == 3:
            return Respond(correlation.to_bytes(4, "big") + passing.frame.raw[:1])  # no body that decodes
        return Delay(MS) if correlation % 11 == 6 else None


def spoken(name: str) -> dict[ConnectionId, list[tuple[int, Side, bytes]]]:
    """What each connection of a capture said, in order: (when, by whom, bytes)."""
    found: dict[ConnectionId, list[tuple[int, Side, bytes]]] = {}
    events = list(kwsniff.read(str(CAPTURES / name)))
    whole = {e.conn for e in events if isinstance(e, Session) and e.opened is not None and not e.faults}
    for event in events:
        if isinstance(event, Exchange) and event.conn in whole and event.outcome is not Outcome.LOST:
            for frame in (event.request, event.response):
                if frame is not None:
                    data = len(frame.raw).to_bytes(4, "big") + frame.raw
                    found.setdefault(event.conn, []).append((frame.end, frame.side, data))
    return {conn: sorted(said, key=lambda one: one[0]) for conn, said in found.items()}


def intercepted(name: str, chain: Chain, cut: int) -> None:
    """Plays a capture to interceptors, connection by connection, in pieces of `cut` bytes."""
    names = TopicNames()
    for conn, said in spoken(name).items():
        start = said[0][0]
        one = Interceptor(conn, chain, max_frame=1 << 24, now=start, topic_names=names)
        opened = Session(conn, start, None, start, start, "kafka", Peer(), Ledger(), Ledger())
        chain.opened(opened)
        now = start
        for when, side, data in said:
            while one.wake_at is not None and one.wake_at <= when:
                now = max(now, one.wake_at)
                one.wake(now)
                one.tell()
            now = max(now, when)
            for at in range(0, len(data), cut):
                one.receive(side, data[at : at + cut], now)
                one.tell()
        while one.wake_at is not None:
            now = max(now, one.wake_at)
            one.wake(now)
        chain.closed(one.end(now + MS))
    chain.stopped(now)


def without_place(line: dict[str, Any]) -> str:
    """The line but for where in a file it was found."""
    for key in ("file", "requestPacket", "responsePacket", "tags"):
        del line["kwsniff"][key]
    for fault in line["kwsniff"]["faults"]:
        del fault["packet"]
    return json.dumps(line, sort_keys=True)


@pytest.mark.parametrize(("meddled", "cut"), [(False, 61), (True, 1 << 20)])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_recorded_decodes_to_what_is_logged(
    tmp_path: Path, name: str, meddled: bool, cut: int
) -> None:
    recorder = Recorder(str(tmp_path / "a.pcapng"), now=0)
    log = Log(str(tmp_path / "a.jsonl"))
    meddler: list[tuple[str, object]] = [("meddler", Meddles())] if meddled else []
    chain = Chain([*meddler, ("recorder", recorder), ("log", log)])
    intercepted(name, chain, cut)
    assert chain.failures.total() == 0
    logged = [json.loads(line) for line in (tmp_path / "a.jsonl").read_bytes().splitlines()]
    events = list(kwsniff.read(str(tmp_path / "a.pcapng")))
    assert not [event for event in events if isinstance(event, Fault)]
    again = [json.loads(jsonl.encode(jsonl.line(event))) for event in events if isinstance(event, Exchange)]
    assert sorted(map(without_place, again)) == sorted(map(without_place, logged))
