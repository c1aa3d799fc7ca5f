"""An accepted socket until it is connected through: PROXY protocol, TLS, whom it wants, the broker's side.

All of it within the connect timeout. Out: both ends, not yet read, and who they are; or `Refused`, with one
line that names the client and what was wrong. Sockets that come to nothing are closed here.
"""

from __future__ import annotations

import asyncio
import socket
from typing import NamedTuple

from msgspec import Struct

from kwsniff.errors import KwsniffError
from kwsniff.model import Endpoint, Side
from kwsniff.proxy import proxy_protocol
from kwsniff.proxy.brokers import Brokers, Names, Route
from kwsniff.proxy.dialing import SHUTDOWN_S, Dialing, Unreachable, tune
from kwsniff.proxy.end import End
from kwsniff.proxy.failures import told
from kwsniff.proxy.tls import Termination, principal


class Refused(KwsniffError):
    """A client that was not connected through. One line; `why` is the same without the client's name."""

    def __init__(self, who: str, why: str) -> None:
        super().__init__(f"{who}: {why}")
        self.why = why


class Greeted(NamedTuple):
    client: Endpoint
    """Its own address, as the PROXY protocol has it where that is spoken."""
    local: Endpoint
    """The proxy's address that it has connected to."""
    broker: Endpoint
    principal: str | None
    """As its certificate has it."""
    ends: tuple[End, End]
    """Of the client and of the broker."""


class _Visit:
    """What there is of a client so far, to be thrown away when it comes to nothing."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.who = "a client"
        self.client: End | None = None
        self.broker: End | None = None

    def drop(self) -> None:
        for end in (self.client, self.broker):
            if end is not None:
                end.abort()
        self.sock.close()


class Greeting(Struct, frozen=True):
    """How clients are received. names: told apart by SNI, in place of ports."""

    timeout: float
    dialing: Dialing
    brokers: Brokers
    tls: Termination | None = None
    proxy_protocol: bool = False
    names: Names | None = None

    async def greet(self, sock: socket.socket, route: Route) -> Greeted:
        """Takes the socket over, whatever happens. Raises Refused."""
        visit = _Visit(sock)
        try:
            return await self._greet(visit, route)
        except TimeoutError as error:
            visit.drop()
            late = f"it did not finish its greeting (TLS, PROXY protocol) within {self.timeout:g} s"
            raise Refused(visit.who, late) from error
        except OSError as error:
            visit.drop()
            raise Refused(visit.who, told(error)) from error
        except (Unreachable, ValueError) as error:
            visit.drop()
            raise Refused(visit.who, str(error)) from error
        except BaseException:
            visit.drop()
            raise

    async def _greet(self, visit: _Visit, route: Route) -> Greeted:
        sock = visit.sock
        peer, local = _endpoint(sock.getpeername()), _endpoint(sock.getsockname())
        visit.who = f"client {peer}"
        tune(sock)
        async with asyncio.timeout(self.timeout):
            client, target = await self._proxied(sock, peer, local)
            visit.who = f"client {client}"
            name = principal(None)
            if self.tls is not None:
                visit.client = await self._secured(sock, self.tls, local)
                route = self._wanted(visit.client, route)
                name = principal(_tls_of(visit.client))
        visit.broker = broker = await self.dialing.dial(route.upstreams, client, target, str(route))
        assert broker.transport is not None
        address = broker.transport.get_extra_info("peername")
        if visit.client is None:
            loop = asyncio.get_running_loop()
            visit.client = end = End(Side.REQUEST)
            await loop.connect_accepted_socket(lambda: end, sock)
        return Greeted(client, local, _endpoint(address), name, (visit.client, broker))

    async def _proxied(
        self, sock: socket.socket, peer: Endpoint, local: Endpoint
    ) -> tuple[Endpoint, Endpoint]:
        """Who has connected, and to what address: the PROXY protocol's word where it is spoken."""
        if not self.proxy_protocol:
            return peer, local
        loop = asyncio.get_running_loop()
        data = b""
        while (header := proxy_protocol.maybe_header(data)) is None:
            more = await loop.sock_recv(sock, proxy_protocol.needed(data))
            if not more:
                raise ValueError("it left before its PROXY protocol header was whole")
            data += more
        return header.client or peer, header.target or local

    async def _secured(self, sock: socket.socket, termination: Termination, local: Endpoint) -> End:
        loop = asyncio.get_running_loop()
        end = End(Side.REQUEST)
        try:
            # What it returns is not always `end`: for TLS, uvloop gives a protocol of its own.
            await loop.connect_accepted_socket(
                lambda: end,
                sock,
                ssl=termination.context(local.host),
                ssl_handshake_timeout=self.timeout,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except ConnectionError as error:
            raise ConnectionError("it broke off the TLS handshake; perhaps it does not trust us") from error
        return end

    def _wanted(self, end: End, route: Route) -> Route:
        """Whom a client means by the name that it has asked for."""
        if self.names is None or self.tls is None:
            return route
        name = self.tls.name(_tls_of(end))
        if name is None:
            return route
        try:
            key = self.names.key(name)
        except LookupError:
            raise ValueError(f"it asks for {name!r}, which is no broker's name here") from None
        if key is None:
            return route
        found = self.brokers.route(key)
        if found is None:
            raise ValueError(f"it asks for {key}, of which no answer has told yet; --map can")
        return found


def _tls_of(end: End) -> object:
    return None if end.transport is None else end.transport.get_extra_info("ssl_object")


def _endpoint(address: tuple[str, int]) -> Endpoint:
    # An IPv4 client of a socket for both families is told as what it is.
    return Endpoint(address[0].removeprefix("::ffff:") if "." in address[0] else address[0], address[1])
