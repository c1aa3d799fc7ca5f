"""Whatever an exchange holds, its line is valid JSON."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from output_builders import CONN, NOON

from kwsniff import wire
from kwsniff.conversation.bodies import decode_body, decode_token
from kwsniff.model import Exchange, FetchedPartition, Frame, Outcome, Peer, Protocol, Side
from kwsniff.output import jsonl
from kwsniff.output.present import Options
from kwsniff.output.summary import Summary
from kwsniff.output.table import Table

MESSAGES = [info for info in wire.messages() if info.type in ("request", "response")]
broken_text = st.binary(max_size=8).map(lambda data: data.decode("utf-8", "surrogateescape"))
clock = st.integers(-(2**70), 2**70)


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    """A valid or damaged body of any message, or any bytes at all."""
    info = draw(st.sampled_from(MESSAGES))
    assert info.api_key is not None
    version = draw(st.integers(info.valid_versions[0], info.valid_versions[1] + 1))
    try:
        raw = wire.encode(info.name, version, {})
    except ValueError:
        raw = b""
    at = draw(st.integers(0, len(raw)))
    raw = draw(st.sampled_from([raw, raw[:at] + draw(st.binary(max_size=40)) + raw[at:]]))
    side = Side(info.type)
    if side is Side.RESPONSE:
        raw = bytes(5) + raw
    protocol = draw(st.sampled_from([Protocol.KAFKA, Protocol.KAFKA, Protocol.SASL]))
    return Frame(
        ts=draw(clock),
        conn=CONN,
        side=side,
        raw=raw,
        api=info.api_key if draw(st.booleans()) else draw(st.integers(-1, 2000)),
        version=version,
        correlation_id=draw(st.none() | st.integers(-(2**31), 2**31)),
        client_id=draw(st.none() | broken_text),
        body_at=0 if side is Side.REQUEST else 4,
        decoder=decode_token if protocol is Protocol.SASL else decode_body,
        protocol=protocol,
        end=draw(clock),
    )


@st.composite
def exchanges(draw: st.DrawFn) -> Exchange:
    request, response = draw(st.none() | frames()), draw(st.none() | frames())
    fetched = st.tuples(st.none() | broken_text, st.none() | broken_text, st.integers(), st.integers())
    return Exchange(
        request,
        response,
        draw(st.sampled_from(Outcome)),
        CONN,
        Peer(draw(st.none() | broken_text), None, draw(st.none() | broken_text), None),
        fetched=draw(st.none() | st.just(()) | fetched.map(lambda found: (FetchedPartition(*found),))),
        topic_names={"x": (NOON, draw(broken_text))},
    )


@settings(max_examples=300, deadline=None)
@given(exchanges(), st.booleans(), st.booleans(), st.booleans())
def test_any_exchange_is_a_line(found: Exchange, records: bool, body: bool, strings: bool) -> None:
    line = jsonl.line(found, Options(records=records, body=body, int64_as_string=strings))
    assert Table(None).row(line)
    Summary().line(line)

    def refuse(constant: str) -> Any:
        raise AssertionError(constant)

    text = jsonl.encode(line).decode()
    decoded = json.loads(text, parse_constant=refuse)
    assert list(decoded) == list(line)
    assert "\n" not in text
