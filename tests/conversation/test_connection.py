"""What two ends say -> exchanges. Each test is a conversation and what is to be told of it."""

import itertools
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from talk import BROKER, CLIENT, Talk, listen, request, response, sized, told

from kwsniff.errors import Reason
from kwsniff.model import Chunk, Exchange, Outcome, Protocol, Session, Side

METADATA, PRODUCE, FETCH, API_VERSIONS, HEARTBEAT = 3, 0, 1, 18, 12
METADATA_V1_ANSWER = {"brokers": [], "controllerId": 1, "topics": []}


def ask(number: int, **kwargs: str) -> bytes:
    return request(METADATA, 1, number, {"topics": None}, **kwargs)


def answer(number: int) -> bytes:
    return response(METADATA, 1, number, METADATA_V1_ANSWER)


def produce(number: int, acks: int, version: int = 3) -> bytes:
    return request(PRODUCE, version, number, {"acks": acks, "timeoutMs": 10, "topicData": []})


def outcomes(exchanges: list[Exchange]) -> list[tuple[int | None, str]]:
    return [
        ((found.request or found.response).correlation_id, found.outcome)  # type: ignore[union-attr]
        for found in exchanges
    ]


class TestMatching:
    def test_a_request_and_its_answer(self) -> None:
        (exchange,) = Talk().client(ask(7)).broker(answer(7)).close().exchanges()
        assert exchange.outcome is Outcome.ANSWERED
        assert exchange.request is not None
        assert exchange.response is not None
        assert (exchange.request.api, exchange.request.version, exchange.request.client_id) == (3, 1, "c")
        assert exchange.request.body == {"topics": None}
        assert exchange.response.body == METADATA_V1_ANSWER
        assert exchange.latency == 1_000_000
        assert (exchange.request.packet, exchange.response.packet) == (2, 3)
        assert (exchange.request.size, exchange.response.size) == (len(ask(7)), len(answer(7)))
        assert str(exchange.conn) == "10.0.0.9:9092-10.0.0.1:50001-0"

    def test_pipelined(self) -> None:
        talk = Talk().client(ask(1), ask(2), ask(3)).broker(answer(1) + answer(2), answer(3)).close()
        assert outcomes(talk.exchanges()) == [(1, "answered"), (2, "answered"), (3, "answered")]

    def test_answers_out_of_order_are_matched_by_id(self) -> None:
        talk = Talk().client(ask(1), ask(2)).broker(answer(2), answer(1)).close()
        assert outcomes(talk.exchanges()) == [(2, "answered"), (1, "answered")]

    def test_the_answer_stands_before_the_request_in_the_capture(self) -> None:
        talk = Talk().client(ask(1)).broker(answer(1), answer(2)).client(ask(2)).close()
        assert outcomes(talk.exchanges()) == [(1, "answered"), (2, "answered")]

    def test_a_repeated_id_is_answered_in_order(self) -> None:
        talk = Talk().client(ask(5), request(HEARTBEAT, 0, 5, {}), ask(5))
        talk.broker(answer(5), response(HEARTBEAT, 0, 5, {"errorCode": 27}), answer(5)).close()
        found = talk.exchanges()
        assert [(e.request.api, e.outcome) for e in found if e.request] == [
            (3, "answered"),
            (12, "answered"),
            (3, "answered"),
        ]
        assert found[1].response is not None
        assert found[1].response.body == {"errorCode": 27}

    def test_a_broker_skips_what_it_cannot_read(self) -> None:
        broken = request(METADATA, 1, 1, struct.pack(">ih", -2, 1) + b"a")
        talk = (
            Talk()
            .client(broken, request(API_VERSIONS, 0, 1))
            .broker(response(API_VERSIONS, 0, 1, {"errorCode": 0, "apiKeys": []}))
        )
        found = {e.request.api: e for e in talk.close().exchanges() if e.request}
        assert found[API_VERSIONS].outcome is Outcome.ANSWERED
        assert found[METADATA].outcome is Outcome.CLOSED
        assert found[METADATA].request is not None
        assert [fault.reason for fault in found[METADATA].request.faults] == [Reason.COUNT_INVALID]

    def test_ids_wrap(self) -> None:
        talk = (
            Talk().client(ask(2**31 - 1), ask(-(2**31))).broker(answer(2**31 - 1), answer(-(2**31))).close()
        )
        assert outcomes(talk.exchanges()) == [(2**31 - 1, "answered"), (-(2**31), "answered")]

    @pytest.mark.parametrize("version", [0, 2, 3, 8, 9, 12])
    def test_produce_without_acks_gets_no_answer(self, version: int) -> None:
        talk = Talk().client(produce(1, 0, version), produce(2, 1, version), ask(3))
        talk.broker(response(PRODUCE, version, 2, {"responses": []}), answer(3)).close()
        assert outcomes(talk.exchanges()) == [(1, "no_ack"), (2, "answered"), (3, "answered")]

    def test_a_mock_broker_answers_what_nobody_asked_to_be_answered(self) -> None:
        talk = (
            Talk().client(produce(1, 0), ask(2)).broker(response(PRODUCE, 3, 1, {"responses": []}), answer(2))
        )
        first, second = talk.close().exchanges()
        assert (first.outcome, second.outcome) == ("no_ack", "answered")
        assert first.response is not None
        assert first.response.body == {"responses": [], "throttleTimeMs": 0}

    def test_an_answer_to_nothing_is_not_guessed(self) -> None:
        talk = Talk().broker(sized(struct.pack(">ii", 77, 0))).client(ask(1)).broker(answer(1)).close()
        assert sorted(outcomes(talk.exchanges())) == [(1, "answered"), (77, "unmatched")]

    def test_the_connection_ends_first(self) -> None:
        assert outcomes(Talk().client(ask(1)).close().exchanges()) == [(1, "closed")]

    def test_the_capture_ends_first(self) -> None:
        assert outcomes(Talk().client(ask(1)).exchanges()) == [(1, "lost")]

    def test_thousands_in_flight(self) -> None:
        count = 3000
        talk = (
            Talk().client(*(ask(n) for n in range(count))).broker(*(answer(n) for n in range(count))).close()
        )
        assert outcomes(talk.exchanges()) == [(n, "answered") for n in range(count)]


class TestLoss:
    def test_a_gap_takes_a_whole_answer(self) -> None:
        talk = Talk().client(ask(1), ask(2), ask(3)).broker(answer(1)).broker(answer(3), lost=len(answer(2)))
        assert sorted(outcomes(talk.close().exchanges())) == [(1, "answered"), (2, "lost"), (3, "answered")]
        (fault,) = talk.faults()
        assert (fault.reason, fault.lost, fault.side) == (Reason.LOST_BYTES, len(answer(2)), Side.RESPONSE)

    def test_a_gap_takes_a_whole_request(self) -> None:
        talk = Talk().client(ask(1)).broker(answer(1)).client(ask(3), lost=len(ask(2)))
        found = talk.broker(answer(2), answer(3)).close().exchanges()
        assert sorted(outcomes(found)) == [(1, "answered"), (2, "unmatched"), (3, "answered")]

    def test_a_gap_inside_a_body_leaves_the_header_and_the_match(self) -> None:
        long = request(METADATA, 1, 2, {"topics": [{"name": "x" * 500}]})
        talk = Talk().client(ask(1)).broker(answer(1)).client(long[:100]).client(long[300:], lost=200)
        found = talk.client(ask(3)).broker(answer(2), answer(3)).close().exchanges()
        assert outcomes(found) == [(1, "answered"), (2, "answered"), (3, "answered")]
        assert found[1].request is not None
        assert found[1].request.body is None
        assert [(fault.reason, fault.lost) for fault in found[1].request.faults] == [(Reason.LOST_BYTES, 200)]

    def test_a_gap_takes_the_end_of_one_frame_and_the_start_of_the_next(self) -> None:
        long = request(METADATA, 1, 2, {"topics": [{"name": "x" * 500}]})
        stream = long + ask(3) + ask(4)
        talk = Talk().client(ask(1)).broker(answer(1)).client(stream[:100])
        talk.client(stream[len(long) + 9 :], lost=len(long) + 9 - 100)
        found = talk.broker(answer(2), answer(4)).close().exchanges()
        assert sorted(outcomes(found)) == [(1, "answered"), (2, "answered"), (4, "answered")]
        ledger = talk.session().requests
        assert ledger.lost == len(long) + 9 - 100
        # 17 bytes of the next frame are seen without their start.
        assert ledger.seen + ledger.lost == len(ask(1) + stream)
        assert ledger.undecoded == len(ask(3)) - 9 + 0 or ledger.undecoded >= len(ask(3)) - 9

    def test_a_bad_size_is_named_and_the_connection_resumes(self) -> None:
        talk = Talk().client(ask(1)).broker(answer(1)).client(b"\xff\xff\xff\xfbjunkjunkjunk", ask(2))
        found = talk.broker(answer(2)).close()
        assert outcomes(found.exchanges()) == [(1, "answered"), (2, "answered")]
        (fault,) = found.faults()
        assert (fault.reason, fault.packet, fault.offset) == (Reason.SIZE_INVALID, 4, len(ask(1)))

    def test_a_frame_over_the_limit(self) -> None:
        talk = Talk(max_frame=1000).client(ask(1)).broker(answer(1)).client(sized(b"x" * 1001)).close()
        assert [fault.reason for fault in talk.faults()] == [Reason.FRAME_TOO_LARGE]

    def test_the_stream_ends_inside_a_frame(self) -> None:
        (exchange,) = Talk().client(ask(1)[:-2]).close().exchanges()
        assert exchange.outcome is Outcome.CLOSED
        assert exchange.request is not None
        assert [fault.reason for fault in exchange.request.faults] == [Reason.FRAME_INCOMPLETE]

    def test_every_byte_is_accounted_for(self) -> None:
        talk = Talk().client(ask(1), b"\xff\xff\xff\xfbjunk", ask(2)).broker(answer(1)).client(b"\0\0")
        session = talk.close().session()
        for ledger in (session.requests, session.responses):
            assert ledger.seen == ledger.decoded + ledger.undecoded
        assert session.requests.seen == len(ask(1) + ask(2)) + 10
        assert session.requests.decoded == len(ask(1) + ask(2))


class TestMidStream:
    def test_roles_are_found_by_who_asks(self) -> None:
        talk = Talk(opened=False).broker(answer(1)).client(ask(2)).broker(answer(2)).close()
        found = talk.exchanges()
        assert sorted(outcomes(found)) == [(1, "unmatched"), (2, "answered")]
        assert {(e.conn.client, e.conn.broker) for e in found} == {(CLIENT, BROKER)}
        assert found[-1].peer.principal is None
        assert found[-1].peer.security_protocol is None

    def test_it_begins_inside_frames(self) -> None:
        talk = Talk(opened=False).client(ask(1)[7:] + ask(2)).broker(answer(1)[3:] + answer(2)).close()
        assert outcomes(talk.exchanges()) == [(2, "answered")]

    def test_a_forced_port_decides(self) -> None:
        talk = Talk(opened=False, ports=frozenset({9092})).broker(answer(1)).client(ask(2)).broker(answer(2))
        assert (2, "answered") in outcomes(talk.close().exchanges())


class TestWhatIsSpoken:
    @pytest.mark.parametrize(
        ("head", "name"),
        [
            (bytes.fromhex("16030100c8010000c40303") + bytes(200), "tls"),
            (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "http"),
            (b"SSH-2.0-OpenSSH_9.2\r\n", "ssh"),
            (bytes(range(200, 256)), "unknown"),
            (b"\0\0\0\x08\x04\xd2\x16\x2f", "unknown"),
        ],
        ids=["tls", "http", "ssh", "junk", "postgres"],
    )
    def test_others_are_named_not_decoded(self, head: bytes, name: str) -> None:
        talk = Talk().client(head).broker(b"whatever").close()
        assert talk.exchanges() == []
        assert [fault.reason for fault in talk.faults()] == [Reason.NOT_KAFKA]
        session = talk.session()
        assert session.protocol == name
        assert session.requests.undecoded == len(head)
        assert session.responses.undecoded == len(b"whatever")

    def test_a_zookeeper_connect_request_has_a_plausible_header_only(self) -> None:
        connect = sized(struct.pack(">iqiqi", 0, 0, 30000, 0, 16) + bytes(16) + b"\0")
        assert Talk().client(connect).close().exchanges() == []

    def test_silence_is_no_fault(self) -> None:
        assert [type(event) for event in Talk().close().events()] == [Session]

    def test_an_unknown_api_is_shown_with_its_bytes(self) -> None:
        talk = (
            Talk().client(request(999, 0, 1, b"\1\2\3", client_id="mal")).broker(response(999, 0, 1, b"\4\5"))
        )
        exchange, last = talk.client(ask(2, client_id="mal")).broker(answer(2)).close().exchanges()
        assert exchange.request is not None
        assert exchange.outcome is Outcome.ANSWERED
        assert (exchange.request.api, exchange.request.body) == (999, None)
        (fault,) = exchange.request.faults
        assert fault.reason is Reason.UNKNOWN_API
        assert "010203" in fault.message
        assert last.outcome is Outcome.ANSWERED

    def test_a_newer_version_is_unknown_not_a_crash(self) -> None:
        (exchange,) = Talk().client(request(METADATA, 90, 1, b"\1\2\3")).close().exchanges()
        assert exchange.request is not None
        assert [fault.reason for fault in exchange.request.faults] == [Reason.UNKNOWN_VERSION]

    def test_apiversions_falls_back_to_version_0(self) -> None:
        hello = request(API_VERSIONS, 4, 1, {"clientSoftwareName": "x", "clientSoftwareVersion": "1.2"})
        refused = sized(struct.pack(">ihi", 1, 35, 1) + struct.pack(">hhh", 18, 0, 2))
        (exchange,) = Talk().client(hello).broker(refused).close().exchanges()
        assert exchange.response is not None
        assert exchange.response.body == {
            "errorCode": 35,
            "apiKeys": [{"apiKey": 18, "minVersion": 0, "maxVersion": 2}],
        }
        assert exchange.response.faults == ()

    def test_the_client_tells_its_software(self) -> None:
        hello = request(API_VERSIONS, 3, 1, {"clientSoftwareName": "lib", "clientSoftwareVersion": "1.2"})
        talk = Talk().client(hello, ask(2)).close()
        assert [e.peer.software_name for e in talk.exchanges()] == ["lib", "lib"]
        assert talk.session().peer.software_version == "1.2"


class TestSasl:
    def test_plain_in_bare_tokens_behind_handshake_v0(self) -> None:
        talk = Talk().client(request(17, 0, 1, {"mechanism": "PLAIN"}))
        talk.broker(response(17, 0, 1, {"errorCode": 0, "mechanisms": ["PLAIN"]}))
        talk.client(sized(b"\0alice\0secret")).broker(sized(b"")).client(ask(2)).broker(answer(2)).close()
        handshake, token, metadata = talk.exchanges()
        assert [e.outcome for e in (handshake, token, metadata)] == ["answered"] * 3
        assert token.request is not None
        assert (token.request.protocol, token.request.correlation_id) == (Protocol.SASL, None)
        assert (handshake.peer.principal, token.peer.principal) == ("User:ANONYMOUS", "User:ANONYMOUS")
        assert metadata.peer.principal == "User:alice"
        assert metadata.peer.security_protocol == "SASL_PLAINTEXT"

    def test_scram_in_saslauthenticate(self) -> None:
        def token(number: int, data: bytes) -> bytes:
            return request(36, 1, number, {"authBytes": data})

        def reply(number: int, data: bytes) -> bytes:
            body = {"errorCode": 0, "errorMessage": None, "authBytes": data, "sessionLifetimeMs": 0}
            return response(36, 1, number, body)

        talk = Talk().client(request(17, 1, 1, {"mechanism": "SCRAM-SHA-256"}))
        talk.broker(response(17, 1, 1, {"errorCode": 0, "mechanisms": ["SCRAM-SHA-256"]}))
        talk.client(token(2, b"n,,n=b=2Cob,r=abc")).broker(reply(2, b"r=abcd,s=c2v=,i=4096"))
        talk.client(token(3, b"c=biws,r=abcd,p=cA==")).broker(reply(3, b"v=dg==")).client(ask(4)).close()
        found = talk.exchanges()
        assert found[2].peer.principal == "User:ANONYMOUS"
        assert found[3].peer.principal == "User:b,ob"

    def test_a_refused_password_names_nobody(self) -> None:
        talk = Talk().client(request(17, 1, 1, {"mechanism": "PLAIN"}))
        talk.broker(response(17, 1, 1, {"errorCode": 0, "mechanisms": ["PLAIN"]}))
        talk.client(request(36, 0, 2, {"authBytes": b"\0eve\0guess"}))
        talk.broker(response(36, 0, 2, {"errorCode": 58, "errorMessage": "no", "authBytes": b""})).close()
        assert talk.session().peer.principal == "User:ANONYMOUS"

    def test_gssapi_without_a_handshake(self) -> None:
        token = b"\x60\x10\x06\x09" + bytes(14)
        talk = (
            Talk()
            .client(sized(token))
            .broker(sized(b"\x60server"))
            .client(sized(b"wrapped"))
            .broker(sized(b""))
        )
        found = talk.client(ask(1)).broker(answer(1)).close().exchanges()
        assert [e.request.protocol for e in found if e.request] == ["sasl", "sasl", "kafka"]
        assert [e.outcome for e in found] == ["answered"] * 3
        assert found[2].peer.security_protocol == "SASL_PLAINTEXT"


class TestKafka07:
    FETCH07 = sized(struct.pack(">h", 1) + struct.pack(">h", 4) + b"logs" + struct.pack(">iqi", 0, 0, 1000))
    OFFSETS07 = sized(struct.pack(">h", 4) + struct.pack(">h", 4) + b"logs" + struct.pack(">iqi", 0, -1, 1))

    def test_answers_come_in_order_without_ids(self) -> None:
        talk = (
            Talk()
            .client(self.FETCH07, self.OFFSETS07)
            .broker(sized(b"\0\0"), sized(struct.pack(">hiq", 0, 1, 4711)))
        )
        found = talk.close().exchanges()
        assert [(e.request.api, e.request.protocol, e.outcome) for e in found if e.request] == [
            (1, "kafka07", "answered"),
            (4, "kafka07", "answered"),
        ]
        assert talk.session().protocol == "kafka07"

    def test_produce_is_never_answered(self) -> None:
        message = b"\1\0" + struct.pack(">I", zlib.crc32(b"hello")) + b"hello"
        produce07 = sized(
            struct.pack(">hh", 0, 4) + b"logs" + struct.pack(">ii", 0, 4 + len(message)) + sized(message)
        )
        (exchange,) = Talk().client(produce07).close().exchanges()
        assert exchange.outcome is Outcome.NO_ACK


class TestMemoryOfTheConversation:
    def fetch(
        self, number: int, epoch: int, topics: dict[str, dict[int, int]], forgotten: dict[str, list[int]]
    ) -> bytes:
        return request(
            FETCH,
            11,
            number,
            {
                "sessionId": 0 if epoch == 0 else 42,
                "sessionEpoch": epoch,
                "topics": [
                    {"topic": t, "partitions": [{"partition": p, "fetchOffset": o} for p, o in ps.items()]}
                    for t, ps in topics.items()
                ],
                "forgottenTopicsData": [{"topic": t, "partitions": ps} for t, ps in forgotten.items()],
            },
        )

    def reply(self, number: int) -> bytes:
        return response(FETCH, 11, number, {"sessionId": 42, "responses": []})

    def test_an_incremental_fetch_reads_what_its_session_remembers(self) -> None:
        talk = Talk()
        steps = [
            (0, {"a": {0: 10, 1: 11}, "b": {0: 5}}, {}),
            (1, {}, {}),
            (2, {"a": {1: 20}}, {"b": [0]}),
        ]
        for number, (epoch, topics, forgotten) in enumerate(steps):
            talk.client(self.fetch(number, epoch, topics, forgotten)).broker(self.reply(number))
        first, second, third = (e.fetched for e in talk.close().exchanges())
        assert first is None
        assert second is not None
        assert [(p.topic, p.partition, p.offset) for p in second] == [("a", 0, 10), ("a", 1, 11), ("b", 0, 5)]
        assert third is not None
        assert [(p.topic, p.partition, p.offset) for p in third] == [("a", 0, 10), ("a", 1, 20)]

    def test_topic_ids_become_names(self) -> None:
        topic_id = "AAAAAAAAAAAAAAAAAAAABQ"
        topic = {"errorCode": 0, "name": "orders", "topicId": topic_id, "partitions": []}
        talk = Talk().client(request(METADATA, 12, 1, {"topics": None}))
        talk.broker(response(METADATA, 12, 1, {"brokers": [], "topics": [topic]})).close()
        (exchange,) = talk.exchanges()
        assert exchange.topic_names[topic_id] == (3_000_000, "orders")


CONVERSATION = (
    [request(API_VERSIONS, 3, 0, {"clientSoftwareName": "lib", "clientSoftwareVersion": "1"})]
    + [request(17, 0, 1, {"mechanism": "PLAIN"}), sized(b"\0alice\0secret")]
    + [ask(n) for n in (2, 3)]
    + [produce(4, 0), produce(5, 1), ask(6)],
    [
        response(API_VERSIONS, 3, 0, {"errorCode": 0, "apiKeys": []}),
        response(17, 0, 1, {"errorCode": 0, "mechanisms": ["PLAIN"]}),
        sized(b""),
        answer(2),
        answer(3),
        response(PRODUCE, 3, 5, {"responses": []}),
        answer(6),
    ],
)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_events_do_not_depend_on_how_bytes_are_chunked(data: st.DataObject) -> None:
    def chunks(cuts: list[list[int]]) -> list[Chunk]:
        found = [Chunk(0, CLIENT, BROKER, b"", opened=True)]
        for (src, dst), frames, at in zip(
            ((CLIENT, BROKER), (BROKER, CLIENT)), CONVERSATION, cuts, strict=True
        ):
            stream = b"".join(frames)
            edges = [0, *sorted(at), len(stream)]
            found += [Chunk(0, src, dst, stream[a:b]) for a, b in itertools.pairwise(edges) if a < b]
        return found

    def events(cuts: list[list[int]]) -> list[object]:
        return sorted(repr(told(e)) for e in listen(chunks(cuts)) if isinstance(e, Exchange))

    sizes = [sum(map(len, frames)) for frames in CONVERSATION]
    cuts = [data.draw(st.lists(st.integers(0, size), max_size=30)) for size in sizes]
    assert events(cuts) == events([[], []])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.binary(max_size=60), st.integers(0, 20)), max_size=12), st.booleans()
)
def test_arbitrary_bytes_never_raise_and_every_byte_is_accounted_for(
    parts: list[tuple[bool, bytes, int]], opened: bool
) -> None:
    talk = Talk(opened=opened)
    talk.client(ask(1))
    for from_client, data, lost in parts:
        (talk.client if from_client else talk.broker)(data, lost=lost)
    session = talk.close().session()
    for ledger in (session.requests, session.responses):
        assert ledger.seen == ledger.decoded + ledger.undecoded
