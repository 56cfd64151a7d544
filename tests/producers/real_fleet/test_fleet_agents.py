"""Where the mobile clients of a fleet are, as their agents see it, next to real brokers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from regraft.infra.local.supervise import Supervisor
from regraft.producers.agents.measure_brokers import ROUNDS
from regraft.producers.emulator_settings import MQTT, NATS
from regraft.producers.real_fleet.broker_kinds import BrokerKind, broker_kind
from regraft.producers.real_fleet.fleet_agents import FleetAgents
from tests.producers.nodes.connector_kit import needs

pytestmark = pytest.mark.stack

BROKERS = ("b1", "b2", "b3")
MS_APART = 60.0


@pytest.mark.parametrize("brokers", [NATS, MQTT])
def test_where_mobile_clients_have_roamed_to_another_broker_is_the_nearest(brokers: str, tmp_path: Path) -> None:
    """Clients begin at their broker; from where another is, that answers first."""
    needs(brokers)
    kind = broker_kind(brokers)
    with Supervisor() as supervisor:
        urls = {name: kind.start(supervisor, name, tmp_path).url for name in BROKERS}
        asyncio.run(_roam(kind, urls))


async def _roam(kind: BrokerKind, urls: dict[str, str]) -> None:
    agents = FleetAgents(urls, kind, _delay_ms, ("b1",))
    await agents.start()
    near = agents._agents["b1"].near
    for _ in range(ROUNDS):
        await near.measure()
    assert (near.nearest, near.reached) == ("b1", BROKERS)
    agents.place("b1", "b3")
    for _ in range(ROUNDS):
        await near.measure()
    assert near.nearest == "b3"
    await agents.close()


def _delay_ms(one: str, other: str) -> float:
    """Return the delay on a line of brokers, far more than a busy machine adds."""
    return MS_APART * abs(BROKERS.index(one) - BROKERS.index(other))
