"""What the proxy stands between in these tests: a broker with simple answers, a client that writes bytes.

`standing` starts a proxy in front of it, in this event loop, and checks at the end that nothing is left: no
connection, no task, no file descriptor.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from kwsniff import wire
from kwsniff.conversation.headers import maybe_request_header
from kwsniff.model import Endpoint
from kwsniff.policy.chain import Chain
from kwsniff.proxy.console import Console
from kwsniff.proxy.rewriting import Rewriting
from kwsniff.proxy.server import Server
from kwsniff.proxy.settings import Limits, Settings
from kwsniff.proxy.status import Status

API_VERSIONS, METADATA, PRODUCE, HEARTBEAT = 18, 3, 0, 12
Result = TypeVar("Result")


Main = Callable[[], Coroutine[Any, Any, Result]]


class Run(Protocol):
    """What the fixture `run` gives."""

    def __call__(self, main: Main[Result]) -> Result: ...


def sized(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def request(
    api: int, version: int, correlation_id: int, body: dict[str, Any] | bytes, client_id: str = "t"
) -> bytes:
    """A request with its size prefix, in the layout of the protocol guide."""
    message = wire.request_of(api)
    assert message is not None
    header = struct.pack(">hhih", api, version, correlation_id, len(client_id)) + client_id.encode()
    header += b"\0" if message.flexible_in(version) else b""
    return sized(header + (body if isinstance(body, bytes) else wire.encode(message.name, version, body)))


def response(api: int, version: int, correlation_id: int, body: dict[str, Any] | bytes) -> bytes:
    message = wire.response_of(api)
    assert message is not None
    header = struct.pack(">i", correlation_id)
    header += b"\0" if message.flexible_in(version) and api != API_VERSIONS else b""
    return sized(header + (body if isinstance(body, bytes) else wire.encode(message.name, version, body)))


def metadata(correlation_id: int) -> bytes:
    return request(METADATA, 1, correlation_id, {"topics": []})


def heartbeat(correlation_id: int) -> bytes:
    return request(HEARTBEAT, 0, correlation_id, {"groupId": "g", "generationId": 1, "memberId": "m"})


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """With its size prefix; IncompleteReadError at the end."""
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))


class Broker:
    """Answers Metadata with `nodes`, ApiVersions with `offers`, Heartbeat with 0; remembers all bytes."""

    def __init__(self, **tls: Any) -> None:
        self.nodes: dict[int, Endpoint] = {}
        self._tls = tls
        self.received: list[bytes] = []
        self.sent: list[bytes] = []
        self.address = Endpoint("127.0.0.1", 0)
        self.peers: list[Any] = []
        self.silent = False
        self.answering = asyncio.Event()
        self.answering.set()
        self.writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None
        self.talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] = self.answer_all

    async def __aenter__(self) -> Broker:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, **self._tls)
        self.address = Endpoint(*self._server.sockets[0].getsockname())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self.writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        self.peers.append(writer.get_extra_info("peername"))
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            await self.talk(reader, writer)
        writer.close()

    async def answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            frame = await read_frame(reader)
            self.received.append(frame)
            await self.answering.wait()
            if self.silent:
                continue
            answer = self.answer(frame)
            self.sent.append(answer)
            writer.write(answer)
            await writer.drain()

    def answer(self, frame: bytes) -> bytes:
        header = maybe_request_header(frame[4:])
        assert header is not None
        return response(header.api, header.version, header.correlation_id, self.body(header.api))

    def body(self, api: int) -> dict[str, Any]:
        if api == METADATA:
            brokers = [{"nodeId": n, "host": e.host, "port": e.port} for n, e in self.nodes.items()]
            return {"brokers": brokers, "controllerId": min(self.nodes, default=-1), "topics": []}
        if api == API_VERSIONS:
            return {"apiKeys": [{"apiKey": 1, "minVersion": 0, "maxVersion": 99}]}
        return {}


class Client:
    """A connection to the proxy (or to whom it names)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @property
    def address(self) -> Endpoint:
        return Endpoint(*self.writer.get_extra_info("sockname")[:2])

    async def send(self, *data: bytes) -> None:
        for part in data:
            self.writer.write(part)
        await self.writer.drain()

    async def ask(self, data: bytes) -> bytes:
        await self.send(data)
        return await read_frame(self.reader)

    async def brokers(self) -> dict[int, Endpoint]:
        """As an answer to Metadata tells them."""
        frame = await self.ask(metadata(9))
        _, body = wire.decode_response(frame[4:], METADATA, 1)
        return {broker["nodeId"]: Endpoint(broker["host"], broker["port"]) for broker in body["brokers"]}

    async def end(self) -> bytes:
        """What comes until the other side closes."""
        found = b""
        with contextlib.suppress(ConnectionError):  # it need not be a polite end
            while part := await self.reader.read(65536):
                found += part
        return found

    def reset(self) -> None:
        """Vanish with a RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@contextlib.asynccontextmanager
async def client(where: Endpoint, **options: Any) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(where.host, where.port, **options)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


class Standing:
    """A running proxy. lines: what it said on the console."""

    def __init__(
        self, server: Server, where: Endpoint, stream: io.StringIO, running: asyncio.Task[int]
    ) -> None:
        self.server, self.where = server, where
        self.running = running
        self._stream = stream

    @property
    def lines(self) -> list[str]:
        return [line.removeprefix("kwsniff: ") for line in self._stream.getvalue().splitlines()]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Something that other tasks bring about: looked for often, not waited for by the clock."""
        while not condition():
            await asyncio.sleep(0.005)

    async def stop(self) -> int:
        self.server.stop()
        return await self.running


def free_ports(count: int = 10) -> int:
    """The first of so many ports in a row that nobody has, below those that the system gives to clients."""
    for first in range(20_000 + os.getpid() % 800 * 10, 32_000, count):
        with contextlib.ExitStack() as taken:
            try:
                for port in range(first, first + count):
                    taken.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first
    raise AssertionError("no ports are free")


def sockets() -> int:
    """Open ones of this process."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return found


@contextlib.asynccontextmanager
async def standing(
    *upstreams: Endpoint,
    plugins: tuple[tuple[str, object], ...] = (),
    limits: Limits | None = None,
    **settings: Any,
) -> AsyncIterator[Standing]:
    """A proxy before these brokers. At the end it is drained, and nothing is left of it."""
    stream = io.StringIO()
    console = Console(stream, status=False)
    before, tasks = sockets(), asyncio.all_tasks()
    listen = Endpoint("127.0.0.1", free_ports())
    made = Settings(
        **{"listen": listen, "upstreams": upstreams, "limits": limits or Limits(drain=2.0)} | settings
    )
    server = Server(made, console)
    rewriting = Rewriting(server.brokers, server.told_host, narrow=made.narrow)
    chain = Chain([*plugins, ("rewriting", rewriting), ("status", Status(console.say))])
    where = server.start(chain, [])
    proxy = Standing(server, where, stream, asyncio.get_running_loop().create_task(server.run()))
    try:
        yield proxy
    finally:
        await proxy.stop()
        print(*proxy.lines, sep="\n")
    assert server.connections == 0
    assert asyncio.all_tasks() <= tasks | _of_brokers()
    for _ in range(200):  # what the test itself has closed may take a moment
        if sockets() <= before:
            return
        await asyncio.sleep(0.005)
    assert sockets() <= before + len(_of_brokers())


def _of_brokers() -> set[asyncio.Task[Any]]:
    """Tasks of the fake brokers, which may notice a closed connection a moment later."""
    return {task for task in asyncio.all_tasks() if "Broker" in repr(task.get_coro())}
