"""The compiled cut and header against the Python that specifies them, on sane and insane bytes."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from talk import BROKER, CLIENT, request, sized

from kwsniff.conversation import framer, headers
from kwsniff.conversation.framer import BadSize, Framer, Gap, RawFrame
from kwsniff.model import Chunk

pytestmark = pytest.mark.skipif(framer._cut is None, reason="kwsniff was built without a C compiler")

FRAMES = st.lists(st.binary(max_size=40), max_size=6).map(lambda frames: b"".join(map(sized, frames)))
STREAM = st.tuples(FRAMES, st.binary(max_size=12)).map(b"".join)


def cut(parts: list[tuple[int, bytes]]) -> list[RawFrame | Gap | BadSize]:
    receiver = Framer(1000)
    found: list[RawFrame | Gap | BadSize] = []
    for number, (lost, data) in enumerate(parts):
        receiver.receive(Chunk(number, CLIENT, BROKER, data, lost=lost, packet=number))
        found += receiver.cut()
        if found and not isinstance(found[-1], RawFrame):
            break
    return found


@settings(max_examples=300, deadline=None)
@given(STREAM, st.lists(st.integers(0, 200), max_size=5), st.lists(st.integers(0, 3), min_size=6, max_size=6))
def test_frames_are_cut_alike(stream: bytes, cuts: list[int], lost: list[int]) -> None:
    edges = [0, *sorted(min(at, len(stream)) for at in cuts), len(stream)]
    parts = [(gap // 3, stream[a:b]) for gap, a, b in zip(lost, edges, edges[1:], strict=False)]
    with pytest.MonkeyPatch.context() as patch:
        compiled = cut(parts)
        patch.setattr(framer, "_cut", None)
        assert cut(parts) == compiled


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=40),
        st.tuples(
            st.integers(-1, 130),
            st.integers(-1, 140),
            st.integers(-(2**31), 2**31 - 1),
            st.binary(max_size=30),
        ).map(lambda h: struct.pack(">hhi", *h[:3]) + h[3]),
        st.sampled_from(
            [
                request(api, version, 7, b"body", client_id=client_id)[4:]
                for api, version in [(0, 3), (0, 9), (7, 0), (7, 1), (18, 0), (18, 3), (17, 1), (3, 12)]
                for client_id in (None, "", "name", "\u00e9")
            ]
        ),
    )
)
def test_headers_are_read_alike(frame: bytes) -> None:
    assert headers.maybe_request_header(frame) == headers.plain_request_header(frame)
