"""One connection in flesh and blood: a client's transport, a broker's, and the interceptor between them.

Bytes and ends go into the interceptor, its commands are carried out, its timer is kept. Back-pressure: who
sends is not read while who receives has enough, or while the interceptor holds enough for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from kwsniff.conversation.intercept import Command, Finish, Interceptor, Send, Shut
from kwsniff.errors import PluginFailed
from kwsniff.model import ConnectionId, Session, Side
from kwsniff.proxy.end import HIGH_WATER, End
from kwsniff.proxy.failures import told

_SENDER = {Side.REQUEST: "client", Side.RESPONSE: "broker"}


class Owner(Protocol):
    """Whom a link tells what its interceptor cannot know."""

    def say(self, text: str, kind: str | None = None) -> None: ...
    def failed(self, error: Exception) -> None:
        """A required plugin has failed: everything is to stop."""

    def over(self, link: Link, session: Session | None) -> None:
        """Both sockets are gone."""


class Link:
    """client and broker: connected, and not yet read."""

    def __init__(
        self, conn: ConnectionId, interceptor: Interceptor, client: End, broker: End, owner: Owner
    ) -> None:
        self.conn = conn
        self._interceptor = interceptor
        self._client, self._broker = client, broker
        self._from = {Side.REQUEST: client, Side.RESPONSE: broker}
        self._to = {Side.REQUEST: broker, Side.RESPONSE: client}
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self.active_at = self._loop.time()
        """When a byte last came, on the loop's clock."""
        self.closing_at: float | None = None
        """When closing began: who does not read its last bytes is not waited for without end."""
        self._ended: set[Side] = set()
        self._finished: set[Side] = set()
        self._leaving = False
        self._over = False
        self._wake_at: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Read both ends from now on."""
        ends = self._client, self._broker
        for end in ends:
            end.taken(self)
        for end in ends:
            end.catch_up()
        self._after(time.time_ns())

    @property
    def in_flight(self) -> int:
        return self._interceptor.in_flight

    def received(self, side: Side, data: bytes) -> None:
        self.active_at = self._loop.time()
        self._step(self._interceptor.receive, side, data)

    def ended(self, side: Side) -> None:
        """No more bytes will come from that side's sender."""
        if side in self._ended:
            return
        self._ended.add(side)
        broker_first = side is Side.RESPONSE and Side.REQUEST not in self._ended
        if broker_first and self.closing_at is None and self.in_flight:
            self._owner.say(
                f"broker {self.conn.broker} closed its connection with client {self.conn.client},"
                f" {_requests(self.in_flight)} unanswered",
                "connections that brokers closed",
            )
        self._step(self._interceptor.finish, side)

    def lost(self, side: Side, error: Exception | None) -> None:
        """That side's socket is gone, both ways."""
        if error is not None and self.closing_at is None:
            who = self.conn.client if side is Side.REQUEST else self.conn.broker
            self._owner.say(
                f"lost {_SENDER[side]} {who} (connection {self.conn}): {_told(error)},"
                f" {_requests(self.in_flight)} unanswered",
                f"{_SENDER[side]}s lost",
            )
            self._ended.add(side)
            self._step(self._interceptor.finish, side)
        self.ended(side)
        if side in self._finished:
            self._to[side].close()
        if self._client.gone and self._broker.gone:
            self._end()

    def leave(self) -> None:
        """Take no more requests; close when those in flight are answered."""
        self._leaving = True
        self._after(time.time_ns())

    def close(self) -> None:
        """Both sides, after what was sent before has left."""
        if self.closing_at is None:
            self.closing_at = self._loop.time()
        self._client.close()
        self._broker.close()

    def abort(self, *, reset: bool = False) -> None:
        if self.closing_at is None:
            self.closing_at = self._loop.time()
        self._client.abort(reset=reset)
        self._broker.abort(reset=reset)

    def balance(self) -> None:
        """Who is read: each whose receiver can have more. A client that reads no answers asks no more."""
        holds = self._interceptor.holds
        full = self._broker.full or self._client.full or self._leaving
        self._client.read(not full and holds(Side.REQUEST) <= HIGH_WATER)
        self._broker.read(not self._client.full and holds(Side.RESPONSE) <= HIGH_WATER)

    def _step(self, what: Callable[..., list[Command]], *arguments: object) -> None:
        if self._over:
            return
        now = time.time_ns()
        try:
            self._carry_out(what(*arguments, now))
            self._interceptor.tell()
        except PluginFailed as error:
            self._owner.failed(error)
            return
        except Exception as error:  # ours: this connection is lost, the others go on
            self._owner.say(f"connection {self.conn} is given up, a bug in kwsniff: {_told(error)}")
            self.abort(reset=True)
            return
        self._after(now)

    def _carry_out(self, commands: Iterable[Command]) -> None:
        waiting: list[bytes] = []  # for one side: fewer, larger writes
        way = Side.REQUEST
        for command in commands:
            if isinstance(command, Send) and command.side is way:
                waiting.append(command.data)
                continue
            self._write(way, waiting)
            waiting = []
            if isinstance(command, Send):
                way = command.side
                waiting.append(command.data)
            elif isinstance(command, Finish):
                self._finish(command.side)
            else:
                self._shut(command)
        self._write(way, waiting)

    def _write(self, way: Side, waiting: list[bytes]) -> None:
        if waiting:
            self._to[way].write(waiting[0] if len(waiting) == 1 else b"".join(waiting))

    def _finish(self, side: Side) -> None:
        self._finished.add(side)
        if len(self._finished) == 2 or (side is Side.RESPONSE and self._from[side].gone):
            self.close()
        elif self._from[side].gone:
            self._to[side].close()
        elif not self._to[side].half_close():
            if side is Side.RESPONSE:
                self.close()
            else:
                self._leaving = True  # TLS to the broker: it learns of the end when all is answered

    def _shut(self, command: Shut) -> None:
        if command.why:
            self._owner.say(
                f"closed the connection of client {self.conn.client} with broker {self.conn.broker}:"
                f" {command.why}",
                "connections closed",
            )
        if command.reset:
            self.abort(reset=True)
        else:
            self.close()

    def _after(self, now: int) -> None:
        """What follows from the interceptor's state, whatever has changed it."""
        if self._leaving and self.closing_at is None and not self._interceptor.in_flight:
            self.close()
        self.balance()
        self._set_timer(now)

    def _set_timer(self, now: int) -> None:
        wake_at = None if self._over else self._interceptor.wake_at
        if wake_at == self._wake_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake_at = wake_at
        if wake_at is not None:
            self._timer = self._loop.call_later(max(wake_at - now, 0) / 1e9, self._wake)

    def _wake(self) -> None:
        self._timer = self._wake_at = None
        self._step(self._interceptor.wake)

    def _end(self) -> None:
        if self._over:
            return
        self._over = True
        self._set_timer(0)
        try:
            session = self._interceptor.end(time.time_ns())
        except PluginFailed as error:
            self._owner.failed(error)
            session = None
        self._owner.over(self, session)


def _requests(count: int) -> str:
    return f"{count:,} request" + ("" if count == 1 else "s")


def _told(error: Exception) -> str:
    return told(error) if isinstance(error, OSError) else repr(error)
