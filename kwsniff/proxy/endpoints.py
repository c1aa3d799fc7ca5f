"""`HOST:PORT` as people write it -> Endpoint. Knows nothing of what is there.

IPv6 addresses stand in brackets. Mistakes are ConfigError, and name what was written.
"""

from __future__ import annotations

import re

from kwsniff.errors import ConfigError
from kwsniff.model import Endpoint

_WRITTEN = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\s:\[\],/=@]*)):(?P<port>\d{1,5})")
WILDCARDS = frozenset(("", "0.0.0.0", "::"))
"""Hosts that mean every address of this machine: to be listened on, not to be told to clients."""


def endpoint(text: str, *, any_host: bool = False, any_port: bool = False) -> Endpoint:
    """One `HOST:PORT`.

    any_host: `:9092` is every address of this machine; any_port: port 0 lets the system choose.
    """
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"'{text}' is no HOST:PORT (such as broker-1:9092 or [::1]:9092)")
    host, port = found["six"] or found["host"], int(found["port"])
    if not host and not any_host:
        raise ConfigError(f"'{text}' names no host: write HOST:{port}")
    if port > 65535 or (port == 0 and not any_port):
        raise ConfigError(f"'{text}': {port} is no port")
    return Endpoint(host, port)


def endpoints(text: str) -> tuple[Endpoint, ...]:
    """`HOST:PORT[,HOST:PORT]...`, in the order in which they are to be tried."""
    return tuple(endpoint(part) for part in text.split(","))


def node(text: str) -> tuple[int, Endpoint]:
    """`NODE=HOST:PORT`: a broker's node id, and where it is."""
    number, equals, where = text.partition("=")
    if not equals or not re.fullmatch(r"\d{1,9}", number.strip()):
        raise ConfigError(f"'{text}' is no NODE=HOST:PORT (such as 1=broker-1:9092)")
    return int(number), endpoint(where)


def port_range(text: str) -> range:
    """`FIRST-LAST`, both of them included."""
    found = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text.strip())
    ports = range(int(found[1]), int(found[2]) + 1) if found else range(0)
    if not ports or ports[0] < 1 or ports[-1] > 65535:
        raise ConfigError(f"'{text}' is no range of ports (such as 20000-20099)")
    return ports
