"""A proxy between ends that authenticate, or that speak Kafka 0.7: nothing is lost, nor judged by mistake."""

import struct
import zlib

import pytest
from middle import Middle, assert_as_decoded
from talk import request, response, sized

from kwsniff.model import Protocol
from kwsniff.passing import Drop, Passing, Respond, Verdict

HANDSHAKE, AUTHENTICATE = 17, 36


def ask(number: int) -> bytes:
    return request(3, 1, number, {"topics": None})


def answer(number: int) -> bytes:
    return response(3, 1, number, {"brokers": [], "controllerId": 1, "topics": []})


def handshake(version: int, mechanism: str) -> tuple[bytes, bytes]:
    return (
        request(HANDSHAKE, version, 1, {"mechanism": mechanism}),
        response(HANDSHAKE, version, 1, {"errorCode": 0, "mechanisms": [mechanism]}),
    )


def authenticate(number: int, token: bytes) -> bytes:
    return request(AUTHENTICATE, 1, number, {"authBytes": token})


def accepted(number: int, token: bytes) -> bytes:
    body = {"errorCode": 0, "errorMessage": None, "authBytes": token, "sessionLifetimeMs": 0}
    return response(AUTHENTICATE, 1, number, body)


BARE_PLAIN = [handshake(0, "PLAIN"), (sized(b"\0alice\0secret"), sized(b"")), (ask(2), answer(2))]
SCRAM = [
    handshake(1, "SCRAM-SHA-256"),
    (authenticate(2, b"n,,n=bob,r=abc"), accepted(2, b"r=abcd,s=c2E=,i=4096")),
    (authenticate(3, b"c=biws,r=abcd,p=cA=="), accepted(3, b"v=dg==")),
    (ask(4), answer(4)),
]
GSSAPI = [
    (sized(b"\x60\x10\x06\x09" + bytes(14)), sized(b"\x60server")),
    (sized(b"wrapped"), sized(b"")),
    (ask(1), answer(1)),
]
UNANSWERED_TOKEN = [*GSSAPI[:1], (sized(b"wrapped"), b""), (ask(1), answer(1))]

MESSAGE07 = b"\1\0" + struct.pack(">I", zlib.crc32(b"hello")) + b"hello"
PRODUCE07 = sized(
    struct.pack(">hh", 0, 4) + b"logs" + struct.pack(">ii", 0, 4 + len(MESSAGE07)) + sized(MESSAGE07)
)
FETCH07 = sized(struct.pack(">h", 1) + struct.pack(">h", 4) + b"logs" + struct.pack(">iqi", 0, 0, 1000))
OFFSETS07 = sized(struct.pack(">h", 4) + struct.pack(">h", 4) + b"logs" + struct.pack(">iqi", 0, -1, 1))
KAFKA07 = [
    (FETCH07, sized(b"\0\0")),
    (PRODUCE07, b""),
    (OFFSETS07, sized(struct.pack(">hiq", 0, 1, 4711))),
]

CONVERSATIONS = [BARE_PLAIN, SCRAM, GSSAPI, UNANSWERED_TOKEN, KAFKA07]
NAMES = ["bare plain", "scram", "gssapi", "gssapi, last token unanswered", "0.7"]


def forwarding(_: Passing) -> list[Verdict]:
    return []


def pieces(data: bytes, way: str) -> list[bytes]:
    return [bytes([byte]) for byte in data] if way == "byte by byte" else [data] if data else []


@pytest.mark.parametrize("way", ["whole", "byte by byte"])
@pytest.mark.parametrize("judged", [False, True])
@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=NAMES)
def test_it_passes_through(conversation: list[tuple[bytes, bytes]], judged: bool, way: str) -> None:
    middle = Middle(*([forwarding, forwarding] if judged else []))
    for asked, answered in conversation:
        middle.client(*pieces(asked, way)).after(1).broker(*pieces(answered, way)).after(1)
    assert middle.to_broker == b"".join(asked for asked, _ in conversation)
    assert middle.to_client == b"".join(answered for _, answered in conversation)
    assert middle.core.in_flight == 0
    assert_as_decoded(middle)


@pytest.mark.parametrize(
    ("conversation", "name"), [(BARE_PLAIN, "User:alice"), (SCRAM, "User:bob")], ids=["plain", "scram"]
)
def test_who_it_is_and_how(conversation: list[tuple[bytes, bytes]], name: str) -> None:
    middle = Middle(security_protocol="SSL")
    for asked, answered in conversation:
        middle.client(asked).broker(answered)
    peer = middle.exchanges[-1].peer
    assert (peer.principal, peer.security_protocol) == (name, "SASL_SSL")


@pytest.mark.parametrize("conversation", [BARE_PLAIN, GSSAPI, KAFKA07], ids=["plain", "gssapi", "0.7"])
def test_tokens_and_07_are_not_judged(conversation: list[tuple[bytes, bytes]]) -> None:
    """An API key means something else there, and a token without its answer ends the session."""

    def decide(passing: Passing) -> list[Verdict]:
        assert passing.frame.protocol is Protocol.KAFKA
        return []

    middle = Middle(decide, decide)
    for asked, answered in conversation:
        middle.client(asked).broker(answered)
    assert len(middle.exchanges) == 3


def test_a_token_that_needs_no_answer_holds_back_none_of_the_proxys() -> None:
    middle = Middle(lambda _: [Respond(answer(1)[4:])])
    for asked, answered in UNANSWERED_TOKEN[:2]:
        middle.client(asked)
        if answered:
            middle.broker(answered)
    middle.client(ask(1))
    assert middle.to_client == UNANSWERED_TOKEN[0][1] + answer(1)


def test_a_handshake_may_be_judged() -> None:
    asked, _ = handshake(1, "PLAIN")
    middle = Middle(lambda passing: [Drop()] if passing.frame.api == HANDSHAKE else [])
    assert middle.client(asked).commands == []
