"""A client's session at an MQTT 5 broker, which outlasts its connections: what is not acknowledged is sent again.

In: messages to publish, and filters. Out: messages, as packets of the codec (mqtt5, the extra ``mqtt``). Bytes belong
to :mod:`producers.nodes.mqtt_connection`, when to connect again and what messages mean to whom has the session.

What is published in one turn of the loop is written at once. All of it leaves in the order in which it was published:
what is of QoS 1 waits until the broker takes more (its receive maximum), and what came after it waits, too.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict, cast

import mqtt5
import structlog

from regraft.producers.nodes.mqtt_connection import MqttConnection, Taken
from regraft.producers.nodes.mqtt_packets import PACKET_BYTES_MAX, Oversized

log = structlog.get_logger(__name__)

KEEP_ALIVE_S = 15  # A node that is busy for this long would lose QoS 0 messages.
WAITING_MAX = 20_000  # What waits for a broker that is slow; beyond it messages are dropped.
WAITING_BYTES_MAX = 64 << 20
WRITE_BYTES_MAX = 256 << 10  # Handed to a socket at once.
IDS = 65_535  # Numbers that MQTT has for messages under way.
FAILED = 0x80  # Reasons from here on are failures.
AGAIN_BIT = 0x08  # In the first byte of a message: it was sent before.
AWAY, SLOW, TOO_LARGE, REFUSED = "broker_away", "broker_slow", "payload_too_large", "broker_refused"


class RefusedError(ConnectionError):
    """The broker does not let this client in, or ended the connection before it did."""


class Beside(TypedDict, total=False):
    """What a message has beside topic and payload, as the codec names it."""

    retain: bool
    payload_format_indicator: int
    message_expiry_interval: int | None
    content_type: str | None
    response_topic: str | None
    correlation_data: bytes | None
    user_properties: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class MqttLogin:
    """Where the broker is, and who comes. ``session_s`` is how long it keeps the session while nobody is connected.

    ``is_resumed`` is whether a session of a former life is continued; ``receive_max`` are messages that the broker may
    send before the first of them is acknowledged; ``packet_bytes_max`` is the longest packet that is taken.
    """

    host: str
    port: int
    client_id: str
    session_s: int
    packet_bytes_max: int
    is_resumed: bool = False
    receive_max: int = IDS
    user: str = ""
    password: str = ""
    tls: ssl.SSLContext | None = None

    def connect_packet(self, *, is_first: bool) -> mqtt5.ConnectPacket:
        """Return how the client greets the broker."""
        return mqtt5.ConnectPacket(
            self.client_id,
            username=self.user or None,
            password=self.password.encode() if self.user else None,
            clean_start=is_first and not self.is_resumed,
            keep_alive=KEEP_ALIVE_S,
            session_expiry_interval=self.session_s,
            receive_max=self.receive_max,
        )


class MqttSession:
    """The session. ``on_message`` returns True for a message that the broker may forget at once; any other of QoS 1 is
    acknowledged by its number later. ``counts`` has what was dropped, by reason."""

    def __init__(
        self, login: MqttLogin, on_message: Callable[[mqtt5.PublishPacket], bool], counts: Counter[str]
    ) -> None:
        self.counts = counts
        self._login, self._on_message = login, on_message
        self._is_first = True
        self._connection: MqttConnection | None = None  # Once the broker has let us in.
        self._answer: asyncio.Future[Taken] | None = None
        self._over: asyncio.Future[str] | None = None
        self._queue: deque[tuple[int, bytes]] = deque()  # What is to be written; number 0 is of QoS 0.
        self._kept: dict[int, bytes] = {}  # What of QoS 1 is not acknowledged, in the order of publishing.
        self._under_way: set[int] = set()  # What of that was written to this connection, or the last one.
        self._waiting_bytes = self._last_id = 0
        self._answers: list[bytes] = []
        self._is_flush_due = False
        self._limits = mqtt5.ConnAckPacket()
        self._reasons: set[str] = set()  # For which the broker has refused messages.

    # --- the connection ----------------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """Return True if the broker has let us in and is there."""
        return self._connection is not None

    async def connect(self) -> bool:
        """Return True if the broker has the session still; raise OSError if it does not let us in."""
        login, loop = self._login, asyncio.get_running_loop()
        self._over = loop.create_future()

        def new_connection() -> MqttConnection:
            return MqttConnection(self._take, self._flush, self._note_lost, login.packet_bytes_max)

        _, connection = await loop.create_connection(new_connection, login.host, login.port, ssl=login.tls)
        try:
            connect = login.connect_packet(is_first=self._is_first)
            answer = cast(mqtt5.ConnAckPacket, await self._ask(connection, connect.write()))
        except BaseException:
            connection.lose("not let in in time")
            raise
        if answer.reason_code.value >= FAILED:
            connection.lose("refused")
            raise RefusedError(f"refused: {answer.reason_code.name} {answer.reason_str or ''}".rstrip())
        return answer.session_present

    async def subscribe(self, filters: list[mqtt5.TopicFilter]) -> list[mqtt5.SubAckReasonCode]:
        """Return what the broker says of each filter; raise OSError when it is away."""
        if self._connection is None:
            raise RefusedError("the broker is away")
        packet = mqtt5.SubscribePacket(self._new_id(), filters)
        return cast(mqtt5.SubAckPacket, await self._ask(self._connection, packet.write())).reason_codes

    async def lost(self) -> str:
        """Return why the connection has ended, once it has."""
        return "never connected" if self._over is None else await self._over

    def cut(self, reason: str) -> None:
        """End the connection at once, and not the session."""
        if self._connection is not None:
            self._connection.lose(reason)

    async def close(self, session_s: int) -> None:
        """End the connection, and let the broker keep the session for this long."""
        self._flush()
        if self._connection is not None:
            await self._connection.close(mqtt5.DisconnectPacket(session_expiry_interval=session_s))

    async def _ask(self, connection: MqttConnection, question: bytes) -> Taken:
        self._answer = asyncio.get_running_loop().create_future()
        connection.write(question)
        return await self._answer

    def _begin(self, connection: MqttConnection, answer: mqtt5.ConnAckPacket) -> None:
        """Continue over a connection: what is not acknowledged goes first."""
        self._connection, self._limits, self._is_first = connection, answer, False
        connection.keep_alive(min(answer.server_keep_alive or KEEP_ALIVE_S, KEEP_ALIVE_S))
        for packet_id, data in list(self._kept.items()):
            if len(data) > (answer.max_packet_size or PACKET_BYTES_MAX):
                self._forget(packet_id)
                self.counts[TOO_LARGE] += 1
            elif answer.session_present and packet_id in self._under_way:
                self._kept[packet_id] = bytes((data[0] | AGAIN_BIT,)) + data[1:]
        self._queue = deque(self._kept.items())
        self._under_way.clear()
        self._reasons.clear()
        self._flush_soon()

    def _note_lost(self, connection: MqttConnection, reason: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(RefusedError(reason))
        if self._over is not None and not self._over.done():
            self._over.set_result(reason)
        if connection is self._connection:
            self._connection = None
            self._answers.clear()
            for packet_id, data in self._queue:
                if not packet_id:
                    self.counts[AWAY] += 1
                    self._waiting_bytes -= len(data)
            self._queue.clear()

    # --- what comes --------------------------------------------------------------------------------------------------

    def _take(self, connection: MqttConnection, packet: Taken) -> None:
        match packet:
            case mqtt5.PublishPacket() if packet.topic and packet.qos.value < 2:
                if self._on_message(packet) and packet.packet_id:
                    self.acknowledge(packet.packet_id)
            case mqtt5.PubAckPacket():
                self._note_acknowledged(packet)
            case Oversized(packet_id):
                self.counts[TOO_LARGE] += 1
                if packet_id:
                    self.acknowledge(packet_id)
            case mqtt5.ConnAckPacket() if self._connection is None and self._answer is not None:
                if packet.reason_code.value < FAILED:
                    self._begin(connection, packet)
                self._answer.set_result(packet)
            case mqtt5.SubAckPacket() if self._answer is not None and not self._answer.done():
                self._answer.set_result(packet)
            case _:
                code = mqtt5.DisconnectReasonCode.PROTOCOL_ERROR
                connection.refuse(code, f"the broker sent what nobody asked for: {packet!r:.200}")

    def _note_acknowledged(self, packet: mqtt5.PubAckPacket) -> None:
        if packet.packet_id not in self._under_way:
            return
        self._under_way.discard(packet.packet_id)
        self._forget(packet.packet_id)
        if packet.reason_code.value >= FAILED:
            self.counts[REFUSED] += 1
            reason = packet.reason_code.name
            if reason not in self._reasons:
                self._reasons.add(reason)
                log.warning("message_refused", client=self._login.client_id, reason=reason, detail=packet.reason_str)
        if self._queue:
            self._flush_soon()

    def _forget(self, packet_id: int) -> None:
        self._waiting_bytes -= len(self._kept.pop(packet_id))

    # --- what goes ---------------------------------------------------------------------------------------------------

    def publish(self, topic: str, payload: bytes, qos: int, beside: Beside) -> bool:
        """Publish; False if the broker is away, slow, or takes none as large; raise ValueError for what MQTT lacks."""
        if self._connection is None:
            self.counts[AWAY] += 1
            return False
        if len(self._queue) + len(self._under_way) >= WAITING_MAX or self._waiting_bytes >= WAITING_BYTES_MAX:
            self.counts[SLOW] += 1
            return False
        if not self._limits.retain_available:
            beside = {**beside, "retain": False}
        if qos and self._limits.max_qos.value:
            packet_id = self._new_id()
            level = mqtt5.QoS.AT_LEAST_ONCE
            data = mqtt5.PublishPacket(topic, payload, qos=level, packet_id=packet_id, **beside).write()
        else:
            packet_id = 0
            data = mqtt5.PublishPacket(topic, payload, **beside).write()
        if len(data) > (self._limits.max_packet_size or PACKET_BYTES_MAX):
            self.counts[TOO_LARGE] += 1
            return False
        if packet_id:
            self._kept[packet_id] = data
        self._queue.append((packet_id, data))
        self._waiting_bytes += len(data)
        self._flush_soon()
        return True

    def acknowledge(self, packet_id: int) -> None:
        """Let the broker forget a message that it has sent over this connection."""
        if self._connection is not None:
            self._answers.append(mqtt5.PubAckPacket(packet_id).write())
            self._flush_soon()

    def _new_id(self) -> int:
        while True:  # Fewer than half of the numbers are taken.
            self._last_id = self._last_id % IDS + 1
            if self._last_id not in self._kept:
                return self._last_id

    def _flush_soon(self) -> None:
        """Write when the loop turns next, all at once."""
        if not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        connection = self._connection
        if connection is None:
            return
        ready, self._answers = [*self._answers, *self._next_ready(connection)], []
        while ready:
            connection.write(b"".join(ready))
            ready = self._next_ready(connection)

    def _next_ready(self, connection: MqttConnection) -> list[bytes]:
        """Take from what waits as much as may be written at once."""
        ready: list[bytes] = []
        size_bytes = 0
        while self._queue and size_bytes < WRITE_BYTES_MAX and not connection.is_paused:
            packet_id, data = self._queue[0]
            if packet_id and len(self._under_way) >= self._limits.receive_max:
                break
            self._queue.popleft()
            if packet_id:
                self._under_way.add(packet_id)
            else:
                self._waiting_bytes -= len(data)
            ready.append(data)
            size_bytes += len(data)
        return ready
