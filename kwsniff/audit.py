"""Who would a Kafka release refuse: the versions that clients sent against those that the release serves.

In: the events of captures and a release. Out: per client its APIs with a verdict and packets as evidence.
Clients negotiate, so a refused version is no proof by itself: what the broker offered, as its ApiVersions
answer tells, decides. Knows no output format.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from kwsniff import wire
from kwsniff.model import ConnectionId, Exchange, Fault, Frame, Protocol, Session
from kwsniff.wire import releases

API_VERSIONS = 18
_EVIDENCE = 5
_UNSUPPORTED_VERSION = 35

Range = tuple[int, int]


class Verdict(StrEnum):
    """From bad to good."""

    BREAKS = "breaks"
    UNKNOWN = "unknown"
    OK = "ok"


_WORST = {verdict: rank for rank, verdict in enumerate(Verdict)}


class Client(NamedTuple):
    """Who: one address, client id and software. Ports change with every connection."""

    address: str
    client_id: str | None
    software_name: str | None
    software_version: str | None


class Packet(NamedTuple):
    file: str | None
    number: int


@dataclass
class Use:
    """How often a client sent an API in one version, and where first. version None: Kafka 0.7."""

    version: int | None
    refused: bool = False
    requests: int = 0
    packets: list[Packet] = field(default_factory=list)

    def add(self, other: Use) -> None:
        self.requests += other.requests
        self.packets = (self.packets + other.packets)[:_EVIDENCE]


@dataclass
class ApiReport:
    """One API of one client. served: by the target; offered: by a broker seen; None: not at all."""

    api: int
    name: str
    verdict: Verdict
    reason: str
    served: Range | None
    offered: Range | None
    uses: list[Use]


@dataclass
class ClientReport:
    client: Client
    verdict: Verdict
    connections: int
    apis: list[ApiReport]


@dataclass
class Report:
    target: str
    verdict: Verdict
    clients: list[ClientReport]


class _Key(NamedTuple):
    """What of a request counts. protocol tells Kafka 0.7's keys from those of today."""

    api: int
    protocol: Protocol


@dataclass
class _Connection:
    """What one connection has told."""

    opened: bool = False
    asked: bool = False
    offers: Mapping[int, Range] | None = None
    software: tuple[str | None, str | None] = (None, None)
    uses: dict[str | None, dict[_Key, dict[int | None, Use]]] = field(default_factory=dict)

    def saw(self, exchange: Exchange) -> None:
        request = exchange.request
        peer = exchange.peer
        if peer.software_name is not None:
            self.software = (peer.software_name, peer.software_version)
        if request is None or request.protocol is Protocol.SASL:
            return
        if request.api == API_VERSIONS and request.protocol is Protocol.KAFKA:
            self._negotiated(request, exchange.response)
        versions = self.uses.setdefault(request.client_id, {}).setdefault(
            _Key(request.api, request.protocol), {}
        )
        packet = Packet(request.file, request.packet)
        versions.setdefault(request.version, Use(request.version)).add(
            Use(request.version, requests=1, packets=[packet])
        )

    def _negotiated(self, request: Frame, response: Frame | None) -> None:
        self.asked = True
        asked = request.body or {}
        if asked.get("clientSoftwareName"):
            self.software = (asked["clientSoftwareName"], asked.get("clientSoftwareVersion"))
        body = response.body if response else None
        if body is None or body.get("errorCode") == _UNSUPPORTED_VERSION:
            return
        self.offers = {
            entry["apiKey"]: (entry["minVersion"], entry["maxVersion"]) for entry in body["apiKeys"]
        }


def audit(events: Iterable[Exchange | Fault | Session], target: str) -> Report:
    """Reads all events. `target`: a release as `releases.served` knows them (4.0, 4.0.1, 3.9)."""
    connections: dict[ConnectionId, _Connection] = defaultdict(_Connection)
    for event in events:
        if isinstance(event, Exchange):
            connections[event.conn].saw(event)
        elif isinstance(event, Session) and event.conn in connections:
            connections[event.conn].opened = event.opened is not None
    clients = [_client_report(client, parts, target) for client, parts in _by_client(connections).items()]
    clients.sort(key=lambda report: (_WORST[report.verdict], _sortable(report.client)))
    return Report(target, _worst(report.verdict for report in clients), clients)


_Part = tuple[ConnectionId, _Connection, dict[_Key, dict[int | None, Use]]]


def _by_client(connections: Mapping[ConnectionId, _Connection]) -> dict[Client, list[_Part]]:
    """Connections by who they belong to; one without software to the only client known at its address."""
    known: dict[tuple[str, str | None], set[tuple[str | None, str | None]]] = defaultdict(set)
    for conn, connection in connections.items():
        for client_id in connection.uses:
            if connection.software[0] is not None:
                known[conn.client.host, client_id].add(connection.software)
    clients: dict[Client, list[_Part]] = defaultdict(list)
    for conn, connection in connections.items():
        for client_id, uses in connection.uses.items():
            software = connection.software
            others = known[conn.client.host, client_id]
            if software[0] is None and len(others) == 1:
                (software,) = others
            clients[Client(conn.client.host, client_id, *software)].append((conn, connection, uses))
    return clients


def _client_report(client: Client, parts: list[_Part], target: str) -> ClientReport:
    keys = sorted({key for _, _, uses in parts for key in uses}, key=lambda key: (key.protocol, key.api))
    apis = [_api_report(key, parts, target) for key in keys]
    apis.sort(key=lambda report: _WORST[report.verdict])
    return ClientReport(client, _worst(report.verdict for report in apis), len(parts), apis)


def _api_report(key: _Key, parts: list[_Part], target: str) -> ApiReport:
    kafka07 = key.protocol is Protocol.KAFKA07
    served = None if kafka07 else releases.served(target, key.api)
    merged: dict[int | None, Use] = {}
    verdict, reason, offered = Verdict.OK, "", None
    for conn, connection, uses in parts:
        for version, use in uses.get(key, {}).items():
            merged.setdefault(version, Use(version, not _serves(served, version))).add(use)
            ranges = _offers(conn, connection, parts)
            offer = ranges.get(key.api) if ranges is not None else None
            offered = offered or offer
            if merged[version].refused and not (key.api == API_VERSIONS and served):
                found, why = _judge(version, served, offer, ranges is not None, connection, parts, target)
                if _WORST[found] < _WORST[verdict]:
                    verdict, reason = found, why
    uses_by_version = sorted(merged.values(), key=lambda use: -1 if use.version is None else use.version)
    return ApiReport(key.api, _name(key), verdict, reason, served, offered, uses_by_version)


def _serves(served: Range | None, version: int | None) -> bool:
    return served is not None and version is not None and served[0] <= version <= served[1]


def _offers(conn: ConnectionId, own: _Connection, parts: list[_Part]) -> Mapping[int, Range] | None:
    """The broker's answer: on this connection, else on another to it, else any that the client saw."""
    if own.offers is not None:
        return own.offers
    told = [(other, part.offers) for other, part, _ in parts if part.offers is not None]
    same = [offers for other, offers in told if other.broker == conn.broker]
    return next(iter(same or [offers for _, offers in told]), None)


def _judge(
    version: int | None,
    served: Range | None,
    offer: Range | None,
    answered: bool,
    connection: _Connection,
    parts: list[_Part],
    target: str,
) -> tuple[Verdict, str]:
    """The verdict on a version that the target refuses."""
    if version is None:
        return Verdict.BREAKS, "it speaks Kafka 0.7"
    if not any(part.asked for _, part, _ in parts):
        if connection.opened:
            return Verdict.BREAKS, "the client never asked for ApiVersions"
        return Verdict.UNKNOWN, "the connection began before the capture: whether it asked was not seen"
    if not answered:
        return Verdict.UNKNOWN, "the broker's ApiVersions answer was not seen"
    if offer is None:
        return Verdict.UNKNOWN, "the broker did not offer this API at all"
    newer = served and (max(version + 1, offer[0], served[0]), min(offer[1], served[1]))
    if newer and newer[0] <= newer[1]:
        return Verdict.BREAKS, f"the broker offered {span(newer)}, which {target} takes, and it was not used"
    if version >= offer[1]:
        return Verdict.UNKNOWN, f"v{version} was the most that the broker offered"
    return Verdict.UNKNOWN, f"the broker offered {span(offer)}, of which {target} takes nothing newer"


def _name(key: _Key) -> str:
    if key.protocol is Protocol.KAFKA07:
        from kwsniff.wire import kafka07

        return f"{kafka07.NAMES.get(key.api, key.api)} (0.7)"
    return wire.api_name(key.api)


def span(versions: Range) -> str:
    """`v3-12`, `v3`."""
    return f"v{versions[0]}" if versions[0] == versions[1] else f"v{versions[0]}-{versions[1]}"


def _worst(verdicts: Iterable[Verdict]) -> Verdict:
    return min(verdicts, key=_WORST.__getitem__, default=Verdict.OK)


def _sortable(client: Client) -> tuple[str, ...]:
    return tuple(part or "" for part in client)


def as_dict(report: Report) -> dict[str, Any]:
    """The report as it goes to JSON."""
    return {
        "target": report.target,
        "verdict": report.verdict,
        "clients": [
            {
                "address": entry.client.address,
                "clientId": entry.client.client_id,
                "softwareName": entry.client.software_name,
                "softwareVersion": entry.client.software_version,
                "verdict": entry.verdict,
                "connections": entry.connections,
                "apis": [_api_dict(api) for api in entry.apis],
            }
            for entry in report.clients
        ],
    }


def _api_dict(api: ApiReport) -> dict[str, Any]:
    return {
        "apiKey": api.api,
        "api": api.name,
        "verdict": api.verdict,
        "reason": api.reason or None,
        "served": api.served,
        "offered": api.offered,
        "versions": [
            {
                "version": use.version,
                "refused": use.refused,
                "requests": use.requests,
                "packets": [{"file": packet.file, "packet": packet.number} for packet in use.packets],
            }
            for use in api.uses
        ],
    }
