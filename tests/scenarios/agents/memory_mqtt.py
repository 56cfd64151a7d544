"""An MQTT broker in memory: what clients, agents and a node see of a Mosquitto, as far as Regraft uses it.

In: packets of MQTT 3.1.1 and 5. Out: packets for them, and the log, as messages and as a file. It handles at once, and
in order, what arrives, as a Mosquitto does: it has one thread. Subscriptions of a client of MQTT 5 that overlap get a
copy each. At QoS 1 no more is under way to a client than it takes; what it is sent at QoS 0 overtakes what waits.
"""

from __future__ import annotations

import asyncio
import io
from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import mqtt5

from regraft.producers.agents.mqtt_deliveries import with_fields
from regraft.producers.agents.mqtt_frames import (
    MQTT_5,
    MQTT_311,
    FrameReader,
    as_mqtt311,
    connect_of,
    packet_of,
    version_of,
    with_id,
)
from tests.scenarios.agents.wires import Wires

MQTT_PORT = 1883
RECEIVE_MAX = 20  # What a Mosquitto takes at once from a client, and sends to one that does not say how much it takes.
UNSAID = 65_535
OF_NODES, FOR_AGENTS, LOG = "regraft-", "_REGRAFT/", "$SYS/broker/log/"
NOT_AUTHORIZED = mqtt5.ConnAckReasonCode.NOT_AUTHORIZED
TAKEN_OVER = mqtt5.DisconnectReasonCode.SESSION_TAKEN_OVER


@lru_cache(maxsize=10_000)
def matches(pattern: str, topic: str) -> bool:
    """Return True if a topic matches a filter."""
    wanted, levels = pattern.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] != levels[0]:
        return False
    for place, level in enumerate(wanted):
        if level == "#":
            return True
        if place >= len(levels) or level not in ("+", levels[place]):
            return False
    return len(wanted) == len(levels)


@dataclass(frozen=True)
class Wanted:
    """A subscription; ``id`` is 0 without an identifier."""

    qos: int
    id: int = 0
    is_foreign_only: bool = False


@dataclass
class BrokerSession:
    """What the broker knows of a client; it outlasts the connection by ``expiry_s``."""

    client_id: str
    version: int
    receive_max: int
    expiry_s: float
    subscriptions: dict[str, Wanted] = field(default_factory=dict)
    under_way: dict[int, bytes] = field(default_factory=dict)  # Not acknowledged: packet identifier -> packet.
    waiting: deque[mqtt5.PublishPacket] = field(default_factory=deque)
    left_s: float = 0.0
    connection: MqttConnectionEnd | None = None
    last_id: int = 0

    def hand_over(self, packet: mqtt5.PublishPacket) -> None:
        """Send a message, or let it wait until the client takes more; one of QoS 0 waits for nothing."""
        if not packet.qos.value:
            if self.connection is not None:
                self.connection.write(packet)
        elif self.connection is not None or self.expiry_s:
            self.waiting.append(packet)
            self.send_waiting()

    def send_waiting(self) -> None:
        """Send what the client takes by now."""
        while self.waiting and self.connection is not None and len(self.under_way) < self.receive_max:
            self.last_id += 1
            numbered = _renewed(self.waiting.popleft(), packet_id=self.last_id)
            self.under_way[self.last_id] = numbered.write()
            self.connection.write(numbered)

    def send_again(self) -> None:
        """Send over a new connection what has not been acknowledged."""
        for packet_id, frame in self.under_way.items():
            assert self.connection is not None
            self.connection.end.write(with_id(frame, packet_id, is_again=True))
        self.send_waiting()


class MqttConnectionEnd(asyncio.Protocol):
    """The broker's end of a connection."""

    def __init__(self, server: MemoryMqtt) -> None:
        self.server = server
        self.end: Any = None
        self.session: BrokerSession | None = None
        self._reader, self._version, self._is_over = FrameReader(), MQTT_311, False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.end = transport
        self.server.connections.append(self)
        self.server.log("N", f"New connection from 127.0.0.1:1 on port {MQTT_PORT}.")

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave("closed its connection.")

    def leave(self, how: str) -> None:
        """Note the end of the connection, and with it that of a session that does not outlast it."""
        if self._is_over:
            return
        self._is_over = True
        if self in self.server.connections:
            self.server.connections.remove(self)
        session, self.session = self.session, None
        if session is not None:
            session.connection, session.left_s = None, self.server.now_s
            if not session.expiry_s:
                self.server.sessions.pop(session.client_id, None)
            self.server.log("N", f"Client {session.client_id} {how}")

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            if self._is_over:
                return
            if self.session is None:
                self._take_connect(frame)
            else:
                self._take(packet_of(frame, self._version), self.session)

    def write(self, packet: mqtt5.Packet) -> None:
        """Send a packet."""
        self.end.write(packet.write() if self._version == MQTT_5 else as_mqtt311(packet))

    def close(self, packet: mqtt5.Packet | None, how: str) -> None:
        """End the connection behind a last packet."""
        if packet is not None:
            self.write(packet)
        self.leave(how)
        self.end.close()

    def _take_connect(self, frame: bytes) -> None:
        self._version = version_of(frame)
        connect = connect_of(frame, self._version)
        if self.server.refuses_logins and not connect.client_id.startswith(OF_NODES):
            self.close(mqtt5.ConnAckPacket(reason_code=NOT_AUTHORIZED), "")
            return
        session, is_old = self.server.session_for(connect, self._version)
        clean, version = int(connect.clean_start), 5 if self._version == MQTT_5 else 2
        name = f"{connect.client_id} (p{version}, c{clean}, k{connect.keep_alive})"
        self.server.log("N", f"New client connected from 127.0.0.1:1 as {name}.")
        self.session, session.connection = session, self  # From here on: what waits follows what is sent again.
        self.write(mqtt5.ConnAckPacket(session_present=is_old, receive_max=RECEIVE_MAX))
        session.send_again()

    def _take(self, packet: mqtt5.Packet, session: BrokerSession) -> None:
        match packet:
            case mqtt5.PublishPacket():
                if packet.qos.value:
                    self.write(mqtt5.PubAckPacket(packet.packet_id or 0))
                self.server.publish(packet, session)
            case mqtt5.PubAckPacket():
                session.under_way.pop(packet.packet_id, None)
                session.send_waiting()
            case mqtt5.SubscribePacket():
                self.write(mqtt5.SubAckPacket(packet.packet_id, self._subscribe(packet, session)))
            case mqtt5.UnsubscribePacket():
                codes = [self._unsubscribe(each, session) for each in packet.patterns]
                self.write(mqtt5.UnsubAckPacket(packet.packet_id, codes))
            case mqtt5.PingReqPacket():
                self.write(mqtt5.PingRespPacket())
            case mqtt5.DisconnectPacket():
                self.close(None, "disconnected.")
            case _:
                raise AssertionError(f"a broker takes no {packet!r}")

    def _subscribe(self, packet: mqtt5.SubscribePacket, session: BrokerSession) -> list[mqtt5.SubAckReasonCode]:
        codes = []
        for each in packet.topic_filters:
            if self.server.refuses_notes and each.pattern.startswith(FOR_AGENTS) and not self._is_node:
                codes.append(mqtt5.SubAckReasonCode.NOT_AUTHORIZED)
                continue
            qos = min(each.max_qos.value, 1)
            session.subscriptions[each.pattern] = Wanted(qos, packet.subscription_id or 0, each.no_local)
            self.server.log("M/subscribe", f"{session.client_id} {qos} {each.pattern}")
            codes.append(mqtt5.SubAckReasonCode(qos))
        return codes

    @property
    def _is_node(self) -> bool:
        return self.session is not None and self.session.client_id.startswith(OF_NODES)

    def _unsubscribe(self, pattern: str, session: BrokerSession) -> mqtt5.UnsubAckReasonCode:
        if session.subscriptions.pop(pattern, None) is None:
            return mqtt5.UnsubAckReasonCode.NO_SUBSCRIPTION_EXISTED
        self.server.log("M/unsubscribe", f"{session.client_id} {pattern}")
        return mqtt5.UnsubAckReasonCode.SUCCESS


class MemoryMqtt:
    """One broker. ``refuses_notes``: it lets clients log in, but not agents reach nodes."""

    def __init__(self, name: str, wires: Wires) -> None:
        self.name, self._wires = name, wires
        self.connections: list[MqttConnectionEnd] = []
        self.sessions: dict[str, BrokerSession] = {}
        self.refuses_logins = self.refuses_notes = False
        self.has_races = False  # It has none.
        self.log_file = LogFile()
        self._listener: Any = None
        self.start()

    def start(self) -> None:
        """Accept connections."""
        self.log("N", "mosquitto version 2.0.22 starting")
        self._listener = self._wires.listen(partial(MqttConnectionEnd, self), self.name, MQTT_PORT)

    @property
    def now_s(self) -> float:
        """The time."""
        return self._wires.loop.time()

    @property
    def is_down(self) -> bool:
        """Return True while the broker is stopped."""
        return self._listener is None

    def stop(self) -> None:
        """Die: some of what has been sent may still arrive. It has stored no session."""
        self._listener.close()
        self._listener = None
        gone, self.connections = self.connections, []
        self.sessions.clear()
        for connection in gone:
            connection.session, connection._is_over = None, True
            connection.end.abort()

    def cut_node(self) -> bool:
        """End the connection of the broker's node, but not its session; return False if there is none."""
        for session in self.sessions.values():
            if session.client_id.startswith(OF_NODES) and session.connection is not None:
                session.connection.close(None, "closed its connection.")
                return True
        return False

    def session_for(self, connect: mqtt5.ConnectPacket, version: int) -> tuple[BrokerSession, bool]:
        """Return the session of a client that has connected, and whether it is an old one; another ends for it."""
        old = self.sessions.get(connect.client_id)
        if old is not None and old.connection is not None:
            is_told = old.version == MQTT_5
            old.connection.close(
                mqtt5.DisconnectPacket(reason_code=TAKEN_OVER) if is_told else None, "disconnected: session taken over."
            )
            old = self.sessions.get(connect.client_id)
        is_over = old is not None and self.now_s - old.left_s > old.expiry_s
        expiry_s = float(connect.session_expiry_interval or 0)
        if old is not None and not connect.clean_start and not is_over:
            old.receive_max, old.expiry_s = taken_by(connect), expiry_s
            return old, True
        session = BrokerSession(connect.client_id, version, taken_by(connect), expiry_s)
        self.sessions[connect.client_id] = session
        return session, False

    def log(self, kind: str, text: str) -> None:
        """Write a line of the log."""
        line = f"{self.now_s:.0f}: {text}".encode()
        self.log_file.lines += line + b"\n"
        packet = mqtt5.PublishPacket(f"{LOG}{kind}", line, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=1)
        self.publish(packet, None)

    def publish(self, packet: mqtt5.PublishPacket, source: BrokerSession | None) -> None:
        """Deliver what a client has published."""
        for session in list(self.sessions.values()):
            wanted = [
                each for pattern, each in session.subscriptions.items()
                if matches(pattern, packet.topic) and not (each.is_foreign_only and session is source)
            ]  # fmt: skip
            if session.version == MQTT_311 and wanted:
                wanted = [max(wanted, key=lambda each: each.qos)]
            for each in wanted:
                qos = min(packet.qos, mqtt5.QoS(each.qos), key=lambda level: level.value)
                ids = [each.id] if each.id else None
                session.hand_over(with_fields(packet, qos=qos, packet_id=1 if qos.value else None, ids=ids))


def taken_by(connect: mqtt5.ConnectPacket) -> int:
    """Return how many messages of QoS 1 may be under way to a client."""
    return RECEIVE_MAX if connect.receive_max == UNSAID else connect.receive_max


def _renewed(packet: mqtt5.PublishPacket, packet_id: int) -> mqtt5.PublishPacket:
    return with_fields(packet, packet_id=packet_id, ids=list(packet.subscription_ids) or None)


class LogFile:
    """The log as a file, which the node reads."""

    def __init__(self) -> None:
        self.lines = b""

    def open(self, _mode: str) -> io.BytesIO:
        """Open it."""
        return io.BytesIO(self.lines)
