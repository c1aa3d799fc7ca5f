"""What a connection that speaks Kafka 0.7 says: raw frames of both sides -> exchanges and faults.

There are no ids and no versions; answers come in the order of the questions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from kwsniff.conversation import resync
from kwsniff.conversation.bodies import fault_of, missing
from kwsniff.conversation.framer import RawFrame
from kwsniff.errors import DecodeError, Reason
from kwsniff.model import ConnectionId, Decoded, Exchange, Fault, Frame, Outcome, Peer, Protocol, Side
from kwsniff.wire import kafka07


class Kafka07Dialect:
    """The same face as `kafka.KafkaDialect`."""

    def __init__(self, conn: ConnectionId, peer: Peer, decode: Callable[..., Decoded]) -> None:
        self.file: str | None = None
        self.peer = peer
        self._conn = conn
        self._decode = decode
        self._asked: deque[Frame] = deque()
        self._early: deque[RawFrame] = deque()
        self._gap = False

    def request(self, raw: RawFrame) -> list[Exchange | Fault]:
        frame = self.read_request(raw)
        return self.ask(frame) if isinstance(frame, Frame) else [frame]

    def read_request(self, raw: RawFrame) -> Frame | Fault:
        if len(raw.data) < 2:
            self._gap = True
            return self._headless(raw, Side.REQUEST)
        return self._frame(raw, Side.REQUEST, int.from_bytes(raw.data[:2], "big", signed=True))

    def ask(self, frame: Frame) -> list[Exchange | Fault]:
        if not kafka07.expects_response(frame.api):
            return [self._exchange(frame, None, Outcome.NO_ACK)]
        found: list[Exchange | Fault] = []
        while self._gap and self._early and self._early[0].end < frame.ts:
            found.append(self._unmatched(self._early.popleft()))
        if self._early:
            return [*found, self._answered(frame, self._early.popleft())]
        self._asked.append(frame)
        return found

    def response(self, raw: RawFrame) -> list[Exchange | Fault]:
        if self._gap:
            return self._behind_gap(raw)
        if self._asked:
            return [self._answered(self._asked.popleft(), raw)]
        self._early.append(raw)
        return []

    def asked(self, _: RawFrame) -> Frame | None:
        return self._asked[0] if self._asked else None

    def unasked(self, raw: RawFrame) -> Exchange | Fault:
        return self._unmatched(raw)

    def gap(self, _: Side) -> None:
        """Order is all there is: after a gap it does not tell which answer belongs to which question."""
        self._gap = True

    def _behind_gap(self, raw: RawFrame) -> list[Exchange | Fault]:
        """Clients of 0.7 wait for each answer: it belongs to the last question before it that it fits."""
        sent = [number for number, frame in enumerate(self._asked) if frame.ts <= raw.ts]
        place = next((number for number in reversed(sent) if _fits(self._asked[number], raw)), None)
        if not self._asked:
            self._early.append(raw)
            return []
        if place is None:
            return [self._unmatched(raw)]
        found: list[Exchange | Fault] = [
            self._exchange(self._asked.popleft(), None, Outcome.LOST) for _ in range(place)
        ]
        return [*found, self._answered(self._asked.popleft(), raw)]

    def end(self, closed: bool) -> list[Exchange | Fault]:
        outcome = Outcome.CLOSED if closed and not self._gap else Outcome.LOST
        found: list[Exchange | Fault] = [self._exchange(frame, None, outcome) for frame in self._asked]
        found += map(self._unmatched, self._early)
        self._asked.clear()
        self._early.clear()
        return found

    def find_request(self, run: bytes, starts: list[int], _: bool) -> resync.Found:
        return resync.find_request07(run, starts)

    def find_response(self, run: bytes, starts: list[int], _: bool) -> resync.Found:
        """Answers carry no mark; where a chain of sizes ends with the run, it is taken for one."""
        at = resync.chain_start(run, starts, len(run))
        return resync.Found(at if at < len(run) else None, 0)

    def _answered(self, request: Frame, raw: RawFrame) -> Exchange:
        response = self._frame(raw, Side.RESPONSE, request.api)
        response.decoder = partial(self._decode, asked=request)
        return self._exchange(request, response, Outcome.ANSWERED)

    def _unmatched(self, raw: RawFrame) -> Exchange:
        response = self._frame(raw, Side.RESPONSE, -1)
        response.decoder = lambda _: Decoded(None)
        return self._exchange(None, response, Outcome.UNMATCHED)

    def _exchange(self, request: Frame | None, response: Frame | None, outcome: Outcome) -> Exchange:
        return Exchange(request, response, outcome, self._conn, self.peer)

    def _headless(self, raw: RawFrame, side: Side) -> Fault:
        frame = self._frame(raw, side, -1)
        if raw.lost:
            return missing(frame)
        return fault_of(frame, Reason.HEADER_INVALID, "no room for a request type", offset=0)

    def _frame(self, raw: RawFrame, side: Side, api: int) -> Frame:
        return Frame(
            ts=raw.ts,
            conn=self._conn,
            side=side,
            raw=raw.data,
            api=api,
            version=None,
            correlation_id=None,
            client_id=None,
            body_at=2,
            decoder=self._decode,
            protocol=Protocol.KAFKA07,
            end=raw.end,
            packet=raw.packet,
            size=raw.size,
            lost=raw.lost,
            cut_off=raw.cut_off,
            file=self.file,
        )


def _fits(request: Frame, raw: RawFrame) -> bool:
    """Whether the bytes can be the answer to that question."""
    if raw.lost:
        return True
    try:
        body = kafka07.decode_response(raw.data, request.api, request.body)
    except DecodeError:
        return False
    return not any(
        isinstance(entry, DecodeError)
        for _, holder, key, _ in kafka07.record_fields(body)
        for entry in kafka07.Scan(holder[key])
    )
