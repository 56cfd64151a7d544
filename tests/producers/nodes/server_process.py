"""A real server for tests: one process on a local port, started and killed by the test."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

WAIT_S_MAX = 60.0


# Below those that the system gives to outgoing connections: between the choice of a port and its use, such a connection
# could take it. Each process of the tests has its own.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PORTS = itertools.cycle(range(11_000 + 2_500 * (_WORKER % 8), 13_500 + 2_500 * (_WORKER % 8)))


def free_port() -> int:
    while True:
        port = next(_PORTS)
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
            except OSError:  # Another run of the tests has it.
                continue
            return port


class ServerProcess:
    """A server that is up once it accepts connections at a port; its output goes to its log."""

    def __init__(self, command: tuple[str, ...], port: int, log: Path) -> None:
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None
        self._command, self._awaited_port = command, port

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stderr=log, stdout=log)
        deadline_s = time.monotonic() + WAIT_S_MAX
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._awaited_port), 1).close()
                return self
            except OSError:
                assert time.monotonic() < deadline_s, self.log.read_text()
                assert self.process.poll() is None, self.log.read_text()
                time.sleep(0.01)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(WAIT_S_MAX)
            self.process = None
