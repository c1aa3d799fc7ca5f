"""The addresses that brokers advertise: behind them, a guard that lets one program in and counts all others.

Brokers of the tests listen on 127.0.0.1, but tell their clients an address on 127.0.0.2. A Guard listens
there. A connection that a process in `admitted` opened is passed on to the broker; any other is reset, and
its address goes to `refused`. So a client that learned a broker's address from an answer, instead of the
proxy's, fails and is seen. Who opened a connection on loopback, the kernel tells: Linux only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

ADVERTISED = "127.0.0.2"
_CHUNK = 1 << 18
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1
_INODE_AT = 16 + 68
"""Behind struct nlmsghdr, in struct inet_diag_msg."""
Address = tuple[str, int]


class Guard:
    """Runs in a thread of its own from `start` to `stop`."""

    def __init__(self) -> None:
        self.admitted: set[int] | None = None
        """Process ids; None: everybody may pass."""
        self.refused: list[Address] = []
        """Advertised addresses to which others connected, one entry a connection."""
        self.passed = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="guard", daemon=True)
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._thread.start()

    def protect(self, port: int, broker: Address) -> None:
        """Listen on ADVERTISED:port for the broker that listens at `broker`."""

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            with contextlib.suppress(asyncio.CancelledError):  # by `stop`; streams would show it as an error
                await self._accept((ADVERTISED, port), broker, reader, writer)
            self._tasks.discard(task)

        listening = asyncio.start_server(accepted, ADVERTISED, port, limit=_CHUNK, backlog=1024)
        self._servers.append(self._run(listening))

    def stop(self) -> None:
        async def cancel() -> None:
            for server in self._servers:
                server.close()
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._run(cancel())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _accept(self, told: Address, broker: Address, reader: Any, writer: Any) -> None:
        peer = writer.get_extra_info("peername")
        if self.admitted is not None and not any(owns(pid, peer, told) for pid in self.admitted):
            self.refused.append(told)
            _reset(writer)
            return
        self.passed += 1
        try:
            onward = await asyncio.open_connection(*broker, limit=_CHUNK)
        except OSError:  # the broker is down; the client is to see no more than that
            _reset(writer)
            return
        try:
            await asyncio.gather(_pump(reader, onward[1]), _pump(onward[0], writer))
        finally:
            writer.close()
            onward[1].close()


def owns(pid: int, local: Address, remote: Address) -> bool:
    """Whether that process holds the socket of a connection, `local` being its end."""
    inode = _inode(local, remote)
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                if os.readlink(entry) == f"socket:[{inode}]":
                    return True
    return False


def _inode(local: Address, remote: Address) -> int:
    """Of a TCP socket on IPv4; 0 where there is none any more. sock_diag(7): one request, one answer."""
    ends = struct.pack(">HH", local[1], remote[1])
    ends += b"".join(socket.inet_aton(host) + bytes(12) for host, _ in (local, remote))
    any_interface, no_cookie = bytes(4), b"\xff" * 8
    wanted = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
    wanted += ends + any_interface + no_cookie
    header = struct.pack("=IHHII", 16 + len(wanted), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
        kernel.sendall(header + wanted)
        told = kernel.recv(4096)
    if struct.unpack_from("=H", told, 4)[0] != _SOCK_DIAG_BY_FAMILY:
        return 0
    return int(struct.unpack_from("=I", told, _INODE_AT)[0])


def _reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()
