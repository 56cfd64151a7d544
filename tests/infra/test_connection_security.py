"""TLS and credentials of a connection: where secrets are read, and which settings are refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from regraft.infra.local.make_certificates import LocalAuthority
from regraft.infra.process.connection_security import ConnectionSecurity, SecretMissingError
from regraft.infra.process.write_private import write_private


def secured(tmp_path: Path) -> ConnectionSecurity:
    """Return valid security settings with a client certificate."""
    authority = LocalAuthority(tmp_path)
    client = authority.issue("client")
    return ConnectionSecurity(authority.ca_file, client.certificate_file, client.key_file)


def test_valid_security_has_no_error(tmp_path: Path) -> None:
    """No security at all, and everything that mutual TLS needs."""
    assert ConnectionSecurity().errors() == []
    assert secured(tmp_path).errors() == []


def test_a_password_is_read_each_time_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a file, without its final newline, or from a variable; a changed password is read."""
    file = tmp_path / "password"
    file.write_text("first one \n")
    by_file = ConnectionSecurity(password_file=file)
    assert by_file.password == "first one "
    file.write_text("second")
    assert by_file.password == "second"
    monkeypatch.setenv("KAFKA_PASSWORD", "third")
    assert ConnectionSecurity(password_file=Path("env:KAFKA_PASSWORD")).password == "third"
    assert ConnectionSecurity().password is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [("", "is empty"), ("\n", "is empty"), ("one\ntwo\n", "more than one line"), ("a\x07", "control")],
)
def test_a_file_without_a_usable_password_is_a_error(tmp_path: Path, content: str, reason: str) -> None:
    """The message names the file and contains nothing of its content."""
    file = tmp_path / "password"
    file.write_text(content)
    (error,) = ConnectionSecurity(password_file=file).errors()
    assert f"password_file {file}" in error
    assert reason in error
    assert "two" not in error


def test_a_missing_password_is_a_error_and_an_error_when_it_is_used(tmp_path: Path) -> None:
    """A missing file or variable; a secret that was given as the name of a variable is not shown."""
    missing = ConnectionSecurity(password_file=tmp_path / "absent")
    assert "absent cannot be read (No such file or directory)" in missing.errors()[0]
    with pytest.raises(SecretMissingError, match="absent cannot be read"):
        _ = missing.password
    unset = ConnectionSecurity(password_file=Path("env:NOT_SET"))
    assert "password_file env:NOT_SET is not set" in unset.errors()[0]
    (error,) = ConnectionSecurity(password_file=Path("env:hunter2!")).errors()
    assert "hunter2" not in error
    assert "not the name of an environment variable" in error


def test_errors_of_files_are_all_reported_at_once(tmp_path: Path) -> None:
    """Unreadable files, half a pair, a password without its key."""
    errors = ConnectionSecurity(
        ca_file=tmp_path / "ca.pem",
        certificate_file=tmp_path / "own.pem",
        key_password_file=tmp_path / "one",
    ).errors()
    for wanted in ("ca_file", "own.pem cannot be read", "without key_file", "one cannot be read", "but no key_file"):
        assert sum(wanted in error for error in errors) == 1, (wanted, errors)
    assert len(errors) == 5


def test_certificate_and_key_must_belong_together(tmp_path: Path) -> None:
    """A file that is not a certificate, and the key of another certificate, are detected before anything connects."""
    good = secured(tmp_path)
    other = LocalAuthority(tmp_path / "other").issue("other")
    (error,) = replace(good, key_file=other.key_file).errors()
    assert "do not match" in error
    plain = tmp_path / "plain.txt"
    plain.write_text("no certificate")
    (error,) = replace(good, ca_file=plain).errors()
    assert "holds no certificate" in error


def test_a_key_with_a_password_needs_the_right_one(tmp_path: Path) -> None:
    """There is no prompt at the terminal."""
    from cryptography.hazmat.primitives import serialization

    good = secured(tmp_path)
    assert good.key_file is not None
    key = serialization.load_pem_private_key(good.key_file.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"opens it")
    form = serialization.PrivateFormat.TraditionalOpenSSL
    write_private(good.key_file, key.private_bytes(serialization.Encoding.PEM, form, locked))
    password = tmp_path / "password"
    password.write_text("opens it")
    assert replace(good, key_password_file=password).errors() == []
    assert "do not match" in good.errors()[0]
    password.write_text("wrong")
    assert "do not match" in replace(good, key_password_file=password).errors()[0]
