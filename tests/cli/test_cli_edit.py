"""`kwsniff edit`: parts of captures, without names, at other times; read again by decode and by tshark."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_builders import Capture, metadata, ordinary
from click.testing import CliRunner, Result

import kwsniff
from kwsniff.capture.files import open_capture
from kwsniff.cli import main
from kwsniff.model import Exchange, Packet
from kwsniff.output.pseudonyms import Pseudonyms

CAPTURES = Path(__file__).parents[2] / "captures"
WHOLE = [
    "aiokafka-txn-kfake.pcapng",
    "confluent-big-mock.pcap.gz",
    "confluent-ipv6-kfake6.pcap",
    "confluent-old-0.8.2-old.pcap",
    "confluent-sasl-kfake-sasl.pcap",
    "franz-matrix-kfake2.8-nano.pcap",
    "java-admin-kfake.pcap",
    "java-txn-kfake.pcap",
    "kafkapython-old-0.10-reuse.pcap",
    "sarama-matrix-disorder.pcap",
]
"""Captures of which every frame decodes."""
START = 1_795_240_800_000_000_000  # of cli_builders; packets are a millisecond apart
MS = 1_000_000


def run(*args: str | Path) -> Result:
    result = CliRunner().invoke(main, [str(arg) for arg in args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def edited(tmp_path: Path, capture: Path | str, *args: str) -> tuple[Path, str]:
    out = tmp_path / "out.pcapng"
    result = run("edit", CAPTURES / capture, "-o", out, *args)
    assert (result.exit_code, result.stdout) == (0, ""), result.stderr
    return out, result.stderr


def lines(path: Path, *args: str) -> list[dict[str, Any]]:
    result = run("decode", "-q", path, *args)
    assert result.exit_code == 0
    return [json.loads(line) for line in result.stdout.splitlines()]


def packets(path: Path | str) -> list[Packet]:
    with open_capture(str(CAPTURES / path)) as capture:
        return list(capture)


def bare(packet: Packet) -> tuple[int, int, bytes, int]:
    return packet.ts, packet.linktype, packet.data, packet.wire_length


def small(tmp_path: Path) -> Path:
    """Two clients, two exchanges each."""
    capture = Capture()
    for port in (40001, 40002):
        client = capture.client(port)
        metadata(client, f"orders-{port}")
        metadata(client, "missing", code=3)
        client.close()
    path = tmp_path / "in.pcap"
    path.write_bytes(capture.bytes())
    return path


# ---- anonymised: as before, with other names

OF_THE_FILE = {"file", "requestPacket", "responsePacket", "packet", "requestBytes", "responseBytes"}
OF_THE_BYTES = {"recordsSizeInBytes", "batchLength", "messageSize", "crc", "offset", "message"}
"""`offset` and `message` of faults; offsets of records are compared in `records`."""
PSEUDONYM = re.compile(r"(User:)?[a-z]+-[0-9a-f]{16}")
NAMES = {
    "topics": "topic", "topic": "topic", "topicName": "topic", "groupId": "group", "clientId": "client",
    "transactionalId": "transaction", "memberId": "member", "clusterId": "cluster",
}  # fmt: skip


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], (*path, key))
    elif isinstance(value, list):
        yield path, len(value)
        for item in value:
            yield from leaves(item, path)
    else:
        yield path, value


def meant(name: str, old: str, new: str, names: Pseudonyms) -> bool:
    """Whether a text may have become that."""
    if name in ("client", "broker"):
        host, _, port = old.rpartition(":")
        mapped = names.host(host.strip("[]"))
        return new in (f"{mapped}:{port}", f"[{mapped}]:{port}")
    if name == "connection":
        return new.count("-") == old.count("-")
    if name in ("key", "value", "userData", "metrics"):
        return len(new) == len(old) or PSEUDONYM.fullmatch(new) is not None
    if name in NAMES:
        return new == names.name(NAMES[name], old)
    return PSEUDONYM.fullmatch(new) is not None or name in ("host", "topicId", "clientInstanceId")


@pytest.mark.parametrize("name", WHOLE)
def test_decode_tells_the_same_with_other_names(tmp_path: Path, name: str) -> None:
    out, said = edited(tmp_path, name, "--anonymise", "--key", "k")
    assert "left out" not in said
    names, told = Pseudonyms(b"k"), dict[tuple[str, str], str]()
    before = sorted(lines(CAPTURES / name, "--records"), key=order)
    after = sorted(lines(out, "--records"), key=order)
    assert len(before) == len(after) > 0
    for old, new in zip(before, after, strict=True):
        pairs = zip(leaves(old), leaves(new), strict=True)
        for (path, was), (other, now) in pairs:
            assert path == other
            if path[-1] in OF_THE_FILE | OF_THE_BYTES:
                continue
            if was != now:
                assert isinstance(was, str)
                assert meant(path[-1], was, now, names), (path, was, now)
                assert told.setdefault((path[-1], was), now) == now
            elif path[-1] in NAMES and was and path[-1] != "topics":
                assert isinstance(was, int) or was.startswith("__"), (path, was)
    assert told


def order(line: dict[str, Any]) -> tuple[str, str, int]:
    port = line["kwsniff"]["client"].rpartition(":")[2]
    return line["timestamp"], port, (line["requestHeader"] or {}).get("correlationId", 0)


def said_by(path: Path) -> set[bytes]:
    """The names, keys and values of a capture, as bytes; what is as short as this may be there by chance."""
    found: set[bytes] = set()
    for event in kwsniff.read(str(path), records=True):
        if not isinstance(event, Exchange):
            continue
        for frame in (event.request, event.response):
            if frame is None:
                continue
            found.add((frame.client_id or "").encode())
            for place, value in leaves(frame.body):
                records = "records" in place and place[-1] in ("key", "value")
                if records or place[-1] in ("groupId", "transactionalId", "topic", "memberId", "host"):
                    found.add(value.encode() if isinstance(value, str) else value or b"")
                if place[-2:] in (("topics", "name"), ("topicData", "name"), ("responses", "topic")):
                    found.add((value or "").encode())
    # The client id that librdkafka gives itself is in the version of a client's software, too, which stays.
    return {text for text in found if len(text) > 6} - {b"rdkafka"}


@pytest.mark.parametrize("name", [*WHOLE, "kcat-matrix-mock.pcapng", "aiokafka-matrix-mock-sll2.pcap"])
def test_nothing_of_the_names_keys_and_values_is_in_the_file(tmp_path: Path, name: str) -> None:
    old = said_by(CAPTURES / name)
    out, _ = edited(tmp_path, name, "--anonymise")
    assert len(old) > 3
    unpacked = b"\0".join(said_by(out)) + run("decode", "-q", "--records", out).stdout.encode()
    hay = out.read_bytes() + unpacked
    assert [text for text in old if text in hay] == []


def test_the_same_key_gives_the_same_file_and_another_key_another(tmp_path: Path) -> None:
    def once(*args: str) -> bytes:
        return edited(tmp_path, "java-txn-kfake.pcap", "--anonymise", *args)[0].read_bytes()

    assert once("--key", "a") == once("--seed", "a")
    assert len({once("--key", "a"), once("--key", "b"), once(), once()}) == 4


def test_what_cannot_be_decoded_is_left_out_and_counted(tmp_path: Path) -> None:
    out, said = edited(tmp_path, "aiokafka-idem-mock-snap96.pcap", "--anonymise")
    assert "kwsniff: left out: 47 frames that cannot be decoded\n" in said
    assert all(line["kwsniff"]["faults"] == [] for line in lines(out))


# ---- cut


def shape(line: dict[str, Any]) -> Any:
    """What a line says of its exchange alone, and not of what was told before it."""
    extra = {key: line["kwsniff"][key] for key in ("client", "broker", "requestBytes", "responseBytes")}
    return [line[key] for key in ("timestamp", "requestHeader", "request", "response", "totalTimeMs")], extra


@pytest.mark.parametrize("name", ["java-txn-kfake.pcap", "confluent-errors-mock.pcap"])
@pytest.mark.parametrize(
    "cel", ["size(kwsniff.errors) > 0", 'requestHeader.requestApiKeyName in ["PRODUCE", "METADATA"]']
)
def test_a_filter_keeps_what_decode_would_show(tmp_path: Path, name: str, cel: str) -> None:
    out, said = edited(tmp_path, name, "--filter", cel)
    wanted = sorted(map(shape, lines(CAPTURES / name, "--filter", cel)), key=str)
    found = lines(out)
    assert sorted(map(shape, found), key=str) == wanted
    assert re.match(f"kwsniff: {len(found)} exchanges? of ", said)


def test_packets_of_one_connection_are_copied_as_they_are(tmp_path: Path) -> None:
    name = "sarama-matrix-disorder.pcap"
    every = lines(CAPTURES / name)
    client = every[10]["kwsniff"]["client"]
    port = int(client.rpartition(":")[2]).to_bytes(2, "big")
    out, said = edited(tmp_path, name, "--connection", client)
    copied = packets(out)
    # Ethernet, and an IPv4 header without options: the ports are at 34 and 36.
    assert [bare(p) for p in copied] == [
        bare(p) for p in packets(name) if port in (p.data[34:36], p.data[36:38])
    ]
    assert said == f"kwsniff: {len(copied)} packets copied as they are\n"
    wanted = [shape(line) for line in every if line["kwsniff"]["client"] == client]
    assert [shape(line) for line in lines(out)] == wanted


def test_several_connections_with_and_without_broker_and_port(tmp_path: Path) -> None:
    path = small(tmp_path)
    both = ("--connection", "10.0.0.1:40001-10.0.0.2:9092", "--connection", "10.0.0.1:40002-10.0.0.2")
    for args, count in ((both, 4), (both[:2], 2), (("--connection", "10.0.0.1"), 4)):
        assert len(lines(edited(tmp_path, path, *args)[0])) == count


def test_a_time_cuts_packets(tmp_path: Path) -> None:
    path = small(tmp_path)
    out, _ = edited(tmp_path, path, "--start", "1795240800.008", "--end", "1795240800.011")
    assert [p.ts - START for p in packets(out)] == [8 * MS, 9 * MS, 10 * MS]
    # 0 and 1 are the handshake, 2 to 5 the exchanges of the first client, 6 and 7 its end.
    out, _ = edited(tmp_path, path, "--start", "1795240800.004", "--end", "1795240800.008")
    assert [shape(line) for line in lines(out)] == [shape(lines(path)[1])]


def test_a_time_cuts_exchanges_where_frames_are_chosen(tmp_path: Path) -> None:
    times = ("--start", "1795240800.004", "--end", "1795240800.011")
    path = small(tmp_path)
    out, _ = edited(tmp_path, path, *times, "--filter", "true")
    assert [shape(line) for line in lines(out)] == [shape(line) for line in lines(path, *times)]


def test_fragments_go_with_the_connections_of_their_hosts(tmp_path: Path) -> None:
    name = "confluent-sasl-frag.pcap"
    every = lines(CAPTURES / name)
    client = every[10]["kwsniff"]["client"]
    out, _ = edited(tmp_path, name, "--connection", client, "--keep-secrets")
    wanted = [shape(line) for line in every if line["kwsniff"]["client"] == client]
    assert len(packets(out)) < len(packets(name))
    assert [shape(line) for line in lines(out) if line["kwsniff"].get("client") == client] == wanted


def test_standard_output_and_several_inputs(tmp_path: Path) -> None:
    path = small(tmp_path)
    result = run("edit", path, path, "-o", "-", "--keep-secrets")
    (tmp_path / "two.pcapng").write_bytes(result.stdout_bytes)
    assert list(map(bare, packets(tmp_path / "two.pcapng"))) == list(map(bare, packets(path))) * 2


# ---- times


@pytest.mark.parametrize("how", [(), ("--filter", "true"), ("--anonymise",)])
def test_times_are_moved_and_stretched(tmp_path: Path, how: tuple[str, ...]) -> None:
    path = small(tmp_path)
    plain = [p.ts for p in packets(edited(tmp_path, path, *how)[0])]
    first = plain[0]
    for args, wanted in (
        (("--shift", "-1.5h"), [ts - 5_400_000_000_000 for ts in plain]),
        (("--at", "2020-01-01"), [1_577_836_800_000_000_000 + ts - first for ts in plain]),
        (("--speed", "2"), [first + (ts - first) // 2 for ts in plain]),
        (("--speed", "0.1", "--shift", "1d"), [first + (ts - first) * 10 + 86_400 * 10**9 for ts in plain]),
    ):
        assert [p.ts for p in packets(edited(tmp_path, path, *how, *args)[0])] == wanted


def test_packets_are_in_the_order_of_time(tmp_path: Path) -> None:
    capture = Capture()
    first, second = capture.client(40001), capture.client(40002)
    first.ask(3, 1, {"topics": []})  # answered when the other's exchange is over
    metadata(second)
    first.answer(3, 1, {"brokers": [], "topics": []})
    (tmp_path / "in.pcap").write_bytes(capture.bytes())
    out, _ = edited(tmp_path, tmp_path / "in.pcap", "--anonymise")
    times = [p.ts for p in packets(out)]
    assert times == sorted(times)
    assert [line["kwsniff"]["outcome"] for line in lines(out)] == ["answered", "answered"]


def test_an_answer_stays_behind_its_request_where_the_clock_went_back(tmp_path: Path) -> None:
    path = small(tmp_path)
    data = bytearray(path.read_bytes())
    at = 24
    for _ in range(3):  # SYN, SYN and ACK, the first request
        at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")
    second = int.from_bytes(data[at : at + 4], "little")
    data[at : at + 4] = (second - 3600).to_bytes(4, "little")
    path.write_bytes(data)
    found = lines(edited(tmp_path, path, "--anonymise")[0])
    assert [line["kwsniff"]["outcome"] for line in found] == ["answered"] * 4


# ---- secrets


def test_secrets_are_blanked_unless_they_are_to_be_kept(tmp_path: Path) -> None:
    name = "confluent-sasl-kfake-sasl.pcap"
    password = next(  # of one letter: searched with the name and the token's length before it
        (len(frame.body["authBytes"])).to_bytes(4, "big") + frame.body["authBytes"]
        for event in kwsniff.read(str(CAPTURES / name))
        if isinstance(event, Exchange) and (frame := event.request) and frame.api == 36 and frame.body
    )
    assert password in b"".join(packet.data for packet in packets(name))
    out, said = edited(tmp_path, name)
    assert password not in out.read_bytes()
    assert "kwsniff: secrets replaced by filler in 10 frames (--keep-secrets leaves them)\n" in said
    principals = {line["principal"] for line in lines(CAPTURES / name)}
    assert {line["principal"] for line in lines(out)} == principals
    out, said = edited(tmp_path, name, "--keep-secrets")
    assert [bare(p) for p in packets(out)] == [bare(p) for p in packets(name)]
    assert password in edited(tmp_path, name, "--keep-secrets", "--filter", "true")[0].read_bytes()
    assert password not in edited(tmp_path, name, "--anonymise")[0].read_bytes()


# ---- mistakes


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--connection", "nowhere"], "'nowhere' is no connection"),
        (["--connection", "10.9.9.9"], "there is no such connection"),
        (["--connection", "10.9.9.9", "--anonymise"], "there is no such connection"),
        (["--shift", "soon"], "'soon' is no duration"),
        (["--speed", "0"], "'0' is no factor"),
        (["--shift", "1s", "--at", "2020-01-01"], "--shift and --at"),
        (["--shift", "-99999d"], "out of range"),
        (["--key", "a"], "--key is for --anonymise"),
        (["--anonymise", "--key", ""], "--key is empty"),
        (["--anonymise", "--keep-secrets"], "contradict"),
        (["--filter", "1 +"], "filter"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_file(tmp_path: Path, args: list[str], said: str) -> None:
    (tmp_path / "in.pcap").write_bytes(ordinary())
    result = run("edit", tmp_path / "in.pcap", "-o", tmp_path / "out.pcapng", *args)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert said in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.pcap"]


def test_standard_input_is_read_once(tmp_path: Path) -> None:
    result = run("edit", "-", "-o", tmp_path / "out.pcapng")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "read once" in result.stderr


def test_a_file_that_is_no_capture_leaves_the_old_output(tmp_path: Path) -> None:
    (tmp_path / "in.pcap").write_text("hello")
    (tmp_path / "out.pcapng").write_text("old")
    for args in ([], ["--keep-secrets"], ["--anonymise"]):
        result = run("edit", tmp_path / "in.pcap", "-o", tmp_path / "out.pcapng", *args)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert (tmp_path / "out.pcapng").read_text() == "old"


def test_a_capture_that_breaks_off_is_edited_up_to_there(tmp_path: Path) -> None:
    path = small(tmp_path)
    path.write_bytes(path.read_bytes()[:-5])
    for args in ((), ("--anonymise",)):
        out, said = edited(tmp_path, path, *args)
        assert "cut short" in said
        assert len(lines(out)) == 4


# ---- as others read it


@pytest.mark.tshark
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("how", [(), ("--anonymise",), ("--filter", "true", "--speed", "3")])
def test_tshark_opens_it_and_has_nothing_to_complain_of(tmp_path: Path, how: tuple[str, ...]) -> None:
    out, _ = edited(tmp_path, "java-txn-kfake.pcap", *how)
    fields = ["-T", "fields", "-e", "tcp.checksum.status", "-e", "tcp.analysis.flags", "-e", "_ws.malformed"]
    command = ["tshark", "-r", str(out), "-o", "tcp.check_checksum:TRUE", *fields]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(shown) == len(packets(out))
    if how:
        assert {line.split("\t")[0] for line in shown} == {"1"}  # good
        assert {line.split("\t")[1] for line in shown} == {""}
