"""The agents of a fleet on this machine, one at each broker, and which of the fleet's clients they take where.

In: addresses of servers. Out: connections of clients through agents, and where these clients are. The clients of some
agents are mobile: they begin at their broker, and later may be where another broker is, from which all others are as
far as from that.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from regraft.infra.process.find_port import LOOPBACK
from regraft.producers.agents.agent import Agent
from regraft.producers.agents.broker_address import BrokerAddress
from regraft.producers.agents.client_session import ClientSession
from regraft.producers.real_fleet.fleet_client import FleetClient
from regraft.producers.real_fleet.link_proxy import LinkProxy
from regraft.schemas.units import SECOND_MS

Connect = Callable[[str], Awaitable[FleetClient]]
Delay = Callable[[str, str], float]


class FleetAgents:
    """``urls`` are those of the servers, by broker; ``connect`` connects a client to an address.

    ``delay_ms`` returns the delay between the places of two brokers; the agents at ``mobile`` brokers carry mobile
    clients.
    """

    def __init__(
        self, urls: Mapping[str, str], connect: Connect, session_of: type[ClientSession[Any]], delay_ms: Delay,
        mobile: Collection[str] = (),
    ) -> None:  # fmt: skip
        places = {broker: urlsplit(url) for broker, url in urls.items()}
        self._ports = {broker: at.port or 0 for broker, at in places.items()}
        self._scheme = next(at.scheme for at in places.values())
        self._agents: dict[str, Agent] = {}
        self._ways: dict[str, dict[str, LinkProxy]] = {}  # Of mobile agents, by home and broker.
        self._connect, self._session_of, self._delay_ms = connect, session_of, delay_ms
        self._connecting = asyncio.Lock()  # One after the other, so that it is clear whose session is new.
        self._sessions: dict[str, ClientSession[Any]] = {}
        self._mobile: dict[str, list[str]] = {broker: [] for broker in mobile}  # Mobile clients, by broker.

    async def start(self) -> None:
        """Let all agents listen."""
        for number, broker in enumerate(self._ports):
            ports = await self._begin_ways(broker) if broker in self._mobile else self._ports
            addresses = {name: BrokerAddress(name, LOOPBACK, port, scheme=self._scheme) for name, port in ports.items()}
            self._agents[broker] = Agent(f"site{number}", addresses, broker, self._session_of)
            await self._agents[broker].start(LOOPBACK, 0)

    async def _begin_ways(self, home: str) -> dict[str, int]:
        self._ways[home] = {broker: LinkProxy(partial(self._ports.__getitem__, broker)) for broker in self._ports}
        self.place(home, home)
        return {broker: await way.start() for broker, way in self._ways[home].items()}

    def place(self, home: str, at: str) -> None:
        """Let the mobile clients that began at a broker be where another one is."""
        for broker, way in self._ways[home].items():
            way.delay_s = self._delay_ms(at, broker) / SECOND_MS

    async def connect(self, name: str, broker: str) -> FleetClient:
        """Connect a client to the agent at a broker."""
        agent = self._agents[broker]
        async with self._connecting:
            before = set(agent.sessions)
            client = await self._connect(f"{self._scheme}://{LOOPBACK}:{agent.port}")
            (self._sessions[name],) = set(agent.sessions) - before
        if broker in self._mobile:
            self._mobile[broker].append(name)
        return client

    def home_of(self, name: str, subject: str = "") -> str:
        """Return where a client publishes, or has its subscription to a subject; "" if that is not known."""
        session = self._sessions.get(name)
        if session is None or not subject:
            return "" if session is None else session.homes.home
        subscriptions = session.client.subscriptions.values()
        homes = {each.home for each in subscriptions if each.words == subject.split(".")}
        return homes.pop() if len(homes) == 1 else ""

    def homes_at(self, broker: str) -> dict[str, str]:
        """Return the homes of the mobile clients that began at a broker, as far as they have subscriptions."""
        sessions = {name: self._sessions[name] for name in self._mobile[broker]}
        return {name: each.homes.subscribing for name, each in sessions.items() if each.client.subscriptions}

    def counts(self) -> Counter[str]:
        """Return what all agents have counted."""
        return sum((agent.counts for agent in self._agents.values()), Counter())

    async def close(self) -> None:
        """End all agents."""
        for agent in self._agents.values():
            await agent.close()
        for way in [way for ways in self._ways.values() for way in ways.values()]:
            await way.close()
