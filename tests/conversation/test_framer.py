"""Chunks in, frames out: whole, byte by byte, with a tail, and with holes."""

import pytest
from talk import BROKER, CLIENT, sized

from kwsniff.conversation.framer import BadSize, Framer, Gap, RawFrame
from kwsniff.model import Chunk

LIMIT = 1000


def feed(framer: Framer, *parts: bytes | int) -> list[RawFrame | Gap | BadSize]:
    """bytes are data, an int is a number of lost bytes in front of the next data."""
    found, lost = [], 0
    for number, part in enumerate(parts, 1):
        if isinstance(part, int):
            lost = part
            continue
        framer.receive(Chunk(number * 10, CLIENT, BROKER, part, lost=lost, packet=number))
        lost = 0
        while (frame := framer.maybe_frame()) is not None:
            found.append(frame)
            if not isinstance(frame, RawFrame):
                return found
    return found


def test_two_frames_in_one_chunk() -> None:
    found = feed(Framer(LIMIT), sized(b"one") + sized(b"three"))
    assert [(frame.data, frame.size, frame.offset) for frame in found] == [(b"one", 7, 0), (b"three", 9, 7)]


def test_byte_by_byte_the_frame_has_the_time_of_its_first_and_last_byte() -> None:
    stream = sized(b"frame")
    (frame,) = feed(Framer(LIMIT), *(stream[at : at + 1] for at in range(len(stream))))
    assert (frame.data, frame.ts, frame.end, frame.packet) == (b"frame", 10, 90, 9)


def test_a_tail_waits_for_the_rest() -> None:
    framer = Framer(LIMIT)
    assert len(feed(framer, sized(b"whole") + sized(b"tail")[:6])) == 1
    assert framer.waiting == 6
    rest = framer.maybe_rest()
    assert isinstance(rest, RawFrame)
    assert (rest.data, rest.size, rest.lost, rest.cut_off) == (b"ta", 8, 2, True)


def test_an_empty_frame_is_a_frame() -> None:
    (frame,) = feed(Framer(LIMIT), sized(b""))
    assert (frame.data, frame.size) == (b"", 4)


def test_a_hole_inside_a_frame_costs_that_frame_only() -> None:
    hurt = sized(b"x" * 100)
    found = feed(Framer(LIMIT), hurt[:20], 30, hurt[50:] + sized(b"next"))
    assert [(frame.data, frame.lost) for frame in found] == [(b"x" * 16, 30), (b"next", 0)]


def test_a_hole_that_takes_a_boundary_is_a_gap() -> None:
    hurt, after = sized(b"x" * 100), sized(b"next")
    framer = Framer(LIMIT)
    found = feed(framer, hurt[:20], 84 + 2, after[2:])
    assert isinstance(found[0], RawFrame)
    assert found[0].lost == 84
    assert isinstance(found[1], Gap)
    assert (found[1].lost, found[1].offset) == (2, 104)


def test_a_hole_in_the_size_itself() -> None:
    found = feed(Framer(LIMIT), sized(b"abcdef")[:2], 3, b"bcdef")
    assert found == [Gap(lost=3, ts=30, packet=3, offset=2, skipped=2)]


@pytest.mark.parametrize("size", [-1, LIMIT + 1])
def test_a_size_that_no_frame_can_have(size: int) -> None:
    found = feed(Framer(LIMIT), size.to_bytes(4, "big", signed=True) + b"rest")[0]
    assert isinstance(found, BadSize)
    assert (found.size, found.offset, found.head[4:]) == (size, 0, b"rest")


def test_run_tells_where_chunks_begin_and_whether_a_gap_ends_it() -> None:
    framer = Framer(LIMIT)
    framer.receive(Chunk(0, CLIENT, BROKER, b"ab"))
    framer.receive(Chunk(0, CLIENT, BROKER, b"cd"))
    assert framer.run() == (b"abcd", [0, 2], False)
    framer.receive(Chunk(0, CLIENT, BROKER, b"ef", lost=5))
    assert framer.run() == (b"abcd", [0, 2], True)
    assert framer.skip(4) == 4
    gap = framer.skip_gap()
    assert gap is not None
    assert gap.lost == 5
    assert framer.run() == (b"ef", [0], False)
