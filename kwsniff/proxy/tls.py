"""TLS on either side: contexts for the proxy's own clients, and for the brokers behind it.

In: files, or the local authority that makes a certificate for each name that clients ask for (SNI, RFC 6066
section 3). Out: ssl.SSLContext. Mistakes in files are ConfigError; what a client asks for never is.
"""

from __future__ import annotations

import ssl
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import Protocol
from weakref import WeakKeyDictionary

from cryptography import x509

from kwsniff.errors import ConfigError
from kwsniff.proxy.authority import Authority, Pair

_CACHED = 256
"""Certificates made on the fly that are kept: brokers are few, but clients may ask for any name."""

_Asked = WeakKeyDictionary[ssl.SSLObject, str]


class Termination(Protocol):
    """The proxy as a TLS server."""

    def context(self, host: str) -> ssl.SSLContext:
        """For a connection to `host`, as long as its client asks for no other name."""

    def name(self, connection: object) -> str | None:
        """The name that the client of an established connection (its ssl_object) asked for."""


class OwnCertificate:
    """One certificate, from files."""

    def __init__(self, certificate: Path, key: Path | None, client_ca: Path | None) -> None:
        self._asked: _Asked = WeakKeyDictionary()
        self._context = _server_context(client_ca)
        _load(self._context, certificate, key)
        self._context.sni_callback = self._names

    def context(self, host: str) -> ssl.SSLContext:  # noqa: ARG002 - one for all
        return self._context

    def name(self, connection: object) -> str | None:
        return self._asked.get(connection) if isinstance(connection, ssl.SSLObject) else None

    def _names(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        if name is not None:
            self._asked[connection] = name


class MadeCertificates:
    """A certificate of the local authority for each name.

    advertised: a name that each of them has besides; a client that connects to an address asks for no name.
    """

    def __init__(self, authority: Authority, client_ca: Path | None, advertised: str | None = None) -> None:
        self._asked: _Asked = WeakKeyDictionary()
        self._authority = authority
        self._client_ca = client_ca
        self._also = () if advertised is None else (advertised,)
        self._made: OrderedDict[str, ssl.SSLContext] = OrderedDict()
        # What is wrong with a file or a name is told at the start.
        _server_context(client_ca)
        try:
            authority.server("localhost", *self._also)
        except ValueError as error:
            raise ConfigError(str(error)) from error

    def context(self, host: str) -> ssl.SSLContext:
        """ValueError where `host` is no name that a certificate could have."""
        host = host.lower()
        found = self._made.get(host)
        if found is None:
            found = self._made[host] = self._make(host)
            if len(self._made) > _CACHED:
                self._made.popitem(last=False)
        self._made.move_to_end(host)
        return found

    def name(self, connection: object) -> str | None:
        return self._asked.get(connection) if isinstance(connection, ssl.SSLObject) else None

    def _make(self, host: str) -> ssl.SSLContext:
        context = _server_context(self._client_ca)
        _load_pair(context, self._authority.server(host, *self._also))
        context.sni_callback = self._names
        return context

    def _names(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
        if name is None:
            return None
        try:
            connection.context = self.context(name)
        except ValueError:
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        self._asked[connection] = name
        return None


def origination(
    ca: Path | None, *, verify: bool = True, certificate: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """The proxy as a TLS client of the brokers. ca None: the system's authorities."""
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot read certificates from {ca}: {_told(error)}") from error
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        _load(context, certificate, key)
    return context


def principal(connection: object) -> str | None:
    """Of the client of an established connection, as a broker would see it by its certificate (RFC 4514)."""
    der = connection.getpeercert(binary_form=True) if isinstance(connection, ssl.SSLObject) else None
    if der is None:
        return "User:ANONYMOUS"
    try:
        return f"User:{x509.load_der_x509_certificate(der).subject.rfc4514_string()}"
    except ValueError:
        return None


def _server_context(client_ca: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"cannot read certificates from {client_ca}: {_told(error)}") from error
    return context


def _load(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    # A key with a passphrase would be asked for on the terminal: it is refused instead.
    try:
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ssl.SSLError, ValueError) as error:
        files = certificate if key is None else f"{certificate} and {key}"
        raise ConfigError(f"cannot use the certificate and key in {files}: {_told(error)}") from error


def _load_pair(context: ssl.SSLContext, pair: Pair) -> None:
    """The ssl module takes a key from a file only: one that nobody else can read, for a moment."""
    with tempfile.NamedTemporaryFile(prefix="kwsniff-") as file:
        file.write(pair.certificate + pair.key)
        file.flush()
        context.load_cert_chain(file.name)


def _told(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
