"""The lane in C against the way through Python: the same lines in the same order, the same books.

The captures, and conversations that are made up: frames cut into segments at any place, and mixed in whatever
makes a lane decline a pair, or leave.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, cycle, groupby, islice, repeat
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from acceptance_builders import ACK, FIN, MS, RST, START, SYN, ip_tcp, pcap, sized
from hypothesis import given, settings
from hypothesis import strategies as st
from made_bodies import Maker
from recordbytes import batch, record

from kwsniff import reader, wire
from kwsniff.capture import source
from kwsniff.conversation.framer import Framer, RawFrame
from kwsniff.model import Chunk, Endpoint, Exchange, Session
from kwsniff.output import jsonl, ordinary
from kwsniff.output.present import Options
from kwsniff.reader import ReadOptions
from kwsniff.wire import codec, schema

TESTS = Path(__file__).parent
needs_compiler = pytest.mark.skipif(
    not codec.COMPILED or reader._lane is None, reason="kwsniff was built without a C compiler"
)

CAPTURES = sorted((TESTS.parent / "captures").iterdir())
FORMS = {
    "body": Options(),
    "no body": Options(body=False),
    "records": Options(records=True),
    "records, no body": Options(records=True, body=False),
}
SECOND = 1_000_000_000
PLAIN = ReadOptions()


# What both ways tell


class Told(NamedTuple):
    """lines: with sessions among them, as they stood then. sessions: as they stand in the end."""

    lines: list[bytes]
    counts: Counter[Any]
    sessions: list[str]


class Ways(Counter[str]):
    """What was taken, by the names of types, and of the lane's methods."""

    def lane(self) -> Any:
        ways = self

        class Lane(reader._lane.Lane):  # type: ignore[misc]
            def enter(self, *given: Any) -> None:
                ways["enter"] += 1
                super().enter(*given)

            def leave(self) -> Any:
                ways["leave"] += 1
                return super().leave()

        return SimpleNamespace(Lane=Lane)


def told(events: Iterable[Any], shape: Options, counts: Counter[Any], sessions: list[Any]) -> Iterator[bytes]:
    for event in events:
        if isinstance(event, Session):
            sessions.append(event)
            yield repr(event).encode() + b"\n"
        elif isinstance(event, Exchange):
            line = jsonl.line(event, shape)
            frame = event.request or event.response
            assert frame is not None
            counts[frame.api, frame.version, event.outcome, bool(line["kwsniff"]["errors"])] += 1
            yield jsonl.encode(line) + b"\n"
        else:
            yield jsonl.encode(jsonl.fault_line(event)) + b"\n"


def through_python(paths: list[str], options: ReadOptions, shape: Options) -> Told:
    counts, sessions = Counter[Any](), list[Any]()
    lines = [*told(reader.events(paths, options), shape, counts, sessions)]
    return Told(lines, counts, [repr(session) for session in sessions])


def through_lane(paths: list[str], options: ReadOptions, shape: Options, ways: Ways) -> Told:
    counts, sessions, out = Counter[Any](), list[Any](), list[bytes]()
    lines = ordinary.writer(shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_lane", ways.lane())
        for events in reader.batches(paths, options, lines):
            ways.update(type(event).__name__ for event in events)
            at = 0
            while (at := lines.put(events, at, out.append)) < len(events):
                out += told([events[at]], shape, counts, sessions)
                at += 1
    counts.update(lines.counts)
    return Told(b"".join(out).splitlines(keepends=True), counts, [repr(session) for session in sessions])


def compare(paths: list[str], options: ReadOptions, shape: Options, ways: Ways) -> None:
    expected = through_python(paths, options, shape)
    found = through_lane(paths, options, shape, ways)
    for ours, theirs in zip(found.lines, expected.lines, strict=False):
        assert ours == theirs
    assert len(found.lines) == len(expected.lines)
    assert found.sessions == expected.sessions
    assert found.counts == expected.counts


# The captures


@needs_compiler
@pytest.mark.parametrize("shape", [FORMS["body"], FORMS["no body"], FORMS["records"]], ids=[*FORMS][:3])
def test_every_capture(shape: Options) -> None:
    ways = Ways()
    for path in CAPTURES:
        compare([str(path)], PLAIN, shape, ways)
    assert min(ways["Line"], ways["Exchange"]) > 1000
    assert ways["leave"] == ways["enter"] > len(CAPTURES)


@needs_compiler
def test_all_captures_as_one_input() -> None:
    compare([*map(str, CAPTURES)], PLAIN, FORMS["body"], Ways())


@needs_compiler
def test_events_of_a_time() -> None:
    path = str(TESTS.parent / "captures" / "kafkapython-group-kfake-nano.pcap")
    times = sorted(event.ts for event in reader.events([path]) if not isinstance(event, Session))
    start, end = times[len(times) // 4], times[3 * len(times) // 4]
    for options in (ReadOptions(start=start), ReadOptions(end=end), ReadOptions(start=start, end=end)):
        compare([path], options, FORMS["body"], Ways())


# Conversations that are made up

PRODUCE, FETCH, METADATA, HEARTBEAT, HANDSHAKE, API_VERSIONS, AUTHENTICATE = 0, 1, 3, 12, 17, 18, 36
IDS = ["AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg", "AAAAAAAAAAAAAAAAAAAAAw"]
NAMES = [b"app", None, b"", b"app", b"other", b"\xff\xfe", 'größe"\n'.encode(), b"x" * 300]
RECORDS = batch(record(b"value", b"key", headers=[("h", None)]), record(None, offset=1))
NO_PARTITIONS = b"\xff\xff\xff\xff"


class Pair(NamedTuple):
    """A request and the response to it: bodies."""

    api: int
    version: int
    asked: bytes
    answered: bytes


def made(api: int, version: int, asked: Any, answered: Any) -> Pair:
    request, response = wire.request_of(api), wire.response_of(api)
    assert request is not None
    assert response is not None
    return Pair(
        api, version, codec.encode(request, version, asked), codec.encode(response, version, answered)
    )


def pairs(seed: int, tame: bool) -> list[Pair]:
    """Of every API at some versions, with every field set to something."""
    maker = Maker(random.Random(seed), tame=tame)
    found = []
    for request in schema.messages():
        api = request.api_key
        response = None if api is None or request.type != "request" else wire.response_of(api)
        if api is None or response is None or api in (HANDSHAKE, API_VERSIONS, AUTHENTICATE):
            continue
        low = max(request.versions.min, response.versions.min)
        high = min(request.versions.max, response.versions.max)
        for version in {low, high, maker.random.randint(low, high)}:
            asked = maker.body(request, version)
            if api == PRODUCE:
                asked["acks"] = maker.random.choice((1, -1))
            pair = made(api, version, asked, maker.body(response, version))
            if len(pair.asked) + len(pair.answered) < 1500:
                found.append(pair)
    return found


def produced(version: int, acks: int, records: bytes | None, transaction: str | None = None) -> Pair:
    topic = {"name": "orders", "partitionData": [{"index": 3, "records": records}]}
    answer = {"responses": [{"name": "orders", "partitionResponses": [{"index": 3, "errorCode": 0}]}]}
    asked = {"acks": acks, "timeoutMs": 0x01020304, "topicData": [topic]}
    if version >= 3:
        asked["transactionalId"] = transaction
    return made(PRODUCE, version, asked, answer)


def fetched(version: int, topic: dict[str, Any], session: tuple[int, int] = (0, -1), given: int = 0) -> Pair:
    """session: id and epoch. given: the id that the broker answers."""
    asked = [{**topic, "partitions": [{"partition": 1, "fetchOffset": 5 + session[1]}]}]
    answered = [{**topic, "partitions": [{"partitionIndex": 1, "errorCode": 0, "records": RECORDS}]}]
    request = {"maxWaitMs": 1, "minBytes": 1, "replicaId": -1, "maxBytes": 1, "isolationLevel": 0}
    if version >= 7:
        request |= {"sessionId": session[0], "sessionEpoch": session[1]}
    response = {"responses": answered} | ({"sessionId": given} if version >= 7 else {})
    return made(FETCH, version, request | {"topics": asked}, response)


def told_names(topic_id: str, name: str) -> Pair:
    topic = {"errorCode": 0, "name": name, "topicId": topic_id, "partitions": []}
    return made(METADATA, 12, {"topics": None}, {"brokers": [], "topics": [topic]})


TAME, WILD = pairs(1, tame=True), pairs(2, tame=False)
MOST_COMMON = [
    made(METADATA, 1, {"topics": None}, {"brokers": [], "topics": []}),
    made(METADATA, 9, {"topics": []}, {"brokers": [], "topics": []}),
    made(HEARTBEAT, 0, {"groupId": "g"}, {"errorCode": 27}),
    made(HEARTBEAT, 4, {"groupId": "g", "memberId": "m"}, {"errorCode": 0}),
    produced(3, -1, RECORDS),
    produced(9, 1, RECORDS + RECORDS),
    produced(11, 1, RECORDS[:-1] + b"!"),
    produced(3, 1, RECORDS, "t" * 10),
    produced(9, 1, RECORDS, "t" * 10),
    produced(9, 1, RECORDS, "t" * 200),
    fetched(4, {"topic": "orders"}),
    fetched(12, {"topic": "orders"}),
]
TRANSACTIONS = [None, "", "t" * 10, "t" * 200]
UNACKNOWLEDGED = [produced(version, 0, None, name) for version in (0, 3, 8, 9, 11) for name in TRANSACTIONS]
NAMED = [fetched(version, {"topicId": topic_id}) for version in (13, 17) for topic_id in IDS]
NAMING = [told_names(topic_id, f"{name}-{topic_id[-1]}") for name in ("topic", "other") for topic_id in IDS]


class Talk:
    """What the two ends of a connection say, in the order in which it is said. 0 is the client."""

    def __init__(self, script: bytes, number: int) -> None:
        self.said: list[tuple[int, bytes]] = []
        self.number = number
        self.client_id: bytes | None = b"app"
        self.due: deque[tuple[int, Pair]] = deque()
        for step, n in zip(script[::2], script[1::2], strict=False):
            STEPS[MENU[step % len(MENU)]](self, n)

    def send(self, pair: Pair, number: int | None = None, tags: bytes = b"\0") -> None:
        name = self.client_id
        frame = struct.pack(">hhi", pair.api, pair.version, self.number if number is None else number)
        frame += NO_PARTITIONS[:2] if name is None else struct.pack(">h", len(name)) + name
        flexible = wire.request_of(pair.api) and wire.header_versions(pair.api, pair.version)[0] > 1
        self.said.append((0, sized(frame + (tags if flexible else b"") + pair.asked)))

    def reply(self, pair: Pair, number: int, tags: bytes = b"\0") -> None:
        flexible = wire.request_of(pair.api) and wire.header_versions(pair.api, pair.version)[1] > 0
        self.said.append((1, sized(struct.pack(">i", number) + (tags if flexible else b"") + pair.answered)))

    def ask(self, pair: Pair, **more: Any) -> None:
        self.number = (self.number + 1 + 2**31) % 2**32 - 2**31
        self.send(pair, **more)
        self.due.append((self.number, pair))

    def answer(self, _: int = 0, **more: Any) -> None:
        if self.due:
            number, pair = self.due.popleft()
            self.reply(pair, number, **more)

    def exchange(self, *given: Pair) -> None:
        """Pipelined; whatever was still waiting is answered, too."""
        for pair in given:
            self.ask(pair)
        while self.due:
            self.answer()

    # Steps; n chooses a variant

    def common(self, n: int) -> None:
        self.exchange(MOST_COMMON[n % len(MOST_COMMON)])

    def tame(self, n: int) -> None:
        self.exchange(TAME[n % len(TAME)])

    def wild(self, n: int) -> None:
        self.exchange(WILD[n % len(WILD)])

    def question(self, n: int) -> None:
        self.ask((MOST_COMMON + TAME)[n % len(MOST_COMMON + TAME)])

    def pipelined(self, n: int) -> None:
        self.exchange(*islice(cycle(MOST_COMMON), n % 12, n % 12 + 2 + n % 4))

    def unacknowledged(self, n: int) -> None:
        self.ask(UNACKNOWLEDGED[n % len(UNACKNOWLEDGED)])
        if n % 3:  # else a mock broker, that answers
            self.due.pop()

    def repeated_id(self, n: int) -> None:
        number = self.due[n % len(self.due)][0] if self.due else self.number
        pair = (MOST_COMMON + TAME)[n % len(MOST_COMMON + TAME)]
        self.send(pair, number)
        self.due.append((number, pair))

    def repeated_behind_others(self, n: int) -> None:
        """What comes between makes the lane leave, and enter again, with the first one waiting."""
        self.exchange()
        self.ask(MOST_COMMON[n % 4])
        self.ask([UNACKNOWLEDGED[2], Pair(999, 0, b"", b"")][n % 2])
        self.due.rotate(1)
        self.answer()
        self.repeated_id(0 if n % 3 else n)
        self.question(n)
        self.exchange()

    def early_answer(self, n: int) -> None:
        self.reply(MOST_COMMON[n % len(MOST_COMMON)], self.number + 1 if self.number < 2**31 - 1 else 0)
        self.ask(MOST_COMMON[n % len(MOST_COMMON)])
        self.due.pop()

    def answer_that_nobody_asked_for(self, n: int) -> None:
        self.reply(MOST_COMMON[n % len(MOST_COMMON)], self.number + 77 if self.number < 2**30 else -99)

    def out_of_turn(self, n: int) -> None:
        self.due.rotate(n)

    def never_answered(self, _: int) -> None:
        if self.due:
            self.due.pop()

    def request_tags(self, n: int) -> None:
        self.ask(MOST_COMMON[n % len(MOST_COMMON)], tags=[b"\1\0\2ab", b"\1\0\x7f", b"\x80\0"][n % 3])

    def response_tags(self, n: int) -> None:
        self.ask(produced(9, 1, None) if n % 2 else MOST_COMMON[3])
        self.due.rotate(1)
        self.answer(tags=[b"\1\0\2ab", b"\1\0\x7f", b"\x80\0", b"\1", b""][n // 2 % 5])

    def cut_short(self, n: int) -> None:
        pair = (MOST_COMMON + TAME)[n % len(MOST_COMMON + TAME)]
        asked, answered = pair.asked, pair.answered
        self.ask(pair._replace(asked=asked[: len(asked) // (1 + n % 2)], answered=answered[: n % 5]))

    def trailing(self, n: int) -> None:
        pair = (MOST_COMMON + TAME)[n % len(MOST_COMMON + TAME)]
        self.ask(pair._replace(asked=pair.asked + bytes(n % 3), answered=pair.answered + bytes(n % 2)))

    def damaged(self, n: int) -> None:
        """A byte is another one: mostly a body that does not decode."""
        pair = (MOST_COMMON + TAME)[n % len(MOST_COMMON + TAME)]
        chance = random.Random(n)
        self.ask(pair._replace(asked=changed(pair.asked, chance), answered=changed(pair.answered, chance)))

    def unknown(self, n: int) -> None:
        api, version = [(999, 0), (METADATA, 99), (PRODUCE, 500), (-2, 1), (HEARTBEAT, -1), (7, 0)][n % 6]
        self.ask(Pair(api, version, bytes(n % 7), bytes(n % 5)))

    def bad_size(self, n: int) -> None:
        size = [-1, 2**31 - 1, -(2**31), 5000][n % 4]
        self.said.append((n // 4 % 2, struct.pack(">i", size) + bytes(n % 13)))

    def short_frame(self, n: int) -> None:
        self.said.append((n % 2, sized(bytes(n // 2 % 11))))

    def sasl(self, n: int) -> None:
        """PLAIN in frames of Kafka, or (0.10) bare tokens behind a handshake, or two logins at once."""
        version = (n + 1) % 2
        self.ask(made(HANDSHAKE, version, {"mechanism": "PLAIN"}, {"errorCode": 0, "mechanisms": ["PLAIN"]}))
        if n % 5:
            self.exchange()
        token = b"\0user%d\0secret" % (n % 3)
        if version == 0:
            self.said += [(0, sized(token)), (1, sized(b""))]
        else:
            self.ask(made(AUTHENTICATE, n % 3, {"authBytes": token}, {"errorCode": 0, "authBytes": b""}))
        if n % 7 == 0:
            self.question(n)

    def api_versions(self, n: int) -> None:
        asked = {"clientSoftwareName": ["lib", "lib", "l\udcff"][n % 3], "clientSoftwareVersion": str(n % 4)}
        pair = made(API_VERSIONS, 3, asked, {"errorCode": 0, "apiKeys": []})
        if n % 4 == 0:  # a broker that does not know the version says so in version 0 (KIP-511)
            pair = pair._replace(answered=b"\0\x23\0\0\0\0")
        self.ask(pair)

    def fetch_session(self, n: int) -> None:
        topic = {"topic": "orders"} if n % 2 else {"topicId": IDS[n % 3]}
        version = 7 + n % 6 if n % 2 else 13 + n % 5
        self.exchange(fetched(version, topic, (0, 0), given=7))
        for epoch in range(1, n % 4):
            self.ask(fetched(version, {**topic}, (7, epoch), given=7))
        if n % 5 == 0:
            self.ask(fetched(version, topic, (7, -1)))

    def topic_id(self, n: int) -> None:
        self.exchange(NAMED[n % len(NAMED)])

    def naming(self, n: int) -> None:
        self.ask(NAMING[n % len(NAMING)])

    def client_name(self, n: int) -> None:
        self.client_id = NAMES[n % len(NAMES)]


def changed(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]


STEPS: dict[str, Callable[[Talk, int], None]] = {
    name: step for name, step in vars(Talk).items() if callable(step) and not name.startswith("_")
}
for name in ("send", "reply", "ask", "exchange"):
    del STEPS[name]
ORDINARY = ["common", "tame", "question", "answer", "pipelined"]
SPECIAL = [step for step in STEPS if step not in ORDINARY]


class Packet(NamedTuple):
    side: int
    seq: int
    ack: int
    flags: int
    data: bytes


def segments(
    said: list[tuple[int, bytes]], sizes: list[int], late: list[bool]
) -> Iterator[tuple[int, bytes]]:
    """sizes: of segments, over and over; 0: all that is said at once. late: whether the last segment of what
    is said at once is kept back until the other side has spoken."""
    size_of = chain(islice(cycle(sizes), 200), repeat(0))
    is_late = cycle(late)
    kept = [b"", b""]
    for side, parts in groupby(said, key=itemgetter(0)):
        data = kept[side] + b"".join(part for _, part in parts)
        kept[side] = b""
        while data:
            size = next(size_of) or len(data)
            segment, data = data[:size], data[size:]
            if not data and len(segment) < 400 and next(is_late):
                kept[side] = segment
            else:
                yield side, segment
    yield from ((side, data) for side, data in enumerate(kept) if data)


def packets(parts: Iterable[tuple[int, bytes]], opened: bool, closed: bool) -> list[Packet]:
    seq = [2**32 - 900, 5000]
    found: list[Packet] = []

    def send(side: int, data: bytes, flags: int) -> None:
        found.append(Packet(side, seq[side], seq[1 - side], flags, data))
        seq[side] += len(data) + bool(flags & (SYN | FIN))

    if opened:
        for side, flags in ((0, SYN), (1, SYN | ACK), (0, ACK)):
            send(side, b"", flags)
    for side, data in parts:
        send(side, data, ACK)
    if closed:
        for side in (0, 1):
            send(side, b"", FIN | ACK)
    return found


def mishap(found: list[Packet], kind: str, where: int) -> None:
    """What may happen to a packet, or to the capture of it."""
    if not found:
        return
    at = where % len(found)
    packet = found[at]
    if kind in ("lost", "later"):
        del found[at]
    if kind in ("later", "again"):
        found.insert(at + 1 + where % 5, packet)
    if kind in ("fin", "rst"):
        found[at] = packet._replace(flags=packet.flags | (FIN if kind == "fin" else RST))
    if kind == "empty":
        found.insert(at, packet._replace(data=b"", flags=ACK))


NUMBER = st.integers(0, 2**16)
MENU = ORDINARY * 15 + SPECIAL
# A byte says which step, the next one its n: hypothesis is quick with bytes.
SCRIPT = st.sampled_from([0, 80]).flatmap(lambda size: st.binary(min_size=size, max_size=size + 40))
SIZES = st.one_of(
    st.sampled_from([[0], [1, 1, 2, 3, 900]]), st.lists(st.integers(1, 600), min_size=1, max_size=5)
)
MISHAP = st.tuples(st.sampled_from(["lost", "later", "again", "fin", "rst", "empty"]), NUMBER)


@st.composite
def connection(draw: st.DrawFn) -> list[Packet]:
    found: list[Packet] = []
    for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):  # the second is one that reuses the ports
        talk = Talk(draw(SCRIPT), draw(st.sampled_from([0, 2**31 - 3, -2])))
        parts = segments(
            talk.said, draw(SIZES), draw(st.sampled_from([[False], [False], [False, False, True]]))
        )
        found += packets(
            parts, *draw(st.sampled_from([(True, True), (True, True), (True, False), (False, False)]))
        )
    for kind, where in draw(st.one_of(st.just([]), st.lists(MISHAP, max_size=2))):
        mishap(found, kind, where)
    return found


Timed = tuple[int, bytes]


def ends(side: int, number: int = 0) -> tuple[tuple[str, int], tuple[str, int]]:
    client, broker = ("10.0.0.1", 40001 + number), ("10.0.0.2", 9092)
    return (broker, client) if side else (client, broker)


@st.composite
def timed_packets(draw: st.DrawFn) -> list[Timed]:
    """Of some connections, in turns; now and then the clock stands still, jumps, or goes back."""
    queues = [deque(found) for found in draw(st.lists(connection(), min_size=1, max_size=3))]
    turns = cycle(draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 8)), min_size=1, max_size=4)))
    gaps = [MS] if draw(st.booleans()) else [0, 1000, 20 * MS, 11 * SECOND, -3 * MS, -15 * SECOND]
    gap = cycle(draw(st.lists(st.sampled_from(gaps), min_size=1, max_size=8)))
    now, found = START, list[Timed]()
    while any(queues):
        chosen, count = next(turns)
        number = next(n for n in islice(cycle(range(len(queues))), chosen, None) if queues[n])
        for _ in range(min(count, len(queues[number]))):
            side, seq, ack, flags, data = queues[number].popleft()
            now += next(gap)
            found.append((now, ip_tcp(*ends(side, number), seq, ack, flags, data)))
    return found


@st.composite
def options(draw: st.DrawFn) -> ReadOptions:
    return ReadOptions(
        port=draw(st.sampled_from([(), (), (9092,)])),
        max_frame=draw(st.sampled_from([1 << 20, 1 << 20, 1 << 20, 300])),
        start=draw(st.sampled_from([None, None, START + 40 * MS])),
        end=draw(st.sampled_from([None, None, START + 90 * MS])),
    )


@needs_compiler
def test_conversations_that_are_made_up(tmp_path: Path) -> None:
    ways = Ways()
    paths = [str(tmp_path / f"{n}.pcap") for n in (1, 2)]  # a rotated capture

    @settings(max_examples=300, deadline=None)
    @given(timed_packets(), options(), st.sampled_from([*FORMS]), NUMBER, st.sampled_from([120 << 10, 700]))
    def same(found: list[Timed], read: ReadOptions, form: str, cut: int, block: int) -> None:
        at = cut % (len(found) + 1) if cut % 4 == 0 else len(found)
        for path, part in zip(paths, (found[:at], found[at:]), strict=True):
            Path(path).write_bytes(pcap(part))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(source, "BLOCK", block)
            patch.setattr(reader, "WINDOW_EVENTS", 3 + cut % 30)
            compare(paths, read, FORMS[form], ways)

    same()
    assert ways["Line"] > 1000
    assert ways["Exchange"] > 1000
    assert ways["leave"] == ways["enter"] > 500


# What such conversations hardly ever come to


def timed(found: list[Packet], gaps: dict[int, int] | None = None) -> list[Timed]:
    """Of one connection. gaps: ns before a packet, where it is not a millisecond."""
    now, out = START, list[Timed]()
    for n, (side, seq, ack, flags, data) in enumerate(found):
        now += (gaps or {}).get(n, MS)
        out.append((now, ip_tcp(*ends(side), seq, ack, flags, data)))
    return out


def same_of(talk: Talk, path: Path, gaps: dict[int, int] | None = None) -> Ways:
    path.write_bytes(pcap(timed(packets(talk.said, opened=True, closed=True), gaps)))
    ways = Ways()
    compare([str(path)], PLAIN, FORMS["body"], ways)
    return ways


@needs_compiler
@pytest.mark.parametrize("answered", [True, False])
def test_every_way_to_want_no_answer(tmp_path: Path, answered: bool) -> None:
    for pair in UNACKNOWLEDGED:
        talk = Talk(b"", 0)
        talk.exchange(MOST_COMMON[0])
        talk.ask(pair)
        if not answered:  # a mock broker does
            talk.due.clear()
        talk.exchange(MOST_COMMON[0])
        ways = same_of(talk, tmp_path / "a.pcap")
        assert ways["enter"] > 0


@needs_compiler
@pytest.mark.parametrize("pair", [MOST_COMMON[0], fetched(12, {"topic": "orders"}, (0, 0), given=7)])
@pytest.mark.parametrize("answered", [True, False])
def test_a_request_is_of_the_file_that_has_its_end(tmp_path: Path, pair: Pair, answered: bool) -> None:
    talk = Talk(b"", 0)
    talk.exchange(MOST_COMMON[0])
    talk.ask(pair)
    talk.ask(pair)
    if answered:
        talk.exchange(MOST_COMMON[0])
    found = timed(packets(talk.said, opened=True, closed=not answered))
    asked = 7  # packets up to the requests
    paths = [str(tmp_path / f"{n}.pcap") for n in (1, 2)]
    for path, part in zip(paths, (found[:asked], found[asked:]), strict=True):
        Path(path).write_bytes(pcap(part))
    compare(paths, PLAIN, FORMS["body"], Ways())


@needs_compiler
def test_a_file_whose_name_is_no_text(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.pcap")
    shutil.copy(TESTS.parent / "captures" / "confluent-idem-mock-nano.pcap", path)
    compare([path], PLAIN, FORMS["body"], Ways())


@needs_compiler
def test_a_response_without_the_tags_that_its_header_has(tmp_path: Path) -> None:
    talk = Talk(b"", 0)
    talk.exchange(MOST_COMMON[0], MOST_COMMON[0])
    talk.ask(produced(9, 1, None))
    talk.answer(tags=b"")
    talk.exchange(MOST_COMMON[0])
    assert same_of(talk, tmp_path / "a.pcap")["Line"] > 0


@needs_compiler
def test_the_principal_turns_out_behind_a_repeated_id(tmp_path: Path) -> None:
    """The answer is for the second request with that id, as the first cannot be read: it tells a new one.
    What was asked before is still of the old one."""
    talk = Talk(b"", 0)
    talk.exchange(made(HANDSHAKE, 1, {"mechanism": "PLAIN"}, {"errorCode": 0, "mechanisms": ["PLAIN"]}))
    talk.ask(MOST_COMMON[0])
    number, _ = talk.due.popleft()
    talk.ask(MOST_COMMON[0]._replace(asked=b"\xff\xff"))
    repeated, _ = talk.due.popleft()
    login = made(AUTHENTICATE, 1, {"authBytes": b"\0user\0secret"}, {"errorCode": 0, "authBytes": b""})
    talk.send(login, repeated)
    talk.reply(MOST_COMMON[0], number)
    talk.ask(fetched(12, {"topic": "orders"}, (0, 0), given=7))
    talk.reply(login, repeated)
    talk.exchange(MOST_COMMON[0])
    same_of(talk, tmp_path / "a.pcap")


@needs_compiler
def test_an_id_with_two_names_the_second_of_them_read_later_and_told_earlier(tmp_path: Path) -> None:
    talk = Talk(b"", 0)
    for pair in (MOST_COMMON[0], NAMING[0], NAMED[0], MOST_COMMON[0], told_names(IDS[0], "other")):
        talk.exchange(pair)
    last = len(packets(talk.said, opened=True, closed=False)) - 2
    same_of(talk, tmp_path / "a.pcap", {last: -20 * MS})


@needs_compiler
def test_the_next_request_is_found_by_a_client_id_that_was_told_just_before(tmp_path: Path) -> None:
    talk = Talk(b"", 0)
    talk.exchange(MOST_COMMON[0])
    talk.client_id = None
    talk.ask(MOST_COMMON[0])
    talk.said.append((0, b"\xff" * 80))
    talk.ask(MOST_COMMON[0])
    talk.exchange()
    same_of(talk, tmp_path / "a.pcap")


# What a framer gives away, and takes back

CLIENT, BROKER = Endpoint("10.0.0.1", 40001), Endpoint("10.0.0.2", 9092)
LIMIT = 1000


def chunk(number: int, data: bytes, lost: int = 0) -> Chunk:
    return Chunk(10 * number, CLIENT, BROKER, data, lost=lost, packet=number)


def test_byte_by_byte_all_that_is_not_read_is_given_away() -> None:
    framer = Framer(LIMIT)
    stream = sized(b"one") + sized(b"") + sized(b"three")
    starts = [0, 7, 11, 20]
    read: list[bytes] = []
    for number, byte in enumerate(stream, 1):
        framer.receive(chunk(number, bytes([byte])))
        read += [frame.data for frame in framer.cut() if isinstance(frame, RawFrame)]
        start = max(at for at in starts if at <= number)
        given = framer.surrender()
        expected = [(stream[at : at + 1], 10 * (at + 1), at + 1) for at in range(start, number)]
        assert given == (start, expected)
        assert (framer.waiting, framer.offset, framer.cut()) == (0, start, [])
        framer.take_back(*given)
        assert framer.waiting == number - start
    assert read == [b"one", b"", b"three"]


def test_the_tail_of_a_chunk_is_given_away_with_its_time_and_packet() -> None:
    framer = Framer(LIMIT)
    framer.receive(chunk(3, sized(b"whole") + b"\0\0"))
    framer.cut()
    assert framer.surrender() == (9, [(b"\0\0", 30, 3)])


def test_nothing_is_given_away_with_a_hole_in_it() -> None:
    for parts in (
        [chunk(1, b"\0\0"), chunk(2, b"x", lost=3)],
        [chunk(1, b"\0\0\0\7ab"), chunk(2, b"", lost=2)],
    ):
        framer = Framer(LIMIT)
        for part in parts:
            framer.receive(part)
        waiting = framer.waiting
        assert framer.surrender() is None
        assert framer.waiting == waiting


def test_what_is_taken_back_begins_where_others_have_left_off() -> None:
    framer = Framer(LIMIT)
    framer.receive(chunk(1, sized(b"one")[:5]))
    assert framer.surrender() == (0, [(sized(b"one")[:5], 10, 1)])
    framer.take_back(100, [(sized(b"next")[:3], 20, 2)])
    framer.receive(chunk(3, sized(b"next")[3:]))
    assert framer.cut() == [RawFrame(b"next", 8, 0, 20, 30, 3, 100)]
    assert (framer.offset, framer.waiting) == (108, 0)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.binary(max_size=30), max_size=6).map(lambda frames: b"".join(map(sized, frames))),
    st.binary(max_size=6),
    st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=8),
)
def test_frames_are_the_same_whoever_held_the_bytes_meanwhile(
    whole: bytes, tail: bytes, steps: list[tuple[int, bool]]
) -> None:
    stream, at = whole + tail, 0
    one, other = Framer(LIMIT), Framer(LIMIT)
    for number, (size, moves) in enumerate(cycle(steps)):
        if at >= len(stream):
            break
        part = chunk(number, stream[at : at + size])
        at += size
        one.receive(part)
        other.receive(part)
        expected = one.cut()
        assert other.cut() == expected
        if expected and not isinstance(expected[-1], RawFrame):
            break
        if moves:
            given = other.surrender()
            assert given is not None
            other = Framer(LIMIT)
            other.take_back(*given)
    assert (other.offset, other.waiting, other.head(100)) == (one.offset, one.waiting, one.head(100))
