"""The dashboard over TLS: with a certificate it serves no plain text; unusable files are reported at the start."""

import os
import ssl
import threading
from pathlib import Path

import httpx2
import pytest
from cryptography.hazmat.primitives import serialization

from regraft.dashboard.dashboard_settings import DashboardSettings
from regraft.dashboard.run_dashboard import DashboardError, run_dashboard
from regraft.infra.local.make_certificates import LocalAuthority
from regraft.infra.process.find_port import choose_ports
from tests.dashboard.served_dashboard import served_dashboard


def settings(**given: object) -> DashboardSettings:
    return DashboardSettings(
        bootstrap="none", inventory_path=Path("none"), port=0, redis_url="redis://127.0.0.1:1/0", **given
    )  # type: ignore[arg-type]


@pytest.mark.stack
def test_with_a_certificate_it_is_served_over_tls_and_nothing_else(tmp_path: Path) -> None:
    """A client that trusts the certificate gets the page; one that does not, or does not use TLS, gets nothing."""
    authority = LocalAuthority(tmp_path / "tls")
    issued = authority.issue("dashboard")
    files = {"certificate_file": issued.certificate_file, "key_file": issued.key_file}
    away = f"redis://127.0.0.1:{choose_ports(1)[0]}/0"
    with served_dashboard(tmp_path, redis_url=away, **files) as dashboard:
        assert dashboard.url.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=os.fspath(authority.ca_file))
        assert httpx2.get(f"{dashboard.url}health", verify=trusting).status_code == 200
        with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx2.get(f"{dashboard.url}health")
        with pytest.raises(httpx2.HTTPError):
            httpx2.get(dashboard.url.replace("https:", "http:"))


def test_unusable_files_are_reported(tmp_path: Path) -> None:
    """A key of another certificate, one locked by a passphrase, missing or non-PEM files: one sentence each."""
    authority = LocalAuthority(tmp_path)
    one, two = authority.issue("one"), authority.issue("two")
    key = serialization.load_pem_private_key(one.key_file.read_bytes(), None)
    lock = serialization.BestAvailableEncryption(b"secret")
    form = serialization.PrivateFormat.PKCS8
    locked = tmp_path / "locked.pem"
    locked.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, lock))
    text = tmp_path / "text"
    text.write_text("no certificate")
    for files, says in (
        ((one.certificate_file, two.key_file), "mismatch"),
        ((one.certificate_file, locked), "passphrase"),
        ((tmp_path / "none.pem", one.key_file), "none.pem"),
        ((one.certificate_file, text), str(text)),
        ((text, one.key_file), str(text)),
    ):
        wrong = settings(certificate_file=files[0], key_file=files[1])
        with pytest.raises(DashboardError, match=r"^The dashboard cannot be served over TLS") as error:
            run_dashboard(wrong, threading.Event())
        assert says in str(error.value), error.value


def test_a_certificate_without_its_key_is_a_wrong_setting() -> None:
    """Each needs the other."""
    for given, error in (
        ({"certificate_file": Path("a")}, "certificate_file is a and key_file is none: give both, or neither"),
        ({"key_file": Path("b")}, "certificate_file is none and key_file is b: give both, or neither"),
    ):
        assert settings(**given).errors() == [error]
