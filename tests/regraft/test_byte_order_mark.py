"""That files which people edit may begin with a byte order mark, which editors on Windows write."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from regraft.alerts.read_rules import DEFAULT_RULES, load_rules
from regraft.dashboard.operator_tokens import read_secret
from regraft.dashboard.revoked_tokens import RevokedTokens
from regraft.infra.orders.order_keys import SigningKey, create_signing_key, load_signing_key, read_trusted_keys
from regraft.infra.process.connection_security import ConnectionSecurity
from regraft.overlay.read_inventory import load_inventory
from regraft.producers.run_agent import read_brokers
from regraft.settings.run_settings import load_settings
from tests.regraft.make_small_recording import small_inventory


def _secret_of(file: Path) -> str | None:
    return read_secret(load_settings({"dashboard": {"secret_file": file}}).dashboard)


TRUSTED = SigningKey("ana", Ed25519PrivateKey.generate()).trusted_line(datetime(2030, 1, 1, tzinfo=UTC)) + "\n"
SECRET = "a secret of more than 32 characters\n"
FILES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "settings": ("run = {seed = 3}\n", lambda file: load_settings(file=file).run.seed),
    "inventory": (small_inventory().to_json(), lambda file: load_inventory(file).brokers),
    "rules": (DEFAULT_RULES.read_text(), lambda file: load_rules(file).rules),
    "trusted keys": (TRUSTED, read_trusted_keys),
    "brokers of an agent": ('{"b01": "nats://h:1"}', lambda file: read_brokers(file, None)),
    "secret of the dashboard": (SECRET, lambda file: _secret_of(file)),
    "password": (SECRET, lambda file: ConnectionSecurity(username="u", password_file=file).password),
    "revoked tokens": ("3f9c2a7be01d4c58\n", lambda file: "3f9c2a7be01d4c58" in RevokedTokens(file)),
}


@pytest.mark.parametrize("which", FILES)
def test_a_byte_order_mark_changes_nothing(which: str, tmp_path: Path) -> None:
    """Nor do the line ends of Windows."""
    text, read = FILES[which]
    plain, marked = tmp_path / "plain", tmp_path / "marked"
    plain.write_bytes(text.encode())
    marked.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert read(plain)
    assert read(marked) == read(plain)


def test_a_private_key_may_have_a_byte_order_mark(tmp_path: Path) -> None:
    """The line with its name comes first."""
    file = tmp_path / "ana.key"
    create_signing_key("ana", file)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert load_signing_key(file).name == "ana"
