"""Real Apache Kafka on loopback: one or three nodes, KRaft, each both broker and controller.

In: a folder of jars, the number of nodes, a folder for their data and logs. Out: a Cluster whose nodes
answer. Listeners of a node, all on 127.0.0.1: CONTROLLER, INTERNAL (among nodes), PLAIN (PLAINTEXT), SASL
(SASL_PLAINTEXT: PLAIN and SCRAM), TLS (SSL), MUTUAL (SSL that asks for a certificate). The last four
advertise an address of the Guard, never their own.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import broker_certificates
from broker_guard import ADVERTISED, Guard

from kwsniff import wire

HOST = "127.0.0.1"
USER, PASSWORD = "alice", "alice-secret"
GUARDED = {"PLAIN": "PLAINTEXT", "SASL": "SASL_PLAINTEXT", "TLS": "SSL", "MUTUAL": "SSL"}
PROTOCOLS = {"CONTROLLER": "PLAINTEXT", "INTERNAL": "PLAINTEXT"} | GUARDED
SMALL_JVM = ("-Xmx256m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_PORTS = range(10_000, 20_000)
_READY_S = 90
_METADATA, _FIND_COORDINATOR = 9, 2
COORDINATORS = (0, 1)
"""Key types of FindCoordinator: of a group, of a transaction."""

# No waiting for what a test cluster does not need to wait for; small buffers for small heaps.
_SETTINGS = """
process.roles=broker,controller
controller.listener.names=CONTROLLER
inter.broker.listener.name=INTERNAL
num.partitions=3
offsets.topic.num.partitions=3
transaction.state.log.num.partitions=3
share.coordinator.state.topic.num.partitions=3
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
group.consumer.min.heartbeat.interval.ms=500
group.consumer.heartbeat.interval.ms=500
group.share.min.heartbeat.interval.ms=500
group.share.heartbeat.interval.ms=500
log.cleaner.dedupe.buffer.size=16777216
num.network.threads=2
num.io.threads=4
controlled.shutdown.enable=false
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
super.users=User:ANONYMOUS
"""


@dataclass
class Node:
    """One process, and where its listeners are."""

    node_id: int
    folder: Path
    ports: dict[str, int]
    advertised: dict[str, int]
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder / "server.log"


class Cluster:
    """Started by `start`, gone after `stop`; also a context manager. The guard lets everybody in at first."""

    def __init__(self, jars: Path, nodes: int, folder: Path, jvm: tuple[str, ...] = SMALL_JVM) -> None:
        self.guard = Guard()
        self.certificates = folder / "certificates"
        self.nodes = [_node(node_id, folder) for node_id in range(1, nodes + 1)]
        self._classpath = f"{jars}/*"
        self._jvm = jvm
        self._cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")

    def start(self) -> None:
        broker_certificates.make(self.certificates)
        self.guard.start()
        for node in self.nodes:
            for listener, port in node.advertised.items():
                self.guard.protect(port, (HOST, node.ports[listener]))
        self._format()
        for node in self.nodes:
            self.start_node(node)
        self.wait()

    def stop(self) -> None:
        for node in self.nodes:
            self.kill(node)
        self.guard.stop()

    def __enter__(self) -> Cluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def bootstrap(self, listener: str) -> str:
        """The address that node 1 advertises for a listener, which the guard protects."""
        node = self.nodes[0]
        if listener in node.advertised:
            return f"{ADVERTISED}:{node.advertised[listener]}"
        return f"{HOST}:{node.ports[listener]}"

    def secrets(self) -> set[str]:
        """Addresses and ports that no client may be told."""
        ports = {port for node in self.nodes for port in (*node.ports.values(), *node.advertised.values())}
        return {ADVERTISED} | {str(port) for port in ports}

    def start_node(self, node: Node) -> None:
        with node.log.open("ab") as log:
            node.process = subprocess.Popen(
                [*self._java(), "kafka.Kafka", node.folder / "server.properties"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_die_with_parent,
            )  # fmt: skip

    def kill(self, node: Node) -> None:
        """At once: nothing is to be kept, and a clean end takes seconds."""
        if node.process is not None:
            node.process.send_signal(signal.SIGKILL)
            node.process.wait()
            node.process = None

    def wait(self) -> None:
        """Until each node names all of them, a controller and coordinators. TimeoutError shows its log."""
        end = time.monotonic() + _READY_S
        for node in self.nodes:
            while not self._complete(node):
                if node.process is None or node.process.poll() is not None or time.monotonic() > end:
                    raise TimeoutError(
                        f"Kafka node {node.node_id} is not ready:\n{node.log.read_text()[-4000:]}"
                    )
                time.sleep(0.1)

    def _complete(self, node: Node) -> bool:
        try:
            told = metadata((HOST, node.ports["INTERNAL"]))
            found = [coordinator((HOST, node.ports["INTERNAL"]), kind) for kind in COORDINATORS]
        except OSError:
            return False
        return len(told["brokers"]) == len(self.nodes) and told["controllerId"] > 0 and not any(found)

    def _format(self) -> None:
        running = []
        for node in self.nodes:
            node.folder.mkdir(parents=True)
            (node.folder / "server.properties").write_text(self._properties(node))
            argv = [*self._java(), "kafka.tools.StorageTool", "format", "--cluster-id", self._cluster_id]
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                argv += ["--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]"]
            argv += ["--config", node.folder / "server.properties"]
            log = (node.folder / "format.log").open("wb")
            with log:
                running.append(subprocess.Popen(argv, stdout=log, stderr=log, preexec_fn=_die_with_parent))
        for node, process in zip(self.nodes, running, strict=True):
            if process.wait() != 0:
                raise RuntimeError(f"formatting failed:\n{(node.folder / 'format.log').read_text()[-4000:]}")

    def _properties(self, node: Node) -> str:
        copies = len(self.nodes)
        voters = ",".join(f"{each.node_id}@{HOST}:{each.ports['CONTROLLER']}" for each in self.nodes)
        told = {name: (ADVERTISED, port) for name, port in node.advertised.items()}
        told["INTERNAL"] = (HOST, node.ports["INTERNAL"])
        lines = {
            "node.id": node.node_id,
            "log.dirs": node.folder / "data",
            "controller.quorum.voters": voters,
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in node.ports.items()),
            "advertised.listeners": ",".join(
                f"{name}://{host}:{port}" for name, (host, port) in told.items()
            ),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in PROTOCOLS.items()),
            "default.replication.factor": copies,
            "min.insync.replicas": min(2, copies),
        }
        for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
            lines[f"{topic}.replication.factor"] = copies
        for topic in ("transaction.state.log", "share.coordinator.state.topic"):
            lines[f"{topic}.min.isr"] = min(2, copies)
        return _SETTINGS + _text(lines | self._security())

    def _security(self) -> dict[str, Any]:
        modules = "org.apache.kafka.common.security"
        lines: dict[str, Any] = {
            "listener.name.sasl.plain.sasl.jaas.config": f"{modules}.plain.PlainLoginModule required "
            f'user_{USER}="{PASSWORD}";'
        }
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            module = f"{modules}.scram.ScramLoginModule required;"
            lines[f"listener.name.sasl.{mechanism}.sasl.jaas.config"] = module
        for name in ("tls", "mutual"):
            lines |= {
                f"listener.name.{name}.ssl.keystore.type": "PEM",
                f"listener.name.{name}.ssl.keystore.location": self.certificates / "broker.pem",
                f"listener.name.{name}.ssl.truststore.type": "PEM",
                f"listener.name.{name}.ssl.truststore.location": self.certificates / "ca.pem",
            }
        lines["listener.name.mutual.ssl.client.auth"] = "required"
        return lines

    def _java(self) -> list[str]:
        logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return ["java", *self._jvm, logging, "-Djava.net.preferIPv4Stack=true", "-cp", self._classpath]


def metadata(address: tuple[str, int]) -> dict[str, Any]:
    """One round trip of ApiVersions and one of Metadata. OSError while nobody answers."""
    with socket.create_connection(address, timeout=5) as connection:
        ask(connection, 18, 0, {})
        return ask(connection, 3, _METADATA, {"topics": []})


def coordinator(address: tuple[str, int], key_type: int) -> int:
    """The error code of FindCoordinator; being asked for is what makes the topic behind it."""
    with socket.create_connection(address, timeout=5) as connection:
        told = ask(connection, 10, _FIND_COORDINATOR, {"key": "any", "keyType": key_type})
        return int(told["errorCode"])


def ask(connection: socket.socket, api: int, version: int, body: dict[str, Any]) -> dict[str, Any]:
    message = wire.request_of(api)
    header_version, _ = wire.header_versions(api, version)
    header = {"requestApiKey": api, "requestApiVersion": version, "correlationId": 1, "clientId": "ready?"}
    frame = wire.encode("RequestHeader", header_version, header) + wire.encode(message.name, version, body)
    connection.sendall(len(frame).to_bytes(4, "big") + frame)
    answer = _exactly(connection, int.from_bytes(_exactly(connection, 4), "big"))
    return wire.decode_response(answer, api, version)[1]


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionResetError("the broker closed the connection")
        data += more
    return data


def _node(node_id: int, folder: Path) -> Node:
    with contextlib.ExitStack() as stack:
        ports = {name: _free(stack, HOST) for name in PROTOCOLS}
        advertised = {name: _free(stack, ADVERTISED) for name in GUARDED}
    return Node(node_id, folder / f"node-{node_id}", ports, advertised)


def _free(stack: contextlib.ExitStack, host: str) -> int:
    """A port that nobody has, and that the system gives to no client; not one that the stack holds."""
    while True:
        held = socket.socket()
        try:
            held.bind((host, random.choice(_PORTS)))
        except OSError:
            held.close()
        else:
            return int(stack.enter_context(held).getsockname()[1])


def _text(lines: dict[str, Any]) -> str:
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def _die_with_parent() -> None:
    """prctl(2), PR_SET_PDEATHSIG: no broker outlives a test run that was killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(1)
