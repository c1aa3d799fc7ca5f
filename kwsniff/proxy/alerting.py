"""What rules tell the world, carried out: notes and alerts written, webhooks called, counts kept.

Nothing here blocks the connections: files and webhooks are served by one thread behind a bounded queue, and
what does not fit in it is counted and said.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, Protocol

from msgspec import json

from kwsniff.output.times import timestamp
from kwsniff.policy.actions import Alert, Note, Occasion
from kwsniff.policy.ruleset import On

_WAITING = 1000
_TIMEOUT_S = 5.0
_FINISH_S = 5.0
"""How long alerts that wait are waited for at the end."""

Say = Callable[[str, str], None]
Lines = Callable[[dict[str, Any], int], None]
"""A line for the JSON log, and its time."""


class Counting(Protocol):
    """The metrics, as far as rules matter."""

    def count(self, metric: str, rule: str) -> None: ...
    def fired(self, rule: str, on: On) -> None: ...


class Alerting:
    """An `Act` of the rule engine. say: (line, kind) for the operator; metrics, lines: where there are."""

    def __init__(self, say: Say, metrics: Counting | None = None, lines: Lines | None = None) -> None:
        self._say = say
        self._metrics = metrics
        self._lines = lines
        self._queue: queue.Queue[Alert | None] = queue.Queue(_WAITING)
        self._thread: threading.Thread | None = None
        self._failures: queue.SimpleQueue[str] = queue.SimpleQueue()

    def log(self, note: Note) -> None:
        if self._lines is not None:
            self._lines(_log_line(note, "note"), note.occasion.ts)
        else:
            self._say(f"rule {note.rule}: {_about(note.text, note.occasion)}", f"rule {note.rule}")

    def alert(self, alert: Alert) -> None:
        if alert.to is None:
            if self._lines is not None:
                self._lines(_log_line(alert, "alert"), alert.occasion.ts)
            text = _about(alert.text, alert.occasion)
            self._say(f"{alert.severity} alert of rule {alert.rule}: {text}", f"alert {alert.rule}")
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="kwsniff-alerts", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait(alert)
        except queue.Full:
            self._say(f"an alert of rule {alert.rule} is lost: too many wait", "alerts lost")

    def count(self, metric: str, rule: str) -> None:
        if self._metrics is not None:
            self._metrics.count(metric, rule)

    def fired(self, rule: str, on: On) -> None:
        if self._metrics is not None:
            self._metrics.fired(rule, on)

    def failed(self, rule: str, why: str) -> None:
        self._say(f"rule {rule} could not act: {why}", f"rule {rule} failed")

    def tick(self) -> None:
        """Say what the thread could not do."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._say(self._failures.get_nowait(), "alerts failed")

    def close(self) -> None:
        """Alerts that wait are still sent, for a moment."""
        if self._thread is not None:
            with contextlib.suppress(queue.Full):
                self._queue.put(None, timeout=_FINISH_S)
            self._thread.join(_FINISH_S)
        self.tick()

    def _serve(self) -> None:
        while (alert := self._queue.get()) is not None:
            assert alert.to is not None
            try:
                if alert.to.startswith(("http://", "https://")):
                    _post(alert.to, alert_line(alert))
                else:
                    with open(alert.to, "ab") as file:
                        file.write(json.encode(alert_line(alert)) + b"\n")
            except Exception as error:  # whatever it is, the next alert may get through
                self._failures.put(f"an alert of rule {alert.rule} did not reach {alert.to}: {error}")


def alert_line(alert: Alert) -> dict[str, Any]:
    """An alert as programs get it."""
    occasion = alert.occasion
    return {
        "timestamp": timestamp(occasion.ts),
        "severity": alert.severity,
        "rule": alert.rule,
        "message": alert.text,
        "on": occasion.on,
        "connection": str(occasion.conn),
        "client": str(occasion.conn.client),
        "broker": str(occasion.conn.broker),
        "requestApiKey": occasion.api,
        "requestApiVersion": occasion.version,
        "correlationId": occasion.correlation_id,
        "clientId": occasion.client_id,
    }


def _log_line(told: Note | Alert, kind: str) -> dict[str, Any]:
    """Among the lines of exchanges: what is not of a broker's log is below `kwsniff`, as ever."""
    occasion = told.occasion
    said = {"rule": told.rule, "message": told.text, "on": occasion.on, "api": occasion.api}
    said |= {"version": occasion.version, "correlationId": occasion.correlation_id}
    if isinstance(told, Alert):
        said["severity"] = told.severity
    return {
        "timestamp": timestamp(occasion.ts),
        "connection": str(occasion.conn),
        "kwsniff": {"client": str(occasion.conn.client), "broker": str(occasion.conn.broker), kind: said},
    }


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An alert goes where the rule file says, nowhere else."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect)


def _post(url: str, line: dict[str, Any]) -> None:
    request = urllib.request.Request(
        url, json.encode(line), {"Content-Type": "application/json", "User-Agent": "kwsniff"}
    )
    with _opener.open(request, timeout=_TIMEOUT_S) as answer:
        answer.read(1)


def _about(text: str, occasion: Occasion) -> str:
    from kwsniff import wire

    what = "" if occasion.api is None else f" {wire.api_name(occasion.api)} v{occasion.version}"
    said = f"{text}: " if text else ""
    return f"{said}{occasion.on}{what} of client {occasion.conn.client}"
