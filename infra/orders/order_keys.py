"""The keys that sign orders (Ed25519): private keys of their holders, and the public keys that are trusted.

In: a private key file; a TOML file of trusted keys, one line each, read again when it changes. Out: signed orders, and
trusted keys by name. Whether an order is followed belongs to :mod:`infra.orders.judge_orders`.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import structlog
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from msgspec import structs

from regraft.infra.process.stack_error import StackError
from regraft.infra.process.write_private import create_private
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.parse_text import parse_toml
from regraft.schemas.status_file import replace_file

NAME_LENGTH_MAX = 100
NAME_LINE = "Regraft-Key: "  # Names the holder, above the key in its file.
NONCE_BYTES = 16
DAY_S = 86_400
POLL_S = 1.0  # The shortest pause between checks of a file of trusted keys.
KEYS_MAX = 1_000
TRUSTED_FILE, OPERATOR_FILE, DASHBOARD_FILE = "trusted.toml", "operator.key", "dashboard.key"
ENTRY_NAMES = frozenset({"public", "not_after", "orders", "for_others", "revoked"})

log = structlog.get_logger(__name__)


class OrderKeyError(StackError):
    """Reports what is wrong with a key or a file of keys, and what to do; it never contains any of a private key."""


@dataclass(frozen=True, slots=True)
class OrderSettings:
    """Who may give orders, and with which keys this machine gives them."""

    trusted_keys_file: Annotated[
        Path | None,
        "public keys whose orders are followed; none for order-keys/trusted.toml in the run directory, which "
        "`regraft run` creates",
    ] = None
    key_file: Annotated[
        Path | None,
        "private key that signs the orders of commands; none for order-keys/operator.key in the run directory",
    ] = None
    dashboard_key_file: Annotated[
        Path | None,
        "the same for orders given on the dashboard; none for order-keys/dashboard.key",
    ] = None
    allow_unsigned: Annotated[
        bool,
        "follow unsigned orders, too: anyone who can write to the topic can then give any order in any name",
    ] = False
    # Where keys are that have no file set.
    directory: Path | None = None

    @property
    def trusted_file(self) -> Path | None:
        """The file of trusted keys, by default the one in ``directory``; None if neither is set."""
        return self._within(self.trusted_keys_file, TRUSTED_FILE)

    def operator_key(self) -> SigningKey | None:
        """Return the key of commands, None if none is set and the default file does not exist. Raises OrderKeyError."""
        return self._key(self.key_file, OPERATOR_FILE)

    def dashboard_key(self) -> SigningKey | None:
        """Return the dashboard's key, None if none is set and the default file does not exist. Raises OrderKeyError."""
        return self._key(self.dashboard_key_file, DASHBOARD_FILE)

    def _key(self, named: Path | None, name: str) -> SigningKey | None:
        file = self._within(named, name)
        return None if file is None or (named is None and not file.exists()) else load_signing_key(file)

    def _within(self, named: Path | None, name: str) -> Path | None:
        return named or (None if self.directory is None else self.directory / name)


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A public key: its expiry, which orders it may sign, and whether it signs for others, as a dashboard does."""

    name: str
    public: Ed25519PublicKey
    not_after_ms: int
    kinds: frozenset[OrderKind] = frozenset(OrderKind)
    is_for_others: bool = False
    is_revoked: bool = False

    def state(self, now_ms: int) -> str:
        """Return ``revoked``, ``trusted`` or ``ended``: whether orders that it signs now are followed."""
        return "revoked" if self.is_revoked else "trusted" if now_ms <= self.not_after_ms else "ended"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key and its holder's name."""

    name: str
    private: Ed25519PrivateKey

    def sign(self, order: Order, namespace: str) -> Order:
        """Return the order signed for one namespace, with a new nonce unless it has one."""
        named = structs.replace(order, key_name=self.name, nonce=order.nonce or new_nonce())
        return structs.replace(named, signature=self.private.sign(named.signed_text(namespace)))

    def trusted_line(self, not_after: datetime, kinds: Sequence[OrderKind] = (), *, for_others: bool = False) -> str:
        """Return the line for a file of trusted keys; without ``kinds`` all orders are allowed."""
        public = self.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        parts = [f'public = "{base64.b64encode(public).decode()}"', f"not_after = {not_after:%Y-%m-%dT%H:%M:%SZ}"]
        parts += [f"orders = {json.dumps([str(kind) for kind in kinds])}"] if kinds else []
        parts += ["for_others = true"] if for_others else []
        return f'"{self.name}" = {{ {", ".join(parts)} }}'


def create_signing_key(name: str, file: Path) -> SigningKey:
    """Make a key for ``name`` and write it to a new file that only its owner reads. Raises OrderKeyError."""
    if not 0 < len(name) <= NAME_LENGTH_MAX or not name.isprintable() or {'"', "\\"} & set(name):
        raise OrderKeyError(
            f"A key belongs to an operator: give a name of 1 to {NAME_LENGTH_MAX} printable characters without quotes."
        )
    key = SigningKey(name, Ed25519PrivateKey.generate())
    text = key.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        create_private(file, f"{NAME_LINE}{name}\n{text}".encode())
    except FileExistsError as error:
        raise OrderKeyError(f"{file} already exists: choose another name, or move it away.") from error
    except OSError as error:
        raise OrderKeyError(f"{file} cannot be written ({error.strerror}): check its directory.") from error
    return key


def load_signing_key(file: Path) -> SigningKey:
    """Return the private key in a file. Raises OrderKeyError if it is unusable, or if other users can read it."""
    try:
        mode, text = file.stat().st_mode, file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise OrderKeyError(
            f"The key for orders {file} cannot be read ({reason}): `regraft keys create NAME` creates one."
        ) from error
    if mode & 0o077:
        raise OrderKeyError(f"The key for orders {file} can be read by others (mode {mode & 0o777:o}): chmod 600 it.")
    first, _, rest = text.partition("\n")
    try:
        private = load_pem_private_key(rest.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        private = None
    if not first.startswith(NAME_LINE) or not isinstance(private, Ed25519PrivateKey):
        raise OrderKeyError(f"{file} holds no key for orders: `regraft keys create NAME` creates one.")
    return SigningKey(first.removeprefix(NAME_LINE).strip(), private)


def read_trusted_keys(file: Path) -> dict[str, TrustedKey]:
    """Return the trusted keys of a file by name. Raises OrderKeyError that names the first wrong entry."""
    try:
        tables = parse_toml(file.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise OrderKeyError(
            f"The trusted keys {file} cannot be read ({reason}): `regraft keys create` prints the line for each."
        ) from error
    except ValueError as error:
        raise OrderKeyError(f"The trusted keys {file} are not TOML ({error}): one line for each key.") from error
    if len(tables) > KEYS_MAX:
        raise OrderKeyError(f"{file} holds {len(tables)} keys: at most {KEYS_MAX}.")
    return {name: _trusted_key(file, name, entry) for name, entry in tables.items()}


def _trusted_key(file: Path, name: str, entry: Any) -> TrustedKey:
    def refused(what: str) -> OrderKeyError:
        return OrderKeyError(f"The trusted key {name} in {file} {what}.")

    if not isinstance(entry, dict) or not set(entry) <= ENTRY_NAMES:
        raise refused(f"must be a table of {', '.join(sorted(ENTRY_NAMES))}")
    not_after, kinds = entry.get("not_after"), entry.get("orders", [str(kind) for kind in OrderKind])
    if not isinstance(not_after, datetime) or not_after.tzinfo is None:
        raise refused("needs an expiry date, for example not_after = 2030-01-31T00:00:00Z")
    if not isinstance(kinds, list) or any(kind not in list(OrderKind) for kind in kinds):
        raise refused(f"has orders {kinds!r}: a list of {', '.join(OrderKind)}")
    flags = {flag: entry.get(flag, False) for flag in ("for_others", "revoked")}
    for flag, value in flags.items():
        if not isinstance(value, bool):
            raise refused(f"has {flag} {value!r}: true or false")
    try:
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(entry.get("public", ""), validate=True))
    except (ValueError, TypeError, binascii.Error) as error:
        raise refused("has no public key that is 32 bytes in base64") from error
    allowed = frozenset(OrderKind(kind) for kind in kinds)
    ends_ms = int(not_after.timestamp() * 1000)
    return TrustedKey(name, public, ends_ms, allowed, flags["for_others"], flags["revoked"])


class TrustedKeys:
    """The trusted keys of a file, read again when it changes; ``version`` counts successful reads.

    If the file becomes unusable, ``error`` says why and the last keys are kept, so that orders in force stay in force:
    a mistake in the file does not end a pause. No new signed order may be followed until it is repaired.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._check_at_s = 0.0
        self._seen: tuple[int, int, int] | None = (0, 0, 0)  # Different from any file and from a missing one.
        self.by_name: Mapping[str, TrustedKey] = {}
        self.error = "no file of trusted keys is named (orders.trusted_keys_file)"
        self.version = 0
        self.refresh()

    def refresh(self) -> None:
        """Read the file again if it has changed; check at most every POLL_S."""
        if self._file is None or time.monotonic() < self._check_at_s:
            return
        self._check_at_s = time.monotonic() + POLL_S
        try:
            status = self._file.stat()
            seen: tuple[int, int, int] | None = (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError:
            seen = None
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self.by_name, self.error = read_trusted_keys(self._file), ""
            self.version += 1
        except OrderKeyError as error:
            self.error = str(error).rstrip(".")
        log.info("trusted_keys_read", file=str(self._file), keys=sorted(self.by_name), refused=self.error)


def open_trusted_keys(orders: OrderSettings) -> TrustedKeys:
    """Return the trusted keys of the settings; none if no file is set and the default one does not exist.

    Raises OrderKeyError if the file is unusable, because orders in force could then not be verified.
    """
    file = orders.trusted_file
    keys = TrustedKeys(file)
    if keys.error and file is not None and (orders.trusted_keys_file is not None or file.exists()):
        raise OrderKeyError(f"{keys.error}.")
    return keys


def make_local_keys(directory: Path, user: str, days: int) -> bool:
    """Make keys for commands and the dashboard on this machine, unless they exist; return True if they are new.

    Stages that run here trust them, so only users who can read ``directory`` can give orders. Raises OrderKeyError.
    """
    trusted = directory / TRUSTED_FILE
    if trusted.exists():
        return False
    until = datetime.fromtimestamp(time.time() + days * DAY_S, UTC)
    lines, files = [], {directory / OPERATOR_FILE: user, directory / DASHBOARD_FILE: "dashboard"}
    with ExitStack() as undo:  # Keys that nobody trusts would be in the way of the next call.
        for file, name in files.items():
            lines.append(create_signing_key(name, file).trusted_line(until, for_others=True))
            undo.callback(file.unlink, missing_ok=True)
        try:
            replace_file(trusted, "\n".join(lines) + "\n")
        except OSError as error:
            raise OrderKeyError(f"{trusted} cannot be written ({error.strerror}): check its directory.") from error
        undo.pop_all()
    return True


def new_nonce() -> str:
    """Return a random value that distinguishes an order from copies of others."""
    return secrets.token_hex(NONCE_BYTES)
