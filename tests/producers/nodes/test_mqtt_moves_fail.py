"""Clients of real Mosquittos whose move fails, or whose broker dies: they stay or restart, and are not repeated."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from regraft.producers.agents.broker_address import BrokerAddress
from regraft.schemas.plan import ClientMove, PlanPhase
from tests.producers.nodes.mqtt_brokers import MqttServer, needs_mosquitto
from tests.producers.nodes.mqtt_site import mqtt_site
from tests.producers.nodes.node_fleet import NodeLedger
from tests.producers.nodes.test_mqtt_clients_move import BROKERS, DELAYS_S, LINE, move_all, settle, until
from tests.wait_until import PATIENCE_S

pytestmark = pytest.mark.stack

STRICT = "allow_anonymous false\n"


def test_a_client_that_only_publishes_moves_in_order(tmp_path: Path) -> None:
    """It has a subscription of the agent's, by which plans move it, and gets nothing of that."""
    needs_mosquitto()
    asyncio.run(_move_a_publisher(tmp_path))


async def _move_a_publisher(directory: Path) -> None:
    async with mqtt_site(directory, LINE, DELAYS_S) as site:
        agent, ledger, number = await site.agent("b04"), NodeLedger(), 0
        for broker, server in site.servers.items():

            def take(broker: str, message: Any) -> None:
                ledger.take("ticks", broker, int(message.payload))

            other = await site.connect(server.port, f"stays at {broker}", partial(take, broker))
            await other.subscribe("ticks")
        client = await site.connect(agent.port, "c0", lambda message: ledger.take("none", "c0", 0))
        await site.fleet.all_confirmed()
        for home, target in (("b04", "b01"), ("b01", "b03")):
            await client.publish("ticks", b"%d" % number, qos=1)
            number += 1
            await until(lambda home=home: len(site.movable(home)) == 1)
            moving = asyncio.create_task(move_all(site, agent, LINE.links, home, target))
            while not moving.done():
                client.paho.publish("ticks", b"%d" % number, 1)
                number += 1
                await asyncio.sleep(0.002)
            await moving
        wrong = await settle(ledger, {("ticks", broker): range(number) for broker in BROKERS})
        assert not any(wrong.values()), wrong
        assert agent.counts["publishers_moved"] == 2
        await agent.close()


def test_a_client_stays_if_the_next_broker_refuses_its_login(tmp_path: Path) -> None:
    """The plan is aborted at once, with the reason; what is published meanwhile comes as before."""
    needs_mosquitto()
    asyncio.run(_refuse_a_login(tmp_path))


async def _refuse_a_login(directory: Path) -> None:
    async with mqtt_site(directory, LINE) as site:
        agent, got = await site.agent("b02"), list[bytes]()
        plain = "log_dest stderr\n"
        with MqttServer("strict", directory, plain + STRICT, is_plain=True) as strict:
            strict.file.write_text(strict.file.read_text().replace("allow_anonymous true\n", ""))
            strict.stop()
            strict.start()
            agent.brokers["b04"] = BrokerAddress("b04", "127.0.0.1", strict.port)
            client = await site.connect(agent.port, "c0", lambda message: got.append(message.payload))
            await client.subscribe("data/+")
            await until(lambda: len(site.movable("b02")) == 1)
            moves = [ClientMove(name, "b02", "b04") for name in site.movable("b02")]
            plan = await site.fleet.change_to(LINE.links, moves=moves)
            assert plan.phase is PlanPhase.ABORTED
            assert "cannot take it to its next home" in plan.history[1].reason
            assert {session.homes.home for session in agent.sessions} == {"b02"}
            await client.publish("data/x", b"still", qos=1)
            await until(lambda: got == [b"still"])
            await until(lambda: not any(session.moves.moving for session in agent.sessions))
            await agent.close()


@pytest.mark.parametrize("which", ["old", "next"])
def test_clients_go_on_when_a_broker_dies_while_they_move(which: str, tmp_path: Path) -> None:
    """They restart at the other one; nothing is repeated, whatever the plan was doing."""
    needs_mosquitto()
    asyncio.run(_kill_one(which, tmp_path))


async def _kill_one(which: str, directory: Path) -> None:
    async with mqtt_site(directory, LINE, DELAYS_S) as site:
        agent, came = await site.agent("b02"), list[int]()
        client = await site.connect(agent.port, "c0", lambda message: came.append(int(message.payload)))
        await client.subscribe("data/+")
        publisher = await site.connect(site.servers["b01"].port, "p")
        await until(lambda: len(site.movable("b02")) == 1)
        moves = [ClientMove(name, "b02", "b03") for name in site.movable("b02")]
        site.fleet.may_retire.clear()  # Behind the end of the plan its client would be elsewhere.
        change = asyncio.create_task(site.fleet.change_to(LINE.links, moves=moves))
        await until(lambda: any(move.is_counting for each in agent.sessions for move in each.moves.moving.values()))
        lost, left = ("b02", "b03") if which == "old" else ("b03", "b02")
        site.servers[lost].stop()
        site.fleet.may_retire.set()
        await until(lambda: {session.homes.home for session in agent.sessions} == {left})
        number = 0
        async with asyncio.timeout(PATIENCE_S):
            while len(came) <= 20:
                publisher.paho.publish("data/b01", b"%d" % number, 1)
                number += 1
                await asyncio.sleep(0.01)
        assert len(came) == len(set(came))
        change.cancel()
        await agent.close()
