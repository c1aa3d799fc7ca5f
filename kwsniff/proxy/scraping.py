"""A very small HTTP server with one page: the metrics, for Prometheus.

HTTP/1.1 with one request per connection. Whatever else is asked for gets an error; nobody can keep a
connection open for long or send much.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from kwsniff.errors import ConfigError
from kwsniff.model import Endpoint
from kwsniff.proxy.failures import told

_TIMEOUT_S = 5.0
_LONGEST = 16 * 1024
_AT_ONCE = 32
_PLAIN = "text/plain; charset=utf-8"


class Scraping:
    """text: the page, made when it is asked for."""

    def __init__(self, text: Callable[[], bytes], content_type: str) -> None:
        self._text = text
        self._type = content_type
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self, where: Endpoint) -> Endpoint:
        """Listen; where (the port may have been 0). ConfigError."""
        try:
            self._server = await asyncio.start_server(
                self._serve, where.host or None, where.port, limit=_LONGEST
            )
        except OSError as error:
            raise ConfigError(f"cannot listen on {where} for metrics: {told(error)}") from error
        return Endpoint(where.host, self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(_TIMEOUT_S):
                    writer.write(await self._answer(reader))
                    await writer.drain()
        finally:
            self._open.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        if len(self._open) > _AT_ONCE:
            return _page("503 Service Unavailable", _PLAIN, b"too many at once\n")
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _page("431 Request Header Fields Too Large", _PLAIN, b"")
        method, _, rest = head.partition(b" ")
        path = rest.split(b" ", 1)[0].split(b"?", 1)[0]
        if method not in (b"GET", b"HEAD"):
            return _page("405 Method Not Allowed", _PLAIN, b"")
        if path not in (b"/metrics", b"/"):
            return _page("404 Not Found", _PLAIN, b"see /metrics\n")
        return _page("200 OK", self._type, self._text(), head_only=method == b"HEAD")


def _page(status: str, content_type: str, body: bytes, *, head_only: bool = False) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + (b"" if head_only else body)
