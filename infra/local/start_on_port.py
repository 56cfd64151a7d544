"""Start a server on the port that the user wants, or on a free one, with another try if that is taken meanwhile.

``find_port`` finds free ports.
"""

from collections.abc import Callable
from typing import TypeVar

from regraft.infra.local.service import Service
from regraft.infra.local.supervise import ServiceFailedError, Supervisor
from regraft.infra.process.find_port import check_port

TRIES = 3
BIND_ERRORS = ("address already in use", "eaddrinuse")  # The latter is RabbitMQ's. Compared without case.

Address = TypeVar("Address")


def start_on_port(
    supervisor: Supervisor, server: str, port: int | None, prepare: Callable[[bool], tuple[Address, Service]]
) -> Address:
    """Start what ``prepare`` returns and return its address.

    Without a wanted ``port``, a server whose port is taken is prepared again, by ``prepare(True)``: on another port.
    Raises PortInUseError and ServiceFailedError.
    """
    if port is not None:
        check_port(port, server)
    for attempt in range(TRIES):
        address, service = prepare(attempt > 0)
        try:
            supervisor.start(service)
        except ServiceFailedError as error:
            is_taken = any(text in error.log_tail.lower() for text in BIND_ERRORS)
            if port is not None or attempt + 1 == TRIES or not is_taken:
                raise
        else:
            return address
    raise AssertionError("the last try either returned or raised")
