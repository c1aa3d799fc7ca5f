"""A local certificate authority: makes itself (`kwsniff ca`), and a server certificate for any host name.

Two files in a folder: `ca.pem`, which clients are to trust, and `ca.key`, which nobody else may read. Knows
nothing of sockets; ConfigError where the folder is not what it should be.
"""

from __future__ import annotations

import ipaddress
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kwsniff.errors import ConfigError

CERTIFICATE, KEY = "ca.pem", "ca.key"
_AUTHORITY_DAYS, _SERVER_DAYS = 3650, 397
_LONGEST_NAME = 64
"""Of a common name (X.520 ub-common-name)."""
_HOST_NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")


class Pair(NamedTuple):
    """A certificate (with its chain) and its private key, both PEM."""

    certificate: bytes
    key: bytes


def create(folder: Path, name: str) -> Path:
    """Make a certificate authority in `folder`; where its certificate is. Never overwrites one."""
    if not 0 < len(name) <= _LONGEST_NAME:
        raise ConfigError(f"the name of a certificate authority has 1 to {_LONGEST_NAME} characters")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(subject, subject, key.public_key(), _AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file in (CERTIFICATE, KEY):
            if (folder / file).exists():
                raise ConfigError(f"{folder / file} is there already: it is not overwritten")
        _write(folder / KEY, _private(key), 0o600)
        _write(folder / CERTIFICATE, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    except OSError as error:
        raise ConfigError(f"cannot write {folder}: {error.strerror or error}") from error
    return folder / CERTIFICATE


class Authority:
    """What `create` has made, ready to sign."""

    def __init__(self, folder: Path) -> None:
        try:
            self._certificate = x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())
            key = serialization.load_pem_private_key((folder / KEY).read_bytes(), None)
        except OSError as error:
            told = f"{error.strerror or error}; make one with kwsniff ca {folder}"
            raise ConfigError(f"cannot read the certificate authority in {folder}: {told}") from error
        except (ValueError, TypeError) as error:
            raise ConfigError(f"the certificate authority in {folder} cannot be read: {error}") from error
        if (
            not isinstance(key, ec.EllipticCurvePrivateKey)
            or key.public_key() != self._certificate.public_key()
        ):
            raise ConfigError(f"{folder / KEY} is not the key of {folder / CERTIFICATE}")
        self._key = key
        self._server_key = ec.generate_private_key(ec.SECP256R1())

    def server(self, host: str, *others: str) -> Pair:
        """A server certificate for host names and addresses. ValueError for what is neither."""
        names = [_general_name(name) for name in dict.fromkeys((host, *others))]
        builder = _builder(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:_LONGEST_NAME])]),
            self._certificate.subject,
            self._server_key.public_key(),
            _SERVER_DAYS,
        )
        certificate = (
            builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(sign_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        chain = (certificate, self._certificate)
        pem = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in chain)
        return Pair(pem, _private(self._server_key))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # clocks differ
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        if _HOST_NAME.fullmatch(host) is None:
            raise ValueError(f"{host[:300]!r} is no host name") from None
        return x509.DNSName(host.rstrip("."))


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, data: bytes, mode: int) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
