"""Certificates made on the fly, and contexts for both sides: handshakes in memory, as OpenSSL judges them."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import pytest

from kwsniff.errors import ConfigError
from kwsniff.proxy import tls
from kwsniff.proxy.authority import Authority, create
from kwsniff.proxy.tls import MadeCertificates, OwnCertificate, Termination


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("authority") / "ca"
    create(found, "a CA of this test")
    return found


def trusting(folder: Path) -> ssl.SSLContext:
    """A client that checks as strictly as Python 3.13 does by default."""
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def shake(
    client: ssl.SSLContext, server: Termination, name: str | None, host: str = "127.0.0.1"
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends after their handshake. name: what the client asks for and checks; None: it does neither."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server, server_hostname=name)
    answering = server.context(host).wrap_bio(to_server, to_client, server_side=True)
    left = [asking, answering]
    for _ in range(10):
        for end in list(left):
            try:
                end.do_handshake()
                left.remove(end)
            except ssl.SSLWantReadError:
                pass
    assert not left
    return asking, answering


def test_an_authority_is_made_once(tmp_path: Path) -> None:
    create(tmp_path / "ca", "mine")
    before = [(tmp_path / "ca" / name).read_bytes() for name in ("ca.pem", "ca.key")]
    with pytest.raises(ConfigError, match=r"ca\.pem is there already"):
        create(tmp_path / "ca", "mine")
    (tmp_path / "ca" / "ca.pem").unlink()
    with pytest.raises(ConfigError, match=r"ca\.key is there already"):
        create(tmp_path / "ca", "mine")
    assert (tmp_path / "ca" / "ca.key").read_bytes() == before[1]


def test_its_key_is_nobody_elses(folder: Path) -> None:
    assert stat.S_IMODE((folder / "ca.key").stat().st_mode) == 0o600
    assert b"PRIVATE KEY" not in (folder / "ca.pem").read_bytes()


@pytest.mark.parametrize(
    "name", ["broker-1.kafka.example", "localhost", "127.0.0.1", "::1", "under_score.example"]
)
def test_a_certificate_for_any_name_that_is_asked_for(folder: Path, name: str) -> None:
    asking, answering = shake(trusting(folder), MadeCertificates(Authority(folder), None), name, host=name)
    assert asking.version() in ("TLSv1.2", "TLSv1.3")
    assert answering.version() == asking.version()


def test_the_name_that_was_asked_for_is_known_afterwards(folder: Path) -> None:
    server = MadeCertificates(Authority(folder), None)
    _, answering = shake(trusting(folder), server, "broker-2.kafka.example")
    assert server.name(answering) == "broker-2.kafka.example"


def test_without_a_name_the_certificate_is_for_the_address(folder: Path) -> None:
    client = trusting(folder)
    client.check_hostname = False
    server = MadeCertificates(Authority(folder), None)
    asking, answering = shake(client, server, None, host="10.9.8.7")
    certificate = asking.getpeercert()
    assert certificate is not None
    assert certificate["subjectAltName"] == (("IP Address", "10.9.8.7"),)
    assert server.name(answering) is None


def test_the_advertised_name_is_in_every_certificate(folder: Path) -> None:
    server = MadeCertificates(Authority(folder), None, "192.0.2.1")
    shake(trusting(folder), server, "192.0.2.1", host="10.9.8.7")
    with pytest.raises(ConfigError, match="no host name"):
        MadeCertificates(Authority(folder), None, "no host")


def test_a_client_that_does_not_know_the_authority_refuses(folder: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="self-signed certificate in certificate chain"):
        shake(ssl.create_default_context(), MadeCertificates(Authority(folder), None), "localhost")


def test_a_name_that_can_be_none_is_refused_by_an_alert(folder: Path) -> None:
    # Python's client would not send it, so the server is asked directly, as OpenSSL would.
    server = MadeCertificates(Authority(folder), None)
    with pytest.raises(ValueError, match="no host name"):
        server.context("*" * 300)
    assert server._names(ssl.SSLObject.__new__(ssl.SSLObject), "a b", server.context("x")) == (
        ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
    )


def test_no_more_certificates_are_kept_than_there_is_use_for(folder: Path) -> None:
    server = MadeCertificates(Authority(folder), None)
    first = server.context("host-0")
    for number in range(1, 300):
        server.context(f"host-{number}")
    assert len(server._made) == 256
    assert server.context("host-0") is not first


def test_mutual_tls_wants_a_certificate_of_the_client(folder: Path, tmp_path: Path) -> None:
    server = MadeCertificates(Authority(folder), folder / "ca.pem")
    plain = trusting(folder)
    plain.maximum_version = ssl.TLSVersion.TLSv1_2  # so that the refusal comes within the handshake
    with pytest.raises(ssl.SSLError, match=r"(?i)peer did not return a certificate"):
        shake(plain, server, "localhost")
    pair = Authority(folder).server("client-1")
    (tmp_path / "client.pem").write_bytes(pair.certificate + pair.key)
    known = trusting(folder)
    known.load_cert_chain(tmp_path / "client.pem")
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate"):  # made for servers: not good for a client
        shake_whole(known, server)


def shake_whole(client: ssl.SSLContext, server: Termination) -> None:
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    shake(client, server, "localhost")


def test_an_own_certificate_serves_every_name(folder: Path, tmp_path: Path) -> None:
    pair = Authority(folder).server("kafka.example")
    (tmp_path / "cert.pem").write_bytes(pair.certificate)
    (tmp_path / "key.pem").write_bytes(pair.key)
    server = OwnCertificate(tmp_path / "cert.pem", tmp_path / "key.pem", None)
    _, answering = shake(trusting(folder), server, "kafka.example")
    assert server.name(answering) == "kafka.example"
    with pytest.raises(ssl.SSLCertVerificationError, match=r"(?i)hostname mismatch"):
        shake(trusting(folder), server, "other.example")


def test_files_that_are_none_are_named(folder: Path, tmp_path: Path) -> None:
    missing, junk = tmp_path / "missing.pem", tmp_path / "junk.pem"
    junk.write_text("not PEM")
    for wrong in (
        lambda: OwnCertificate(missing, None, None),
        lambda: OwnCertificate(junk, None, None),
        lambda: OwnCertificate(folder / "ca.pem", junk, None),
        lambda: MadeCertificates(Authority(folder), missing),
        lambda: tls.origination(missing),
        lambda: tls.origination(folder / "ca.pem", certificate=junk),
        lambda: Authority(tmp_path),
    ):
        with pytest.raises(ConfigError) as found:
            wrong()
        assert str(tmp_path) in str(found.value)
        assert "\n" not in str(found.value)


def test_a_key_that_is_not_the_authoritys_is_told(folder: Path, tmp_path: Path) -> None:
    create(tmp_path / "other", "other")
    (tmp_path / "other" / "ca.pem").write_bytes((folder / "ca.pem").read_bytes())
    with pytest.raises(ConfigError, match="is not the key of"):
        Authority(tmp_path / "other")


def test_brokers_are_checked_unless_told_otherwise(folder: Path) -> None:
    server = MadeCertificates(Authority(folder), None)
    shake(tls.origination(folder / "ca.pem"), server, "broker-1")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(tls.origination(None), server, "broker-1")
    shake(tls.origination(None, verify=False), server, "broker-1")
