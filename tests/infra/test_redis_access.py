"""How clients reach Valkey by TLS and as a user of its access list."""

import os
import signal
from pathlib import Path

import pytest
import redis

from regraft.infra.live.redis_access import RedisAccess, RedisSecurity
from regraft.infra.local.make_certificates import LocalAuthority
from regraft.infra.local.secure_kafka import secure_kafka
from regraft.infra.local.secure_valkey import start_secured_valkey
from regraft.infra.local.supervise import Supervisor
from regraft.infra.local.valkey_server import is_redis_ready
from tests.wait_until import wait_until


def test_a_plain_url_needs_nothing_more() -> None:
    """The URL may contain credentials, as before; a representation hides them."""
    access = RedisAccess("redis://:hunter2@valkey:6379/0")
    assert access.errors() == []
    assert access.client_options() == {}
    assert "hunter2" not in repr(access)


def test_tls_and_user_become_options_of_the_client(tmp_path: Path) -> None:
    """The password is read from its file, the server's name is verified."""
    (tmp_path / "password").write_text("hunter2\n")
    ca_file = LocalAuthority(tmp_path).ca_file
    security = RedisSecurity(ca_file=ca_file, username="regraft", password_file=tmp_path / "password")
    access = RedisAccess("rediss://valkey:6380/0", security)
    assert access.errors() == []
    assert access.client_options() == {
        "username": "regraft",
        "password": "hunter2",
        "ssl_ca_certs": str(ca_file),
        "ssl_check_hostname": True,
    }


@pytest.mark.parametrize(
    ("url", "given", "reason"),
    [
        ("redis://valkey/0", {"ca_file": True}, "ca_file is given, but the URL is not rediss://"),
        ("rediss://valkey/0", {"username": "regraft"}, "username is given without password_file"),
        ("redis://:hunter2@valkey/0", {"password_file": Path("env:PATH")}, "the URL holds credentials as well"),
    ],
)
def test_contradictory_settings_are_refused(tmp_path: Path, url: str, given: dict[str, object], reason: str) -> None:
    """Each is one sentence without the URL."""
    given = {name: LocalAuthority(tmp_path).ca_file if value is True else value for name, value in given.items()}
    (error,) = RedisAccess(url, RedisSecurity(**given)).errors()  # type: ignore[arg-type]
    assert reason in error
    assert "hunter2" not in error


@pytest.mark.stack
def test_the_secured_valkey_requires_tls_and_a_password(tmp_path: Path) -> None:
    """Its user may read and write but not administer; a killed server returns at its address, empty."""
    with Supervisor() as supervisor:
        access = start_secured_valkey(supervisor, tmp_path, secure_kafka(tmp_path / "security"))
        assert access.errors() == []
        client = redis.Redis.from_url(access.url, **access.client_options())
        assert client.set("regraft:live:trial", "shown")
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.config_get("*")
        assert not is_redis_ready(access.url, security=RedisSecurity(ca_file=access.security.ca_file))
        assert not is_redis_ready(access.url)
        assert not is_redis_ready(access.url.replace("rediss://", "redis://"))
        pid = supervisor.pid("valkey")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: supervisor.restarts("valkey") == 1 and is_redis_ready(access.url, security=access.security))
        assert client.get("regraft:live:trial") is None  # With nothing on disk, nothing there delays its restart.
    password = access.security.password
    assert password is not None
    files = [file for file in (tmp_path / "valkey").rglob("*") if file.is_file()]
    assert not [file for file in files if password.encode() in file.read_bytes()]
