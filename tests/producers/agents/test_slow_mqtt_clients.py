"""Clients of MQTT that read, answer or are read slowly: the agent keeps little of theirs, and ends nobody for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import mqtt5
import pytest

from regraft.producers.agents import mqtt_client_side, mqtt_upstream
from regraft.producers.agents.agent import Agent
from regraft.producers.agents.broker_address import BrokerAddress
from regraft.producers.agents.mqtt_client_side import MqttSession
from regraft.producers.agents.mqtt_deliveries import MqttDeliveries
from regraft.producers.agents.mqtt_frames import MQTT_5
from tests.producers.agents.scripted_brokers import until
from tests.producers.nodes.mqtt_stand_in import StandIn, stand_in
from tests.wait_until import PATIENCE_S

PIECE_BYTES = 1 << 16
PIECE = mqtt5.PublishPacket("a", bytes(PIECE_BYTES)).write()
PIECES = 400  # More than sockets hold of a client that does not read.
KEPT_BYTES_MAX = 1 << 20
SHORT_S = 0.2
AT_LEAST_ONCE = mqtt5.QoS.AT_LEAST_ONCE


class Site:
    """An agent between brokers that say what a test has them say, and a client that reads when a test wants it to."""

    def __init__(self, brokers: dict[str, StandIn]) -> None:
        self.brokers = brokers
        addresses = {name: BrokerAddress(name, "127.0.0.1", each.port, scheme="mqtt") for name, each in brokers.items()}
        self.agent = Agent("web1", addresses, "b01", MqttSession)
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def connect(self, keep_alive_s: int = 0, *, is_persistent: bool = False) -> None:
        await self.begin(keep_alive_s, is_persistent=is_persistent)
        await until(lambda: self.subscribed("b01"))

    async def begin(self, keep_alive_s: int, *, is_persistent: bool = False) -> None:
        await self.agent.start("127.0.0.1", 0)
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.agent.port, limit=1 << 12)
        expiry_s = 60 if is_persistent else 0
        connect = mqtt5.ConnectPacket("c1", keep_alive=keep_alive_s, session_expiry_interval=expiry_s)
        self.writer.write(connect.write())
        self.writer.write(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("a", max_qos=AT_LEAST_ONCE)]).write())

    def subscribed(self, broker: str) -> list[mqtt5.SubscribePacket]:
        packets = [each for each in self.brokers[broker].got if isinstance(each, mqtt5.SubscribePacket)]
        return [packet for packet in packets if any(options.pattern == "a" for options in packet.topic_filters)]

    @property
    def session(self) -> Any:
        return self.agent.sessions[0]

    @property
    def kept_bytes(self) -> int:
        return int(self.session._transport.get_write_buffer_size())


def run(steps: Callable[[Site], Coroutine[Any, Any, None]], *names: str) -> None:
    asyncio.run(_run(steps, names or ("b01",)))


async def _run(steps: Callable[[Site], Coroutine[Any, Any, None]], names: tuple[str, ...]) -> None:
    async with _brokers(names) as brokers:
        site = Site(brokers)
        try:
            await steps(site)
        finally:
            site.writer.transport.abort()
            await site.agent.close()


@asynccontextmanager
async def _brokers(names: tuple[str, ...]) -> AsyncIterator[dict[str, StandIn]]:
    if not names:
        yield {}
        return
    async with stand_in() as broker, _brokers(names[1:]) as others:
        yield {names[0]: broker, **others}


@pytest.mark.parametrize("is_persistent", [False, True])
def test_what_a_client_does_not_read_stays_at_its_broker(is_persistent: bool) -> None:
    """Whether the agent knows what the messages are, or only passes bytes on."""

    async def steps(site: Site) -> None:
        await site.connect(is_persistent=is_persistent)
        number = site.subscribed("b01")[0].subscription_id
        piece = mqtt5.PublishPacket("a", bytes(PIECE_BYTES), subscription_ids=[number] if number else None)
        for _ in range(PIECES):
            site.brokers["b01"].send(piece)
        await until(lambda: site.session._unread)
        await asyncio.sleep(SHORT_S)
        assert site.kept_bytes < KEPT_BYTES_MAX
        came = 0
        async with asyncio.timeout(PATIENCE_S):
            while came < PIECES * PIECE_BYTES:
                came += len(await site.reader.read(1 << 20))

    run(steps)


def test_a_client_that_answers_again_is_read_for_only_as_fast_as_it_reads() -> None:
    """Two reasons for which it takes no more: each holds messages back until it has gone."""

    async def steps(site: Site) -> None:
        await site.connect()
        session = site.session
        transport = session.homes.upstreams["b01"].transport
        session.pause_writing()
        session.deliveries._on_full(True)
        session.deliveries._on_full(False)
        assert not transport.is_reading()
        session.resume_writing()
        assert transport.is_reading()

    run(steps)


class Upstream:
    """A connection to a broker that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.is_closing = False
        self.write = self.got.append


def of_qos_2(upstream: Any) -> tuple[MqttDeliveries, list[bytes], list[bool]]:
    """Return what hands a client one message at a time, after one of QoS 2; what that got, and when it was full."""
    sent, full = list[bytes](), list[bool]()
    deliveries = MqttDeliveries(sent.append, full.append)
    deliveries.version, deliveries.receive_max = MQTT_5, 1
    deliveries.deliver(mqtt5.PublishPacket("a", b"", qos=mqtt5.QoS.EXACTLY_ONCE, packet_id=7), [], upstream)
    return deliveries, sent, full


def test_a_broker_that_is_to_release_a_message_is_read_although_too_much_waits() -> None:
    """Otherwise the client waits for the release, what waits for the client, and the release for what waits."""
    upstream: Any = Upstream()
    deliveries, sent, full = of_qos_2(upstream)
    for _ in range(2):
        deliveries.deliver(mqtt5.PublishPacket("b", bytes(KEPT_BYTES_MAX), qos=AT_LEAST_ONCE, packet_id=8), [], None)
    assert full == [True]
    deliveries.take_answer(mqtt5.PubRecPacket(1))
    assert (full, upstream.got) == ([True, False], [mqtt5.PubRecPacket(7).write()])
    deliveries.take_release(upstream, mqtt5.PubRelPacket(7))
    assert (full, sent[1:]) == ([True, False, True], [mqtt5.PubRelPacket(1).write()])
    deliveries.take_answer(mqtt5.PubCompPacket(1))
    deliveries.take_answer(mqtt5.PubAckPacket(2))
    assert full == [True, False, True, False]
    assert len(sent) == 4


def test_a_broker_that_dies_before_it_releases_a_message_keeps_no_others_from_the_client() -> None:
    upstream: Any = Upstream()
    deliveries, sent, _ = of_qos_2(upstream)
    deliveries.take_answer(mqtt5.PubRecPacket(1))
    deliveries.lose(upstream)
    assert sent[1:] == [mqtt5.PubRelPacket(1).write()]
    upstream.is_closing = True
    deliveries.take_answer(mqtt5.PubCompPacket(1))
    deliveries.deliver(mqtt5.PublishPacket("b", b"", qos=AT_LEAST_ONCE, packet_id=8), [], None)
    assert len(sent) == 3


def test_a_broker_is_not_considered_dead_while_the_client_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers to pings are there, but nobody reads them. One that really does not answer is left."""
    monkeypatch.setattr(mqtt_upstream, "KEEP_ALIVE_S", SHORT_S)

    async def steps(site: Site) -> None:
        await site.connect()
        session, broker = site.session, site.brokers["b01"]
        session.pause_writing()
        await asyncio.sleep(4 * SHORT_S)
        assert site.agent.counts["brokers_lost"] == 0
        session.resume_writing()
        await asyncio.sleep(4 * SHORT_S)
        assert site.agent.counts["brokers_lost"] == 0
        broker.answers_pings = False
        await until(lambda: site.agent.counts["brokers_lost"])

    run(steps)


def test_a_broker_that_wants_to_hear_more_often_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt_upstream, "KEEP_ALIVE_S", 3_000)

    async def steps(site: Site) -> None:
        site.brokers["b01"].welcome = mqtt5.ConnAckPacket(server_keep_alive=1)
        await site.connect()
        await until(lambda: sum(isinstance(each, mqtt5.PingReqPacket) for each in site.brokers["b01"].got) >= 3)

    run(steps)


def test_a_client_that_says_nothing_is_ended() -> None:
    async def steps(site: Site) -> None:
        await site.begin(keep_alive_s=1)
        async with asyncio.timeout(PATIENCE_S):
            while await site.reader.read(1 << 12):
                pass

    run(steps)


def test_a_client_that_is_not_read_is_not_considered_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """It publishes more than the agent holds while its broker is away, and is ended only if it then says nothing."""
    monkeypatch.setattr(mqtt_client_side, "HELD_BYTES_MAX", 1 << 10)

    async def steps(site: Site) -> None:
        await site.connect(keep_alive_s=60)
        session = site.session
        session.hold("reconnecting")
        site.writer.write(PIECE)
        await until(lambda: not session._transport.is_reading())
        session._heard_s -= 1_000.0
        session._end_if_silent(0.0)
        assert not session.is_over
        session.release("reconnecting")
        await until(lambda: any(isinstance(each, mqtt5.PublishPacket) for each in site.brokers["b01"].got))
        session._heard_s -= 1_000.0
        session._end_if_silent(0.0)
        assert session.is_over

    run(steps)


def test_a_slow_broker_that_is_left_holds_the_client_no_longer() -> None:
    async def steps(site: Site) -> None:
        await site.connect()
        session = site.session
        upstream = await session.homes.connect_to("b02")
        upstream.pause_writing()
        assert session._holds == {"slow b02"}
        session.homes.leave_unused()
        assert not session._holds

    run(steps, "b01", "b02")
