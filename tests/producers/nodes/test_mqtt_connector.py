"""The connector to an MQTT broker: features of MQTT alone, and a broker that reports nothing about its clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, patch

import pytest

from regraft.producers.nodes.connectors.connector import ConnectorError, LocalMessage
from regraft.producers.nodes.mqtt.mqtt_connector import MqttConnector
from regraft.producers.nodes.mqtt.mqtt_headers import MqttFields, block_of, fields_of
from tests.producers.nodes.connector_brokers import Received
from tests.producers.nodes.connector_kit import until
from tests.producers.nodes.mqtt_brokers import MqttClient, MqttServer, cut, needs_mosquitto
from tests.wait_until import PATIENCE_S

pytestmark = pytest.mark.stack


class MqttSite:
    """A broker with a connector; ``client`` returns a further client, whose messages arrive in ``got``."""

    def __init__(self, server: MqttServer, **more: Any) -> None:
        self.server = server
        self.received = Received()
        self.got: list[Any] = []
        self.clients: list[MqttClient] = []
        self.connector = MqttConnector(server.url, "b01", **more)

    async def open(self) -> None:
        await self.connector.start(lambda *one: self.received.interest.append(one), self.received.messages.append)

    async def client(self, name: str = "", version: int = 5) -> MqttClient:
        client = await MqttClient(self.server.port, self.got.append, name, version).connected()
        self.clients.append(client)
        return client

    async def close(self) -> None:
        for client in self.clients:
            client.close()
        await self.connector.close()


@pytest.fixture
def run_site(tmp_path: Path) -> Callable[..., None]:
    needs_mosquitto()

    def run(steps: Callable[[MqttSite], Awaitable[None]], *, is_plain: bool = False, **more: Any) -> None:
        async def go() -> None:
            server = MqttServer("b01", tmp_path, is_plain=is_plain).start()
            site = MqttSite(server, **more)
            try:
                await asyncio.wait_for(steps(site), PATIENCE_S)
            finally:
                await site.close()
                server.stop()

        asyncio.run(go())

    return run


def test_fields_of_mqtt_cross_unchanged(run_site: Callable[..., None]) -> None:
    """QoS, retain, content type, correlation, text, expiry and user properties come in and go out unchanged."""
    properties = (("a:b", " c "), ("a", "1"), ("a", "2"), ("ä", "✓"))
    fields = MqttFields(properties, 1, True, True, "text/plain", b"\0\xff", 1_000)

    async def steps(site: MqttSite) -> None:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        await site.open()
        client = await site.client()
        sent = Properties(PacketTypes.PUBLISH)
        sent.UserProperty, sent.PayloadFormatIndicator, sent.ContentType = list(properties), 1, "text/plain"
        sent.CorrelationData, sent.MessageExpiryInterval, sent.ResponseTopic = b"\0\xff", 1_000, "answers/x 1"
        await client.publish("a/b", b"hello", sent, qos=1, retain=True)
        await until(lambda: bool(site.received.messages))
        (message,) = site.received.messages
        assert (message.subject, message.payload, message.reply) == ("a.b", b"hello", "answers.x/x20/1")
        assert fields_of(message.headers) == fields

        await client.subscribe("c/#")
        assert site.connector.publish(LocalMessage("c.d", b"hello", message.reply, block_of(fields)))
        await until(lambda: bool(site.got))
        (got,) = site.got
        assert (got.topic, got.payload, got.qos) == ("c/d", b"hello", 1)
        assert got.properties.UserProperty.pop()[0] == "Regraft-Carried-regraft"
        assert vars(got.properties) == vars(sent)

    run_site(steps)


def test_retained_messages_reach_later_subscribers(run_site: Callable[..., None]) -> None:
    """A retained message from the connector stays until an empty one replaces it; retained ones from before
    stay local.
    """

    async def steps(site: MqttSite) -> None:
        client = await site.client()
        await client.publish("state/old", b"0", qos=1, retain=True)
        await site.open()
        assert site.connector.publish(
            LocalMessage("state.connector", b"open", headers=block_of(MqttFields((), 1, True)))
        )
        await client.publish("end", b"", qos=1)
        await until(lambda: bool(site.received.messages))
        await (await site.client()).subscribe("state/#")
        await until(lambda: len(site.got) == 2)
        assert {(message.topic, message.payload, message.retain) for message in site.got} == {
            ("state/old", b"0", True),
            ("state/connector", b"open", True),
        }
        assert site.connector.publish(LocalMessage("state.connector", b"", headers=block_of(MqttFields((), 1, True))))
        await until(lambda: len(site.got) == 3)
        late: list[Any] = []
        other = await MqttClient(site.server.port, late.append).connected()
        await other.subscribe("state/#")
        await until(lambda: bool(late))
        await asyncio.sleep(0.1)
        other.close()
        assert [message.topic for message in late] == ["state/old"]
        assert [message.subject for message in site.received.messages] == ["end"]

    run_site(steps)


def test_interest_of_a_client_that_disconnects(run_site: Callable[..., None]) -> None:
    """It ends at once without a session, and otherwise with the session; a clean start ends it."""

    async def steps(site: MqttSite) -> None:
        await site.open()
        first, second = await site.client("old 1 kind", version=4), await site.client("new kind")
        await first.subscribe("a/x 1 y")
        await second.subscribe("b")
        await second.subscribe("c")
        await until(lambda: site.received.wanted == {"a.x/x20/1/x20/y", "b", "c"})
        await second.unsubscribe("c")
        second.close()
        first.close()
        await until(lambda: site.received.wanted == {"b"})
        await site.client("new kind")
        await until(lambda: not site.received.wanted)

    run_site(steps)


def test_an_expired_session_wants_nothing(run_site: Callable[..., None]) -> None:
    """``session_s`` after a client has disconnected its interest ends, unless it has returned."""

    async def steps(site: MqttSite) -> None:
        await site.open()
        client = await site.client("b")
        await client.subscribe("b")
        await until(lambda: site.received.wanted == {"b"})
        client.close()
        await until(lambda: not site.received.wanted)

    run_site(steps, session_s=0.0)


def test_the_next_life_of_a_node_restores_the_interest(run_site: Callable[..., None], tmp_path: Path) -> None:
    """The broker does not repeat what its clients want, so the connector stores it; a corrupt file is ignored."""
    file = tmp_path / "interest.json"

    async def steps(site: MqttSite) -> None:
        await site.open()
        client = await site.client("one 1 name")
        for wanted in ("a/#", "b", "c"):
            await client.subscribe(wanted)
        await client.unsubscribe("c")
        await until(lambda: ("c", False) in site.received.interest)
        assert site.received.wanted == {"a", "a.>", "b"}
        await site.connector.close()
        other = MqttSite(site.server, interest_file=file)
        await other.open()
        assert other.received.wanted == {"a", "a.>", "b"}
        await client.unsubscribe("b")
        await until(lambda: other.received.wanted == {"a", "a.>"})
        await other.close()
        file.write_text('{"x": ["a#"')
        last = MqttSite(site.server, interest_file=file)
        await last.open()
        assert not last.received.wanted
        await last.close()

    run_site(steps, interest_file=file)


def test_the_log_file_gives_earlier_interest(run_site: Callable[..., None], tmp_path: Path) -> None:
    """Subscriptions that began and ended before the node came or while it was away are known; no others are given."""
    more = {"log_file": tmp_path / "b01.log", "interest_file": tmp_path / "interest.json"}

    async def steps(site: MqttSite) -> None:
        client = await site.client("one 1 name")
        for wanted in ("a/#", "b 1 c", "$share/g/d"):
            await client.subscribe(wanted)
        await client.unsubscribe("b 1 c")
        await site.open()
        assert site.received.interest == [("a", True), ("a.>", True), ("d", True)]
        await client.subscribe("e")
        await until(lambda: "e" in site.received.wanted)
        await site.connector.close()
        await client.subscribe("f")
        await client.unsubscribe("e")
        await client.unsubscribe("a/#")
        await client.subscribe("a/#")
        other = MqttSite(site.server, **more)
        await other.open()
        assert other.received.wanted == {"a", "a.>", "d", "f"}
        changes = [each for each in other.received.interest if each[0] in "ef"]
        assert changes == [("e", True), ("e", False), ("f", True)]
        assert len(other.received.interest) == 6
        await client.subscribe("g")
        await until(lambda: "g" in other.received.wanted)
        await other.close()

    run_site(steps, **more)


def test_the_log_file_gives_what_happened_during_a_cut(run_site: Callable[..., None], tmp_path: Path) -> None:
    """After a reconnection the connector reads on where it stopped, and reports only changes."""

    async def steps(site: MqttSite) -> None:
        await site.open()
        client = await site.client("stays")
        await client.subscribe("a")
        await client.subscribe("b")
        await until(lambda: site.received.wanted == {"a", "b"})
        with patch.multiple(site.connector._reports, take=DEFAULT, catch_up=DEFAULT):  # As if the log were unreadable.
            await client.subscribe("c")
            await client.unsubscribe("b")
            await site.client("last")
        cut(site.connector)
        await until(lambda: site.received.wanted == {"a", "c"})
        assert site.received.interest[:2] == [("a", True), ("b", True)]
        assert sorted(site.received.interest[2:]) == [("b", False), ("c", True)]  # From the file, or late from the log.

    run_site(steps, log_file=tmp_path / "b01.log")


def test_the_log_file_of_another_broker_is_refused(
    run_site: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in which the connector itself does not appear is named, with what it should be."""
    monkeypatch.setattr("regraft.producers.nodes.mqtt.mqtt_connector.LOG_S_MAX", 0.1)
    (tmp_path / "other.log").write_text("1795627060: someone 1 #\n")

    async def steps(site: MqttSite) -> None:
        with pytest.raises(ConnectorError, match=r"other\.log does not hold the subscription of regraft-b01-\w+"):
            await site.open()

    run_site(steps, log_file=tmp_path / "other.log")


def test_a_cut_connection_loses_and_repeats_nothing_of_qos_1(run_site: Callable[..., None]) -> None:
    """What is published while the connector's connection is cut arrives once and in order when it is back."""

    async def steps(site: MqttSite) -> None:
        await site.open()
        client = await site.client()
        publishing = asyncio.create_task(_publish(client, 400))
        for _ in range(5):
            await asyncio.sleep(0.02)
            cut(site.connector)  # As a network does: the connector notices when it reads.
            await until(lambda: not site.connector.is_open)
            await until(lambda: site.connector.is_open)
        await publishing
        await until(lambda: len(site.received.messages) >= 400)
        await asyncio.sleep(0.1)
        assert [int(message.payload) for message in site.received.messages] == list(range(400))

    run_site(steps)


async def _publish(client: MqttClient, count: int) -> None:
    for number in range(count):
        await client.publish("n", b"%d" % number, qos=1)


def test_a_redelivered_message_is_taken_once(run_site: Callable[..., None]) -> None:
    """A broker that missed an acknowledgement sends the message again with its number; a different message is taken."""

    async def steps(site: MqttSite) -> None:
        await site.open()
        connector, taken = site.connector, site.received.messages
        acknowledge = connector._session.acknowledge
        connector._session.acknowledge = lambda number: None  # As if the connection were cut just then.
        client = await site.client()
        await client.publish("n", b"1", qos=1)
        await until(lambda: len(taken) == 1)
        connector._session.acknowledge = acknowledge
        cut(connector)
        await until(lambda: connector.counts["redelivered"] == 1)
        await client.publish("n", b"1", qos=1)
        await until(lambda: len(taken) == 2)

    run_site(steps)


def test_a_silent_broker_needs_filters(run_site: Callable[..., None]) -> None:
    """If the broker's log cannot be read, the connector says what to do, or uses the configured filters."""

    async def steps(site: MqttSite) -> None:
        with pytest.raises(ConnectorError, match=r"name the filters in connectors\.mqtt\.filters"):
            await site.open()
        other = MqttSite(site.server, filters=["a/#", "b/+"])
        await other.open()
        assert other.received.wanted == {"a", "a.>", "b.*"}
        await (await other.client()).publish("x", b"1", qos=1)
        await until(lambda: len(other.received.messages) == 1)
        await other.close()

    run_site(steps, is_plain=True)


def test_a_filter_that_is_none_is_named() -> None:
    """An invalid filter is named with what to do."""
    with pytest.raises(ConnectorError, match=r"connectors\.mqtt\.filters: 'a#'"):
        asyncio.run(MqttConnector("mqtt://127.0.0.1:1", "b01", filters=["a#"]).start(lambda *_: None, lambda _: None))


def test_a_busy_node_hands_over_many_messages_in_each_turn(run_site: Callable[..., None]) -> None:
    """By default Mosquitto takes 20 of QoS 1 in each: 2,000 a second from a node whose turns take 10 ms."""

    async def steps(site: MqttSite) -> None:
        await site.open()
        for number in range(2_000):
            assert site.connector.publish(LocalMessage("a", b"%d" % number, headers=block_of(MqttFields(qos=1))))
        turns = 0
        while site.connector._session._kept:
            time.sleep(0.01)
            await asyncio.sleep(0)
            turns += 1
        assert turns < 50, turns

    run_site(steps)
