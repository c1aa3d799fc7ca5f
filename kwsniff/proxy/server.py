"""The proxy: listeners, the connections between clients and brokers, and its own life from start to drain.

One event loop. In: settings, and the chain of plugins. Out: an exit status for a supervisor. What fails on
one connection is said in a line and harms no other; a required plugin that fails ends everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from kwsniff.conversation.fetch_sessions import FetchSessions
from kwsniff.conversation.intercept import Interceptor
from kwsniff.conversation.topics import TopicNames
from kwsniff.errors import PluginFailed
from kwsniff.model import ConnectionId, Endpoint, Ledger, Peer, Session
from kwsniff.policy.chain import Chain
from kwsniff.proxy.brokers import Brokers, Names, Route
from kwsniff.proxy.console import Console
from kwsniff.proxy.dialing import Dialing
from kwsniff.proxy.endpoints import WILDCARDS
from kwsniff.proxy.greeting import Greeted, Greeting, Refused
from kwsniff.proxy.link import Link
from kwsniff.proxy.listeners import Listeners
from kwsniff.proxy.settings import Settings

DRAINED, FAILED = 0, 1
_TICK_S = 1.0
_CLOSING_S = 5.0
"""How long who does not read its last bytes is waited for."""
_PAIRS = 65_536
"""Pairs of endpoints whose connections are counted."""

Tick = Callable[[], None]


class Server:
    """Made and run inside a running event loop: `start`, `run`; `stop` ends it, from a signal or a test."""

    def __init__(self, settings: Settings, console: Console, now: Callable[[], int] = time.time_ns) -> None:
        self._settings = settings
        self._console = console
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._listeners = Listeners(settings.listen, self._accepted, self.say, settings.ports)
        self._where = settings.listen
        self._names = Names(settings.advertise or "", lambda: self._where.port) if settings.sni else None
        self.brokers = Brokers(settings.upstreams, settings.fixed, self._names or self._listeners)
        limits = settings.limits
        dialing = Dialing(limits.connect, settings.upstream_tls, settings.proxy_protocol_out)
        self._greeting = Greeting(
            limits.connect, dialing, self.brokers, settings.tls, settings.proxy_protocol_in, self._names
        )
        self._chain = Chain([])
        self._topic_names, self._fetch_sessions = TopicNames(), FetchSessions()
        self._ticks: list[Tick] = []
        self._greeted: set[asyncio.Task[None]] = set()
        self._links: dict[ConnectionId, tuple[Link, Endpoint]] = {}
        self._sessions: OrderedDict[tuple[Endpoint, Endpoint], int] = OrderedDict()
        self._stopping = asyncio.Event()
        self._empty = asyncio.Event()
        self._impatient = asyncio.Event()
        self._status = DRAINED
        self._closed = False

    @property
    def joined(self) -> int:
        """Clients that are connected with a broker."""
        return len(self._links)

    def open_connections(self) -> list[ConnectionId]:
        return list(self._links)

    @property
    def connections(self) -> int:
        """Open ones, and those that are being opened."""
        return len(self._links) + len(self._greeted)

    def told_host(self, conn: ConnectionId) -> str:
        """The host that this client is to be told of for every broker."""
        if self._settings.advertise is not None:
            return self._settings.advertise
        found = self._links.get(conn)
        if self._where.host in WILDCARDS and found is not None:
            return found[1].host
        return self._where.host

    def start(self, chain: Chain, ticks: list[Tick]) -> Endpoint:
        """Listen; where. ticks: what is to be called about once a second. ConfigError, CannotPlace."""
        self._chain, self._ticks = chain, ticks
        self._where = self._listeners.start(self.brokers.bootstrap)
        self.brokers.start()
        return self._where

    async def run(self) -> int:
        """Until `stop` is called and all is drained, or a required plugin fails: the exit status."""
        ticking = self._loop.create_task(self._tick())
        try:
            await self._stopping.wait()
            await self._drain()
        finally:
            ticking.cancel()
            await self._listeners.close()
            await asyncio.gather(ticking, return_exceptions=True)
        await self.close()
        return self._status

    async def close(self) -> None:
        """At the end of `run`, or of a server that could not start: plugins are told."""
        await self._listeners.close()
        if self._closed:
            return
        self._closed = True
        try:
            self._chain.stopped(self._now())
        except PluginFailed as error:
            self.failed(error)

    def stop(self) -> None:
        """Drain, then end. The second time: end now."""
        if self._stopping.is_set():
            self._impatient.set()
        self._stopping.set()

    def handle_signals(self, reload: Callable[[], None] | None) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.stop)
        self._loop.add_signal_handler(signal.SIGHUP, reload or (lambda: None))
        self._loop.set_exception_handler(self._unexpected)

    def say(self, text: str, kind: str | None = None) -> None:
        self._console.say(text, kind)

    def failed(self, error: Exception) -> None:
        """A required plugin has failed: nothing more is forwarded."""
        if self._status == DRAINED:
            self._status = FAILED
            self.say(f"stopped forwarding: {error}")
        self._stopping.set()
        self._impatient.set()
        for link, _ in list(self._links.values()):
            link.abort(reset=True)

    def over(self, link: Link, session: Session | None) -> None:
        self._links.pop(link.conn, None)
        if session is not None and self._status == DRAINED:
            try:
                self._chain.closed(session)
            except PluginFailed as error:
                self.failed(error)
        if not self._links:
            self._empty.set()

    def _accepted(self, sock: socket.socket, route: Route) -> None:
        most = self._settings.limits.connections
        if self.connections >= most:
            self.say(f"refused a client: {most:,} connections are open, see --max-connections", "refused")
            sock.close()
            return
        task = self._loop.create_task(self._greet(sock, route))
        self._greeted.add(task)
        task.add_done_callback(self._greeted.discard)

    async def _greet(self, sock: socket.socket, route: Route) -> None:
        try:
            greeted = await self._greeting.greet(sock, route)
        except Refused as error:
            self.say(str(error), error.why)
            return
        self._join(greeted)

    def _join(self, greeted: Greeted) -> None:
        conn = self._connection_id(greeted.client, greeted.broker)
        now = self._now()
        security = "SSL" if self._settings.tls is not None else "PLAINTEXT"
        interceptor = Interceptor(
            conn,
            self._chain,
            max_frame=self._settings.limits.frame,
            security_protocol=security,
            principal=greeted.principal,
            now=now,
            topic_names=self._topic_names,
            fetch_sessions=self._fetch_sessions,
        )
        link = Link(conn, interceptor, *greeted.ends, self)
        self._links[conn] = link, greeted.local
        self._empty.clear()
        peer = Peer(principal=greeted.principal, security_protocol=security)
        try:
            self._chain.opened(Session(conn, now, None, now, now, None, peer, Ledger(), Ledger()))
        except PluginFailed as error:
            self.failed(error)
        link.start()

    def _connection_id(self, client: Endpoint, broker: Endpoint) -> ConnectionId:
        """Counts the connections of a pair of endpoints, as a capture does."""
        pair = client, broker
        number = self._sessions.pop(pair, -1) + 1
        while (client, broker, number) in self._links:
            number += 1  # the same client's port, by two listeners
        self._sessions[pair] = number
        if len(self._sessions) > _PAIRS:
            self._sessions.popitem(last=False)
        return ConnectionId(client, broker, number)

    async def _drain(self) -> None:
        """No new connections; requests in flight are answered, for a while."""
        await self._listeners.close()
        for task in self._greeted:
            task.cancel()
        await asyncio.gather(*self._greeted, return_exceptions=True)
        for link, _ in list(self._links.values()):
            link.leave()
        if self._links and not self._impatient.is_set():
            await self._until_empty(self._settings.limits.drain)
        if self._links and self._status == DRAINED:
            unanswered = sum(link.in_flight for link, _ in self._links.values())
            self.say(f"cut connections: {len(self._links):,}, unanswered requests: {unanswered:,}")
        for link, _ in list(self._links.values()):
            link.abort()
        while self._links:
            self._empty.clear()
            await self._empty.wait()

    async def _until_empty(self, seconds: float) -> None:
        """All connections have ended, or the time is up, or nobody wants to wait."""
        self._empty.clear()
        waits = [self._loop.create_task(event.wait()) for event in (self._empty, self._impatient)]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            try:
                self._chain.tick(self._now())
            except PluginFailed as error:
                self.failed(error)
            self._sweep(self._loop.time())
            for tick in self._ticks:
                tick()
            self._console.flush()

    def _sweep(self, now: float) -> None:
        """Connections on which nothing happens any more."""
        idle = self._settings.limits.idle
        for link, _ in list(self._links.values()):
            if link.closing_at is not None:
                if now - link.closing_at > _CLOSING_S:
                    link.abort()
            elif idle is not None and now - link.active_at > idle:
                self.say(f"closed connection {link.conn}: no byte for {idle:g} s", "idle connections")
                link.close()

    def _unexpected(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What asyncio would print with a traceback."""
        error = context.get("exception")
        with contextlib.suppress(Exception):
            self.say(f"{context.get('message')}" + (f": {error!r}" if error else ""), "unexpected")
