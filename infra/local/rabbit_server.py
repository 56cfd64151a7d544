"""Run RabbitMQ servers as supervised services: loopback only, with the two plugins that a node needs.

In: a name and a run directory. Out: services and addresses. Each server has its own name service (epmd), so that
nothing else on this machine is touched. Clients do not belong here.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from regraft.infra.local.service import SERVER_VARIABLES, Service
from regraft.infra.local.start_on_port import start_on_port
from regraft.infra.local.supervise import Supervisor
from regraft.infra.process.find_port import LOOPBACK, choose_ports, is_listening
from regraft.infra.process.stack_error import StackError

PROGRAM, NAMES_PROGRAM = "rabbitmq-server", "epmd"
DEBIAN_PATH = Path("/usr/lib/rabbitmq/bin") / PROGRAM  # The one on Debian's PATH switches its user.
PLUGINS = "[rabbitmq_event_exchange,rabbitmq_management]."
READY_S_MAX = 120.0
# One scheduler that never spins: idle servers take 0.3 % of a core.
ERLANG_ARGUMENTS = "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none"
SETTINGS = """\
listeners.tcp.1 = {host}:{port}
management.tcp.ip = {host}
management.tcp.port = {api_port}
"""


class NoRabbitError(StackError):
    """Reports that no RabbitMQ was found."""


@dataclass(frozen=True, slots=True)
class RabbitAddress:
    """Where a server's clients and its management interface are."""

    url: str
    api_url: str


def find_rabbit() -> Path:
    """Return the path of the server's program. Raises NoRabbitError if it, or Erlang's name service, is missing."""
    program = DEBIAN_PATH if DEBIAN_PATH.is_file() else shutil.which(PROGRAM)
    if program and shutil.which(NAMES_PROGRAM):
        return Path(program)
    raise NoRabbitError(
        "RabbitMQ was not found on PATH or in /usr/lib/rabbitmq/bin: install it (Debian and Ubuntu: apt-get install "
        "rabbitmq-server); no Python package provides it."
    )


def rabbit_environment(directory: Path, node: str, names_port: int, peers_port: int) -> Mapping[str, str]:
    """Return the variables of a server whose files are in ``directory``."""
    return {
        "HOME": str(directory),
        "RABBITMQ_NODENAME": f"{node}@localhost",
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbit.conf"),
        "RABBITMQ_MNESIA_BASE": str(directory / "db"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_DIST_PORT": str(peers_port),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG_ARGUMENTS,
        "ERL_EPMD_PORT": str(names_port),
        "ERL_EPMD_ADDRESS": LOOPBACK,
    }


def start_rabbit_service(supervisor: Supervisor, name: str, run_dir: Path) -> RabbitAddress:
    """Start a server under ``supervisor``, with its files in a directory of ``run_dir``; return it once it listens.

    Raises NoRabbitError or ServiceFailedError.
    """
    program = find_rabbit()
    directory = run_dir / f"rabbit-{name}"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "plugins").write_text(PLUGINS)

    def prepare(_again: bool) -> tuple[RabbitAddress, Service]:
        port, api_port, names_port, peers_port = choose_ports(4)
        (directory / "rabbit.conf").write_text(SETTINGS.format(host=LOOPBACK, port=port, api_port=api_port))
        environment = {**rabbit_environment(directory, f"r{port}", names_port, peers_port), **_found_programs()}
        names = Service(
            name=f"epmd-{name}-{names_port}",
            command=(NAMES_PROGRAM, "-port", str(names_port), "-address", LOOPBACK),
            log_file=run_dir / f"epmd-{name}.log",
            inherited=SERVER_VARIABLES,
            ready=partial(is_listening, names_port),
        )
        supervisor.start(names)
        service = Service(
            name=f"amqp-{name}",
            command=(str(program),),
            log_file=run_dir / f"{name}.log",
            environment=environment,
            inherited=SERVER_VARIABLES,
            ready=lambda: is_listening(port) and is_listening(api_port),
            ready_timeout_s=READY_S_MAX,
        )
        return RabbitAddress(f"amqp://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{api_port}"), service

    return start_on_port(supervisor, "RabbitMQ", None, prepare)


def _found_programs() -> Mapping[str, str]:
    """Return a PATH on which the server's scripts find Erlang and what they call."""
    places = [os.environ.get("PATH", ""), "/usr/sbin", "/usr/lib/rabbitmq/bin"]
    return {"PATH": os.pathsep.join(place for place in places if place)}
