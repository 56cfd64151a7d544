"""One connection to an MQTT 5 broker: packets in and out of a socket, pings, and the end of one that is silent.

In: bytes. Out: packets, for :mod:`producers.nodes.mqtt_session`, which knows what they mean and outlasts a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import mqtt5

from regraft.producers.nodes.mqtt_packets import MalformedError, Oversized, PacketReader

PINGS_MAX = 3  # In one keep-alive, and without an answer: counted, as a node may have been suspended meanwhile.
CLOSE_S_MAX = 1.0  # How long what was written last may take to leave.
Taken = mqtt5.Packet | Oversized


class MqttConnection(asyncio.Protocol):
    """A socket. ``on_packet`` takes what comes, ``on_room`` hears that there is room, ``on_lost`` why it ended."""

    def __init__(
        self,
        on_packet: Callable[[MqttConnection, Taken], None],
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

    # --- what asyncio calls ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the way out."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report that this connection is over."""
        self.lose(str(exc) if exc is not None else "closed by the broker")
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        """Wait: the socket takes no more."""
        self.is_paused = True

    def resume_writing(self) -> None:
        """Resume with what waits."""
        self.is_paused = False
        self._on_room()

    def data_received(self, data: bytes) -> None:
        """Take what has come; what is not a packet ends the connection."""
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
            self.refuse(mqtt5.DisconnectReasonCode.MALFORMED_PACKET, f"what came is not a packet of MQTT 5: {error}")

    # --- what the session asks ---------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send bytes of whole packets, if it still can."""
        if self._transport is not None and not self.is_over:
            self._transport.write(data)

    def keep_alive(self, within_s: float) -> None:
        """Ping from now on, and end the connection when nothing comes for longer than this."""
        loop = asyncio.get_running_loop()

        def ping() -> None:
            if self._unanswered >= PINGS_MAX:
                self.lose(f"nothing came for {within_s:g} s")
                return
            self._unanswered += 1
            self.write(mqtt5.PingReqPacket().write())
            self._pinging = loop.call_later(within_s / PINGS_MAX, ping)

        self._pinging = loop.call_later(within_s / PINGS_MAX, ping)

    def refuse(self, code: mqtt5.DisconnectReasonCode, reason: str) -> None:
        """End the connection, as the broker has sent what it must not."""
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

    async def close(self, farewell: mqtt5.DisconnectPacket) -> None:
        """Send this last, and end the connection once that has left, or after some time."""
        self.write(farewell.write())
        if self._transport is not None:
            self._transport.close()
        await asyncio.wait((self._closed,), timeout=CLOSE_S_MAX)
        self.lose("closed")
