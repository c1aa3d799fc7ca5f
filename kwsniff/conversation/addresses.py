"""Where answers tell a client which brokers there are, and other addresses put in their place.

In: an answer's API, version and body. Out: the nodes that it names, or a copy of the body in which somebody
else's choice of host and port stands instead; everything else is as it was, unknown tags too. Also the answer
to ApiVersions, narrowed to what can be read: a version that nobody here knows may carry addresses in a place
that nobody here knows. Refuses to know which address is right, and never changes the body that it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from kwsniff import wire
from kwsniff.model import Body
from kwsniff.wire.schema import Versions

DESCRIBE_CLUSTER = 60
_CONTROLLERS = 2
"""DescribeCluster's endpointType for the nodes of the quorum (KIP-919)."""


class Node(NamedTuple):
    """An address that an answer gives to its client."""

    node_id: int | None
    """None where the answer does not say whose it is."""
    host: str
    port: int
    controller: bool = False
    """It is a listener for controllers. In combined mode the same node has others, for clients."""


Place = Callable[[Node], tuple[str, int] | None]
"""Where a node is to be found instead, host and port; None: where it says."""


class Carrier(NamedTuple):
    """A struct of an answer that holds `host` and `port` of a node."""

    api: int
    versions: Versions
    path: tuple[str, ...]
    """The fields that lead to it, arrays and structs alike; () is the body itself."""
    node_id: str
    """The field with the node's id: its own, or of the struct around it."""
    controller: bool = False


CARRIERS = (
    Carrier(0, Versions(10, 13), ("nodeEndpoints",), "nodeId"),
    Carrier(1, Versions(16, 18), ("nodeEndpoints",), "nodeId"),
    Carrier(3, Versions(0, 13), ("brokers",), "nodeId"),
    # Version 0 is also the ConsumerMetadata of 0.8.2.
    Carrier(10, Versions(0, 3), (), "nodeId"),
    Carrier(10, Versions(4, 6), ("coordinators",), "nodeId"),
    Carrier(52, Versions(1, 2), ("nodeEndpoints",), "nodeId", True),
    Carrier(53, Versions(1, 1), ("nodeEndpoints",), "nodeId", True),
    Carrier(54, Versions(1, 1), ("nodeEndpoints",), "nodeId", True),
    Carrier(55, Versions(2, 2), ("nodes", "listeners"), "nodeId", True),
    Carrier(59, Versions(1, 1), ("nodeEndpoints",), "nodeId", True),
    Carrier(DESCRIBE_CLUSTER, Versions(0, 2), ("brokers",), "brokerId"),
    Carrier(78, Versions(0, 2), ("nodeEndpoints",), "nodeId"),
    Carrier(79, Versions(0, 2), ("nodeEndpoints",), "nodeId"),
    Carrier(82, Versions(0, 0), ("currentLeader",), "leaderId", True),
)

_CLIENT = "where a member's client runs"
_ACL = "the host that an ACL is about"
_APPLICATION = "where an instance of a Streams application serves its own state (KIP-1071)"
LEFT_ALONE: dict[tuple[int, tuple[str, ...]], str] = {
    (15, ("groups", "members", "clientHost")): _CLIENT,
    (29, ("resources", "acls", "host")): _ACL,
    (31, ("filterResults", "matchingAcls", "host")): _ACL,
    (69, ("groups", "members", "clientHost")): _CLIENT,
    (77, ("groups", "members", "clientHost")): _CLIENT,
    (88, ("partitionsByUserEndpoint", "userEndpoint", "host")): _APPLICATION,
    (89, ("groups", "members", "clientHost")): _CLIENT,
    (89, ("groups", "members", "userEndpoint", "host")): _APPLICATION,
}
"""Hosts in answers that are no brokers', by API and field, and what they are."""

APIS = frozenset(carrier.api for carrier in CARRIERS)
"""The APIs whose answers may carry addresses, in one version or another."""


def nodes(api: int, version: int, body: Body) -> list[Node]:
    """The nodes that an answer gives addresses of, in its order. One without an address is not among them."""
    found: list[Node] = []

    def see(node: Node) -> None:
        found.append(node)

    rewritten(api, version, body, see)
    return found


def rewritten(api: int, version: int, body: Body, place: Place) -> Body | None:
    """A copy of an answer's body with every address as `place` has it; None: nothing is to change.

    A node without an address (no host, port -1, or node -1: "there is none") stays as it is.
    """
    changed: Body | None = None
    for carrier in _carriers(api):
        if carrier.versions.covers(version):
            changed = _changed(changed or body, carrier.path, _of(carrier, body), None, place) or changed
    return changed


def narrowed(body: Body, limits: Mapping[int, tuple[int, int]] | None = None) -> Body | None:
    """An ApiVersions answer that offers no more than `limits`, API key -> (lowest, highest version).

    Without limits: what the wire room knows. APIs of which nothing is left are left out, unknown ones too.
    An answer with an error (the fallback of KIP-511) stays. None: nothing is to change.
    """
    if body.get("errorCode") != 0:
        return None
    limits = known() if limits is None else limits
    offered = body["apiKeys"]
    kept = [entry for entry in (_within(entry, limits) for entry in offered) if entry is not None]
    return None if kept == offered else {**body, "apiKeys": kept}


@cache
def known() -> Mapping[int, tuple[int, int]]:
    """Every API that can be decoded, with its versions."""
    return {
        m.api_key: m.valid_versions for m in wire.messages() if m.type == "request" and m.api_key is not None
    }


def _within(entry: Body, limits: Mapping[int, tuple[int, int]]) -> Body | None:
    limit = limits.get(entry["apiKey"])
    if limit is None:
        return None
    low, high = max(entry["minVersion"], limit[0]), min(entry["maxVersion"], limit[1])
    return {**entry, "minVersion": low, "maxVersion": high} if low <= high else None


@cache
def _carriers(api: int) -> tuple[Carrier, ...]:
    return tuple(carrier for carrier in CARRIERS if carrier.api == api)


def _of(carrier: Carrier, body: Body) -> Carrier:
    """DescribeCluster says in its body of which kind its nodes are."""
    if carrier.api == DESCRIBE_CLUSTER and body.get("endpointType") == _CONTROLLERS:
        return carrier._replace(controller=True)
    return carrier


def _changed(
    holder: Body, path: tuple[str, ...], carrier: Carrier, node_id: int | None, place: Place
) -> Body | None:
    """A copy of `holder` with the addresses behind `path` changed; None: they stay."""
    node_id = holder.get(carrier.node_id, node_id)
    if not path:
        return _moved(holder, node_id, carrier.controller, place)
    value: Any = holder.get(path[0])
    changed: Any = None
    if isinstance(value, dict):
        changed = _changed(value, path[1:], carrier, node_id, place)
    elif isinstance(value, list):
        items = [_changed(item, path[1:], carrier, node_id, place) for item in value]
        if any(item is not None for item in items):
            changed = [old if new is None else new for old, new in zip(value, items, strict=True)]
    return None if changed is None else {**holder, path[0]: changed}


def _moved(holder: Body, node_id: int | None, controller: bool, place: Place) -> Body | None:
    # A layout that only some releases wrote may be without them.
    host, port = holder.get("host"), holder.get("port", -1)
    if not host or port < 0 or node_id == -1:
        return None
    found = place(Node(node_id, host, port, controller))
    if found is None or found == (host, port):
        return None
    return {**holder, "host": found[0], "port": found[1]}
