"""One connection to the leaf port of a NATS server: TLS, pings, and messages in both directions.

What the messages mean belongs to :mod:`producers.nodes.nats.nats_connector`.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, cast

import structlog

from regraft.producers.nodes.connectors.connector import ConnectorError
from regraft.producers.nodes.nats.nats_protocol import LeafReader, ServerMessage

log = structlog.get_logger(__name__)

SILENT = "closed without a message"
PING_S, SILENCE_S_MAX = 1.0, 5.0


class Leaf(asyncio.Protocol):
    """One connection to the leaf port. ``is_caught_up``: the server has reported all interest that existed before."""

    def __init__(self, handle: Callable[[Leaf, ServerMessage], None], *, is_secure: bool = False) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_caught_up = self.has_asked = False
        self.reason = SILENT
        self.has_info, self._is_secure = False, is_secure
        self._handle = handle
        self._reader = LeafReader()
        self._is_handshake_sent = self._is_ended = False
        self._securing: asyncio.Task[None] | None = None
        self._received_s = time.monotonic()
        self._out: list[bytes] = []
        self._pinged: deque[asyncio.Future[None] | None] = deque()
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way to write."""
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection is closed, and why."""
        if exc is not None:
            self.reason = str(exc)
        _complete(self._closed)
        while self._pinged:
            _complete(self._pinged.popleft())

    def data_received(self, data: bytes) -> None:
        """Handle what the server sends; end the connection if it is not a NATS server's."""
        self._received_s = time.monotonic()
        try:
            for message in self._reader.feed(data):
                if not self._is_ended:
                    self._handle(self, message)
        except ConnectorError as error:
            self.reason = str(error)
            log.warning("connector_call_failed", reason=self.reason)
            self.end()

    def send_handshake(self, handshake: bytes, tls: ssl.SSLContext | None, host: str) -> None:
        """Answer the server's first INFO, over TLS if ``tls`` is given."""
        if self._is_handshake_sent or self._securing is not None:
            return
        self.has_info, self.reason = True, "closed by the server"
        if tls is None or self._is_secure:
            self._is_handshake_sent = True
            self._write_ping(handshake)
        else:
            self._securing = asyncio.get_running_loop().create_task(self._secure(handshake, tls, host))

    async def _secure(self, handshake: bytes, tls: ssl.SSLContext, host: str) -> None:
        assert self.transport is not None
        try:
            secure = await asyncio.get_running_loop().start_tls(self.transport, self, tls, server_hostname=host)
        except (OSError, ssl.SSLError) as error:
            self.reason = f"no TLS with {host}: {error}"
            self.end()
            return
        if secure is not None:
            self.transport = secure
            self._is_handshake_sent = True
            self._write_ping(handshake)

    def ask(self, lines: bytes) -> asyncio.Future[None]:
        """Send lines; return what completes once the server has handled them, or the connection has ended."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._write_ping(lines, answered)
        return answered

    def note_pong(self) -> None:
        """Note the answer to the oldest ping."""
        if self._pinged:
            _complete(self._pinged.popleft())

    def _write_ping(self, before: bytes = b"", answered: asyncio.Future[None] | None = None) -> None:
        self._pinged.append(answered)
        self.write_soon(before + b"PING\r\n")

    def write_soon(self, data: bytes) -> None:
        """Send bytes in the next turn of the event loop, all at once."""
        if not self._out:
            asyncio.get_running_loop().call_soon(self._write)
        self._out.append(data)

    def _write(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(b"".join(self._out))
        self._out.clear()

    async def ping_until_closed(self) -> None:
        """Ping until the connection ends; end it if the server is silent for ``SILENCE_S_MAX``."""
        while not self._closed.done():
            await asyncio.wait({self._closed}, timeout=PING_S)
            if time.monotonic() - self._received_s > SILENCE_S_MAX:
                self.reason = f"no data for {SILENCE_S_MAX:g} s"
                self.end()
            elif self._is_handshake_sent:
                self._write_ping()

    def end(self) -> None:
        """End the connection at once; what has arrived is not handled any more."""
        self._is_ended = True
        if self.transport is not None:
            self.transport.abort()


def _complete(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def check_tls(address: str, *, has_tls: bool, facts: Mapping[str, Any]) -> None:
    """Raise ConnectorError if only one side wants TLS."""
    is_wanted = bool(facts.get("tls_required"))
    if is_wanted and not has_tls:
        raise ConnectorError(f"the leaf port {address} requires TLS: use tls://{address}")
    if has_tls and not is_wanted:
        raise ConnectorError(
            f"the leaf port {address} offers no TLS: add a tls section to its leafnodes, or use nats://"
        )
