"""The agents of a fleet on this machine, one at each broker, and which of the fleet's clients they take where.

In: addresses of servers. Out: connections of clients through agents, and where these clients are.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from regraft.infra.process.find_port import LOOPBACK
from regraft.producers.agents.agent import Agent
from regraft.producers.agents.broker_address import BrokerAddress
from regraft.producers.agents.client_session import ClientSession
from regraft.producers.real_fleet.fleet_client import FleetClient

Connect = Callable[[str], Awaitable[FleetClient]]


class FleetAgents:
    """``urls`` are those of the servers, by broker; ``connect`` connects a client to an address."""

    def __init__(self, urls: Mapping[str, str], connect: Connect) -> None:
        places = {broker: urlsplit(url) for broker, url in urls.items()}
        addresses = {broker: BrokerAddress(broker, at.hostname or "", at.port or 0) for broker, at in places.items()}
        self._agents = {broker: Agent(f"site{number}", addresses, broker) for number, broker in enumerate(addresses)}
        self._connect = connect
        self._connecting = asyncio.Lock()  # One after the other, so that it is clear whose session is new.
        self._sessions: dict[str, ClientSession[Any]] = {}

    async def start(self) -> None:
        """Let all agents listen."""
        for agent in self._agents.values():
            await agent.start(LOOPBACK, 0)

    async def connect(self, name: str, broker: str) -> FleetClient:
        """Connect a client to the agent at a broker."""
        agent = self._agents[broker]
        async with self._connecting:
            before = set(agent.sessions)
            client = await self._connect(f"nats://{LOOPBACK}:{agent.port}")
            (self._sessions[name],) = set(agent.sessions) - before
        return client

    def home_of(self, name: str) -> str:
        """Return the broker at which a client publishes, and subscribes unless it moves; "" if it has not connected."""
        session = self._sessions.get(name)
        return "" if session is None else session.homes.home

    def counts(self) -> Counter[str]:
        """Return what all agents have counted."""
        return sum((agent.counts for agent in self._agents.values()), Counter())

    async def close(self) -> None:
        """End all agents."""
        for agent in self._agents.values():
            await agent.close()
