"""The plugins of a proxy in their order: each frame goes from one to the next, each end is told to all.

In: frames on their way, exchanges, faults, sessions, time. Out: verdicts by name, and in `Passing.frame` the
frame as the last plugin left it. A plugin that raises changes nothing: it is a fault of the connection, told
to the others, and the frame goes on; a required one ends it all with PluginFailed. Carries out no verdict.
pluggy checks what plugins implement; the calls are made here, since its own let one plugin's exception
keep the others from being called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from msgspec.structs import replace

from kwsniff import wire
from kwsniff.conversation.bodies import decode_body
from kwsniff.conversation.headers import correlation_id, maybe_request_header, response_body_at
from kwsniff.errors import KwsniffError, PluginFailed, Reason
from kwsniff.model import ConnectionId, Exchange, Fault, Frame, Protocol, Session, Side
from kwsniff.passing import (
    Close,
    Delay,
    Drop,
    Forward,
    Passed,
    Passing,
    Replace,
    Reset,
    Respond,
    Throttle,
    Verdict,
)
from kwsniff.policy.plugins import Plugin, attached, load, told

__all__ = ["Chain", "load", "replaced"]

Hook = Callable[[Any], Any]
Named = tuple[str, Verdict]

_ENDS = Respond | Drop | Close | Reset
_MOST = 64
"""Verdicts of one plugin upon one frame."""
_MAX_FRAME = (1 << 31) - 1
_TELLING = ("opened", "exchanged", "faulted", "closed", "tick", "stopped")


class Chain:
    """plugins: (name, plugin) in the order in which they are called. ConfigError for what is none.

    `failures` counts by plugin what was raised.
    """

    def __init__(self, plugins: Iterable[tuple[str, object]]) -> None:
        self._plugins = attached(plugins)
        self.failures: Counter[str] = Counter()
        self._reporting = False
        self._told = {
            hook: [(plugin, plugin.hooks[hook]) for plugin in self._plugins if hook in plugin.hooks]
            for hook in _TELLING
        }
        self.renew()

    def renew(self) -> None:
        """Ask every plugin again which APIs it wants. ConfigError: it stays as it was."""
        wanted = [plugin.wants() for plugin in self._plugins]
        keys = {info.api_key for info in wire.messages() if info.type == "request"}
        found = {
            side: {key: self._asked_for(side, key, wanted) for key in (*keys, None)}
            for side in (Side.REQUEST, Side.RESPONSE)
        }
        self._requests, self._responses = found[Side.REQUEST], found[Side.RESPONSE]

    def _asked_for(
        self, side: Side, api: int | None, wanted: list[frozenset[int] | None]
    ) -> list[tuple[Plugin, Hook]]:
        """Who looks at frames of this API; None: at those of an API that nobody knows."""
        return [
            (plugin, plugin.hooks[side])
            for plugin, keys in zip(self._plugins, wanted, strict=True)
            if side in plugin.hooks and (keys is None or api in keys)
        ]

    def wants(self, api: int) -> bool:
        """Whether any plugin looks at requests or responses of this API."""
        return bool(_of(self._requests, api) or _of(self._responses, api))

    def request(self, passing: Passing) -> list[Named]:
        """What is decided upon a request; `passing` is left with the final frame, all verdicts and tags."""
        return self._decide(_of(self._requests, passing.frame.api), passing)

    def response(self, passing: Passing) -> list[Named]:
        """The same of a response."""
        return self._decide(_of(self._responses, passing.frame.api), passing)

    def opened(self, session: Session) -> None:
        self._tell("opened", session, session.first, session.conn)

    def exchanged(self, passed: Passed) -> None:
        self._tell("exchanged", passed, _ended(passed.exchange), passed.exchange.conn)

    def faulted(self, fault: Fault) -> None:
        self._tell("faulted", fault, fault.ts, fault.conn)

    def closed(self, session: Session) -> None:
        self._tell("closed", session, session.last, session.conn)

    def tick(self, now: int) -> None:
        """About once a second."""
        self._tell("tick", now, now, None)

    def stopped(self, now: int) -> None:
        """Nothing more will be told."""
        self._tell("stopped", now, now, None)

    def _decide(self, asked: list[tuple[Plugin, Hook]], passing: Passing) -> list[Named]:
        for plugin, ask in asked:
            frame, verdicts, tags = passing.frame, len(passing.verdicts), len(passing.tags)
            try:
                given = ask(passing)
                if len(passing.tags) > tags:
                    _check_tags(passing.tags[tags:])
                if given is None and passing.frame is frame:
                    continue
                found, passing.frame = _applied(plugin.name, given, frame)
            except Exception as error:
                passing.frame = frame
                del passing.verdicts[verdicts:], passing.tags[tags:]
                self._failed(plugin, frame.side, error, passing.now, frame.conn, frame)
                continue
            passing.verdicts += found
            if any(isinstance(verdict, _ENDS) for _, verdict in found):
                break
        return passing.verdicts

    def _tell(self, hook: str, what: object, ts: int, conn: ConnectionId | None) -> None:
        """All are told, whoever fails; a required plugin's failure is raised behind the last."""
        failed: list[tuple[Plugin, Exception]] = []
        for plugin, call in self._told[hook]:
            try:
                call(what)
            except Exception as error:
                failed.append((plugin, error))
        for plugin, raised in failed:
            self._failed(plugin, hook, raised, ts, conn)

    def _failed(
        self,
        plugin: Plugin,
        hook: str,
        error: Exception,
        ts: int,
        conn: ConnectionId | None,
        frame: Frame | None = None,
    ) -> None:
        self.failures[plugin.name] += 1
        text = " ".join(str(error).split()) if isinstance(error, KwsniffError) else told(error)
        if plugin.required:
            raise PluginFailed(f"{plugin.name}: {text}") from error
        if self._reporting:
            return  # of a failure that is being told; counted is enough
        fault = Fault(
            ts=ts,
            reason=Reason.PLUGIN_FAILED,
            message=f"plugin {plugin.name} failed in {hook}: {text}",
            conn=conn,
            side=frame.side if frame else None,
            api=frame.api if frame and frame.version is not None else None,
            version=frame.version if frame else None,
            correlation_id=frame.correlation_id if frame else None,
        )
        self._reporting = True
        try:
            self.faulted(fault)
        finally:
            self._reporting = False


def replaced(frame: Frame, raw: bytes) -> Frame:
    """The frame with other bytes. ValueError: they are no such frame of its API, version and correlation id,
    so the other side would take it for something else."""
    if not isinstance(raw, bytes) or len(raw) > _MAX_FRAME:
        raise ValueError("a frame is replaced by bytes")
    if frame.protocol is not Protocol.KAFKA:
        raise ValueError(f"a frame of {frame.protocol} cannot be replaced")
    client_id, body_at = frame.client_id, 0
    if frame.side is Side.REQUEST:
        header = maybe_request_header(raw)
        if header is None or header.body_at < 0:
            raise ValueError("the replacement has no request header")
        if header[:3] != (frame.api, frame.version, frame.correlation_id):
            raise ValueError("the replacement has another API, version or correlation id")
        client_id, body_at = header.client_id, header.body_at
    else:
        at = response_body_at(raw, frame.api, frame.version or 0)
        if at is None:
            raise ValueError("the replacement has no response header")
        if correlation_id(raw) != frame.correlation_id:
            raise ValueError("the replacement has another correlation id")
        body_at = at
    return replace(
        frame,
        raw=raw,
        client_id=client_id,
        body_at=body_at,
        decoder=decode_body,
        size=len(raw) + 4,
        lost=0,
        cut_off=False,
    )


def _applied(name: str, given: Any, frame: Frame) -> tuple[list[Named], Frame]:
    """The verdicts that a hook gave, with their names, and the frame that they leave."""
    if given is None:
        return [], frame
    items = [given] if isinstance(given, Verdict) else list(islice(given, _MOST + 1))
    if len(items) > _MOST:
        raise ValueError(f"more than {_MOST} verdicts upon one frame")
    found: list[Named] = []
    for item in items:
        label, verdict = (f"{name}:{item[0]}", item[1]) if isinstance(item, tuple) else (name, item)
        if isinstance(verdict, Forward):
            continue
        if not isinstance(verdict, Verdict):
            raise TypeError(f"{type(verdict).__name__} is no verdict")
        _check(verdict, frame)
        if isinstance(verdict, Replace):
            frame = replaced(frame, verdict.raw)
        found.append((label, verdict))
    return found, frame


def _check(verdict: Verdict, frame: Frame) -> None:
    if isinstance(verdict, Respond) and frame.side is not Side.REQUEST:
        raise ValueError("Respond answers a request; a response is changed by Replace")
    if isinstance(verdict, Respond) and not isinstance(verdict.raw, bytes):
        raise TypeError("a request is answered by bytes")
    if isinstance(verdict, Close) and not isinstance(verdict.why, str):
        raise TypeError("what is closed is closed for a reason in words")
    if isinstance(verdict, Delay) and verdict.ns < 0:
        raise ValueError(f"a delay of {verdict.ns} ns cannot be")
    if isinstance(verdict, Throttle) and verdict.bytes_per_second <= 0:
        raise ValueError(f"{verdict.bytes_per_second} bytes a second cannot be")


def _check_tags(tags: list[str]) -> None:
    """Observers write them: one that is no text must not be their failure."""
    for tag in tags:
        if not isinstance(tag, str):
            raise TypeError(f"{type(tag).__name__} is no tag, tags are strings")


def _of(asked: dict[int | None, list[tuple[Plugin, Hook]]], api: int) -> list[tuple[Plugin, Hook]]:
    found = asked.get(api)
    return asked[None] if found is None else found


def _ended(exchange: Exchange) -> int:
    return exchange.response.end if exchange.response else exchange.ts
