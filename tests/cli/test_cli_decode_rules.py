"""`kwsniff decode --rules`: the rules of the proxy, tried on a capture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_builders import Capture, metadata
from click.testing import CliRunner, Result

from kwsniff.cli import main


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    made = Capture()
    talk = made.client()
    metadata(talk)
    metadata(talk, "missing", code=3)
    talk.close()
    path = tmp_path / "a.pcap"
    path.write_bytes(made.bytes())
    return path


def run(tmp_path: Path, rules: str, *args: object) -> Result:
    path = tmp_path / "rules.yaml"
    path.write_text(f"version: 1\nrules:\n{rules}\n")
    return CliRunner().invoke(main, ["decode", "--rules", str(path), *map(str, args)])


def test_tags_go_into_the_lines_and_the_summary_counts(tmp_path: Path, capture: Path) -> None:
    rules = """
- {name: asked, on: request, api: Metadata, limit: 1, then: {tag: first}}
- {name: failed, on: response, when: size(kwsniff.errors) > 0, then: {tag: [failed, again]}}
- {name: both, on: exchange, when: '"failed" in kwsniff.tags', then: {tag: over}}
- {name: ended, on: session, then: alert}
- {name: never, on: request, api: Fetch, then: drop}
"""
    result = run(tmp_path, rules, capture)
    assert result.exit_code == 0
    tags = [json.loads(line)["kwsniff"]["tags"] for line in result.stdout.splitlines()]
    assert tags == [["first"], ["failed", "again", "over"]]
    assert result.stderr.splitlines()[-5:] == [
        "kwsniff:   rule asked would have fired once",
        "kwsniff:   rule failed would have fired once",
        "kwsniff:   rule both would have fired once",
        "kwsniff:   rule ended would have fired once",
        "kwsniff:   rule never would have fired 0 times",
    ]


def test_filters_see_the_tags(tmp_path: Path, capture: Path) -> None:
    rule = "- {name: r, on: exchange, when: '\"missing\" in kwsniff.topics', then: {tag: odd}}"
    result = run(tmp_path, rule, "--filter", '"odd" in kwsniff.tags', capture)
    (line,) = map(json.loads, result.stdout.splitlines())
    assert line["kwsniff"]["topics"] == ["missing"]


def test_bodies_that_are_not_shown_are_seen_all_the_same(tmp_path: Path, capture: Path) -> None:
    rule = "- name: r\n  on: request\n  when: request.topics[0].name == 'orders'\n  then: {tag: seen}"
    result = run(tmp_path, rule, "--no-body", "-q", capture)
    assert [json.loads(line)["kwsniff"]["tags"] for line in result.stdout.splitlines()] == [["seen"], []]
    assert result.stderr == ""


def test_it_goes_without_jobs(tmp_path: Path, capture: Path) -> None:
    result = run(tmp_path, "- {name: r, on: request, then: drop}", "--jobs", 2, capture)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--rules counts over all connections" in result.stderr


def test_a_mistake_in_the_rules(tmp_path: Path, capture: Path) -> None:
    result = run(tmp_path, "- {name: r, on: request, then: dorp}", capture)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"kwsniff: {tmp_path / 'rules.yaml'}:3: no action 'dorp', did you mean `drop`?\n"
