"""What a client of MQTT asks for: messages that it publishes, and subscriptions, with the answers of brokers.

In: the client's packets. Out: packets for brokers, and their answers for the client.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import mqtt5

from regraft.producers.agents.mqtt_broker_side import MqttBrokerSide
from regraft.producers.agents.mqtt_client_facts import NOT_FOR_CLIENTS, SUBSCRIPTIONS_MAX, MqttSubscription
from regraft.producers.agents.mqtt_frames import FAILED
from regraft.producers.agents.mqtt_upstream import Answer, MqttUpstream, OnAnswer
from regraft.producers.nodes.mqtt.mqtt_packets import MalformedError
from regraft.producers.nodes.mqtt.mqtt_topics import SHARE, TopicError, subjects_of
from regraft.schemas.stay_reasons import StayReason

NOT_AUTHORIZED, BAD_FILTER, TOO_MANY, NOT_SUBSCRIBED = 0x87, 0x8F, 0x97, 0x11
QOS_2 = 2


class _Codes:
    """The answer to a request with several filters; ``give`` is called once all is asked and answered."""

    def __init__(self, count: int, give: Callable[[list[int]], None]) -> None:
        self._codes: list[int | None] = [None] * count
        self._waiting, self._give = 1, give  # The one is all that is still to be asked.

    def expect(self, count: int) -> None:
        """Note how many answers are to come."""
        self._waiting += count

    def refuse(self, place: int, code: int) -> None:
        """Note what the agent itself answers."""
        self._codes[place] = code

    def note(self, place: int, code: int) -> None:
        """Note a broker's answer: a refusal of one part is one of all, else the least counts."""
        before = self._codes[place]
        if before is None or (code >= FAILED > before):
            self._codes[place] = code
        elif before < FAILED:
            self._codes[place] = min(code, before)
        self.close()

    def close(self) -> None:
        """Note that all is asked."""
        self._waiting -= 1
        if not self._waiting:
            self._give([code or 0 for code in self._codes])


class MqttRequests:
    """The requests of one client."""

    def __init__(self, session: MqttBrokerSide) -> None:
        self._session = session
        self._published: dict[int, tuple[MqttUpstream, OnAnswer]] = {}  # By the client's packet identifier.

    # --- publishing --------------------------------------------------------------------------------------------------

    def publish(self, packet: mqtt5.PublishPacket, frame: bytes) -> bool:
        """Pass on a message; return True if it is the client's first. Raises MalformedError if no client may send it.

        ``frame`` is its packet of MQTT 5.
        """
        session, topic, qos = self._session, packet.topic, packet.qos.value
        if not topic or packet.topic_alias is not None or "+" in topic or "#" in topic:
            raise MalformedError(f"a message cannot be published to {topic[:80]!r}")
        upstream = session.homes.upstreams.get(session.homes.home)
        if upstream is None:
            raise MalformedError("it publishes although it was not accepted")
        if topic.startswith(NOT_FOR_CLIENTS):
            session.counts["own_subject"] += 1
            self._refuse(packet)
            return False
        limit = upstream.facts.max_packet_size
        if limit is not None and len(frame) > limit:
            raise MalformedError(f"a message of {len(frame)} bytes: its broker takes {limit}")
        if qos == QOS_2:
            session.stay(StayReason.QOS_2)
        is_first = not session.client.has_published
        session.client.has_published = True
        if session.publishing.note_published():
            named = session.named(frame)
            frame = named if limit is None or len(named) <= limit else frame
        upstream.publish(frame, self._answer_to(packet.packet_id or 0, upstream) if qos else None)
        return is_first

    def _refuse(self, packet: mqtt5.PublishPacket) -> None:
        packet_id, qos = packet.packet_id or 0, packet.qos.value
        if qos == 1:
            self._session.write_packet(mqtt5.PubAckPacket(packet_id, reason_code=mqtt5.PubAckReasonCode.NOT_AUTHORIZED))
        elif qos:
            self._session.write_packet(mqtt5.PubRecPacket(packet_id, reason_code=mqtt5.PubRecReasonCode.NOT_AUTHORIZED))

    def _answer_to(self, packet_id: int, upstream: MqttUpstream) -> OnAnswer:
        def on_answer(answer: Answer | None) -> bool:
            if not isinstance(answer, mqtt5.PubAckPacket | mqtt5.PubRecPacket | mqtt5.PubCompPacket):
                return True
            self._session.write_packet(
                type(answer)(
                    packet_id,
                    reason_code=answer.reason_code,  # type: ignore[arg-type]
                    reason_str=answer.reason_str,
                    user_properties=answer.user_properties,
                )
            )
            is_over = not isinstance(answer, mqtt5.PubRecPacket) or answer.reason_code.value >= FAILED
            if is_over:
                self._published.pop(packet_id, None)
            return is_over

        self._published[packet_id] = upstream, on_answer
        return on_answer

    def release(self, packet: mqtt5.PubRelPacket) -> None:
        """Pass on the client's PUBREL."""
        upstream, on_answer = self._published.get(packet.packet_id, (None, None))
        if upstream is None or on_answer is None:
            self._session.write_packet(mqtt5.PubCompPacket(packet.packet_id))
        else:
            upstream.write(mqtt5.PubRelPacket(upstream.id_of(on_answer)).write())

    # --- subscribing -------------------------------------------------------------------------------------------------

    def subscribe(self, packet: mqtt5.SubscribePacket) -> None:
        """Subscribe what the client wants, and answer once brokers have."""
        session, patterns = self._session, [each.pattern for each in packet.topic_filters]

        def give(codes: list[int]) -> None:
            for pattern in {each for each, code in zip(patterns, codes, strict=True) if code >= FAILED}:
                self._end(pattern, lambda _answer: True)
            session.write_packet(mqtt5.SubAckPacket(packet.packet_id, [mqtt5.SubAckReasonCode(each) for each in codes]))

        codes = _Codes(len(patterns), give)
        for place, options in enumerate(packet.topic_filters):
            refusal = self._refusal_of(options.pattern)
            if refusal:
                codes.refuse(place, refusal)
                continue
            if reason := session.client.reason_to_stay(options):
                session.stay(reason)
            parts = session.client.subscribe(options, packet.subscription_id or 0, session.homes.subscribing)
            codes.expect(len(parts))
            for part in parts:
                upstream = session.homes.upstreams.get(part.home)
                noted = partial(self._note_granted, codes, place, part)
                if upstream is None:
                    noted(None)
                else:
                    session.ask_for(upstream, part, noted)
        codes.close()

    def _refusal_of(self, pattern: str) -> int:
        """Return why the agent refuses a filter, 0 if it does not."""
        if pattern.startswith(NOT_FOR_CLIENTS):
            return NOT_AUTHORIZED
        try:
            if not pattern.startswith("$") or pattern.startswith(f"{SHARE}/"):
                subjects_of(pattern)
        except TopicError:
            return BAD_FILTER
        return TOO_MANY if len(self._session.client.subscriptions) >= SUBSCRIPTIONS_MAX else 0

    def _note_granted(self, codes: _Codes, place: int, part: MqttSubscription, answer: Answer | None) -> bool:
        """Note a broker's answer; without one the subscription restarts elsewhere."""
        granted = answer.reason_codes[0].value if isinstance(answer, mqtt5.SubAckPacket) else part.options.max_qos.value
        if granted < FAILED:
            self._session.client.note_granted(part, granted)
        codes.note(place, granted)
        return True

    def unsubscribe(self, packet: mqtt5.UnsubscribePacket) -> None:
        """End subscriptions, and answer once brokers have."""
        session = self._session

        def give(codes: list[int]) -> None:
            reasons = [mqtt5.UnsubAckReasonCode(code) for code in codes]
            session.write_packet(mqtt5.UnsubAckPacket(packet.packet_id, reasons))

        codes = _Codes(len(packet.patterns), give)
        for place, pattern in enumerate(packet.patterns):
            if pattern in session.client.parts:
                codes.expect(self._end(pattern, partial(self._note_ended, codes, place)))
            else:
                codes.refuse(place, NOT_SUBSCRIBED)
        codes.close()

    @staticmethod
    def _note_ended(codes: _Codes, place: int, _answer: Answer | None) -> bool:
        codes.note(place, 0)
        return True

    def _end(self, pattern: str, on_answer: OnAnswer) -> int:
        """End a subscription of the client at all brokers; return how many answers there will be."""
        session, count = self._session, 0
        for each in session.client.forget(pattern):
            session.moves.forget(each)
            for upstream in session.homes.upstreams.values():
                upstream.ask(partial(_unsubscribing, each.filter), partial(self._note_gone, each, upstream, on_answer))
                count += 1
            if each.home not in session.homes.upstreams:
                session.client.note_gone(each)
        return count

    def _note_gone(
        self, subscription: MqttSubscription, upstream: MqttUpstream, on_answer: OnAnswer, answer: Answer | None
    ) -> bool:
        """Note that a broker has ended a subscription, or is gone."""
        if upstream.broker == subscription.home:
            self._session.client.note_gone(subscription)
        return on_answer(answer)


def _unsubscribing(pattern: str, packet_id: int) -> bytes:
    return mqtt5.UnsubscribePacket(packet_id, [pattern]).write()
