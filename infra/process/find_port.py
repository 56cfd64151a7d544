"""Choose free loopback ports, and check whether a wanted one is free.

A port may be taken between the choice and its use: servers that start on it try again (start_on_port.py).
"""

import socket
from contextlib import ExitStack

from regraft.infra.process.stack_error import StackError

LOOPBACK = "127.0.0.1"


class PortInUseError(StackError):
    """Reports that a wanted port is taken."""


def choose_ports(count: int) -> tuple[int, ...]:
    """Return ``count`` different loopback ports on which nothing listens at this moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return tuple(each.getsockname()[1] for each in sockets)


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
