"""Choose free loopback ports, and check whether a wanted one is free.

A port may be taken between the choice and its use: servers that start on it try again (start_on_port.py).
"""

import secrets
import socket
from contextlib import ExitStack

from regraft.infra.process.stack_error import StackError

LOOPBACK = "127.0.0.1"
# Below the ports that Linux (from 32768) and macOS (from 49152) give to outgoing connections: one of those may take a
# free port in the seconds until a server listens on it.
PORT_MIN, PORT_MAX = 20_000, 32_000
TRIES_MAX = 1_000


class PortInUseError(StackError):
    """Reports that a wanted port is taken."""


def choose_ports(count: int) -> tuple[int, ...]:
    """Return ``count`` different loopback ports that nothing uses at this moment.

    Raises PortInUseError if hardly any is free.
    """
    ports: list[int] = []
    with ExitStack() as stack:
        for _ in range(TRIES_MAX):
            if len(ports) == count:
                return tuple(ports)
            port = PORT_MIN + secrets.randbelow(PORT_MAX - PORT_MIN)  # Not seeded: processes of a test run differ.
            try:
                stack.enter_context(socket.socket()).bind((LOOPBACK, port))
            except OSError:
                continue
            ports.append(port)
    raise PortInUseError(
        f"{TRIES_MAX} ports between {PORT_MIN} and {PORT_MAX} were tried and {len(ports)} of {count} are free: stop "
        "what uses the others."
    )


def check_port(port: int, server: str) -> None:
    """Raise PortInUseError if ``server`` cannot listen on this loopback port."""
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as servers do, so that old connections do not block the port
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise PortInUseError(
                f"Port {port} for {server} cannot be used ({error.strerror}): stop the process that listens there, "
                "or choose another port."
            ) from error


def is_listening(port: int) -> bool:
    """Return True if a process accepts connections on this loopback port."""
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex((LOOPBACK, port)) == 0
