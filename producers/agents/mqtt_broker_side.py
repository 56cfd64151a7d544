"""An agent's connections to MQTT brokers for one client: the same login at each, what they deliver, and notes of nodes.

With brokers the agent speaks MQTT 5, whatever the client does: messages of the overlay are known by a property that
3.1.1 does not have. The client's own side belongs to :mod:`producers.agents.mqtt_client_side`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import mqtt5

from regraft.producers.agents.broker_address import BrokerAddress, UpstreamError
from regraft.producers.agents.client_moves import Delivered
from regraft.producers.agents.client_session import ClientSession
from regraft.producers.agents.mqtt_client_facts import (
    FLUSH,
    FLUSH_ID,
    NAMED_STAYING,
    NOT_FOR_CLIENTS,
    NOTES_ID,
    PRIVATE_ID,
    MqttClient,
    MqttSubscription,
)
from regraft.producers.agents.mqtt_deliveries import MqttDeliveries, with_fields
from regraft.producers.agents.mqtt_frames import FAILED, MQTT_5, as_mqtt311, user_property, with_property
from regraft.producers.agents.mqtt_upstream import Answer, MqttUpstream, OnAnswer
from regraft.producers.agents.write_soon import SoonWriter
from regraft.producers.nodes.mqtt.mqtt_topics import subject_of
from regraft.schemas.agent_names import PUBLISHER_HEADER
from regraft.schemas.agent_note import AgentNote, mark_of, note_bytes
from regraft.schemas.stay_reasons import StayReason

GRANTED_S_MAX = 10.0
DIGITS_MAX = 12  # Of a number of a subscription.
UNKNOWN_HOME = "?"


class MqttBrokerSide(ClientSession[MqttUpstream]):
    """The brokers of one client of MQTT."""

    client: MqttClient

    def __init__(
        self, name: str, brokers: Mapping[str, BrokerAddress], home: str, counts: Counter[str],
        on_end: Callable[[Any], None], tls: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name, brokers, home, counts, on_end, tls)
        self.client = MqttClient(name)
        self._name_property = user_property(PUBLISHER_HEADER, name.encode())
        self._writer = SoonWriter(self._write)
        self.deliveries = MqttDeliveries(self._writer.write, self._note_full)
        self._again: list[tuple[bytes, OnAnswer | None]] = []  # Published at a broker that died without an answer.

    def _note_full(self, is_full: bool) -> None:
        """Read from brokers no faster than the client answers."""
        self.note_slow("answers", is_slow=is_full)

    def write_packet(self, packet: mqtt5.Packet) -> None:
        """Send a packet to the client."""
        self._writer.write(packet.write() if self.client.version == MQTT_5 else as_mqtt311(packet))

    # --- the login ---------------------------------------------------------------------------------------------------

    def _own_filters(self) -> Iterable[tuple[int, list[str]]]:
        return (NOTES_ID, self.client.orders_filters), (PRIVATE_ID, [self.client.private_filter])

    @staticmethod
    def _ask_own(upstream: MqttUpstream, number: int, patterns: list[str], on_answer: OnAnswer) -> None:
        options = [mqtt5.TopicFilter(each, max_qos=mqtt5.QoS.AT_LEAST_ONCE) for each in patterns]
        upstream.ask(
            lambda packet_id: mqtt5.SubscribePacket(packet_id, options, subscription_id=number).write(), on_answer
        )

    def _note_own(self, answer: Answer | None) -> bool:
        if isinstance(answer, mqtt5.SubAckPacket) and not _are_granted(answer):
            self.stay(StayReason.RIGHTS)
        if isinstance(answer, mqtt5.PubAckPacket) and answer.reason_code.value >= FAILED:
            self.stay(StayReason.RIGHTS)
        return True

    def new_upstream(self, address: BrokerAddress) -> MqttUpstream:
        """Return a connection to a broker that is not open."""
        return MqttUpstream(address, self)

    async def log_in(self, upstream: MqttUpstream) -> None:
        """Open a connection with the client's own login; raise UpstreamError if that, or a note, is refused."""
        await upstream.open()
        facts = await upstream.introduce(self.client.connect_packet(is_first=False))
        if facts.reason_code.value >= FAILED:
            raise UpstreamError(f"{upstream.broker} refuses: {facts.reason_code.name}")
        if self.client.stays_because:
            if self.client.stays_because in NAMED_STAYING:
                for number, patterns in self._own_filters():
                    self._ask_own(upstream, number, patterns, self._note_own)
            return
        try:
            granted = await asyncio.gather(*(self._is_granted(upstream, *each) for each in self._own_filters()))
        except TimeoutError as error:
            raise UpstreamError(f"{upstream.broker} does not answer a SUBSCRIBE") from error
        if not all(granted):
            raise UpstreamError(f"{upstream.broker}: {StayReason.RIGHTS}")

    async def _is_granted(self, upstream: MqttUpstream, number: int, patterns: list[str]) -> bool:
        granted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def note(answer: Answer | None) -> bool:
            if not granted.done():
                granted.set_result(isinstance(answer, mqtt5.SubAckPacket) and _are_granted(answer))
            return True

        self._ask_own(upstream, number, patterns, note)
        async with asyncio.timeout(GRANTED_S_MAX):
            return await granted

    # --- brokers' packets --------------------------------------------------------------------------------------------

    def take_packets(self, upstream: MqttUpstream, packets: Sequence[mqtt5.Packet]) -> None:
        """Pass on what a broker delivers."""
        for packet in packets:
            if isinstance(packet, mqtt5.PublishPacket):
                self._take_message(upstream, packet)
            elif isinstance(packet, mqtt5.PubRelPacket):
                self.deliveries.take_release(upstream, packet)

    def _take_message(self, upstream: MqttUpstream, packet: mqtt5.PublishPacket) -> None:
        """Take a message over: at QoS 1 its broker awaits nothing more, as no session outlasts the connection."""
        number = packet.subscription_ids[0] if packet.subscription_ids else 0
        is_present = self.homes.upstreams.get(upstream.broker) is upstream
        subscription = self.client.numbered(number) or self.client.ending.get(number)
        is_all = not upstream.facts.subscription_id_available
        upstream.acknowledge(packet)
        if not is_present or packet.topic.startswith(NOT_FOR_CLIENTS) or (subscription is None and not is_all):
            if is_present:
                self._take_own(upstream, number, packet)
        elif subscription is None:
            self.deliveries.deliver(packet, [], upstream)
        elif subscription.number in self.moves.moving:
            self._take_moving(upstream, subscription, packet, is_apart=False)
        elif subscription.home == upstream.broker and self._is_for_client(subscription, packet.topic):
            self.deliveries.deliver(packet, _ids_for(subscription), upstream)

    def _take_own(self, upstream: MqttUpstream, number: int, packet: mqtt5.PublishPacket) -> None:
        if number == NOTES_ID:
            self.take_note(upstream, packet.payload)
        elif number == PRIVATE_ID:
            self._take_apart(upstream, packet)
        elif number == FLUSH_ID:
            self.publishing.note_flush(packet.payload)

    def introduce_all(self, upstream: MqttUpstream) -> None:
        """Let a node that has begun again know whose the subscriptions at its broker are."""
        for each in self.client.subscriptions.values():
            if each.number >= 0 and upstream.broker in each.called:
                self.write_note(upstream.broker, self.client.beside(each, upstream.broker))

    def _take_apart(self, upstream: MqttUpstream, packet: mqtt5.PublishPacket) -> None:
        """Take a note, or a message that a node has handed over for one subscription alone."""
        rest = packet.topic.removeprefix(self.client.private_filter.removesuffix("#"))
        digits, _, topic = rest.partition("/")
        number = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < DIGITS_MAX else 0
        subscription = self.client.numbered(number)
        if not topic:
            self.take_note(upstream, packet.payload)
        if subscription is None or not topic:
            return
        qos = min(packet.qos, subscription.options.max_qos, key=lambda each: each.value)
        inner = with_fields(packet, topic=topic, qos=qos, packet_id=packet.packet_id if qos.value else None)
        if subscription.number in self.moves.moving:
            self._take_moving(upstream, subscription, inner, is_apart=True)
        elif subscription.home == upstream.broker:
            self.deliver(subscription, inner)

    def _take_moving(
        self, upstream: MqttUpstream, subscription: MqttSubscription, packet: mqtt5.PublishPacket, *, is_apart: bool
    ) -> None:
        """Let the move decide whose message this is."""
        subject, stamp = subject_of(packet.topic), None
        header = self.moves.stamps.header if self.moves.stamps is not None else ""
        for name, value in packet.user_properties:
            if name == header and self.moves.stamps is not None:
                stamp = self.moves.stamps.read(value, subject) or stamp
        home = "" if stamp is None else stamp.home or UNKNOWN_HOME
        epoch = -1 if stamp is None or is_apart else stamp.epoch
        mark = mark_of(subject.encode(errors="replace"), packet.payload)
        size = len(packet.topic) + len(packet.payload)
        self.moves.take(upstream.broker, subscription, Delivered(packet, size, home, mark, epoch))

    def _is_for_client(self, subscription: MqttSubscription, topic: str) -> bool:
        return not topic.startswith(FLUSH) and not self.client.is_repeat(subscription, topic)

    def deliver(self, subscription: MqttSubscription, raw: mqtt5.PublishPacket) -> None:
        """Hand a message to the client whose broker awaits no answer."""
        if self._is_for_client(subscription, raw.topic):
            self.deliveries.deliver(raw, _ids_for(subscription), None)

    def deliver_now(self) -> None:
        """Do nothing: every message is written at once."""

    def take_refusal(self, upstream: MqttUpstream, packet: mqtt5.DisconnectPacket) -> None:
        """End the client as its broker does: another broker would, too."""
        if self.homes.upstreams.get(upstream.broker) is upstream and upstream.broker == self.homes.home:
            self.write_packet(packet)
            self.end(f"its broker ends it: {packet.reason_code.name}")

    def lose_upstream(self, upstream: MqttUpstream, reason: str) -> None:
        """Note that a broker is gone; what it has not answered is published again."""
        self._again += upstream.take_unanswered()
        self.deliveries.lose(upstream)
        super().lose_upstream(upstream, reason)
        if "reconnecting" not in self._holds and not self.is_over:
            self._publish_again()

    def _publish_again(self) -> None:
        upstream = self.homes.upstreams.get(self.homes.home)
        again, self._again = self._again, []
        if any(frame[0] & 0b100 for frame, _ in again):
            self.end("its broker has died within a dialogue of QoS 2")
        elif upstream is not None:
            self.counts["published_again"] += len(again)
            for frame, on_answer in again:
                upstream.publish(frame, on_answer)

    def end(self, reason: str) -> None:
        """End the client and all its connections."""
        self._writer.flush()
        super().end(reason)

    # --- what the parts of the session ask ---------------------------------------------------------------------------

    def subscribe(
        self, upstream: MqttUpstream, subscription: MqttSubscription, name: str = "", epoch: int = -1
    ) -> None:
        """Subscribe at a broker; a plan to ``epoch`` brings the overlay's subscription ``name`` there."""

        def note(answer: Answer | None) -> bool:
            granted = answer.reason_codes[0].value if isinstance(answer, mqtt5.SubAckPacket) else 0
            if name and not self.is_over and (granted >= FAILED or granted < subscription.granted):
                self.moves.refuse(upstream.broker, {subscription.number})
            return True

        if name:
            subscription.called[upstream.broker] = name, epoch
        self.ask_for(upstream, subscription, note, is_moving=bool(name))

    def ask_for(
        self, upstream: MqttUpstream, subscription: MqttSubscription, on_answer: OnAnswer, *, is_moving: bool = False
    ) -> None:
        """Subscribe at a broker."""
        if subscription.number >= 0:
            called = subscription.called
            called[upstream.broker] = called.get(upstream.broker, (f"{self.client.name}.{subscription.number}", 0))
            self._write_note(upstream, self.client.beside(subscription, upstream.broker))
        options = self.client.asked(subscription, is_moving=is_moving)
        number = subscription.id if upstream.facts.subscription_id_available else None
        upstream.ask(
            lambda packet_id: mqtt5.SubscribePacket(packet_id, [options], subscription_id=number).write(), on_answer
        )

    def unsubscribe(self, upstream: MqttUpstream, subscription: MqttSubscription) -> None:
        """End a subscription at a broker."""
        subscription.called.pop(upstream.broker, None)
        pattern = subscription.filter
        upstream.ask(lambda packet_id: mqtt5.UnsubscribePacket(packet_id, [pattern]).write(), lambda _answer: True)

    def write_note(self, broker: str, note: AgentNote) -> None:
        """Send a note to the node of a broker, through the broker."""
        upstream = self.homes.upstreams.get(broker)
        if upstream is not None:
            self._write_note(upstream, note)

    def _write_note(self, upstream: MqttUpstream, note: AgentNote) -> None:
        self._publish_own(upstream, self.client.notes_topic, note_bytes(note))

    def _publish_own(self, upstream: MqttUpstream, topic: str, payload: bytes, *, is_named: bool = False) -> None:
        frame = mqtt5.PublishPacket(topic, payload, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=1).write()
        upstream.publish(self.named(frame) if is_named else frame, self._note_own, is_own=True)

    def named(self, frame: bytes) -> bytes:
        """Return a message of the client's with its name."""
        return with_property(frame, self._name_property, PUBLISHER_HEADER)

    def want_flush(self, upstream: MqttUpstream, *, is_wanted: bool) -> None:
        """Ask a broker for the agent's own messages through the overlay, or no longer."""
        topic = self.client.flush_topic
        if is_wanted:
            self._ask_own(upstream, FLUSH_ID, [topic], lambda _answer: True)
        else:
            upstream.ask(lambda packet_id: mqtt5.UnsubscribePacket(packet_id, [topic]).write(), lambda _answer: True)

    def send_flush(self, upstream: MqttUpstream, mark: int) -> None:
        """Publish such a message behind everything that the client has published."""
        is_named = self.publishing.is_named(upstream.broker)
        self._publish_own(upstream, self.client.flush_topic, b"%d" % mark, is_named=is_named)


def _are_granted(answer: mqtt5.SubAckPacket) -> bool:
    return all(code.value < FAILED for code in answer.reason_codes)


def _ids_for(subscription: MqttSubscription) -> list[int]:
    """Return the client's own identifiers of a subscription."""
    return sorted({each for each in subscription.wanted.values() if each})
