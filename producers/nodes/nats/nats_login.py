"""How a connector logs in at a NATS server: user and password, an nkey, or a JWT with its nkey. Pure.

Seeds are decoded here, because the client library for them would bring one more package for 20 lines; signing is the
cryptography library's.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from regraft.producers.nodes.connectors.connector import ConnectorError

SEED_PREFIX, USER_PREFIX = 18 << 3, 20 << 3  # S and U, as base32 shows them.
SEED_BYTES = 32
_SECTIONS = re.compile(r"-{3,}[^\n]*-{3,}\r?\n(.+)\r?\n\s*-{3,}[^\n]*-{3,}")


@dataclass(frozen=True, slots=True, repr=False)
class NatsLogin:
    """A login; without anything there is none."""

    user: str = ""
    password: str = ""
    key: Ed25519PrivateKey | None = None
    jwt: str = ""

    @property
    def kind(self) -> str:
        """What is given, as an advice names it."""
        if self.key is not None:
            return "JWT" if self.jwt else "nkey"
        return "user" if self.user else "none"

    @property
    def public_key(self) -> str:
        """The public nkey of a user."""
        assert self.key is not None
        raw = bytes([USER_PREFIX]) + self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return base64.b32encode(raw + _sum_of(raw)).decode().rstrip("=")

    def signature(self, nonce: str) -> str:
        """Return the signature of a server's nonce."""
        assert self.key is not None
        return base64.urlsafe_b64encode(self.key.sign(nonce.encode())).decode().rstrip("=")

    def facts(self, nonce: str) -> dict[str, str]:
        """Return the fields of a leaf's CONNECT."""
        if self.key is None:
            return {name: value for name, value in (("user", self.user), ("pass", self.password)) if value}
        who = {"jwt": self.jwt} if self.jwt else {"nkey": self.public_key}
        return {**who, "sig": self.signature(nonce)}


NO_LOGIN = NatsLogin()


def is_login_refused(reason: str) -> bool:
    """Return True if a server has closed the connection because of the login."""
    return any(word in reason.lower() for word in ("authorization", "authentication"))


def login_advice(place: str, login: NatsLogin, reason: str) -> str:
    """Return what to do where a server refuses the login."""
    given = "no login" if login.kind == "none" else f"the {login.kind}"
    return (
        f"{place} refuses {given} ({reason}): give node.connector_user and node.connector_password_file, or "
        "connectors.nats.credentials_file, of a user that may connect there"
    )


def read_login(user: str, password: str, credentials_file: Path | None) -> NatsLogin:
    """Return the login that settings name; raise ConnectorError if the credentials file holds none."""
    if credentials_file is None:
        return NatsLogin(user, password)
    try:
        text = credentials_file.read_text(encoding="utf-8-sig")
        sections = _SECTIONS.findall(text)
        jwt, seed = (sections[0], sections[1]) if len(sections) > 1 else ("", text.strip())
        return NatsLogin(key=_key_of(seed.strip()), jwt=jwt.strip())
    except (OSError, ValueError) as error:
        raise ConnectorError(
            f"connectors.nats.credentials_file {credentials_file} holds no login ({error}): it must be a .creds file "
            "with JWT and seed of a user, or a file with the seed of a user's nkey (SU...)"
        ) from error


def _key_of(seed: str) -> Ed25519PrivateKey:
    """Return the key of a user's seed; raise ValueError, without any of it, if it is none."""
    try:
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
    except binascii.Error:
        raise ValueError("no seed is found") from None
    is_seed = len(raw) == SEED_BYTES + 4 and raw[0] & 0xF8 == SEED_PREFIX and _sum_of(raw[:-2]) == raw[-2:]
    if not is_seed:
        raise ValueError("the seed is damaged")
    if (raw[0] & 7) << 5 | raw[1] >> 3 != USER_PREFIX:
        raise ValueError("the seed is not that of a user")
    return Ed25519PrivateKey.from_private_bytes(raw[2:-2])


def _sum_of(raw: bytes) -> bytes:
    return binascii.crc_hqx(raw, 0).to_bytes(2, "little")
