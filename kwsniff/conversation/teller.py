"""What one proxied connection has to tell: exchanges and faults in their order, byte ledgers, its session.

Kept until `tell`, so that bytes go first. It decides nothing.
"""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from kwsniff.conversation.bodies import decode_body
from kwsniff.conversation.commands import Judge
from kwsniff.conversation.places import Place
from kwsniff.model import ConnectionId, Decoded, Exchange, Fault, Frame, Ledger, Outcome, Peer, Session, Side
from kwsniff.passing import Passed

PREFIX = 4
"""Bytes of a frame's size."""


class Teller:
    """Of one connection, opened at `now`."""

    def __init__(self, conn: ConnectionId, judge: Judge, now: int) -> None:
        self.ledgers = {Side.REQUEST: Ledger(), Side.RESPONSE: Ledger()}
        self._conn = conn
        self._judge = judge
        self._opened = now
        self._untold: deque[Passed | Fault] = deque()
        self._exchanges = self._faults = 0

    def over(self, passed: Passed) -> None:
        self._exchanges += 1
        self._untold.append(passed)

    def fault(self, fault: Fault) -> None:
        self._faults += 1
        self._untold.append(fault)

    def tell(self) -> None:
        while self._untold:
            item = self._untold.popleft()
            if isinstance(item, Passed):
                self._judge.exchanged(item)
            else:
                self._judge.faulted(item)

    def accounted(self, frame: Frame, decoded: Decoded) -> Decoded:
        """A frame counts as decoded until somebody asks for its body and there is none."""
        if decoded.body is None:
            self._shift(frame, frame.size - frame.lost)
        return decoded

    def uncount(self, frame: Frame) -> None:
        """This frame is not what the client sent or got: it is in no ledger."""
        frame.decoder = decode_body
        if "decoded" in frame.__dict__ and frame.body is None:
            self._shift(frame, frame.lost - frame.size)

    def _shift(self, frame: Frame, size: int) -> None:
        ledger = self.ledgers[frame.side]
        ledger.decoded -= size
        ledger.undecoded += size

    def unread(self, length: int) -> None:
        """So many bytes have left to the client that are no frame, nor begin one."""
        ledger = self.ledgers[Side.RESPONSE]
        ledger.seen += length
        ledger.undecoded += length

    def left(self, length: int) -> None:
        """So many bytes of a response have left."""
        ledger = self.ledgers[Side.RESPONSE]
        ledger.seen += length
        ledger.decoded += length

    def session(self, protocol: str | None, peer: Peer, seen: int, now: int) -> Session:
        """seen: bytes that the client has sent."""
        requests = self.ledgers[Side.REQUEST]
        requests.seen = seen
        requests.undecoded = seen - requests.decoded
        return Session(
            conn=self._conn,
            opened=self._opened,
            closed=now,
            first=self._opened,
            last=now,
            protocol=protocol,
            peer=peer,
            requests=requests,
            responses=self.ledgers[Side.RESPONSE],
            exchanges=self._exchanges,
            faults=self._faults,
        )


def passed_of(exchange: Exchange, place: Place | None, number: int = 0) -> Passed:
    """place: of the request; None where there is none. number: of a response without request."""
    received = exchange.response
    if place is None:
        return Passed(exchange=exchange, sent=None, received=received, number=number)
    if place.answer is not None or place.received is not None:
        received = place.received
    exchange.tags = place.tags
    return Passed(
        exchange=exchange,
        sent=place.sent if place.left is not None else None,
        received=received,
        verdicts=place.verdicts,
        number=place.number,
        proxy_ns=0 if place.left is None else place.left - place.request.end,
    )


def given(passed: Passed, began: int, now: int) -> None:
    """The response has left: the client has it from then on."""
    exchange, received = passed.exchange, passed.received
    response = exchange.response
    assert response is not None
    held_since = received.end if received is not None else exchange.request.end if exchange.request else now
    passed.proxy_ns += now - held_since
    if response.ts != began or response.end != now:
        exchange.response = _moved(response, began, now)


def not_given(passed: Passed, length: int) -> None:
    """The connection ends before the response has left; `length` bytes of it have."""
    exchange, response = passed.exchange, passed.exchange.response
    assert response is not None
    if length < PREFIX:
        exchange.response, exchange.outcome = None, Outcome.CLOSED
        return
    lost = response.size - length
    exchange.response = replace(response, raw=response.raw[: length - PREFIX], lost=lost, cut_off=True)


def _moved(frame: Frame, began: int, now: int) -> Frame:
    """The same frame at another time; its body is decoded once for both."""
    moved = replace(frame, ts=began, end=now)
    if "decoded" in frame.__dict__:
        moved.__dict__["decoded"] = frame.decoded
    else:
        frame.decoder = lambda _: moved.decoded
    return moved
