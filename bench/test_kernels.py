"""The kernels one by one, for work on one of them: `pytest bench/test_kernels.py` (pytest-benchmark).

Not part of `make test`, and nothing here says how fast is fast enough. To compare with what was before:
--benchmark-autosave, then --benchmark-compare.
"""

from __future__ import annotations

from collections import deque
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import inputs
import loops
import messages
import pytest
import templates

import kwsniff
from kwsniff import wire
from kwsniff.output import jsonl
from kwsniff.output.present import Options
from kwsniff.wire import records

MESSAGES = [
    pytest.param(name, version, build(100), id=f"{name}-100")
    for name, version, build, _, _ in messages.MESSAGES
]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module", params=["A", "B", "C"])
def capture(request: Any, tmp_path_factory: Any) -> Path:
    """1 to 4 MB of each workload."""
    folder: Path = tmp_path_factory.mktemp("captures")
    inputs.write(request.param, folder, 0.01)
    return folder / f"{request.param}.pcap"


@pytest.mark.parametrize(("name", "version", "body"), MESSAGES)
def test_decode(benchmark: Any, name: str, version: int, body: dict[str, Any]) -> None:
    data = wire.encode(name, version, body)
    assert wire.encode(name, version, benchmark(wire.decode, name, version, data)) == data


@pytest.mark.parametrize(("name", "version", "body"), MESSAGES)
def test_encode(benchmark: Any, name: str, version: int, body: dict[str, Any]) -> None:
    data = wire.encode(name, version, body)
    assert benchmark(wire.encode, name, version, wire.decode(name, version, data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_records(benchmark: Any, codec: str) -> None:
    data = records.encode_records([templates.batch(Random(3), codec, 1000, 100)])
    (batch,) = benchmark(wire.decode_records, data)
    assert len(batch["records"]) == 1000


def test_records_summary(benchmark: Any) -> None:
    """What every line of a Produce or Fetch shows: headers and CRC only."""
    data = records.encode_records([templates.batch(Random(3), "none", 1000, 100)])
    summary, wrong = benchmark(records.summarise, data)
    assert (summary["records"], wrong) == (1000, [])


def test_packets_to_streams(benchmark: Any, capture: Path) -> None:
    assert benchmark(loops.streams, capture) == loops.dpkt_packets(capture)


def test_streams_to_exchanges(benchmark: Any, capture: Path) -> None:
    """Framing, headers and matching with the packets below it; no body is decoded."""
    found = benchmark(lambda: deque(kwsniff.read(str(capture), body=False), maxlen=1))
    assert found


@pytest.mark.parametrize(
    "shown", [Options(), Options(records=True), Options(body=False)], ids=lambda x: str(x)
)
def test_json_lines(benchmark: Any, capture: Path, shown: Options) -> None:
    """Exchanges whose bodies are decoded already -> bytes."""
    from kwsniff.model import Exchange

    found = [event for event in kwsniff.read(str(capture)) if isinstance(event, Exchange)][:200]
    for exchange in found:
        jsonl.line(exchange, shown)

    def write() -> int:
        stream = BytesIO()
        for exchange in found:
            stream.write(jsonl.encode(jsonl.line(exchange, shown)))
        return stream.tell()

    assert benchmark(write) > 0
