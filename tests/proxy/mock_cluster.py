"""librdkafka's mock cluster: three brokers over real TCP in this process; and the command, as a process."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from queue import Empty, Queue

from confluent_kafka import Producer

from kwsniff.model import Endpoint
from kwsniff.proxy.endpoints import endpoint


@contextlib.contextmanager
def mock_cluster() -> Iterator[list[Endpoint]]:
    """Where its brokers are. It lives as long as the client that made it."""
    # log_level 0: that client's own opinion of a mock cluster is of no interest.
    owner = Producer({"bootstrap.servers": "none:1", "test.mock.num.brokers": 3, "log_level": 0})
    brokers = owner.list_topics(timeout=5).brokers
    yield [Endpoint(broker.host, broker.port) for _, broker in sorted(brokers.items())]
    del owner


class Proxy:
    """`kwsniff proxy` as it is run. lines: what it has said on standard error so far."""

    def __init__(self, *arguments: object, before: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [*before, sys.executable, "-m", "kwsniff", "proxy", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._said: Queue[str] = Queue()
        self._listening = threading.Thread(target=self._listen)
        self._listening.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._said.put(line.rstrip().removeprefix("kwsniff: "))

    def until(self, said: str, seconds: float = 10) -> str:
        """The next line with these words. Fails when none comes."""
        while True:
            try:
                line = self._said.get(timeout=seconds)
            except Empty:
                raise AssertionError(f"{said!r} was not said, only {self.lines}") from None
            self.lines.append(line)
            if said in line:
                return line

    @property
    def where(self) -> Endpoint:
        """Where it listens."""
        return endpoint(self.until("listening on").split()[2].rstrip(","))

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit status. What it has said until then is in `lines`."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(10)
        self._listening.join()
        while not self._said.empty():
            self.lines.append(self._said.get())
        return status


@contextlib.contextmanager
def proxy(*arguments: object, before: tuple[str, ...] = ()) -> Iterator[Proxy]:
    """before: a command that runs another one."""
    started = Proxy(*arguments, before=before)
    try:
        yield started
    finally:
        started.stop(signal.SIGKILL)
        for stream in (started.process.stdout, started.process.stderr):
            if stream is not None:
                stream.close()
