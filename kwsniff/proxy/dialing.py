"""The way to a broker: a TCP connection, the PROXY protocol and TLS on it where they are wanted.

In: addresses, in the order in which they are to be tried. Out: a socket's End that is not yet read, or
`Unreachable`, which says in one line what was tried and why it failed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

from msgspec import Struct

from kwsniff.errors import KwsniffError
from kwsniff.model import Endpoint, Side
from kwsniff.proxy import proxy_protocol
from kwsniff.proxy.end import End
from kwsniff.proxy.failures import told

SHUTDOWN_S = 5.0
"""How long a TLS peer may take to say goodbye."""


class Unreachable(KwsniffError):
    """None of the addresses could be connected to."""


class Dialing(Struct, frozen=True):
    """How brokers are connected to."""

    timeout: float
    tls: ssl.SSLContext | None = None
    proxy_protocol: bool = False

    async def dial(
        self, upstreams: tuple[Endpoint, ...], client: Endpoint, target: Endpoint, what: str
    ) -> End:
        """The first of the addresses that answers; client, target: for the PROXY protocol."""
        failed: list[str] = []
        for upstream in upstreams:
            try:
                async with asyncio.timeout(self.timeout):
                    return await self._dial(upstream, client, target)
            except TimeoutError:
                failed.append(f"{upstream}: no connection within {self.timeout:g} s")
            except OSError as error:
                failed.append(f"{upstream}: {told(error)}")
        raise Unreachable(f"{what} cannot be reached ({'; '.join(failed)})")

    async def _dial(self, upstream: Endpoint, client: Endpoint, target: Endpoint) -> End:
        loop = asyncio.get_running_loop()
        sock = await _connected(upstream)
        try:
            if self.proxy_protocol:
                await loop.sock_sendall(sock, proxy_protocol.write(client, target))
            end = End(Side.RESPONSE)
            await loop.create_connection(lambda: end, sock=sock, **self._tls(upstream))
        except BaseException:
            sock.close()
            raise
        return end

    def _tls(self, upstream: Endpoint) -> dict[str, Any]:
        if self.tls is None:
            return {}
        return {
            "ssl": self.tls,
            "server_hostname": upstream.host,
            "ssl_handshake_timeout": self.timeout,
            "ssl_shutdown_timeout": SHUTDOWN_S,
        }


async def _connected(upstream: Endpoint) -> socket.socket:
    """A socket to the first address of a host that takes it."""
    loop = asyncio.get_running_loop()
    failed: OSError | None = None
    try:  # an address needs no thread to be resolved in
        found = socket.getaddrinfo(*upstream, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await loop.getaddrinfo(*upstream, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            tune(sock)
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            failed = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failed or OSError("it has no address")


def tune(sock: socket.socket) -> None:
    """Small frames leave at once; a peer that has vanished without a word is noticed in the end."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
