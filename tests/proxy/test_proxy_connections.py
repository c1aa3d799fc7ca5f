"""Connections through the proxy, between a broker and a client made of streams: bytes, ends, limits."""

from __future__ import annotations

import asyncio
import hashlib
import resource
import socket
import struct
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from standing import (
    API_VERSIONS,
    Broker,
    Client,
    Run,
    client,
    free_ports,
    heartbeat,
    metadata,
    read_frame,
    request,
    sized,
    standing,
)

from kwsniff import wire
from kwsniff.conversation import addresses
from kwsniff.model import Endpoint
from kwsniff.output.log import Log
from kwsniff.output.metrics import Metrics
from kwsniff.output.recording import Recorder
from kwsniff.proxy.settings import Limits


def test_what_nobody_changes_is_the_same_on_both_sides(run: Run) -> None:
    async def main() -> None:
        async with Broker() as broker, standing(broker.address) as proxy, client(proxy.where) as c:
            asked = [heartbeat(i) for i in range(50)]
            given = [await c.ask(data) for data in asked]
            assert (
                hashlib.sha256(b"".join(asked)).digest() == hashlib.sha256(b"".join(broker.received)).digest()
            )
            assert hashlib.sha256(b"".join(given)).digest() == hashlib.sha256(b"".join(broker.sent)).digest()

    run(main)


def test_frames_of_any_api_cut_anywhere_come_through_as_they_were(run: Run, tmp_path: Path) -> None:
    """Large and small, known, unknown and undecodable ones; with everything that looks on looking on."""
    chance = Random(7)
    apis = [api for api in (*range(93), 999, 32_000) if api not in addresses.APIS | {API_VERSIONS, 17, 36}]

    def ask(number: int) -> bytes:
        body = chance.randbytes(1_500_000 if number == 50 else chance.randrange(300))
        return sized(struct.pack(">hhih", chance.choice(apis), 0, number, 1) + b"t" + body)

    async def main() -> None:
        broker = Broker()
        broker.answer = lambda frame: sized(frame[8:12] + chance.randbytes(chance.randrange(300)))  # type: ignore[method-assign]
        asked = [heartbeat(0), *(ask(number) for number in range(1, 100))]
        whole = b"".join(asked)
        cuts = sorted(chance.sample(range(len(whole)), 200))
        observers = (
            ("recorder", Recorder(str(tmp_path / "talk.pcapng"), now=0)),
            ("log", Log(str(tmp_path / "log.jsonl"))),
            ("metrics", Metrics()),
        )
        async with broker, standing(broker.address, plugins=observers) as proxy, client(proxy.where) as c:
            sending = asyncio.create_task(send(c, [whole[i:j] for i, j in pairwise((0, *cuts, len(whole)))]))
            given = [await read_frame(c.reader) for _ in asked]
            await sending
            assert same(asked, broker.received)
            assert same(given, broker.sent)

    async def send(c: Client, parts: list[bytes]) -> None:
        for part in parts:
            await c.send(part)
            await asyncio.sleep(0)

    run(main)


def same(one: list[bytes], other: list[bytes]) -> bool:
    return hashlib.sha256(b"".join(one)).digest() == hashlib.sha256(b"".join(other)).digest()


def test_every_broker_gets_a_listener_when_an_answer_names_it(run: Run) -> None:
    async def main() -> None:
        async with Broker() as one, Broker() as two:
            one.nodes = two.nodes = {1: one.address, 2: two.address}
            async with standing(one.address) as proxy, client(proxy.where) as c:
                told = await c.brokers()
                assert told == {
                    1: Endpoint("127.0.0.1", proxy.where.port + 2),
                    2: Endpoint("127.0.0.1", proxy.where.port + 3),
                }
                async with client(told[2]) as second:
                    assert await second.brokers() == told
                assert len(one.received) == len(two.received) == 1

    run(main)


def test_versions_that_cannot_be_read_are_not_offered_unless_wanted(run: Run) -> None:
    async def offered(**settings: bool) -> int:
        async with (
            Broker() as broker,
            standing(broker.address, **settings) as proxy,
            client(proxy.where) as c,
        ):
            answer = await c.ask(request(API_VERSIONS, 0, 1, {}))
            _, body = wire.decode_response(answer[4:], API_VERSIONS, 0)
            return int(body["apiKeys"][0]["maxVersion"])

    newest = next(info.valid_versions[1] for info in wire.messages() if info.name == "FetchRequest")
    assert run(offered) == newest
    assert run(lambda: offered(narrow=False)) == 99


def test_the_advertised_host_is_told(run: Run) -> None:
    async def main() -> None:
        async with Broker() as broker:
            broker.nodes = {0: broker.address}
            async with standing(broker.address, advertise="kafka.example") as proxy, client(proxy.where) as c:
                assert await c.brokers() == {0: Endpoint("kafka.example", proxy.where.port + 1)}

    run(main)


def test_a_proxy_on_every_address_tells_the_one_that_was_connected_to(run: Run) -> None:
    async def main() -> None:
        async with Broker() as broker:
            broker.nodes = {0: broker.address}
            async with (
                standing(broker.address, listen=Endpoint("", free_ports())) as proxy,
                client(Endpoint("127.0.0.2", proxy.where.port)) as c,
            ):
                assert await c.brokers() == {0: Endpoint("127.0.0.2", proxy.where.port + 1)}

    run(main)


def test_a_broker_that_cannot_be_given_a_listener_is_not_told_at_all(run: Run) -> None:
    """Rather no connection than a way past the proxy."""

    async def main() -> None:
        async with Broker() as broker:
            broker.nodes = {70_000: broker.address}
            async with standing(broker.address) as proxy, client(proxy.where) as c:
                await c.send(metadata(1))
                assert await c.end() == b""
                (line,) = proxy.lines
                assert "no listener for broker 70000" in line
                assert str(c.address) in line

    run(main)


def test_a_port_that_another_program_has_is_named_until_it_is_free(run: Run) -> None:
    async def main() -> None:
        first = free_ports()
        listen = Endpoint("127.0.0.1", first)
        async with Broker() as broker, standing(broker.address, listen=listen) as proxy:
            broker.nodes = {1: broker.address}
            with socket.create_server(("127.0.0.1", first + 2)):
                for _ in range(2):
                    async with client(proxy.where) as c:
                        await c.send(metadata(1))
                        assert await c.end() == b""
                    await asyncio.sleep(0)
            assert f"cannot listen on 127.0.0.1:{first + 2}: Address already in use" in proxy.lines[0]
            async with client(proxy.where) as c:
                assert await c.brokers() == {1: Endpoint("127.0.0.1", first + 2)}

    run(main)


def test_a_range_steps_over_the_ports_of_other_programs(run: Run) -> None:
    async def main() -> None:
        first = free_ports()
        settings = {"listen": Endpoint("127.0.0.1", first + 9), "ports": range(first, first + 3)}
        async with Broker() as broker, standing(broker.address, **settings) as proxy:
            broker.nodes = {1: broker.address}
            with socket.create_server(("127.0.0.1", first + 1)):
                async with client(proxy.where) as c:
                    assert await c.brokers() == {1: Endpoint("127.0.0.1", first)}

    run(main)


def test_a_client_that_half_closes_still_gets_its_answers(run: Run) -> None:
    async def main() -> None:
        async with Broker() as broker, standing(broker.address) as proxy, client(proxy.where) as c:
            broker.answering.clear()
            await c.send(heartbeat(1), heartbeat(2))
            c.writer.write_eof()
            await proxy.until(lambda: len(broker.received) == 1)
            broker.answering.set()
            assert await c.end() == b"".join(broker.sent)
            assert len(broker.sent) == 2
            assert proxy.lines == []

    run(main)


def test_a_broker_that_goes_away_is_named_and_its_client_is_told_by_an_end(run: Run) -> None:
    async def main() -> None:
        async with Broker() as broker, standing(broker.address) as proxy, client(proxy.where) as c:
            broker.silent = True
            await c.send(heartbeat(1))
            await proxy.until(lambda: len(broker.received) == 1)
            broker.writers[0].close()
            assert await c.end() == b""
            (line,) = proxy.lines
            assert str(broker.address) in line
            assert str(c.address) in line
            assert "1 request unanswered" in line

    run(main)


@pytest.mark.parametrize("cut", [1, 4, 5, 20])
def test_a_client_that_vanishes_within_a_request_is_named(run: Run, cut: int) -> None:
    async def main() -> None:
        async with (
            Broker() as broker,
            standing(broker.address) as proxy,
            client(proxy.where) as other,
            client(proxy.where) as c,
        ):
            await c.ask(heartbeat(1))
            await c.send(heartbeat(2)[:cut])
            await proxy.until(lambda: proxy.server.connections == 2)
            c.reset()
            await proxy.until(lambda: proxy.server.connections == 1)
            assert any(str(c.address) in line for line in proxy.lines)
            await other.ask(heartbeat(3))

    run(main)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), "TLS"),
        (b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n", "HTTP"),
        (b"\xff" * 64, "not Kafka"),
    ],
)
def test_what_is_no_kafka_is_named_and_harms_nobody_else(run: Run, said: bytes, named: str) -> None:
    async def main() -> None:
        async with (
            Broker() as broker,
            standing(broker.address) as proxy,
            client(proxy.where) as other,
            client(proxy.where) as c,
        ):
            await other.ask(heartbeat(1))
            await c.send(said)
            assert await c.end() == b""
            (line,) = proxy.lines
            assert named in line
            assert str(c.address) in line
            await other.ask(heartbeat(2))

    run(main)


def test_a_frame_above_the_limit_closes_its_connection(run: Run) -> None:
    async def main() -> None:
        async with (
            Broker() as broker,
            standing(broker.address, limits=Limits(frame=1000)) as proxy,
            client(proxy.where) as other,
            client(proxy.where) as c,
        ):
            await c.ask(heartbeat(1))
            await c.send(sized(bytes(2000)))
            assert await c.end() == b""
            assert len(proxy.lines) == 1
            assert "1000" in proxy.lines[0].replace(",", "")
            await other.ask(heartbeat(2))

    run(main)


def test_a_broker_that_refuses_is_named_and_the_next_one_is_tried(run: Run) -> None:
    async def main() -> None:
        async with Broker() as gone:
            pass
        async with Broker() as broker:
            async with standing(gone.address, broker.address) as proxy, client(proxy.where) as c:
                await c.ask(heartbeat(1))
            async with standing(gone.address) as proxy, client(proxy.where) as c:
                assert await c.end() == b""
                (line,) = proxy.lines
                assert line == (
                    f"client {c.address}: bootstrap cannot be reached ({gone.address}: Connection refused)"
                )

    run(main)


def test_a_thousand_clients_without_a_broker_are_not_a_thousand_lines(run: Run) -> None:
    async def main() -> None:
        async with Broker() as gone:
            pass
        async with standing(gone.address) as proxy:
            for _ in range(50):
                async with client(proxy.where) as c:
                    assert await c.end() == b""
        assert len(proxy.lines) < 10

    run(main)


def test_no_more_connections_than_allowed(run: Run) -> None:
    async def main() -> None:
        async with Broker() as broker, standing(broker.address, limits=Limits(connections=2)) as proxy:
            async with client(proxy.where) as one, client(proxy.where) as two:
                await one.ask(heartbeat(1))
                await two.ask(heartbeat(1))
                async with client(proxy.where) as three:
                    assert await three.end() == b""
                assert "2 connections are open" in proxy.lines[0]
                await one.ask(heartbeat(2))
            await proxy.until(lambda: proxy.server.connections == 0)
            async with client(proxy.where) as four:
                await four.ask(heartbeat(1))

    run(main)


def test_who_says_nothing_for_long_is_closed(run: Run) -> None:
    async def main() -> None:
        async with (
            Broker() as broker,
            standing(broker.address, limits=Limits(idle=0.1)) as proxy,
            client(proxy.where) as c,
        ):
            assert await c.end() == b""
            assert "no byte for 0.1 s" in proxy.lines[0]

    run(main)


def test_who_does_not_read_is_not_read_either(run: Run) -> None:
    """A client asks for much and reads nothing: the proxy holds little of it, and all comes in the end."""

    async def main() -> None:
        async with Broker() as broker:
            size = 256 * 1024

            async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await read_frame(reader)
                writer.write(response_of(1, b"\0\0"))
                for i in range(2, 200):
                    await read_frame(reader)
                    writer.write(response_of(i, bytes(size)))
                    sent.append(i)
                    await writer.drain()
                await reader.read()

            def response_of(correlation_id: int, body: bytes) -> bytes:
                return sized(correlation_id.to_bytes(4, "big") + body)

            sent: list[int] = []
            broker.talk = flood
            async with standing(broker.address) as proxy, client(proxy.where, limit=65536) as c:
                await c.ask(heartbeat(1))
                for i in range(2, 200):
                    c.writer.write(heartbeat(i))
                before = -1
                while len(sent) != before:  # until nothing moves any more
                    before = len(sent)
                    await asyncio.sleep(0.2)
                assert 0 < len(sent) < 150
                for _ in range(2, 200):
                    assert len(await read_frame(c.reader)) == size + 8

    run(main)


def test_drain_answers_what_is_in_flight_and_closes_what_is_idle(run: Run) -> None:
    async def main() -> None:
        async with (
            Broker() as broker,
            standing(broker.address, limits=Limits(drain=5)) as proxy,
            client(proxy.where) as idle,
            client(proxy.where) as busy,
        ):
            await idle.ask(heartbeat(1))
            broker.answering.clear()
            await busy.send(heartbeat(7))
            await proxy.until(lambda: len(broker.received) == 2)
            proxy.server.stop()
            assert await idle.end() == b""
            with pytest.raises(OSError):
                await asyncio.open_connection(*proxy.where)
            broker.answering.set()
            assert await busy.end() == broker.sent[-1]
            assert await proxy.running == 0
        assert proxy.lines == []

    run(main)


def test_drain_does_not_wait_without_end_and_says_what_it_cut(run: Run) -> None:
    async def main() -> None:
        async with (
            Broker() as broker,
            standing(broker.address, limits=Limits(drain=0.1)) as proxy,
            client(proxy.where) as c,
        ):
            broker.silent = True
            await c.send(heartbeat(1))
            await proxy.until(lambda: len(broker.received) == 1)
            assert await proxy.stop() == 0
            assert proxy.lines == ["cut connections: 1, unanswered requests: 1"]

    run(main)


def test_two_thousand_idle_connections_cost_no_task(run: Run) -> None:
    """Each is four sockets in this process: both ends of both connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 10_000)), hard))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        count = 300 if isinstance(loop, asyncio.SelectorEventLoop) else 2000
        count = 300 if isinstance(loop, asyncio.SelectorEventLoop) else 2000
        silent = await loop.create_server(asyncio.Protocol, "127.0.0.1", backlog=1024)
        async with silent, standing(Endpoint(*silent.sockets[0].getsockname())) as proxy:
            idle: list[asyncio.BaseTransport] = []
            while len(idle) < count:
                idle.append((await loop.create_connection(asyncio.Protocol, *proxy.where))[0])
            await proxy.until(lambda: proxy.server.joined == count)
            assert len(asyncio.all_tasks()) < 10
            for transport in idle:
                transport.close()
            await proxy.until(lambda: proxy.server.connections == 0)
            assert proxy.lines == []

    try:
        run(main)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
