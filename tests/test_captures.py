"""Real captures of real clients, held against two witnesses: tshark, and what the clients said themselves.

tests/data/captures/NAME.tshark.jsonl.gz has one object per frame that tshark 4.0.17 calls Kafka,
NAME.truth.json what the client logged. tests/data/captures/README.md tells how both were made.
"""

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kwsniff
from kwsniff.model import Exchange, Fault, Frame, Session

CAPTURES = Path(__file__).parent.parent / "captures"
WITNESSES = Path(__file__).parent / "data" / "captures"
NAMES = sorted(path.name for path in CAPTURES.iterdir())

REORDERED = {"confluent-group-loss.pcap", "sarama-matrix-disorder.pcap"}
"""Overlapping and displaced segments: tshark loses frames here, and numbers others by another packet."""
MORE_THAN_TSHARK = {
    # tshark gives up a direction behind a segment that came out of order; we wait for it
    "confluent-group-loss.pcap": (10, 9),
    "sarama-matrix-disorder.pcap": (9, 11),
}
SEEN_TWICE = {
    # retransmissions that tshark decodes again, as answers whose "Request missing"
    "confluent-group-loss.pcap": (320, 464),
}
CLIENT_SAW_OTHERWISE = {
    # aborted records are in the capture, but not for the application
    "aiokafka-txn-kfake.pcapng",
    "java-txn-kfake.pcap",
    # a rebalance made members read records again, or left others unread
    "confluent-group-mock.pcap",
    "kafkajs-group-mock.pcapng",
    # a share group reads by ShareFetch, and what it released comes again
    "java-share-kafka4.pcapng",
}
UNREADABLE = {
    # encrypted; cut after 96 bytes of each packet; begins and ends in the middle; bytes lost
    "confluent-tls-kfake-tls.pcap",
    "aiokafka-idem-mock-snap96.pcap",
    "kafkapython-group-mid.pcap",
    "confluent-group-loss.pcap",
}


def stem(name: str) -> str:
    return name.split(".pcap")[0]


def truth(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((WITNESSES / f"{stem(name)}.truth.json").read_text())
    return found


def tshark(name: str) -> Counter[tuple[str, int, int]]:
    """(direction, packet, correlation id) of every message that tshark found."""
    found: Counter[tuple[str, int, int]] = Counter()
    with gzip.open(WITNESSES / f"{stem(name)}.tshark.jsonl.gz", "rt") as lines:
        for line in map(json.loads, lines):
            for correlation_id in line.get("kafka.correlation_id", ()):
                found[line["direction"], line["frame"], correlation_id] += 1
    return found


def frames(name: str, **options: Any) -> Iterator[Frame]:
    for event in kwsniff.read(str(CAPTURES / name), **options):
        if isinstance(event, Exchange):
            yield from (frame for frame in (event.request, event.response) if frame is not None)


@pytest.mark.parametrize("name", NAMES)
def test_every_message_that_tshark_finds_is_found_in_the_same_packet(name: str) -> None:
    ours = Counter((frame.side.value, frame.packet, frame.correlation_id) for frame in frames(name))
    theirs = tshark(name)
    if name in REORDERED:
        for packet in SEEN_TWICE.get(name, ()):
            theirs -= Counter(key for key in theirs if key[1] == packet)
        by_id = Counter((side, correlation_id) for side, _, correlation_id in theirs.elements())
        assert by_id <= Counter((side, correlation_id) for side, _, correlation_id in ours.elements())
        more = Counter(side for side, *_ in ours.elements()) - Counter(side for side, *_ in theirs.elements())
        assert (more["request"], more["response"]) == MORE_THAN_TSHARK[name]
    else:
        assert ours == theirs


@pytest.mark.parametrize("name", sorted(set(NAMES) - UNREADABLE))
def test_no_byte_is_lost_or_left_over_but_of_bodies_that_say_so(name: str) -> None:
    told = Counter[str]()
    for event in kwsniff.read(str(CAPTURES / name)):
        assert not isinstance(event, Fault)
        if isinstance(event, Session):
            for ledger in (event.requests, event.responses):
                assert ledger.lost == 0
                assert ledger.seen == ledger.decoded + ledger.undecoded
                told["undecoded"] += ledger.undecoded
        else:
            frames = [frame for frame in (event.request, event.response) if frame and frame.body is None]
            assert all(frame.faults for frame in frames)
            told["faulty"] += sum(frame.size for frame in frames)
    assert told["undecoded"] == told["faulty"]


def test_lost_bytes_are_counted_exactly() -> None:
    sessions = [
        event
        for event in kwsniff.read(str(CAPTURES / "confluent-group-loss.pcap"))
        if isinstance(event, Session)
    ]
    lost = sum(session.requests.lost + session.responses.lost for session in sessions)
    assert lost == truth("confluent-group-loss.pcap")["derived"]["lost_bytes"] == 348


def produced(name: str) -> Counter[str]:
    """Records per topic in Produce requests, each batch once though it may be sent again."""
    counts: Counter[str] = Counter()
    names: dict[str, str] = {}
    for event in kwsniff.read(str(CAPTURES / name), records=True):
        if not isinstance(event, Exchange) or event.request is None or event.request.api != 0:
            continue
        names.update({topic_id: told for topic_id, (_, told) in event.topic_names.items()})
        answer = event.response.body if event.response else None
        refused = {
            (topic.get("name") or names.get(topic.get("topicId", "")), partition["index"])
            for topic in (answer or {}).get("responses", ())
            for partition in topic["partitionResponses"]
            if partition["errorCode"] != 0
        }
        for topic in (event.request.body or {})["topicData"]:
            topic_name = topic.get("name") or names.get(topic.get("topicId", ""))
            assert topic_name is not None
            for partition in topic["partitionData"]:
                if (topic_name, partition["index"]) not in refused:
                    counts[topic_name] += sum(len(batch["records"]) for batch in partition["records"])
    return counts


@pytest.mark.parametrize(
    "name", [n for n in NAMES if n not in UNREADABLE and (truth(n).get("produced") or {}).get("per_topic")]
)
def test_every_record_that_the_client_produced_is_in_the_capture(name: str) -> None:
    told = truth(name)
    times = 2 if told.get("derived", {}).get("kind") == "reuse" else 1
    assert produced(name) == {topic: count * times for topic, count in told["produced"]["per_topic"].items()}


def consumed(name: str) -> dict[tuple[str, int, int], tuple[str, int, str]]:
    """(topic, partition, offset) -> (key, value length, value hash) of every data record fetched."""
    found: dict[tuple[str, int, int], tuple[str, int, str]] = {}
    for event in kwsniff.read(str(CAPTURES / name), records=True):
        if not isinstance(event, Exchange) or event.request is None or event.request.api != 1:
            continue
        wanted = wanted_offsets(event)
        for topic in (event.response.body or {} if event.response else {}).get("responses", ()):
            topic_name = topic.get("topic") or event.topic_names[topic["topicId"]][1]
            for partition in topic["partitions"]:
                index = partition["partitionIndex"]
                for batch in partition["records"] or ():
                    if batch.get("isControl"):
                        continue
                    assert batch["crcValid"]
                    for record in batch["records"]:
                        if record["offset"] >= wanted[topic_name, index]:
                            found[topic_name, index, record["offset"]] = fingerprint(record)
    return found


def wanted_offsets(event: Exchange) -> dict[tuple[str, int], int]:
    """Where the Fetch asked to begin: a batch may bring earlier records along."""
    assert event.request is not None
    named = [
        (topic.get("topic"), topic.get("topicId"), partition["partition"], partition["fetchOffset"])
        for topic in (event.request.body or {})["topics"]
        for partition in topic["partitions"]
    ]
    return {
        (topic or event.topic_names[topic_id or ""][1], partition): offset
        for topic, topic_id, partition, offset in [*named, *(event.fetched or ())]
    }


def fingerprint(record: dict[str, Any]) -> tuple[str, int, str]:
    key, value = record["key"], record["value"]
    return (
        "-" if key is None else key.hex(),
        -1 if value is None else len(value),
        "-" if value is None else hashlib.sha256(value).hexdigest(),
    )


def digest(found: dict[tuple[str, int, int], tuple[str, int, str]]) -> str:
    rows = sorted((*place, *print_) for place, print_ in found.items())
    return hashlib.sha256("".join("\t".join(map(str, row)) + "\n" for row in rows).encode()).hexdigest()


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in sorted(set(NAMES) - UNREADABLE - CLIENT_SAW_OTHERWISE)
        if (truth(name).get("consumed") or {}).get("messages")
    ],
)
def test_every_record_that_the_client_consumed_is_in_the_capture_byte_for_byte(name: str) -> None:
    assert digest(consumed(name)) == truth(name)["consumed"]["sha256"]
