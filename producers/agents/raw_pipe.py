"""A connection to a broker that passes on bytes as they are, for a client that no plan can move anyway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from regraft.producers.agents.broker_address import OPEN_S_MAX, BrokerAddress


class RawPipe(asyncio.Protocol):
    """One connection; ``client`` is the other end, ``on_end`` is called when the broker ends it."""

    def __init__(self, client: asyncio.Transport, on_end: Callable[[str], None]) -> None:
        self.transport: asyncio.Transport | None = None
        self._client, self._on_end = client, on_end
        self._early = bytearray()

    async def open(self, address: BrokerAddress) -> None:
        """Connect; raise OSError if that fails."""
        name = address.host if address.tls is not None else None
        async with asyncio.timeout(OPEN_S_MAX):
            await asyncio.get_running_loop().create_connection(
                lambda: self, address.host, address.port, ssl=address.tls, server_hostname=name
            )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way to write."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(bytes(self._early))
        self._early.clear()
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Pass bytes on to the client."""
        if not self._client.is_closing():
            self._client.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the client with it."""
        self._on_end("")

    def pause_writing(self) -> None:
        """Read from the client no faster than the broker does."""
        self._client.pause_reading()

    def resume_writing(self) -> None:
        """Read from the client again."""
        if not self._client.is_closing():
            self._client.resume_reading()

    def write(self, data: bytes) -> None:
        """Send bytes to the broker, once it is connected."""
        if self.transport is None:
            self._early += data
            self._client.pause_reading()
        elif not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        """End the connection; what was written is sent."""
        if self.transport is not None:
            self.transport.close()
