"""Retained messages and wills at brokers that once wanted them: they change, and go, as at their publisher's broker."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.nodes.connectors.connector import Connector, LocalMessage
from regraft.producers.nodes.mqtt.mqtt_connector import MqttConnector
from regraft.producers.nodes.mqtt.mqtt_headers import MqttFields, block_of
from regraft.producers.nodes.mqtt.mqtt_retained import RETAINED_MAX, TOO_MANY, RetainedTopics
from tests.producers.nodes.connector_brokers import Received
from tests.producers.nodes.connector_kit import until
from tests.producers.nodes.mqtt_brokers import MqttClient, MqttServer, needs_mosquitto
from tests.producers.nodes.node_fleet import NodeFleet, is_confirmed, run_on_site
from tests.wait_until import PATIENCE_S

PAIR = ("b01", "b02")
LINE = TreeConfiguration.of(0, PAIR, [PAIR])
MARK, END = "mark", "end"


class RetainedSite:
    """Two Mosquittos with nodes."""

    def __init__(self, directory: Path) -> None:
        self.fleet = NodeFleet(LINE)
        self.servers = {broker: MqttServer(broker, directory).start() for broker in PAIR}
        self.directory = directory
        self.clients: list[MqttClient] = []

    def connector(self, broker: str) -> MqttConnector:
        file = self.directory / f"{broker}.interest.json"
        return MqttConnector(self.servers[broker].url, broker, interest_file=file)

    async def begin(self) -> None:
        connectors: dict[str, Connector] = {broker: self.connector(broker) for broker in PAIR}
        await self.fleet.begin(connectors)
        _, self.marks = await self.watcher("b02", MARK)
        await self.interests("b02", 0)

    async def client(self, broker: str, take: Callable[[Any], None] = lambda _: None, **more: Any) -> MqttClient:
        found = await MqttClient(self.servers[broker].port, take, **more).connected()
        self.clients.append(found)
        return found

    async def watcher(self, broker: str, topic: str) -> tuple[MqttClient, list[bytes]]:
        """Return a client of MQTT 3.1.1, whose interest ends with its connection, and what it gets."""
        got: list[bytes] = []
        client = await self.client(broker, lambda message: got.append(message.payload), version=4)
        await client.subscribe(topic)
        return client, got

    async def interests(self, broker: str, count: int) -> None:
        """Wait until that many subjects, beside the mark, are wanted at a broker, and all know it."""
        node = self.fleet.nodes[broker]
        await until(lambda: node.clients.interest_count == count + 1 and is_confirmed(node))

    async def crossed(self, client: MqttClient) -> None:
        """Wait until the other broker has all that a client of b01 has published."""
        count = len(self.marks)
        await client.publish(MARK, b"", qos=1)
        await until(lambda: len(self.marks) > count)

    async def late(self, broker: str, topic: str) -> list[bytes]:
        """Return what a client gets that subscribes now, until its next message behind that."""
        node = self.fleet.nodes[broker]
        count = node.clients.interest_count
        client, got = await self.watcher(broker, topic)
        await client.subscribe(END)
        await client.publish(END, b"end", qos=1)
        await until(lambda: b"end" in got)
        client.close()
        await until(lambda: node.clients.interest_count == count)
        got.remove(b"end")
        return got

    async def close(self) -> None:
        for client in self.clients:
            client.close()
        await self.fleet.close()
        for server in self.servers.values():
            server.stop()


def run(directory: Path, steps: Callable[[RetainedSite], Awaitable[None]]) -> None:
    needs_mosquitto()
    run_on_site(RetainedSite(directory), steps)


@pytest.mark.stack
def test_a_retained_message_changes_at_every_broker_that_has_it(tmp_path: Path) -> None:
    """Version 2 replaces 1 though nobody there wants the topic any more, and is deleted there, too."""

    async def steps(site: RetainedSite) -> None:
        device = await site.client("b01")
        watcher, got = await site.watcher("b02", "t/#")
        await site.interests("b02", 2)
        await device.publish("t/x", b"1", qos=1, retain=True)
        await until(lambda: got == [b"1"])
        await watcher.unsubscribe("t/#")
        await site.interests("b02", 1)  # What is retained there.
        await device.publish("t/x", b"2", qos=1, retain=True)
        await site.crossed(device)
        assert await site.late("b02", "t/x") == [b"2"]
        await device.publish("t/x", b"", qos=1, retain=True)
        await site.crossed(device)
        assert await site.late("b02", "t/x") == []
        await site.interests("b02", 0)

    run(tmp_path, steps)


@pytest.mark.stack
def test_a_device_that_is_back_does_not_stay_offline(tmp_path: Path) -> None:
    """A last will is retained where it was watched, and replaced when the device is back, watched or not."""

    async def steps(site: RetainedSite) -> None:
        watcher, got = await site.watcher("b02", "state/+")
        await site.interests("b02", 1)
        device = await site.client("b01", name="device", will="state/d1")
        await device.publish("state/d1", b"1", qos=1, retain=True)
        await until(lambda: got == [b"1"])
        device.paho.loop_stop()
        device.paho.socket().close()  # Without a word: the broker publishes its will.
        await until(lambda: got == [b"1", b"0"])
        await watcher.unsubscribe("state/+")
        await site.interests("b02", 1)
        back = await site.client("b01", name="device", will="state/d1")
        await back.publish("state/d1", b"1", qos=1, retain=True)
        await site.crossed(back)
        assert await site.late("b02", "state/d1") == [b"1"]

    run(tmp_path, steps)


@pytest.mark.stack
def test_a_node_knows_after_a_restart_what_its_broker_retains(tmp_path: Path) -> None:
    """Its next incarnation wants the topics, until a local client deletes one."""
    needs_mosquitto()
    server = MqttServer("b01", tmp_path).start()

    async def opened() -> tuple[MqttConnector, Received]:
        connector, received = MqttConnector(server.url, "b01", interest_file=tmp_path / "interest.json"), Received()
        await connector.start(lambda *one: received.interest.append(one), received.messages.append)
        return connector, received

    async def go() -> None:
        connector, received = await opened()
        for subject in ("t.x", "t.y"):
            assert connector.publish(LocalMessage(subject, b"1", headers=block_of(MqttFields(is_retained=True, qos=1))))
        assert connector.publish(LocalMessage("t.z", b"1"))
        assert received.wanted == {"t.x", "t.y"}
        await connector.close()
        connector, received = await opened()
        assert received.wanted == {"t.x", "t.y"}
        client = await MqttClient(server.port, lambda _: None).connected()
        await client.publish("t/x", b"", qos=1, retain=True)
        await until(lambda: received.wanted == {"t.y"})
        client.close()
        await connector.close()

    try:
        asyncio.run(asyncio.wait_for(go(), PATIENCE_S))
    finally:
        server.stop()


def test_retained_topics_are_bounded_and_end(tmp_path: Path) -> None:
    """Beyond the bound messages are not retained; what is deleted or has expired makes room, and is not wanted."""
    changes: list[tuple[str, bool]] = []
    counts: Counter[str] = Counter()
    topics = RetainedTopics(lambda subject, wanted: changes.append((subject, wanted)), tmp_path / "kept.json", counts)
    assert topics.may_retain("a")
    topics.note("a", is_deleted=False, expiry_s=None, now_s=100.0)
    topics.note("a", is_deleted=False, expiry_s=10, now_s=101.0)
    topics.note("never", is_deleted=True, expiry_s=None, now_s=101.0)
    topics.note("b", is_deleted=False, expiry_s=None, now_s=102.0)
    assert changes == [("a", True), ("b", True)]
    topics.store()
    topics.expire(112.0)
    topics.note("b", is_deleted=True, expiry_s=None, now_s=113.0)
    assert changes[2:] == [("a", False), ("b", False)]
    for number in range(RETAINED_MAX):
        topics.note(f"n{number}", is_deleted=False, expiry_s=None, now_s=120.0)
    assert topics.may_retain("n0")
    assert not topics.may_retain("other")
    assert counts == {TOO_MANY: 1}
    del changes[:]
    RetainedTopics(lambda subject, wanted: changes.append((subject, wanted)), tmp_path / "kept.json", counts).restore()
    assert sorted(changes) == [("a", True), ("b", True)]
    (tmp_path / "kept.json").write_text(json.dumps({"a b": None, "c": "soon"}))
    RetainedTopics(lambda *_: None, tmp_path / "kept.json", counts).restore()  # Nothing of it can be used.
