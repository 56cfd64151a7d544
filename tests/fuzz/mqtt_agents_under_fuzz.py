"""Send an MQTT agent whatever a client, a broker or somebody who forges notes may send: it ends at most that client.

A client that behaves is beside each that does not: it is served after every input.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from typing import Any, cast

import mqtt5

from regraft.producers.agents.broker_address import BrokerAddress
from regraft.producers.agents.mqtt_client_facts import FIRST_ID, FLUSH_ID, NOTES_ID, PRIVATE_ID
from regraft.producers.agents.mqtt_client_side import MqttSession
from regraft.producers.agents.mqtt_frames import MQTT_5, FrameReader, head
from regraft.producers.agents.mqtt_upstream import MqttUpstream
from regraft.producers.nodes.mqtt.mqtt_packets import MalformedError, read_packet
from tests.fuzz.agents_under_fuzz import hostile_note
from tests.producers.agents.mqtt_311_packets import connect_311, request_311, text_of

CLIENT, OTHER = "web1.k3-1", "web1.k3-2"
BROKERS = {name: BrokerAddress(name, "127.0.0.1", 1, scheme="mqtt") for name in ("b01", "b02")}
TOPICS = ("a/b", "a/c", "a/b/c", "$SYS/x", "_REGRAFT/agent/x", "REGRAFT_FLUSH/x", "x" * 300)
FILTERS = ("a/b", "a/+", "#", "a/#", "$share/g/a/b", "_REGRAFT/#", "x/" * 300)
QOS = (mqtt5.QoS.AT_MOST_ONCE, mqtt5.QoS.AT_LEAST_ONCE, mqtt5.QoS.EXACTLY_ONCE)
GRANTED = (
    mqtt5.SubAckReasonCode.GRANTED_QOS_AT_MOST_ONCE,
    mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE,
    mqtt5.SubAckReasonCode.NOT_AUTHORIZED,
)
ENDED = (
    mqtt5.DisconnectReasonCode.NORMAL_DISCONNECTION, mqtt5.DisconnectReasonCode.SERVER_SHUTTING_DOWN,
    mqtt5.DisconnectReasonCode.QUOTA_EXCEEDED,
)  # fmt: skip
PING, PONG = mqtt5.PingReqPacket().write(), mqtt5.PingRespPacket().write()


CONNECT_311 = connect_311("x")
SENT_BY_CLIENTS = (
    mqtt5.PublishPacket,
    mqtt5.PubAckPacket,
    mqtt5.PubRecPacket,
    mqtt5.PubCompPacket,
    mqtt5.SubscribePacket,
    mqtt5.UnsubscribePacket,
)


class _Pipe:
    """Stands in for a socket, and keeps what was written last."""

    def __init__(self) -> None:
        self.written = b""
        self.is_closed = self.is_paused = False

    def write(self, data: bytes) -> None:
        self.written = data

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_reading(self) -> bool:
        return not (self.is_closed or self.is_paused)


class _Session(MqttSession):
    """A session with brokers that are always there, and without what it would do beside the client."""

    def run(self, work: Coroutine[Any, Any, None]) -> None:  # type: ignore[override]
        work.close()


def _session(rng: random.Random, name: str, present: set[Any]) -> _Session:
    """Return a client that has connected, and maybe logged in, with connections to both brokers."""
    session = _Session(name, BROKERS, "b01", Counter(), present.discard)
    session.present = present
    session.connection_made(cast(Any, _Pipe()))
    is_mqtt5 = rng.random() < 0.5
    session.data_received(mqtt5.ConnectPacket(name, clean_start=True).write() if is_mqtt5 else connect_311(name))
    present.add(session)
    _log_in(session)
    wanted = mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("a/b", max_qos=QOS[1])]).write()
    session.data_received(wanted if is_mqtt5 else _as_311(wanted))
    return session


def _log_in(session: _Session) -> None:
    for broker, address in BROKERS.items():
        upstream = MqttUpstream(address, session)
        upstream.transport, upstream.is_ready = cast(Any, _Pipe()), True
        session.homes.upstreams[broker] = upstream
    session._begin_at(session.homes.upstreams["b01"], mqtt5.ConnAckPacket())


def feed_mqtt_agents(rng: random.Random, count: int) -> Counter[str]:
    """Send sessions packets of their clients, messages of brokers and notes, of right and wrong form."""
    return asyncio.run(_feed(rng, count))


async def _feed(rng: random.Random, count: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    present: set[Any] = set()
    bystander, session = _session(rng, OTHER, present), _session(rng, CLIENT, present)
    for _ in range(count):
        if session.is_over:
            session = _session(rng, CLIENT, present)
        if rng.random() < 0.1:
            _feed_stranger(rng, counts)
        elif rng.random() < 0.5:
            _feed_client(rng, session, counts)
        else:
            await _feed_broker(rng, session, counts)
        await _serve(bystander)
    return counts


async def _serve(bystander: _Session) -> None:
    """Raise AssertionError unless the client that behaves gets its answer at once."""
    pipe = cast(_Pipe, bystander._transport)
    pipe.written = b""
    bystander.data_received(PING)
    await asyncio.sleep(0)
    assert not bystander.is_over
    assert PONG in pipe.written


def _feed_stranger(rng: random.Random, counts: Counter[str]) -> None:
    """Let somebody connect who may not be a client."""
    session = _Session(CLIENT, BROKERS, "b01", Counter(), lambda _: None)
    session.connection_made(cast(Any, _Pipe()))
    first = rng.choice((CONNECT_311, mqtt5.ConnectPacket("x", keep_alive=9).write(), PING, _client_packet(rng)))
    _receive(rng, session, _spoiled(rng, first), counts)
    session.end("")


def _feed_client(rng: random.Random, session: _Session, counts: Counter[str]) -> None:
    packet = _client_packet(rng)
    frame = packet if session.client.version == MQTT_5 or rng.random() < 0.1 else _as_311(packet)
    _receive(rng, session, _spoiled(rng, frame) if rng.random() < 0.2 else frame, counts)
    session._holds.clear()


def _receive(rng: random.Random, session: _Session, data: bytes, counts: Counter[str]) -> None:
    """Let bytes arrive, in one piece or two."""
    cut = rng.randrange(len(data) + 1)
    for part in (data[:cut], data[cut:]):
        if part and not session.is_over:
            session.data_received(part)
    counts["connection closed" if session.is_over else "read"] += 1


async def _feed_broker(rng: random.Random, session: _Session, counts: Counter[str]) -> None:
    upstream = session.homes.upstreams.get(rng.choice(list(BROKERS)))
    if upstream is None:
        session.end("")
        return
    frame = _broker_packet(rng)
    frame = _spoiled(rng, frame) if rng.random() < 0.2 else frame
    is_packet = _is_whole(frame)
    pipe = cast(_Pipe, session._transport)
    pipe.written = b""
    upstream.data_received(frame)
    await asyncio.sleep(0)
    counts["passed_on" if pipe.written else "taken" if is_packet else "refused"] += 1
    if not is_packet and upstream._reader.take_rest():  # A packet of which more would have to come.
        session.end("")


def _is_whole(frame: bytes) -> bool:
    try:
        frames = list(FrameReader().feed(frame))
        return bool([read_packet(memoryview(one)) for one in frames]) and b"".join(frames) == frame
    except MalformedError:
        return False


def _spoiled(rng: random.Random, frame: bytes) -> bytes:
    """Return a packet with other bytes, cut, or with more behind it."""
    data = bytearray(frame)
    how = rng.random()
    if how < 0.5:
        for _ in range(rng.choice((1, 1, 4))):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif how < 0.8:
        del data[rng.randrange(len(data)) :]
    else:
        data += rng.randbytes(rng.randrange(1, 20))
    return bytes(data)


def _as_311(packet: bytes) -> bytes:
    """Return a client's packet of MQTT 5 in the form of 3.1.1."""
    try:
        read = read_packet(memoryview(packet))
    except MalformedError:
        return packet
    return request_311(read) if isinstance(read, SENT_BY_CLIENTS) else packet


def _client_packet(rng: random.Random) -> bytes:
    number = rng.choice((1, 2, 3, 9, 65_535))
    kind = rng.random()
    if kind < 0.4:
        return _message(rng, number)
    if kind < 0.6:
        wanted = [
            mqtt5.TopicFilter(rng.choice(FILTERS), max_qos=rng.choice(QOS), no_local=rng.random() < 0.1)
            for _ in range(rng.choice((1, 1, 2)))
        ]
        return mqtt5.SubscribePacket(number, wanted, subscription_id=rng.choice((None, 7))).write()
    if kind < 0.7:
        return mqtt5.UnsubscribePacket(number, [rng.choice(FILTERS)]).write()
    if kind < 0.9:
        answers = (mqtt5.PubAckPacket, mqtt5.PubRecPacket, mqtt5.PubRelPacket, mqtt5.PubCompPacket)
        return rng.choice(answers)(number).write()
    bad = text_of(rng.choice(("", "a/#/b", "a+", "$share/g"))) + b"\x01"
    odd = (
        head(0x82, 3 + len(bad)) + b"\x00\x07\x00" + bad,
        PING,
        PONG,
        CONNECT_311,
        mqtt5.ConnAckPacket().write(),
        mqtt5.DisconnectPacket().write(),
        b"\xf0\x00",
    )
    return rng.choice(odd)


def _message(rng: random.Random, number: int) -> bytes:
    qos = rng.choice(QOS)
    return mqtt5.PublishPacket(
        rng.choice(TOPICS), b"hi", qos=qos, packet_id=number if qos.value else None, retain=rng.random() < 0.1
    ).write()


def _broker_packet(rng: random.Random) -> bytes:
    number = rng.choice((1, 2, 3, 9, 65_535))
    kind = rng.random()
    if kind < 0.35:
        ids = rng.choice(([FIRST_ID], [FIRST_ID + 1], [FIRST_ID + 2], [FLUSH_ID], [99], None))
        stamps = rng.choice((None, [("Regraft-Carried-regraft", "1 x b p h")], [("x", "y")]))
        qos = rng.choice(QOS)
        return mqtt5.PublishPacket(
            rng.choice(TOPICS), b"hi", qos=qos, packet_id=number if qos.value else None, subscription_ids=ids,
            user_properties=stamps,
        ).write()  # fmt: skip
    if kind < 0.6:
        topic = f"_REGRAFT/agent/{CLIENT.replace('.', '/')}"
        return mqtt5.PublishPacket(
            topic, hostile_note(rng, CLIENT, (0, 1, 2, 3, 77), ("regraft", "")), subscription_ids=[NOTES_ID]
        ).write()
    if kind < 0.7:
        place = rng.choice(("1/a/b", "x/a", "1/", "9" * 500 + "/a", "²/a"))
        topic = f"_REGRAFT/to/{CLIENT.replace('.', '/')}/{place}"
        return mqtt5.PublishPacket(topic, b"hi", subscription_ids=[PRIVATE_ID]).write()
    if kind < 0.8:
        code = rng.choice(GRANTED)
        return mqtt5.SubAckPacket(number, [code]).write()
    answers: tuple[Any, ...] = (mqtt5.PubAckPacket, mqtt5.PubRecPacket, mqtt5.PubRelPacket, mqtt5.PubCompPacket)
    if kind < 0.95:
        return bytes(rng.choice(answers)(number).write())
    ended = mqtt5.DisconnectPacket(reason_code=rng.choice(ENDED)).write()
    return rng.choice((PONG, PING, ended, mqtt5.ConnAckPacket().write(), b"\x00\x00", CONNECT_311))
