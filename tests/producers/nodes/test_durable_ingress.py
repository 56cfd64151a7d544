"""Durable ingress: what was acknowledged to a publisher crosses, even if node and broker die meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from regraft.overlay.overlay_configuration import BrokerChange
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.nodes.connectors.connector import Connector, ConnectorError, LocalMessage
from regraft.producers.nodes.mqtt.mqtt_connector import MqttConnector
from regraft.producers.nodes.nats.nats_connector import NatsConnector
from regraft.schemas.plan import PlanPhase
from tests.producers.nodes.memory_connector import MemoryConnector
from tests.producers.nodes.mqtt_brokers import MqttClient, MqttServer, needs_mosquitto
from tests.producers.nodes.nats_servers import NatsServer, needs_nats
from tests.producers.nodes.node_fleet import PATIENT, NodeFleet, is_confirmed
from tests.wait_until import PATIENCE_S

BROKERS = ("b01", "b02", "b03")
LINE = TreeConfiguration.of(0, BROKERS, [("b01", "b02"), ("b02", "b03")])
STREAM = "ORDERS"


def run_fleet(connectors: dict[str, Connector], steps: Callable[[NodeFleet], Awaitable[None]]) -> None:
    async def go() -> None:
        fleet = NodeFleet(LINE, limits=PATIENT)
        try:
            await fleet.begin(connectors)
            await asyncio.wait_for(steps(fleet), PATIENCE_S)
        finally:
            await fleet.close()
        assert fleet.failures == []

    asyncio.run(go())


async def repair_without_b01(fleet: NodeFleet) -> None:
    plan = await fleet.change_to([("b02", "b03")], ("b02", "b03"), BrokerChange(lost=frozenset({"b01"})))
    assert plan.phase is PlanPhase.VERIFYING


async def take_b01_in(fleet: NodeFleet, connector: Connector) -> None:
    await fleet.begin_node("b01", connector, is_outside=True)
    await fleet.install("b01")
    links = [("b01", "b02"), ("b02", "b03")]
    plan = await fleet.change_to(links, BROKERS, BrokerChange(joined=frozenset({"b01"})))
    assert plan.phase is PlanPhase.VERIFYING


def test_a_receipt_waits_for_the_neighbour() -> None:
    """A message is released once the neighbour has it, not while their link is cut; unwanted ones at once."""
    connectors = {broker: MemoryConnector() for broker in BROKERS}
    connectors["b03"].want("data")

    async def steps(fleet: NodeFleet) -> None:
        while not fleet.nodes["b01"].clients.are_publishers_known or not is_confirmed(fleet.nodes["b03"]):
            await asyncio.sleep(0.01)
        connectors["b01"].publish_locally(LocalMessage("other", b"", receipt=1))
        while connectors["b01"].released != [1]:
            await asyncio.sleep(0.01)
        fleet.proxies["b02"].is_refusing = True
        fleet.proxies["b02"].cut()
        while any(peer == "b02" for peer, _ in fleet.nodes["b01"].links.round_trips()):
            await asyncio.sleep(0.01)
        connectors["b01"].publish_locally(LocalMessage("data", b"1", receipt=2))
        await asyncio.sleep(0.1)
        assert connectors["b01"].released == [1]
        fleet.proxies["b02"].is_refusing = False
        while connectors["b01"].released != [1, 2] or not connectors["b03"].handed:
            await asyncio.sleep(0.01)
        assert [message.payload for message in connectors["b03"].handed] == [b"1"]

    run_fleet(dict(connectors), steps)


def test_a_receipt_survives_a_time_outside_the_overlay() -> None:
    """What is published while the node is outside, or has begun another incarnation, crosses once a plan admits it."""
    connectors = {broker: MemoryConnector() for broker in BROKERS}
    connectors["b03"].want("data")

    async def steps(fleet: NodeFleet) -> None:
        await fleet.kill("b01")
        await repair_without_b01(fleet)
        await fleet.begin_node("b01", connectors["b01"], is_outside=True)
        connectors["b01"].publish_locally(LocalMessage("data", b"1", receipt=1))
        connectors["b01"].publish_locally(LocalMessage("data", b"lost"))
        await fleet.install("b01")
        connectors["b01"].publish_locally(LocalMessage("data", b"2", receipt=2))
        await asyncio.sleep(0.05)
        assert connectors["b01"].released == []
        links = [("b01", "b02"), ("b02", "b03")]
        await fleet.change_to(links, BROKERS, BrokerChange(joined=frozenset({"b01"})))
        while connectors["b01"].released != [1, 2]:
            await asyncio.sleep(0.01)
        while len(connectors["b03"].handed) < 2:
            await asyncio.sleep(0.01)
        assert [message.payload for message in connectors["b03"].handed] == [b"1", b"2"]

    run_fleet(dict(connectors), steps)


@pytest.mark.stack
def test_a_stream_survives_the_death_of_node_and_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that the server acknowledged is in the other stream, once, although node and server are killed.

    Both streams are sources; messages that came from the overlay do not cross again.
    """
    needs_nats()
    monkeypatch.setattr("regraft.producers.nodes.nats.jetstream_ingress.ACK_WAIT_S", 0.5)
    import nats

    servers = {
        broker: NatsServer(broker, tmp_path, f'jetstream {{ store_dir: "{tmp_path}/{broker}" }}') for broker in BROKERS
    }
    acknowledged: list[int] = []

    def connector_of(broker: str) -> NatsConnector:
        return NatsConnector(servers[broker].leaf_url, broker, stream="" if broker == "b02" else STREAM)

    async def connect(broker: str) -> tuple[Any, Any]:
        client = await nats.connect(servers[broker].url)
        return client, client.jetstream()

    async def publish(stream: Any, count: int) -> None:
        for number in range(len(acknowledged), len(acknowledged) + count):
            await stream.publish("orders.eu", b"%d" % number)
            acknowledged.append(number)

    async def steps(fleet: NodeFleet) -> None:
        client, stream = await connect("b01")
        other, copy = await connect("b03")
        while not is_confirmed(fleet.nodes["b03"]) or not fleet.nodes["b01"].clients.are_publishers_known:
            await asyncio.sleep(0.01)
        publishing = asyncio.create_task(publish(stream, 60))
        while len(acknowledged) < 30:
            await asyncio.sleep(0.005)
        await fleet.kill("b01")
        await repair_without_b01(fleet)
        await publishing
        await client.close()
        servers["b01"].stop()  # By SIGKILL.
        servers["b01"].start()
        client, stream = await connect("b01")
        publishing = asyncio.create_task(publish(stream, 60))
        await take_b01_in(fleet, connector_of("b01"))
        await publishing
        while (await copy.stream_info(STREAM)).state.messages < len(acknowledged):
            await asyncio.sleep(0.05)
        while len(fleet.nodes["b01"].receipts):
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        assert (await copy.stream_info(STREAM)).state.messages == len(acknowledged)
        assert (await stream.stream_info(STREAM)).state.messages == len(acknowledged)
        reader = await copy.subscribe("orders.>", ordered_consumer=True)
        came = [int((await reader.next_msg(5)).data) for _ in acknowledged]
        assert sorted(came) == acknowledged == list(range(120))
        await client.close()
        await other.close()

    async def make_streams() -> None:
        for broker in ("b01", "b03"):
            client, stream = await connect(broker)
            await stream.add_stream(name=STREAM, subjects=["orders.>"])
            await client.close()

    try:
        for server in servers.values():
            server.start()
        asyncio.run(make_streams())
        run_fleet({broker: connector_of(broker) for broker in BROKERS}, steps)
    finally:
        for server in servers.values():
            server.stop()


def test_a_missing_stream_is_reported(tmp_path: Path) -> None:
    """A node that should read from a stream does not start without it."""
    needs_nats()
    server = NatsServer("b01", tmp_path, f'jetstream {{ store_dir: "{tmp_path}/b01" }}').start()
    try:
        with pytest.raises(ConnectorError, match=r"stream 'ORDERS' .* create the stream"):
            asyncio.run(NatsConnector(server.leaf_url, "b01", stream=STREAM).start(lambda *_: None, lambda _: None))
    finally:
        server.stop()


def test_a_session_survives_the_death_of_a_node(tmp_path: Path) -> None:
    """Everything that an MQTT broker acknowledged reaches a remote subscriber at least once, although the node dies."""
    needs_mosquitto()
    servers = {broker: MqttServer(broker, tmp_path).start() for broker in BROKERS}
    published: list[int] = []
    got: list[int] = []

    def connector_of(broker: str) -> MqttConnector:
        return MqttConnector(servers[broker].url, broker, is_durable=True)

    async def publish(client: MqttClient) -> None:
        for number in range(120):
            await client.publish("data/x", b"%d" % number, qos=1)
            published.append(number)

    async def steps(fleet: NodeFleet) -> None:
        subscriber = await MqttClient(servers["b03"].port, lambda message: got.append(int(message.payload))).connected()
        await subscriber.subscribe("data/#")
        publisher = await MqttClient(servers["b01"].port, lambda _: None).connected()
        while fleet.nodes["b03"].clients.interest_count < 2 or not is_confirmed(fleet.nodes["b03"]):
            await asyncio.sleep(0.01)
        publishing = asyncio.create_task(publish(publisher))
        while len(published) < 30:
            await asyncio.sleep(0.005)
        await fleet.kill("b01")
        await repair_without_b01(fleet)
        await take_b01_in(fleet, connector_of("b01"))
        await publishing
        while not set(got) >= set(published):
            await asyncio.sleep(0.02)
        subscriber.close()
        publisher.close()

    try:
        run_fleet({broker: connector_of(broker) for broker in BROKERS}, steps)
    finally:
        for server in servers.values():
            server.stop()


def test_a_session_survives_the_death_of_its_broker(tmp_path: Path) -> None:
    """A Mosquitto that persists at once delivers what it acknowledged in the node's absence, although it is killed."""
    needs_mosquitto()
    more = f"persistence true\npersistence_location {tmp_path}/\nautosave_on_changes true\nautosave_interval 1\n"
    server = MqttServer("b01", tmp_path, more)
    stored = tmp_path / "mosquitto.db"
    received: list[int] = []

    async def open_connector() -> MqttConnector:
        connector = MqttConnector(server.url, "b01", is_durable=True)
        await connector.start(lambda *_: None, lambda message: received.append(int(message.payload)))
        return connector

    async def go() -> None:
        await (await open_connector()).close()
        client = await MqttClient(server.port, lambda _: None).connected()
        for number in range(60):
            await client.publish("data/x", b"%d" % number, qos=1)
        client.close()
        while b"data/x59" not in (stored.read_bytes() if stored.exists() else b""):
            await asyncio.sleep(0.01)
        server.stop()
        server.start()
        connector = await open_connector()
        while len(received) < 60:
            await asyncio.sleep(0.01)
        assert received == list(range(60))
        await connector.close()

    try:
        server.start()
        asyncio.run(asyncio.wait_for(go(), PATIENCE_S))
    finally:
        server.stop()
