"""Real NATS servers for tests: one process each, on free ports, with a leaf port."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

import pytest

from regraft.infra.nats_server import NoNatsError, find_nats

WAIT_S_MAX = 20.0


def needs_nats() -> None:
    """Skip the test where there is no NATS server or no client."""
    try:
        find_nats()
    except NoNatsError:
        pytest.skip("no NATS server is installed")
    pytest.importorskip("nats", reason="no NATS server is installed")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class NatsServer:
    """One server; ``url`` is for clients, ``leaf_url`` for a door."""

    def __init__(self, name: str, directory: Path, extra: str = "") -> None:
        self.client_port, self.leaf_port = free_port(), free_port()
        self.file = directory / f"{name}.conf"
        self.file.write_text(
            f'server_name: {name}\nlisten: "127.0.0.1:{self.client_port}"\n'
            f'leafnodes {{ listen: "127.0.0.1:{self.leaf_port}" }}\nmax_payload: 4MB\n{extra}\n'
        )
        self.log = directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.client_port}"

    @property
    def leaf_url(self) -> str:
        return f"nats://127.0.0.1:{self.leaf_port}"

    @property
    def door_url(self) -> str:
        return self.leaf_url

    def start(self) -> NatsServer:
        self.process = subprocess.Popen([str(find_nats()), "-c", str(self.file), "-l", str(self.log)])
        deadline_s = time.monotonic() + WAIT_S_MAX
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.leaf_port), 1).close()
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
