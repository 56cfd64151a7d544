"""A client of NATS that only publishes moves by plans, too, in order: its agent subscribes for it."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from regraft.producers.agents.client_publishing import NAMED_AFTER
from regraft.schemas.agent_names import publishing_client
from regraft.schemas.plan import ClientMove, PlanPhase
from tests.producers.nodes.nats_servers import needs_nats
from tests.producers.nodes.nats_site import NatsSite, nats_site
from tests.producers.nodes.node_fleet import NodeLedger
from tests.producers.nodes.test_agents_beside_nats import (
    BROKERS,
    DELAYS_S,
    LINE,
    agent_at,
    registered,
    settle,
    until,
)

pytestmark = pytest.mark.stack


def publishers(site: NatsSite, broker: str) -> list[str]:
    """Return the clients beside agents that are known as publishers at a broker."""
    names = map(publishing_client, site.fleet.ports[broker].clients.connected)
    return [name for name in names if name]


def test_a_client_that_only_publishes_moves_in_order(tmp_path: Path) -> None:
    """It has a subscription of the agent's, by which plans move it, and gets nothing of that.

    It publishes so much that it is known as a publisher, where it is.
    """
    needs_nats()
    asyncio.run(_move_a_publisher(tmp_path))


async def _move_a_publisher(tmp_path: Path) -> None:
    import nats

    async with nats_site(tmp_path, LINE, DELAYS_S) as site:
        agent, ledger, number = agent_at(site, "b04"), NodeLedger(), 0
        await agent.start("127.0.0.1", 0)
        client = await nats.connect(f"nats://127.0.0.1:{agent.port}")

        async def receive(broker: str, message: Any) -> None:
            ledger.take("ticks", broker, int(message.data))

        for broker, other in site.clients.items():
            await other.subscribe("ticks", cb=partial(receive, broker))
        await site.flush()
        await site.fleet.all_confirmed()
        for home, target in (("b04", "b01"), ("b01", "b03")):
            await client.publish("ticks", b"%d" % number)
            number += 1
            await until(lambda home=home: len(registered(site, home)) == 1)
            for _ in range(2 * NAMED_AFTER):
                await client.publish("ticks", b"%d" % number)
                number += 1
            await until(lambda home=home: publishers(site, home))
            moves = [ClientMove(name, home, target) for name in registered(site, home)]
            change = asyncio.create_task(site.fleet.change_to(LINE.links, moves=moves))
            while not change.done() or {session.homes.home for session in agent.sessions} != {target}:
                await client.publish("ticks", b"%d" % number)
                number += 1
                await asyncio.sleep(0.001)
        await client.flush()
        owed = {("ticks", broker): range(number) for broker in BROKERS}
        await settle(ledger, owed)
        assert not any(ledger.account(owed).values())
        assert agent.counts["publishers_moved"] == 2
        assert publishers(site, "b03") == [session.client.name for session in agent.sessions]
        assert site.fleet.nodes["b03"].clients.counts["publisher_not_known"] == 0
        await client.close()
        await agent.close()


def test_subscriptions_that_come_and_go_meanwhile_do_not_hold_a_client_back(tmp_path: Path) -> None:
    """One has ended when the plan comes, one begins during it; the client publishes and subscribes at its next home."""
    needs_nats()
    asyncio.run(_move_a_busy_client(tmp_path))


async def _move_a_busy_client(tmp_path: Path) -> None:
    import nats

    async with nats_site(tmp_path, LINE, DELAYS_S) as site:
        agent = agent_at(site, "b04")
        await agent.start("127.0.0.1", 0)
        client = await nats.connect(f"nats://127.0.0.1:{agent.port}")
        for other in site.clients.values():
            await other.subscribe("other")
        await client.subscribe("kept")
        ended = await client.subscribe("ended")
        await client.publish("ticks", b"")
        await client.flush()
        await site.flush()
        await until(lambda: len(registered(site, "b04")) == 2)
        await site.fleet.all_confirmed()
        moves = [ClientMove(name, "b04", "b01") for name in registered(site, "b04")]
        await ended.unsubscribe()
        await until(lambda: len(registered(site, "b04")) == 1)
        change = asyncio.create_task(site.fleet.change_to(LINE.links, moves=moves))
        await until(lambda: any(session.moves.moving for session in agent.sessions))
        await client.subscribe("meanwhile")
        plan = await change
        assert plan.phase is PlanPhase.VERIFYING, plan.history
        await until(lambda: [session.homes.home for session in agent.sessions] == ["b01"])
        await client.subscribe("later")
        await until(lambda: len(registered(site, "b01")) == 2)
        (session,) = agent.sessions
        homes = {each.subject: each.home for each in session.client.subscriptions.values()}
        assert homes == {b"kept": "b01", b"meanwhile": "b04", b"later": "b01"}
        await client.close()
        await agent.close()
        assert not site.fleet.failures
