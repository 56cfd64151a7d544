"""One connection of an agent to a NATS server, in the place of a client: its login, pings, and frames.

What the frames mean belongs to :mod:`producers.agents.nats_session`.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast

from regraft.producers.agents.broker_address import OPEN_S_MAX, BrokerAddress, UpstreamError
from regraft.producers.agents.nats_frames import Frame, FrameError, FrameReader


class UpstreamOwner(Protocol):
    """The session that a connection belongs to."""

    def take_frames(self, upstream: Upstream, frames: list[Frame]) -> None:
        """Handle what the server sends, except its pings, and pongs that somebody awaits."""

    def lose_upstream(self, upstream: Upstream, reason: str) -> None:
        """Note that the connection has ended, unasked."""

    def hold_back(self, upstream: Upstream, *, is_full: bool) -> None:
        """Note that the server is slow, or no longer is."""


class Upstream(asyncio.Protocol):
    """One connection. ``facts`` is what the server says of itself."""

    def __init__(self, address: BrokerAddress, owner: UpstreamOwner) -> None:
        self.broker, self._address, self._owner = address.broker, address, owner
        self.facts: dict[str, Any] = {}
        self.is_ready = self.is_closing = False
        self.transport: asyncio.Transport | None = None
        loop = asyncio.get_running_loop()
        self._informed: asyncio.Future[None] = loop.create_future()
        self._reader, self._refusal = FrameReader(), ""
        self._pinged: deque[Callable[[], None]] = deque()

    # --- opening -----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, and wait for what the server says of itself; raise UpstreamError if it does not."""
        address, loop = self._address, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(OPEN_S_MAX):
                await loop.create_connection(lambda: self, address.host, address.port)
                await self._informed
                if self.is_closing:
                    raise ConnectionResetError("closed by the server")
                if address.tls is not None:
                    await self._secure(address.tls)
        except (OSError, TimeoutError) as error:
            self.close()
            raise UpstreamError(f"{self.broker} at {address.host}:{address.port}: {error or 'no answer'}") from error
        except asyncio.CancelledError:  # The client has left.
            self.close()
            raise
        if self.facts.get("tls_required") and address.tls is None:
            self.close()
            raise UpstreamError(f"{self.broker} at {address.host}:{address.port} requires TLS: use tls://")

    async def _secure(self, tls: ssl.SSLContext) -> None:
        assert self.transport is not None
        plain = self.transport
        secure = await asyncio.get_running_loop().start_tls(plain, self, tls, server_hostname=self._address.host)
        self.transport = secure or plain

    async def introduce(self, lines: bytes) -> str:
        """Send the client's CONNECT and more; return what the server has refused until it has handled all, or ""."""
        self._refusal = ""
        self.write(lines)
        try:
            async with asyncio.timeout(OPEN_S_MAX):
                await self.ping()
        except TimeoutError as error:
            raise UpstreamError(f"{self.broker} does not answer") from error
        if self.is_closing:
            raise UpstreamError(self._refusal or f"{self.broker} has closed the connection")
        self.is_ready = True
        return self._refusal

    # --- the socket --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way to write."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Pass on complete frames; end the connection if they are none of a NATS server."""
        frames: list[Frame] = []
        try:
            frames.extend(frame for frame in self._reader.feed(data) if not self._handle(frame))
        except (FrameError, ValueError) as error:
            self._end(f"{self.broker} sent what no NATS server sends: {error}")
            return
        if frames:
            self._owner.take_frames(self, frames)

    def _handle(self, frame: Frame) -> bool:
        """Return True for a frame that concerns this connection alone."""
        match frame.words[0]:
            case b"PING":
                self.write(b"PONG\r\n")
            case b"PONG":
                if self._pinged:
                    self._pinged.popleft()()
            case b"INFO":
                facts = json.loads(frame.raw[len(b"INFO ") :])
                self.facts = facts if isinstance(facts, dict) else {}
                if not self._informed.done():
                    self._informed.set_result(None)
            case b"-ERR" if not self.is_ready:
                self._refusal = frame.raw.decode(errors="replace").strip().removeprefix("-ERR ").strip("'")
            case b"+OK":
                pass
            case _:
                return False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection unless it was asked for."""
        self._end(str(exc or self._refusal or "closed by the server"))

    def pause_writing(self) -> None:
        """Report that the server is slow."""
        self._owner.hold_back(self, is_full=True)

    def resume_writing(self) -> None:
        """Report that it is no longer."""
        self._owner.hold_back(self, is_full=False)

    def _end(self, reason: str) -> None:
        if self.is_closing:
            return
        self.close()
        if self.is_ready:
            self._owner.lose_upstream(self, f"{self.broker}: {reason}")

    # --- asking ------------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def ping(self) -> asyncio.Future[None]:
        """Return what completes once the server has handled everything so far, or the connection has ended."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ping_then(lambda: None if answered.done() else answered.set_result(None))
        return answered

    def ping_then(self, answered: Callable[[], None]) -> None:
        """Call back once the server has handled everything so far, or the connection has ended."""
        if self.is_closing:
            answered()
            return
        self._pinged.append(answered)
        self.write(b"PING\r\n")

    def close(self) -> None:
        """End the connection; what was written is sent."""
        if self.is_closing:
            return
        self.is_closing = True
        if self.transport is not None:
            self.transport.close()
        if not self._informed.done():
            self._informed.set_result(None)
        while self._pinged:
            self._pinged.popleft()()
