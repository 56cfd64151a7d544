"""Nodes, and the parts of connectors that read a broker's bytes, under hostile frames, lines, packets, logs and
properties.

In: a seed and a number of inputs. Out: how many were used and how many refused; the invariants are asserted here. No
call raises anything but the error that closes one connection, and what a node then reports can be read by all.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from pika import BasicProperties, frame

from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.scot.scot_slots import id_moves_between, region_link_names, slots_of
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.emulator.starting_point import core_of
from regraft.producers.nodes.amqp.amqp_address import AmqpPlace
from regraft.producers.nodes.amqp.amqp_connector import AmqpConnector
from regraft.producers.nodes.broker_node import BrokerNode
from regraft.producers.nodes.connectors.connector import ConnectorError, LocalMessage
from regraft.producers.nodes.connectors.subject_filters import filter_of
from regraft.producers.nodes.links.carried_messages import (
    CONTROL_TYPES,
    ControlBody,
    LinkError,
    NotificationBody,
    body_of,
    message_of,
)
from regraft.producers.nodes.links.meter_links import LinkStanding
from regraft.producers.nodes.links.run_links import Links
from regraft.producers.nodes.mqtt.mqtt_connector import MqttConnector
from regraft.producers.nodes.mqtt.mqtt_interest import LOG_TOPIC
from regraft.producers.nodes.mqtt.mqtt_packets import MalformedError, PacketReader
from regraft.producers.nodes.nats.nats_connector import NatsConnector
from regraft.producers.nodes.nats.nats_protocol import LeafReader
from regraft.schemas.codec import decode, encode
from regraft.schemas.command import Command, CommandPhase, CommandResult
from regraft.schemas.telemetry import QueueSample, TelemetryBatch
from regraft.schemas.wire_grammar import block_error, subject_error
from tests.producers.nodes.memory_connector import MemoryConnector
from tests.producers.nodes.node_fleet import MemoryPorts

NOW_MS = 1.8e12
BROKERS = ("n0", "n1", "n2", "n3")
TREE = TreeConfiguration.of(0, BROKERS, [("n0", "n1"), ("n1", "n2"), ("n1", "n3")])
OTHER_TREE = (("n0", "n1"), ("n1", "n2"), ("n2", "n3"))
SCOT = ScotConfiguration(0, (("n0", "n1"), ("n2", "n3")), ((0, 1),))
OTHER_REGIONS = (("n2", "n1"), ("n0", "n3"))
INTS = (*(0, 1) * 8, 2, 3, 7, 1 << 53, -1, 1 << 62, 1 << 63)
TIMES = (*(NOW_MS,) * 8, 0.0, 253_402_300_799_999.0, float("nan"), float("inf"), -1.0)
SUBJECTS = (*("ticks.a", "own.n1", "a.b") * 4, "a b", "a\r\nb", "$SYS.x", "a.\x01", "", "a.>", "_REGRAFT.x", "a." * 80)
BYTES = (b"\xff", b"\x00", b"\r", b"\n", b" ", b"\xed\xa0\x80", b"$", b".", b"*", b">", b"\x7f", b"\xc2\x85")
VECTORS = (*(b"", b"\x01", b"\x02") * 4, b"\x00", b"\x04", bytes(9), b"\x80" + bytes(511), bytes(513))
LINES_PER_READER = 50


class FakeLinks:
    """Links that keep what a node sends, as the bytes that its peer would get."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.peers: dict[str, Any] = {}
        self.counts: Counter[str] = Counter()

    def send(self, peer: str, message: Any) -> bool:
        self.sent.append((peer, body_of(message)))
        return True

    def frames_owed(self) -> dict[str, int]:
        return {}

    def frames_over(self, peer: str) -> int:
        return 0

    def round_trips(self) -> list[tuple[str, float]]:
        return []

    def standing(self, peer: str) -> LinkStanding:
        return LinkStanding(("1", "1"), 0, 0, None)

    def sample(self, peer: str) -> QueueSample:
        return QueueSample(peer, 0, 0, 0, 0, 0, 0, 0, 0)

    def _nothing(self, *_: Any) -> None:
        pass

    want = renew = cancel_renewal = close_idle = begin_incarnation = _nothing


def node_of(broker: str, overlay: OverlayConfiguration = TREE) -> tuple[BrokerNode, MemoryConnector, FakeLinks]:
    """Return a node of the overlay, its connector and its links."""
    links, connector = FakeLinks(), MemoryConnector()
    core = core_of(broker, overlay, 1)
    node = BrokerNode(core, MemoryPorts(), connector, lambda _: cast(Links, links), lambda: NOW_MS)
    node.begin()
    connector._on_interest, connector._on_message = node.note_interest, node.note_message
    return node, connector, links


class NodeUnderFuzz:
    """One node between three peers, after some honest traffic whose frames can be spoiled."""

    def __init__(self, overlay: OverlayConfiguration = TREE) -> None:
        self.overlay = overlay
        parts = {broker: node_of(broker, overlay) for broker in BROKERS}
        self.bodies: list[bytes] = []
        self.node, self.connector, self.links = parts["n1"]
        self._parts = parts
        for broker, (_, connector, _) in parts.items():
            connector.want("ticks.>")
            connector.want(f"own.{broker}")
        self._pass_on()
        for node, _, _ in parts.values():
            node.note_message(LocalMessage("ticks.a", b"x"))
        self._pass_on()

    def _pass_on(self) -> None:
        while any(links.sent for _, _, links in self._parts.values()):
            for broker, (_, _, links) in self._parts.items():
                sent, links.sent = links.sent, []
                for peer, body in sent:
                    self.bodies.append(body)
                    self._parts[peer][0].take(broker, message_of(body))

    def check(self) -> None:
        """Assert that all can read what the node reports."""
        ports = cast(MemoryPorts, self.node._ports)
        self.node.flush()
        for batch in ports.telemetry.batches:
            assert decode(encode(batch), TelemetryBatch)
        for result in ports.results.results:
            assert decode(encode(result), CommandResult)
        ports.telemetry.batches.clear()
        ports.results.results.clear()
        self.connector.handed.clear()
        self.links.sent.clear()


def feed_links(rng: random.Random, count: int) -> Counter[str]:
    """Send a node's peers' frames: spoiled ones, impossible messages, and the controller's commands in between."""
    under = NodeUnderFuzz(rng.choice((TREE, SCOT)))
    counts: Counter[str] = Counter()
    for number in range(count):
        try:
            message = message_of(_frame(rng, under.bodies))
        except LinkError:
            counts["refused"] += 1
            continue
        counts["used"] += 1
        under.node.take(rng.choice((*BROKERS, "nobody")), message)
        if rng.random() < 0.02:
            under.node.obey(_command(rng, under.node.core.epoch, under.overlay))
        if rng.random() < 0.01:
            under.node.lose(rng.choice(BROKERS))
        if number % 50 == 0:
            under.node.note_message(LocalMessage("ticks.b", b"y"))
            under.check()
        if number % 2_000 == 1_999:  # Peers that are believed dead are ignored: begin again.
            under = NodeUnderFuzz(rng.choice((TREE, SCOT)))
    under.check()
    assert counts.total() == count
    return counts


def _frame(rng: random.Random, bodies: list[bytes]) -> bytes:
    how = rng.random()
    if how < 0.3:
        body = bytearray(rng.choice(bodies))
        for _ in range(rng.choice((1, 1, 2, 4))):
            body[rng.randrange(len(body))] = rng.randrange(256)
        return bytes(body)
    if how < 0.7:
        messages = [_control(rng) for _ in range(rng.choice((1, 1, 3)))]
        raw = tuple((type(one).__name__, msgspec.Raw(msgspec.msgpack.encode(one))) for one in messages)
        return msgspec.msgpack.encode(ControlBody(raw))
    if how < 0.95:
        return msgspec.msgpack.encode(
            NotificationBody(
                _name(rng), rng.choice(INTS), rng.choice(TIMES), _name(rng), rng.choice(INTS), rng.choice(SUBJECTS),
                rng.choice(("", "r", *SUBJECTS)), rng.choice((b"", b"x", b"NATS/1.0\r\n\r\n")), rng.randbytes(3),
                (), rng.choice(VECTORS), rng.random() < 0.5,
            )
        )  # fmt: skip
    return rng.randbytes(rng.randrange(60))


def _name(rng: random.Random) -> str:
    known = (*BROKERS, "nobody", "n1.1", "n0.1", "n2.1", "n1.1.s.0", "n2.1.s.0", "x" * 256)
    pool = (*known * 3, "", "a\nb", "x" * 257)
    return rng.choice(pool)


def _control(rng: random.Random) -> Any:
    kind = rng.choice(CONTROL_TYPES)
    filters = (filter_of("ticks.>"), filter_of("own.n1"), (), filter_of("a.*.b"))

    def value(name: str, annotation: str) -> Any:
        if "int" in annotation:
            return rng.choice(INTS)
        if "bool" in annotation:
            return rng.random() < 0.5
        return rng.choice(filters) if name == "filter_" else _name(rng)

    return kind(*(value(field.name, str(field.type)) for field in fields(kind)))


def _command(rng: random.Random, epoch: int, overlay: OverlayConfiguration) -> Command:
    phase = rng.choice(list(CommandPhase))
    epoch_to = min(max(0, rng.choice((epoch, epoch + 1, epoch + 1, 1 << 53))), 1 << 53)
    change: dict[str, Any] = {}
    target: OverlayConfiguration
    if isinstance(overlay, ScotConfiguration):
        target = ScotConfiguration(epoch_to, OTHER_REGIONS, overlay.region_links)
        slots, exchanged = slots_of(overlay.regions), slots_of(OTHER_REGIONS)
        begin = {"id_moves": id_moves_between({}, exchanged), "links_added": region_link_names(overlay.region_links)}
        swap: dict[str, Any] = {"id_moves": id_moves_between(slots, exchanged)}
    else:
        target = TreeConfiguration.of(epoch_to, BROKERS, OTHER_TREE)
        begin = {"links_added": target.links}
        swap = {"links_removed": (("n1", "n3"),), "links_added": (("n2", "n3"),)}
    if phase is CommandPhase.INSTALL:
        change = {**begin, "brokers_joined": BROKERS}
    elif rng.random() < 0.6:
        change = swap
    digest = rng.choice((target.digest, target.digest, "x"))
    lost = rng.choice(((), (), ("n0",), ("nobody",)))
    return Command(
        f"p{rng.randrange(3)}", phase, "n1", rng.choice((epoch, 0)), epoch_to, **change, digest=digest,
        lost_brokers=lost, term=rng.choice((0, 0, 1)),
    )  # fmt: skip


class Taken:
    """What a connector has passed on; asserts that the grammar allows it."""

    def __init__(self) -> None:
        self.messages = 0
        self.wanted: set[str] = set()

    def message(self, message: LocalMessage) -> None:
        assert not subject_error(message.subject)
        assert not block_error(message.headers)
        assert not message.reply or not subject_error(message.reply)
        self.messages += 1

    def interest(self, subject: str, is_wanted: bool) -> None:
        filter_of(subject)
        (self.wanted.add if is_wanted else self.wanted.discard)(subject)


def feed_nats(rng: random.Random, count: int) -> Counter[str]:
    """Send a connector lines of the leaf protocol: subjects, groups and headers of any bytes, and lines that
    are none.
    """
    connector, taken = NatsConnector("nats://127.0.0.1:1", "b01"), Taken()
    connector._search.is_open = True
    connector._checks.begin(taken.interest, taken.message)
    leaf = cast(Any, SimpleNamespace(write_soon=lambda _: None, is_caught_up=True))
    counts: Counter[str] = Counter()
    reader = LeafReader()
    for number in range(count):
        line = _nats_line(rng)
        if number % LINES_PER_READER == 0:
            reader = LeafReader()
        try:
            for piece in _pieces(rng, line):
                for message in reader.feed(piece):
                    connector._handle(leaf, message)
            counts["read"] += 1
        except ConnectorError:
            counts["connection closed"] += 1
            reader = LeafReader()
    assert not connector.counts["handling_failed"]
    return counts + Counter(passed_on=taken.messages)


def _nats_line(rng: random.Random) -> bytes:
    subject, payload = _odd_bytes(rng), rng.randbytes(rng.randrange(5))
    how = rng.random()
    if how < 0.3:
        return rng.choice((b"LS+ ", b"LS- ")) + subject + rng.choice((b"", b" g", b" g\xff")) + b"\r\n"
    if how < 0.6:
        reply = rng.choice((b"", b"r ", b"\xff ", b"+ r g ", b"| g "))
        return b"LMSG %b %b%d\r\n%b\r\n" % (subject, reply, len(payload), payload)
    if how < 0.9:
        block = rng.choice((b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nA: \xff\r\n\r\n", _odd_bytes(rng)))
        return b"HMSG %b %d %d\r\n%b%b\r\n" % (subject, len(block), len(block) + len(payload), block, payload)
    return rng.choice((b"PING\r\n", b"+OK\r\n", b"-ERR 'x\xff'\r\n", rng.randbytes(9) + b"\r\n", b"LMSG a -1\r\n"))


def _odd_bytes(rng: random.Random) -> bytes:
    if rng.random() < 0.4:
        return b"a.b"
    parts = [rng.choice((b"a", b"b.c", b"\xc3\xa9", *BYTES)) for _ in range(rng.randrange(5))]
    return b"".join(parts).replace(b"\r\n", b"")


def _pieces(rng: random.Random, data: bytes) -> list[bytes]:
    cut = rng.randrange(len(data) + 1)
    return [data[:cut], data[cut:]]


def feed_mqtt(rng: random.Random, count: int) -> Counter[str]:
    """Send a connector packets with any bytes in their texts, and lines of a log whose clients choose odd names."""
    connector, taken = MqttConnector("mqtt://127.0.0.1:1", "b01", filters=["#"]), Taken()
    connector._search.is_open = True
    connector._checks.begin(taken.interest, taken.message)
    own_filter = connector._reports.begin_connection()
    first = f"1795672537: {connector._client_id} 1 {own_filter}".encode()
    connector._reports.take(connector._interest, f"{LOG_TOPIC}M/subscribe", first, time.monotonic())
    counts: Counter[str] = Counter()
    reader = PacketReader(1_000)
    connection = cast(Any, SimpleNamespace(refuse=lambda *_: counts.update(["connection closed"])))
    for number in range(count):
        if number % LINES_PER_READER == 0:  # A packet that claims to be long would swallow all that follow.
            reader = PacketReader(1_000)
        if rng.random() < 0.3:
            topic, entry = _log_line(rng)
            line = f"1795672537: {entry}".encode(errors="surrogateescape")
            connector._reports.take(connector._interest, LOG_TOPIC + topic, line, time.monotonic())
            counts["log lines"] += 1
            continue
        try:
            for piece in _pieces(rng, _mqtt_packet(rng)):
                for packet in reader.feed(piece):
                    connector._session._take(connection, packet)
            counts["read"] += 1
        except MalformedError:
            counts["connection closed"] += 1
            reader = PacketReader(1_000)
    return counts + Counter(passed_on=taken.messages, skipped=connector.counts["message_unreadable"])


def _mqtt_packet(rng: random.Random) -> bytes:
    def text() -> bytes:
        value = _odd_bytes(rng)
        return len(value).to_bytes(2, "big") + value

    def one_property() -> bytes:
        odd = bytes([rng.randrange(256)])
        return rng.choice((b"\x26" + text() + text(), b"\x08" + text(), b"\x03" + text(), b"\x01\x01", odd))

    properties = b"".join(one_property() for _ in range(rng.randrange(3)))
    qos = rng.choice((0, 1, 1))
    packet_id = (rng.randrange(1, 9)).to_bytes(2, "big") if qos else b""
    body = text() + packet_id + bytes([len(properties)]) + properties + rng.randbytes(rng.randrange(4))
    if rng.random() < 0.05:
        return rng.randbytes(rng.randrange(1, 9))
    return bytes([0x30 | qos << 1, len(body)]) + body


def _log_line(rng: random.Random) -> tuple[str, str]:
    names = ("v", "v 1 a", "v disconnected", "v [1.1.1.1:1]", "v (p2, c1, k60)", "", "regraft-b01", "\udcff", "v" * 300)
    name, filter_ = rng.choice(names), rng.choice(("a/#", "a b", "#/x", "+", "", "a\x01", "$SYS/#", "a+", "/" * 99))
    return rng.choice(
        (
            ("M/subscribe", f"{name} {rng.randrange(3)} {filter_}"),
            ("M/unsubscribe", f"{name} {filter_}"),
            ("N", f"New client connected from 1.1.1.1:1 as {name} (p{rng.choice((2, 5))}, c{rng.randrange(2)}, k60)."),
            ("N", f"Client {name} {rng.choice(('disconnected.', 'closed its connection.', 'disconnected: x'))}"),
            ("N", filter_ + name),
        )
    )


def feed_amqp(rng: random.Random, count: int) -> Counter[str]:
    """Send a connector of a durable queue messages with spoiled properties and any bytes as keys."""
    connector, taken = AmqpConnector("amqp://127.0.0.1", "b01", place=AmqpPlace(is_durable=True)), Taken()
    connector._search.is_open = True
    acknowledged: list[int] = []

    def receive(message: LocalMessage) -> None:
        taken.message(message)
        connector.release(message.receipt)

    connector._checks.begin(taken.interest, receive)
    channel = SimpleNamespace(
        is_open=True, basic_ack=acknowledged.append, basic_reject=lambda tag, requeue: acknowledged.append(tag)
    )
    connector._main = cast(Any, SimpleNamespace(channel=channel))
    for tag in range(1, count + 1):
        key: Any = _odd_bytes(rng)
        with suppress(UnicodeDecodeError):  # The library hands over bytes then.
            key = key.decode()
        deliver = SimpleNamespace(
            routing_key=key, delivery_tag=tag, redelivered=rng.random() < 0.1, exchange=rng.choice(("x", "x", "x", ""))
        )
        connector._take(channel, deliver, _properties(rng), rng.randbytes(3))
    assert sorted(acknowledged) == list(range(1, count + 1))  # None is met twice, and none is in the way.
    return Counter(used=taken.messages, refused=count - taken.messages)


def _properties(rng: random.Random) -> Any:
    headers = {"a": rng.choice(("x", "\r\n", 1, None, True, ["x"], {"b": 1})), rng.choice(("b", "ü", "c d")): "y"}
    whole = BasicProperties(headers=headers, reply_to=rng.choice((None, "r", "r\r\nx", "$JS.ACK.x")), type="t")
    data = bytearray(b"".join(whole.encode()))
    if rng.random() < 0.7:
        data[rng.randrange(2, len(data))] = rng.randrange(256)
    head = b"\x02\x00\x01" + (len(data) + 12).to_bytes(4, "big") + b"\x00\x3c\x00\x00" + bytes(8)
    _, found = frame.decode_frame(head + bytes(data) + b"\xce")
    return cast(Any, found).properties


PARTS: dict[str, Callable[[random.Random, int], Counter[str]]] = {
    "links": feed_links,
    "nats": feed_nats,
    "mqtt": feed_mqtt,
    "amqp": feed_amqp,
}
