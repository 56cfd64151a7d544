"""Clients of MQTT whose broker grants what it then does not deliver, as Mosquitto's ``acl_file`` does.

Nothing is lost: such a client stays, or its move is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from regraft.producers.agents.agent import Agent
from regraft.producers.nodes import agent_clients
from regraft.schemas.plan import ClientMove, PlanPhase
from tests.producers.nodes.mqtt_brokers import MqttClient, needs_mosquitto
from tests.producers.nodes.mqtt_site import MqttSite, mqtt_site
from tests.producers.nodes.test_mqtt_clients_move import LINE, Traffic, settle, until

pytestmark = pytest.mark.stack

# Nodes do not log in, so they have the rights of those without a name.
NODES = "topic readwrite #\ntopic read $SYS/#\nuser web\ntopic readwrite data/#\ntopic readwrite REGRAFT_FLUSH/web1/#\n"
READ, TO, WRITE = "topic read _REGRAFT/agent/#\n", "topic read _REGRAFT/to/#\n", "topic write _REGRAFT/agent/#\n"


@asynccontextmanager
async def guarded_site(directory: Path, rights: dict[str, str]) -> AsyncIterator[tuple[MqttSite, Agent, Traffic]]:
    """Brokers with these rights of the client's, which has subscribed at b02 by its agent, and traffic."""
    files = {broker: directory / f"{broker}.acl" for broker in rights}
    for broker, file in files.items():
        file.write_text(NODES + rights[broker])
    more = {broker: f"acl_file {file}\n" for broker, file in files.items()}
    async with mqtt_site(directory, LINE, more=more) as site:
        traffic, agent = Traffic(site), await site.agent("b02")
        await traffic.connect()
        client = await MqttClient(agent.port, partial(traffic.take, "c0"), "c0", 4, user="web").connected()
        site.clients.append(client)
        await client.subscribe("data/+")
        await until(lambda: agent.sessions[0].client.stays_because or site.movable("b02"))
        await site.fleet.all_confirmed()
        publishing = asyncio.create_task(traffic.publish_all({}, 1))
        yield site, agent, traffic
        traffic.stop.set()
        await publishing
        wrong = await settle(traffic.ledger, traffic.owed("c0"))
        assert not any(wrong.values()), wrong
        await agent.close()


async def try_to_move(site: MqttSite, agent: Agent) -> str:
    """Try to move the client from b02 to b04; return why the plan is aborted."""
    await until(lambda: len(site.movable("b02")) == 1)
    moves = [ClientMove(name, "b02", "b04") for name in site.movable("b02")]
    change = asyncio.create_task(site.fleet.change_to(LINE.links, moves=moves))
    while not change.done():
        site.fleet.nodes["b02"].flush()
        await asyncio.sleep(0.05)
    plan = await change
    assert plan.phase is PlanPhase.ABORTED
    assert {session.homes.home for session in agent.sessions} == {"b02"}
    return plan.history[1].reason


def test_a_client_that_may_not_write_to_nodes_stays(tmp_path: Path) -> None:
    """Its broker refuses the note by which a node would know of it."""

    async def steps() -> None:
        async with guarded_site(tmp_path, {"b02": READ + TO}) as (site, agent, _traffic):
            await until(lambda: agent.sessions[0].client.stays_because)
            assert not site.movable("b02")

    needs_mosquitto()
    asyncio.run(steps())


@pytest.mark.parametrize("missing_at", ["b02", "b04"])
def test_a_client_that_may_not_read_what_is_for_it_alone_does_not_move(
    missing_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever that is: nothing that it reads while it moves could be counted on."""
    monkeypatch.setattr(agent_clients, "READY_S_MAX", 2.0)

    async def steps() -> None:
        every = READ + WRITE + TO
        rights = {"b02": every, "b04": every, missing_at: READ + WRITE}
        async with guarded_site(tmp_path, rights) as (site, agent, traffic):
            assert "web1" in await try_to_move(site, agent)
            came = len(traffic.ledger.came["b01", "c0"])
            await until(lambda: len(traffic.ledger.came["b01", "c0"]) > came)

    needs_mosquitto()
    asyncio.run(steps())
