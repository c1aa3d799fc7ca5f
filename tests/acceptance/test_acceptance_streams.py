"""TCP as captures have it: lost, late, repeated, from the middle. Each frame is told once, or its loss is."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from acceptance_builders import ACK, FIN, MS, RST, SYN, Link, Tape, pcap, request, response, shown, sized
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kwsniff import reader
from kwsniff.model import Exchange, Fault, Outcome, Session


def events(tmp_path: Path, packets: list[tuple[int, bytes]], **options: Any) -> list[Any]:
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(packets))
    found = list(reader.events([str(path)], reader.ReadOptions(**options)))
    for event in found:
        if isinstance(event, Exchange):
            _ = [frame.body for frame in (event.request, event.response) if frame]
    for event in found:
        if isinstance(event, Session):
            for ledger in (event.requests, event.responses):
                assert ledger.seen == ledger.decoded + ledger.undecoded
    return found


def exchanges(found: list[Any]) -> list[Exchange]:
    return [event for event in found if isinstance(event, Exchange)]


def busy(seed: int, mss: int = 700, pipeline: int = 2, count: int = 30, opened: bool = True) -> Tape:
    """Requests and answers of very different sizes, some pipelined."""
    random = Random(seed)
    tape = Tape()
    link = tape.link(mss=mss)
    link = link.open() if opened else link
    waiting = []
    for number in range(count):
        if random.random() < 0.5:
            names = ["t" * random.randint(1, 240) for _ in range(random.randint(1, 8))]
            link.ask(3, 1, number, {"topics": [{"name": name} for name in names]})
            topics = [{"name": "x" * 200} for _ in range(random.randint(0, 12))]
            waiting.append(response(3, 1, number, {"topics": topics}))
        else:
            partitions = [{"partition": p} for p in range(random.randint(1, 30))]
            link.ask(1, 12, number, {"topics": [{"topic": "abc", "partitions": partitions}]})
            data = {"partitionIndex": 0, "records": random.randbytes(random.randint(0, 4000))}
            answer = {"responses": [{"topic": "abc", "partitions": [data]}]}
            waiting.append(response(1, 12, number, answer))
        if len(waiting) >= pipeline or number == count - 1:
            link.broker(*waiting)
            waiting.clear()
    link.close()
    return tape


@pytest.mark.parametrize("pipeline", [1, 2, 3])
def test_one_lost_packet_costs_its_frames_only(tmp_path: Path, pipeline: int) -> None:
    packets = busy(pipeline, pipeline=pipeline).packets
    for at in range(3, len(packets), 2):
        found = events(tmp_path, packets[:at] + packets[at + 1 :])
        told = Counter(exchange.outcome for exchange in exchanges(found))
        assert told[Outcome.ANSWERED] >= 29, at
        for exchange in exchanges(found):
            if exchange.request and exchange.response and not exchange.response.lost:
                number = exchange.request.correlation_id
                assert exchange.response.raw[:4] == struct.pack(">i", number)


@pytest.mark.parametrize("pipeline", [1, 2, 3])
def test_a_row_of_lost_packets(tmp_path: Path, pipeline: int) -> None:
    packets = busy(pipeline, pipeline=pipeline).packets
    for at in range(3, len(packets) - 9, 5):
        found = events(tmp_path, packets[:at] + packets[at + 7 :])
        assert sum(x.outcome is Outcome.ANSWERED for x in exchanges(found)) >= 24, at
        lost = sum(e.requests.lost + e.responses.lost for e in found if isinstance(e, Session))
        assert lost > 0 or at + 8 >= len(packets)


@pytest.mark.parametrize("pipeline", [1, 2, 3])
def test_from_the_middle_all_that_begins_later_is_there(tmp_path: Path, pipeline: int) -> None:
    packets = busy(pipeline, pipeline=pipeline).packets
    began = [x.ts for x in exchanges(events(tmp_path, packets))]
    for at in range(1, len(packets) - 3, 3):
        found = exchanges(events(tmp_path, packets[at:]))
        whole = [x for x in found if x.outcome is Outcome.ANSWERED and x.request and not x.request.lost]
        assert len(whole) >= sum(ts >= packets[at][0] for ts in began), at


@pytest.mark.parametrize("size", [100_000, 900_000, 3_000_000])
def test_from_the_middle_of_a_large_frame(tmp_path: Path, size: int) -> None:
    tape = Tape()
    link = tape.link(mss=1448)
    body = {"responses": [{"topic": "t", "partitions": [{"partitionIndex": 0, "records": bytes(size)}]}]}
    link.exchange(1, 12, 1, {"topics": []}, body).metadata(2).metadata(3).metadata(4)
    found = exchanges(events(tmp_path, tape.packets[len(tape.packets) // 2 :]))
    assert [x.request.correlation_id for x in found if x.request] == [2, 3, 4]
    assert all(x.outcome is Outcome.ANSWERED for x in found if x.request)


def test_from_the_middle_of_a_large_request(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link(mss=1448)
    body = {
        "acks": -1,
        "topicData": [{"name": "t", "partitionData": [{"index": 0, "records": bytes(400_000)}]}],
    }
    link.exchange(0, 7, 1, body, {}).metadata(2).metadata(3)
    found = exchanges(events(tmp_path, tape.packets[40:]))
    assert [x.request.correlation_id for x in found if x.request] == [2, 3]


def test_a_million_bytes_in_many_segments(tmp_path: Path) -> None:
    tape = Tape()
    body = {
        "acks": -1,
        "topicData": [{"name": "t", "partitionData": [{"index": 0, "records": bytes(1_000_000)}]}],
    }
    tape.link(mss=536).open().exchange(0, 7, 1, body, {}).close()
    (exchange,) = exchanges(events(tmp_path, tape.packets))
    assert exchange.outcome is Outcome.ANSWERED
    assert exchange.request
    assert exchange.request.size > 1_000_000
    assert len(exchange.request.body["topicData"][0]["partitionData"][0]["records"]) == 1_000_000


def test_a_thousand_pipelined_requests(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open()
    link.client(b"".join(request(3, 1, n % 700, {"topics": []}) for n in range(2000)))
    link.broker(b"".join(response(3, 1, n % 700, {}) for n in range(2000)))
    found = exchanges(events(tmp_path, tape.packets))
    assert Counter(x.outcome for x in found) == {Outcome.ANSWERED: 2000}
    numbers = [x.request.correlation_id for x in sorted(found, key=lambda x: x.ts) if x.request]
    assert Counter(numbers) == Counter(n % 700 for n in range(2000))


@pytest.mark.parametrize("first", [0x7FFFFFFE, -(2**31), -2, 0])
def test_correlation_ids_wrap(tmp_path: Path, first: int) -> None:
    tape = Tape()
    link = tape.link().open()
    numbers = [(first + i + 2**31) % 2**32 - 2**31 for i in range(5)]
    for number in numbers:
        link.metadata(number)
    assert [x["requestHeader"]["correlationId"] for x in shown(tape.pcap(), tmp_path).lines] == numbers


def test_all_with_the_same_correlation_id(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open()
    link.ask(3, 1, 0, {"topics": []}).ask(18, 0, 0, {}).ask(3, 1, 0, {"topics": [{"name": "x"}]})
    link.answer(3, 1, 0, {"topics": [{"name": "1"}]}).answer(18, 0, 0, {"apiKeys": []})
    link.answer(3, 1, 0, {"topics": [{"name": "2"}]})
    lines = shown(tape.pcap(), tmp_path).lines
    assert [line["kwsniff"]["outcome"] for line in lines] == ["answered"] * 3
    assert [line["response"].get("topics", [{"name": "-"}])[0]["name"] for line in lines] == ["1", "-", "2"]


@pytest.mark.parametrize("shift", [0, 5, 100, 333, 1000, 40_000])
def test_sequence_numbers_wrap_with_data(tmp_path: Path, shift: int) -> None:
    tape = Tape()
    link = tape.link(seq=[2**32 - shift - 1, 2**32 - shift // 2 - 1], mss=90).open()
    for number in range(40):
        link.metadata(number, "t" * (number * 5 + 1))
    found = exchanges(events(tmp_path, tape.packets))
    assert Counter(x.outcome for x in found) == {Outcome.ANSWERED: 40}


def keep_alive(link: Link, garbage: bytes = b"\0") -> None:
    """RFC 9293 3.8.4: one byte below the next, with or without that byte."""
    for side in (0, 1):
        link.seq[side] -= 1
        link.send(side, garbage)
        if not garbage:
            link.seq[side] += 1


@pytest.mark.parametrize("garbage", [b"", b"\0"])
@pytest.mark.parametrize("opened", [True, False])
def test_keep_alives(tmp_path: Path, garbage: bytes, opened: bool) -> None:
    tape = Tape()
    link = tape.link()
    link = link.open() if opened else link
    for number in range(3):
        link.metadata(number)
        keep_alive(link, garbage)
    found = events(tmp_path, tape.packets)
    assert Counter(x.outcome for x in exchanges(found)) == {Outcome.ANSWERED: 3}
    assert not [e for e in found if isinstance(e, Fault)]


@pytest.mark.parametrize("end", ["fin", "rst", "none"])
def test_port_reuse(tmp_path: Path, end: str) -> None:
    tape = Tape()
    for isn in (1000, 900_000, 17, 1500):
        link = tape.link(seq=[isn, isn + 50_000]).open().metadata(isn)
        if end == "fin":
            link.close()
        elif end == "rst":
            link.send(0, b"", RST | ACK)
    lines = shown(tape.pcap(), tmp_path).lines
    assert [line["kwsniff"]["session"] for line in lines] == [0, 1, 2, 3]
    assert [line["requestHeader"]["correlationId"] for line in lines] == [1000, 900_000, 17, 1500]


@pytest.mark.parametrize("snaplen", [60, 68, 80, 96, 128, 200])
def test_a_short_snaplen(tmp_path: Path, snaplen: int) -> None:
    tape = Tape()
    link = tape.link().open()
    for number in range(5):
        link.metadata(number, "t" * 100)
    result = shown(tape.pcap(snaplen=snaplen), tmp_path)
    headers = [line["requestHeader"]["correlationId"] for line in result.exchanges if line["requestHeader"]]
    if snaplen >= 80:
        assert headers == list(range(5))
        reasons = {f["reason"] for line in result.exchanges for f in line["kwsniff"]["faults"]}
        assert reasons <= {"lost_bytes"}
    else:
        assert result.faults or headers


@pytest.mark.parametrize(("closed", "outcome"), [(True, "closed"), (False, "lost")])
def test_a_request_without_an_answer(tmp_path: Path, closed: bool, outcome: str) -> None:
    tape = Tape()
    link = tape.link().open().metadata(1).ask(3, 1, 2, {"topics": []})
    if closed:
        link.send(1, b"", RST | ACK)
    lines = shown(tape.pcap(), tmp_path).lines
    assert [line["kwsniff"]["outcome"] for line in lines] == ["answered", outcome]


def test_an_answer_that_a_gap_took_is_lost(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open().metadata(1).ask(3, 1, 2, {"topics": []})
    link.broker(response(3, 1, 2, {}), captured=False)
    link.metadata(3).close()
    result = shown(tape.pcap(), tmp_path)
    assert [line["kwsniff"]["outcome"] for line in result.exchanges] == ["answered", "lost", "answered"]
    (fault,) = result.faults
    assert (fault["reason"], fault["lost"], fault["side"]) == (
        "lost_bytes",
        len(response(3, 1, 2, {})),
        "response",
    )


def test_a_request_that_a_gap_took_leaves_its_answer_unmatched(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open().metadata(1)
    link.client(request(3, 1, 2, {"topics": []}), captured=False).answer(3, 1, 2, {}).metadata(3).close()
    result = shown(tape.pcap(), tmp_path)
    assert [line["kwsniff"]["outcome"] for line in result.exchanges] == ["answered", "unmatched", "answered"]
    assert result.exchanges[1]["requestHeader"]["correlationId"] == 2
    assert result.exchanges[1]["timestamp"] > result.exchanges[0]["timestamp"]
    assert [fault["side"] for fault in result.faults] == ["request"]


def test_answers_captured_before_their_requests(tmp_path: Path) -> None:
    """Two capture queues: each direction in order, the broker's ahead of the client's."""
    tape = Tape()
    link = tape.link().open()
    head = len(tape.packets)
    for number in range(20):
        link.metadata(number)
    packets = tape.packets[head:]
    client, broker = packets[0::2], packets[1::2]
    mixed = []
    for i in range(20):
        mixed += [broker[i], client[i]]
    found = exchanges(events(tmp_path, tape.packets[:head] + mixed))
    assert Counter(x.outcome for x in found) == {Outcome.ANSWERED: 20}


def test_frames_larger_than_the_limit(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link(mss=1448).open().metadata(1)
    body = {
        "acks": 1,
        "topicData": [{"name": "t", "partitionData": [{"index": 0, "records": bytes(50_000)}]}],
    }
    link.exchange(0, 7, 2, body, {}).metadata(3).metadata(4)
    result = shown(tape.pcap(), tmp_path, "--max-frame", "10K")
    assert [fault["reason"] for fault in result.faults] == ["frame_too_large"]
    numbers = [x["requestHeader"]["correlationId"] for x in result.exchanges if x["request"] is not None]
    assert numbers == [1, 3, 4]
    whole = shown(tape.pcap(), tmp_path, "--max-frame", "60K")
    assert [x["kwsniff"]["outcome"] for x in whole.exchanges] == ["answered"] * 4


def test_garbage_in_the_middle_of_a_stream(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open().metadata(1)
    link.client(b"\xff\xff\xff\xf0" + b"junk" * 20).metadata(2).metadata(3)
    result = shown(tape.pcap(), tmp_path)
    assert [x["requestHeader"]["correlationId"] for x in result.exchanges] == [1, 2, 3]
    assert [fault["reason"] for fault in result.faults] == ["size_invalid"]


def told(found: list[Any]) -> list[Any]:
    """Exchanges without times and packets."""
    return sorted(
        (x.request and x.request.raw, x.response and x.response.raw, x.outcome, x.peer.principal or "")
        for x in exchanges(found)
    )


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10**6), reach=st.integers(1, 60), copies=st.integers(0, 30), mss=st.integers(40, 900)
)
def test_any_order_within_the_window_and_any_copies(
    tmp_path: Path, seed: int, reach: int, copies: int, mss: int
) -> None:
    """The SYN first; every segment displaced by less than the window; copies are equal."""
    packets = busy(seed % 7, mss, 1 + seed % 3, count=8).packets
    random = Random(seed)
    rest = list(packets[1:])
    for _ in range(copies):
        at = random.randrange(len(rest))
        rest.insert(min(len(rest), at + random.randint(0, 20)), rest[at])
    rest = [p for _, p in sorted((i + random.uniform(0, reach), p) for i, p in enumerate(rest))]
    shuffled = [(i * MS, ip) for i, (_, ip) in enumerate([packets[0], *rest])]
    assert told(events(tmp_path, shuffled)) == told(events(tmp_path, packets))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mss=st.integers(1, 3000), pipeline=st.integers(1, 8))
def test_any_cut_into_segments(tmp_path: Path, mss: int, pipeline: int) -> None:
    one = told(events(tmp_path, busy(3, 60_000, pipeline, count=4).packets))
    assert told(events(tmp_path, busy(3, mss, pipeline, count=4).packets)) == one


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**9), damage=st.integers(1, 40), opened=st.booleans())
def test_damaged_captures_never_raise(tmp_path: Path, seed: int, damage: int, opened: bool) -> None:
    random = Random(seed)
    data = bytearray(busy(seed % 5, 400, 2, count=6, opened=opened).pcap())
    for _ in range(damage):
        data[random.randrange(24, len(data))] = random.choice((0, 255, 127, random.randrange(256)))
    options = [("--records",), ("--int64-as-string",), ("--port", "9092"), ("--no-body",)][seed % 4]
    assert shown(bytes(data), tmp_path, *options).status == 0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(st.tuples(st.booleans(), st.binary(max_size=200)), max_size=8),
    sizes=st.booleans(),
    forced=st.booleans(),
)
def test_arbitrary_bytes_on_a_connection(
    tmp_path: Path, parts: list[tuple[bool, bytes]], sizes: bool, forced: bool
) -> None:
    tape = Tape()
    link = tape.link().open()
    for to_broker, data in parts:
        part = sized(data) if sizes else data
        (link.client if to_broker else link.broker)(part)
    link.close()
    assert shown(tape.pcap(), tmp_path, *(("--port", "9092") if forced else ())).status == 0


def test_flags_that_no_stack_sends(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link()
    for flags in range(64):
        link.send(flags % 2, b"x" * (flags % 3), flags)
    link.send(0, b"", SYN | FIN | RST)
    assert shown(tape.pcap(), tmp_path).status == 0


@pytest.mark.parametrize(
    ("first", "name"),
    [
        (b"\x16\x03\x01\x02\x00", "TLS"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"SSH-2.0-x\r\n", "SSH"),
        (b"\x93" * 40, ""),
    ],
)
@pytest.mark.parametrize("opened", [True, False])
def test_what_is_no_kafka_is_named_with_its_packet(
    tmp_path: Path, first: bytes, name: str, opened: bool
) -> None:
    tape = Tape()
    link = tape.link()
    link = link.open() if opened else link
    link.client(first + bytes(40)).broker(b"\x99" * 50)
    (fault,) = shown(tape.pcap(), tmp_path).faults
    assert (fault["reason"], fault["packet"]) == ("not_kafka", 4 if opened else 1)
    assert name in fault["message"]
