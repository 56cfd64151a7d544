"""Clients of real Mosquittos move by plans, through their agents: nothing lost, repeated or reordered."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.agents.agent import Agent
from regraft.producers.agents.broker_address import BrokerAddress
from regraft.producers.agents.measure_brokers import ROUNDS
from regraft.producers.agents.mqtt_client_side import MqttSession
from regraft.producers.real_fleet.link_proxy import LinkProxy
from regraft.schemas.agent_names import publishing_client
from regraft.schemas.plan import ClientMove, PlanPhase
from tests.producers.nodes.mqtt_brokers import MqttClient, needs_mosquitto
from tests.producers.nodes.mqtt_site import MqttSite, mqtt_site
from tests.producers.nodes.node_fleet import NodeLedger
from tests.wait_until import PATIENCE_S

pytestmark = pytest.mark.stack

BROKERS = ("b01", "b02", "b03", "b04")
LINE = TreeConfiguration.of(0, BROKERS, [("b01", "b02"), ("b02", "b03"), ("b03", "b04")])
OTHER = [("b01", "b03"), ("b02", "b03"), ("b01", "b04")]
FAR_S = 0.1
DELAYS_S = {"b02": 0.020, "b03": 0.010, "b04": 0.060}


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def settle(ledger: NodeLedger, owed: dict[tuple[str, str], range]) -> Counter[str]:
    """Wait until nothing is missing, and then for what should not come; return what is wrong."""
    with suppress(TimeoutError):
        await until(lambda: not ledger.account(owed)["lost"])
    await asyncio.sleep(0.5)
    return ledger.account(owed)


def out_of_order(ledger: NodeLedger) -> list[tuple[tuple[str, str], int, int]]:
    """Return whose message came after which later one of the same publisher."""
    return [
        (pair, later, earlier) for pair, came in ledger.came.items() for earlier, later in pairwise(came)
        if later < earlier
    ]  # fmt: skip


class Traffic:
    """A client of each broker, which gets everything and publishes its numbers, and equal messages."""

    def __init__(self, site: MqttSite) -> None:
        self.site, self.ledger, self.equal = site, NodeLedger(), Counter[str]()
        self.numbers: Counter[str] = Counter()
        self.clients: dict[str, MqttClient] = {}
        self.stop = asyncio.Event()

    def take(self, receiver: str, message: Any) -> None:
        if message.topic.startswith("data/"):
            self.ledger.take(message.topic.removeprefix("data/"), receiver, int(message.payload))
        elif message.topic.startswith("same/"):
            self.equal[receiver] += 1
        else:
            self.ledger.take(message.topic, receiver, -1)

    async def connect(self) -> None:
        for broker, server in self.site.servers.items():
            self.clients[broker] = await self.site.connect(
                server.port, f"stays at {broker}", partial(self.take, broker)
            )
            await self.clients[broker].subscribe("data/#")
        await self.site.fleet.all_want()

    def publish(self, name: str, client: MqttClient, qos: int) -> None:
        client.paho.publish(f"data/{name}", b"%d" % self.numbers[name], qos)
        self.numbers[name] += 1

    async def publish_all(self, others: dict[str, MqttClient], qos: int) -> None:
        while not self.stop.is_set():
            for broker in self.site.servers:
                self.publish(broker, self.clients[broker], qos)
                self.clients[broker].paho.publish(f"same/{broker}", b"ok", qos)
            for name, client in others.items():
                self.publish(name, client, qos)
            await asyncio.sleep(0.005)

    def owed(self, *others: str) -> dict[tuple[str, str], range]:
        receivers = (*self.site.servers, *others)
        return {(name, each): range(count) for name, count in self.numbers.items() for each in receivers}


def publishing_clients(site: MqttSite, broker: str) -> set[str]:
    return {publishing_client(name) for name in site.fleet.ports[broker].clients.connected} - {""}


async def move_all(site: MqttSite, agent: Agent, links: Any, home: str, target: str) -> None:
    """Take all clients of an agent from one broker to another by a plan."""
    moves = [ClientMove(name, home, target) for name in site.movable(home)]
    plan = await site.fleet.change_to(links, moves=moves)
    assert plan.phase is PlanPhase.VERIFYING, plan.history
    await until(lambda: {session.homes.home for session in agent.sessions} == {target})
    assert sorted(site.movable(target)) == sorted(move.client for move in moves)


def test_a_node_learns_which_broker_is_nearest_to_a_client(tmp_path: Path) -> None:
    """By what brokers take to answer a CONNECT; the client then roams, and another is nearest."""
    needs_mosquitto()
    asyncio.run(_learn_what_is_nearest(tmp_path))


async def _learn_what_is_nearest(directory: Path) -> None:
    async with mqtt_site(directory, LINE) as site:
        ways = {each: LinkProxy(lambda port=server.port: port, FAR_S) for each, server in site.servers.items()}
        ways["b03"].delay_s = 0.0
        brokers = {
            each: BrokerAddress(each, "127.0.0.1", await way.start(), scheme="mqtt") for each, way in ways.items()
        }
        agent = Agent("web1", brokers, "b02", MqttSession)
        await agent.start("127.0.0.1", 0)
        client = await site.connect(agent.port, "c1")
        await client.subscribe("data/#")
        registered = site.fleet.ports["b02"].clients.connected

        def near() -> set[tuple[str, tuple[str, ...]]]:
            return {(one.nearest, one.reaches) for one in registered.values() if one.may_move}

        await until(lambda: near() == {("b03", BROKERS)})
        ways["b03"].delay_s, ways["b04"].delay_s = FAR_S, 0.0
        for _ in range(ROUNDS):
            await agent.near.measure()
        agent._note_nearest()
        await until(lambda: near() == {("b04", BROKERS)})
        await agent.close()
        for way in ways.values():
            await way.close()


@pytest.mark.parametrize(("version", "qos"), [(4, 0), (4, 1), (5, 1)])
def test_a_broker_is_emptied_while_everybody_publishes(version: int, qos: int, tmp_path: Path) -> None:
    """All clients leave it in one plan that exchanges links, too; equal messages are counted."""
    needs_mosquitto()
    asyncio.run(_empty_a_broker(version, qos, tmp_path))


async def _empty_a_broker(version: int, qos: int, directory: Path) -> None:
    async with mqtt_site(directory, LINE, DELAYS_S) as site:
        agent, traffic = await site.agent("b02"), Traffic(site)
        await traffic.connect()
        moving = {}
        for name in ("c0", "c1"):
            client = moving[name] = await site.connect(agent.port, name, partial(traffic.take, name), version)
            await client.subscribe("data/+", qos)
            await client.subscribe("same/#", qos)
        await until(lambda: len(site.movable("b02")) == 6)
        await site.fleet.all_confirmed()
        publishing = asyncio.create_task(traffic.publish_all(moving, qos))
        home = "b02"
        for target, links in (("b03", OTHER), ("b04", LINE.links), ("b02", OTHER)):
            await asyncio.sleep(0.5)
            await move_all(site, agent, links, home, target)
            home = target
        # Once they have published enough, they are known as publishers, where they are.
        homes = {session.client.name: home for session in agent.sessions}
        await until(lambda: homes == dict.fromkeys(publishing_clients(site, home), home))
        traffic.stop.set()
        await publishing
        wrong = await settle(traffic.ledger, traffic.owed(*moving))
        assert not any(wrong.values()), (wrong, agent.counts, out_of_order(traffic.ledger))
        equal = sum(traffic.numbers[broker] for broker in BROKERS)
        await until(lambda: min(traffic.equal[name] for name in moving) >= equal)
        assert {traffic.equal[name] for name in moving} == {equal}
        assert agent.counts["publishers_not_moved"] == 0
        await agent.close()
        assert not site.fleet.failures
