"""Segments -> chunks, case by case. Lower-case letters are the client's bytes, capitals the broker's."""

import pytest
from capture_bytes import BROKER, CLIENT, SECOND, joined, segment

from kwsniff.capture.stream import NEAR, START_HOLD, Limits
from kwsniff.capture.tcp import STRAYS, Reassembler
from kwsniff.model import Chunk, Endpoint, Flag, Segment

SYN, ACK, FIN, RST, PSH = Flag.SYN, Flag.ACK, Flag.FIN, Flag.RST, Flag.PSH
C0, B0 = 1000, 5000
"""The sequence numbers of the first byte of each side."""


def c(at: int, data: bytes = b"", flags: int = ACK, **more):
    """A segment of the client with its byte number `at`."""
    return segment(CLIENT, C0 + at, data, flags, **({"ack": B0} | more))


def b(at: int, data: bytes = b"", flags: int = ACK, **more):
    return segment(BROKER, B0 + at, data, flags, **({"ack": C0} | more))


HANDSHAKE = [c(-1, flags=SYN, ack=0), b(-1, flags=SYN | ACK), c(0)]


def feed(reassembler: Reassembler, *segments) -> list[Chunk]:
    return [chunk for s in segments for chunk in reassembler.feed(s)]


def established(limits: Limits | None = None) -> Reassembler:
    reassembler = Reassembler(limits)
    feed(reassembler, *HANDSHAKE)
    return reassembler


def told(chunks: list[Chunk]) -> list[str]:
    """Chunks as words: who, what was lost, the bytes, what happened; the session if it is not the first."""
    words = []
    for chunk in chunks:
        word = "c" if chunk.src == CLIENT else "b"
        word += f" lost {chunk.lost}" if chunk.lost else ""
        word += f" {chunk.data.decode()}" if chunk.data else ""
        word += " opened" if chunk.opened else ""
        word += " closed" if chunk.closed else ""
        words.append(word + (f" #{chunk.session}" if chunk.session else ""))
    return words


# ---- a session's start


def test_a_session_in_order():
    r = Reassembler()
    chunks = feed(
        r,
        *HANDSHAKE,
        c(0, b"ask"),
        b(0, b"ANSWER"),
        c(3, flags=FIN | ACK, ack=B0 + 6),
        b(6, flags=FIN | ACK),
        c(4),
    )
    assert told(chunks) == ["c opened", "c ask", "b ANSWER", "c closed", "b closed"]
    assert r.flush() == []
    assert (r.tally.segments, r.tally.delivered, r.tally.lost) == (8, 9, 0)


def test_chunks_carry_time_and_packet_of_their_segment():
    r = established()
    late = feed(r, c(3, b"def", ts=8, packet=21), c(0, b"abc", ts=9, packet=22))
    assert [(chunk.data, chunk.ts, chunk.packet) for chunk in late] == [(b"abc", 9, 22), (b"def", 8, 21)]


@pytest.mark.parametrize(
    "handshake",
    [
        HANDSHAKE[:2],
        HANDSHAKE[:1],
        HANDSHAKE[1:2],
        HANDSHAKE[1::-1],
        HANDSHAKE[:1] * 3 + HANDSHAKE[1:2] * 2,
        [HANDSHAKE[0], *HANDSHAKE],
    ],
    ids=["both", "syn", "syn-ack", "wrong order", "retransmitted", "again"],
)
def test_a_handshake_is_told_once_and_by_whom(handshake):
    r = Reassembler()
    assert told(feed(r, *handshake)) == ["c opened"]
    assert told(feed(r, c(0, b"a"), HANDSHAKE[0])) == ["c a"]
    assert told(feed(r, b(0, b"B")) + r.flush()) == ["b B"]


def test_a_syn_may_carry_data():
    r = Reassembler()
    chunks = feed(r, c(-1, b"early", SYN, ack=0), b(-1, flags=SYN | ACK, ack=C0 + 5), c(5, b" late"))
    assert told(chunks) == ["c opened", "c early", "c  late"]


def test_both_sides_may_open_at_once():
    r = Reassembler()
    chunks = feed(r, c(-1, flags=SYN), b(-1, flags=SYN), c(-1, flags=SYN | ACK), b(-1, flags=SYN | ACK))
    assert told(chunks + feed(r, c(0, b"a"), b(0, b"B"))) == ["c opened", "c a", "b B"]


def test_data_in_front_of_its_handshake_waits_for_it():
    r = Reassembler()
    assert feed(r, c(0, b"abc")) == []
    assert told(feed(r, HANDSHAKE[0])) == ["c opened", "c abc"]


def test_data_in_front_of_the_syn_ack_waits_for_it():
    r = Reassembler()
    chunks = feed(r, HANDSHAKE[0], b(3, b"DEF"), c(0, ack=B0 + 3), b(0, b"ABC"), c(0, b"a", ack=B0 + 6))
    assert told(chunks) == ["c opened", "c a"]
    assert told(feed(r, HANDSHAKE[1])) == ["b ABC", "b DEF"]


# ---- from the middle of a connection


def test_in_the_middle_a_direction_starts_when_its_first_segment_is_acknowledged():
    r = Reassembler()
    assert feed(r, c(3, b"def")) == []
    assert feed(r, c(0, b"abc")) == []
    assert told(feed(r, b(0, b"B", ack=C0 + 6))) == ["c abc", "c def", "b B"]


def test_in_the_middle_a_direction_starts_where_the_peer_stood():
    r = Reassembler()
    chunks = feed(r, b(0, ack=C0), c(0, b"abc"), b(0, b"B"))
    assert told(chunks) == ["c abc", "b B"]


def test_in_the_middle_of_one_direction_a_few_segments_decide():
    r = Reassembler()
    assert feed(r, *(c(n, b"x") for n in (2, 1, 3, 0, 5, 4))) == []
    chunks = feed(r, *(c(n, b"x") for n in range(6, 6 + START_HOLD)))
    assert joined(chunks, CLIENT) == b"x" * (6 + START_HOLD)


def test_in_the_middle_the_end_of_the_input_decides():
    r = Reassembler()
    assert feed(r, c(3, b"def"), c(0, b"abc")) == []
    assert told(r.flush()) == ["c abc", "c def"]


def test_a_fin_is_all_there_is():
    r = Reassembler()
    assert told(feed(r, c(0, flags=FIN | ACK), b(0, flags=FIN | ACK), c(1))) == ["c closed", "b closed"]


# ---- order, repetition, overlap


@pytest.mark.parametrize("start", [1000, 0xFFFFFFFF, 0xFFFFFFFE, 0, (1 << 31) - 2], ids=hex)
def test_order_repetition_and_overlap_at_any_sequence_number(start):
    r = Reassembler()
    feed(r, segment(CLIENT, start - 1, flags=SYN))
    at = lambda n, data: segment(CLIENT, start + n, data)  # noqa: E731
    chunks = feed(
        r, at(0, b"ab"), at(4, b"ef"), at(4, b"EF"), at(1, b"BCD"), at(2, b"cdEFgh"), at(0, b"abcdefgh")
    )
    assert told(chunks) == ["c ab", "c CD", "c ef", "c gh"]
    assert (r.tally.retransmitted, r.tally.out_of_order_segments) == (2 + 1 + 4 + 8, 1)


def test_four_gigabytes_pass_by():
    r = Reassembler()
    feed(r, segment(CLIENT, -1, flags=SYN))
    step = 48 << 20
    for n in range(200):
        assert r.feed(segment(CLIENT, n * step, b"x", cut=step - 1))
    assert r.tally.lost == 200 * (step - 1)


def test_keep_alives_are_no_data():
    r = established()
    feed(r, c(0, b"abc"))
    assert feed(r, c(2), c(2, b"\0"), b(-1), b(-1, b"\0")) == []
    assert told(feed(r, c(3, b"def"))) == ["c def"]


def test_a_zero_window_probe_is_the_next_byte():
    r = established()
    assert told(feed(r, c(0, b"a"), c(0, b"a"), c(0, b"abc"))) == ["c a", "c bc"]


# ---- loss


def test_a_hole_that_the_receiver_acknowledged_is_lost_after_a_while():
    r = established()
    hold = Limits().hold
    assert feed(r, c(0, b"ab"), c(5, b"fgh"))[1:] == []
    assert feed(r, b(0, ack=C0 + 8), *[b(0, ack=C0 + 8)] * (hold - 2)) == []
    assert told(feed(r, b(0, ack=C0 + 8))) == ["c lost 3 fgh"]
    assert feed(r, c(2, b"cde")) == []
    assert (r.tally.lost, r.tally.retransmitted) == (3, 3)


def test_a_hole_that_the_receiver_did_not_acknowledge_will_be_filled():
    r = established()
    feed(r, c(0, b"ab"), c(5, b"fgh"))
    assert feed(r, *[b(0, ack=C0 + 2)] * 1000) == []
    assert told(feed(r, c(2, b"cde"))) == ["c cde", "c fgh"]


def test_each_hole_waits_for_itself():
    r = established()
    hold = Limits().hold
    feed(r, c(1, b"b"), *[b(0, ack=C0 + 9)] * (hold - 5), c(3, b"d"))
    assert told(feed(r, *[b(0, ack=C0 + 9)] * 4)) == ["c lost 1 b"]
    assert told(feed(r, *[b(0, ack=C0 + 9)] * (hold - 4))) == ["c lost 1 d"]


def test_a_hole_is_given_up_after_a_minute_of_capture_time():
    r = established()
    feed(r, c(1, b"b", ts=10 * SECOND))
    assert feed(r, b(0, b"B", ts=70 * SECOND))[0].data == b"B"
    assert told(feed(r, b(1, b"C", ts=70 * SECOND + 1))) == ["c lost 1 b", "b C"]


def test_time_passes_by_other_connections_and_by_request():
    r = established()
    other = Endpoint("10.0.0.9", 1)
    feed(r, c(1, b"b", ts=10 * SECOND), b(1, b"B", ts=30 * SECOND))
    assert told(r.feed(segment(other, 1, b"", ts=71 * SECOND))) == ["c lost 1 b"]
    assert r.expire(90 * SECOND) == []
    assert told(r.expire(91 * SECOND)) == ["b lost 1 B"]
    assert r.expire(1000 * SECOND) == []


def test_a_direction_holds_so_many_bytes():
    r = established(Limits(stream_bytes=10_000))
    chunks = feed(r, *(c(2 * n + 1, b"x") for n in range(100)))
    assert told(chunks)[:2] == ["c lost 1 x", "c lost 1 x"]
    assert r._held <= 10_000
    assert joined(chunks + r.flush(), CLIENT) == b"?x" * 100


def test_all_directions_hold_so_many_bytes_and_the_oldest_goes_first():
    r = Reassembler(Limits(total_bytes=10_000))
    ports = [Endpoint("10.0.0.1", port) for port in range(20)]
    chunks = []
    for client in ports:
        chunks += feed(r, segment(client, 99, flags=SYN), segment(client, 101, bytes(1000)))
    told_lost = [chunk.src for chunk in chunks if chunk.lost]
    assert told_lost == ports[: len(told_lost)]
    assert len(told_lost) == 20 - 8
    assert r._held <= 10_000


def test_what_waits_is_delivered_when_the_input_ends():
    r = established()
    feed(r, c(2, b"c"), c(4, b"e"), b(9, b"B"))
    assert told(r.flush()) == ["c lost 2 c", "c lost 1 e", "b lost 9 B"]
    assert r.flush() == []
    assert told(feed(r, c(5, b"f"))) == ["c f"]


def test_bytes_cut_by_a_snaplen_are_lost_in_front_of_the_next():
    r = established()
    chunks = feed(r, c(0, b"ab", cut=3), c(5, b"fg"), c(7, cut=4), c(11, b"lm", cut=1))
    assert told(chunks) == ["c ab", "c lost 3 fg", "c lost 4 lm"]
    assert told(r.flush()) == ["c lost 1"]
    assert r.tally.lost == 8


def test_bytes_cut_by_a_snaplen_behind_a_hole():
    r = established()
    assert feed(r, c(5, b"f", cut=2)) == []
    assert told(feed(r, c(0, b"a", cut=4), c(8, b"i"))) == ["c a", "c lost 4 f", "c lost 2 i"]


def test_bytes_cut_by_a_snaplen_at_the_end_are_lost_in_front_of_the_close():
    assert told(feed(established(), c(0, b"ab", FIN | ACK, cut=3))) == ["c ab", "c lost 3 closed"]


# ---- a session's end


def test_a_fin_waits_for_the_data_in_front_of_it():
    r = established()
    assert feed(r, c(6, flags=FIN | ACK), c(3, b"def")) == []
    assert told(feed(r, c(0, b"abc"))) == ["c abc", "c def", "c closed"]


def test_what_is_lost_in_front_of_a_fin():
    r = established()
    feed(r, c(0, b"abc"), c(6, b"gh", FIN | ACK))
    assert told(r.flush()) == ["c lost 3 gh", "c closed"]
    r = established()
    feed(r, c(0, b"abc"), c(6, flags=FIN | ACK), b(0, ack=C0 + 7))
    assert told(feed(r, *[b(0, ack=C0 + 7)] * Limits().hold)) == ["c lost 3 closed"]


def test_one_direction_may_go_on_behind_the_fin_of_the_other():
    r = established()
    chunks = feed(r, c(0, flags=FIN | ACK), b(0, b"AB"), b(2, b"CD", FIN | ACK))
    assert told(chunks) == ["c closed", "b AB", "b CD", "b closed"]


def test_data_behind_a_fin_is_none():
    r = established()
    chunks = feed(r, c(5, flags=FIN | ACK), c(3, b"defgh"), c(6, b"xx"), c(0, b"abc"))
    assert told(chunks) == ["c abc", "c de", "c closed"]


def test_a_reset_waits_for_data_that_may_be_late():
    r = established()
    hold = Limits().hold
    assert feed(r, b(3, flags=RST), c(2, b"cd"), *[c(0)] * (hold - 3)) == []
    assert told(feed(r, b(0, b"ABC"))) == ["b ABC"]
    assert told(feed(r, c(0))) == ["c lost 2 cd", "c closed", "b closed"]


def test_a_reset_at_the_end_of_the_input():
    r = established()
    assert feed(r, c(0, b"a"), b(0, flags=RST, ts=7, packet=8))[1:] == []
    closed = r.flush()
    assert told(closed) == ["c closed", "b closed"]
    assert {(chunk.ts, chunk.packet) for chunk in closed} == {(7, 8)}


def test_a_reset_takes_effect_after_a_minute():
    r = established()
    feed(r, b(0, flags=RST, ts=SECOND))
    assert told(r.expire(62 * SECOND)) == ["c closed", "b closed"]


def test_a_refused_connection():
    r = Reassembler()
    chunks = feed(r, HANDSHAKE[0], segment(BROKER, 0, flags=RST | ACK, ack=C0)) + r.flush()
    assert told(chunks) == ["c opened", "c closed", "b closed"]


def test_a_reset_from_elsewhere_is_ignored():
    r = established()
    assert feed(r, b(NEAR + 1, flags=RST)) == []
    assert r.flush() == []


def test_a_connection_that_goes_on_after_a_reset_is_a_new_session():
    r = established()
    feed(r, b(0, flags=RST), c(0, b"a"), *[b(0)] * Limits().hold)
    assert told(feed(r, c(0, b"a"), b(0, b"B", ack=C0 + 1), c(1, b"b", ack=B0 + 1))) == ["b B #1", "c b #1"]


def test_late_copies_behind_the_end_are_ignored():
    session = [*HANDSHAKE, c(0, b"ab", FIN | ACK), b(0, b"AB", FIN | ACK), c(3)]
    r = Reassembler()
    assert len(feed(r, *session)) == 5
    assert feed(r, *session, b(2, flags=RST), c(2, b"\0"), *session) == []
    assert r.flush() == []


# ---- several sessions on one pair of ports


def again(at: int, data: bytes = b"", flags: int = ACK):
    return segment(CLIENT, C0 + (1 << 30) + at, data, flags, ack=B0)


def test_a_new_syn_ends_the_session_before():
    r = established()
    feed(r, c(2, b"cd"))
    chunks = feed(r, again(-1, flags=SYN))
    assert told(chunks) == ["c lost 2 cd", "c closed", "b closed", "c opened #1"]
    chunks = feed(r, again(0, b"xyz"))
    assert told(chunks) == ["c xyz #1"]


def test_a_new_syn_behind_the_end():
    r = Reassembler()
    session = [*HANDSHAKE, c(0, b"a", FIN | ACK), b(0, b"B", FIN | ACK)]
    feed(r, *session)
    assert told(feed(r, again(-1, flags=SYN), again(0, b"x"))) == ["c opened #1", "c x #1"]


def test_a_new_syn_ack_is_enough():
    r = established()
    chunks = feed(r, segment(BROKER, 77, flags=SYN | ACK, ack=C0 + (1 << 30)), again(0, b"x"))
    assert told(chunks) == ["c closed", "b closed", "c opened #1", "c x #1"]


def test_late_segments_of_the_session_before_do_no_harm():
    r = established()
    feed(r, c(0, b"abc"), again(-1, flags=SYN))
    assert feed(r, c(3, b"def"), c(0, b"abc"), c(6, flags=FIN | ACK), c(6, flags=RST)) == []
    assert told(feed(r, again(0, b"x"), again(1, flags=FIN | ACK))) == ["c x #1", "c closed #1"]
    assert r.tally.stray_segments == 3


def test_a_new_session_without_its_syn():
    r = Reassembler()
    feed(r, *HANDSHAKE, c(0, b"a", FIN | ACK), b(0, b"B", FIN | ACK))
    chunks = feed(r, *(again(n, b"x") for n in range(STRAYS + 10)))
    assert told(chunks)[0] == "c x #1"
    assert joined(chunks, CLIENT, 1) == b"x" * 11


def test_a_lone_segment_from_elsewhere_is_ignored():
    r = established()
    chunks = feed(r, c(0, b"a"), c(NEAR + 9, b"far"), c(-NEAR - 9, b"far"), c(1, b"b"))
    assert told(chunks) == ["c a", "c b"]
    assert r.tally.stray_segments == 2


def test_a_gap_beyond_any_window_is_lost_when_the_stream_goes_on_there():
    r = established()
    gap = 100 << 20
    chunks = feed(r, c(0, b"a"), *(c(1 + gap + n, b"x") for n in range(STRAYS + 1)))
    assert [chunk.lost for chunk in chunks] == [0, gap + STRAYS - 1, 0]
    assert {chunk.session for chunk in chunks} == {0}


def test_a_gap_beyond_measure_is_a_new_session():
    r = established()
    chunks = feed(r, c(0, b"a"), *(c(-(200 << 20) + n, b"x") for n in range(STRAYS)))
    assert told(chunks + r.flush()) == ["c a", "c closed", "b closed", "c x #1"]


# ---- bounds


def test_sessions_are_counted_after_the_rest_is_forgotten():
    r = Reassembler(Limits(ended=2))
    ends = [Endpoint("10.0.0.7", port) for port in range(10)]

    chunks = []
    for isn in (100, 1 << 29, 1 << 30):
        for client in ends:
            chunks += feed(r, segment(client, isn, flags=SYN))
            chunks += feed(r, Segment(0, BROKER, client, isn, isn + 1, SYN | ACK, b""))
            chunks += feed(r, segment(client, isn + 1, flags=FIN | ACK))
            chunks += feed(r, Segment(0, BROKER, client, isn + 1, isn + 2, FIN | ACK, b""))
    assert [chunk.session for chunk in chunks if chunk.opened] == [0] * 10 + [1] * 10 + [2] * 10
    assert len(r._streams) == 4
    assert len(r._sessions) == 8


def test_the_connections_silent_for_longest_are_taken_as_closed():
    r = Reassembler(Limits(connections=100, pairs=50))
    chunks = []
    for port in range(1000):
        client = Endpoint("10.0.0.1", 1000 + port)
        chunks += feed(r, segment(client, 9, flags=SYN), c(0))
        chunks += feed(r, segment(client, 11, b"x"))
    assert len(r._streams) <= 202
    assert len(r._sessions) <= 50
    ended = [chunk.src.port for chunk in chunks if chunk.closed and chunk.src != BROKER]
    assert ended == sorted(ended)
    assert CLIENT.port not in ended
    assert sum(chunk.lost for chunk in chunks + r.flush()) == 1000


def test_a_connection_to_itself_cannot_be_told_apart():
    r = Reassembler()
    for flags in (SYN, ACK, FIN | ACK, RST):
        assert r.feed(Segment(0, CLIENT, CLIENT, 5, 5, flags, b"x")) == []
    assert r.flush() == []
