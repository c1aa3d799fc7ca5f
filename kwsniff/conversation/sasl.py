"""SASL as seen from the wire: which mechanism, whose name, done or not.

Tokens come from SaslAuthenticate bodies (KIP-152) or bare behind SaslHandshake v0. Only the name is read
out of them; passwords, proofs and signatures are never kept.
"""

from __future__ import annotations

import base64
import binascii
import json


class Authentication:
    """The authentication of one session; a re-authentication (KIP-368) starts it again."""

    def __init__(self, mechanism: str | None = None) -> None:
        self.mechanism = mechanism
        self.principal: str | None = None
        """Known once the server has accepted; None before, and for mechanisms that hide the name."""
        self._claimed: str | None = None

    def client_token(self, token: bytes) -> None:
        if self._claimed is None:
            read = _NAMES.get(_family(self.mechanism))
            self._claimed = read(token) if read else None

    def server_token(self, token: bytes) -> None:
        """The server's answer to a token, which it accepted (a refusal never gets here)."""
        if _family(self.mechanism) == "SCRAM" and not token.startswith(b"v="):
            return  # RFC 5802: the server-final-message begins so; a salt may hold the same letters
        if self._claimed is not None:
            self.principal = f"User:{self._claimed}"


def _family(mechanism: str | None) -> str:
    return "SCRAM" if (mechanism or "").startswith("SCRAM-") else (mechanism or "")


def _plain_name(token: bytes) -> str | None:
    """RFC 4616: [authzid] NUL authcid NUL passwd. Kafka's principal is the authcid."""
    parts = token.split(b"\0")
    return _text(parts[1]) if len(parts) == 3 else None


def _scram_name(token: bytes) -> str | None:
    """RFC 5802 client-first-message: gs2-header n=name,r=nonce; =2C and =3D stand for comma and equals."""
    for attribute in token.split(b","):
        if attribute.startswith(b"n="):
            name = _text(attribute[2:])
            return name and name.replace("=2C", ",").replace("=3D", "=")
    return None


def _bearer_name(token: bytes) -> str | None:
    """RFC 7628: the `sub` claim of an unverified JWT, as Kafka's default principal claim has it."""
    for part in token.split(b"\x01"):
        if part.lower().startswith(b"auth=bearer "):
            pieces = part[12:].split(b".")
            return _subject(pieces[1]) if len(pieces) >= 2 else None
    return None


def _subject(claims: bytes) -> str | None:
    try:
        found = json.loads(base64.urlsafe_b64decode(claims + b"=" * (-len(claims) % 4)))
    except (ValueError, RecursionError, binascii.Error):
        return None
    subject = found.get("sub") if isinstance(found, dict) else None
    return subject if isinstance(subject, str) else None


def _text(name: bytes) -> str | None:
    return name.decode("utf-8", "surrogateescape") or None


_NAMES = {"PLAIN": _plain_name, "SCRAM": _scram_name, "OAUTHBEARER": _bearer_name}
