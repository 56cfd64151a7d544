"""One client of MQTT at its agent: its connection, its login, and what it sends.

In: packets of the client. Out: packets for brokers. What the client asks for belongs to
:mod:`producers.agents.mqtt_requests`, what it is handed to :mod:`producers.agents.mqtt_deliveries`, brokers to
:mod:`producers.agents.mqtt_broker_side`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

import mqtt5

from regraft.producers.agents.broker_address import BrokerAddress, UpstreamError
from regraft.producers.agents.mqtt_broker_side import MqttBrokerSide
from regraft.producers.agents.mqtt_client_facts import NOT_FOR_CLIENTS
from regraft.producers.agents.mqtt_frames import (
    FAILED,
    MQTT_5,
    PUBLISH,
    FrameReader,
    as_mqtt5,
    connect_of,
    packet_of,
    version_of,
)
from regraft.producers.agents.mqtt_requests import MqttRequests
from regraft.producers.agents.mqtt_upstream import MqttUpstream
from regraft.producers.agents.raw_pipe import RawPipe
from regraft.producers.nodes.mqtt.mqtt_packets import MalformedError
from regraft.schemas.stay_reasons import StayReason

LOGIN_S_MAX = 10.0
HELD_BYTES_MAX = 1 << 20  # Of a client that waits; then the agent does not read from it.
URGENT = frozenset({4, 5, 6, 7, 12})  # Answers and pings: a client that waits gives them, too.
TAKEN_OVER = mqtt5.DisconnectReasonCode.SESSION_TAKEN_OVER


class MqttSession(MqttBrokerSide):
    """One client of MQTT."""

    def __init__(
        self, name: str, brokers: Mapping[str, BrokerAddress], home: str, counts: Counter[str],
        on_end: Callable[[Any], None], tls: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name, brokers, home, counts, on_end, tls)
        self.requests = MqttRequests(self)
        self._reader = FrameReader()
        self._held: deque[bytes] = deque()
        self._held_bytes = 0
        self._raw: RawPipe | None = None
        self._has_connected = self._has_left = False
        self._heard_s = 0.0

    # --- the client's socket -----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Wait for the client's CONNECT, for ``LOGIN_S_MAX``."""
        self._heard_s = asyncio.get_running_loop().time()
        self._end_if_silent(LOGIN_S_MAX)

    def _end_if_silent(self, s_max: float) -> None:
        """End the client if it says nothing for ``s_max``, its keep-alive and a half once it has logged in.

        While the agent does not read what it says, it may be saying something.
        """
        loop = asyncio.get_running_loop()
        if self._transport is not None and not self._transport.is_reading():
            self._heard_s = loop.time()
        if self._has_connected:
            s_max = 1.5 * self.client.connect.keep_alive
        silent_s = loop.time() - self._heard_s
        if self.is_over or self._raw is not None or not s_max:
            return
        if silent_s > s_max:
            self.end(f"it has said nothing for {silent_s:.0f} s")
            return
        loop.call_later(max(s_max - silent_s, 0.0) + 0.1, self._end_if_silent, s_max)

    def data_received(self, data: bytes) -> None:
        """Handle what the client sends, unless it has to wait."""
        self._heard_s = asyncio.get_running_loop().time()
        if self._pass_raw(data):
            return
        frames = self._reader.feed(data)
        try:
            for frame in frames:
                self._take_frame(frame)
                if self.is_over or self._raw is not None:
                    break
        except (MalformedError, IndexError) as error:
            self._refuse(f"it sent what no client sends: {error}")
        frames.close()
        if self._raw is not None:
            self._raw.write(self._reader.take_rest())

    def broker_transports(self) -> list[asyncio.Transport]:
        """Return the connections by which messages for the client come."""
        raw = self._raw.transport if self._raw is not None else None
        return [*super().broker_transports(), *([raw] if raw is not None else [])]

    def _pass_raw(self, data: bytes) -> bool:
        if self._raw is not None:
            self._raw.write(data)
        return self._raw is not None

    def _refuse(self, reason: str) -> None:
        if self._has_connected and self.client.version == MQTT_5:
            code = mqtt5.DisconnectReasonCode.MALFORMED_PACKET
            self.write_packet(mqtt5.DisconnectPacket(reason_code=code))
        self.end(reason)

    def _take_frame(self, frame: bytes) -> None:
        if not self._has_connected:
            self._take_connect(frame)
        elif self._holds and frame[0] >> 4 not in URGENT:
            self._held.append(frame)
            self._held_bytes += len(frame)
            if self._held_bytes > HELD_BYTES_MAX and self._transport is not None:
                self._transport.pause_reading()
        else:
            self._handle(frame)

    def _handle(self, frame: bytes) -> None:
        packet = packet_of(frame, self.client.version)
        match packet:
            case mqtt5.PublishPacket():
                is_mqtt5 = self.client.version == MQTT_5
                if self.requests.publish(packet, frame if is_mqtt5 else as_mqtt5(frame)):
                    self._stand_in()
            case mqtt5.PubAckPacket() | mqtt5.PubRecPacket() | mqtt5.PubCompPacket():
                self.deliveries.take_answer(packet)
            case mqtt5.PubRelPacket():
                self.requests.release(packet)
            case mqtt5.SubscribePacket():
                self.requests.subscribe(packet)
            case mqtt5.UnsubscribePacket():
                self.requests.unsubscribe(packet)
                self._stand_in()
            case mqtt5.PingReqPacket():
                self.write_packet(mqtt5.PingRespPacket())
            case mqtt5.DisconnectPacket():
                self._has_left = packet.reason_code is mqtt5.DisconnectReasonCode.NORMAL_DISCONNECTION
                self.end("")
            case _:
                raise MalformedError(f"{type(packet).__name__} is no packet of a client that has logged in")

    def _stand_in(self) -> None:
        """Let plans move a client that only publishes."""
        stand_in = self.client.stand_in(self.homes.subscribing)
        if stand_in is not None:
            self.subscribe(self.homes.upstreams[self.homes.subscribing], stand_in)

    def hold(self, reason: str) -> None:
        """Let the client wait, until each reason for it is released; its answers and pings are still handled."""
        self._holds.add(reason)

    def release(self, reason: str) -> None:
        """Take back a reason for which the client waits."""
        self._holds.discard(reason)
        if reason == "reconnecting":
            self._publish_again()
        try:
            while self._held and not self._holds and not self.is_over:
                frame = self._held.popleft()
                self._held_bytes -= len(frame)
                self._handle(frame)
        except (MalformedError, IndexError) as error:
            self._refuse(f"it sent what no client sends: {error}")
        if self._held_bytes <= HELD_BYTES_MAX and self._transport is not None and not self.is_over:
            self._transport.resume_reading()

    # --- the login ---------------------------------------------------------------------------------------------------

    def _take_connect(self, frame: bytes) -> None:
        version = version_of(frame)
        self._has_connected = True
        reason: StayReason | None = StayReason.VERSION
        if version:
            reason = self.client.take_connect(connect_of(frame, version), version)
            self.deliveries.version, self.deliveries.receive_max = version, self.client.connect.receive_max
            self._end_if_silent(1.5 * self.client.connect.keep_alive)
        will = self.client.connect.will
        if will is not None and will.topic.startswith(NOT_FOR_CLIENTS):
            self.counts["own_subject"] += 1
            self.write_packet(mqtt5.ConnAckPacket(reason_code=mqtt5.ConnAckReasonCode.NOT_AUTHORIZED))
            self.end(f"its will is for agents: {will.topic[:80]}")
        elif reason is not None and self._transport is not None:
            self.stay(reason)
            self._raw = RawPipe(self._transport, self.end)
            self._raw.write(frame)
            self.run(self._open_raw(self._raw))
        else:
            self.hold("login")
            self.run(self._log_in_first())

    async def _open_raw(self, raw: RawPipe) -> None:
        """Connect a client that stays to its home alone."""
        try:
            await raw.open(self.homes.brokers[self.homes.home])
        except (OSError, TimeoutError) as error:
            self.end(f"{self.homes.home} cannot be reached: {error}")

    async def _log_in_first(self) -> None:
        """Log in at the client's home or, if it cannot be reached, at the next broker."""
        reasons = []
        for broker in self.homes.in_turn():
            upstream = self.new_upstream(self.homes.brokers[broker])
            try:
                await upstream.open()
                facts = await upstream.introduce(self.client.connect_packet(is_first=True))
            except UpstreamError as error:
                reasons.append(str(error))
                continue
            except asyncio.CancelledError:  # The client has left.
                upstream.abort()
                raise
            self.write_packet(self.client.connack_for(facts))
            if facts.reason_code.value >= FAILED:
                upstream.abort()
                self.end(f"login refused: {facts.reason_code.name}")
                return
            self.homes.begin(broker, upstream)
            self._begin_at(upstream, facts)
            return
        refused = mqtt5.ConnAckPacket(reason_code=mqtt5.ConnAckReasonCode.SERVER_UNAVAILABLE)
        self.write_packet(refused)
        self.end_unreached(reasons)

    def _begin_at(self, upstream: MqttUpstream, facts: mqtt5.ConnAckPacket) -> None:
        """Begin at the first broker; the client stays if nodes cannot reach the agent through it."""
        reason = self.client.take_connack(facts)
        if reason is not None:
            self.stay(reason)
        for other in list(self.present):
            if isinstance(other, MqttSession) and other is not self and other.client.id == self.client.id:
                other.give_way()
        if reason is None:
            for number, patterns in self._own_filters():
                self._ask_own(upstream, number, patterns, self._note_own)
        self.release("login")

    def give_way(self) -> None:
        """End a client of which another connection has logged in, as one broker would."""
        if self._raw is None:
            self.write_packet(mqtt5.DisconnectPacket(reason_code=TAKEN_OVER))
            self.end("another client has its identifier")

    # --- the end -----------------------------------------------------------------------------------------------------

    def leave_brokers(self) -> None:
        """End all connections; if the client has not said goodbye, the broker where it publishes sends its will."""
        if self._raw is not None:
            self._raw.close()
        home = self.homes.upstreams.get(self.homes.home)
        for frame in self._held:
            if home is not None and frame[0] >> 4 == PUBLISH and not frame[0] & 0b110:
                home.write(frame if self.client.version == MQTT_5 else as_mqtt5(frame))
        self._held.clear()
        for upstream in self.homes.upstreams.values():
            if upstream is home and not self._has_left and self.client.connect.will is not None:
                upstream.abort()
            else:
                upstream.leave()
