"""Four nodes next to four real brokers, of one kind or of all, with real clients: plans, cuts, a death, a repair."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from regraft.overlay.overlay_configuration import BrokerChange, OverlayConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.nodes.connectors.connector import Connector
from regraft.producers.nodes.mqtt.mqtt_connector import MqttConnector
from regraft.producers.nodes.nats.nats_connector import NatsConnector
from regraft.schemas.plan import PlanPhase
from tests.producers.drive_plan import random_swaps
from tests.producers.nodes.connector_kit import needs
from tests.producers.nodes.mqtt_brokers import MqttClient, MqttServer
from tests.producers.nodes.nats_servers import NatsServer
from tests.producers.nodes.node_fleet import NodeFleet, NodeLedger, run_on_site
from tests.producers.nodes.rabbit_servers import RabbitClient, shared_rabbit

pytestmark = pytest.mark.stack

BROKERS = ("b01", "b02", "b03", "b04")
LINE = TreeConfiguration.of(0, BROKERS, [("b01", "b02"), ("b02", "b03"), ("b03", "b04")])
DELAYS_S = {"b02": 0.010, "b03": 0.040, "b04": 0.003}


Take = Callable[[str, bytes], None]


class NatsAtServer:
    """A client of a NATS server; its messages are passed to ``take``."""

    def __init__(self, client: Any) -> None:
        self.client = client

    @classmethod
    async def at(cls, server: NatsServer, take: Take) -> NatsAtServer:
        import nats

        found = cls(await nats.connect(server.url))

        async def receive(message: Any) -> None:
            take(message.subject, message.data)

        await found.client.subscribe("data.*", cb=receive)
        await found.client.flush()
        return found

    async def publish(self, broker: str, payload: bytes) -> None:
        await self.client.publish(f"data.{broker}", payload)

    async def answer(self) -> None:
        async def act(message: Any) -> None:
            await message.respond(message.data + b"!")

        await self.client.subscribe("svc", queue="workers", cb=act)
        await self.client.flush()

    async def ask(self) -> bytes | None:
        import nats.errors

        try:
            return bytes((await self.client.request("svc", b"hello", timeout=0.5)).data)
        except (nats.errors.TimeoutError, nats.errors.NoRespondersError):  # The latter until the overlay knows one.
            await asyncio.sleep(0.02)
            return None

    async def close(self) -> None:
        await self.client.close()


class MqttAtServer:
    """The same for an MQTT broker; answers arrive at a separate topic."""

    def __init__(self, server: MqttServer, name: str, take: Take) -> None:
        self.answers: list[bytes] = []
        self.take, self.inbox = take, f"answers/{name}"
        self.client = MqttClient(server.port, self._receive)

    @classmethod
    async def at(cls, server: MqttServer, take: Take) -> MqttAtServer:
        found = cls(server, server.file.stem, take)
        await found.client.connected()
        await found.client.subscribe("data/+")
        await found.client.subscribe(found.inbox)
        return found

    def _receive(self, message: Any) -> None:
        if message.topic == self.inbox:
            self.answers.append(message.payload)
        elif message.topic == "svc":
            properties = message.properties
            self.client.paho.publish(properties.ResponseTopic, message.payload + b"!")
        else:
            self.take(message.topic.replace("/", "."), message.payload)

    async def publish(self, broker: str, payload: bytes) -> None:
        self.client.paho.publish(f"data/{broker}", payload)

    async def answer(self) -> None:
        await self.client.subscribe("$share/workers/svc")

    async def ask(self) -> bytes | None:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.PUBLISH)
        properties.ResponseTopic = self.inbox
        self.client.paho.publish("svc", b"hello", properties=properties)
        for _ in range(50):
            if self.answers:
                return self.answers[0]
            await asyncio.sleep(0.01)
        return None

    async def close(self) -> None:
        self.client.close()


class RabbitExchange:
    """A topic exchange of the RabbitMQ that all tests share, in the place of a broker."""

    def __init__(self, broker: str, _directory: Path) -> None:
        self.broker, self.exchange = broker, f"{broker}-{secrets.token_hex(4)}"
        self.server = shared_rabbit()

    def start(self) -> None:
        """Do nothing: the first client declares the exchange."""

    def stop(self) -> None:
        """Do nothing: the server ends with the tests."""

    async def make(self) -> None:
        client = await RabbitClient(self.server.port, self.exchange, lambda _: None).connected()
        await client.close()

    def connector(self) -> Connector:
        from regraft.producers.nodes.amqp.amqp_address import AmqpPlace
        from regraft.producers.nodes.amqp.amqp_connector import AmqpConnector

        return AmqpConnector(self.server.url, self.broker, place=AmqpPlace(self.exchange, self.server.api))


class AmqpAtServer:
    """The same for an exchange; answers arrive at a separate key."""

    def __init__(self, server: RabbitExchange, take: Take) -> None:
        self.answers: list[bytes] = []
        self.take, self.inbox = take, f"answers.{server.broker}"
        self.client = RabbitClient(server.server.port, server.exchange, self._receive)

    @classmethod
    async def at(cls, server: RabbitExchange, take: Take) -> AmqpAtServer:
        found = cls(server, take)
        await found.client.connected()
        for key in ("data.*", found.inbox):
            await found.client.bind(key)
        return found

    def _receive(self, delivered: Any) -> None:
        _, deliver, properties, body = delivered
        if deliver.routing_key == self.inbox:
            self.answers.append(body)
        elif deliver.routing_key == "svc":
            self.client.main.channel.basic_publish(self.client.exchange, properties.reply_to, body + b"!")
        else:
            self.take(deliver.routing_key, body)

    async def publish(self, broker: str, payload: bytes) -> None:
        await self.client.publish(f"data.{broker}", payload)

    async def answer(self) -> None:
        await self.client.bind("svc")

    async def ask(self) -> bytes | None:
        await self.client.publish("svc", b"hello", reply_to=self.inbox)
        for _ in range(50):
            if self.answers:
                return self.answers[0]
            await asyncio.sleep(0.01)
        return None

    async def close(self) -> None:
        await self.client.close()


class RealSite:
    """Servers, nodes, and at each server a publisher and a subscriber to all data."""

    def __init__(self, kind: str, directory: Path, configuration: OverlayConfiguration = LINE) -> None:
        self.fleet = NodeFleet(configuration, DELAYS_S)
        self.brokers = configuration.brokers
        for each in kind.split(", "):
            needs(each)
        kinds = kind.split(", ") * len(self.brokers)
        self.kind_of = dict(zip(self.brokers, (KINDS[each] for each in kinds), strict=False))
        self.servers = {broker: self.kind_of[broker][0](broker, directory) for broker in self.brokers}
        self.clients: dict[str, Any] = {}
        self.published = dict.fromkeys(self.brokers, 0)
        self.ledger = NodeLedger()

    async def begin(self) -> None:
        for server in self.servers.values():
            server.start()
            if isinstance(server, RabbitExchange):
                await server.make()
        connectors = {broker: self.kind_of[broker][2](server, broker) for broker, server in self.servers.items()}
        await self.fleet.begin(connectors)
        for broker, server in self.servers.items():

            def take(subject: str, payload: bytes, broker: str = broker) -> None:
                self.ledger.take(subject.split(".")[1], broker, int(payload))

            self.clients[broker] = await self.kind_of[broker][1].at(server, take)
        await self.fleet.all_confirmed()

    async def publish(self, broker: str, size_bytes: int = 0) -> None:
        number = self.published[broker]
        self.published[broker] += 1
        await self.clients[broker].publish(broker, str(number).encode().ljust(size_bytes))

    async def publish_until(self, stop: asyncio.Event, brokers: tuple[str, ...] = ()) -> None:
        while not stop.is_set():
            for broker in brokers or self.brokers:
                await self.publish(broker)
            await asyncio.sleep(0.005)

    def owed(self, brokers: tuple[str, ...] = ()) -> dict[tuple[str, str], range]:
        """Return what is owed: every client gets everything, including what is published at its own server."""
        brokers = brokers or self.brokers
        return {(a, b): range(self.published[a]) for a in brokers for b in brokers}

    async def all_there(self, brokers: tuple[str, ...] = ()) -> None:
        owed = self.owed(brokers)
        while any(len(self.ledger.came.get(pair, ())) < len(numbers) for pair, numbers in owed.items()):
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)  # Time for what should not arrive.

    async def close(self) -> None:
        for client in self.clients.values():
            await client.close()
        await self.fleet.close()
        for server in self.servers.values():
            server.stop()


KINDS: dict[str, tuple[Any, Any, Callable[[Any, str], Connector]]] = {
    "nats": (NatsServer, NatsAtServer, lambda server, broker: NatsConnector(server.leaf_url, broker)),
    "mqtt": (MqttServer, MqttAtServer, lambda server, broker: MqttConnector(server.url, broker)),
    "amqp": (RabbitExchange, AmqpAtServer, lambda server, _: server.connector()),
}


@pytest.fixture(params=["nats", "mqtt", "amqp, nats, mqtt"])
def run_site(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Callable[[RealSite], Awaitable[None]]], None]:
    return partial(run_on_site, RealSite(request.param, tmp_path))


def test_swaps_and_cuts_lose_nothing(run_site: Callable[..., None]) -> None:
    """Six plans of random swaps run while all clients publish and links are cut: every message arrives once."""
    rng = random.Random(21)

    async def steps(site: RealSite) -> None:
        stop = asyncio.Event()
        publishing = asyncio.create_task(site.publish_until(stop))
        for _ in range(6):
            assert isinstance(site.fleet.configuration, TreeConfiguration)
            target = random_swaps(site.fleet.configuration, 1, 3, rng)
            changing = asyncio.create_task(site.fleet.change_to(target.links))
            for _ in range(2):
                await asyncio.sleep(rng.uniform(0.02, 0.1))
                site.fleet.proxies[rng.choice(BROKERS[1:])].cut()
            assert (await changing).phase is PlanPhase.VERIFYING
        stop.set()
        await publishing
        await site.all_there()
        assert site.ledger.account(site.owed()).total() == 0
        assert {node.core.epoch for node in site.fleet.nodes.values()} == {6}
        assert min(site.published.values()) > 50

    run_site(steps)


def test_a_request_is_answered_at_another_server(run_site: Callable[..., None]) -> None:
    """A responder three links away answers once the overlay knows the subject at which the requester waits."""

    async def steps(site: RealSite) -> None:
        await site.clients["b04"].answer()
        found = None
        while found is None:  # Until the subject and the destination of the answer are known everywhere.
            found = await site.clients["b01"].ask()
        assert found == b"hello!"

    run_site(steps)


def test_the_death_of_a_node_is_repaired(run_site: Callable[..., None]) -> None:
    """If the middle node dies, the others stay in order without repeats; after the repair everything arrives."""

    async def steps(site: RealSite) -> None:
        for broker in BROKERS:
            await site.publish(broker)
        await site.all_there()
        await site.fleet.kill("b03")
        living = ("b01", "b02", "b04")
        stop = asyncio.Event()
        publishing = asyncio.create_task(site.publish_until(stop, living))
        plan = await site.fleet.change_to(
            [("b01", "b02"), ("b02", "b04")], living, BrokerChange(lost=frozenset({"b03"}))
        )
        assert plan.phase is PlanPhase.VERIFYING
        repaired = dict(site.published)
        await asyncio.sleep(0.2)
        stop.set()
        await publishing
        owed = {(a, b): range(repaired[a], site.published[a]) for a in living for b in living}
        while any(not set(numbers) <= set(site.ledger.came[pair]) for pair, numbers in owed.items()):
            await asyncio.sleep(0.02)
        account = site.ledger.account(site.owed(living) | {("b03", b): range(1) for b in BROKERS})
        assert (account["repeated"], account["out_of_order"]) == (0, 0)
        for publisher, receiver in site.owed(living):
            lost = set(range(site.published[publisher])).difference(site.ledger.came[publisher, receiver])
            assert max(lost, default=-1) < repaired[publisher]

    run_site(steps)
