"""What one exchange teaches the next: topic ids and incremental fetch sessions, over connections and time."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from acceptance_builders import Link, Tape, pcap, shown

ID = base64.urlsafe_b64encode(bytes(range(16))).rstrip(b"=").decode()
OTHER = base64.urlsafe_b64encode(bytes(range(16, 32))).rstrip(b"=").decode()


def teach(link: Link, number: int, name: str = "orders", topic_id: str = ID) -> Link:
    return link.exchange(3, 12, number, {"topics": None}, {"topics": [{"name": name, "topicId": topic_id}]})


def fetch_by_id(link: Link, number: int, topic_id: str = ID, **more: Any) -> Link:
    body = {"topics": [{"topicId": topic_id, "partitions": [{"partition": 0, "fetchOffset": 5}]}], **more}
    answer = {"responses": [{"topicId": topic_id, "partitions": [{"partitionIndex": 0, "errorCode": 6}]}]}
    return link.exchange(1, 13, number, body, answer)


def fetches(result: Any) -> list[dict[str, Any]]:
    return [x for x in result.exchanges if x["requestHeader"]["requestApiKeyName"] == "FETCH"]


def test_a_name_from_another_connection(tmp_path: Path) -> None:
    tape = Tape()
    teach(tape.link().open(), 1)
    fetch_by_id(tape.link(("10.0.0.7", 5), ("10.0.0.3", 9093)).open(), 1)
    (line,) = fetches(shown(tape.pcap(), tmp_path))
    assert line["kwsniff"]["topics"] == ["orders"]
    assert line["kwsniff"]["errors"][0]["topic"] == "orders"
    assert line["request"]["topics"][0]["topicId"] == ID


def test_never_from_the_future(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open()
    fetch_by_id(link, 1)
    teach(link, 2)
    fetch_by_id(link, 3)
    before, after = fetches(shown(tape.pcap(), tmp_path))
    assert (before["kwsniff"]["topics"], after["kwsniff"]["topics"]) == ([ID], ["orders"])
    assert before["kwsniff"]["errors"][0]["topic"] == ID


def test_from_another_file_with_an_earlier_time_only(tmp_path: Path) -> None:
    taught, asked = Tape(), Tape()
    teach(taught.link().open(), 1)
    asked.now += 3600 * 10**9
    fetch_by_id(asked.link(("10.0.0.8", 7)).open(), 1)
    later = [(ts + 7200 * 10**9, ip) for ts, ip in taught.packets]
    from acceptance_builders import run

    a, b, c = (tmp_path / name for name in "abc")
    a.write_bytes(taught.pcap())
    b.write_bytes(asked.pcap())
    c.write_bytes(pcap(later))
    assert fetches(run("decode", a, b))[0]["kwsniff"]["topics"] == ["orders"]
    assert fetches(run("decode", b, c))[0]["kwsniff"]["topics"] == [ID]
    assert fetches(run("decode", c, b))[0]["kwsniff"]["topics"] == [ID]


def test_create_topics_teaches_too(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open()
    link.exchange(19, 7, 1, {}, {"topics": [{"name": "made", "topicId": ID}]})
    fetch_by_id(link, 2)
    assert fetches(shown(tape.pcap(), tmp_path))[0]["kwsniff"]["topics"] == ["made"]


def test_the_zero_id_is_no_topic(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open()
    teach(link, 1, "", "A" * 22)
    link.exchange(1, 13, 2, {"topics": []}, {})
    assert fetches(shown(tape.pcap(), tmp_path))[0]["kwsniff"]["topics"] == []


def session_fetch(
    link: Link, number: int, session: int, epoch: int, topics: Any = (), forgotten: Any = (), **more: Any
) -> Link:
    body = {
        "sessionId": session,
        "sessionEpoch": epoch,
        "topics": [{"topic": t, "partitions": [{"partition": p, "fetchOffset": o}]} for t, p, o in topics],
        "forgottenTopicsData": [{"topic": t, "partitions": [p]} for t, p in forgotten],
    }
    return link.exchange(1, 7, number, body, {"sessionId": more.pop("granted", session), **more})


def really(line: dict[str, Any]) -> list[tuple[str, int, int]]:
    return [(f["topic"], f["partition"], f["fetchOffset"]) for f in line["kwsniff"].get("fetched", [])]


def test_an_incremental_session_over_a_reconnect(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open()
    session_fetch(link, 1, 0, 0, [("a", 0, 1), ("b", 1, 2)], granted=77)
    session_fetch(link, 2, 77, 1)
    session_fetch(link, 3, 77, 2, [("a", 0, 9), ("c", 0, 0)])
    link.close()
    again = tape.link(("10.0.0.1", 40002)).open()
    session_fetch(again, 1, 77, 3, forgotten=[("b", 1)])
    session_fetch(again, 2, 77, 4)
    session_fetch(again, 3, 77, -1)
    told = [(really(line), line["kwsniff"]["topics"]) for line in fetches(shown(tape.pcap(), tmp_path))]
    assert told[1] == ([("a", 0, 1), ("b", 1, 2)], ["a", "b"])
    assert sorted(told[2][0]) == [("a", 0, 9), ("b", 1, 2), ("c", 0, 0)]
    assert sorted(told[3][0]) == [("a", 0, 9), ("c", 0, 0)]
    assert sorted(told[4][0]) == [("a", 0, 9), ("c", 0, 0)]
    assert told[5][0] == []


def test_a_session_of_another_broker_is_another(tmp_path: Path) -> None:
    tape = Tape()
    one = tape.link().open()
    two = tape.link(broker=("10.0.0.3", 9092)).open()
    session_fetch(one, 1, 0, 0, [("a", 0, 1)], granted=5)
    session_fetch(two, 1, 0, 0, [("b", 0, 1)], granted=5)
    session_fetch(one, 2, 5, 1)
    session_fetch(two, 2, 5, 1)
    lines = fetches(shown(tape.pcap(), tmp_path))
    assert [line["kwsniff"]["topics"] for line in lines] == [["a"], ["b"], ["a"], ["b"]]


def test_a_session_that_the_broker_forgot(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open()
    session_fetch(link, 1, 0, 0, [("a", 0, 1)], granted=5)
    session_fetch(link, 2, 5, 1, granted=0, errorCode=70)
    session_fetch(link, 3, 0, 0, [("z", 0, 1)], granted=6)
    session_fetch(link, 4, 6, 1)
    lines = fetches(shown(tape.pcap(), tmp_path))
    assert lines[1]["kwsniff"]["errors"][0]["name"] == "FETCH_SESSION_ID_NOT_FOUND"
    assert lines[3]["kwsniff"]["topics"] == ["z"]
    assert [really(line) for line in lines] == [[], [], [], [("z", 0, 1)]]


def test_incremental_by_topic_id(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open()
    teach(link, 1)
    body = {"sessionId": 0, "sessionEpoch": 0, "topics": [{"topicId": ID, "partitions": [{"partition": 3}]}]}
    link.exchange(1, 13, 2, body, {"sessionId": 9})
    link.exchange(1, 13, 3, {"sessionId": 9, "sessionEpoch": 1}, {"sessionId": 9})
    last = fetches(shown(tape.pcap(), tmp_path))[-1]
    assert really(last) == [("orders", 3, 0)]
    assert last["kwsniff"]["topics"] == ["orders"]
