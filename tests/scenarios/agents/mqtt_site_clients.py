"""The clients of a site of MQTT: of 3.1.1 or 5, at QoS 0 or 1, as drawn for each stay.

In: deeds. Out: packets, and a ledger of what has come. A client of MQTT 5 gets a copy for each of its subscriptions;
that of 3.1.1 gets a single one, which counts for all that match. At QoS 1 a client has no more than ``UNDER_WAY_MAX``
messages without an answer, as usual libraries do.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any
from zlib import crc32

import mqtt5

from regraft.producers.agents.mqtt_frames import MQTT_5, MQTT_311, FrameReader, as_mqtt5, head
from tests.producers.agents.mqtt_311_packets import connect_311, request_311
from tests.scenarios.agents.agents_ledger import ClientLedger
from tests.scenarios.agents.site_clients import SUBJECT, SiteClient
from tests.scenarios.any_order_account import BrokenPromiseError

UNDER_WAY_MAX = 20
RECEIVE_MAX = 3  # Of some clients of MQTT 5.
FAILED = 0x80


class MqttSiteClient(SiteClient):
    """One of MQTT."""

    def __init__(
        self, name: str, stay: str, ledger: ClientLedger, on_end: Callable[[SiteClient], None], seed: int = 0
    ) -> None:
        super().__init__(name, stay, ledger, on_end)
        drawn = crc32(f"{seed} {stay}".encode())
        self.version, self.qos = (MQTT_5, MQTT_311)[drawn % 2], mqtt5.QoS(drawn // 2 % 2)
        self.receive_max = RECEIVE_MAX if drawn // 4 % 2 else 65_535
        self._reader, self._ids = FrameReader(), 0
        self._unsent: deque[int] = deque()
        self._unanswered: dict[int, int] = {}  # Packet identifier -> number.

    @property
    def unanswered(self) -> set[int]:
        """The numbers that may be published again if their broker dies."""
        return {*self._unanswered.values()}

    @property
    def is_answered(self) -> bool:
        """Return True if all that the client has published is sent and, at QoS 1, answered."""
        return not self._unsent and not self._unanswered

    # --- packets -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Log in: with the same identifier in each stay."""
        super().connection_made(transport)
        connect = mqtt5.ConnectPacket(self.name, clean_start=True, receive_max=self.receive_max)
        self._end.write(connect.write() if self.version == MQTT_5 else connect_311(self.name))

    def data_received(self, data: bytes) -> None:
        """Take what the other side sends."""
        for frame in self._reader.feed(data):
            self._take_packet(mqtt5.read(frame if self.version == MQTT_5 else _as_mqtt5(frame))[0])

    def _take_packet(self, packet: mqtt5.Packet) -> None:
        match packet:
            case mqtt5.ConnAckPacket() if packet.reason_code.value < FAILED:
                self.is_known = True
                self._end.write(b"".join(self._early))
                self._send_waiting()
            case mqtt5.PublishPacket():
                if packet.qos.value:
                    self._send(mqtt5.PubAckPacket(packet.packet_id or 0))
                self._take_message(packet)
            case mqtt5.PubAckPacket():
                if packet.packet_id not in self._unanswered:
                    raise BrokenPromiseError("answered twice", f"{self.stay} {packet}")
                del self._unanswered[packet.packet_id]
                self._send_waiting()
            case mqtt5.SubAckPacket() if any(code.value >= FAILED for code in packet.reason_codes):
                raise BrokenPromiseError("subscription refused", f"{self.stay} {packet}")

    def _take_message(self, packet: mqtt5.PublishPacket) -> None:
        if self.is_over or not packet.topic.startswith(f"{SUBJECT}/"):
            return  # At a broker itself, a client sees what agents and nodes say to each other, too.
        of_own = packet.topic == f"{SUBJECT}/{self.stay}"
        for pattern, name in list(self.subscriptions.items()):
            is_meant = int(name.rpartition(":")[2]) in packet.subscription_ids
            is_all = self.version == MQTT_311 and (of_own or pattern != f"{SUBJECT}/{self.stay}")
            if is_meant or is_all:
                self._take(name, packet.payload)

    def _send(self, packet: mqtt5.Packet) -> None:
        self._write(packet.write() if self.version == MQTT_5 else request_311(packet))

    def _new_id(self) -> int:
        self._ids += 1
        return self._ids

    # --- deeds -------------------------------------------------------------------------------------------------------

    def subscribe(self, place: int) -> None:
        """Subscribe everything, in one of several ways, or only what it publishes itself."""
        ways = (f"{SUBJECT}/#", f"{SUBJECT}/+", f"{SUBJECT}/{self.stay}", "+/+", "+/#")
        pattern = next((each for each in (*ways[place % 3 :], *ways) if each not in self.subscriptions), "")
        if pattern:
            self._note_subscribed(pattern, self.stay if pattern.endswith(self.stay) else "")
            options = mqtt5.TopicFilter(pattern, max_qos=self.qos)
            number = self._count if self.version == MQTT_5 else None
            self._send(mqtt5.SubscribePacket(self._new_id(), [options], subscription_id=number))

    def _say_unsubscribed(self, key: Any) -> None:
        self._send(mqtt5.UnsubscribePacket(self._new_id(), [key]))

    def publish(self, count: int) -> None:
        """Publish some numbers at once, as far as the answers to earlier ones have come."""
        self._unsent += [self.ledger.write(self.stay) for _ in range(count)]
        self._send_waiting()

    def _send_waiting(self) -> None:
        while self.is_known and self._unsent and len(self._unanswered) < UNDER_WAY_MAX:
            number, packet_id = self._unsent.popleft(), None
            if self.qos.value:
                packet_id = self._new_id()
                self._unanswered[packet_id] = number
            topic, payload = f"{SUBJECT}/{self.stay}", f"{self.stay}/{number}".encode()
            self._send(mqtt5.PublishPacket(topic, payload, qos=self.qos, packet_id=packet_id))


def _as_mqtt5(frame: bytes) -> bytes:
    """Return a packet of a broker for a client of MQTT 3.1.1 as one of MQTT 5."""
    match frame[0] >> 4:
        case 2:  # CONNACK; a refusal has other codes, all of which are failures.
            return bytes((0x20, 3, frame[2], frame[3] and FAILED, 0))
        case 9 | 11:
            codes = frame[4:] or b"\x00"
            return head(frame[0], 3 + len(codes)) + frame[2:4] + b"\x00" + codes
    return as_mqtt5(frame)
