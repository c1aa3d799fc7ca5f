"""Rules at work: a rule file's text, the chain of plugins with nothing but them, and what they said."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

from kwsniff.output import jsonl
from kwsniff.passing import Passing, Verdict
from kwsniff.policy.actions import Alert, Note
from kwsniff.policy.chain import Chain
from kwsniff.policy.rule_file import loads
from kwsniff.policy.rules import Rules
from kwsniff.policy.ruleset import On, RuleSet

PRODUCE, FETCH, METADATA, HEARTBEAT = 0, 1, 3, 12


class Heard:
    """An `Act` that keeps what it was told."""

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self.alerts: list[Alert] = []
        self.counts: list[tuple[str, str]] = []
        self.firings: list[tuple[str, On]] = []
        self.failures: list[tuple[str, str]] = []

    def log(self, note: Note) -> None:
        self.notes.append(note)

    def alert(self, alert: Alert) -> None:
        self.alerts.append(alert)

    def count(self, metric: str, rule: str) -> None:
        self.counts.append((metric, rule))

    def fired(self, rule: str, on: On) -> None:
        self.firings.append((rule, on))

    def failed(self, rule: str, why: str) -> None:
        self.failures.append((rule, why))


def ruleset(text: str, seed: int = 0) -> RuleSet:
    """The rules of a file whose `rules` these are."""
    body = dedent(text).strip("\n")
    return loads(f"version: 1\nseed: {seed}\nrules:\n{body}\n".encode())


class Stage:
    """Frames pass the rules as they do in the proxy."""

    def __init__(self, text: str, seed: int = 0) -> None:
        self.heard = Heard()
        self.rules = Rules(ruleset(text, seed), jsonl.line, self.heard)
        self.chain = Chain([("rules", self.rules)])

    def request(self, passing: Passing) -> list[tuple[str, Verdict]]:
        found = self.chain.request(passing)
        assert not self.chain.failures
        return found

    def response(self, passing: Passing) -> list[tuple[str, Verdict]]:
        found = self.chain.response(passing)
        assert not self.chain.failures
        return found


def produced(**topics: bytes | None) -> dict[str, Any]:
    """A Produce request to partition 0 of each topic."""
    return {
        "acks": -1,
        "timeoutMs": 1000,
        "topicData": [
            {"name": name, "partitionData": [{"index": 0, "records": records}]}
            for name, records in topics.items()
        ],
    }
