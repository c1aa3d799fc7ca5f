"""What must hold of reassembly for any order, repetition, cutting and loss of segments."""

import random
import shutil
import subprocess
from collections import Counter

import pytest
from capture_bytes import BROKER, CAPTURES, CLIENT, joined, segment
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kwsniff.capture.files import open_capture
from kwsniff.capture.link import LinkDecoder
from kwsniff.capture.stream import Limits
from kwsniff.capture.tcp import Reassembler
from kwsniff.model import Endpoint, Flag

SYN, ACK, FIN, RST = Flag.SYN, Flag.ACK, Flag.FIN, Flag.RST
WINDOW = Limits().reorder_window


def conversation(rng: random.Random, turns: int, end: str):
    """Both sides' bytes, and a session of segments that carries them."""
    isn = {CLIENT: rng.getrandbits(32), BROKER: rng.getrandbits(32)}
    sent = {CLIENT: b"", BROKER: b""}
    segments = []

    def send(src, data=b"", flags=ACK):
        peer = BROKER if src == CLIENT else CLIENT
        seq = isn[src] + (flags != SYN and flags != SYN | ACK) + len(sent[src])
        ack = (isn[peer] + 1 + len(sent[peer])) % (1 << 32) if flags & ACK else 0
        segments.append(segment(src, seq, data, flags, ack=ack, ts=len(segments) * 1_000_000))
        sent[src] += data

    send(CLIENT, flags=SYN)
    send(BROKER, flags=SYN | ACK)
    for _ in range(turns):
        src = rng.choice([CLIENT, BROKER])
        send(src, rng.randbytes(rng.choice([0, 1, 1, 5, 1448])))
    if end == "fin":
        send(CLIENT, b"bye", FIN | ACK)
        isn[CLIENT] += 1
        send(BROKER, b"", FIN | ACK)
    elif end == "rst":
        send(BROKER, flags=RST | ACK)
    return sent, segments


def displaced(rng: random.Random, segments, window: int, copies: int):
    """The SYN, then the others and copies of some, each less than `window` places from where it was."""
    rest = segments[1:]
    for _ in range(copies):
        at = rng.randrange(len(rest))
        rest.insert(at, rest[at])
    places = [place + rng.random() * (window - 1) for place in range(len(rest))]
    order = sorted(range(len(rest)), key=places.__getitem__)
    assert all(abs(old - new) < window for new, old in enumerate(order))
    return segments[:1] + [rest[n] for n in order]


def run(segments, limits=None):
    reassembler = Reassembler(limits)
    chunks = [chunk for s in segments for chunk in reassembler.feed(s)]
    return chunks + reassembler.flush(), reassembler


@settings(max_examples=120, deadline=None)
@given(
    st.randoms(use_true_random=False),
    st.integers(1, 60),
    st.sampled_from(["fin", "rst", "open"]),
    st.integers(0, 30),
)
@example(random.Random(1), 400, "fin", 200)
@example(random.Random(2), 400, "rst", 200)
@example(random.Random(3), 1000, "fin", 1000)
def test_order_and_copies_make_no_difference(rng, turns, end, copies):
    sent, segments = conversation(rng, turns, end)
    chunks, reassembler = run(displaced(rng, segments, WINDOW, copies))
    assert joined(chunks, CLIENT) == sent[CLIENT]
    assert joined(chunks, BROKER) == sent[BROKER]
    assert [(chunk.src, chunk.session) for chunk in chunks if chunk.opened] == [(CLIENT, 0)]
    assert chunks[0].opened
    closed = {chunk.src for chunk in chunks if chunk.closed}
    assert closed == (set() if end == "open" else {CLIENT, BROKER})
    assert {chunk.session for chunk in chunks} == {0}
    assert reassembler.tally.lost == 0
    assert reassembler.tally.delivered == len(sent[CLIENT]) + len(sent[BROKER])


@settings(max_examples=120, deadline=None)
@given(st.randoms(use_true_random=False), st.binary(min_size=1, max_size=300), st.integers(0, (1 << 32) - 1))
def test_any_cutting_of_the_same_bytes_makes_no_difference(rng, data, isn):
    cuts = []
    for _ in range(rng.randrange(1, 40)):
        start = rng.randrange(len(data))
        cuts.append((start, rng.randrange(start, len(data)) + 1))
    cuts += [(n, n + 7) for n in range(0, len(data), 7)]
    rng.shuffle(cuts)
    segments = [segment(CLIENT, isn, flags=SYN)]
    segments += [segment(CLIENT, isn + 1 + start, data[start:end]) for start, end in cuts]
    chunks, _ = run(segments)
    assert joined(chunks, CLIENT) == data


@settings(max_examples=120, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.binary(min_size=1, max_size=12), st.integers(0, 3)),
        min_size=1,
        max_size=30,
    )
)
def test_of_bytes_that_differ_the_first_copy_wins(parts):
    first, end = {}, 0
    segments = [segment(CLIENT, -1, flags=SYN)]
    for start, data, cut in parts:
        segments.append(segment(CLIENT, start, data, cut=cut))
        end = max(end, start + len(data) + cut)
        for n, byte in enumerate(data + b"?" * cut):
            first.setdefault(start + n, byte)
    chunks, reassembler = run(segments)
    assert joined(chunks, CLIENT) == bytes(first.get(n, ord("?")) for n in range(end))
    assert reassembler.tally.delivered + reassembler.tally.lost == end


@settings(max_examples=120, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 80), st.floats(0, 0.5), st.integers(1, 20))
@example(random.Random(4), 2000, 0.05, 10)
def test_every_byte_is_either_delivered_or_lost(rng, turns, loss, window):
    sent, segments = conversation(rng, turns, "fin")
    kept = [s for s in segments if s.flags & (SYN | FIN) or rng.random() >= loss]
    chunks, reassembler = run(displaced(rng, kept, window, 3))
    for side in (CLIENT, BROKER):
        got = joined(chunks, side)
        assert len(got) == len(sent[side])
        mine = [chunk for chunk in chunks if chunk.src == side]
        at = 0
        for chunk in mine:
            at += chunk.lost
            assert chunk.data == sent[side][at : at + len(chunk.data)]
            at += len(chunk.data)
        assert mine[-1].closed
    assert reassembler.tally.lost == sum(chunk.lost for chunk in chunks)
    assert reassembler.tally.delivered == sum(len(chunk.data) for chunk in chunks)


NUMBERS = st.one_of(
    st.integers(0, 60), st.integers((1 << 32) - 20, (1 << 32) - 1), st.integers(0, (1 << 32) - 1)
)
ENDS = [Endpoint("10.0.0.1", 1), Endpoint("10.0.0.1", 2), BROKER, Endpoint("::1", 1)]
TINY = Limits(
    reorder_window=2, reorder_time=50, stream_bytes=900, total_bytes=1500, connections=2, ended=2, pairs=2
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.builds(
            segment,
            src=st.sampled_from(ENDS),
            dst=st.sampled_from(ENDS),
            seq=NUMBERS,
            ack=NUMBERS,
            data=st.binary(max_size=12),
            flags=st.sampled_from([ACK, ACK, ACK, SYN, SYN | ACK, FIN | ACK, RST, RST | ACK, 0, 0xFF]),
            cut=st.sampled_from([0, 0, 0, 5]),
            ts=st.integers(0, 200),
        ),
        max_size=60,
    ),
    st.sampled_from([TINY, Limits(), Limits(reorder_window=1), TINY._replace(pairs=50)]),
)
def test_hostile_segments_break_no_promise(segments, limits):
    reassembler = Reassembler(limits)
    state: dict = {}

    def check(chunks):
        for chunk in chunks:
            key = frozenset((chunk.src, chunk.dst)), chunk.session
            seen = state.setdefault(key, {"opened": False, "data": False, "closed": set()})
            assert chunk.src not in seen["closed"], "a chunk behind the close"
            if chunk.opened:
                assert not seen["opened"]
                assert not seen["data"]
                seen["opened"] = True
            seen["data"] |= bool(chunk.data)
            if chunk.closed:
                seen["closed"].add(chunk.src)
            assert chunk.lost >= 0
            assert chunk.opened or chunk.closed or chunk.data or chunk.lost

    for s in segments:
        chunks = reassembler.feed(s)
        if limits.pairs > 2:
            check(chunks)
        held = sum(stream.pieces.cost for stream in reassembler._streams.values())
        assert reassembler._held == held <= limits.total_bytes + limits.stream_bytes
        waiting = {x.connection for x in reassembler._streams.values() if x.waiting or x.connection.rst}
        assert waiting == set(reassembler._waiting)
        assert len(reassembler._streams) <= 2 * (limits.connections + limits.ended)
    reassembler.expire(10_000)
    reassembler.flush()
    assert reassembler._held == 0
    assert reassembler.flush() == []


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.booleans(), NUMBERS, st.binary(max_size=12)), max_size=60))
def test_hostile_data_is_accounted_for(parts):
    segments = [segment(CLIENT if up else BROKER, seq, data) for up, seq, data in parts]
    chunks, reassembler = run(segments)
    tally = reassembler.tally
    assert tally.segments == len(segments)
    assert tally.delivered == sum(len(chunk.data) for chunk in chunks)
    assert tally.delivered + tally.retransmitted <= sum(len(data) for _, _, data in parts)


def reassembled(path):
    decoder, reassembler, chunks = LinkDecoder(), Reassembler(), []
    with open_capture(str(path)) as reader:
        for packet in reader:
            if found := decoder.decode(packet):
                chunks += reassembler.feed(found)
    return chunks + reassembler.flush()


@pytest.mark.tshark
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.name)
def test_real_captures_as_tshark_numbers_their_bytes(path):
    """tshark tells streams and relative sequence numbers; putting bytes in their place is left to a dict."""
    fields = ["tcp.stream", "tcp.srcport", "tcp.seq", "tcp.payload"]
    command = [
        "tshark",
        "-r",
        path,
        "-Y",
        "tcp",
        "-T",
        "fields",
        *(x for field in fields for x in ("-e", field)),
    ]
    expected: dict = {}
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        stream, port, seq, payload = line.split("\t")
        start = (int(seq) + (1 << 31)) % (1 << 32) - (1 << 31)
        places = expected.setdefault((stream, port), {})
        for n, byte in enumerate(bytes.fromhex(payload)):
            places.setdefault(start + n, byte)
    theirs = Counter(bytes(byte for _, byte in sorted(places.items())) for places in expected.values())
    ours: dict = {}
    for chunk in reassembled(path):
        key = chunk.src, chunk.dst, chunk.session
        ours[key] = ours.get(key, b"") + chunk.data
    del theirs[b""]
    assert Counter(data for data in ours.values() if data) == theirs


def test_what_was_done_to_captures_is_seen():
    def facts(name):
        (path,) = [path for path in CAPTURES if path.name == name + ".pcap"]
        chunks = reassembled(path)
        return sum(chunk.lost for chunk in chunks), sum(chunk.opened for chunk in chunks)

    assert facts("confluent-group-mock") == (0, 20)
    assert facts("confluent-group-loss") == (348, 20)
    assert facts("sarama-matrix-disorder") == (0, 33)
    assert facts("kafkapython-group-mid") == (0, 0)
    assert facts("kafkapython-old-0.10-old10") == (0, 19)
    assert facts("kafkapython-old-0.10-reuse") == (0, 38)
