"""The plugin that keeps clients on the proxy: broker addresses in answers become those of its listeners.

Comes behind all other plugins that change frames. Narrows the versions that brokers offer (ApiVersions) to
those that can be read, since a newer one may carry addresses where nobody looks for them; an answer whose
addresses it cannot change closes the connection rather than show the client a way past the proxy.
"""

from __future__ import annotations

from collections.abc import Callable

from kwsniff import wire
from kwsniff.conversation import addresses, refusal
from kwsniff.hooks import hookimpl
from kwsniff.model import ConnectionId, Endpoint, Frame, Protocol
from kwsniff.passing import Close, Passing, Replace, Verdict
from kwsniff.proxy.brokers import Brokers, CannotPlace, Key
from kwsniff.wire.schema import Versions

Told = Callable[[ConnectionId], str]
"""The host that the client of a connection is to be told of."""


class Rewriting:
    """told: for listeners on every address of this machine it depends on the client what is to be told.

    narrow: offer no version that cannot be read. Without it such answers pass, whatever they hold.
    """

    def __init__(self, brokers: Brokers, told: Told, *, narrow: bool = True) -> None:
        self._brokers = brokers
        self._told = told
        self._narrow = narrow
        self._spans: dict[int, list[Versions]] = {}
        for carrier in addresses.CARRIERS:
            self._spans.setdefault(carrier.api, []).append(carrier.versions)

    @hookimpl
    def wants(self) -> list[str]:
        apis = addresses.APIS | ({wire.API_VERSIONS} if self._narrow else set())
        names = [message.name for api in sorted(apis) if (message := wire.request_of(api)) is not None]
        return [name.removesuffix("Request") for name in names]

    @hookimpl
    def response(self, passing: Passing) -> Verdict | None:
        frame = passing.frame
        if frame.version is None or frame.protocol is not Protocol.KAFKA or not self._carries(frame):
            return None
        body = frame.body
        if body is None:
            return self._unreadable(frame)
        if frame.api == wire.API_VERSIONS:
            changed = addresses.narrowed(body)
        else:
            try:
                changed = addresses.rewritten(
                    frame.api, frame.version, body, lambda node: self._place(node, frame)
                )
            except CannotPlace as error:
                return Close(str(error))
        return None if changed is None else Replace(refusal.reencode(frame, changed))

    def _carries(self, frame: Frame) -> bool:
        """Whether there may be an address in it: in these versions, and in those that nobody here knows."""
        if frame.api == wire.API_VERSIONS:
            return self._narrow
        spans, version = self._spans.get(frame.api), frame.version or 0
        if spans is None:
            return False
        return any(span.covers(version) for span in spans) or version > max(span.max for span in spans)

    def _unreadable(self, frame: Frame) -> Verdict | None:
        if not self._narrow or frame.api == wire.API_VERSIONS:
            return None
        why = frame.faults[0].message if frame.faults else "no body"
        name = wire.api_name(frame.api)
        return Close(f"{name} v{frame.version} of the broker cannot be read, addresses may be in it: {why}")

    def _place(self, node: addresses.Node, frame: Frame) -> tuple[str, int]:
        address = Endpoint(node.host, node.port)
        key = self._brokers.nameless(address) if node.node_id is None else Key(node.node_id, node.controller)
        host, port = self._brokers.place(key, address)
        return host or self._told(frame.conn), port
