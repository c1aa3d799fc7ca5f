"""What a connection that speaks Kafka 0.8+ says: raw frames of both sides -> exchanges and faults.

Reads headers, matches answers, and follows what the conversation tells about itself: client software, SASL
(framed, bare or without a handshake), fetch sessions, topic names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kwsniff import wire
from kwsniff.conversation import detect, resync
from kwsniff.conversation.bodies import decode_token, fault_of, missing
from kwsniff.conversation.fetch_sessions import FETCH, FetchSessions
from kwsniff.conversation.framer import RawFrame
from kwsniff.conversation.headers import (
    PRODUCE,
    RequestHeader,
    acks,
    correlation_id,
    maybe_request_header,
    response_body_at,
)
from kwsniff.conversation.matcher import Matcher, Pair
from kwsniff.conversation.sasl import Authentication
from kwsniff.conversation.topics import TopicNames
from kwsniff.errors import DecodeError, Reason, UnknownMessage
from kwsniff.model import (
    ConnectionId,
    Decoded,
    Exchange,
    Fault,
    FetchedPartition,
    Frame,
    Outcome,
    Peer,
    Protocol,
    Side,
)

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
_UNKNOWN_API = -1
_CLIENT_IDS = 1000
"""Client ids that are remembered of one connection; clients have one."""
_WITH_SASL = defaultdict(lambda: "SASL_PLAINTEXT", SSL="SASL_SSL", SASL_SSL="SASL_SSL")


class KafkaDialect:
    """The Kafka side of one connection. `file` names where the next frames come from."""

    def __init__(
        self,
        conn: ConnectionId,
        peer: Peer,
        decode: Callable[[Frame], Decoded],
        topic_names: TopicNames,
        fetch_sessions: FetchSessions,
        max_frame: int,
    ) -> None:
        self.file: str | None = None
        self.peer = peer
        self._conn = conn
        self._decode = decode
        self._topic_names = topic_names
        self._fetch_sessions = fetch_sessions
        self._max_frame = max_frame
        self._matcher = Matcher(_answers)
        self._client_ids: set[str | None] = set()
        self._authentication = Authentication()
        self._bare_tokens = False
        self._read: tuple[RawFrame, Frame] | None = None

    @property
    def plain(self) -> bool:
        """Whether frames are no bare tokens, and answers are told apart by their ids alone."""
        return not self._bare_tokens and self._matcher.plain

    @property
    def waiting(self) -> Mapping[int | None, Sequence[Any]]:
        """The requests that wait for their answers, by correlation id; as it changes."""
        return self._matcher.by_id

    @property
    def topic_names(self) -> TopicNames:
        return self._topic_names

    @property
    def client_ids(self) -> set[str | None]:
        """Those that this connection's requests have; to be added to."""
        return self._client_ids

    def begin_with_token(self) -> None:
        """A 0.9 client's GSSAPI: bare tokens from the first byte, no handshake (WIRE: SASL, third way)."""
        self._begin_sasl("GSSAPI", bare=True)

    def request(self, raw: RawFrame) -> list[Exchange | Fault]:
        frame = self.read_request(raw)
        return self.ask(frame) if isinstance(frame, Frame) else [frame]

    def read_request(self, raw: RawFrame) -> Frame | Fault:
        """The first half of `request`: what is asked, and what that tells of the client."""
        header = maybe_request_header(raw.data)
        if self._bare_tokens and not self._ends_tokens(raw, header):
            return self._token(raw, Side.REQUEST)
        if header is None:
            return self._headless(raw, Side.REQUEST)
        frame = self._frame(raw, Side.REQUEST, header.api, header.version)
        frame.correlation_id, frame.client_id, frame.body_at = header[2:]
        self._bare_tokens = False
        if len(self._client_ids) < _CLIENT_IDS:
            self._client_ids.add(header.client_id)
        if learn := _LEARN_FROM_REQUEST.get(header.api):
            learn(self, frame)
        return frame

    def ask(self, frame: Frame) -> list[Exchange | Fault]:
        """The second half: an answer is waited for from here on."""
        return self._exchanges(self._matcher.request(frame, self.peer, expects_response(frame)))

    def response(self, raw: RawFrame) -> list[Exchange | Fault]:
        if len(raw.data) < 4 and (raw.lost or not self._bare_tokens):
            if raw.lost:
                self._matcher.gap()
            return [self._headless(raw, Side.RESPONSE)]
        return self._exchanges(self._matcher.response(raw))

    def read_response(self, raw: RawFrame, request: Frame) -> Frame:
        """The first half of `response`, for who wants the frame before it is matched with its request."""
        frame = self._response_frame(raw, request)
        self._read = raw, frame
        return frame

    def asked(self, raw: RawFrame) -> Frame | None:
        """The request that waits for this response; None where none does. Changes nothing."""
        if len(raw.data) < 4 and (raw.lost or not self._bare_tokens):
            return None
        return self._matcher.asked(raw)

    def unasked(self, raw: RawFrame) -> Exchange | Fault:
        """A response that no request can come for any more: it is not kept."""
        if len(raw.data) < 4:
            if raw.lost:
                self._matcher.gap()
            return self._headless(raw, Side.RESPONSE)
        return self._exchange(Pair(None, raw, Outcome.UNMATCHED, None))

    def unanswered(self, request: Frame, outcome: Outcome) -> Exchange | None:
        """A waiting request will get no answer: it is over. None: it does not wait."""
        pair = self._matcher.settle(request, outcome)
        return None if pair is None else self._exchange(pair)

    def gap(self, side: Side) -> None:
        if side is Side.RESPONSE:
            self._matcher.gap()

    def end(self, closed: bool) -> list[Exchange | Fault]:
        return self._exchanges(self._matcher.end(closed))

    def find_request(self, run: bytes, starts: list[int], ended: bool) -> resync.Found:
        return resync.find_request(run, starts, self._client_ids, strict=False, ended=ended)

    def find_response(self, run: bytes, starts: list[int], ended: bool) -> resync.Found:
        matcher = self._matcher
        found = resync.find_response(
            run, starts, matcher.waiting_ids, matcher.answers_waiting, self._max_frame
        )
        if found.at is None and ended and self._client_ids:
            at = resync.chain_start(run, starts, len(run))
            return resync.Found(at, at) if at < len(run) else found
        return found

    def _exchanges(self, pairs: Iterable[Pair]) -> list[Exchange | Fault]:
        return [self._exchange(pair) for pair in pairs] if pairs else []

    def _exchange(self, pair: Pair) -> Exchange:
        request, raw = pair.request, pair.response
        response = None if raw is None else self._response_frame(raw, request)
        if request is not None and response is not None:
            if learn := _LEARN_FROM_RESPONSE.get(request.api):
                learn(self, response)
            self._topic_names.learn(response)
        return Exchange(
            request,
            response,
            pair.outcome,
            self._conn,
            pair.peer or self.peer,
            fetched=self.fetched(request, response),
            topic_names=self._topic_names,
        )

    def fetched(self, request: Frame | None, response: Frame | None) -> tuple[FetchedPartition, ...] | None:
        if request is None or request.api != FETCH or (request.version or 0) < 7:
            return None
        return self._fetch_sessions.fetched(request, response)

    def _frame(self, raw: RawFrame, side: Side, api: int, version: int | None) -> Frame:
        # Positional: every frame passes here, and keywords cost a third of it.
        return Frame(
            raw.ts,
            self._conn,
            side,
            raw.data,
            api,
            version,
            None,
            None,
            0,
            self._decode,
            Protocol.KAFKA,
            raw.end,
            raw.packet,
            raw.size,
            raw.lost,
            raw.cut_off,
            self.file,
        )

    def _response_frame(self, raw: RawFrame, request: Frame | None) -> Frame:
        if self._read is not None:
            read, self._read = self._read, None
            if read[0] is raw:
                return read[1]
        if request is None:
            frame = self._frame(raw, Side.RESPONSE, _UNKNOWN_API, None)
            frame.decoder = _decode_nothing
        elif request.protocol is Protocol.SASL:
            frame = self._token(raw, Side.RESPONSE)
            self._authentication.server_token(raw.data)
            self._note_principal()
            return frame
        else:
            frame = self._frame(raw, Side.RESPONSE, request.api, request.version)
            frame.client_id = request.client_id
            frame.body_at = response_body_at(raw.data, request.api, request.version or 0) or 4
        frame.correlation_id = correlation_id(raw.data)
        return frame

    def _token(self, raw: RawFrame, side: Side) -> Frame:
        frame = self._frame(raw, side, _UNKNOWN_API, None)
        frame.protocol, frame.decoder = Protocol.SASL, decode_token
        if side is Side.REQUEST:
            self._authentication.client_token(raw.data)
        return frame

    def _ends_tokens(self, raw: RawFrame, header: RequestHeader | None) -> bool:
        """Whether this frame, where a bare token may come, is a Kafka request: authentication is over."""
        if header is None or not detect.known(header):
            return False
        if self._client_ids and header.client_id not in self._client_ids:
            return False
        return raw.lost > 0 or detect.decodes(raw.data, header)

    def _headless(self, raw: RawFrame, side: Side) -> Fault:
        frame = self._frame(raw, side, _UNKNOWN_API, None)
        if raw.lost:
            return missing(frame)
        text = f"{len(raw.data)} bytes that are no {side} header"
        return fault_of(frame, Reason.HEADER_INVALID, text, offset=0)

    def _begin_sasl(self, mechanism: str | None, bare: bool) -> None:
        self._authentication = Authentication(mechanism)
        self._bare_tokens = bare
        if self.peer.security_protocol is not None:
            # As the broker has it: nobody until authenticated. GSSAPI does not tell who it is, nor when.
            principal = None if mechanism in (None, "GSSAPI") else "User:ANONYMOUS"
            self.peer = msgspec.structs.replace(
                self.peer, security_protocol=_WITH_SASL[self.peer.security_protocol], principal=principal
            )

    def _note_principal(self) -> None:
        if self._authentication.principal is not None:
            self.peer = msgspec.structs.replace(self.peer, principal=self._authentication.principal)

    def _learn_software(self, frame: Frame) -> None:
        body = frame.body or {}
        name, version = body.get("clientSoftwareName"), body.get("clientSoftwareVersion")
        if name is not None:
            self.peer = msgspec.structs.replace(self.peer, software_name=name, software_version=version)

    def _learn_mechanism(self, frame: Frame) -> None:
        self._begin_sasl((frame.body or {}).get("mechanism"), bare=frame.version == 0)

    def _learn_client_token(self, frame: Frame) -> None:
        self._authentication.client_token((frame.body or {}).get("authBytes") or b"")

    def _learn_server_token(self, response: Frame) -> None:
        body = response.body
        if body is not None and body.get("errorCode") == 0:
            self._authentication.server_token(body.get("authBytes") or b"")
            self._note_principal()


_LEARN_FROM_REQUEST: dict[int, Callable[[KafkaDialect, Frame], None]] = {
    API_VERSIONS: KafkaDialect._learn_software,
    SASL_HANDSHAKE: KafkaDialect._learn_mechanism,
    SASL_AUTHENTICATE: KafkaDialect._learn_client_token,
}
_LEARN_FROM_RESPONSE: dict[int, Callable[[KafkaDialect, Frame], None]] = {
    SASL_AUTHENTICATE: KafkaDialect._learn_server_token,
}


def expects_response(request: Frame) -> bool:
    """Whether Kafka answers it: all but a Produce with acks=0."""
    if request.api != PRODUCE or request.protocol is not Protocol.KAFKA:
        return True
    header = RequestHeader(
        request.api, request.version or 0, request.correlation_id or 0, request.client_id, request.body_at
    )
    return acks(request.raw, header) != 0


def _decode_nothing(_: Frame) -> Decoded:
    return Decoded(None)


def _answers(request: Frame, frame: bytes) -> bool:
    """Whether `frame` decodes as the answer to `request`."""
    if request.version is None:
        return False
    try:
        wire.decode_response(frame, request.api, request.version)
    except DecodeError as error:
        return error.reason is Reason.TRAILING_BYTES
    except UnknownMessage:
        # Nothing can be said against it.
        return True
    return True
