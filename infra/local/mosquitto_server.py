"""Run Mosquitto brokers as supervised services: loopback only, each with a log that a node can read."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from regraft.infra.local.service import SERVER_VARIABLES, Service
from regraft.infra.local.start_on_port import start_on_port
from regraft.infra.local.supervise import Supervisor
from regraft.infra.process.find_port import LOOPBACK, choose_ports, is_listening
from regraft.infra.process.stack_error import StackError

PROGRAM = "mosquitto"
DEBIAN_PATH = Path("/usr/sbin") / PROGRAM  # Debian's location, which is not on the PATH of users.
READY_S_MAX = 20.0
# If started by root it would switch users, which cancels that it dies with its parent: keep it root.
SETTINGS = """\
listener {port} {host}
allow_anonymous true
user root
log_dest topic
log_dest stderr
log_type subscribe
log_type unsubscribe
log_type notice
log_type error
log_type warning
max_inflight_messages 1000
max_queued_messages 100000
max_packet_size 16777216
set_tcp_nodelay true
"""


class NoMosquittoError(StackError):
    """Reports that no Mosquitto was found."""


def find_mosquitto() -> Path:
    """Return the path of the broker's program. Raises NoMosquittoError if there is none."""
    program = shutil.which(PROGRAM)
    if program or DEBIAN_PATH.is_file():
        return Path(program or DEBIAN_PATH)
    raise NoMosquittoError(
        "Mosquitto was not found on PATH or in /usr/sbin: install it (Debian and Ubuntu: apt-get install mosquitto); "
        "no Python package provides it."
    )


def mosquitto_settings(port: int, more: str = "") -> str:
    """Return the settings of a broker on loopback whose log shows a node what clients subscribe to."""
    return SETTINGS.format(port=port, host=LOOPBACK) + more


def start_mosquitto_service(supervisor: Supervisor, name: str, run_dir: Path) -> int:
    """Start a broker under ``supervisor``, with settings and log in ``run_dir``; return its port once it listens.

    Raises NoMosquittoError or ServiceFailedError.
    """
    program = find_mosquitto()
    run_dir.mkdir(parents=True, exist_ok=True)

    def prepare(_again: bool) -> tuple[int, Service]:
        (port,) = choose_ports(1)
        settings_file = run_dir / f"{name}.conf"
        settings_file.write_text(mosquitto_settings(port))
        service = Service(
            name=f"mqtt-{name}",
            command=(str(program), "-c", str(settings_file)),
            log_file=run_dir / f"{name}.log",
            inherited=SERVER_VARIABLES,
            ready=partial(is_listening, port),
            ready_timeout_s=READY_S_MAX,
        )
        return port, service

    return start_on_port(supervisor, "Mosquitto", None, prepare)
