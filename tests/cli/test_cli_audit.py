"""`kwsniff audit`: who breaks on a release, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_builders import Capture, Conversation, metadata, negotiate
from click.testing import CliRunner, Result

from kwsniff.cli import main

PRODUCE, FETCH, METADATA = 0, 1, 3
MODERN = {PRODUCE: (0, 9), FETCH: (0, 12), METADATA: (0, 12)}


def run(tmp_path: Path, capture: Capture, *args: str) -> Result:
    path = tmp_path / "a.pcap"
    path.write_bytes(capture.bytes())
    result = CliRunner().invoke(main, ["audit", str(path), *args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def report(tmp_path: Path, capture: Capture, target: str = "4.0") -> dict[str, Any]:
    return json.loads(run(tmp_path, capture, "--target", target, "--format", "json").stdout)  # type: ignore[no-any-return]


def produce(conversation: Conversation, version: int) -> None:
    conversation.exchange(PRODUCE, version, {"acks": 1}, {"responses": []})


def verdict(tmp_path: Path, capture: Capture, target: str = "4.0") -> tuple[str, str | None]:
    """Of Produce, of the only client."""
    (client,) = report(tmp_path, capture, target)["clients"]
    (api,) = (api for api in client["apis"] if api["api"] == "PRODUCE")
    return api["verdict"], api["reason"]


def test_breaks_when_the_broker_offered_a_version_that_the_target_takes(tmp_path: Path) -> None:
    capture = Capture()
    conversation = capture.client()
    negotiate(conversation, MODERN)
    produce(conversation, 2)
    assert verdict(tmp_path, capture) == (
        "breaks", "the broker offered v3-9, which 4.0 takes, and it was not used",
    )  # fmt: skip
    assert run(tmp_path, capture, "--target", "4.0").exit_code == 1


def test_breaks_when_the_client_never_asked(tmp_path: Path) -> None:
    capture = Capture()
    produce(capture.client(), 2)
    assert verdict(tmp_path, capture) == ("breaks", "the client never asked for ApiVersions")


def test_unknown_when_it_was_the_most_that_the_broker_offered(tmp_path: Path) -> None:
    capture = Capture()
    conversation = capture.client()
    negotiate(conversation, {**MODERN, PRODUCE: (0, 2)})
    produce(conversation, 2)
    assert verdict(tmp_path, capture) == ("unknown", "v2 was the most that the broker offered")
    assert run(tmp_path, capture, "--target", "4.0").exit_code == 0


def test_unknown_when_the_target_takes_nothing_that_was_offered(tmp_path: Path) -> None:
    capture = Capture()
    conversation = capture.client()
    negotiate(conversation, {**MODERN, PRODUCE: (0, 2)})
    produce(conversation, 1)
    assert verdict(tmp_path, capture)[0] == "unknown"


def test_unknown_when_the_answer_was_not_seen(tmp_path: Path) -> None:
    capture = Capture()
    conversation = capture.client()
    conversation.ask(18, 3, {"clientSoftwareName": "x", "clientSoftwareVersion": "1"})
    produce(conversation, 2)
    assert verdict(tmp_path, capture) == ("unknown", "the broker's ApiVersions answer was not seen")


def test_unknown_when_the_connection_began_before_the_capture(tmp_path: Path) -> None:
    capture = Capture()
    conversation = capture.client(handshake=False)
    for _ in range(3):
        metadata(conversation)
    produce(conversation, 2)
    found, why = verdict(tmp_path, capture)
    assert found == "unknown"
    assert "began before the capture" in str(why)


def test_what_one_connection_asked_counts_for_the_others_of_the_client(tmp_path: Path) -> None:
    capture = Capture()
    first = capture.client(40001)
    negotiate(first, MODERN)
    metadata(first)
    produce(capture.client(40002), 2)
    (client,) = report(tmp_path, capture)["clients"]
    assert client["connections"] == 2
    assert (client["softwareName"], client["softwareVersion"]) == ("rdkafka", "2.5.0")
    assert verdict(tmp_path, capture)[1] == "the broker offered v3-9, which 4.0 takes, and it was not used"


def test_ok_and_the_evidence(tmp_path: Path) -> None:
    capture = Capture()
    conversation = capture.client()
    negotiate(conversation, MODERN)
    produce(conversation, 2)
    produce(conversation, 9)
    produce(conversation, 2)
    found = report(tmp_path, capture)
    assert (found["target"], found["verdict"]) == ("4.0", "breaks")
    (client,) = found["clients"]
    assert (client["address"], client["clientId"], client["verdict"]) == ("10.0.0.1", "app", "breaks")
    apis = {api["api"]: api for api in client["apis"]}
    assert apis["API_VERSIONS"]["verdict"] == "ok"
    path = str(tmp_path / "a.pcap")
    assert apis["PRODUCE"]["served"] == [3, 12]
    assert apis["PRODUCE"]["offered"] == [0, 9]
    assert apis["PRODUCE"]["versions"] == [
        {
            "version": 2,
            "refused": True,
            "requests": 2,
            "packets": [{"file": path, "packet": 5}, {"file": path, "packet": 9}],
        },
        {"version": 9, "refused": False, "requests": 1, "packets": [{"file": path, "packet": 7}]},
    ]


def test_the_newest_patch_of_a_release_is_meant(tmp_path: Path) -> None:
    """JoinGroup v0 and v1 were missing in 4.0.0 and are back in 4.0.1."""
    capture = Capture()
    conversation = capture.client()
    conversation.exchange(11, 1, {"groupId": "g"}, {})
    statuses = {
        target: run(tmp_path, capture, "--target", target).exit_code for target in ("4.0.0", "4.0.1", "4.0")
    }
    assert statuses == {"4.0.0": 1, "4.0.1": 0, "4.0": 0}


def test_a_client_that_asks_too_high_is_answered_all_the_same(tmp_path: Path) -> None:
    """ApiVersions v3 is unknown to 2.0, which answers it with error 35 in v0 (KIP-511)."""
    capture = Capture()
    negotiate(capture.client(), MODERN)
    assert run(tmp_path, capture, "--target", "2.0").exit_code == 0
    assert report(tmp_path, capture, "2.0")["verdict"] == "ok"


def test_the_table(tmp_path: Path) -> None:
    capture = Capture()
    produce(capture.client(), 2)
    path = tmp_path / "a.pcap"
    assert run(tmp_path, capture, "--target", "4.0").stdout.splitlines() == [
        "breaks   10.0.0.1 app (software unknown), 1 connection",
        "  breaks   PRODUCE v2: 1 request; 4.0 serves v3-12",
        "           the client never asked for ApiVersions",
        f"           seen in packet 3 of {path}",
        "4.0: breaks",
    ]


def test_markdown(tmp_path: Path) -> None:
    capture = Capture()
    conversation = capture.client()
    conversation.client_id = "a|b\x1b"
    produce(conversation, 2)
    rows = run(tmp_path, capture, "--target", "4.0", "--format", "markdown").stdout.splitlines()
    assert rows[0] == "# Clients on Kafka 4.0: breaks"
    assert rows[4].startswith(
        "| 10.0.0.1 a\\|b\\x1b (software unknown) | breaks | PRODUCE | v2 | v3-12 | none |"
    )


@pytest.mark.parametrize("form", ["table", "json", "markdown"])
def test_a_client_id_that_is_not_utf8(tmp_path: Path, form: str) -> None:
    capture = Capture()
    conversation = capture.client()
    conversation.raw_client_id = b"caf\xe9"
    produce(conversation, 2)
    shown = run(tmp_path, capture, "--target", "4.0", "--format", form).stdout
    assert ("caf\ufffd" if form == "json" else "caf\\xe9") in shown


@pytest.mark.parametrize("form", ["table", "json", "markdown"])
def test_nothing_to_audit(tmp_path: Path, form: str) -> None:
    result = run(tmp_path, Capture(), "--target", "4.0", "--format", form)
    assert result.exit_code == 0
    assert "4.0" in result.stdout


def test_an_unreadable_file_is_exit_2_behind_the_report(tmp_path: Path) -> None:
    capture = Capture()
    produce(capture.client(), 2)
    result = run(tmp_path, capture, str(tmp_path / "missing.pcap"), "--target", "4.0")
    assert result.exit_code == 2
    assert "4.0: breaks" in result.stdout
    assert len(result.stderr.splitlines()) == 1
