"""How a proxy is to be: what the command line has made of its options, values only."""

from __future__ import annotations

import ssl

from msgspec import Struct, field

from kwsniff.model import Endpoint
from kwsniff.proxy.tls import Termination

MB = 1 << 20


class Limits(Struct, frozen=True, kw_only=True):
    """Times are seconds. None: no limit."""

    connections: int = 10_000
    frame: int = 100 * MB
    connect: float = 10.0
    """For a client's greeting, and for a connection to a broker."""
    idle: float | None = 900.0
    """Above connections.max.idle.ms of brokers (10 min): theirs is the first word."""
    drain: float = 10.0


class Settings(Struct, frozen=True, kw_only=True):
    listen: Endpoint
    upstreams: tuple[Endpoint, ...]
    """For a start: any of the cluster."""
    fixed: dict[int, Endpoint] = field(default_factory=dict)
    """Brokers by node id, for those who know where they are."""
    advertise: str | None = None
    """The host that clients are told of; None: where they have connected to."""
    ports: range | None = None
    sni: bool = False
    narrow: bool = True
    tls: Termination | None = None
    """With the clients."""
    upstream_tls: ssl.SSLContext | None = None
    proxy_protocol_in: bool = False
    proxy_protocol_out: bool = False
    limits: Limits = Limits()
    metrics: Endpoint | None = None
