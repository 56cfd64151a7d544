"""From an agent's measurement to the move: a client at a far broker is brought to the nearest, without loss."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.planners.tree.place_clients_cost import PlaceClientsSettings, place_clients_cost
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.windows.gather_deliveries import gather_deliveries
from regraft.overlay.registered_clients import RegisteredClients
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.agents.agent import Agent
from regraft.producers.agents.broker_address import BrokerAddress
from regraft.producers.real_fleet.link_proxy import LinkProxy
from regraft.schemas.plan import ClientMove, PlanPhase
from regraft.streaming.reference_aggregator import ReferenceAggregator
from tests.overlay.small_overlays import inventory_of
from tests.producers.nodes.nats_servers import needs_nats
from tests.producers.nodes.nats_site import NatsSite, nats_site
from tests.producers.nodes.node_fleet import NodeLedger
from tests.producers.nodes.test_agents_beside_nats import BROKERS, DELAYS_S, LINE, settle, until

pytestmark = pytest.mark.stack

FAR_S = 0.1
WINDOW_MS = 3_600_000


def test_a_client_far_from_its_broker_is_brought_to_the_nearest(tmp_path: Path) -> None:
    """Its node reports what it receives, and which broker is nearest to it; the planner does the rest."""
    needs_nats()
    asyncio.run(_go_to_the_nearest(tmp_path))


async def _go_to_the_nearest(tmp_path: Path) -> None:
    import nats

    async with nats_site(tmp_path, LINE, DELAYS_S) as site:
        agent = await agent_near(site, "b03", home="b02")
        client = await nats.connect(f"nats://127.0.0.1:{agent.port}")
        ledger, number = NodeLedger(), 0

        async def receive(message: Any) -> None:
            ledger.take("data", "client", int(message.data))

        await client.subscribe("data", cb=receive)
        await client.flush()
        for other in site.clients.values():
            await other.subscribe("other")
        await site.flush()
        await site.fleet.all_confirmed()
        await until(lambda: [one.nearest for one in movable(site, "b02")] == ["b03"])
        assert [set(one.reaches) for one in movable(site, "b02")] == [set(BROKERS)]
        moves: tuple[ClientMove, ...] = ()
        while not moves:
            for _ in range(50):
                await site.clients["b04"].publish("data", b"%d" % number)
                number += 1
                await asyncio.sleep(0.002)
            moves = await moves_decided(site)
        assert {(move.home_from, move.home_to) for move in moves} == {("b02", "b03")}
        plan = await site.fleet.change_to(LINE.links, moves=moves)
        assert plan.phase is PlanPhase.VERIFYING, plan.history
        await until(lambda: [one.nearest for one in movable(site, "b03")] == ["b03"])
        await site.clients["b04"].publish("data", b"%d" % number)
        await site.flush()
        owed = {("data", "client"): range(number + 1)}
        await settle(ledger, owed)
        assert not any(ledger.account(owed).values())
        await client.close()
        await agent.close()
        assert not site.fleet.failures


async def agent_near(site: NatsSite, nearest: str, home: str) -> Agent:
    """Return an agent to which all brokers are far, except one."""
    addresses = {}
    for broker, server in site.servers.items():
        proxy = LinkProxy(lambda port=server.client_port: port, 0.0 if broker == nearest else FAR_S)
        addresses[broker] = BrokerAddress(broker, "127.0.0.1", await proxy.start())
    agent = Agent("web1", addresses, home)
    await agent.start("127.0.0.1", 0)
    return agent


def movable(site: NatsSite, broker: str) -> list[Any]:
    return [client for client in site.fleet.ports[broker].clients.connected.values() if client.may_move]


async def moves_decided(site: NatsSite) -> tuple[ClientMove, ...]:
    """Return the moves that the planner proposes on all that nodes have reported."""
    register, aggregator = RegisteredClients(), ReferenceAggregator(WINDOW_MS, 0)
    for broker, node in site.fleet.nodes.items():
        node.flush()
        for batch in site.fleet.ports[broker].telemetry.batches:
            aggregator.take(msgspec.to_builtins(batch))
        for client in site.fleet.ports[broker].clients.connected.values():
            register.put(client)
    rows = [row for closed in aggregator.finish() for row in closed.rows]
    taken = gather_deliveries(rows, BROKERS, WINDOW_MS // 1_000)
    window = ClosedWindow(
        0, WINDOW_MS, taken.sets, homes=taken.homes, local_deliveries=taken.local_deliveries, parts=taken.parts,
        single=register.named(taken.parts.received), movable=register.movable, nearest=register.nearest,
    )  # fmt: skip
    configuration = TreeConfiguration.of(0, BROKERS, LINE.links, taken.homes)
    state = TreeState(configuration, replace(inventory_of(LINE, {}), clients_stay=True), (window, window))
    proposals = place_clients_cost(state, PlaceClientsSettings(), TreeContext(), random.Random(1))
    return tuple(move for proposal in proposals for move in proposal.moves)
