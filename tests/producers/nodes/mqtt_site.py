"""Real Mosquittos with a node next to each, and a client of each, for the time of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.producers.agents.agent import Agent
from regraft.producers.agents.broker_address import BrokerAddress
from regraft.producers.agents.mqtt_client_side import MqttSession
from regraft.producers.nodes.mqtt.mqtt_connector import MqttConnector
from tests.producers.nodes.mqtt_brokers import MqttClient, MqttServer
from tests.producers.nodes.node_fleet import NodeFleet


@dataclass
class MqttSite:
    """Everything by broker; ``connect`` makes clients, which end with the site."""

    fleet: NodeFleet
    servers: dict[str, MqttServer]
    clients: list[MqttClient] = field(default_factory=list)

    async def connect(
        self, port: int, name: str, take: Callable[[Any], None] = lambda _: None, version: int = 4
    ) -> MqttClient:
        client = await MqttClient(port, take, name, version).connected()
        self.clients.append(client)
        return client

    async def agent(self, home: str, name: str = "web1") -> Agent:
        brokers = {
            each: BrokerAddress(each, "127.0.0.1", server.port, scheme="mqtt") for each, server in self.servers.items()
        }
        agent = Agent(name, brokers, home, MqttSession)
        await agent.start("127.0.0.1", 0)
        return agent

    def movable(self, broker: str) -> list[str]:
        """Return the subscriptions that a broker's node has registered as ones that may move."""
        return [name for name, client in self.fleet.ports[broker].clients.connected.items() if client.may_move]


@asynccontextmanager
async def mqtt_site(
    directory: Path,
    configuration: OverlayConfiguration,
    delays_s: dict[str, float] | None = None,
    more: dict[str, str] | None = None,
) -> AsyncIterator[MqttSite]:
    """``more`` are further lines of brokers' settings."""
    settings = dict.fromkeys(configuration.brokers, "") | (more or {})
    servers = {broker: MqttServer(broker, directory, lines).start() for broker, lines in settings.items()}
    site = MqttSite(NodeFleet(configuration, delays_s), servers)
    try:
        await site.fleet.begin({broker: MqttConnector(server.url, broker) for broker, server in servers.items()})
        yield site
    finally:
        for client in site.clients:
            client.close()
        await site.fleet.close()
        for server in servers.values():
            server.stop()
