"""What a client of MQTT is handed: packet identifiers, its receive maximum, and its answers for brokers.

In: messages of brokers. Out: packets for the client, answers for brokers. Messages that the client does not take yet
wait in order, and brokers with them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import mqtt5

from regraft.producers.agents.mqtt_frames import FAILED, MQTT_5, MQTT_311, as_mqtt311
from regraft.producers.agents.mqtt_upstream import IDS, MqttUpstream

WAITING_BYTES_MAX = 1 << 20  # Then the agent reads no further from brokers.
QOS_2 = 2


@dataclass(slots=True)
class _UnderWay:
    """A message of QoS 1 or 2 that the client has not answered; ``upstream`` awaits the answer, at QoS 2 alone."""

    upstream: MqttUpstream | None
    packet_id: int


class MqttDeliveries:
    """The messages for one client. ``on_full`` is called with True if too much waits, and with False afterwards."""

    def __init__(self, write: Callable[[bytes], None], on_full: Callable[[bool], None]) -> None:
        self.version, self.receive_max = MQTT_311, IDS
        self._write, self._on_full = write, on_full
        self._under_way: dict[int, _UnderWay] = {}
        self._ids_of: dict[tuple[int, int], int] = {}  # Of QoS 2: the broker's connection and its identifier.
        self._waiting: deque[tuple[mqtt5.PublishPacket, list[int], MqttUpstream | None]] = deque()
        self._waiting_bytes = self._last_id = 0
        self._owed: set[int] = set()  # Of QoS 2: the client has answered, and a broker is to release it.
        self._is_full = False

    def deliver(self, packet: mqtt5.PublishPacket, ids: list[int], upstream: MqttUpstream | None) -> None:
        """Hand over a message with the client's subscription identifiers; at QoS 2 ``upstream`` awaits its answer."""
        if self._waiting or (packet.qos.value and len(self._under_way) >= self.receive_max):
            self._waiting.append((packet, ids, upstream))
            self._waiting_bytes += len(packet.payload)
            self._note_full()
        else:
            self._send(packet, ids, upstream)

    def _note_full(self) -> None:
        """Report whether too much waits; while a broker is to release a message, it has to be read all the same."""
        is_full = (self._waiting_bytes > WAITING_BYTES_MAX or len(self._waiting) > IDS) and not self._owed
        if is_full != self._is_full:
            self._is_full = is_full
            self._on_full(is_full)

    def _send(self, packet: mqtt5.PublishPacket, ids: list[int], upstream: MqttUpstream | None) -> None:
        packet_id = None
        if packet.qos.value:
            packet_id = self._new_id()
            upstream = upstream if packet.qos.value == QOS_2 else None
            self._under_way[packet_id] = _UnderWay(upstream, packet.packet_id or 0)
            if upstream is not None:
                self._ids_of[id(upstream), packet.packet_id or 0] = packet_id
        sent = with_fields(packet, packet_id=packet_id, ids=ids)
        self._write(sent.write() if self.version == MQTT_5 else as_mqtt311(sent))

    def _new_id(self) -> int:
        while True:
            self._last_id = self._last_id % IDS + 1
            if self._last_id not in self._under_way:
                return self._last_id

    def take_answer(self, packet: mqtt5.PubAckPacket | mqtt5.PubRecPacket | mqtt5.PubCompPacket) -> None:
        """Pass a client's answer on to the broker that awaits it."""
        under_way = self._under_way.get(packet.packet_id)
        if under_way is None:
            return
        upstream, reason = under_way.upstream, packet.reason_code
        is_received = isinstance(packet, mqtt5.PubRecPacket) and reason.value < FAILED
        if upstream is not None and not upstream.is_closing:
            upstream.write(type(packet)(under_way.packet_id, reason_code=reason).write())  # type: ignore[arg-type]
            if is_received:
                self._owed.add(packet.packet_id)
                self._note_full()
        elif is_received:  # Nobody else ends the dialogue.
            self._release(packet.packet_id)
        if not is_received:
            del self._under_way[packet.packet_id]
            self._owed.discard(packet.packet_id)
            if upstream is not None:
                self._ids_of.pop((id(upstream), under_way.packet_id), None)
            self._send_waiting()

    def take_release(self, upstream: MqttUpstream, packet: mqtt5.PubRelPacket) -> None:
        """Pass a broker's PUBREL on to the client."""
        packet_id = self._ids_of.get((id(upstream), packet.packet_id))
        if packet_id is None:
            upstream.write(mqtt5.PubCompPacket(packet.packet_id).write())
            return
        self._release(packet_id)

    def _release(self, packet_id: int) -> None:
        released = mqtt5.PubRelPacket(packet_id)
        self._write(released.write() if self.version == MQTT_5 else as_mqtt311(released))
        self._owed.discard(packet_id)
        self._note_full()

    def lose(self, upstream: MqttUpstream) -> None:
        """Release what a broker that is gone was to release: the client waits for that, and messages for the client."""
        for packet_id in sorted(self._owed):
            if self._under_way[packet_id].upstream is upstream:
                self._release(packet_id)

    def _send_waiting(self) -> None:
        while self._waiting and not (self._waiting[0][0].qos.value and len(self._under_way) >= self.receive_max):
            packet, ids, upstream = self._waiting.popleft()
            self._waiting_bytes -= len(packet.payload)
            self._send(packet, ids, upstream)
        self._note_full()


def with_fields(
    packet: mqtt5.PublishPacket,
    *,
    topic: str | None = None,
    qos: mqtt5.QoS | None = None,
    packet_id: int | None = None,
    ids: list[int] | None = None,
) -> mqtt5.PublishPacket:
    """Return a message with other fields; it has no packet identifier, and no subscription identifiers, but these."""
    return mqtt5.PublishPacket(
        topic or packet.topic,
        packet.payload,
        qos=packet.qos if qos is None else qos,
        retain=packet.retain,
        packet_id=packet_id,
        payload_format_indicator=packet.payload_format_indicator,
        message_expiry_interval=packet.message_expiry_interval,
        content_type=packet.content_type,
        response_topic=packet.response_topic,
        correlation_data=packet.correlation_data,
        subscription_ids=ids,
        user_properties=packet.user_properties,
    )
