"""`kwsniff proxy` as its user runs it, in front of a Cluster, and what must hold once a client is done.

In: the cluster, which of its listeners, more options. Out: an address for clients; afterwards the lines of
--log, held against the decoded --record and against what the guard saw.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from broker_cluster import HOST, Cluster
from broker_guard import ADVERTISED

_READY_S, _DRAIN_S = 20, 20
_PORTS = range(20_000, 30_000, 10)
"""Below the ports that the system gives to clients."""
_CONTROLLERS = 1000
_OUR_OWN = (
    "timestamp",
    "totalTimeMs",
    "securityProtocol",
    "file",
    "requestPacket",
    "responsePacket",
    "packet",
)
"""What only a file or a clock tells; and the recording is what was said inside of TLS."""

Line = dict[str, Any]


class Proxied:
    """Runs from `start` to `stop`."""

    def __init__(self, cluster: Cluster, listener: str, folder: Path, *more: str) -> None:
        self.log, self.recording = folder / "log.jsonl", folder / "talk.pcapng"
        self.port = _free_ports(len(cluster.nodes))
        self.bootstrap = f"{HOST}:{self.port}"
        self._cluster = cluster
        self._errors = folder / "proxy.log"
        self._argv = [
            sys.executable, "-m", "kwsniff", "proxy", "--quiet", "--listen", self.bootstrap,
            "--upstream", cluster.bootstrap(listener), "--records", "--log", str(self.log),
            "--record", str(self.recording), *more,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(self._argv, stderr=errors)
        end = time.monotonic() + _READY_S
        while "listening on" not in self.said():
            assert self._process.poll() is None, self.said()
            assert time.monotonic() < end, f"the proxy is not ready: {self.said()}"
            time.sleep(0.05)
        guard = self._cluster.guard
        guard.admitted, guard.passed = {self._process.pid}, 0
        guard.refused.clear()

    def stop(self) -> int:
        """As a supervisor does; its exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(_DRAIN_S)
        finally:
            self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._cluster.guard.admitted = None

    def said(self) -> str:
        return self._errors.read_text()

    def check(self, *known: tuple[str, str]) -> list[Line]:
        """End it; whatever must hold of any conversation. The lines of its log.

        known: faults that clients really commit, as the name of an API and a reason.
        """
        assert self.stop() == 0, self.said()
        guard = self._cluster.guard
        assert guard.passed > 0
        assert guard.refused == [], "a client learned the address of a broker"
        logged = [json.loads(line) for line in self.log.read_text().splitlines()]
        assert logged
        self._check_lines(logged, known)
        self._check_addresses(logged)
        self._check_recording(logged)
        return logged

    def _check_lines(self, lines: list[Line], known: tuple[tuple[str, str], ...]) -> None:
        assert [fault for line in lines for fault in _faults(line) if fault not in known] == []
        for line in lines:
            outcome = line["kwsniff"]["outcome"]
            assert line["request"] is not None, line
            assert (line["response"] is not None) == (outcome == "answered"), line
            # A client that is closed waits for no answer; where one is missed, its program fails.
            assert outcome in ("answered", "no_ack", "closed"), line

    def _check_addresses(self, lines: list[Line]) -> None:
        ours = range(self.port, self.port + 10)
        controllers = range(self.port + _CONTROLLERS, self.port + _CONTROLLERS + 10)
        named = 0
        for line in lines:
            for host, port in _addresses(line["response"]):
                assert (host, port) == ("", -1) or (host == HOST and (port in ours or port in controllers)), (
                    line
                )
                named += 1
        assert named > 0
        # The same without the decoder: text in a payload is text in the file.
        assert ADVERTISED.encode() not in self.recording.read_bytes()

    def _check_recording(self, logged: list[Line]) -> None:
        argv = [sys.executable, "-m", "kwsniff", "decode", "--records", str(self.recording)]
        ran = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert re.search(r"bytes: ([\d,]+) seen, \1 decoded, 0 not decoded, 0 lost", ran.stderr), ran.stderr
        decoded = [json.loads(line) for line in ran.stdout.splitlines()]
        assert _by_connection(decoded) == _by_connection(logged)


@contextlib.contextmanager
def through_proxy(cluster: Cluster, listener: str, folder: Path, *more: str) -> Iterator[Proxied]:
    proxied = Proxied(cluster, listener, folder, *more)
    try:
        proxied.start()
        yield proxied
    finally:
        proxied.kill()
        print(proxied.said())  # pytest shows it where a test failed


def _by_connection(lines: list[Line]) -> dict[str, list[Line]]:
    """What lines say of each connection, in order."""
    found: dict[str, list[Line]] = defaultdict(list)
    for line in sorted(lines, key=lambda line: str(line["timestamp"])):
        faults = [_without(fault) for fault in line["kwsniff"].get("faults", [])]
        found[line["connection"]].append(
            _without(line) | {"kwsniff": _without(line["kwsniff"]) | {"faults": faults}}
        )
    return dict(found)


def _without(told: Line) -> Line:
    return {key: value for key, value in told.items() if key not in _OUR_OWN}


def _faults(line: Line) -> list[tuple[str, str]]:
    found = line["kwsniff"].get("faults") or []
    if alone := line["kwsniff"].get("fault"):
        found = [alone]
    name = str(line.get("requestHeader") and line["requestHeader"]["requestApiKeyName"])
    return [(name, fault["reason"]) for fault in found]


def _addresses(value: Any) -> Iterator[tuple[str, int]]:
    if isinstance(value, dict):
        if "host" in value and "port" in value:
            yield value["host"], value["port"]
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _addresses(each)


def _free_ports(nodes: int) -> int:
    """The first of a row that a proxy for so many nodes can have."""
    for first in _PORTS:
        wanted = [
            *range(first, first + nodes + 1),
            *range(first + _CONTROLLERS, first + _CONTROLLERS + nodes + 2),
        ]
        if all(_free(port) for port in wanted):
            return first
    raise RuntimeError("no free ports")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
