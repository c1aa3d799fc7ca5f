"""TLS and the PROXY protocol on real sockets: with clients, brokers, both; brokers told apart by SNI."""

from __future__ import annotations

import asyncio
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from standing import Broker, Run, client, heartbeat, standing

from kwsniff.hooks import hookimpl
from kwsniff.model import Endpoint, Session
from kwsniff.proxy.authority import Authority, create
from kwsniff.proxy.proxy_protocol import maybe_header, write
from kwsniff.proxy.tls import MadeCertificates, origination


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("authority") / "ca"
    create(found, "a CA of this test")
    return found


def serving(folder: Path) -> MadeCertificates:
    return MadeCertificates(Authority(folder), None)


def trusting(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=folder / "ca.pem")


def test_tls_with_clients_only(run: Run, folder: Path) -> None:
    async def main() -> None:
        async with (
            Broker() as broker,
            standing(broker.address, tls=serving(folder)) as proxy,
            client(proxy.where, ssl=trusting(folder)) as c,
        ):
            for number in range(20):
                assert (await c.ask(heartbeat(number)))[4:8] == number.to_bytes(4, "big")

    run(main)


def test_tls_with_brokers_only(run: Run, folder: Path) -> None:
    async def main() -> None:
        broker = Broker(ssl=serving(folder).context("localhost"))
        async with (
            broker,
            standing(
                Endpoint("localhost", broker.address.port), upstream_tls=origination(folder / "ca.pem")
            ) as proxy,
            client(proxy.where) as c,
        ):
            assert (await c.ask(heartbeat(7)))[4:8] == b"\0\0\0\7"

    run(main)


def test_tls_on_both_sides_and_an_end_that_comes_through(run: Run, folder: Path) -> None:
    async def main() -> None:
        broker = Broker(ssl=serving(folder).context("127.0.0.1"))
        tls = {"tls": serving(folder), "upstream_tls": origination(folder / "ca.pem")}
        async with (
            broker,
            standing(broker.address, **tls) as proxy,
            client(proxy.where, ssl=trusting(folder)) as c,
        ):
            await c.ask(heartbeat(1))
            broker.writers[0].close()
            assert await c.end() == b""
            await proxy.until(lambda: proxy.server.connections == 0)

    run(main)


def test_a_client_that_half_closes_gets_its_answers_from_a_tls_broker(run: Run, folder: Path) -> None:
    async def main() -> None:
        broker = Broker(ssl=serving(folder).context("127.0.0.1"))
        async with (
            broker,
            standing(broker.address, upstream_tls=origination(folder / "ca.pem")) as proxy,
            client(proxy.where) as c,
        ):
            broker.answering.clear()
            await c.send(heartbeat(1))
            c.writer.write_eof()
            await proxy.until(lambda: len(broker.received) == 1)
            broker.answering.set()
            assert await c.end() == broker.sent[0]

    run(main)


def test_a_broker_that_is_not_trusted_is_named(run: Run, folder: Path) -> None:
    async def main() -> None:
        broker = Broker(ssl=serving(folder).context("127.0.0.1"))
        async with (
            broker,
            standing(broker.address, upstream_tls=origination(None)) as proxy,
            client(proxy.where) as c,
        ):
            assert await c.end() == b""
            (line,) = proxy.lines
            assert f"{broker.address}: its certificate is refused: self-signed certificate" in line
            assert str(c.address) in line

    run(main)


@pytest.mark.parametrize("said", [heartbeat(1), b"GET / HTTP/1.1\r\n\r\n" + bytes(100)])
def test_plain_text_on_a_tls_port_is_named_and_harms_nobody_else(run: Run, folder: Path, said: bytes) -> None:
    async def main() -> None:
        async with (
            Broker() as broker,
            standing(broker.address, tls=serving(folder)) as proxy,
            client(proxy.where, ssl=trusting(folder)) as other,
            client(proxy.where) as c,
        ):
            await c.send(said)
            await c.end()
            await proxy.until(lambda: bool(proxy.lines))
            assert proxy.lines[0].startswith(f"client {c.address}: TLS: ")
            await other.ask(heartbeat(2))

    run(main)


def test_a_client_that_does_not_trust_the_proxy_is_named(run: Run, folder: Path) -> None:
    async def main() -> None:
        async with Broker() as broker, standing(broker.address, tls=serving(folder)) as proxy:
            with pytest.raises(ssl.SSLCertVerificationError):
                async with client(proxy.where, ssl=ssl.create_default_context()):
                    pass
            await proxy.until(lambda: bool(proxy.lines))
            # Whether the client's alert gets through before its RST is up to the client.
            assert "unknown ca" in proxy.lines[0] or "does not trust us" in proxy.lines[0]

    run(main)


def test_one_port_for_all_brokers_told_apart_by_name(run: Run, folder: Path) -> None:
    async def main() -> None:
        async with Broker() as one, Broker() as two:
            one.nodes = two.nodes = {1: one.address, 2: two.address}
            sni = {"tls": serving(folder), "sni": True, "advertise": "kafka.example"}
            async with standing(one.address, **sni) as proxy:
                async with client(proxy.where, ssl=trusting(folder), server_hostname="kafka.example") as c:
                    assert await c.brokers() == {
                        1: Endpoint("broker-1.kafka.example", proxy.where.port),
                        2: Endpoint("broker-2.kafka.example", proxy.where.port),
                    }
                async with client(
                    proxy.where, ssl=trusting(folder), server_hostname="broker-2.kafka.example"
                ) as c:
                    await c.ask(heartbeat(1))
                assert (len(one.received), len(two.received)) == (1, 1)
                for name, why in (
                    ("broker-7.kafka.example", "asks for broker 7, of which no answer has told yet"),
                    ("elsewhere.example", "asks for 'elsewhere.example', which is no broker's name here"),
                ):
                    async with client(proxy.where, ssl=trusting(folder), server_hostname=name) as c:
                        await c.end()
                    await proxy.until(lambda why=why: any(why in line for line in proxy.lines))

    run(main)


@pytest.mark.parametrize("secured", [False, True])
def test_the_proxy_protocol_in_names_the_client(run: Run, folder: Path, secured: bool) -> None:
    """Also with the first bytes of TLS or Kafka in the same packet."""

    async def main() -> None:
        told = write(Endpoint("192.0.2.7", 5555), Endpoint("192.0.2.1", 9092))
        more = {"tls": serving(folder)} if secured else {}
        async with (
            Broker() as broker,
            standing(broker.address, proxy_protocol_in=True, **more) as proxy,
            client(proxy.where) as c,
        ):
            if secured:
                c.writer.write(told)
                await c.writer.start_tls(trusting(folder), server_hostname="localhost")
                await c.ask(heartbeat(1))
            else:
                await c.ask(told + heartbeat(1))
            (conn,) = proxy.server.open_connections()
            assert conn.client == Endpoint("192.0.2.7", 5555)
            assert conn.broker == broker.address

    run(main)


def test_who_leaves_the_header_out_is_named(run: Run) -> None:
    async def main() -> None:
        async with (
            Broker() as broker,
            standing(broker.address, proxy_protocol_in=True) as proxy,
            client(proxy.where) as c,
        ):
            await c.send(heartbeat(1))
            assert await c.end() == b""
            assert proxy.lines[0].startswith(f"client {c.address}: no PROXY protocol header")

    run(main)


def test_the_proxy_protocol_out_tells_the_broker_who_it_is(run: Run) -> None:
    async def main() -> None:
        broker = Broker()
        headers: list[bytes] = []

        async def after_the_header(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            headers.append(await reader.readexactly(28))
            await broker.answer_all(reader, writer)

        broker.talk = after_the_header
        async with (
            broker,
            standing(broker.address, proxy_protocol_out=True) as proxy,
            client(proxy.where) as c,
        ):
            await c.ask(heartbeat(1))
            header = maybe_header(headers[0])
            assert header is not None
            assert (header.client, header.target) == (c.address, proxy.where)

    run(main)


def test_the_proxy_protocol_out_comes_before_tls(run: Run, folder: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            settings = {"proxy_protocol_out": True, "upstream_tls": origination(folder / "ca.pem")}
            async with (
                standing(Endpoint(*listening.getsockname()), **settings) as proxy,
                client(proxy.where) as c,
            ):
                sock, _ = await loop.sock_accept(listening)
                header = maybe_header(await loop.sock_recv(sock, 28))
                assert header is not None
                assert header.client == c.address
                accepted = serving(folder).context("127.0.0.1")
                transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, sock, ssl=accepted)
                assert transport.get_extra_info("ssl_object").version() == "TLSv1.3"
                transport.close()
                assert await c.end() == b""

    run(main)


def client_certificate(folder: Path, name: str) -> bytes:
    """Signed by the authority, for TLS clients: certificate and key, PEM."""
    authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    signing = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    parts = ((NameOID.ORGANIZATION_NAME, "Tests"), (NameOID.COMMON_NAME, name))
    subject = x509.Name([x509.NameAttribute(kind, value) for kind, value in parts])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(authority.subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(signing, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def test_mutual_tls_with_the_client_and_with_the_broker(run: Run, folder: Path, tmp_path: Path) -> None:
    """Both ask for a certificate; the principal is that of the client's own."""
    for name in ("alice", "proxy"):
        (tmp_path / f"{name}.pem").write_bytes(client_certificate(folder, name))
    asking = MadeCertificates(Authority(folder), folder / "ca.pem")
    alice = trusting(folder)
    alice.load_cert_chain(tmp_path / "alice.pem")
    sessions: list[Session] = []

    class Observer:
        @hookimpl
        def opened(self, session: Session) -> None:
            sessions.append(session)

    async def main() -> None:
        settings = {
            "tls": asking,
            "upstream_tls": origination(folder / "ca.pem", certificate=tmp_path / "proxy.pem"),
        }
        async with (
            Broker(ssl=asking.context("127.0.0.1")) as broker,
            standing(broker.address, plugins=(("observer", Observer()),), **settings) as proxy,
        ):
            async with client(proxy.where, ssl=alice) as c:
                await c.ask(heartbeat(1))
                shown = broker.writers[0].get_extra_info("peercert")["subject"]
                assert (("commonName", "proxy"),) in shown
            async with client(proxy.where, ssl=trusting(folder)) as anonymous:
                assert await anonymous.end() == b""
            await proxy.until(lambda: "peer did not return a certificate" in str(proxy.lines))

    run(main)
    assert sessions[0].peer.principal == "User:CN=alice,O=Tests"
    assert sessions[0].peer.security_protocol == "SSL"
