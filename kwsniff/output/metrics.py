"""What a proxy counts, for Prometheus: a plugin with a registry of its own.

In: what observers are told. Out: the page of a scrape. Every label has a bounded number of values: of topics,
client ids and rules the first so many are told apart, all later ones are `other`. (Not the most frequent: a
series that gave up its place would go back, and Prometheus takes that for a restart.) An API, version or
error that no release has is `unknown`. No value of a message but those names is in a label. Does not listen.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from kwsniff import wire
from kwsniff.conversation.facts import facts
from kwsniff.hooks import hookimpl
from kwsniff.model import Exchange, Fault, Protocol
from kwsniff.passing import Passed

OTHER, UNKNOWN = "other", "unknown"
TOP = 100
"""Topics, client ids and rules that have a label of their own."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_BROKER_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_PROXY_BUCKETS = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
_LONGEST = 128
"""Characters of a label."""

Labels = tuple[str, ...]


class Metrics:
    """top: how many topics, client ids and rules are told apart. `text` is the page."""

    def __init__(self, top: int = TOP) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        self._topics, self._clients, self._rules = Names(top), Names(top), Names(top)
        self._counted = Names(top)
        self._open = 0
        self._counts: dict[str, Counter[Labels]] = {name: Counter() for name in _COUNTERS}
        self._broker: dict[str, _Buckets] = {}
        self._proxy: dict[str, _Buckets] = {}
        self._shed: Callable[[], int] = int

    def text(self) -> bytes:
        """As CONTENT_TYPE says."""
        return generate_latest(self.registry)

    def watch_shed(self, shed: Callable[[], int]) -> None:
        """Where the number of shed log lines is to be asked."""
        self._shed = shed

    @hookimpl
    def opened(self) -> None:
        self._open += 1
        self._count("connections")

    @hookimpl
    def closed(self) -> None:
        self._open -= 1

    @hookimpl
    def faulted(self, fault: Fault) -> None:
        self._count("faults", fault.reason)

    @hookimpl
    def exchanged(self, passed: Passed) -> None:
        exchange = passed.exchange
        api, version = _api(exchange)
        self._count("exchanges", api, exchange.outcome)
        request, response = exchange.request, exchange.response
        if request is not None:
            self._count("requests", api, version)
            self._count("bytes", request.side, by=request.size)
            self._count("client_requests", self._clients.of(request.client_id or ""))
        if response is not None:
            self._count("bytes", response.side, by=response.size)
        self._count_facts(exchange, api)
        for _, verdict in passed.verdicts:
            self._count("verdicts", type(verdict).__name__.lower())
        _observe(self._proxy, _PROXY_BUCKETS, api, passed.proxy_ns)
        if exchange.latency is not None and passed.sent is not None and passed.received is not None:
            _observe(self._broker, _BROKER_BUCKETS, api, max(exchange.latency - passed.proxy_ns, 0))

    def _count_facts(self, exchange: Exchange, api: str) -> None:
        told = facts(exchange)
        for topic in told.topics:
            self._count("topic_exchanges", self._topics.of(topic))
        for error in told.errors:
            code, name = error["code"], error["name"]
            self._count("errors", api, UNKNOWN if name == f"UNKNOWN_{code}" else name)
            if error["topic"]:
                self._count("topic_errors", self._topics.of(error["topic"]))
        for fault in exchange.faults:
            self._count("faults", fault.reason)
        for frame in (exchange.request, exchange.response):
            # Where facts made do without a body, there was nothing wrong with the bytes.
            for fault in frame.faults if frame is not None and "decoded" in frame.__dict__ else ():
                self._count("faults", fault.reason)

    def fired(self, rule: str, on: str) -> None:
        """A rule has fired."""
        self._count("rule_hits", self._rules.of(rule), on)

    def count(self, metric: str, rule: str) -> None:
        """A rule's action `count`."""
        self._count("rule_counts", self._counted.of(metric), self._rules.of(rule))

    def collect(self) -> Iterator[Metric]:
        """What the registry asks for."""
        yield GaugeMetricFamily("kwsniff_connections_open", "Connections of clients now.", self._open)
        for name, (text, labels) in _COUNTERS.items():
            family = CounterMetricFamily(f"kwsniff_{name}", text, labels=labels)
            for values, count in list(self._counts[name].items()):
                family.add_metric(values, count)
            yield family
        shed = "Lines of the JSON log that were not written."
        yield CounterMetricFamily("kwsniff_log_lines_shed", shed, value=self._shed())
        for name, text, histograms in (
            ("broker_seconds", "Time from request to response that was not the proxy's own.", self._broker),
            ("proxy_seconds", "Time that the proxy held request and response, by rule or not.", self._proxy),
        ):
            histogram = HistogramMetricFamily(f"kwsniff_{name}", text, labels=("api",))
            for api, buckets in list(histograms.items()):
                histogram.add_metric((api,), buckets.cumulative(), buckets.sum / 1e9)
            yield histogram

    def _count(self, name: str, *labels: str, by: int = 1) -> None:
        self._counts[name][labels] += by


class Names:
    """The first `most` names that come are themselves, later ones are `other`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, str] = {}

    def of(self, name: str) -> str:
        label = self._known.get(name)
        if label is None:
            if len(self._known) >= self._most:
                return OTHER
            # A name that is not UTF-8 has surrogates, which no scrape could be written with.
            label = name[:_LONGEST].encode("utf-8", "replace").decode()
            self._known[name] = label
        return label


class _Buckets:
    """One histogram. Values are nanoseconds, bounds seconds."""

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0

    def observe(self, ns: int) -> None:
        self._counts[bisect_left(self._bounds, ns / 1e9)] += 1
        self.sum += ns

    def cumulative(self) -> list[tuple[str, float]]:
        total = 0
        found = []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found


_COUNTERS: dict[str, tuple[str, Sequence[str]]] = {
    "connections": ("Connections of clients.", ()),
    "requests": ("Requests of clients.", ("api", "version")),
    "exchanges": ("Requests by what became of them.", ("api", "outcome")),
    "errors": ("Error codes in responses.", ("api", "error")),
    "bytes": ("Bytes of frames, their size prefixes included.", ("direction",)),
    "faults": ("What was wrong with the bytes of a side, or with a plugin.", ("reason",)),
    "verdicts": ("What plugins and rules decided.", ("verdict",)),
    "topic_exchanges": ("Exchanges that name a topic; the first so many topics.", ("topic",)),
    "topic_errors": ("Error codes of a topic; the first so many topics.", ("topic",)),
    "client_requests": ("Requests by client id; the first so many ids.", ("client_id",)),
    "rule_hits": ("How often a rule fired.", ("rule", "on")),
    "rule_counts": ("What rules counted.", ("name", "rule")),
}
"""Name -> help text, labels."""


def _observe(histograms: dict[str, _Buckets], bounds: Sequence[float], api: str, ns: int) -> None:
    found = histograms.get(api)
    if found is None:
        found = histograms[api] = _Buckets(bounds)
    found.observe(ns)


def _api(exchange: Exchange) -> tuple[str, str]:
    """The labels of its API and version."""
    frame = exchange.request or exchange.response
    if frame is None:
        return UNKNOWN, UNKNOWN
    if frame.protocol is not Protocol.KAFKA:
        return frame.protocol, ""
    return _labels(frame.api, frame.version)


@lru_cache(maxsize=4096)
def _labels(api: int, version: int | None) -> tuple[str, str]:
    message = wire.request_of(api)
    if message is None:
        return UNKNOWN, UNKNOWN
    known = version is not None and message.versions.covers(version)
    return wire.api_name(api), str(version) if known else UNKNOWN
