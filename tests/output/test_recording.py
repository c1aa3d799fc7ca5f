"""What was said, recorded: files as our decoder, scapy and tshark read them, and what a fall leaves."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as changed
from passing_builders import CONN, MS, NOW, answered, asked, passed, passing
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6

import kwsniff
from kwsniff.capture.files import open_capture
from kwsniff.errors import ConfigError, PluginFailed, Reason
from kwsniff.model import (
    ConnectionId,
    Endpoint,
    Exchange,
    Fault,
    Frame,
    Ledger,
    Outcome,
    Packet,
    Peer,
    Session,
    Side,
)
from kwsniff.output.recording import Recorder, RecordingFailed
from kwsniff.output.rotation import Rotation
from kwsniff.output.synthetic import SEGMENT, Addresses, Conversation
from kwsniff.passing import Close, Delay, Drop, Passed, Replace, Reset, Respond, Throttle
from kwsniff.policy.chain import Chain

CAPTURES = Path(__file__).parents[2] / "captures"
SECOND = 1_000_000_000
METADATA = asked(3, 4, {"topics": [{"name": "a"}]})
ANSWER = answered(3, 4, {"controllerId": 1})


def session(conn: ConnectionId = CONN, opened: int = NOW, closed: int = NOW + SECOND) -> Session:
    return Session(conn, opened, closed, opened, closed, "kafka", Peer(), Ledger(), Ledger())


def recorder(path: Path, **options: Any) -> Recorder:
    return Recorder(str(path), **{"now": NOW, **options})


def packets_of(path: str) -> list[Packet]:
    with open_capture(path) as capture:
        return list(capture)


def recorded(path: Path, *exchanges: Passed, **options: Any) -> list[Packet]:
    """The packets of one connection with these exchanges."""
    keeps = recorder(path, **options)
    keeps.opened(session())
    for one in exchanges:
        keeps.exchanged(one)
    keeps.closed(session())
    keeps.stopped()
    found = packets_of(keeps.path)
    assert keeps.packets == len(found)
    return found


def read(*paths: Path | str) -> list[Exchange | Fault | Session]:
    return list(kwsniff.read(*map(str, paths)))


def told(exchange: Exchange) -> tuple[Any, ...]:
    """What a recording has to keep of an exchange."""
    return (
        exchange.outcome, exchange.peer, exchange.latency, exchange.ts, exchange.conn,
        *((f.raw, f.api, f.version, f.correlation_id, f.client_id, f.ts, f.end, f.protocol, f.size)
          for f in (exchange.request, exchange.response) if f),
    )  # fmt: skip


# ---- real conversations, recorded and read again

REAL = [
    "confluent-txn-mock.pcap",
    "confluent-ipv6-kfake6.pcap",
    "confluent-sasl-kfake-sasl.pcap",
    "franz-admin-kfake.pcapng",
    "java-txn-kfake.pcap",
    "kafkapython-old-0.10-old10.pcap",
    "sarama-old-0.9.0.0-old.pcapng",
    "confluent-big-mock.pcap.gz",
]


def conversation(name: str) -> list[tuple[int, int, str, Any]]:
    """(time, tie, hook, what) of every whole connection of a capture, as a proxy in its place would tell."""
    found = read(CAPTURES / name)
    whole = {s.conn: s for s in found if isinstance(s, Session) and s.opened is not None and not s.faults}
    steps: list[tuple[int, int, str, Any]] = []
    for event in found:
        if not isinstance(event, Exchange) or event.conn not in whole or event.outcome is Outcome.LOST:
            continue
        request, response = event.request, event.response
        assert request is not None
        over = Passed(exchange=event, sent=request, received=response)
        until = response.end if response else max(request.end, whole[event.conn].last)
        if event.outcome is Outcome.NO_ACK:
            until = request.end
        if request.protocol == "kafka":
            steps.append((request.end, len(steps), "request", passing(request)))
        steps.append((until, len(steps) + 1, "exchanged", over))
    for one in whole.values():
        assert one.opened is not None
        steps += [(one.opened, -1, "opened", one), (one.closed or one.last, 1 << 40, "closed", one)]
    assert any(hook == "exchanged" for _, _, hook, _ in steps)
    return sorted(steps, key=lambda step: step[:2])


def play(keeps: Recorder, steps: list[tuple[int, int, str, Any]]) -> list[Exchange]:
    chain = Chain([("recorder", keeps)])
    for _, _, hook, what in steps:
        getattr(chain, hook)(what)
    chain.stopped(steps[-1][0])
    return [what.exchange for _, _, hook, what in steps if hook == "exchanged"]


@pytest.mark.parametrize("name", REAL)
def test_what_is_recorded_decodes_to_what_was_told(tmp_path: Path, name: str) -> None:
    steps = conversation(name)
    exchanges = play(recorder(tmp_path / "a.pcapng", keep_secrets=True), steps)
    again = [event for event in read(tmp_path / "a.pcapng") if isinstance(event, Exchange)]
    assert Counter(map(repr, map(told, again))) == Counter(map(repr, map(told, exchanges)))


def test_without_its_secrets_it_is_the_same_but_for_them(tmp_path: Path) -> None:
    steps = conversation("confluent-sasl-kfake-sasl.pcap")
    exchanges = play(recorder(tmp_path / "a.pcapng"), steps)
    found = read(tmp_path / "a.pcapng")
    assert not [event for event in found if isinstance(event, Fault)]
    again = [event for event in found if isinstance(event, Exchange)]
    secret = [e for e in exchanges if e.request and e.request.api == 36]
    assert secret
    assert {e.peer.principal for e in again} == {e.peer.principal for e in exchanges}
    assert [e.peer for e in again if e.request and e.request.api == 3] == [
        e.peer for e in exchanges if e.request and e.request.api == 3
    ]
    data = (tmp_path / "a.pcapng").read_bytes()
    for exchange in secret:
        assert exchange.request is not None
        assert exchange.request.body is not None
        token = exchange.request.body["authBytes"]
        assert token not in data
    assert Counter(e.request.size for e in again if e.request) == Counter(
        e.request.size for e in exchanges if e.request
    )


def test_a_rotated_recording_reads_as_one(tmp_path: Path) -> None:
    steps = conversation("confluent-txn-mock.pcap")
    keeps = recorder(tmp_path / "a.pcapng", keep_secrets=True, rotation=Rotation(max_bytes=8_000))
    exchanges = play(keeps, steps)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files[:2]] == ["a-00001.pcapng", "a-00002.pcapng"]
    assert len(files) > 3
    again = [event for event in read(*files) if isinstance(event, Exchange)]
    assert Counter(repr(told(e)) for e in again) == Counter(repr(told(e)) for e in exchanges)


@pytest.mark.tshark
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize(
    "name", ["confluent-ipv6-kfake6.pcap", "confluent-txn-mock.pcap", "confluent-big-mock.pcap.gz"]
)
def test_tshark_finds_whole_sessions_and_nothing_to_complain_of(tmp_path: Path, name: str) -> None:
    steps = conversation(name)
    exchanges = play(recorder(tmp_path / "a.pcapng", keep_secrets=True), steps)
    ports = {e.conn.broker.port for e in exchanges}
    command = ["tshark", "-r", str(tmp_path / "a.pcapng"), "-o", "tcp.check_checksum:TRUE"]
    command += ["-o", "ip.check_checksum:TRUE"]
    command += [part for port in ports for part in ("-d", f"tcp.port=={port},kafka")]
    fields = [
        "kafka.correlation_id",
        "tcp.analysis.flags",
        "tcp.checksum.status",
        "ip.checksum.status",
        "tcp.flags",
    ]
    command += ["-T", "fields", *(part for field in fields for part in ("-e", field))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert {row[1] for row in rows} == {""}
    assert {row[2] for row in rows} == {"1"}  # good
    assert {row[3] for row in rows} <= {"1", ""}  # IPv6 has none
    # tshark names a request's id with the response again, where it dissects that.
    theirs = {int(number) for row in rows for number in row[0].split(",") if number}
    assert theirs == {e.request.correlation_id for e in exchanges if e.request}


# ---- packets


def test_a_session_as_scapy_reads_it(tmp_path: Path) -> None:
    exchange = passed(changed(METADATA, end=NOW + 5), changed(ANSWER, ts=NOW + MS, end=NOW + MS))
    found = recorded(tmp_path / "a.pcapng", exchange)
    assert {packet.linktype for packet in found} == {101}
    parsed = [IP(packet.data) for packet in found]
    for packet, ip in zip(found, parsed, strict=True):
        again = ip.copy()
        del again.chksum, again[TCP].chksum
        assert bytes(again) == packet.data  # scapy computes the same checksums and lengths
    client, broker = ("10.0.0.1", 50001), ("10.0.0.9", 9092)
    lengths = METADATA.size - 4, ANSWER.size
    assert [((ip.src, ip[TCP].sport), str(ip[TCP].flags), len(ip[TCP].payload)) for ip in parsed] == [
        (client, "S", 0), (broker, "SA", 0), (client, "A", 0),
        (client, "PA", 4), (client, "PA", lengths[0]),  # two, since its first byte came before its last
        (broker, "PA", lengths[1]),
        (client, "FA", 0), (broker, "FA", 0), (client, "A", 0),
    ]  # fmt: skip
    assert [packet.ts - NOW for packet in found] == [0, 0, 0, 0, 5, MS, SECOND, SECOND, SECOND]
    start = {client: parsed[0][TCP].seq, broker: parsed[1][TCP].seq}
    following = {end: (first + 1) % 2**32 for end, first in start.items()}
    for ip in parsed[3:]:
        src, dst = (ip.src, ip[TCP].sport), (ip.dst, ip[TCP].dport)
        assert (ip[TCP].seq, ip[TCP].ack) == (following[src], following[dst])
        following[src] = (ip[TCP].seq + len(ip[TCP].payload) + ("F" in str(ip[TCP].flags))) % 2**32


@settings(deadline=None, max_examples=40)
@given(
    first=st.sampled_from([0, 2**32 - 1, 2**32 - 3, 2**32 - 70_000]) | st.integers(0, 2**32 - 1),
    lengths=st.lists(
        st.tuples(st.sampled_from(Side), st.sampled_from([1, 4, 5, 59_996, 60_001, 150_000])), max_size=5
    ),
    v6=st.booleans(),
    apart=st.booleans(),
)
def test_sequence_numbers_wrap_and_segments_are_short(
    first: int, lengths: Any, v6: bool, apart: bool
) -> None:
    hosts = ("2001:db8::1", "10.0.0.9") if v6 else ("10.0.0.1", "10.0.0.9")
    conn = ConnectionId(Endpoint(hosts[0], 5), Endpoint(hosts[1], 6))
    made = Conversation(conn, Addresses(), NOW, first)
    packets = list(made.open(NOW))
    sent = {Side.REQUEST: b"", Side.RESPONSE: b""}
    for number, (side, length) in enumerate(lengths):
        data = bytes([number + 1]) * length
        sent[side] += data
        packets += made.send(side, (data,), NOW, NOW + apart)
    packets += made.close(NOW)
    heard: dict[Side, dict[int, bytes]] = {Side.REQUEST: {}, Side.RESPONSE: {}}
    starts = [(IPv6 if v6 else IP)(p.data)[TCP].seq for p in packets[:2]]
    assert starts[0] == first
    for packet in packets:
        tcp = (IPv6 if v6 else IP)(packet.data)[TCP]
        payload = bytes(tcp.payload)
        assert len(payload) <= SEGMENT
        assert len(packet.data) <= 65_535
        again = (IPv6 if v6 else IP)(packet.data)
        del again[TCP].chksum
        assert bytes(again) == packet.data
        side = Side.REQUEST if tcp.sport == 5 else Side.RESPONSE
        if payload:
            heard[side][(tcp.seq - starts[side is Side.RESPONSE] - 1) % 2**32] = payload
    for side in Side:
        assert b"".join(part for _, part in sorted(heard[side].items())) == sent[side]
        ends = [at + len(part) for at, part in sorted(heard[side].items())]
        assert sorted(heard[side]) == [0, *ends][: len(ends)]


def test_both_ends_have_addresses_of_one_family() -> None:
    addresses = Addresses()

    def pair(client: str, broker: str) -> list[str]:
        conn = ConnectionId(Endpoint(client, 1), Endpoint(broker, 2))
        (packet, *_) = Conversation(conn, addresses, NOW).open(NOW)
        ip = (IPv6 if packet.data[0] >> 4 == 6 else IP)(packet.data)
        return [ip.src, ip.dst]

    assert pair("10.0.0.1", "10.0.0.2") == ["10.0.0.1", "10.0.0.2"]
    assert pair("::1", "fe80::2%eth0") == ["::1", "fe80::2"]
    assert pair("10.0.0.1", "2001:db8::2") == ["::ffff:10.0.0.1", "2001:db8::2"]
    assert pair("10.0.0.1", "broker-b.example") == ["10.0.0.1", "198.18.0.1"]
    assert pair("10.0.0.1", "broker-a.example") == ["10.0.0.1", "198.18.0.2"]
    assert pair("10.0.0.1", "broker-b.example") == ["10.0.0.1", "198.18.0.1"]


def test_a_port_that_is_used_again_is_another_session(tmp_path: Path) -> None:
    keeps = recorder(tmp_path / "a.pcapng")
    for number in range(2):
        conn = CONN._replace(session=number)
        keeps.opened(session(conn, NOW + number, NOW + number))
        exchange = passed(METADATA, ANSWER)
        exchange.exchange.conn = conn
        keeps.exchanged(exchange)
        keeps.closed(session(conn, NOW + number, NOW + number))
    keeps.stopped()
    found = read(keeps.path)
    assert [e.conn.session for e in found if isinstance(e, Exchange)] == [0, 1]
    assert not [event for event in found if isinstance(event, Fault)]


# ---- what was decided


def comments(packets: list[Packet]) -> list[tuple[int, str, Any]]:
    """(number, text, JSON) of every packet with a comment."""
    found = []
    for packet in packets:
        if packet.comment is not None:
            text, data = packet.comment.split("\n")
            found.append((packet.number, text, json.loads(data)["kwsniff"]))
    return found


def test_untouched_frames_have_no_comment(tmp_path: Path) -> None:
    assert comments(recorded(tmp_path / "a.pcapng", passed(METADATA, ANSWER))) == []


def test_each_frame_says_what_was_decided_of_it(tmp_path: Path) -> None:
    keeps = recorder(tmp_path / "a.pcapng")
    asks = passing(METADATA)
    asks.verdicts.append(("rules:slow", Delay(200 * MS)))
    keeps.request(asks)
    over = passed(METADATA, ANSWER)
    over.verdicts = [*asks.verdicts, ("shop", Replace(b"12345678")), ("rules:drip", Throttle(1000))]
    over.exchange.tags = ["slowed"]
    keeps.exchanged(over)
    keeps.stopped()
    found = packets_of(keeps.path)
    assert comments(found) == [
        (4, "kwsniff: rules:slow: delay 200000000",
         {"verdicts": [{"by": "rules:slow", "verdict": "delay", "ns": 200_000_000}],
          "tags": [], "blanked": None}),
        (5, "kwsniff: shop: replace 12; rules:drip: throttle 1000; tags slowed",
         {"verdicts": [{"by": "shop", "verdict": "replace", "bytes": 12},
                       {"by": "rules:drip", "verdict": "throttle", "bytesPerSecond": 1000}],
          "tags": ["slowed"], "blanked": None}),
    ]  # fmt: skip


def test_an_answer_that_was_dropped_leaves_an_empty_packet_that_says_so(tmp_path: Path) -> None:
    keeps = recorder(tmp_path / "a.pcapng")
    keeps.request(passing(METADATA))
    over = passed(METADATA, None)
    over.verdicts = [("rules:gone", Drop())]
    keeps.exchanged(over)
    keeps.stopped()
    found = packets_of(keeps.path)
    assert [(number, text) for number, text, _ in comments(found)] == [(5, "kwsniff: rules:gone: drop")]
    assert len(IP(found[4].data)[TCP].payload) == 0


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (Respond(b"\0\0\0\7"), "respond 8"),
        (Close("not\nyours"), "close not yours"),
        (Reset(), "reset"),
        (Drop(), "drop"),
    ],
)
def test_a_request_that_never_reached_the_broker_is_recorded_with_why(
    tmp_path: Path, verdict: Any, text: str
) -> None:
    over = passed(METADATA, ANSWER if isinstance(verdict, Respond) else None)
    over.sent = over.received = None
    over.verdicts = [("rules:no", verdict)]
    found = recorded(tmp_path / "a.pcapng", over)
    ((number, said, _),) = comments(found)
    assert (number, said) == (4, f"kwsniff: rules:no: {text}")
    assert IP(found[3].data)[TCP].payload.load[4:] == METADATA.raw
    assert ("R" in str(IP(found[-1].data)[TCP].flags)) is isinstance(verdict, Reset)


def test_a_comment_is_bounded_whatever_was_decided(tmp_path: Path) -> None:
    over = passed(METADATA, ANSWER)
    over.exchange.tags = ["\ud800" + "é" * 5_000] * 5_000
    over.verdicts = [("p" * 70_000, Delay(1))] * 5_000
    ((_, text, data),) = comments(recorded(tmp_path / "a.pcapng", over))
    assert len(text) < 2_000
    assert (len(data["verdicts"]), len(data["tags"])) == (50, 50)
    over.verdicts = [("p", Close("\0" * 5_000))] * 500
    over.exchange.tags = ["\1" * 5_000] * 500
    packets = recorded(tmp_path / "b.pcapng", over)
    (comment,) = [packet.comment for packet in packets if packet.comment is not None]
    assert comment.startswith("kwsniff: p: close \0")
    assert len(comment) < 65_536


def test_what_was_blanked_is_said(tmp_path: Path) -> None:
    frame = asked(36, 0, {"authBytes": b"\0alice\0secret"})
    ((number, text, data),) = comments(recorded(tmp_path / "a.pcapng", passed(frame, None)))
    assert (number, text) == (4, "kwsniff: secrets replaced by filler")
    assert data["blanked"] == "secrets replaced by filler"
    assert comments(recorded(tmp_path / "b.pcapng", passed(frame, None), keep_secrets=True)) == []


# ---- files


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_nothing_is_ever_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a.pcapng").write_bytes(b"mine")
    for _ in range(2):
        recorder(tmp_path / "a.pcapng").stopped()
    assert names(tmp_path) == ["a-00001.pcapng", "a-00002.pcapng", "a.pcapng"]
    assert (tmp_path / "a.pcapng").read_bytes() == b"mine"


def test_files_are_named_by_the_time_of_their_first_packet(tmp_path: Path) -> None:
    # 2023-11-14T22:13:20Z
    keeps = recorder(tmp_path / "k-%Y%m%d-%H%M%S.pcapng", rotation=Rotation(every=60 * SECOND))
    for seconds in (0, 59, 60, 300):
        ts = NOW + seconds * SECOND
        keeps.exchanged(passed(changed(METADATA, ts=ts, end=ts), changed(ANSWER, ts=ts, end=ts)))
        keeps.tick(ts)
    keeps.stopped()
    assert names(tmp_path) == [f"k-20231114-22{time}.pcapng" for time in ("1320", "1420", "1820")]
    assert keeps.path == str(tmp_path / "k-20231114-221820.pcapng")
    counts = [sum(isinstance(e, Exchange) for e in read(path)) for path in sorted(tmp_path.iterdir())]
    assert counts == [2, 1, 1]


def test_a_name_without_time_is_numbered_and_goes_on_behind_a_former_run(tmp_path: Path) -> None:
    for _ in range(2):
        keeps = recorder(tmp_path / "a.pcapng", rotation=Rotation(every=SECOND))
        keeps.exchanged(passed(changed(METADATA, ts=NOW + SECOND), None))
        keeps.stopped()
    assert names(tmp_path) == [f"a-0000{number}.pcapng" for number in (1, 2, 3, 4)]


def test_a_recording_is_for_its_owner_only(tmp_path: Path) -> None:
    recorder(tmp_path / "a.pcapng").stopped()
    assert (tmp_path / "a.pcapng").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("fsync", "count"), [("none", 0), ("interval", 2), ("always", 5)])
def test_how_often_it_reaches_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: Any, count: int
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    keeps = recorder(tmp_path / "a.pcapng", fsync=fsync)
    keeps.opened(session())
    keeps.request(passing(METADATA))
    keeps.exchanged(passed(METADATA, ANSWER))
    keeps.tick(NOW + SECOND)
    keeps.stopped()
    assert len(synced) == count


def test_what_is_a_second_old_is_in_the_file_even_without_a_tick(tmp_path: Path) -> None:
    keeps = recorder(tmp_path / "a.pcapng")
    for seconds in (0, 2):
        ts = NOW + seconds * SECOND
        keeps.exchanged(passed(changed(METADATA, ts=ts), changed(ANSWER, ts=ts, end=ts)))
        assert len([e for e in read(keeps.path) if isinstance(e, Exchange)]) == seconds


def test_a_killed_process_loses_nothing_from_before_the_last_tick(tmp_path: Path) -> None:
    script = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from passing_builders import NOW, answered, asked, passed, passing
from kwsniff.output.recording import Recorder
keeps = Recorder({str(tmp_path / "a.pcapng")!r}, now=NOW)
for number in range(3000):
    request = asked(3, 4, {{"topics": [{{"name": "a"}}]}}, number, NOW + number)
    keeps.request(passing(request))
    if number == 2500:
        keeps.tick(NOW + number)
    keeps.exchanged(passed(request, answered(3, 4, {{}}, number, NOW + number)))
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    found = read(tmp_path / "a.pcapng")
    assert not [event for event in found if isinstance(event, Fault)]
    exchanges = [event for event in found if isinstance(event, Exchange)]
    assert len(exchanges) >= 2501  # the last of them a request that waited for its answer
    assert [e.request.correlation_id for e in exchanges if e.request] == [*range(len(exchanges))]


# ---- when it cannot be written


@contextmanager
def quota(size: int) -> Iterator[None]:
    """Files cannot grow beyond so many bytes. (Python ignores SIGXFSZ.)"""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fills_up_is_told_once_and_leaves_a_whole_file(tmp_path: Path) -> None:
    keeps = recorder(tmp_path / "a.pcapng")
    keeps.exchanged(passed(METADATA, ANSWER))
    keeps.tick(NOW)
    with quota((tmp_path / "a.pcapng").stat().st_size + 100):
        keeps.exchanged(passed(METADATA, ANSWER))
        with pytest.raises(RecordingFailed) as caught:
            keeps.tick(NOW + SECOND)
    assert str(caught.value) == f"cannot write {tmp_path}/a.pcapng: File too large; the recording ends here"
    # Once: nothing is raised or written any more.
    keeps.opened(session())
    keeps.request(passing(METADATA))
    keeps.exchanged(passed(METADATA, ANSWER))
    keeps.closed(session())
    keeps.tick(NOW + 2 * SECOND)
    keeps.stopped()
    found = read(tmp_path / "a.pcapng")
    assert len([event for event in found if isinstance(event, Exchange)]) == 1
    assert not [event for event in found if isinstance(event, Fault)]


@pytest.mark.parametrize("required", [True, False])
def test_it_fails_closed_unless_told_otherwise(tmp_path: Path, required: bool) -> None:
    keeps = recorder(tmp_path / "a.pcapng", required=required, fsync="always")
    chain = Chain([("recorder", keeps)])
    frame = passing(METADATA)
    with quota(10):
        if required:
            with pytest.raises(PluginFailed, match=r"^recorder: cannot write .*; the recording ends here$"):
                chain.request(frame)
        else:
            assert chain.request(frame) == []
            assert chain.request(passing(asked(3, 4, {}))) == []
    assert chain.failures == {"recorder": 1}


def test_a_device_that_is_full_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match=r"^cannot record into /dev/full: No space left on device$"):
        Recorder("/dev/full", now=NOW)


@pytest.mark.parametrize("path", ["no/such/folder/a.pcapng", "."])
def test_a_file_that_cannot_be_opened_is_refused_at_the_start(path: str) -> None:
    with pytest.raises(ConfigError, match="cannot record into"):
        Recorder(path, now=NOW)


def test_a_frame_that_broke_off_breaks_off_in_the_recording(tmp_path: Path) -> None:
    frame: Frame = changed(METADATA, raw=METADATA.raw[:-3], lost=3, cut_off=True)
    recorded(tmp_path / "a.pcapng", passed(frame, None))
    faults = [f.reason for f in read(tmp_path / "a.pcapng") if isinstance(f, Fault)]
    (exchange,) = [e for e in read(tmp_path / "a.pcapng") if isinstance(e, Exchange)]
    assert exchange.request is not None
    assert (exchange.request.lost, exchange.request.raw) == (3, METADATA.raw[:-3])
    assert {*faults, *(f.reason for f in exchange.request.faults)} == {Reason.FRAME_INCOMPLETE}
