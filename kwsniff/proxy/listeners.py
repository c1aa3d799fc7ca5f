"""Sockets that listen: one for a start, one more for each broker when an answer first names it.

Binding is synchronous, so that a client that is told of a port finds it open; accepting is a task for each
socket. What becomes of an accepted socket is the business of who asked for it.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

from kwsniff.errors import ConfigError
from kwsniff.model import Endpoint
from kwsniff.proxy.brokers import CannotPlace, Ports, Route
from kwsniff.proxy.endpoints import WILDCARDS
from kwsniff.proxy.failures import told

_BACKLOG = 1024
_RETRY_S = 1.0
"""Until the next try where the system has no file descriptor left for another connection."""

Accepted = Callable[[socket.socket, Route], None]
Say = Callable[[str], None]


class Listeners:
    """Owns its sockets and tasks from `open` until `close`. Is used inside a running event loop."""

    def __init__(self, listen: Endpoint, accepted: Accepted, say: Say, ports: range | None = None) -> None:
        self._listen = listen
        self._accepted = accepted
        self._say = say
        self._range = ports
        self._ports = Ports(listen.port, ports)
        self._open: dict[socket.socket, asyncio.Task[None]] = {}

    def start(self, route: Route) -> Endpoint:
        """Open the main listener; where it is (its port may have been 0). ConfigError where it cannot be."""
        try:
            bound = self._bind(self._listen.port, route)
        except OSError as error:
            raise ConfigError(f"cannot listen on {self._listen}: {told(error)}") from error
        self._ports = Ports(bound, self._range)
        return Endpoint(self._listen.host, bound)

    def open(self, route: Route) -> tuple[str, int]:
        """A listener for a broker. CannotPlace."""
        assert route.key is not None
        while True:
            port = self._ports.port(route.key)
            try:
                self._bind(port, route)
                break
            except OSError as error:
                if self._range is not None:
                    continue  # another program's: the range has more
                self._ports.give_back(port)
                where = Endpoint(self._listen.host, port)
                why = f"cannot listen on {where}: {told(error)}"
                raise CannotPlace(f"no listener for {route.key}: {why}") from error
        self._say(f"{route.key} at {route.upstreams[0]} is at {Endpoint(self._listen.host, port)}")
        return "", port

    async def close(self) -> None:
        """No new connections any more; those that wait in a backlog are refused by the system."""
        tasks = list(self._open.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listening in self._open:
            listening.close()
        self._open.clear()

    def _bind(self, port: int, route: Route) -> int:
        listening = _listening(self._listen.host, port)
        listening.setblocking(False)
        self._open[listening] = asyncio.get_running_loop().create_task(self._accept(listening, route))
        return int(listening.getsockname()[1])

    async def _accept(self, listening: socket.socket, route: Route) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno != errno.ECONNABORTED:  # that client has given up
                    self._say(f"cannot accept a connection: {told(error)}")
                    await asyncio.sleep(_RETRY_S)
                continue
            self._accepted(client, route)


def _listening(host: str, port: int) -> socket.socket:
    if host in WILDCARDS - {"0.0.0.0"} and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
