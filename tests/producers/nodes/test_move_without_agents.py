"""The recipes of docs/moving-without-agents.md next to real servers, with nodes between them, while others publish."""

from __future__ import annotations

import asyncio
import importlib
import re
import secrets
import time
from ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty
from types import SimpleNamespace
from typing import Any

import pytest

from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.nodes.amqp.amqp_address import AmqpPlace
from regraft.producers.nodes.amqp.amqp_connector import AmqpConnector
from regraft.schemas.plan import PlanPhase
from tests.producers.nodes.moving_client import GoMover, build_moving_client
from tests.producers.nodes.mqtt_brokers import needs_mosquitto
from tests.producers.nodes.mqtt_site import MqttSite, mqtt_site
from tests.producers.nodes.nats_servers import needs_nats
from tests.producers.nodes.nats_site import nats_site
from tests.producers.nodes.node_fleet import NodeFleet, NodeLedger
from tests.producers.nodes.rabbit_servers import RabbitClient, needs_rabbit, shared_rabbit
from tests.wait_until import PATIENCE_S

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
KINDS = ("nats", "mqtt", "rabbit")  # In the order of the page.
BROKERS = ("b01", "b02", "b03", "b04")
LINE = TreeConfiguration.of(0, BROKERS, [("b01", "b02"), ("b02", "b03"), ("b03", "b04")])
OTHER = [("b01", "b03"), ("b02", "b03"), ("b01", "b04")]
DELAYS_S = {"b02": 0.020, "b03": 0.010, "b04": 0.060}
TOUR = (("b04", OTHER), ("b01", LINE.links), ("b02", OTHER))  # Where the client moves, and by which links meanwhile.


class Recipe:
    """A recipe and its two blocks in the page: how a client starts, and how it moves to b04."""

    def __init__(self, kind: str) -> None:
        self.module = importlib.import_module(f"move_{kind}")
        self.names: dict[str, Any] = dict(vars(self.module))
        page = (ROOT / "docs" / "moving-without-agents.md").read_text(encoding="utf-8")
        self._blocks = BLOCK.findall(page)[2 * KINDS.index(kind) :][:2]

    def run(self, at: int) -> Any:
        """Run a block; what it awaits is returned."""
        code = compile(self._blocks[at], "docs/moving-without-agents.md", "exec", PyCF_ALLOW_TOP_LEVEL_AWAIT)
        return eval(code, self.names)


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what reads a recipe as a user does who has copied the files."""
    monkeypatch.syspath_prepend(ROOT / "docs" / "recipes")
    return Recipe


class Traffic:
    """At each broker somebody publishes its numbers and equal messages; all who listen note what comes."""

    def __init__(self) -> None:
        self.ledger, self.equal, self.numbers = NodeLedger(), Counter[str](), Counter[str]()
        self.publishers: dict[str, Any] = {}
        self.sent_s: dict[tuple[str, int], float] = {}
        self.slowest_s = 0.0  # The longest time from a publication to a client that does not move.
        self.stop = asyncio.Event()

    def take(self, receiver: str, subject: str, payload: bytes) -> None:
        """Note a message; its subject is data.PUBLISHER or same.PUBLISHER."""
        kind, publisher = subject.replace("/", ".").split(".")
        if kind == "data":
            self.ledger.take(publisher, receiver, int(payload))
            sent_s = self.sent_s.get((publisher, int(payload)))
            if receiver != "moving" and sent_s is not None:
                self.slowest_s = max(self.slowest_s, time.monotonic() - sent_s)
        else:
            self.equal[publisher] += 1  # Only the moving client asks for them.

    async def publish(self, name: str, publish: Any) -> None:
        self.sent_s[name, self.numbers[name]] = time.monotonic()
        await publish(f"data.{name}", b"%d" % self.numbers[name])
        self.numbers[name] += 1

    async def publish_all(self) -> None:
        while not self.stop.is_set():
            for name, publish in self.publishers.items():
                await self.publish(name, publish)
                await publish(f"same.{name}", b"ok")
            await asyncio.sleep(0.01)

    def owed(self, *moving: str) -> dict[tuple[str, str], range]:
        return {
            (name, each): range(count) for name, count in self.numbers.items() for each in (*self.publishers, *moving)
        }

    async def settled(self) -> Counter[str]:
        """Wait until nothing is missing, and then for what should not come; return what is wrong."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S / 4):
                while self.ledger.account(self.owed("moving"))["lost"]:
                    await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        return self.ledger.account(self.owed("moving"))

    @property
    def equal_owed(self) -> Counter[str]:
        """How many equal messages of each publisher the moving client is owed."""
        return Counter({name: self.numbers[name] for name in self.publishers})


async def tour(fleet: NodeFleet, traffic: Traffic, move: Any, publish: Any) -> None:
    """Move a client from broker to broker while others publish and links are exchanged; it publishes in between."""
    while max(node.clients.interest_count for node in fleet.nodes.values()) < 2:  # It wants more than those that stay.
        await asyncio.sleep(0.01)
    await fleet.all_confirmed()
    publishing = asyncio.create_task(traffic.publish_all())
    for target, links in TOUR:
        for _ in range(20):
            await traffic.publish("moving", publish)
        moving = asyncio.create_task(move(target))
        await asyncio.sleep(secrets.randbelow(3_000) / 1_000)
        assert (await fleet.change_to(links)).phase is PlanPhase.VERIFYING
        await moving
    for _ in range(20):
        await traffic.publish("moving", publish)
    traffic.stop.set()
    await publishing
    assert not fleet.failures


def test_a_client_of_nats_moves(recipe: Any, tmp_path: Path) -> None:
    """It loses, repeats and reorders nothing, also if it publishes what it takes; it loses some of equal messages."""
    needs_nats()
    wrong, _ = asyncio.run(_move_nats(PythonMover(recipe("nats")), tmp_path))
    assert not any(wrong.values()), wrong


def test_a_client_of_nats_in_go_moves(tmp_path: Path) -> None:
    """The same holds for the recipe for Go. On a starved machine it tries again, with pauses that exceed all delays."""
    needs_nats()
    program = build_moving_client(tmp_path)
    for pause_s in (1.0, 4.0, 12.0):
        wrong, slowest_s = asyncio.run(_move_nats(GoMover(program, pause_s), tmp_path))
        if slowest_s < pause_s / 2 or not any(wrong.values()):
            break
    assert not any(wrong.values()), (wrong, slowest_s)


async def _move_nats(moving: PythonMover | GoMover, directory: Path) -> tuple[Counter[str], float]:
    """Return what is wrong, and the longest time that a message took."""
    async with nats_site(directory, LINE, DELAYS_S) as site:
        traffic = Traffic()

        async def take(receiver: str, message: Any) -> None:
            traffic.take(receiver, message.subject, message.data)

        for broker, client in site.clients.items():
            await client.subscribe("data.*", cb=partial(take, broker))
            traffic.publishers[broker] = client.publish
        addresses = {broker: server.url for broker, server in site.servers.items()}
        await moving.start(addresses, partial(traffic.take, "moving"))
        await site.flush()
        await tour(site.fleet, traffic, moving.move, moving.publish)
        traffic.numbers["answers"] = traffic.numbers["b01"]
        wrong = await traffic.settled()
        equal, owed = traffic.equal, traffic.equal_owed
        wrong["equal"] = (equal - owed).total() + abs(equal["b03"] - owed["b03"])  # Stamped at all brokers of the tour.
        await moving.stop()
        return wrong, traffic.slowest_s


class PythonMover:
    """A program that uses the recipe for Python, and publishes the numbers that b01 publishes again."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe

    async def start(self, brokers: dict[str, str], take: Callable[[str, bytes], None]) -> None:
        self._recipe.names["brokers"] = brokers
        await self._recipe.run(0)
        self._client = self._recipe.names["client"]
        self._taking = asyncio.create_task(self._take_all(take))

    async def _take_all(self, take: Callable[[str, bytes], None]) -> None:
        while True:
            message = await self._client.messages.get()
            take(message.subject, message.data)
            if message.subject == "data.b01":
                await self.publish("data.answers", message.data)

    async def publish(self, subject: str, payload: bytes) -> None:
        await self._client.publish(subject, payload)

    async def move(self, broker: str) -> None:
        await (self._recipe.run(1) if broker == TOUR[0][0] else self._client.move(broker))

    async def stop(self) -> None:
        self._taking.cancel()
        await self._client.connection.close()


def test_a_client_of_mqtt_moves(recipe: Any, tmp_path: Path) -> None:
    """It loses, repeats and reorders nothing of quality of service 1, and one connection at a time is enough."""
    needs_mosquitto()
    asyncio.run(_move_mqtt(recipe("mqtt"), tmp_path))


async def _move_mqtt(recipe: Recipe, directory: Path) -> None:
    async with mqtt_site(directory, LINE, DELAYS_S) as site:
        traffic = Traffic()
        for broker, server in site.servers.items():
            client = await site.connect(
                server.port,
                f"at {broker}",
                partial(lambda at, each: traffic.take(at, each.topic, each.payload), broker),
            )
            await client.subscribe("data/+")
            traffic.publishers[broker] = partial(_publish_mqtt, client.paho)
        moving = MqttMover(recipe, site, traffic)
        await tour(site.fleet, traffic, moving.move, moving.publish)
        await asyncio.to_thread(moving.take_all)
        wrong = await traffic.settled()
        assert not any(wrong.values()), wrong
        assert traffic.equal == traffic.equal_owed
        moving.session.leave(ends=True)


async def _publish_mqtt(client: Any, subject: str, payload: bytes) -> None:
    client.publish(subject.replace(".", "/"), payload, 1)


class MqttMover:
    """A program that uses the recipe for MQTT."""

    def __init__(self, recipe: Recipe, site: MqttSite, traffic: Traffic) -> None:
        self._recipe, self._traffic, self.names = recipe, traffic, recipe.names
        brokers = {broker: ("127.0.0.1", server.port) for broker, server in site.servers.items()}
        self.names |= {"brokers": brokers, "handle": self._handle}
        recipe.run(0)

    @property
    def session(self) -> Any:
        return self.names["session"]

    def _handle(self, message: Any) -> None:
        self._traffic.take("moving", message.topic, message.payload)

    async def publish(self, subject: str, payload: bytes) -> None:
        await _publish_mqtt(self.session.paho, subject, payload)

    async def move(self, broker: str) -> None:
        if broker == TOUR[0][0]:
            await asyncio.to_thread(self._recipe.run, 1)
            return
        old, self.names["session"] = (
            self.session,
            self.names["Session"]("moving", broker, self.names["brokers"][broker]),
        )
        await asyncio.to_thread(self.names["move"], old, self.session, ["data/+", "same/#"], self._handle)

    def take_all(self) -> None:
        with suppress(Empty):
            while True:
                self.session.take(self._handle, 2.0)


def test_a_message_whose_acknowledgement_was_lost_is_not_handled_twice(recipe: Any) -> None:
    """The broker sends it again when the session resumes; a later one that only looks the same is new."""
    session, handled = recipe("mqtt").module.Session("moving", "b01", ("127.0.0.1", 1)), list[Any]()
    for is_again in (False, True, False):
        message = SimpleNamespace(mid=1, topic="same/b01", payload=b"ok", qos=1, dup=is_again)
        session.messages.put(message)
        session.take(handled.append, 0.1)
    assert [message.dup for message in handled] == [False, False]


def test_a_consumer_of_rabbitmq_moves(recipe: Any) -> None:
    """It loses, repeats and reorders nothing."""
    needs_rabbit()
    asyncio.run(_move_rabbit(recipe("rabbit")))


async def _move_rabbit(recipe: Recipe) -> None:
    server, traffic, fleet = shared_rabbit(), Traffic(), NodeFleet(LINE, DELAYS_S)
    exchanges = {broker: f"{broker}-{secrets.token_hex(4)}" for broker in BROKERS}

    def take(receiver: str, delivered: Any) -> None:
        traffic.take(receiver, delivered[1].routing_key, delivered[3])

    clients = [
        await RabbitClient(server.port, exchange, partial(take, broker)).connected()
        for broker, exchange in exchanges.items()
    ]
    connectors = {
        broker: AmqpConnector(server.url, broker, place=AmqpPlace(exchange, server.api))
        for broker, exchange in exchanges.items()
    }
    try:
        await fleet.begin(dict(connectors))
        for broker, client in zip(BROKERS, clients, strict=True):
            await client.bind("data.*")
            traffic.publishers[broker] = client.publish
        moving = RabbitMover(recipe, server.port, exchanges, traffic)
        await tour(fleet, traffic, moving.move, moving.publish)
        await asyncio.to_thread(moving.take_all)
        wrong = await traffic.settled()
        assert not any(wrong.values()), wrong
        assert traffic.equal == traffic.equal_owed
        moving.close()
    finally:
        for client in clients:
            await client.close()
        await fleet.close()


class RabbitMover:
    """A program that uses the recipe for RabbitMQ; one server is all brokers, so queues and exchanges differ."""

    def __init__(self, recipe: Recipe, port: int, exchanges: dict[str, str], traffic: Traffic) -> None:
        self._recipe, self._traffic, self._port, self._exchanges = recipe, traffic, port, exchanges
        self.names, self._mark = recipe.names, secrets.token_hex(4)
        self.names |= {"Place": self._place, "channel_at": self._channel_at, "handle": self._handle}
        recipe.run(0)

    @property
    def place(self) -> Any:
        return self.names["place"]

    def _channel_at(self, _broker: str) -> Any:
        from pika import BlockingConnection, ConnectionParameters

        return BlockingConnection(ConnectionParameters("127.0.0.1", self._port)).channel()

    def _place(self, broker: str, channel: Any, queue: str) -> Any:
        return self._recipe.module.Place(broker, channel, f"{queue}-{broker}-{self._mark}", self._exchanges[broker])

    def _handle(self, key: str, body: bytes) -> None:
        self._traffic.take("moving", key, body)

    async def publish(self, subject: str, payload: bytes) -> None:
        self.place.publish(subject, payload)

    async def move(self, broker: str) -> None:
        old = self.place
        if broker == TOUR[0][0]:
            await asyncio.to_thread(self._recipe.run, 1)
        else:
            self.names["place"] = self._place(broker, self._channel_at(broker), "orders")
            await asyncio.to_thread(self.names["move"], old, self.place, ["data.*", "same.#"], self._handle)
        old.channel.connection.close()

    def take_all(self) -> None:
        for deliver, _, body in self.place.channel.consume(self.place.queue, inactivity_timeout=2.0):
            if deliver is None:
                return
            self._handle(deliver.routing_key, body)
            self.place.channel.basic_ack(deliver.delivery_tag)

    def close(self) -> None:
        self.place.channel.queue_delete(self.place.queue)
        self.place.channel.connection.close()
