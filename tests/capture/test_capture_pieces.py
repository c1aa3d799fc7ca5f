"""Byte ranges in any order: the first copy of a byte wins."""

from hypothesis import given
from hypothesis import strategies as st

from kwsniff.capture.pieces import PIECE_COST, Piece, Pieces


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.binary(min_size=1, max_size=15), st.integers(0, 3)), max_size=20
    )
)
def test_pieces_hold_what_a_dict_would(additions):
    pieces, model = Pieces(), {}
    for tick, (start, data, cut) in enumerate(additions):
        end = start + len(data) + cut
        new = [position for position in range(start, end) if position not in model]
        for position in new:
            at = position - start
            model[position] = (tick, data[at] if at < len(data) else None)
        assert pieces.add(Piece(start, end, data, 0, 0, tick)) == len(new)
    held = {}
    for piece in pieces.items:
        for position in range(piece.start, piece.end):
            at = position - piece.start
            held[position] = (piece.tick, piece.data[at] if at < len(piece.data) else None)
    assert held == model
    assert list(held) == sorted(held)
    assert pieces.covered == len(model)
    assert pieces.cost == sum(len(piece.data) + PIECE_COST for piece in pieces.items)

    start = min(model, default=0)
    taken = pieces.take(start)
    reached = taken[-1].end if taken else start
    assert all(position in model for position in range(start, reached))
    assert reached not in model
    assert pieces.covered == len(model) - (reached - start)
    pieces.clear()
    assert (pieces.covered, pieces.cost, pieces.take(0)) == (0, 0, [])
