"""A stand-in for an MQTT broker: accepts clients, sends what a test wants, records what arrives.

It routes no messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import mqtt5

from regraft.producers.nodes.mqtt.mqtt_packets import PACKET_BYTES_MAX, Oversized, PacketReader
from tests.producers.nodes.connector_kit import until


class StandIn:
    """The broker. ``welcome`` is its answer to the next connection; ``got`` has the packets of the newest one."""

    def __init__(self) -> None:
        self.welcome = mqtt5.ConnAckPacket()
        self.answers_pings = True
        self.greetings: list[mqtt5.ConnectPacket] = []
        self.got: list[mqtt5.Packet | Oversized] = []
        self.port = 0
        self._writer: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer, self.got = writer, []
        packets = PacketReader(PACKET_BYTES_MAX)
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                for packet in packets.feed(data):
                    self._answer(packet)
        writer.close()

    def _answer(self, packet: mqtt5.Packet | Oversized) -> None:
        match packet:
            case mqtt5.ConnectPacket():
                self.greetings.append(packet)
                self.send(self.welcome)
            case mqtt5.SubscribePacket():
                granted = mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE
                self.send(mqtt5.SubAckPacket(packet.packet_id, [granted] * len(packet.topic_filters)))
            case mqtt5.PingReqPacket() if self.answers_pings:
                self.send(mqtt5.PingRespPacket())
        self.got.append(packet)

    def send(self, *packets: mqtt5.Packet | bytes) -> None:
        """Send packets, or invalid bytes, in one piece."""
        assert self._writer is not None
        self._writer.write(b"".join(each if isinstance(each, bytes) else each.write() for each in packets))

    def acknowledge(self, *packet_ids: int, code: mqtt5.PubAckReasonCode = mqtt5.PubAckReasonCode.SUCCESS) -> None:
        self.send(*(mqtt5.PubAckPacket(each, reason_code=code) for each in packet_ids))

    def cut(self) -> None:
        assert self._writer is not None
        self._writer.transport.abort()

    @property
    def messages(self) -> list[mqtt5.PublishPacket]:
        return [packet for packet in self.got if isinstance(packet, mqtt5.PublishPacket)]

    async def has(self, *payloads: bytes) -> list[mqtt5.PublishPacket]:
        """Wait for this many messages of the newest connection and return them; they must have these payloads."""
        await until(lambda: len(self.messages) >= len(payloads))
        assert [packet.payload for packet in self.messages] == list(payloads)
        return self.messages


@asynccontextmanager
async def stand_in() -> AsyncIterator[StandIn]:
    broker = StandIn()
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        server.close()
        with suppress(AssertionError):
            broker.cut()
