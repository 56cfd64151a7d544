"""Run the local Valkey for clients that connect by TLS and log in as a user of its access list.

The packaged server is built without TLS: it listens on a Unix socket that only this user can open, behind a relay for
TLS. In: the run directory, and the files of the secured stack. Out: two services and how clients reach them.
"""

from __future__ import annotations

import hashlib
import secrets
import sys
from functools import partial
from pathlib import Path

from regraft.infra.live.redis_access import RedisAccess, RedisSecurity
from regraft.infra.local.secure_kafka import LOCAL_USER, PASSWORD_BYTES, SecuredKafka
from regraft.infra.local.service import SERVER_VARIABLES, Service
from regraft.infra.local.start_on_port import start_on_port
from regraft.infra.local.supervise import Supervisor
from regraft.infra.local.valkey_server import MEMORY_MB_MAX, STORE_SETTINGS, find_valkey, is_redis_ready
from regraft.infra.process.find_port import LOOPBACK, choose_ports
from regraft.infra.process.quote_paths import literal_glob, quoted
from regraft.infra.process.write_private import write_private

SOCKET = "valkey.sock"  # Relative to the processes' directory, because the path of a socket has at most 107 bytes.
RELAY = Path(__file__).with_name("relay_tls.py")

# The user has all rights to the data and none to the server; the file holds only a hash of the password.
SETTINGS = """\
port 0
unixsocket {socket}
unixsocketperm 700
user default off
user {user} on #{password_hash} ~* &* +@all -@admin -@dangerous +info
"""


def start_secured_valkey(
    supervisor: Supervisor, run_dir: Path, secured: SecuredKafka, *, port: int | None = None
) -> RedisAccess:
    """Start server and relay under ``supervisor`` with data in ``run_dir/valkey`` and wait until they answer.

    Raises PortInUseError, NoRedisError or ServiceFailedError.
    """
    program, root = find_valkey(), (run_dir / "valkey").absolute()
    data_dir = root / "data"
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    password_file = secured.directory / "valkey.password"
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    write_private(password_file, password.encode())
    head = SETTINGS.format(socket=SOCKET, user=LOCAL_USER, password_hash=hashlib.sha256(password.encode()).hexdigest())
    store = STORE_SETTINGS.format(data_dir=quoted(data_dir), memory_mb_max=MEMORY_MB_MAX)
    write_private(root / "valkey.conf", (head + store).encode())
    supervisor.start(
        Service(
            name="valkey",
            command=(str(program), literal_glob(root / "valkey.conf")),
            log_file=root / "process.log",
            inherited=SERVER_VARIABLES,
            ready=(data_dir / SOCKET).exists,
            ready_timeout_s=30.0,
        )
    )
    security = RedisSecurity(ca_file=secured.authority.ca_file, username=LOCAL_USER, password_file=password_file)

    def prepare(_again: bool) -> tuple[RedisAccess, Service]:
        chosen = port or choose_ports(1)[0]
        access = RedisAccess(f"rediss://{LOOPBACK}:{chosen}/0", security)
        service = Service(
            name="valkey-tls",
            command=(sys.executable, "-I", str(RELAY), str(chosen), str(secured.server.both_file), SOCKET),
            log_file=root / "relay.log",
            inherited=SERVER_VARIABLES,
            directory=data_dir,
            ready=partial(is_redis_ready, access.url, security=security),
            ready_timeout_s=30.0,
        )
        return access, service

    return start_on_port(supervisor, "Valkey", port, prepare)
