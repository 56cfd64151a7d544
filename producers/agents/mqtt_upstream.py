"""One connection of an agent to an MQTT 5 broker, in the place of a client: its login, pings, requests and answers.

What messages mean belongs to :mod:`producers.agents.mqtt_client_side`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, cast

import mqtt5

from regraft.producers.agents.broker_address import OPEN_S_MAX, BrokerAddress, UpstreamError
from regraft.producers.agents.mqtt_frames import FAILED, FrameReader, with_id
from regraft.producers.agents.write_soon import SoonWriter
from regraft.producers.nodes.mqtt.mqtt_packets import MalformedError, read_packet

KEEP_ALIVE_S, PINGS = 30, 3
LEAVE_S_MAX = 5.0  # For answers to what the client has published here before.
IDS = 65_535
WAITING_MAX = 100  # Messages that wait for the broker's answers to earlier ones; then the client waits.
ENDED_BY_CLIENT = frozenset({0x81, 0x82, 0x87, 0x8E, 0x90, 0x93, 0x94, 0x95, 0x97, 0x98, 0x99, 0x9A, 0x9B})
Answer = mqtt5.PubAckPacket | mqtt5.PubRecPacket | mqtt5.PubCompPacket | mqtt5.SubAckPacket | mqtt5.UnsubAckPacket
OnAnswer = Callable[[Answer | None], bool]  # None: there will be none. Returns True if nothing more is to come.


class UpstreamOwner(Protocol):
    """The session that a connection belongs to."""

    def take_packets(self, upstream: MqttUpstream, packets: Sequence[mqtt5.Packet]) -> None:
        """Handle what the broker sends, except answers."""

    def lose_upstream(self, upstream: MqttUpstream, reason: str) -> None:
        """Note that the connection has ended, unasked."""

    def take_refusal(self, upstream: MqttUpstream, packet: mqtt5.DisconnectPacket) -> None:
        """Note that the broker has ended the connection for what the client does."""

    def hold_back(self, upstream: MqttUpstream, *, is_full: bool) -> None:
        """Note that the broker is slow, or no longer is."""


@dataclass(slots=True)
class Published:
    """A message of QoS 1 or 2 to which the broker has not answered; ``is_own`` if it is the agent's."""

    frame: bytes
    on_answer: OnAnswer
    is_own: bool


class MqttUpstream(asyncio.Protocol):
    """One connection. ``facts`` is the broker's CONNACK."""

    def __init__(self, address: BrokerAddress, owner: UpstreamOwner) -> None:
        self.broker, self._address, self._owner = address.broker, address, owner
        self.facts = mqtt5.ConnAckPacket()
        self.is_ready = self.is_closing = self.is_leaving = False
        self.transport: asyncio.Transport | None = None
        self._reader = FrameReader()
        self._connack: asyncio.Future[mqtt5.ConnAckPacket | None] = asyncio.get_running_loop().create_future()
        self._asked: dict[int, OnAnswer] = {}  # By packet identifier.
        self._published: dict[int, Published] = {}
        self._waiting: deque[tuple[bytes, OnAnswer | None, bool]] = deque()
        self._last_id = 0
        self._is_paused = self._is_held = False
        self._pinging: asyncio.TimerHandle | None = None
        self._unanswered = 0
        self._writer = SoonWriter(self._write_now)

    # --- opening -----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect; raise UpstreamError if that fails."""
        address, loop = self._address, asyncio.get_running_loop()
        place = f"{self.broker} at {address.host}:{address.port}"
        name = address.host if address.tls is not None else None
        try:
            async with asyncio.timeout(OPEN_S_MAX):
                await loop.create_connection(
                    lambda: self, address.host, address.port, ssl=address.tls, server_hostname=name
                )
        except (OSError, TimeoutError) as error:
            self.abort()
            raise UpstreamError(f"{place}: {error or 'no answer'}") from error

    async def introduce(self, connect: mqtt5.ConnectPacket) -> mqtt5.ConnAckPacket:
        """Send a CONNECT; return the answer, which may be a refusal; raise UpstreamError if there is none."""
        self.write(connect.write())
        facts = None
        with suppress(TimeoutError):
            async with asyncio.timeout(OPEN_S_MAX):
                facts = await self._connack
        if facts is None:
            self.abort()
            raise UpstreamError(f"{self.broker} does not answer a CONNECT of MQTT 5")
        self.facts = facts
        if self.facts.reason_code.value < FAILED:
            self.is_ready = True
            self._ping()
        return self.facts

    def _ping(self) -> None:
        """Let the broker answer at least ``PINGS`` times within the keep-alive; it may want a shorter one."""
        keep_alive_s = min(KEEP_ALIVE_S, self.facts.server_keep_alive or KEEP_ALIVE_S)
        if self._unanswered >= PINGS:
            self._end(f"no data for {keep_alive_s} s")
            return
        # While the client does not read, neither does the agent: an answer may be there.
        is_read = self.transport is not None and self.transport.is_reading()
        self._unanswered = self._unanswered + 1 if is_read else 0
        self.write(mqtt5.PingReqPacket().write())
        self._pinging = asyncio.get_running_loop().call_later(keep_alive_s / PINGS, self._ping)

    # --- the socket --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way to write."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Pass on complete packets; end the connection if they are none of a broker."""
        self._unanswered = 0
        packets: list[mqtt5.Packet] = []
        try:
            for frame in self._reader.feed(data):
                packet = read_packet(memoryview(frame))
                if not self._handle(packet):
                    packets.append(packet)
        except MalformedError as error:
            self._end(f"{self.broker} sent what no MQTT broker sends: {error}")
            return
        if packets:
            self._owner.take_packets(self, packets)

    def _handle(self, packet: mqtt5.Packet) -> bool:
        """Return True for a packet that concerns this connection alone."""
        match packet:
            case mqtt5.PublishPacket() | mqtt5.PubRelPacket():
                return False
            case mqtt5.PubAckPacket() | mqtt5.PubRecPacket() | mqtt5.PubCompPacket():
                self._note_answer(packet)
            case mqtt5.SubAckPacket() | mqtt5.UnsubAckPacket():
                on_answer = self._asked.pop(packet.packet_id, None)
                if on_answer is not None:
                    on_answer(packet)
            case mqtt5.ConnAckPacket():
                if not self._connack.done():
                    self._connack.set_result(packet)
            case mqtt5.DisconnectPacket():
                code = packet.reason_code
                if code.value in ENDED_BY_CLIENT and self.is_ready and not self.is_closing:
                    self._owner.take_refusal(self, packet)
                self._end(f"ended by the broker: {code.name} {packet.reason_str or ''}".rstrip())
            case mqtt5.PingRespPacket():
                pass
            case _:
                raise MalformedError(f"{type(packet).__name__} is no packet of a broker")
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection unless it was asked for."""
        self._end(str(exc or "closed by the broker"))

    def pause_writing(self) -> None:
        """Report that the broker is slow."""
        self._is_paused = True
        self._hold_if_full()

    def resume_writing(self) -> None:
        """Report that it is no longer."""
        self._is_paused = False
        self._hold_if_full()

    def _hold_if_full(self) -> None:
        is_full = self._is_paused or len(self._waiting) >= WAITING_MAX
        if is_full != self._is_held:
            self._is_held = is_full
            self._owner.hold_back(self, is_full=is_full)

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._writer.write(data)

    def _write_now(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    # --- asking ------------------------------------------------------------------------------------------------------

    def _new_id(self) -> int:
        while True:  # At most half of them are taken.
            self._last_id = self._last_id % IDS + 1
            if self._last_id not in self._asked and self._last_id not in self._published:
                return self._last_id

    def ask(self, packet_of: Callable[[int], bytes], on_answer: OnAnswer) -> None:
        """Send SUBSCRIBE or UNSUBSCRIBE with a new packet identifier."""
        if self.is_closing:
            on_answer(None)
            return
        packet_id = self._new_id()
        self._asked[packet_id] = on_answer
        self.write(packet_of(packet_id))

    def publish(self, frame: bytes, on_answer: OnAnswer | None = None, *, is_own: bool = False) -> None:
        """Send a PUBLISH of MQTT 5, behind earlier ones; ``on_answer`` is needed unless its QoS is 0."""
        if self.is_closing and on_answer is not None:
            on_answer(None)
        elif self._waiting or (on_answer is not None and len(self._published) >= self.facts.receive_max):
            self._waiting.append((frame, on_answer, is_own))
            self._hold_if_full()
        else:
            self._send(frame, on_answer, is_own)

    def _send(self, frame: bytes, on_answer: OnAnswer | None, is_own: bool) -> None:
        if on_answer is not None:
            packet_id = self._new_id()
            self._published[packet_id] = Published(frame, on_answer, is_own)
            frame = with_id(frame, packet_id)
        self.write(frame)

    def _note_answer(self, packet: mqtt5.PubAckPacket | mqtt5.PubRecPacket | mqtt5.PubCompPacket) -> None:
        published = self._published.get(packet.packet_id)
        if published is None or not published.on_answer(packet):
            return
        del self._published[packet.packet_id]
        while self._waiting and (self._waiting[0][1] is None or len(self._published) < self.facts.receive_max):
            self._send(*self._waiting.popleft())
        self._hold_if_full()
        if self.is_leaving and not self._owes_answers:
            self.leave()

    def id_of(self, on_answer: OnAnswer) -> int:
        """Return the packet identifier of a message that waits for an answer, 0 if there is none."""
        return next((each for each, published in self._published.items() if published.on_answer is on_answer), 0)

    def acknowledge(self, packet: mqtt5.PublishPacket) -> None:
        """Take a message of QoS 1 over from the broker."""
        if packet.qos.value == 1:
            self.write(mqtt5.PubAckPacket(packet.packet_id or 0).write())

    def take_unanswered(self) -> list[tuple[bytes, OnAnswer | None]]:
        """Return, and forget, what the client has published without an answer, in order."""
        sent = [
            (with_id(each.frame, 0, is_again=True), each.on_answer)
            for each in self._published.values()
            if not each.is_own
        ]
        unsent = [(frame, on_answer) for frame, on_answer, is_own in self._waiting if not is_own]
        self._published.clear()
        self._waiting.clear()
        return [*sent, *unsent]

    # --- the end -----------------------------------------------------------------------------------------------------

    def _end(self, reason: str) -> None:
        if self.is_closing:
            return
        was_ready = self.is_ready
        self.abort()
        if was_ready:
            self._owner.lose_upstream(self, f"{self.broker}: {reason}")

    @property
    def _owes_answers(self) -> bool:
        return any(not each.is_own for each in self._published.values())

    def close(self) -> None:
        """Leave the broker, once it has answered what the client has published, or after ``LEAVE_S_MAX``."""
        if self.is_closing or self.is_leaving:
            return
        if not self.is_ready or not self._owes_answers:
            self.leave()
            return
        self.is_leaving = True
        asyncio.get_running_loop().call_later(LEAVE_S_MAX, self._end, "it does not answer")

    def leave(self) -> None:
        """Leave the broker at once, without a will; what was written is sent."""
        if self.is_ready:
            self.write(mqtt5.DisconnectPacket().write())
        self.abort()

    def abort(self) -> None:
        """End the connection without a word: the broker then publishes the client's will. What was written is sent."""
        if self.is_closing:
            return
        self.is_closing = True
        self._writer.flush()
        if self._pinging is not None:
            self._pinging.cancel()
        if self.transport is not None:
            self.transport.close()
        if not self._connack.done():
            self._connack.set_result(None)
        asked, self._asked = self._asked, {}
        for on_answer in asked.values():
            on_answer(None)
