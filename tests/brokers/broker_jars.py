"""The jars of an Apache Kafka release, fetched by Maven once and kept outside the tree.

In: a release that has a folder here (kafka-RELEASE, with a pom.xml and jars.sha256). Out: the folder with its
jars, each of which has the checksum that is written down here; Maven is asked only where that does not hold.
`Unavailable` says why there are none: no Java, no Maven, Maven Central that does not answer. Jars other than
those written down are an error, never a reason to skip.

    python tests/brokers/broker_jars.py 4.3.1 > tests/brokers/kafka-4.3.1/jars.sha256    # for a new release
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NEWEST_4 = "4.3.1"
NEWEST_3 = "3.9.2"
JAVA = 17
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_FETCH_S = 240


class Unavailable(Exception):
    """What this machine lacks to run real brokers, in one line."""


class Unexpected(Exception):
    """Maven gave other jars than those that are written down, or none although it reached its repository."""


def jars(release: str) -> Path:
    """A folder with the jars that a broker of this release needs, checked. Raises Unavailable, Unexpected."""
    require_java()
    folder = cache() / f"kafka-{release}"
    wanted = _written_down(release)
    if _sums(folder) != wanted:
        fetch(release, folder)
        _compare(release, _sums(folder), wanted)
    return folder


def cache() -> Path:
    return Path(os.environ.get("KWSNIFF_CACHE") or Path.home() / ".cache" / "kwsniff")


def require_java() -> None:
    if shutil.which("java") is None:
        raise Unavailable(f"no `java` on the path; Apache Kafka needs Java {JAVA} or newer")
    told = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    found = re.search(r'version "(\d+)', told)
    if found is None or int(found[1]) < JAVA:
        raise Unavailable(f"`java` is {told.splitlines()[0]}; Apache Kafka needs Java {JAVA} or newer")


def fetch(release: str, folder: Path) -> None:
    """Have Maven copy the release and all that it depends on. A folder is there whole or not at all."""
    if shutil.which("mvn") is None:
        raise Unavailable(f"no `mvn` on the path, and no jars of Kafka {release} in {folder}")
    partly = folder.with_name(f"{folder.name}.{os.getpid()}")
    argv = [
        "mvn",
        "--batch-mode",
        "--strict-checksums",
        "--file",
        HERE / f"kafka-{release}" / "pom.xml",
        _PLUGIN,
    ]
    argv += ["-DincludeScope=runtime", f"-DoutputDirectory={partly}"]
    try:
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=_FETCH_S)
    except subprocess.TimeoutExpired:
        shutil.rmtree(partly, ignore_errors=True)
        raise Unavailable(f"Maven did not have the jars of Kafka {release} after {_FETCH_S} s") from None
    if ran.returncode != 0:
        shutil.rmtree(partly, ignore_errors=True)
        raise _failure(release, ran.stdout + ran.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    partly.rename(folder)


def _failure(release: str, told: str) -> Exception:
    """Only a repository that cannot be reached may pass as something that this machine lacks."""
    why = next((line for line in told.splitlines() if "ERROR" in line), told.strip())
    unreached = "Could not transfer" in told and "hecksum" not in told
    return (Unavailable if unreached else Unexpected)(f"Maven fetched no Kafka {release}: {why}")


def _sums(folder: Path) -> dict[str, str]:
    return {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in sorted(folder.glob("*.jar"))}


def _written_down(release: str) -> dict[str, str]:
    lines = (HERE / f"kafka-{release}" / "jars.sha256").read_text().splitlines()
    return {name: checksum for checksum, name in (line.split() for line in lines)}


def _compare(release: str, found: dict[str, str], wanted: dict[str, str]) -> None:
    odd = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
    if odd:
        raise Unexpected(f"jars of Kafka {release} that are not those of jars.sha256: {', '.join(odd)}")


if __name__ == "__main__":
    require_java()
    place = cache() / f"kafka-{sys.argv[1]}"
    fetch(sys.argv[1], place)
    for name, checksum in _sums(place).items():
        print(f"{checksum}  {name}")
