"""Certificates for brokers and clients of the tests: an authority made for the run, PEM files.

Out: ca.pem, broker.pem and client.pem (key, certificate) in the given folder. broker.pem holds for the
loopback addresses that the tests use.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_HOSTS = ("127.0.0.1", "127.0.0.2")


def make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    key, name = _key(), _name("kwsniff tests")
    ca = _certificate(name, key, name, key, [(x509.BasicConstraints(ca=True, path_length=0), True)])
    (folder / "ca.pem").write_bytes(ca.public_bytes(Encoding.PEM))
    addresses = [x509.IPAddress(ip_address(host)) for host in _HOSTS]
    names = x509.SubjectAlternativeName([*addresses, x509.DNSName("localhost")])
    _pair(folder / "broker.pem", _name("broker"), name, key, [(names, False)])
    _pair(folder / "client.pem", _name("client"), name, key, [])


def _pair(
    file: Path, subject: x509.Name, issuer: x509.Name, ca_key: ec.EllipticCurvePrivateKey, more
) -> None:
    key = _key()
    held = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(held + _certificate(subject, key, issuer, ca_key, more).public_bytes(Encoding.PEM))


def _certificate(subject, key, issuer, ca_key, more) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
    )
    for extension, critical in more:
        builder = builder.add_extension(extension, critical)
    return builder.sign(ca_key, hashes.SHA256())


def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
