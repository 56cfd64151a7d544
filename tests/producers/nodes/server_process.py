"""A real server for tests: one process on a local port, started and killed by the test."""

from __future__ import annotations

import fcntl
import itertools
import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

WAIT_S_MAX = 60.0


def _reserve_ports() -> range:
    """Return ports that no other process of tests has, of this run or another, until this one ends.

    They are below those that the system gives to outgoing connections: between the choice of a port and its use, such a
    connection could take it.
    """
    for start in range(11_000, 31_000, 1_000):
        lock = os.open(Path(tempfile.gettempdir(), f"regraft-test-ports-{os.getuid()}-{start}"), os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return range(start, start + 1_000)
    raise AssertionError("20 processes of tests have all ports between 11,000 and 31,000: end one of the runs.")


_PORTS = itertools.cycle(_reserve_ports())


def free_port() -> int:
    while True:
        port = next(_PORTS)
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
            except OSError:  # A server that is none of the tests' has it.
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
