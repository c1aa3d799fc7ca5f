"""What an input held, in a few lines for people: exchanges by API and version, faults, bytes, connections.

In: every line with whether it was shown, and the sessions. Out: text for standard error. It counts what was
read, not what a filter let through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from kwsniff import wire
from kwsniff.model import Ledger, Outcome, Session

Line = dict[str, Any]
_COUNTERS = ("exchanges", "errors", "outcomes", "faults", "protocols")
_BYTES = ("seen", "decoded", "undecoded", "lost")  # of a Ledger


class Summary:
    def __init__(self) -> None:
        self.exchanges: Counter[tuple[str, int | None]] = Counter()
        self.errors: Counter[tuple[str, int | None]] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.protocols: Counter[str] = Counter()
        self.shown = 0
        self.ledgers: list[Ledger] = []
        self._closed = Ledger()

    @property
    def empty(self) -> bool:
        """Whether nothing at all was read."""
        return not (self.protocols or self.faults)

    def line(self, line: Line, *, shown: bool = True) -> None:
        """Counts one line of `jsonl`."""
        extra = line["kwsniff"]
        self.shown += shown
        if "fault" in extra:
            self.faults[str(extra["fault"]["reason"])] += 1
            return
        api = _api(line["requestHeader"], extra)
        self.exchanges[api] += 1
        self.outcomes[str(extra["outcome"])] += 1
        if extra["errors"]:
            self.errors[api] += 1
        for fault in extra["faults"]:
            self.faults[str(fault["reason"])] += 1

    def ordinary(self, counts: Mapping[tuple[int, int, Outcome, bool], int]) -> None:
        """Counts lines that were made without a dict: by API key, version, outcome, errors or none."""
        for (key, version, outcome, errors), count in counts.items():
            api = wire.api_name(key), version
            self.shown += count
            self.exchanges[api] += count
            self.outcomes[str(outcome)] += count
            if errors:
                self.errors[api] += count

    def session(self, session: Session) -> None:
        """Counts one connection. Its ledgers are read at the end: decoding on demand still corrects them."""
        self.protocols[session.protocol or "silent"] += 1
        self.ledgers += (session.requests, session.responses)
        if len(self.ledgers) > 10_000:
            self._settle(self.ledgers[:5_000])
            del self.ledgers[:5_000]

    def undecodable(self, size: int) -> None:
        """Bytes of frames that turned out to have no body, where another process counts their connection."""
        self._closed.decoded -= size
        self._closed.undecoded += size

    def counts(self) -> dict[str, Any]:
        """All of it as JSON knows it: what `add` takes in another process."""
        self._settle(self.ledgers)
        self.ledgers = []
        found: dict[str, Any] = {name: list(getattr(self, name).items()) for name in _COUNTERS}
        return found | {"shown": self.shown, "bytes": {name: getattr(self._closed, name) for name in _BYTES}}

    def add(self, counts: dict[str, Any]) -> None:
        """Counts what another process has counted."""
        for name in _COUNTERS:
            counter = getattr(self, name)
            for key, count in counts[name]:
                counter[tuple(key) if isinstance(key, list) else key] += count
        self.shown += counts["shown"]
        for name in _BYTES:
            setattr(self._closed, name, getattr(self._closed, name) + counts["bytes"][name])

    def _settle(self, ledgers: list[Ledger]) -> None:
        for name in _BYTES:
            setattr(self._closed, name, getattr(self._closed, name) + sum(getattr(x, name) for x in ledgers))

    def text(self, *, filter_errors: int = 0, filter_error: str | None = None, filtered: bool = False) -> str:
        """The summary, several lines; the first says it all in short."""
        self._settle(self.ledgers)
        self.ledgers = []
        exchanges, faults = sum(self.exchanges.values()), sum(self.faults.values())
        connections = sum(self.protocols.values())
        first = ", ".join(
            (_many(exchanges, "exchange"), _many(connections, "connection"), _many(faults, "fault"))
        )
        rows = [f"{first}; {_many(self.shown, 'line')} shown" if filtered else first]
        rows += self._table()
        rows += _listed("outcomes", self.outcomes) + _listed("faults", self.faults)
        rows += _listed("connections", self.protocols)
        total = self._closed
        rows.append(
            f"  bytes: {total.seen:,} seen, {total.decoded:,} decoded, {total.undecoded:,} not decoded,"
            f" {total.lost:,} lost"
        )
        if filter_errors:
            rows.append(
                f"  the filter could not be evaluated on {_many(filter_errors, 'line')}: {filter_error}"
            )
        return "\n".join(rows)

    def _table(self) -> list[str]:
        if not self.exchanges:
            return []
        names = {api: api[0] + ("" if api[1] is None else f" v{api[1]}") for api in self.exchanges}
        width = max(map(len, names.values()))
        rows = []
        for api in sorted(self.exchanges, key=lambda api: (api[0], -1 if api[1] is None else api[1])):
            errors = self.errors[api]
            row = f"  {names[api]:{width}} {self.exchanges[api]:>9,}"
            rows.append(row + (f"  {errors:,} with errors" if errors else ""))
        return rows


def _api(header: dict[str, Any] | None, extra: dict[str, Any]) -> tuple[str, int | None]:
    if header is None:
        return "SASL token", None
    key, version = header["requestApiKey"], header["requestApiVersion"]
    name = header["requestApiKeyName"] or ("unknown request" if key is None else f"API {key}")
    return (f"{name} (0.7)" if extra["protocol"] == "kafka07" else name), version


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def _listed(title: str, counts: Counter[str]) -> list[str]:
    by_count = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{count:,} {name}" for name, count in by_count)
    return [f"  {title}: {listed}"] if listed else []
