"""Real NATS servers for tests: one process each, on free ports, with a leaf port."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regraft.infra.local.nats_server import NoNatsError, find_nats
from tests.producers.nodes.server_process import ServerProcess, free_port


def needs_nats() -> None:
    """Skip the test if the NATS server or its client library is not available."""
    try:
        find_nats()
    except NoNatsError:
        pytest.skip("no NATS server is installed")
    pytest.importorskip("nats", reason="no NATS server is installed")


async def reach_server(client: Any) -> None:
    """Wait until the server has processed what the client has sent so far.

    Twice, because the library writes the ping of a flush past commands that still wait to be written.
    """
    for _ in range(2):
        await client.flush(2)


class NatsServer(ServerProcess):
    """One server; ``url`` is for clients, ``leaf_url`` for a connector."""

    def __init__(self, name: str, directory: Path, extra: str = "", leaf: str = "", leaf_port: int = 0) -> None:
        self.client_port, self.leaf_port, self.api_port = free_port(), leaf_port or free_port(), free_port()
        self.file = directory / f"{name}.conf"
        self.file.write_text(
            f'server_name: {name}\nlisten: "127.0.0.1:{self.client_port}"\n'
            f'{leaf or self._leaf}\nmax_payload: 4MB\nhttp: "127.0.0.1:{self.api_port}"\n{extra}\n'
        )
        # The port of clients is the last one to be opened.
        command = str(find_nats()), "-c", str(self.file), "-l", str(directory / f"{name}.log")
        super().__init__(command, self.client_port, directory / f"{name}.log")

    @property
    def _leaf(self) -> str:
        return f'leafnodes {{ listen: "127.0.0.1:{self.leaf_port}" }}'

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.client_port}"

    @property
    def leaf_url(self) -> str:
        return f"nats://127.0.0.1:{self.leaf_port}"

    @property
    def connector_url(self) -> str:
        return self.leaf_url
