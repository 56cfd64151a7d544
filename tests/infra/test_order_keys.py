"""Keys for orders: files that only their owner reads, and trust that can be given, restricted and ended."""

import time
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from regraft.cli import app
from regraft.infra.orders import order_keys
from regraft.infra.orders.order_keys import (
    OrderKeyError,
    OrderSettings,
    TrustedKeys,
    create_signing_key,
    load_signing_key,
    make_local_keys,
    open_trusted_keys,
    read_trusted_keys,
)
from regraft.schemas.order import OrderKind
from tests.full_disk import small_disk
from tests.infra.order_signers import TRUSTED_UNTIL, trust


def test_a_private_key_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    """It is created unreadable for others, overwrites no other key, and is refused if others can read it."""
    file = tmp_path / "ana.key"
    key = create_signing_key("ana", file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert load_signing_key(file).name == "ana"
    assert load_signing_key(file).trusted_line(TRUSTED_UNTIL) == key.trusted_line(TRUSTED_UNTIL)
    with pytest.raises(OrderKeyError, match="already exists"):
        create_signing_key("ana", file)
    file.chmod(0o644)
    with pytest.raises(OrderKeyError, match="can be read by others"):
        load_signing_key(file)


@pytest.mark.parametrize(("more", "setting"), [([], "orders.key_file"), (["--for-others"], "orders.dashboard_key")])
def test_who_makes_a_key_is_told_which_setting_names_it(tmp_path: Path, more: list[str], setting: str) -> None:
    """The dashboard's key belongs elsewhere than an operator's; alone on standard output is the line to trust."""
    made = CliRunner().invoke(app, ["keys", "create", "ana", "--out", str(tmp_path / "ana.key"), *more])
    assert f"set {setting}" in made.stderr
    assert made.stdout.startswith('"ana" = ')
    assert made.stdout.count("\n") == 1


@pytest.mark.parametrize("text", ["", "nothing", "Regraft-Key: ana\nnothing", "Regraft-Key: ana\n"])
def test_a_file_without_a_key_is_named(tmp_path: Path, text: str) -> None:
    """The message contains nothing of the file."""
    file = tmp_path / "ana.key"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(OrderKeyError, match="holds no key for orders"):
        load_signing_key(file)


def test_trust_is_a_line_for_each_key(tmp_path: Path) -> None:
    """With an expiry, and with what it may order."""
    file, _ = trust(tmp_path, "ana", "bo", orders=(OrderKind.PAUSE, OrderKind.RESUME))
    found = read_trusted_keys(file)
    assert set(found) == {"ana", "bo"}
    assert found["bo"].kinds == {OrderKind.PAUSE, OrderKind.RESUME}
    assert found["bo"].not_after_ms == int(TRUSTED_UNTIL.timestamp() * 1000)


PUBLIC = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("ana = 1", "must be a table of"),
        (f'ana = {{ public = "{PUBLIC}" }}', "needs an expiry date"),
        (f'ana = {{ public = "{PUBLIC}", not_after = 2100-01-01T00:00:00 }}', "needs an expiry date"),
        ('ana = { public = "xx", not_after = 2100-01-01T00:00:00Z }', "32 bytes in base64"),
        (f'ana = {{ public = "{PUBLIC}", not_after = 2100-01-01T00:00:00Z, orders = ["all"] }}', "has orders"),
        (f'ana = {{ public = "{PUBLIC}", not_after = 2100-01-01T00:00:00Z, orders = [["pause"]] }}', "has orders"),
        (f'ana = {{ public = "{PUBLIC}", not_after = 2100-01-01T00:00:00Z, revoked = "no" }}', "true or false"),
        (f'ana = {{ public = "{PUBLIC}", not_after = 2100-01-01T00:00:00Z, revoked_at = 1 }}', "must be a table of"),
        ("ana", "not TOML"),
    ],
)
def test_a_wrong_line_is_named_and_trusts_nobody(tmp_path: Path, line: str, error: str) -> None:
    """A mistake in the file must not extend whom it trusts."""
    file = tmp_path / "trusted.toml"
    file.write_text(line)
    with pytest.raises(OrderKeyError, match=error):
        read_trusted_keys(file)
    with pytest.raises(OrderKeyError, match=error):
        open_trusted_keys(OrderSettings(trusted_keys_file=file))


def test_trusted_keys_are_read_again_when_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Added, revoked; while the file is missing or wrong the previous keys are kept, and the reason is reported."""
    monkeypatch.setattr(order_keys, "POLL_S", 0.0)
    file, signers = trust(tmp_path, "ana")
    keys = TrustedKeys(file)
    keys.refresh()
    assert (set(keys.by_name), keys.version) == ({"ana"}, 1)
    revoked = signers["ana"].trusted_line(TRUSTED_UNTIL).replace(" }", ", revoked = true }")
    file.write_text(revoked)
    keys.refresh()
    assert (keys.by_name["ana"].is_revoked, keys.version, keys.error) == (True, 2, "")
    file.unlink()
    keys.refresh()
    assert (set(keys.by_name), keys.version) == ({"ana"}, 2)
    assert "cannot be read" in keys.error
    file.write_text(revoked)
    keys.refresh()
    assert (keys.version, keys.error) == (3, "")


def test_a_run_without_keys_starts_and_a_named_file_must_be_there(tmp_path: Path) -> None:
    """Without a named file nobody is trusted; a named file must exist."""
    keys = open_trusted_keys(OrderSettings(directory=tmp_path))
    assert (keys.by_name, keys.version) == ({}, 0)
    assert "cannot be read" in keys.error
    with pytest.raises(OrderKeyError, match="cannot be read"):
        open_trusted_keys(OrderSettings(trusted_keys_file=tmp_path / "away.toml"))


def test_a_run_has_its_own_keys(tmp_path: Path) -> None:
    """They are created once; commands with that run directory find them, and no other user can read them."""
    directory = tmp_path / "order-keys"
    settings = OrderSettings(directory=directory)
    assert settings.operator_key() is None
    assert make_local_keys(directory, "ana", 30)
    assert not make_local_keys(directory, "ana", 30)
    key = settings.operator_key()
    assert key is not None
    assert key.name == "ana"
    assert directory.stat().st_mode & 0o077 == 0
    found = read_trusted_keys(settings.trusted_file or tmp_path)
    assert [(name, one.state(time.time_ns() // 1_000_000)) for name, one in found.items()] == [
        ("ana", "trusted"),
        ("dashboard", "trusted"),
    ]
    assert found["ana"].state(int(datetime(2100, 1, 1, tzinfo=UTC).timestamp() * 1000)) == "ended"


def test_keys_that_a_full_disk_cut_are_made_once_there_is_room(tmp_path: Path) -> None:
    """No part of a key stays in its place, and no empty file stands for trust in nobody."""
    with small_disk(tmp_path / "disk") as disk:
        directory = disk.directory / "order-keys"
        directory.mkdir(mode=0o700)
        disk.fill()
        with pytest.raises(OrderKeyError, match="cannot be written"):
            make_local_keys(directory, "ana", 30)
        assert list(directory.iterdir()) == []
        disk.make_room()
        assert make_local_keys(directory, "ana", 30)
        assert sorted(read_trusted_keys(directory / "trusted.toml")) == ["ana", "dashboard"]


def test_keys_whose_trust_cannot_be_written_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call makes them again, instead of finding keys that nobody trusts."""
    directory = tmp_path / "order-keys"
    with monkeypatch.context() as patched:
        patched.setattr(order_keys, "replace_file", Mock(side_effect=OSError(28, "No space left on device")))
        with pytest.raises(OrderKeyError, match="cannot be written"):
            make_local_keys(directory, "ana", 30)
    assert make_local_keys(directory, "ana", 30)


def test_a_named_key_that_is_missing_is_a_error(tmp_path: Path) -> None:
    """Only the default key may be missing."""
    with pytest.raises(OrderKeyError, match="cannot be read"):
        OrderSettings(key_file=tmp_path / "away.key", directory=tmp_path).operator_key()
