"""Tests against real Apache Kafka: only with --brokers (`make test-brokers`), never in an ordinary run.

They need Linux, Java 17 with its compiler, and Maven with Maven Central, or what it gave before in
~/.cache/kwsniff ($KWSNIFF_CACHE). Where something of this is not there, every test is skipped, saying what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

pytest.register_assert_rewrite("through_proxy", "client_plan")

import broker_jars  # noqa: E402
import client_java  # noqa: E402
from broker_cluster import Cluster  # noqa: E402
from through_proxy import Proxied, through_proxy  # noqa: E402

HERE = Path(__file__).parent
NODES = {broker_jars.NEWEST_4: 3, broker_jars.NEWEST_3: 1}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--brokers", action="store_true", help="Start Apache Kafka and test against it.")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    ordinary = not config.getoption("--brokers", default=False)
    return True if ordinary and collection_path.name.startswith("test_") else None


@cache
def _jars_or_why_not(release: str) -> Path | str:
    try:
        return broker_jars.jars(release)
    except broker_jars.Unavailable as why:
        return f"no real brokers here: {why}"


def _jars(release: str) -> Path:
    found = _jars_or_why_not(release)
    if isinstance(found, str):
        pytest.skip(found)
    return found


class Running:
    """At most one cluster at a time."""

    def __init__(self, folder: Callable[[str], Path]) -> None:
        self._folder = folder
        self._release = ""
        self._stack = ExitStack()

    def cluster(self, release: str) -> Cluster:
        if release != self._release:
            self.stop()
            jars = _jars(release)
            self._cluster = self._stack.enter_context(
                Cluster(jars, NODES[release], self._folder(f"kafka-{release}"))
            )
            self._release = release
        return self._cluster

    def stop(self) -> None:
        self._release = ""
        self._stack.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those of one release in a row; tests of other folders stay where they are."""
    releases = list(NODES)

    def release(item: pytest.Item) -> int:
        callspec = getattr(item, "callspec", None)
        return releases.index(callspec.params["cluster"]) if callspec and HERE in item.path.parents else -1

    items.sort(key=release)


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp)
    yield running
    running.stop()


@pytest.fixture(params=NODES, ids=lambda release: f"kafka-{release}")
def cluster(request: pytest.FixtureRequest, running: Running) -> Cluster:
    return running.cluster(request.param)


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path of the programs in Java."""
    _jars(broker_jars.NEWEST_4)
    return client_java.compiled(tmp_path_factory.mktemp("classes"))


@pytest.fixture
def proxy(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[..., Proxied]]:
    """Starts proxies in front of a listener, with more options; they end with the test."""
    with ExitStack() as stack:
        yield lambda listener, *more: stack.enter_context(through_proxy(cluster, listener, tmp_path, *more))
