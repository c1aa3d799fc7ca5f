"""Real conversations, from the captures of this repository, through a proxy that changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from middle import Judge
from talk import told

from kwsniff.capture.files import open_capture
from kwsniff.capture.link import LinkDecoder
from kwsniff.capture.tcp import Reassembler
from kwsniff.conversation.connection import Connection, Shared
from kwsniff.conversation.intercept import Interceptor, Send
from kwsniff.model import Chunk, ConnectionId, Exchange, Session, Side

CAPTURES = [
    path
    for path in sorted(Path(__file__).parents[2].glob("captures/*.pcap*"))
    if "loss" not in path.name and "disorder" not in path.name
]
"""No proxy ever sees a hole, nor an answer before its request."""


def conversations(path: Path) -> Iterator[list[Chunk]]:
    """The chunks of each connection that speaks Kafka and is all there, up to its end."""
    found: dict[object, list[Chunk]] = {}
    link, tcp = LinkDecoder(), Reassembler()
    with open_capture(str(path)) as capture:
        segments = (segment for packet in capture if (segment := link.decode(packet)))
        for segment in segments:
            for chunk in tcp.feed(segment):
                found.setdefault((frozenset([chunk.src, chunk.dst]), chunk.session), []).append(chunk)
    for chunks in found.values():
        whole = chunks[0].opened and not any(chunk.lost for chunk in chunks)
        if whole and decoded(chunks)[1].protocol in ("kafka", "kafka07"):
            first, last = chunks[0], chunks[-1]
            ends = ((first.src, first.dst), (first.dst, first.src))
            yield [*chunks, *(Chunk(last.ts, src, dst, b"", closed=True) for src, dst in ends)]


def decoded(chunks: list[Chunk]) -> tuple[list[Exchange], Session]:
    connection = Connection(chunks[0], Shared())
    events = [event for chunk in chunks for event in connection.feed(chunk)] + connection.end()
    assert isinstance(events[-1], Session)
    return [event for event in events if isinstance(event, Exchange)], events[-1]


def proxied(chunks: list[Chunk], judge: Judge) -> tuple[dict[Side, bytes], Session]:
    client = chunks[0].src
    core = Interceptor(ConnectionId(client, chunks[0].dst), judge, max_frame=1 << 26, now=chunks[0].ts)
    sent = dict.fromkeys(Side, b"")
    for chunk in chunks:
        side = Side.REQUEST if chunk.src == client else Side.RESPONSE
        commands = core.receive(side, chunk.data, chunk.ts)
        commands += core.finish(side, chunk.ts) if chunk.closed else []
        for command in commands:
            if isinstance(command, Send):
                sent[command.side] += command.data
    return sent, core.end(chunks[-1].ts)


@pytest.mark.parametrize("judged", [False, True])
@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.name)
def test_it_is_as_if_there_were_no_proxy(path: Path, judged: bool) -> None:
    for chunks in conversations(path):
        exchanges, expected = decoded(chunks)
        judge = Judge(*([lambda _: [], lambda _: []] if judged else []))
        sent, session = proxied(chunks, judge)
        for side in Side:
            src = chunks[0].src if side is Side.REQUEST else chunks[0].dst
            assert sent[side] == b"".join(chunk.data for chunk in chunks if chunk.src == src)
        found = [passed.exchange for passed in judge.passed]
        assert sorted(map(told, found), key=repr) == sorted(map(told, exchanges), key=repr)
        assert (session.protocol, session.peer) == (expected.protocol, expected.peer)
        assert (session.requests, session.responses) == (expected.requests, expected.responses)
        assert (session.exchanges, session.faults) == (expected.exchanges, expected.faults)


def test_there_are_conversations_in_nearly_all_of_them() -> None:
    with_some = [path for path in CAPTURES if next(conversations(path), None)]
    assert len(with_some) > len(CAPTURES) * 0.8
