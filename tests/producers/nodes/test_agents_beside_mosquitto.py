"""Clients of real Mosquittos at their agent: it is a pipe, whatever version and quality of service they use."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from regraft.producers.agents.agent import Agent
from regraft.producers.agents.broker_address import BrokerAddress
from regraft.producers.agents.mqtt_client_side import MqttSession
from tests.producers.nodes.mqtt_brokers import MqttClient, MqttServer, needs_mosquitto
from tests.wait_until import PATIENCE_S

pytestmark = pytest.mark.stack


def agent_of(servers: dict[str, MqttServer], home: str, name: str = "web1") -> Agent:
    brokers = {each: BrokerAddress(each, "127.0.0.1", server.port) for each, server in servers.items()}
    return Agent(name, brokers, home, MqttSession)


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("version", [4, 5])
def test_an_agent_is_a_pipe(version: int, tmp_path: Path) -> None:
    """Messages of each QoS, retained ones, overlapping filters and ends of subscriptions are as without an agent."""
    needs_mosquitto()
    asyncio.run(_use_a_pipe(version, tmp_path))


async def _use_a_pipe(version: int, directory: Path) -> None:
    with MqttServer("b01", directory) as server:
        agent = agent_of({"b01": server}, "b01")
        await agent.start("127.0.0.1", 0)
        got: dict[str, list[tuple[str, bytes, int, bool]]] = {"direct": [], "agent": []}

        def take(way: str, message: Any) -> None:
            got[way].append((message.topic, bytes(message.payload), message.qos, bool(message.retain)))

        clients = {
            "direct": MqttClient(server.port, lambda message: take("direct", message), "direct", version),
            "agent": MqttClient(agent.port, lambda message: take("agent", message), "by agent", version),
        }
        for client in clients.values():
            await client.connected()
        await clients["direct"].publish("kept/a", b"kept", qos=1, retain=True)
        for client in clients.values():
            for pattern, qos in (("a/#", 1), ("a/b", 1), ("kept/+", 1), ("/#", 2)):
                await client.subscribe(pattern, qos)
        topics = ("a", "a/b", "a/b/c", "/", "/x", "other")
        for client in clients.values():
            for topic in topics:
                for qos in (0, 1, 2):
                    await client.publish(topic, b"%d" % qos, qos=qos)
        await until(lambda: len(got["agent"]) == len(got["direct"]) > 20)
        await asyncio.sleep(0.2)
        assert sorted(got["agent"]) == sorted(got["direct"])
        for client in clients.values():
            await client.unsubscribe("a/#")
        got["agent"].clear()
        got["direct"].clear()
        await clients["direct"].publish("a/b", b"left", qos=1)
        await until(lambda: got["agent"] and got["direct"])
        assert got["agent"] == got["direct"] == [("a/b", b"left", 1, False)]
        for client in clients.values():
            client.close()
        await until(lambda: not agent.sessions)
        await agent.close()


def test_clients_that_two_brokers_cannot_serve_stay(tmp_path: Path) -> None:
    """The agent sees why in their first packets, and passes on what they do."""
    needs_mosquitto()
    asyncio.run(_keep_some(tmp_path))


async def _keep_some(directory: Path) -> None:
    with MqttServer("b01", directory) as server:
        agent = agent_of({"b01": server}, "b01")
        await agent.start("127.0.0.1", 0)
        got: list[bytes] = []
        reasons = []
        for number, (version, has_session, pattern, qos) in enumerate(
            ((4, True, "a", 1), (4, False, "$share/g/a", 1), (5, False, "a", 2), (4, False, "a", 1))
        ):
            client = MqttClient(
                agent.port, lambda message: got.append(message.payload), f"c{number}", version, has_session=has_session
            )
            await client.connected()
            await client.subscribe(pattern, qos)
            await client.publish("a", b"%d" % number, qos=1)
            await until(lambda number=number: b"%d" % number in got)
            reasons += [session.client.stays_because for session in agent.sessions]
            client.close()
            await until(lambda: not agent.sessions)
        assert ["session is persistent" in reasons[0], "shared" in reasons[1], "QoS 2" in reasons[2], reasons[3]] == [
            True, True, True, "",
        ]  # fmt: skip
        await agent.close()
