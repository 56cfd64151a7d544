"""Brokers that reach each other by themselves: a cluster, a leaf link, a bridge, one server. No message circulates."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.nodes.connectors import look_for_nodes
from regraft.producers.nodes.connectors.ask_api import BrokerApi
from regraft.producers.nodes.connectors.connector import Connector
from regraft.producers.nodes.mqtt.mqtt_connector import MqttConnector
from regraft.producers.nodes.nats.nats_connector import NatsConnector
from regraft.producers.real_fleet.link_proxy import LinkProxy
from tests.producers.nodes.connector_kit import must_give_way, needs, until
from tests.producers.nodes.mqtt_brokers import MqttClient, MqttServer
from tests.producers.nodes.nats_servers import NatsServer
from tests.producers.nodes.node_fleet import NodeFleet
from tests.producers.nodes.rabbit_servers import RabbitClient, shared_rabbit
from tests.producers.nodes.server_process import free_port
from tests.wait_until import PATIENCE_S

pytestmark = pytest.mark.stack

PAIR = ("b01", "b02")
MESSAGES = 10
PLACES = (("protocol", "amqp091"), ("uri", "amqp://"))  # Of both ends of a shovel: this server.


class Site:
    """Two brokers, ways to open a connector at each, and a client of each; ``link`` makes the native link."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.servers: list[Any] = []
        self.clients: list[Any] = []
        self.got: Counter[bytes] = Counter()

    async def begin(self) -> None: ...

    async def link(self) -> None: ...

    def connector(self, broker: str) -> Connector: ...

    async def publish(self, payload: bytes) -> None: ...

    async def close(self) -> None:
        for client in self.clients:
            closed = client.close()
            if closed is not None:
                await closed
        for server in self.servers:
            server.stop()


async def joined(servers: Iterable[NatsServer], path: str, parts: list[str]) -> None:
    """Wait until all servers list links at a path of their monitoring ports, in each of these parts."""
    for server in servers:
        api = BrokerApi(f"http://127.0.0.1:{server.api_port}")
        async with asyncio.timeout(PATIENCE_S):
            while not all(map((await asyncio.to_thread(api.ask, path, dict)).get, parts)):
                await asyncio.sleep(0.02)


class Nats(Site):
    """Two servers; the link is a leaf link that carries only data, so that nodes cannot find each other over it."""

    DENIED = "_REGRAFT.>"

    async def begin(self) -> None:
        self.of = {broker: NatsServer(broker, self.directory).start() for broker in PAIR}
        self.servers += self.of.values()

    async def link(self) -> None:
        first, second = self.of.values()
        second.stop()
        denied = f'deny_imports: ["{self.DENIED}"], deny_exports: ["{self.DENIED}"]'
        remote = f'remotes: [{{ url: "nats://127.0.0.1:{first.leaf_port}", {denied} }}]'
        text = second.file.read_text()
        second.file.write_text(text.replace("leafnodes { ", f"leafnodes {{ {remote}, "))
        second.start()
        await joined(self.of.values(), "/leafz", ["leafs"])

    def connector(self, broker: str) -> Connector:
        return NatsConnector(self.of[broker].leaf_url, broker)

    async def connect(self) -> None:
        import nats

        for server in self.of.values():
            client = await nats.connect(server.url)
            self.clients.append(client)

            async def take(message: Any) -> None:
                self.got[message.data] += 1

            await client.subscribe("data.>", cb=take)
            await client.flush()

    async def publish(self, payload: bytes) -> None:
        await self.clients[0].publish("data.x", payload)


class Mqtt(Site):
    """Two Mosquittos; the link is a bridge of MQTT 3.1.1 for data, which takes off what nodes add to a message."""

    TOPIC = "data/#"

    async def begin(self) -> None:
        self.of = {broker: MqttServer(broker, self.directory).start() for broker in PAIR}
        self.servers += self.of.values()

    async def link(self) -> None:
        first, second = self.of.values()
        first.stop()
        with first.file.open("a") as file:
            file.write(f"\nconnection over\naddress 127.0.0.1:{second.port}\ntopic {self.TOPIC} both 0\n")
        first.start()
        states: list[bytes] = []
        client = await MqttClient(second.port, lambda message: states.append(message.payload)).connected()
        await client.subscribe("$SYS/broker/connection/+/state")
        await until(lambda: b"1" in states)
        client.close()

    def connector(self, broker: str) -> Connector:
        return MqttConnector(self.of[broker].url, broker)

    async def connect(self) -> None:
        for server in self.of.values():
            client = await MqttClient(server.port, self._take).connected()
            await client.subscribe("data/#")
            self.clients.append(client)

    def _take(self, message: Any) -> None:
        self.got[bytes(message.payload)] += 1

    async def publish(self, payload: bytes) -> None:
        self.clients[0].paho.publish("data/x", payload)


class Amqp(Site):
    """Two exchanges of one RabbitMQ; the link is a binding in each direction, as federation makes them."""

    KEY = "data.#"

    async def begin(self) -> None:
        self.server = shared_rabbit()
        self.of = {broker: f"{broker}-{secrets.token_hex(4)}" for broker in PAIR}
        for exchange in self.of.values():
            await (await RabbitClient(self.server.port, exchange, lambda _: None).connected()).close()

    async def link(self) -> None:
        first, second = self.of.values()
        await asyncio.to_thread(self._bind, first, second)

    def _bind(self, first: str, second: str) -> None:
        import pika

        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.server.port))
        for source, destination in ((first, second), (second, first)):
            connection.channel().exchange_bind(destination, source, self.KEY)
        connection.close()

    def connector(self, broker: str) -> Connector:
        from regraft.producers.nodes.amqp.amqp_address import AmqpPlace
        from regraft.producers.nodes.amqp.amqp_connector import AmqpConnector

        return AmqpConnector(self.server.url, broker, place=AmqpPlace(self.of[broker], self.server.api))

    async def connect(self) -> None:
        for exchange in self.of.values():
            client = await RabbitClient(self.server.port, exchange, self._take).connected()
            await client.bind("data.#")
            self.clients.append(client)

    def _take(self, delivered: Any) -> None:
        self.got[delivered[3]] += 1

    async def publish(self, payload: bytes) -> None:
        await self.clients[0].publish("data.x", payload)


class Federation(Amqp):
    """Each exchange is federated with the other."""

    WAYS = ((0, 1), (1, 0))
    PARTS: tuple[str, ...] = ("parameters/federation-upstream", "policies")

    async def link(self) -> None:
        exchanges = list(self.of.values())
        for source, destination in ((exchanges[one], exchanges[other]) for one, other in self.WAYS):
            self.bring(source, destination)
        await asyncio.sleep(1.5)

    def bring(self, source: str, destination: str) -> None:
        used = {"federation-upstream": destination}
        policy = {"pattern": f"^{destination}$", "definition": used, "apply-to": "exchanges"}
        upstream = {"value": {"uri": "amqp://", "exchange": source}}  # At this server.
        self.server.put(f"/api/parameters/federation-upstream/%2F/{destination}", upstream)
        self.server.put(f"/api/policies/%2F/{destination}", policy)

    async def close(self) -> None:
        for _, number in self.WAYS:
            destination = list(self.of.values())[number]
            for kind in self.PARTS:
                self.server.put(f"/api/{kind}/%2F/{destination}", {}, "DELETE")
        await super().close()


class FederatedExchanges(Federation):
    """The same from the beginning."""

    async def begin(self) -> None:
        await super().begin()
        await self.link()


class FederationOneWay(FederatedExchanges):
    """Only the second exchange has an upstream."""

    WAYS = ((0, 1),)


class ShovelOneWay(FederationOneWay):
    """A shovel moves everything from the first exchange to the second; two would circulate it without any node."""

    PARTS = ("parameters/shovel",)

    def bring(self, source: str, destination: str) -> None:
        protocols, uris = ({f"{end}-{what}": value for end in ("src", "dest")} for what, value in PLACES)
        ends = {"src-exchange": source, "src-exchange-key": "#", "dest-exchange": destination}
        self.server.put(f"/api/parameters/shovel/%2F/{destination}", {"value": {**protocols, **uris, **ends}})


class NatsCluster(Nats):
    """A cluster of two servers."""

    async def begin(self) -> None:
        ports = [free_port(), free_port()]
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
        self.of = {}
        for broker, port in zip(PAIR, ports, strict=True):
            cluster = f'cluster {{ name: c, listen: "127.0.0.1:{port}", routes: [{routes}] }}'
            self.of[broker] = NatsServer(broker, self.directory, cluster).start()
        self.servers += self.of.values()
        await joined(self.of.values(), "/routez", ["routes"])


class NatsGateways(Nats):
    """Two clusters of one server each, joined by gateways; beside leaf ports these need a system account."""

    ACCOUNTS = "accounts { A: { users: [{ user: a, password: a }] }, SYS: {} }\nsystem_account: SYS\nno_auth_user: a"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.way = LinkProxy(lambda: self.ports["b01"])

    async def begin(self) -> None:
        ports = self.ports = {broker: free_port() for broker in PAIR}
        await self.way.start()
        self.of = {}
        for broker, port in ports.items():
            remotes = "" if broker == "b01" else f'{{ name: b01, url: "nats://127.0.0.1:{self.way.port}" }}'
            gateway = f'gateway {{ name: {broker}, listen: "127.0.0.1:{port}", gateways: [{remotes}] }}'
            self.of[broker] = NatsServer(broker, self.directory, f"{gateway}\n{self.ACCOUNTS}").start()
        self.servers += self.of.values()
        if not self.way.is_refusing:
            await joined(self.of.values(), "/gatewayz", ["outbound_gateways", "inbound_gateways"])

    async def close(self) -> None:
        await super().close()
        await self.way.close()


class ClosedGateway(NatsGateways):
    """Two clusters whose gateways do not reach each other yet."""

    async def begin(self) -> None:
        self.way.is_refusing = True
        await super().begin()


class NatsLeafLink(Nats):
    """Two servers with a leaf link that carries everything."""

    DENIED = "nothing"

    async def begin(self) -> None:
        await super().begin()
        await self.link()


class MqttBridge(Mqtt):
    """Two Mosquittos with a bridge for everything."""

    TOPIC = "#"

    async def begin(self) -> None:
        await super().begin()
        await self.link()


WHOLE: dict[type[Site], str] = {
    NatsCluster: "nats",
    NatsGateways: "nats",
    NatsLeafLink: "nats",
    MqttBridge: "mqtt",
    FederatedExchanges: "amqp",
}
PARTIAL: dict[type[Site], str] = {Nats: "nats", Mqtt: "mqtt", Amqp: "amqp", Federation: "amqp"}


def run(kind: type[Site], server: str, directory: Path, steps: Callable[[Any], Awaitable[None]]) -> None:
    needs(server)

    async def go() -> None:
        site = kind(directory)
        try:
            await site.begin()
            await asyncio.wait_for(steps(site), PATIENCE_S)
        finally:
            await site.close()

    asyncio.run(go())


@pytest.mark.parametrize("kind", WHOLE, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("order", [PAIR, PAIR[::-1]], ids=["first by name", "last by name"])
def test_a_second_node_does_not_open(kind: type[Site], order: tuple[str, str], tmp_path: Path) -> None:
    """The node that starts second refuses, with the other's name, and the first stays open."""

    async def steps(site: Any) -> None:
        connectors = [site.connector(broker) for broker in order]
        try:
            await connectors[0].start(lambda *_: None, lambda _: None)
            await must_give_way(connectors[1], order[0])
            assert connectors[0].is_open
        finally:
            for connector in connectors:
                await connector.close()

    run(kind, WHOLE[kind], tmp_path, steps)


@pytest.mark.parametrize("kind", PARTIAL, ids=lambda kind: kind.__name__)
def test_a_link_made_later_starts_no_storm(kind: type[Site], tmp_path: Path) -> None:
    """While both nodes run, a native link carries the data: all arrive, no message more than a few times."""

    def dropped(fleet: NodeFleet) -> int:
        counts = [node.connector.counts for node in fleet.nodes.values()]
        return sum(each["carried_by_another"] + each["echoed"] for each in counts)

    async def steps(site: Any) -> None:
        fleet = NodeFleet(TreeConfiguration.of(0, PAIR, [PAIR]))
        await fleet.begin({broker: site.connector(broker) for broker in PAIR})
        await site.link()
        while not all(node.connector.is_open for node in fleet.nodes.values()):  # Else they miss who subscribes.
            await asyncio.sleep(0.05)
        await site.connect()
        await fleet.all_confirmed()
        published = 0
        while published < MESSAGES or not dropped(fleet):  # The brokers may take long to open the link.
            await site.publish(b"%d" % published)
            published += 1
            await asyncio.sleep(0.1)
        await asyncio.sleep(2)
        await fleet.close()
        assert len(site.got) == published
        settled = site.got.total()
        assert settled <= 40 * published, site.got  # Without an end, it would be thousands.
        await asyncio.sleep(1)
        assert site.got.total() == settled

    run(kind, PARTIAL[kind], tmp_path, steps)


def test_a_gateway_that_opens_later_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No leaf link learns who listens beyond a gateway, so nodes ask again and again; the last by name gives way."""
    monkeypatch.setattr(look_for_nodes, "ASK_S", 0.5)

    async def steps(site: Any) -> None:
        connectors = {broker: site.connector(broker) for broker in PAIR}
        for connector in connectors.values():
            await connector.start(lambda *_: None, lambda _: None)
        site.way.is_refusing = False
        await until(lambda: not connectors["b02"].is_open)
        assert connectors["b01"].is_open
        assert "node b01" in connectors["b02"].error
        for connector in connectors.values():
            await connector.close()

    run(ClosedGateway, "nats", tmp_path, steps)


@pytest.mark.parametrize("kind", [FederationOneWay, ShovelOneWay])
def test_the_end_of_a_way_in_one_direction_is_not_ready(
    kind: type[Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing circulates over it, so both nodes stay open; the one at its end names the other."""
    monkeypatch.setattr(look_for_nodes, "ASK_S", 0.5)

    async def steps(site: Any) -> None:
        connectors = {broker: site.connector(broker) for broker in PAIR}
        for connector in connectors.values():
            await connector.start(lambda *_: None, lambda _: None)
        await until(lambda: "node b01" in connectors["b02"].error)
        assert all(connector.is_open for connector in connectors.values())
        assert not connectors["b01"].error
        for connector in connectors.values():
            await connector.close()

    run(kind, "amqp", tmp_path, steps)
