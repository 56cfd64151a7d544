"""Clients of real Mosquittos that stay are registered with why, as far as their agents can say so through them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.producers.nodes.mqtt_brokers import MqttServer, needs_mosquitto
from tests.producers.nodes.mqtt_site import MqttSite, mqtt_site
from tests.producers.nodes.test_agents_beside_mosquitto import until
from tests.producers.nodes.test_agents_beside_nats import LINE

pytestmark = pytest.mark.stack


def reasons(site: MqttSite, broker: str) -> list[tuple[str, str]]:
    """Return what subscribers of agents want at a broker, and why they stay."""
    registered = site.fleet.ports[broker].clients.connected
    beside = [each for name, each in registered.items() if name.startswith("web1.") and not each.may_move]
    return sorted(("/".join(one.text or "*" for one in each.predicates), each.stays_because) for each in beside)


def test_clients_are_registered_with_why_they_stay(tmp_path: Path) -> None:
    """From their first packets on, and at another broker if theirs dies; one that publishes at QoS 2 later."""
    needs_mosquitto()
    asyncio.run(_register_those_that_stay(tmp_path))


async def _register_those_that_stay(directory: Path) -> None:
    async with mqtt_site(directory, LINE) as site:
        agent = await site.agent("b02")
        got: list[Any] = []
        exact = await site.connect(agent.port, "exact", got.append)
        await exact.subscribe("a/#", 2)
        await exact.subscribe("b", 1)
        other = await site.connect(agent.port, "other", version=5)
        other.paho.subscribe("c", options=SubscribeOptions(qos=1, noLocal=True))
        shared = await site.connect(agent.port, "shared")
        await shared.subscribe("$share/g/d")
        await shared.subscribe("e")
        late = await site.connect(agent.port, "late")
        await late.subscribe("f")
        await until(lambda: len(site.movable("b02")) == 1)
        await late.publish("x", b"1", qos=2)
        names = {session.client.id: session.client.stays_because for session in agent.sessions}
        assert None not in names.values(), names
        wanted = ["qos_2", "qos_2", "qos_2", "no_echo", "server_topics", "qos_2"]
        await until(lambda: sorted(reason for _, reason in reasons(site, "b02")) == sorted(wanted))
        assert not site.movable("b02")
        await stays_elsewhere(site, agent, site.servers["b02"], wanted)
        await agent.close()


async def stays_elsewhere(site: MqttSite, agent: Any, server: MqttServer, wanted: list[str]) -> None:
    """The broker dies: its clients restart at the next one, whose node learns the same."""
    server.stop()
    await until(lambda: {session.homes.home for session in agent.sessions} == {"b03"})
    await until(lambda: sorted(reason for _, reason in reasons(site, "b03")) == sorted(wanted))
    assert not site.movable("b03")
