"""The Python API as DESIGN 4 promises it: `kwsniff.read` and `kwsniff.wire`."""

from __future__ import annotations

import inspect
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from acceptance_builders import ROOT, Tape, request, response

import kwsniff
from kwsniff import wire
from kwsniff.errors import ConfigError, DecodeError, EncodeError, UnknownMessage
from kwsniff.model import Exchange, Fault, Session

CAPTURE = str(ROOT / "captures" / "franz-admin-kfake.pcapng")


def test_read_s_signature() -> None:
    parameters = inspect.signature(kwsniff.read).parameters
    assert list(parameters) == ["paths", "filter", "records", "port", "body", "max_frame"]
    assert parameters["paths"].kind is inspect.Parameter.VAR_POSITIONAL


def test_read_gives_three_kinds_of_events() -> None:
    found = list(kwsniff.read(CAPTURE))
    assert {type(event) for event in found} <= {Exchange, Fault, Session}
    exchanges = [event for event in found if isinstance(event, Exchange)]
    assert len(exchanges) == 31
    assert all(e.outcome == "answered" and e.latency and e.latency > 0 for e in exchanges)
    assert all(isinstance(e.request.body, dict) for e in exchanges if e.request)
    assert isinstance(kwsniff.read(CAPTURE), Iterator)


def test_read_s_options() -> None:
    some = [
        e
        for e in kwsniff.read(CAPTURE, filter='requestHeader.requestApiKeyName == "PRODUCE"')
        if isinstance(e, Exchange)
    ]
    assert some
    assert all(e.request and e.request.api == 0 for e in some)
    partition = some[0].request.body["topicData"][0]["partitionData"][0]
    assert isinstance(partition["records"], bytes)
    (batch, *_) = wire.decode_records(partition["records"])
    some = [
        e
        for e in kwsniff.read(CAPTURE, records=True)
        if isinstance(e, Exchange) and e.request and e.request.api == 0
    ]
    (shown, *_) = some[0].request.body["topicData"][0]["partitionData"][0]["records"]
    assert shown["records"] == batch["records"]
    assert all(e.request.body is None for e in kwsniff.read(CAPTURE, body=False) if isinstance(e, Exchange))
    faults = [e for e in kwsniff.read(CAPTURE, max_frame=50) if isinstance(e, Fault)]
    assert {str(f.reason) for f in faults} >= {"frame_too_large"}


def test_read_refuses_at_once_what_is_the_user_s_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="filter"):
        kwsniff.read(CAPTURE, filter="nonsense")
    seen: list[object] = []
    with pytest.raises(ConfigError, match="missing"):
        seen.extend(map(type, kwsniff.read(str(tmp_path / "missing"), CAPTURE)))
    assert seen.count(Exchange) == 31


def test_errors_of_decode() -> None:
    body = wire.encode("MetadataRequest", 9, {"topics": [{"name": "t"}]})
    assert wire.decode("MetadataRequest", 9, body)["topics"][0]["name"] == "t"
    with pytest.raises(DecodeError) as caught:
        wire.decode("MetadataRequest", 9, body + b"\0\0")
    assert caught.value.reason == "trailing_bytes"
    assert caught.value.partial == wire.decode("MetadataRequest", 9, body)
    assert caught.value.offset == len(body)
    for end in range(len(body)):
        with pytest.raises(DecodeError) as caught:
            wire.decode("MetadataRequest", 9, body[:end])
        assert 0 <= caught.value.offset <= end
    with pytest.raises(UnknownMessage, match="MetadataRequest"):
        wire.decode("MetadataRequst", 9, b"")
    for version in (-1, 99):
        with pytest.raises(UnknownMessage):
            wire.decode("MetadataRequest", version, b"")
    assert issubclass(UnknownMessage, ValueError)
    assert issubclass(DecodeError, ValueError)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_decode_takes_any_bytes(kind: type) -> None:
    assert wire.decode("HeartbeatResponse", 0, kind(b"\0\1")) == {"errorCode": 1}
    assert wire.decode_response(kind(b"\0\0\0\1\0\2"), 12, 0) == ({"correlationId": 1}, {"errorCode": 2})


def test_rules_of_encode() -> None:
    assert wire.encode("MetadataRequest", 1, {}) == struct.pack(">i", 0)
    with pytest.raises(EncodeError, match="topics"):
        wire.encode("MetadataRequest", 1, {"topicz": []})
    with pytest.raises(EncodeError):  # not ignorable, and v7 has no such field
        wire.encode(
            "FetchRequest",
            4,
            {"topics": [{"topic": "t"}], "forgottenTopicsData": [{"topic": "x", "partitions": [1]}]},
        )
    wire.encode("FetchRequest", 4, {"forgottenTopicsData": []})
    assert b"rack" not in wire.encode("FetchRequest", 4, {"rackId": "rack"})  # ignorable
    for wrong in (None, "1", 1.5, 2**31, -(2**31) - 1, b"", []):
        with pytest.raises(EncodeError):
            wire.encode("FetchRequest", 4, {"maxWaitMs": wrong})
    with pytest.raises(EncodeError) as caught:
        wire.encode("FetchRequest", 4, {"topics": [{"topic": "a"}, {"topic": 5}]})
    assert caught.value.path == "topics[1].topic"
    for wrong in ([1], {"a": 1}, "x", None):
        with pytest.raises(EncodeError):
            wire.encode("FetchRequest", 4, {"topics": wrong})
    with pytest.raises(UnknownMessage):
        wire.encode("FetchRequest", 77, {})
    for wrong in (None, [], "x"):
        with pytest.raises((EncodeError, TypeError)):
            wire.encode("FetchRequest", 4, wrong)  # type: ignore[arg-type]


def test_headers() -> None:
    frame = request(3, 9, 7, {"topics": []})[4:]
    header, body = wire.decode_request(frame)
    assert (header["requestApiKey"], header["requestApiVersion"], header["correlationId"]) == (3, 9, 7)
    assert header["clientId"] == "app"
    assert body["topics"] == []
    frame = response(3, 9, 7, {})[4:]
    header, body = wire.decode_response(frame, 3, 9)
    assert header["correlationId"] == 7
    for frame in (b"", b"\0", b"\0\3\0\1", b"\0\3\0\1\0\0\0\1\0\5ab"):
        with pytest.raises(DecodeError):
            wire.decode_request(frame)
    with pytest.raises(UnknownMessage):
        wire.decode_request(struct.pack(">hhih", 999, 0, 1, -1))
    with pytest.raises(UnknownMessage):
        wire.decode_response(b"\0\0\0\1", 999, 0)


def test_messages() -> None:
    infos = {m.name: m for m in wire.messages()}
    fetch = infos["FetchRequest"]
    assert (fetch.type, fetch.api_key, fetch.flexible_versions) == ("request", 1, (12, 18))
    assert fetch.valid_versions[0] == 0
    assert fetch.valid_versions[1] >= 17
    assert infos["SaslHandshakeRequest"].flexible_versions is None
    assert "LeaderAndIsrRequest" in infos
    assert len(infos) > 250


def test_a_user_s_script_is_typed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import kwsniff\n"
        "from kwsniff import wire\n"
        "from kwsniff.model import Exchange, Fault\n"
        "for event in kwsniff.read('a.pcap', filter='true', port=9092):\n"
        "    if isinstance(event, Exchange):\n"
        "        ms: float = (event.latency or 0) / 1e6\n"
        "        name: str | None = event.peer.principal\n"
        "    elif isinstance(event, Fault):\n"
        "        text: str = event.message\n"
        "body: dict[str, object] = wire.decode('FetchRequest', 12, b'')\n"
        "data: bytes = wire.encode('FetchRequest', 12, {})\n"
        "names: list[str] = [m.name for m in wire.messages()]\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "script.py"]
    done = subprocess.run(
        [*command, "--cache-dir", str(ROOT / ".mypy_cache")],
        env={**os.environ, "MYPYPATH": str(ROOT)}, cwd=tmp_path,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_standard_input_through_the_api() -> None:
    tape = Tape()
    tape.link().open().metadata(1)
    code = "import kwsniff; print(sum(type(e).__name__ == 'Exchange' for e in kwsniff.read('-')))"
    done = subprocess.run(
        [sys.executable, "-c", code], input=tape.pcap(), capture_output=True, check=True, timeout=30
    )
    assert done.stdout == b"1\n"
