"""`kwsniff apis`: the protocol as a reference."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from kwsniff.cli import main


def shown(*args: str) -> list[str]:
    result = CliRunner().invoke(main, ["apis", *args])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_the_list() -> None:
    rows = [row.split() for row in shown()]
    assert rows[0][:3] == ["key", "API", "versions"]
    assert [int(row[0]) for row in rows[1:]] == list(range(93))
    assert rows[2] == ["1", "FETCH", "v0-18", "v12+", "v0-3", "0.8.0", "and", "later"]
    assert rows[5][:2] + rows[5][-3:] == ["4", "LEADER_AND_ISR", "0.8.0", "to", "3.9"]


@pytest.mark.parametrize("name", ["ListOffsets", "LIST_OFFSETS", "listoffsets", "2", "ListOffset"])
def test_an_api_by_any_of_its_names(name: str) -> None:
    assert shown(name)[0].startswith("LIST_OFFSETS, key 2, v0-11, flexible from v6, deprecated v0")


def test_the_fields_of_a_version() -> None:
    rows = shown("ListOffsets", "--version", "1")
    start = rows.index("ListOffsetsRequest v1")
    assert rows[start:] == [
        "ListOffsetsRequest v1",
        "  replicaId: int32 (brokerId)",
        "  topics: array of ListOffsetsTopic",
        "    name: string (topicName)",
        "    partitions: array of ListOffsetsPartition",
        "      partitionIndex: int32 (partitionIndex)",
        "      timestamp: int64",
        "",
        "ListOffsetsResponse v1",
        "  topics: array of ListOffsetsTopicResponse",
        "    name: string (topicName)",
        "    partitions: array of ListOffsetsPartitionResponse",
        "      partitionIndex: int32 (partitionIndex)",
        "      errorCode: int16 (errorCode)",
        "      timestamp: int64, default -1",
        "      offset: int64, default -1",
    ]


def test_what_is_tagged_null_or_secret() -> None:
    rows = shown("FetchRequest", "--version", "15")
    assert rows[-1].strip() == "replicaEpoch: int64, default -1"
    assert "  clusterId: string or null, default null, tagged 0" in rows
    assert "  hmac: bytes, secret" in shown("RenewDelegationToken")


def test_which_releases_serve_what() -> None:
    rows = shown("Produce")
    assert any(row.split() == ["Kafka", "4.0", "v3-12"] for row in rows)


def test_an_embedded_message() -> None:
    rows = shown("ConsumerProtocolSubscription", "--version", "0")
    assert rows[0] == "ConsumerProtocolSubscription, data, v0-3"
    assert rows[2:] == [
        "ConsumerProtocolSubscription v0",
        "  topics: array of string (topicName)",
        "  userData: bytes or null, default null",
    ]
