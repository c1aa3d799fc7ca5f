"""A proxy put together and run: settings and what is to be observed -> plugins in their order, and a status.

Order: rules, the user's plugins, address rewriting, then observers, which see what became of a frame: the
recorder first, since it decides whether there is anything more to observe.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from kwsniff.model import Endpoint
from kwsniff.output import jsonl
from kwsniff.output.log import Log
from kwsniff.output.metrics import CONTENT_TYPE, Metrics
from kwsniff.output.present import Options
from kwsniff.output.recording import Recorder
from kwsniff.output.rotation import Fsync, Rotation
from kwsniff.policy import rule_file
from kwsniff.policy.chain import Chain, load
from kwsniff.policy.rules import Rules
from kwsniff.proxy.alerting import Alerting
from kwsniff.proxy.console import Console
from kwsniff.proxy.reloading import Reloading
from kwsniff.proxy.rewriting import Rewriting
from kwsniff.proxy.scraping import Scraping
from kwsniff.proxy.server import Server
from kwsniff.proxy.settings import Settings
from kwsniff.proxy.status import Status

Named = tuple[str, object]


class Recording(Struct, frozen=True, kw_only=True):
    """How to record. required: a proxy that cannot record stops."""

    path: str
    keep_secrets: bool = False
    rotation: Rotation = Rotation()
    fsync: Fsync = "interval"
    required: bool = True


class Watching(Struct, frozen=True, kw_only=True):
    """Who acts and who looks on."""

    rules: Path | None = None
    plugins: tuple[str, ...] = ()
    record: Recording | None = None
    log: str | None = None
    """A file, or `-`."""
    log_options: Options = Options()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed, some two times faster; None: asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def run(settings: Settings, watching: Watching, console: Console) -> int:
    """Until a signal says so, or a required plugin fails: the exit status. ConfigError."""
    _allow_descriptors()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_run(settings, watching, console))


def _allow_descriptors() -> None:
    """Two for each connection: as many as the system allows this process."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _run(settings: Settings, watching: Watching, console: Console) -> int:
    server = Server(settings, console)
    proxy = Assembly(server, settings, watching, console)
    try:
        where = await proxy.start()
        server.handle_signals(proxy.reload)
        console.say(f"listening on {where}, for {', '.join(map(str, settings.upstreams))}")
        return await server.run()
    finally:
        await server.close()
        await proxy.close()


class Assembly:
    """The plugins of one server, and what belongs to them."""

    def __init__(self, server: Server, settings: Settings, watching: Watching, console: Console) -> None:
        self._server, self._settings, self._console = server, settings, console
        self._metrics = Metrics() if settings.metrics else None
        self._status = Status(console.say)
        self._log = None if watching.log is None else Log(watching.log, watching.log_options)
        self._alerting = Alerting(console.say, self._metrics, self._log.say if self._log else None)
        self._scraping: Scraping | None = None
        self._reloading: Reloading | None = None
        self._shown_at = time.monotonic()
        self._rules: Rules | None = None
        if watching.rules is not None:
            # The default line: a rule sees bodies, whatever the log shows.
            self._rules = Rules(rule_file.load(watching.rules), jsonl.line, self._alerting)
        if self._log is not None and self._metrics is not None:
            log = self._log
            self._metrics.watch_shed(lambda: log.shed)
        self._chain = Chain(self._plugins(watching))
        if self._rules is not None and watching.rules is not None:
            self._reloading = Reloading(
                watching.rules, self._rules.ruleset, self._rules, self._chain.renew, console.say
            )

    async def start(self) -> Endpoint:
        """Listen for clients, and for whom the metrics are for; where the clients connect to. ConfigError."""
        where = self._server.start(self._chain, [self._tick])
        if self._metrics is not None and self._settings.metrics is not None:
            self._scraping = Scraping(self._metrics.text, CONTENT_TYPE)
            found = await self._scraping.start(self._settings.metrics)
            self._console.say(f"metrics at {found}")
        return where

    def reload(self) -> None:
        """Read the rules again, as somebody has asked."""
        if self._reloading is not None:
            self._reloading.reload()
        else:
            self._console.say("there are no rules to be read again: see --rules")

    async def close(self) -> None:
        """What is left when the server has ended, or could not start."""
        if self._scraping is not None:
            await self._scraping.close()
        self._alerting.close()

    def _plugins(self, watching: Watching) -> list[Named]:
        rewriting = Rewriting(self._server.brokers, self._server.told_host, narrow=self._settings.narrow)
        found: list[tuple[str, object | None]] = [
            ("rules", self._rules),
            *(load(spec) for spec in watching.plugins),
            ("rewriting", rewriting),
            ("recorder", None if watching.record is None else _recorder(watching.record)),
            ("log", self._log),
            ("metrics", self._metrics),
            ("status", self._status),
        ]
        return [(name, plugin) for name, plugin in found if plugin is not None]

    def _tick(self) -> None:
        """About once a second."""
        if self._reloading is not None:
            self._reloading.poll()
        self._alerting.tick()
        now = time.monotonic()
        self._console.status(self._status.line(self._server.connections, now - self._shown_at))
        self._shown_at = now


def _recorder(wanted: Recording) -> Recorder:
    return Recorder(
        wanted.path,
        now=time.time_ns(),
        keep_secrets=wanted.keep_secrets,
        rotation=wanted.rotation,
        fsync=wanted.fsync,
        required=wanted.required,
    )
