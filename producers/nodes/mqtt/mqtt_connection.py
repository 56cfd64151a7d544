"""One connection to an MQTT 5 broker: packets in and out of a socket, and pings that end a silent connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import mqtt5

from regraft.producers.nodes.mqtt.mqtt_packets import MalformedError, Oversized, PacketReader, Unreadable

PINGS_MAX = 3  # Per keep-alive, and unanswered; counted, not timed, because the node may have been suspended.
CLOSE_S_MAX = 1.0  # How long the last bytes may take to be sent.
ReceivedPacket = mqtt5.Packet | Oversized | Unreadable


class MqttConnection(asyncio.Protocol):
    """A socket. ``on_packet`` receives packets, ``on_room`` is called if writing may resume, ``on_lost`` at the end."""

    def __init__(
        self,
        on_packet: Callable[[MqttConnection, ReceivedPacket], None],
        on_room: Callable[[], None],
        on_lost: Callable[[MqttConnection, str], None],
        packet_bytes_max: int,
    ) -> None:
        self.is_paused = self.is_over = False
        self._on_packet, self._on_room, self._on_lost = on_packet, on_room, on_lost
        self._reader = PacketReader(packet_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._closed = asyncio.get_running_loop().create_future()
        self._pinging: asyncio.TimerHandle | None = None
        self._unanswered = 0

    # --- called by asyncio -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report that this connection has ended."""
        self.lose(str(exc) if exc is not None else "closed by the broker")
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        """Stop writing: the socket accepts no more."""
        self.is_paused = True

    def resume_writing(self) -> None:
        """Report that writing may resume."""
        self.is_paused = False
        self._on_room()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes; anything but packets ends the connection."""
        self._unanswered = 0
        try:
            for packet in self._reader.feed(data):
                if isinstance(packet, mqtt5.DisconnectPacket):
                    self.lose(f"ended by the broker: {packet.reason_code.name} {packet.reason_str or ''}".rstrip())
                elif not isinstance(packet, mqtt5.PingRespPacket):
                    self._on_packet(self, packet)
                if self.is_over:
                    return
        except MalformedError as error:
            self.refuse(mqtt5.DisconnectReasonCode.MALFORMED_PACKET, f"not an MQTT 5 packet: {error}")

    # --- called by the session ---------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send bytes of whole packets, unless the connection has ended."""
        if self._transport is not None and not self.is_over:
            self._transport.write(data)

    def keep_alive(self, within_s: float) -> None:
        """Ping from now on, and end the connection if nothing arrives for ``within_s``."""
        loop = asyncio.get_running_loop()

        def ping() -> None:
            if self._unanswered >= PINGS_MAX:
                self.lose(f"no data for {within_s:g} s")
                return
            self._unanswered += 1
            self.write(mqtt5.PingReqPacket().write())
            self._pinging = loop.call_later(within_s / PINGS_MAX, ping)

        self._pinging = loop.call_later(within_s / PINGS_MAX, ping)

    def refuse(self, code: mqtt5.DisconnectReasonCode, reason: str) -> None:
        """End the connection because the broker has violated the protocol."""
        self.write(mqtt5.DisconnectPacket(reason_code=code).write())
        self.lose(reason)

    def lose(self, reason: str) -> None:
        """End the connection at once."""
        if self.is_over:
            return
        self.is_over = True
        if self._pinging is not None:
            self._pinging.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._on_lost(self, reason)

    async def close(self, disconnect: mqtt5.DisconnectPacket) -> None:
        """Send a last packet, and end the connection once it is sent, or after ``CLOSE_S_MAX``."""
        self.write(disconnect.write())
        if self._transport is not None:
            self._transport.close()
        await asyncio.wait((self._closed,), timeout=CLOSE_S_MAX)
        self.lose("closed")
