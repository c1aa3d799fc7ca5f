"""The programs with Apache Kafka's own client: Client.java, compiled once, run by `java`.

Each prints what it got to know, as lines KEY=VALUE. The client is that of the newest release, whatever the
broker: only it speaks share groups (KIP-932).
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import broker_jars
from client_plan import Access

NAME = "java"
_SOURCE = Path(__file__).with_name("Client.java")
_WAIT_S = 90
_JVM = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)

EXPECTED = {
    "roundtrip": {"received": "60"},
    "group": {"received": "120"},
    "transactions": {
        "open": "Ongoing", "producers": "3", "listed": "true",
        "read_committed": "120", "read_uncommitted": "180",
    },
    "share": {"members": "2", "offsets": "3", "accepted": "60", "released": "true"},
    "admin": {
        "controller": "true", "features": "true", "log dirs": "1", "reassignments": "0",
        "config resources": "true", "offsets": "60", "gone": "true",
    },
}  # fmt: skip
"""What each must print, among other things."""


def compiled(folder: Path) -> str:
    """A class path with the programs on it."""
    jars = broker_jars.jars(broker_jars.NEWEST_4)
    argv = ["javac", "-Xlint:none", "-proc:none", "-cp", f"{jars}/*", "-d", folder, _SOURCE]
    subprocess.run(argv, check=True, timeout=_WAIT_S)
    return f"{folder}:{jars}/*"


def run(classpath: str, program: str, access: Access, topic: str) -> dict[str, str]:
    settings = {"bootstrap.servers": access.bootstrap, "security.protocol": access.protocol}
    if access.mechanism:
        module = "plain.Plain" if access.mechanism == "PLAIN" else "scram.Scram"
        settings["sasl.mechanism"] = access.mechanism
        settings["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module}LoginModule required "
            f'username="{access.user}" password="{access.password}";'
        )
    if access.ca:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(access.ca)}
    argv = ["java", *_JVM, "-cp", classpath, "Client", program, topic]
    argv += [f"{key}={value}" for key, value in settings.items()]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=_WAIT_S)
    assert ran.returncode == 0, ran.stderr
    return dict(line.split("=", 1) for line in ran.stdout.splitlines())
