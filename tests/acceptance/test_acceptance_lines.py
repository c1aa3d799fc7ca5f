"""Every line of every bundled capture, with every option, keeps to the contract of the JSON log."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from acceptance_builders import ROOT
from line_contract import problems

from kwsniff import reader
from kwsniff.errors import ConfigError
from kwsniff.model import Exchange, Session
from kwsniff.output import jsonl
from kwsniff.output.present import Options

CAPTURES = sorted((ROOT / "captures").glob("*.pcap*")) + sorted(
    (ROOT / "tests/data/malformed").glob("*.pcap*")
)


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.name)
def test_lines(path: Path) -> None:
    try:
        events = [event for event in reader.events([str(path)]) if not isinstance(event, Session)]
    except ConfigError:
        assert path.name == "empty.pcap"
        return
    options = [Options(*flags) for flags in itertools.product((False, True), repeat=3)]
    for i, event in enumerate(events):
        shapes = options if i < 8 else [options[i % 8]]
        for option in shapes:
            made = jsonl.line(event, option) if isinstance(event, Exchange) else jsonl.fault_line(event)
            line = json.loads(jsonl.encode(made))
            assert problems(line) == [], line
