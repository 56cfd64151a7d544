"""A client's session at an MQTT 5 broker, which outlasts its connections: unacknowledged messages are sent again.

In: messages to publish, and filters. Out: messages, as packets of the codec (mqtt5, the extra ``mqtt``). Bytes belong
to :mod:`producers.nodes.mqtt.mqtt_connection`; the owner of the session decides when to reconnect, and handles
messages.

Messages published in one turn of the event loop are written at once. All leave in the order of publishing: at QoS 1, a
message waits until the broker accepts more (its receive maximum), and later messages wait behind it.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict, cast

import mqtt5
import structlog

from regraft.infra.process.handle_each import count_logged
from regraft.producers.nodes.mqtt.mqtt_connection import MqttConnection, ReceivedPacket
from regraft.producers.nodes.mqtt.mqtt_packets import PACKET_BYTES_MAX, Oversized, Unreadable
from regraft.producers.nodes.mqtt.topic_trials import TopicTrials

log = structlog.get_logger(__name__)

KEEP_ALIVE_S = 15  # A node that is busy for this long would lose QoS 0 messages.
WAITING_MAX = 20_000  # Messages waiting for a slow broker; further ones are dropped.
OWN_WAITING_MAX = 30_000  # With the node's notes, dropped last: without one a client loses more than a message.
BEHIND = 1_000  # Messages that wait because the broker takes fewer at once; said once for each connection.
TAKES_FEW = "let it take 1000 messages of QoS 1 at a time (Mosquitto: max_inflight_messages), or moves of clients fail"
WAITING_BYTES_MAX = 64 << 20
WRITE_BYTES_MAX = 256 << 10  # Handed to the socket at once.
EVERYTHING = "#"
IDS = 65_535  # Packet IDs in MQTT, so the most messages under way.
RECEIVE_MAX = IDS - 1  # Said, unlike the default: without it Mosquitto sends 20, and QoS 0 overtakes what waits.
FAILED = 0x80  # Reason codes from here on are failures.
DUP_FLAG = 0x08  # In the first byte of a message: it was sent before.
AWAY, SLOW, TOO_LARGE, REFUSED = "broker_away", "broker_slow", "payload_too_large", "broker_refused"
UNREADABLE = "message_unreadable"


def all_of() -> mqtt5.TopicFilter:
    """Return the only filter: of several that overlap, none could be ended without losing or repeating a message."""
    handling = mqtt5.RetainHandling.SEND_NEVER
    return mqtt5.TopicFilter(EVERYTHING, max_qos=mqtt5.QoS.AT_LEAST_ONCE, no_local=True, retain_handling=handling)


class RefusedError(ConnectionError):
    """The broker refused this client, or is not connected."""


class PublishFields(TypedDict, total=False):
    """A message's fields besides topic and payload, as the codec names them."""

    retain: bool
    payload_format_indicator: int
    message_expiry_interval: int | None
    content_type: str | None
    response_topic: str | None
    correlation_data: bytes | None
    user_properties: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class MqttLogin:
    """As whom to connect, and how. ``session_s`` is how long the broker keeps the session without a connection.

    ``is_resumed`` continues the session of a former incarnation; ``receive_max`` is how many unacknowledged messages
    the broker may send; ``packet_bytes_max`` is the longest packet that is accepted.
    """

    client_id: str
    session_s: int
    packet_bytes_max: int
    is_resumed: bool = False
    receive_max: int = IDS
    user: str = ""
    password: str = ""
    tls: ssl.SSLContext | None = None

    def connect_packet(self, *, is_first: bool) -> mqtt5.ConnectPacket:
        """Return the packet that opens a connection."""
        return mqtt5.ConnectPacket(
            self.client_id,
            username=self.user or None,
            password=self.password.encode() if self.user else None,
            clean_start=is_first and not self.is_resumed,
            keep_alive=KEEP_ALIVE_S,
            session_expiry_interval=self.session_s,
            receive_max=min(self.receive_max, RECEIVE_MAX),
        )


class MqttSession:
    """The session. ``on_message`` returns True if the broker may forget a message at once; any other QoS 1 message is
    acknowledged later, by its packet ID. ``counts`` counts dropped messages by reason."""

    def __init__(
        self, login: MqttLogin, on_message: Callable[[mqtt5.PublishPacket], bool], counts: Counter[str]
    ) -> None:
        self.counts = counts
        self._login, self._on_message = login, on_message
        self._is_first = True
        self._connection: MqttConnection | None = None  # Set once the broker has accepted us.
        self._answer: asyncio.Future[ReceivedPacket] | None = None
        self._closed: asyncio.Future[str] | None = None
        self._queue: deque[tuple[int, bytes]] = deque()  # Packet IDs and bytes to write; ID 0 is QoS 0.
        self._kept: dict[int, bytes] = {}  # Unacknowledged messages of QoS 1, in the order of publishing.
        self._under_way: set[int] = set()  # Those written to this connection, or the last one.
        self._waiting_bytes = self._last_id = 0
        self._answers: list[bytes] = []
        self._is_flush_due = self._is_behind = False
        self._limits = mqtt5.ConnAckPacket()
        self._trials = TopicTrials()
        self._tried: dict[int, str] = {}  # Packet IDs of messages whose answers these wait for.
        self._reasons: set[str] = set()  # Why the broker has refused messages.

    # --- the connection ----------------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """Return True if the broker has accepted us and is connected."""
        return self._connection is not None

    @property
    def keeps_retained(self) -> bool:
        """Return True if the broker retains messages."""
        return self._limits.retain_available

    async def connect(self, host: str, port: int) -> bool:
        """Connect; return True if the broker still has the session. Raises OSError if it is away or refuses us."""
        login, loop = self._login, asyncio.get_running_loop()
        self._closed = loop.create_future()

        def new_connection() -> MqttConnection:
            return MqttConnection(self._take, self._flush, self._note_lost, login.packet_bytes_max)

        _, connection = await loop.create_connection(new_connection, host, port, ssl=login.tls)
        try:
            connect = login.connect_packet(is_first=self._is_first)
            answer = cast(mqtt5.ConnAckPacket, await self._ask(connection, connect.write()))
        except BaseException:
            connection.lose("not accepted in time")
            raise
        if answer.reason_code.value >= FAILED:
            connection.lose("refused")
            raise RefusedError(f"refused: {answer.reason_code.name} {answer.reason_str or ''}".rstrip())
        return answer.session_present

    async def subscribe(self, filters: list[mqtt5.TopicFilter]) -> list[mqtt5.SubAckReasonCode]:
        """Subscribe; return the broker's reason code for each filter. Raises OSError if the broker is away."""
        if self._connection is None:
            raise RefusedError("the broker is away")
        packet = mqtt5.SubscribePacket(self._new_id(), filters)
        return cast(mqtt5.SubAckPacket, await self._ask(self._connection, packet.write())).reason_codes

    def unsubscribe(self, topic_filter: str) -> None:
        """Unsubscribe without waiting for the answer."""
        if self._connection is not None:
            self._connection.write(mqtt5.UnsubscribePacket(self._new_id(), [topic_filter]).write())

    async def lost(self) -> str:
        """Wait until the connection has ended; return why."""
        return "never connected" if self._closed is None else await self._closed

    def cut(self, reason: str) -> None:
        """End the connection at once, but not the session."""
        if self._connection is not None:
            self._connection.lose(reason)

    async def close(self, session_s: int) -> None:
        """End the connection; the broker keeps the session for ``session_s``."""
        self._flush()
        if self._connection is not None:
            await self._connection.close(mqtt5.DisconnectPacket(session_expiry_interval=session_s))

    async def _ask(self, connection: MqttConnection, question: bytes) -> ReceivedPacket:
        self._answer = asyncio.get_running_loop().create_future()
        connection.write(question)
        return await self._answer

    def _begin(self, connection: MqttConnection, answer: mqtt5.ConnAckPacket) -> None:
        """Continue over a new connection: unacknowledged messages go first."""
        self._connection, self._limits, self._is_first = connection, answer, False
        self._is_behind = False
        connection.keep_alive(min(answer.server_keep_alive or KEEP_ALIVE_S, KEEP_ALIVE_S))
        for packet_id, data in list(self._kept.items()):
            if len(data) > (answer.max_packet_size or PACKET_BYTES_MAX):
                self._forget(packet_id)
                self.counts[TOO_LARGE] += 1
            elif answer.session_present and packet_id in self._under_way:
                self._kept[packet_id] = bytes((data[0] | DUP_FLAG,)) + data[1:]
        self._queue = deque(self._kept.items())
        self._under_way.clear()
        self._reasons.clear()
        self._flush_soon()

    def _note_lost(self, connection: MqttConnection, reason: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(RefusedError(reason))
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(reason)
        if connection is self._connection:
            self._connection = None
            self._answers.clear()
            for packet_id, data in self._queue:
                if not packet_id:
                    self.counts[AWAY] += 1
                    self._waiting_bytes -= len(data)
            self._queue.clear()
            for packet_id in list(self._tried):  # Messages of QoS 0, which do not come again.
                self.counts[AWAY] += packet_id not in self._under_way
                self._forget(packet_id)

    # --- received ----------------------------------------------------------------------------------------------------

    def _take(self, connection: MqttConnection, packet: ReceivedPacket) -> None:
        match packet:
            case mqtt5.PublishPacket() if packet.topic and packet.qos.value < 2:
                self._take_message(packet)
            case mqtt5.PubAckPacket():
                self._note_acknowledged(packet)
            case Oversized(packet_id):
                self._skip(packet_id, TOO_LARGE, "it is too large to be carried")
            case Unreadable(packet_id, reason):
                self._skip(packet_id, UNREADABLE, reason)
            case mqtt5.ConnAckPacket() if self._connection is None and self._answer is not None:
                if packet.reason_code.value < FAILED:
                    self._begin(connection, packet)
                self._answer.set_result(packet)
            case mqtt5.UnsubAckPacket():
                pass
            case mqtt5.SubAckPacket() if self._answer is not None and not self._answer.done():
                self._answer.set_result(packet)
            case _:
                code = mqtt5.DisconnectReasonCode.PROTOCOL_ERROR
                connection.refuse(code, f"unexpected packet: {packet!r:.200}")

    def _take_message(self, packet: mqtt5.PublishPacket) -> None:
        """Handle a message; one that fails is not sent again, so that those behind it arrive."""
        packet_id = packet.packet_id or 0
        try:
            may_forget = self._on_message(packet)
        except Exception as error:
            self._skip(packet_id, UNREADABLE, repr(error))
            return
        if may_forget and packet_id:
            self.acknowledge(packet_id)

    def _skip(self, packet_id: int, what: str, reason: str) -> None:
        """Count a message that cannot be carried, and let the broker forget it."""
        client = self._login.client_id
        count_logged(self.counts, what, log.warning, "message_skipped", client=client, what=what, reason=reason)
        if packet_id:
            self.acknowledge(packet_id)

    def _note_acknowledged(self, packet: mqtt5.PubAckPacket) -> None:
        if packet.packet_id not in self._under_way:
            return
        self._under_way.discard(packet.packet_id)
        is_refused = packet.reason_code.value >= FAILED
        if topic := self._tried.pop(packet.packet_id, ""):
            self._trials.note(topic, is_refused=is_refused)
        self._forget(packet.packet_id)
        if is_refused:
            self.counts[REFUSED] += 1
            reason = packet.reason_code.name
            if reason not in self._reasons:
                self._reasons.add(reason)
                log.warning("message_refused", client=self._login.client_id, reason=reason, detail=packet.reason_str)
        if self._queue:
            self._flush_soon()

    def _forget(self, packet_id: int) -> None:
        self._waiting_bytes -= len(self._kept.pop(packet_id))
        self._tried.pop(packet_id, None)

    # --- sent --------------------------------------------------------------------------------------------------------

    def publish(self, topic: str, payload: bytes, qos: int, fields: PublishFields, *, is_own: bool = False) -> bool:
        """Queue a message; return False if the broker is away or slow, or the message is too large for it.

        One that ``is_own`` is a note of the node itself.

        Raises ValueError if MQTT cannot express the message.
        """
        if self._connection is None:
            self.counts[AWAY] += 1
            return False
        if not self._has_room(is_own=is_own):
            self.counts[SLOW] += 1
            return False
        if not self._limits.retain_available:
            fields = {**fields, "retain": False}
        is_trial = not qos and self._trials.is_due(topic, time.monotonic(), is_waiting=bool(self._kept))
        if (qos or is_trial) and self._limits.max_qos.value:
            packet_id = self._new_id()
            level = mqtt5.QoS.AT_LEAST_ONCE
            data = mqtt5.PublishPacket(topic, payload, qos=level, packet_id=packet_id, **fields).write()
        else:
            packet_id = 0
            data = mqtt5.PublishPacket(topic, payload, **fields).write()
        if len(data) > (self._limits.max_packet_size or PACKET_BYTES_MAX):
            self.counts[TOO_LARGE] += 1
            return False
        if packet_id:
            self._kept[packet_id] = data
        if packet_id and is_trial:
            self._tried[packet_id] = topic
        self._queue.append((packet_id, data))
        self._waiting_bytes += len(data)
        self._flush_soon()
        return True

    def _has_room(self, *, is_own: bool) -> bool:
        """Return True if one more message may wait; report if many do because the broker takes few at once."""
        receive_max = self._limits.receive_max
        if len(self._queue) >= BEHIND > receive_max and not self._is_behind:
            self._is_behind = True
            log.warning("broker_takes_few", client=self._login.client_id, receive_max=receive_max, way_out=TAKES_FEW)
        count = len(self._queue) + len(self._under_way)
        if is_own:
            return count < OWN_WAITING_MAX
        return count < WAITING_MAX and self._waiting_bytes < WAITING_BYTES_MAX

    def acknowledge(self, packet_id: int) -> None:
        """Acknowledge a message that the broker has sent over this connection."""
        if self._connection is not None:
            self._answers.append(mqtt5.PubAckPacket(packet_id).write())
            self._flush_soon()

    def _new_id(self) -> int:
        while True:  # Fewer than half of the IDs are taken.
            self._last_id = self._last_id % IDS + 1
            if self._last_id not in self._kept:
                return self._last_id

    def _flush_soon(self) -> None:
        """Write in the next turn of the event loop, all at once."""
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
        """Take as much from the queue as may be written at once."""
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
