"""Which brokers there are, and the name and port by which clients reach each of them through the proxy.

In: the brokers that answers name. Out: the address to be told instead, and the route behind it. A broker
whose address changes keeps its port. Opens nothing itself: a `Door` does, when a broker is first seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from msgspec import Struct

from kwsniff.errors import ConfigError, KwsniffError
from kwsniff.model import Endpoint

_MOST = 10_000
"""Brokers that are remembered: an answer may name any number."""
CONTROLLER_PORTS = 1000
"""How far the ports of controllers are above those of brokers with the same node id."""


class CannotPlace(KwsniffError):
    """A broker for which there can be no listener. One line, for the log and the operator."""


class Key(NamedTuple):
    """Who listens at an address: in combined mode a node is a broker and a controller, at two ports."""

    node_id: int | None
    controller: bool = False
    address: Endpoint | None = None
    """Only where no node id is told."""

    def __str__(self) -> str:
        if self.node_id is None:
            return f"broker at {self.address}"
        return f"{'controller' if self.controller else 'broker'} {self.node_id}"


class Route(Struct, eq=False):
    """Where the connections of one listener (or name) go."""

    key: Key | None
    """None: to any broker, for a start."""
    upstreams: tuple[Endpoint, ...]
    """In the order in which they are to be tried."""

    def __str__(self) -> str:
        return "bootstrap" if self.key is None else str(self.key)


class Door(Protocol):
    """What makes a broker reachable."""

    def open(self, route: Route) -> tuple[str, int]:
        """Listen for a broker that is new; the host ("" for: as asked for) and port to be told of it.

        CannotPlace where that is not possible.
        """


class Brokers:
    """fixed: brokers whose address is known better here than the answers tell it (`--map`)."""

    def __init__(self, bootstrap: tuple[Endpoint, ...], fixed: Mapping[int, Endpoint], door: Door) -> None:
        self.bootstrap = Route(None, bootstrap)
        self._fixed = {Key(node_id): address for node_id, address in fixed.items()}
        self._door = door
        self._routes: dict[Key, Route] = {}
        self._places: dict[Key, tuple[str, int]] = {}

    def start(self) -> None:
        """Open what is known from the start."""
        for key, address in self._fixed.items():
            self._found(key, address)

    def route(self, key: Key) -> Route | None:
        return self._routes.get(key)

    def place(self, key: Key, address: Endpoint) -> tuple[str, int]:
        """The host and port to be told of a broker that an answer places at `address`. CannotPlace."""
        place = self._places.get(key)
        if place is None:
            return self._found(key, address)
        route = self._routes[key]
        if key not in self._fixed and route.upstreams[0] != address:
            route.upstreams = (address,)  # it has moved
        return place

    def nameless(self, address: Endpoint) -> Key:
        """Of an address that is told without node id: whose it is, as far as that is known."""
        for key, route in self._routes.items():
            if address in route.upstreams:
                return key
        return Key(None, address=address)

    def _found(self, key: Key, address: Endpoint) -> tuple[str, int]:
        if len(self._places) >= _MOST:
            raise CannotPlace(f"no listener for {key}: there are {_MOST:,} already")
        route = Route(key, (address,))
        self._places[key] = place = self._door.open(route)
        self._routes[key] = route
        return place


class Ports:
    """Which port the listener of a broker has: the same one at each start, wherever that is possible.

    first: the port of the main listener; a broker's is that, plus 1, plus its node id. Or a range: its first
    port plus the node id where that is in it and free, else the lowest that is free.
    """

    def __init__(self, first: int, ports: range | None) -> None:
        self._first = first
        self._range = ports
        self._taken: set[int] = {first}

    def port(self, key: Key) -> int:
        """CannotPlace where there is none (left)."""
        if key.node_id is not None and key.node_id < 0:
            raise CannotPlace(f"no listener for {key}: that is no node id")
        port = self._in_range(key) if self._range is not None else self._counted(key)
        self._taken.add(port)
        return port

    def give_back(self, port: int) -> None:
        """Nobody listens there after all."""
        self._taken.discard(port)

    def _counted(self, key: Key) -> int:
        if key.node_id is None:
            return self._lowest(range(65535, 1023, -1), key)
        port = self._first + 1 + key.node_id + (CONTROLLER_PORTS if key.controller else 0)
        if port > 65535 or port in self._taken:
            what = f"{port} is taken by another broker" if port <= 65535 else f"{port} is no port"
            raise CannotPlace(f"no listener for {key}: {what}; use --port-range")
        return port

    def _in_range(self, key: Key) -> int:
        assert self._range is not None
        if key.node_id is not None and not key.controller and key.node_id < len(self._range):
            port = self._range[key.node_id]
            if port not in self._taken:
                return port
        return self._lowest(self._range, key)

    def _lowest(self, ports: range, key: Key) -> int:
        port = next((port for port in ports if port not in self._taken), None)
        if port is None:
            raise CannotPlace(f"no listener for {key}: every port of --port-range is taken")
        return port


class Names:
    """One port for all brokers, told apart by the name that TLS clients ask for (SNI): broker-1.<domain>."""

    def __init__(self, domain: str, port: Callable[[], int]) -> None:
        if not domain:
            raise ConfigError(
                "--sni needs --advertise: the domain in which clients find broker-1, broker-2, ..."
            )
        self._domain = domain.lower().rstrip(".")
        self._port = port

    def open(self, route: Route) -> tuple[str, int]:
        """A name needs no listener of its own."""
        key = route.key
        assert key is not None
        if key.node_id is None:
            raise CannotPlace(f"no name for {key}: it has no node id")
        kind = "controller" if key.controller else "broker"
        return f"{kind}-{key.node_id}.{self._domain}", self._port()

    def key(self, name: str) -> Key | None:
        """Whom a client means; None: anybody, for a start. LookupError for a name that is not ours."""
        name = name.lower().rstrip(".")
        kind, dash, number = name.removesuffix(f".{self._domain}").partition("-")
        if name == self._domain or name == "localhost":
            return None
        if not name.endswith(f".{self._domain}") or kind not in ("broker", "controller") or not dash:
            raise LookupError(name)
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            raise LookupError(name)
        return Key(int(number), kind == "controller")
