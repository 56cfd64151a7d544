"""A session at an MQTT broker: what is sent again, what the broker's limits hold back, when a connection has ended."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import mqtt5
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.producers.nodes.mqtt import mqtt_session
from regraft.producers.nodes.mqtt.mqtt_connector import MqttConnector
from regraft.producers.nodes.mqtt.mqtt_session import MqttLogin, MqttSession, RefusedError
from tests.producers.nodes.connector_kit import until
from tests.producers.nodes.mqtt_stand_in import StandIn, stand_in
from tests.wait_until import PATIENCE_S

LARGE_BYTES = 1_000  # Longer packets are not accepted here.
Steps = Callable[[StandIn, "Site"], Awaitable[None]]


class Site:
    """A session with its messages; by default every one may be forgotten at once."""

    def __init__(self, port: int, **more: Any) -> None:
        self.received: list[mqtt5.PublishPacket] = []
        self._port = port
        self.may_forget = True
        login = MqttLogin("me", session_s=60, packet_bytes_max=LARGE_BYTES)
        self.session = MqttSession(replace(login, **more), self._take, Counter())

    def _take(self, packet: mqtt5.PublishPacket) -> bool:
        self.received.append(packet)
        return self.may_forget

    async def connect(self) -> bool:
        return await self.session.connect("127.0.0.1", self._port)

    def publish(self, qos: int, *payloads: bytes) -> None:
        for payload in payloads:
            assert self.session.publish("t", payload, qos, {})


def run(steps: Steps, welcome: mqtt5.ConnAckPacket | None = None, **more: Any) -> None:
    async def go() -> None:
        async with stand_in() as broker:
            broker.welcome = welcome or broker.welcome
            site = Site(broker.port, **more)
            await asyncio.wait_for(steps(broker, site), PATIENCE_S)
            site.session.cut("the test is over")

    asyncio.run(go())


async def connect_again(broker: StandIn, site: Site, welcome: mqtt5.ConnAckPacket) -> None:
    broker.welcome = welcome
    broker.cut()
    await site.session.lost()
    await site.connect()


RESUMED = mqtt5.ConnAckPacket(session_present=True)


def test_unacknowledged_messages_are_sent_again() -> None:
    """After a cut those of QoS 1 go first, in order, with the same numbers and marked as duplicates."""

    async def steps(broker: StandIn, site: Site) -> None:
        assert not await site.connect()
        site.publish(1, b"1", b"2", b"3")
        site.publish(0, b"4")
        first = await broker.has(b"1", b"2", b"3", b"4")
        broker.acknowledge(first[0].packet_id or 0)
        await until(lambda: len(site.session._kept) == 2)
        await connect_again(broker, site, RESUMED)
        site.publish(1, b"5")
        again = await broker.has(b"2", b"3", b"5")
        assert [each.packet_id for each in again[:2]] == [each.packet_id for each in first[1:3]]
        assert [each.duplicate for each in again] == [True, True, False]
        assert [greeting.clean_start for greeting in broker.greetings] == [True, False]
        broker.acknowledge(*(each.packet_id or 0 for each in again))
        await until(lambda: not site.session._kept)
        assert site.session._waiting_bytes == 0

    run(steps)


def test_a_broker_that_lost_the_session_gets_messages_as_new() -> None:
    """They are not lost with the session, and are not marked as duplicates."""

    async def steps(broker: StandIn, site: Site) -> None:
        await site.connect()
        site.publish(1, b"1", b"2")
        await broker.has(b"1", b"2")
        await connect_again(broker, site, mqtt5.ConnAckPacket())
        assert [each.duplicate for each in await broker.has(b"1", b"2")] == [False, False]

    run(steps)


def test_a_resumed_session_is_never_begun_clean() -> None:
    """A session of the node's former incarnation is continued from the first connection on."""

    async def steps(broker: StandIn, site: Site) -> None:
        assert await site.connect()
        assert [(each.clean_start, each.receive_max) for each in broker.greetings] == [(False, 5)]

    run(steps, RESUMED, is_resumed=True, receive_max=5)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.lists(st.integers(0, 1), min_size=1, max_size=30))
def test_the_receive_maximum_is_honoured(receive_max: int, levels: list[int]) -> None:
    """No more messages are under way than the broker accepts; all arrive in order of publishing at any QoS."""

    async def steps(broker: StandIn, site: Site) -> None:
        await site.connect()
        payloads = [b"%d" % number for number in range(len(levels))]
        for qos, payload in zip(levels, payloads, strict=True):
            site.publish(qos, payload)
        acknowledged = 0
        while len(broker.messages) < len(payloads):
            under_way = [each for each in broker.messages if each.packet_id][acknowledged:]
            assert len(under_way) <= receive_max
            if under_way:
                broker.acknowledge(under_way[0].packet_id or 0)
                acknowledged += 1
            await asyncio.sleep(0)
        await broker.has(*payloads)

    run(steps, mqtt5.ConnAckPacket(receive_max=receive_max))


def test_messages_waiting_for_the_broker_are_no_duplicates() -> None:
    """After a cut only messages that had been sent are marked; the rest follows as the broker accepts more."""

    async def steps(broker: StandIn, site: Site) -> None:
        await site.connect()
        site.publish(1, b"1", b"2")
        await broker.has(b"1")
        await connect_again(broker, site, mqtt5.ConnAckPacket(session_present=True, receive_max=2))
        assert [each.duplicate for each in await broker.has(b"1", b"2")] == [True, False]

    run(steps, mqtt5.ConnAckPacket(receive_max=1))


def test_a_half_open_connection_is_ended() -> None:
    """A broker that answers pings keeps its connection; one that answers nothing loses it, whatever is sent to it."""

    async def steps(broker: StandIn, site: Site) -> None:
        await site.connect()
        await until(lambda: sum(isinstance(each, mqtt5.PingReqPacket) for each in broker.got) > 4)
        assert site.session.is_connected
        broker.answers_pings = False
        site.publish(0, b"1")
        assert await site.session.lost() == "no data for 1 s"
        assert not site.session.is_connected

    run(steps, mqtt5.ConnAckPacket(server_keep_alive=1))


def test_messages_are_acknowledged_once_they_may_be_forgotten() -> None:
    """QoS 1 is acknowledged at once or later by number; an oversized message at once, and it is counted."""

    async def steps(broker: StandIn, site: Site) -> None:
        def message(payload: bytes, packet_id: int) -> mqtt5.PublishPacket:
            return mqtt5.PublishPacket("t", payload, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=packet_id)

        await site.connect()
        broker.send(message(b"1", 1), mqtt5.PublishPacket("t", b"2"), message(bytes(LARGE_BYTES), 3))
        await until(lambda: mqtt5.PubAckPacket(3) in broker.got)
        site.may_forget = False
        broker.send(message(b"4", 4), message(b"5", 5))
        await until(lambda: len(site.received) == 4)
        site.session.acknowledge(5)
        await until(lambda: mqtt5.PubAckPacket(5) in broker.got)
        got = broker.got
        assert [each.packet_id for each in got if isinstance(each, mqtt5.PubAckPacket)] == [1, 3, 5]
        site.session.acknowledge(4)
        site.session.cut("before it could be said")
        await connect_again(broker, site, RESUMED)
        site.publish(0, b"6")
        await broker.has(b"6")
        assert not [each for each in broker.got if isinstance(each, mqtt5.PubAckPacket)]
        assert [each.payload for each in site.received] == [b"1", b"2", b"4", b"5"]
        assert site.session.counts == {"payload_too_large": 1}

    run(steps)


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        (b"\x00\x00", "not an MQTT 5 packet: Invalid PacketType value: 0"),
        (
            mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode.SERVER_BUSY),
            "ended by the broker: SERVER_BUSY",
        ),
        (mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("a")]), "unexpected packet: SubscribePacket"),
        (mqtt5.PublishPacket("", b"", topic_alias=1), "unexpected packet: PublishPacket"),
        (
            mqtt5.PublishPacket("t", b"", qos=mqtt5.QoS.EXACTLY_ONCE, packet_id=1),
            "unexpected packet: PublishPacket",
        ),
    ],
)
def test_a_connection_ends_with_a_reason(ending: mqtt5.Packet | bytes, reason: str) -> None:
    """An invalid packet, or one that no broker may send, ends it; packets before it are taken."""

    async def steps(broker: StandIn, site: Site) -> None:
        await site.connect()
        broker.send(mqtt5.PublishPacket("t", b"1"), ending, mqtt5.PublishPacket("t", b"2"))
        assert (await site.session.lost()).startswith(reason)
        assert [each.payload for each in site.received] == [b"1"]

    run(steps)


def test_the_brokers_refusal_is_named() -> None:
    """The error has the broker's reason, or that the connection ended at once."""

    async def steps(broker: StandIn, site: Site) -> None:
        with pytest.raises(RefusedError, match=r"^refused: NOT_AUTHORIZED go away$"):
            await site.connect()
        broker.welcome = mqtt5.DisconnectPacket()
        with pytest.raises(RefusedError, match="ended by the broker"):
            await site.connect()
        assert not site.session.is_connected

    run(steps, mqtt5.ConnAckPacket(reason_code=mqtt5.ConnAckReasonCode.NOT_AUTHORIZED, reason_str="go away"))


def test_a_message_that_the_broker_refuses_is_counted() -> None:
    """It is not sent again; "no matching subscribers" is no refusal."""

    async def steps(broker: StandIn, site: Site) -> None:
        await site.connect()
        site.publish(1, b"1", b"2", b"3")
        found = [each.packet_id or 0 for each in await broker.has(b"1", b"2", b"3")]
        broker.acknowledge(found[0], code=mqtt5.PubAckReasonCode.NO_MATCHING_SUBSCRIBERS)
        broker.acknowledge(*found[1:], code=mqtt5.PubAckReasonCode.NOT_AUTHORIZED)
        await until(lambda: not site.session._kept)
        assert site.session.counts == {"broker_refused": 2}

    run(steps)


def test_what_the_broker_does_not_support_is_held_back() -> None:
    """No packet exceeds its limit, and neither QoS nor retain is used if the broker lacks it."""

    async def steps(broker: StandIn, site: Site) -> None:
        await site.connect()
        assert not site.session.publish("t", bytes(50), 0, {})
        assert site.session.publish("t", b"1", 1, {"retain": True})
        (message,) = await broker.has(b"1")
        assert (message.qos, message.retain) == (mqtt5.QoS.AT_MOST_ONCE, False)
        assert site.session.counts == {"payload_too_large": 1}

    nothing = mqtt5.QoS.AT_MOST_ONCE
    run(steps, mqtt5.ConnAckPacket(max_packet_size=50, max_qos=nothing, retain_available=False))


def test_a_kept_message_above_a_new_limit_is_counted() -> None:
    """A broker with a lower limit than before gets the rest."""

    async def steps(broker: StandIn, site: Site) -> None:
        await site.connect()
        site.publish(1, bytes(50), b"2")
        await broker.has(bytes(50), b"2")
        await connect_again(broker, site, mqtt5.ConnAckPacket(max_packet_size=50))
        await broker.has(b"2")
        assert site.session.counts == {"payload_too_large": 1}

    run(steps)


def test_buffers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for a slow broker is bounded in number and size; QoS 0 lost with a connection is counted."""
    monkeypatch.setattr(mqtt_session, "WAITING_MAX", 10)
    monkeypatch.setattr(mqtt_session, "WAITING_BYTES_MAX", 1_000)

    async def steps(broker: StandIn, site: Site) -> None:
        await site.connect()
        site.publish(1, b"1")
        await broker.has(b"1")
        site.publish(1, b"2")  # Waits for the acknowledgement of the first one, and all others behind it.
        site.publish(0, *[b"x"] * 8)
        assert not site.session.publish("t", b"", 0, {})
        assert site.session.counts == {"broker_slow": 1}
        broker.cut()
        await site.session.lost()
        assert not site.session.publish("t", b"", 0, {})
        assert site.session.counts == {"broker_slow": 1, "broker_away": 9}
        assert site.session._waiting_bytes == sum(map(len, site.session._kept.values()))
        await site.connect()
        site.publish(0, bytes(1_000))
        assert not site.session.publish("t", b"", 0, {})

    run(steps, mqtt5.ConnAckPacket(receive_max=1))


def test_notes_of_the_node_have_room_beyond_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for a slow broker keeps no note from its agents, or a client would lose what it is handed over."""
    monkeypatch.setattr(mqtt_session, "WAITING_MAX", 3)
    monkeypatch.setattr(mqtt_session, "OWN_WAITING_MAX", 5)

    async def steps(broker: StandIn, site: Site) -> None:
        await site.connect()
        site.publish(1, b"1", b"2", b"3")
        assert not site.session.publish("t", b"4", 1, {})
        assert site.session.publish("t", b"note", 1, {}, is_own=True)
        assert site.session.publish("t", b"note", 1, {}, is_own=True)
        assert not site.session.publish("t", b"note", 1, {}, is_own=True)
        assert site.session.counts == {"broker_slow": 2}
        while len(broker.messages) < 5:
            await broker.has(*(each.payload for each in broker.messages))
            broker.acknowledge(*(each.packet_id or 0 for each in broker.messages))
            await asyncio.sleep(0.001)
        await broker.has(b"1", b"2", b"3", b"note", b"note")

    run(steps, mqtt5.ConnAckPacket(receive_max=1))


def test_a_broker_that_takes_few_messages_at_once_is_reported() -> None:
    """Once for each connection, with what to set: plans that move clients wait behind what waits for it."""

    async def steps(broker: StandIn, site: Site) -> None:
        await site.connect()
        site.publish(1, *[b"x"] * (2 * mqtt_session.BEHIND))

    for receive_max in (20, mqtt_session.BEHIND):
        with capture_logs() as logged:
            run(steps, mqtt5.ConnAckPacket(receive_max=receive_max))
        reported = [each for each in logged if each["event"] == "broker_takes_few"]
        assert [each["receive_max"] for each in reported] == ([20] if receive_max == 20 else [])
        assert all("max_inflight_messages" in each["way_out"] for each in reported)


def test_the_end_of_a_session_is_announced() -> None:
    """Pending messages are sent first, then the broker learns how long to keep the session."""

    async def steps(broker: StandIn, site: Site) -> None:
        await site.connect()
        site.publish(0, b"1")
        await site.session.close(7)
        await until(lambda: len(broker.got) == 3)
        assert broker.got[2] == mqtt5.DisconnectPacket(session_expiry_interval=7)
        assert not site.session.is_connected

    run(steps)


def test_a_message_becomes_safe_while_the_broker_is_away() -> None:
    """The connector of a durable session acknowledges it on redelivery, and takes it only once."""

    async def go() -> None:
        async with stand_in() as broker:
            received: list[LocalMessage] = []
            connector = MqttConnector(f"mqtt://127.0.0.1:{broker.port}", "b01", is_durable=True, filters=["#"])
            await connector.start(lambda *_: None, received.append)
            message = mqtt5.PublishPacket("t", b"1", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=7)
            broker.send(message)
            await until(lambda: len(received) == 1)
            broker.welcome = RESUMED
            broker.cut()
            await until(lambda: not connector.is_open)
            connector.release(received[0].receipt)
            await until(lambda: connector.is_open)
            broker.send(message)
            await until(lambda: mqtt5.PubAckPacket(7) in broker.got)
            assert (len(received), connector.counts["redelivered"]) == (1, 1)
            await connector.close()

    asyncio.run(go())
