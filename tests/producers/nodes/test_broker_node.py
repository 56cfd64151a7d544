"""Nodes with connectors in memory: plans lose, repeat and reorder nothing while clients publish and links are cut."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection

from regraft.overlay.overlay_configuration import BrokerChange, OverlayConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.schemas.client import Role
from regraft.schemas.command import Command, CommandPhase, Outcome
from regraft.schemas.plan import ClientMove, PlanPhase
from regraft.schemas.telemetry import BLOCK_SIZE
from tests.producers.drive_plan import random_swaps
from tests.producers.nodes.memory_connector import MemoryConnector
from tests.producers.nodes.node_fleet import PATIENT, NodeFleet, NodeLedger
from tests.wait_until import PATIENCE_S

BROKERS = ("b01", "b02", "b03", "b04")
LINE = TreeConfiguration.of(0, BROKERS, [("b01", "b02"), ("b02", "b03"), ("b03", "b04")])


class MemorySite:
    """A fleet whose brokers are in memory, and a client at each of them."""

    def __init__(self, configuration: OverlayConfiguration = LINE) -> None:
        self.fleet = NodeFleet(configuration, limits=PATIENT)
        self.connectors = {broker: MemoryConnector() for broker in configuration.brokers}
        self.published = dict.fromkeys(configuration.brokers, 0)

    def publish(self, broker: str) -> None:
        number = self.published[broker]
        self.published[broker] += 1
        self.connectors[broker].publish_locally(LocalMessage(f"data.{broker}", str(number).encode()))

    def ledger(self) -> NodeLedger:
        ledger = NodeLedger()
        for receiver, connector in self.connectors.items():
            for message in connector.handed:
                ledger.take(message.subject.split(".")[1], receiver, int(message.payload))
        return ledger

    def owed(self) -> dict[tuple[str, str], range]:
        return {(a, b): range(self.published[a]) for a in self.connectors for b in self.connectors if a != b}

    async def all_there(self) -> None:
        owed = sum(len(numbers) for numbers in self.owed().values())
        while sum(len(connector.handed) for connector in self.connectors.values()) < owed:
            await asyncio.sleep(0.01)


def run_site(
    steps: Callable[[MemorySite], Awaitable[None]],
    configuration: OverlayConfiguration = LINE,
    apart: Collection[tuple[str, str]] = (),
) -> None:
    """Run steps on a site; the links ``apart`` have separate proxies."""

    async def run() -> None:
        site = MemorySite(configuration)
        for link in apart:
            await site.fleet.add_proxy(*link)
        for connector in site.connectors.values():
            connector.want("data.*")
        try:
            await site.fleet.begin(dict(site.connectors))
            await asyncio.wait_for(steps(site), PATIENCE_S)
        finally:
            await site.fleet.close()
        assert site.fleet.failures == []

    asyncio.run(run())


def test_swaps_with_cuts_lose_nothing() -> None:
    """Six plans of random swaps run while all publish and links are cut: nothing is lost, repeated or reordered."""
    rng = random.Random(21)

    async def steps(site: MemorySite) -> None:
        await site.fleet.all_confirmed()
        is_over = False

        async def publish() -> None:
            while not is_over:
                for broker in BROKERS:
                    site.publish(broker)
                await asyncio.sleep(0.002)

        async def cut() -> None:
            while not is_over:
                await asyncio.sleep(rng.uniform(0.02, 0.08))
                site.fleet.proxies[rng.choice(BROKERS)].cut()

        others = [asyncio.create_task(publish()), asyncio.create_task(cut())]
        for _ in range(6):
            assert isinstance(site.fleet.configuration, TreeConfiguration)
            target = random_swaps(site.fleet.configuration, 1, 3, rng)
            plan = await site.fleet.change_to(target.links)
            assert plan.phase is PlanPhase.VERIFYING
            await asyncio.sleep(0.05)
        is_over = True
        await asyncio.gather(*others)
        await site.all_there()
        await asyncio.sleep(0.1)
        assert site.ledger().account(site.owed()).total() == 0
        assert {node.core.epoch for node in site.fleet.nodes.values()} == {6}
        assert sum(node.links.counts["cut"] for node in site.fleet.nodes.values()) > 0

    run_site(steps)


def test_a_death_is_repaired_and_the_broker_returns() -> None:
    """A node amid a line dies, a repair bypasses it, and its next incarnation is admitted and gets all messages."""

    async def steps(site: MemorySite) -> None:
        fleet = site.fleet
        await site.fleet.all_confirmed()
        for broker in BROKERS:
            site.publish(broker)
        await site.all_there()
        await fleet.kill("b03")
        handed_before = len(site.connectors["b03"].handed)
        living = ("b01", "b02", "b04")
        plan = await fleet.change_to([("b01", "b02"), ("b02", "b04")], living, BrokerChange(lost=frozenset({"b03"})))
        assert plan.phase is PlanPhase.VERIFYING
        for broker in living:
            site.publish(broker)
        while not all(len(site.connectors[broker].handed) == 5 for broker in living):
            await asyncio.sleep(0.01)
        await fleet.begin_node("b03", site.connectors["b03"], is_outside=True)
        site.publish("b03")
        await fleet.install("b03")
        joined = BrokerChange(joined=frozenset({"b03"}))
        plan = await fleet.change_to([("b01", "b03"), ("b02", "b03"), ("b03", "b04")], BROKERS, joined)
        assert plan.phase is PlanPhase.VERIFYING
        await site.fleet.all_confirmed()
        for broker in BROKERS:
            site.publish(broker)
        while not all(len(site.connectors[broker].handed) == 8 for broker in living):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert fleet.nodes["b03"].clients.counts == {"outside": 1}
        assert [message.payload for message in site.connectors["b03"].handed[handed_before:]] == [b"2"] * 3
        assert all(len(site.connectors[broker].handed) == 8 for broker in living)

    run_site(steps)


def test_a_broker_considered_dead_is_admitted_again() -> None:
    """It keeps running in its old epoch, is commanded to restart, and then receives everything in the same process."""

    async def steps(site: MemorySite) -> None:
        fleet = site.fleet
        await fleet.all_confirmed()
        living = ("b01", "b02", "b04")
        suspect = fleet.nodes.pop("b03")
        plan = await fleet.change_to([("b01", "b02"), ("b02", "b04")], living, BrokerChange(lost=frozenset({"b03"})))
        assert plan.phase is PlanPhase.VERIFYING
        fleet.nodes["b03"] = suspect
        await fleet.install("b03")
        assert suspect.links.incarnation.endswith(".1")
        joined = BrokerChange(joined=frozenset({"b03"}))
        plan = await fleet.change_to([("b01", "b03"), ("b02", "b03"), ("b03", "b04")], BROKERS, joined)
        assert plan.phase is PlanPhase.VERIFYING
        await fleet.all_confirmed()
        for broker in BROKERS:
            site.publish(broker)
        await site.all_there()
        await asyncio.sleep(0.05)
        assert site.ledger().account(site.owed()).total() == 0

    run_site(steps)


def test_the_next_life_of_a_neighbour_means_its_death() -> None:
    """A node that returns before its death is noticed is reported as lost by its neighbours only."""

    async def steps(site: MemorySite) -> None:
        fleet = site.fleet
        await fleet.all_confirmed()
        await (
            fleet.all_measured()
        )  # A node that never met another cannot distinguish its next incarnation from its first.
        await fleet.kill("b04")
        await fleet.begin_node("b04", site.connectors["b04"], is_outside=True)
        while not all(node.links.counts["new_incarnations"] for name, node in fleet.nodes.items() if name != "b04"):
            await asyncio.sleep(0.01)
        lost_by = {}
        for broker in ("b01", "b02", "b03"):
            fleet.nodes[broker].obey(Command("ask", CommandPhase.REPORT, broker, 0, 0, term=1))
            lost_by[broker] = fleet.ports[broker].results.results[-1].lost_peers
        assert lost_by == {"b01": (), "b02": (), "b03": ("b04",)}

    run_site(steps)


def test_telemetry_counts_each_delivery_and_publication() -> None:
    """The masks of the cells contain what was published and delivered at each broker; the register has its clients."""

    async def steps(site: MemorySite) -> None:
        await site.fleet.all_confirmed()
        for _ in range(200):
            for broker in BROKERS:
                site.publish(broker)
        await site.all_there()
        for broker, node in site.fleet.nodes.items():
            node.flush()
            ports = site.fleet.ports[broker]
            batch = ports.telemetry.batches[-1]
            delivered = sum((cell.mask % (1 << BLOCK_SIZE)).bit_count() for cell in batch.deliveries)
            published = sum((cell.published % (1 << BLOCK_SIZE)).bit_count() for cell in batch.deliveries)
            assert (delivered, published) == (800, 200)
            clients = ports.clients.connected.values()
            assert sorted(client.role for client in clients) == [Role.PUBLISHER, Role.SUBSCRIBER]
            assert {sample.peer for sample in batch.queues} == {"", *node.core.live_neighbours}

    run_site(steps)


def test_possible_links_are_measured() -> None:
    """Every node reports round trips to all others, neighbours or not, so plans know the costs of new links."""

    async def steps(site: MemorySite) -> None:
        await site.fleet.all_measured()
        node = site.fleet.nodes["b01"]
        node.flush()
        probes = site.fleet.ports["b01"].telemetry.batches[-1].probes
        assert {probe.peer for probe in probes} == {"b02", "b03", "b04"}

    run_site(steps)


def test_ended_interest_is_owed_nothing_more() -> None:
    """Once the last local client that wants a subject has left, the overlay stops carrying it there."""

    async def steps(site: MemorySite) -> None:
        await site.fleet.all_confirmed()
        site.publish("b01")
        await site.all_there()
        connector = site.connectors["b04"]
        connector.leave("data.*")
        while site.fleet.nodes["b04"].core.ended_count:
            await asyncio.sleep(0.01)
        site.publish("b01")
        while len(site.connectors["b03"].handed) < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert len(connector.handed) == 1
        connector.want("data.b01")
        await site.fleet.all_confirmed()
        site.publish("b01")
        while len(connector.handed) < 2:
            await asyncio.sleep(0.01)
        assert connector.handed[-1].payload == b"2"

    run_site(steps)


def test_a_plan_that_moves_a_client_is_refused() -> None:
    """Clients of a real broker stay where they are: the plan is refused before anything changes."""

    async def steps(site: MemorySite) -> None:
        move = ClientMove("p", "b01", "b02")
        node = site.fleet.nodes["b01"]
        node.obey(Command("plan-1", CommandPhase.PREPARE, "b01", 0, 1, moves=(move,), term=1))
        answer = site.fleet.ports["b01"].results.results[-1]
        assert (answer.outcome, answer.term) == (Outcome.REFUSED, 1)
        assert "stay where they connect" in answer.reason
        assert node.core.phase == "steady"

    run_site(steps)


def test_the_header_names_the_publisher() -> None:
    """Each publisher named by the header has its own sequence numbers; without it the broker is the publisher."""

    async def steps(site: MemorySite) -> None:
        await site.fleet.all_confirmed()
        headers = b"NATS/1.0\r\nRegraft-Publisher: sensor 7\r\n\r\n"
        for number in range(3):
            site.connectors["b01"].publish_locally(LocalMessage("data.x", str(number).encode(), headers=headers))
        site.publish("b01")
        while len(site.connectors["b04"].handed) < 4:
            await asyncio.sleep(0.01)
        node = site.fleet.nodes["b01"]
        node.flush()
        cells = site.fleet.ports["b01"].telemetry.batches[-1].deliveries
        own = f"b01.{node.core.boot_ms}"
        assert {cell.publisher: cell.published for cell in cells} == {own: 1, f"{own}.p.sensor 7": 7}
        assert all(message.headers in (b"", headers) for message in site.connectors["b04"].handed)

    run_site(steps)
