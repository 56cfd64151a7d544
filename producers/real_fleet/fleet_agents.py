"""The agents of a fleet on this machine, one at each broker, and which of the fleet's clients they take where.

In: addresses of servers. Out: connections of clients through agents, and where these clients are. The clients of some
agents are mobile: they begin at their broker, and later may be where another broker is, from which all others are as
far as from that. An agent may die; when it has restarted, its clients connect to it again, and begin at its broker.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from regraft.infra.process.find_port import LOOPBACK
from regraft.producers.agents.agent import Agent
from regraft.producers.agents.broker_address import BrokerAddress
from regraft.producers.agents.client_session import ClientSession
from regraft.producers.real_fleet.broker_kinds import BrokerKind
from regraft.producers.real_fleet.fleet_client import FleetClient
from regraft.producers.real_fleet.link_proxy import LinkProxy
from regraft.schemas.units import SECOND_MS

Delay = Callable[[str, str], float]


class FleetAgents:
    """``urls`` are those of the servers of a kind whose clients can have agents, by broker.

    ``delay_ms`` returns the delay between the places of two brokers; the agents at ``mobile`` brokers carry mobile
    clients.
    """

    def __init__(
        self, urls: Mapping[str, str], kind: BrokerKind, delay_ms: Delay, mobile: Collection[str] = ()
    ) -> None:
        places = {broker: urlsplit(url) for broker, url in urls.items()}
        self._ports = {broker: at.port or 0 for broker, at in places.items()}
        self._scheme = next(at.scheme for at in places.values())
        self._agents: dict[str, Agent] = {}
        self._dead: dict[str, socket.socket] = {}  # By broker: what keeps the port of a dead agent.
        self._counts_before: Counter[str] = Counter()
        self._ways: dict[str, dict[str, LinkProxy]] = {}  # Of mobile agents, by home and broker.
        self._kind, self._delay_ms, self._mobile = kind, delay_ms, frozenset(mobile)
        self._broker_of: dict[str, str] = {}  # Of a client's agent.
        self._sessions: dict[str, ClientSession[Any]] = {}

    async def start(self) -> None:
        """Let all agents listen."""
        for number, broker in enumerate(self._ports):
            ports = await self._begin_ways(broker) if broker in self._mobile else self._ports
            addresses = {name: BrokerAddress(name, LOOPBACK, port, scheme=self._scheme) for name, port in ports.items()}
            await self._begin(f"site{number}", addresses, broker, 0)

    async def _begin(self, name: str, addresses: Mapping[str, BrokerAddress], broker: str, port: int) -> None:
        assert self._kind.session_of is not None
        self._agents[broker] = Agent(name, addresses, broker, self._kind.session_of)
        await self._agents[broker].start(LOOPBACK, port)

    def kill(self, broker: str) -> None:
        """Let the agent at a broker die with all that waits in its connections."""
        port = self._agents[broker].port
        self._agents[broker].abort()
        kept = self._dead[broker] = socket.socket()
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind((LOOPBACK, port))  # Nobody listens there, and nobody else gets it.

    async def restart(self, broker: str) -> None:
        """Begin a dead agent again, where its clients expect it."""
        before = self._agents[broker]
        self._counts_before += before.counts
        with self._dead.pop(broker) as kept:
            await self._begin(before.name, before.brokers, broker, kept.getsockname()[1])

    def broker_of(self, name: str) -> str:
        """Return the broker at which a client's agent is."""
        return self._broker_of.get(name, "")

    def has_all(self, broker: str) -> bool:
        """Return True if all clients of the agent at a broker are connected to it."""
        return all(self._session(name) is not None for name, at in self._broker_of.items() if at == broker)

    def _session(self, name: str) -> ClientSession[Any] | None:
        session = self._sessions.get(name)
        if session is None or session.is_over:
            there = self._agents[self._broker_of[name]].sessions if name in self._broker_of else []
            session = next((each for each in there if self._kind.name_of(each.client) == name), None)
            if session is not None:
                self._sessions[name] = session
        return session

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
        self._broker_of[name] = broker
        return await self._kind.connect(f"{self._scheme}://{LOOPBACK}:{self._agents[broker].port}", name)

    def home_of(self, name: str, subject: str = "") -> str:
        """Return where a client publishes, or has its subscription to a subject; "" if that is not known."""
        session = self._session(name)
        if session is None or not subject:
            return "" if session is None else session.homes.home
        subscriptions = session.client.subscriptions.values()
        homes = {each.home for each in subscriptions if each.words == subject.split(".")}
        return homes.pop() if len(homes) == 1 else ""

    def homes_at(self, broker: str) -> dict[str, str]:
        """Return the homes of the mobile clients that began at a broker, as far as they have subscriptions."""
        sessions = {name: self._session(name) for name, at in self._broker_of.items() if at == broker}
        there = {name: each for name, each in sessions.items() if each is not None and each.client.subscriptions}
        return {name: each.homes.subscribing for name, each in there.items()}

    def counts(self) -> Counter[str]:
        """Return what all agents have counted."""
        return sum((each.counts for each in self._agents.values()), self._counts_before.copy())

    async def close(self) -> None:
        """End all agents."""
        for agent in self._agents.values():
            await agent.close()
        for kept in self._dead.values():
            kept.close()
        for way in [way for ways in self._ways.values() for way in ways.values()]:
            await way.close()
