"""SASL as clients of every age speak it, whom it makes of a connection, and that no token is shown."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from acceptance_builders import Link, Run, Tape, shown, sized

SECRET = "hunter2-s3cr3t"
NONCE = "fyko+d2lbbFgONRv9qkxdawL"


def jwt(subject: str) -> str:
    part = base64.urlsafe_b64encode(json.dumps({"sub": subject}).encode()).rstrip(b"=").decode()
    return f"eyJhbGciOiJub25lIn0.{part}.{SECRET}"


PLAIN = [(f"\0alice\0{SECRET}".encode(), b"")]
SCRAM = [
    (f"n,,n=alice,r={NONCE}".encode(), f"r={NONCE}3rfc,s=QSXCR+Q6sek8bf92,i=4096".encode()),
    (f"c=biws,r={NONCE}3rfc,p={SECRET}".encode(), b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ="),
]
BEARER = [(f"n,,\1auth=Bearer {jwt('alice')}\1\1".encode(), b"")]
GSSAPI = [
    (b"\x60\x0b\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02", b"\x60\x01\x02"),
    (b"", b"\5\4\xff"),
    (b"\5\4\1alice", b""),
]
MECHANISMS = {"PLAIN": PLAIN, "SCRAM-SHA-256": SCRAM, "SCRAM-SHA-512": SCRAM, "OAUTHBEARER": BEARER}


def handshake(link: Link, number: int, version: int, mechanism: str) -> None:
    link.exchange(17, version, number, {"mechanism": mechanism}, {"mechanisms": [mechanism]})


def authenticate(
    link: Link, number: int, tokens: list[tuple[bytes, bytes]], version: int = 1, code: int = 0
) -> int:
    for asked, answered in tokens:
        last = (asked, answered) == tokens[-1]
        answer: dict[str, Any] = {"authBytes": answered, "errorCode": code if last else 0}
        link.exchange(36, version, number, {"authBytes": asked}, answer)
        number += 1
    return number


def no_secret(result: Run) -> None:
    text = result.out.decode() + result.err
    for hidden in (SECRET, base64.b64encode(SECRET.encode()).decode()[:12], NONCE, "rmF9pqV8S7s", "QSXCR"):
        assert hidden not in text
    for token, answer in [*PLAIN, *SCRAM, *BEARER]:
        for part in (token, answer):
            if len(part) > 6:
                assert base64.b64encode(part).decode()[:16] not in text
                assert part.hex()[:24] not in text


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    "records", [(), ("--records",), ("--format", "table")], ids=["json", "records", "table"]
)
def test_tokens_in_authenticate(tmp_path: Path, mechanism: str, records: tuple[str, ...]) -> None:
    tape = Tape()
    link = tape.link().open()
    handshake(link, 1, 1, mechanism)
    number = authenticate(link, 2, MECHANISMS[mechanism])
    link.metadata(number)
    if "table" in records:
        (tmp_path / "a.pcap").write_bytes(tape.pcap())
        from acceptance_builders import run

        no_secret(run("decode", *records, tmp_path / "a.pcap"))
        return
    result = shown(tape.pcap(), tmp_path, *records)
    no_secret(result)
    *_, last = result.lines
    assert (last["principal"], last["securityProtocol"]) == ("User:alice", "SASL_PLAINTEXT")
    for line in result.lines[1:-1]:
        assert line["request"]["authBytes"] == "<redacted>"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_bare_tokens_behind_handshake_0(tmp_path: Path, mechanism: str) -> None:
    tape = Tape()
    link = tape.link().open()
    link.exchange(18, 0, 0, {}, {})
    handshake(link, 1, 0, mechanism)
    for asked, answered in MECHANISMS[mechanism]:
        link.client(sized(asked)).broker(sized(answered))
    link.metadata(2).metadata(3)
    result = shown(tape.pcap(), tmp_path)
    no_secret(result)
    protocols = [line["kwsniff"]["protocol"] for line in result.lines]
    assert protocols == ["kafka"] * 2 + ["sasl"] * len(MECHANISMS[mechanism]) + ["kafka"] * 2
    assert {line["kwsniff"]["outcome"] for line in result.lines} == {"answered"}
    assert result.lines[-1]["principal"] == "User:alice"
    assert [line["kwsniff"]["faults"] for line in result.lines] == [[]] * len(result.lines)


@pytest.mark.parametrize("begin", ["none", "handshake 0", "handshake 1"])
def test_gssapi(tmp_path: Path, begin: str) -> None:
    tape = Tape()
    link = tape.link().open()
    if begin != "none":
        handshake(link, 1, int(begin[-1]), "GSSAPI")
    if begin == "handshake 1":
        authenticate(link, 2, GSSAPI)
    else:
        for asked, answered in GSSAPI:
            link.client(sized(asked)).broker(sized(answered))
    link.metadata(9)
    result = shown(tape.pcap(), tmp_path)
    last = result.lines[-1]
    assert last["requestHeader"]["requestApiKeyName"] == "METADATA"
    assert last["kwsniff"]["outcome"] == "answered"
    assert (last["principal"], last["securityProtocol"]) == (None, "SASL_PLAINTEXT")
    assert {line["kwsniff"]["outcome"] for line in result.lines} == {"answered"}


def test_a_refused_password_makes_nobody(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open()
    handshake(link, 1, 1, "PLAIN")
    authenticate(link, 2, PLAIN, code=58)
    link.close()
    result = shown(tape.pcap(), tmp_path)
    assert {line["principal"] for line in result.lines} <= {None, "User:ANONYMOUS"}
    assert result.lines[-1]["kwsniff"]["errors"][0]["name"] == "SASL_AUTHENTICATION_FAILED"


def test_reauthentication_changes_the_principal(tmp_path: Path) -> None:
    tape = Tape()
    link = tape.link().open()
    handshake(link, 1, 1, "PLAIN")
    authenticate(link, 2, PLAIN)
    link.metadata(3)
    handshake(link, 4, 1, "PLAIN")
    authenticate(link, 5, [(b"\0bob\0" + SECRET.encode(), b"")])
    link.metadata(6)
    result = shown(tape.pcap(), tmp_path)
    no_secret(result)
    told = {line["requestHeader"]["correlationId"]: line["principal"] for line in result.lines}
    assert (told[3], told[6]) == ("User:alice", "User:bob")


def test_a_connection_that_began_before_tells_no_principal(tmp_path: Path) -> None:
    tape = Tape()
    tape.link().metadata(1).metadata(2)
    for line in shown(tape.pcap(), tmp_path).lines:
        assert (line["principal"], line["securityProtocol"]) == (None, None)


def test_without_sasl_it_is_anonymous(tmp_path: Path) -> None:
    tape = Tape()
    tape.link().open().metadata(1)
    (line,) = shown(tape.pcap(), tmp_path).lines
    assert (line["principal"], line["securityProtocol"]) == ("User:ANONYMOUS", "PLAINTEXT")


def test_broken_tokens_do_not_come_out_in_faults(tmp_path: Path) -> None:
    """Tokens in frames that do not decode: cut short, left over, with a wrong length."""
    tape = Tape()
    link = tape.link().open()
    handshake(link, 1, 1, "PLAIN")
    link.ask(36, 0, 2, struct.pack(">i", 4000) + PLAIN[0][0])
    link.ask(36, 0, 3, struct.pack(">i", 3) + PLAIN[0][0])
    link.ask(36, 9, 4, PLAIN[0][0])
    link.ask(36, 2, 5, b"\xff\xff\xff\xff\xff" + PLAIN[0][0])
    link.close()
    for options in ((), ("--records",)):
        result = shown(tape.pcap(), tmp_path, *options)
        no_secret(result)
        assert sum(len(line["kwsniff"]["faults"]) for line in result.exchanges) >= 4
    assert "alice\0" not in result.out.decode()


@pytest.mark.parametrize("size", [5, 70_000])
def test_a_token_too_large_for_one_segment(tmp_path: Path, size: int) -> None:
    tape = Tape()
    link = tape.link(mss=1000).open()
    handshake(link, 1, 0, "PLAIN")
    link.client(sized(f"\0alice\0{SECRET * size}".encode())).broker(sized(b"")).metadata(2)
    result = shown(tape.pcap(), tmp_path)
    no_secret(result)
    assert result.lines[-1]["principal"] == "User:alice"
