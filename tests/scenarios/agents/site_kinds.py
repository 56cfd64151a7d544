"""What differs between sites of NATS and of MQTT: brokers, connectors, sessions and clients; the rest is shared."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, Protocol

import mqtt5

from regraft.producers.agents import mqtt_client_side, mqtt_upstream
from regraft.producers.agents.client_session import ClientSession
from regraft.producers.agents.mqtt_client_facts import FIRST_ID
from regraft.producers.agents.mqtt_client_side import MqttSession
from regraft.producers.agents.mqtt_upstream import MqttUpstream
from regraft.producers.agents.nats_session import NatsSession
from regraft.producers.agents.nats_upstream import Upstream as NatsUpstream
from regraft.producers.nodes.mqtt import mosquitto_reports, mqtt_connector, mqtt_session, watch_echoes
from regraft.producers.nodes.mqtt.mqtt_connection import MqttConnection
from regraft.producers.nodes.mqtt.mqtt_connector import MqttConnector
from regraft.producers.nodes.mqtt.topic_trials import TopicTrials
from regraft.producers.nodes.nats import local_streams, nats_connector, nats_leaf
from regraft.producers.nodes.nats.nats_connector import NatsConnector
from regraft.producers.nodes.nats.nats_leaf import Leaf
from regraft.schemas.agent_names import agent_subscription
from tests.scenarios.agents.agents_ledger import ClientLedger
from tests.scenarios.agents.memory_mqtt import MQTT_PORT, MemoryMqtt
from tests.scenarios.agents.memory_nats import CLIENT_PORT, LEAF_PORT, MemoryNats
from tests.scenarios.agents.mqtt_site_clients import MqttSiteClient
from tests.scenarios.agents.site_clients import SUBJECT, NatsSiteClient, SiteClient
from tests.scenarios.agents.wires import Wires

NATS, MQTT = "nats", "mqtt"
LOGINS, NOTES = 1, 2  # What a broker may refuse: to let a client in, or what only its agent needs.
NEVER_S = 1e9
LONGEST_KEEP_ALIVE_S = 65_535
MQTT_SESSION_S = 1.0  # Of clients of MQTT 5 without an agent: a node does not learn whether they have a session.
OnEnd = Callable[[SiteClient], None]
Beside = Counter[tuple[str, int]]


class SiteKind(Protocol):
    """A protocol. ``clocked`` are the product's modules that read a clock, ``limits`` values that hold no test up.

    ``refusals`` are what its brokers may refuse, ``nodes_end`` is a node's end of the connection to its broker.
    """

    client_port: int
    session_of: type[ClientSession[Any]]
    nodes_end: type[asyncio.Protocol]
    clocked: tuple[ModuleType, ...]
    limits: tuple[tuple[Any, str, Any], ...]
    refusals: tuple[int, ...]

    def server(self, name: str, wires: Wires) -> Any:
        """Return a broker."""
        ...

    def connector(self, server: Any) -> Any:
        """Return the connector to a broker."""
        ...

    def client(self, name: str, stay: str, ledger: ClientLedger, on_end: OnEnd, seed: int) -> SiteClient:
        """Return a client."""
        ...

    def kill(self, connector: Any) -> None:
        """End a connector as the death of its process does."""
        ...

    def unanswered(self, connector: Any) -> list[bytes]:
        """Return what a node has handed over and its broker has not answered: it may come twice if that dies."""
        ...

    def beside(self, server: Any) -> Beside:
        """Return, by client and number, how often a broker has a subscription beside an agent."""
        ...

    def connected(self, server: Any) -> Counter[str]:
        """Return, by name, how many connections of clients beside agents a broker has."""
        ...


class NatsKind:
    """NATS."""

    client_port, session_of, nodes_end = CLIENT_PORT, NatsSession, Leaf
    clocked = (local_streams, nats_connector, nats_leaf)
    refusals = (LOGINS,)
    limits = ((nats_leaf, "PING_S", NEVER_S), (nats_leaf, "SILENCE_S_MAX", NEVER_S))

    def server(self, name: str, wires: Wires) -> Any:
        """Return a broker."""
        return MemoryNats(name, wires)

    def connector(self, server: Any) -> Any:
        """Return the connector to a broker."""
        return NatsConnector(f"nats://{server.name}:{LEAF_PORT}", server.name)

    def client(self, name: str, stay: str, ledger: ClientLedger, on_end: OnEnd, _seed: int) -> SiteClient:
        """Return a client."""
        return NatsSiteClient(name, stay, ledger, on_end)

    def kill(self, connector: Any) -> None:
        """End a connector as the death of its process does."""
        for task in connector._tasks:
            task.cancel()
        if connector._leaf is not None:
            connector._leaf.end()

    def unanswered(self, _connector: Any) -> list[bytes]:
        """Return nothing: brokers answer no message."""
        return []

    def beside(self, server: Any) -> Beside:
        """Return, by client and number, how often a broker has a subscription beside an agent."""
        subscribed = Counter[tuple[str, int]]()
        for (_, queue), count in server.interest.items():
            each = agent_subscription(queue.decode())
            if each is not None:
                subscribed[each.client, each.number] += count
        return subscribed

    def connected(self, server: Any) -> Counter[str]:
        """Return, by name, how many connections of clients beside agents a broker has."""
        return _names_of(server.clients)


class MqttKind:
    """MQTT."""

    client_port, session_of, nodes_end = MQTT_PORT, MqttSession, MqttConnection
    refusals = (LOGINS, NOTES)
    clocked = (mosquitto_reports, mqtt_connector, mqtt_session, watch_echoes)
    limits = (
        (mqtt_session, "KEEP_ALIVE_S", LONGEST_KEEP_ALIVE_S), (mqtt_upstream, "KEEP_ALIVE_S", NEVER_S),
        (mqtt_client_side, "LOGIN_S_MAX", NEVER_S),
        # A connector that does not open ends its process; here it waits.
        (mqtt_connector, "CONNECT_S_MAX", NEVER_S), (mqtt_connector, "LOG_S_MAX", NEVER_S),
        # A trial, which is of QoS 1, is overtaken by others of QoS 0 where a client takes no more of QoS 1.
        (TopicTrials, "is_due", lambda *_given, **_more: False),
    )  # fmt: skip

    def server(self, name: str, wires: Wires) -> Any:
        """Return a broker."""
        return MemoryMqtt(name, wires)

    def connector(self, server: Any) -> Any:
        """Return the connector to a broker."""
        url = f"mqtt://{server.name}:{MQTT_PORT}"
        return MqttConnector(url, server.name, session_s=MQTT_SESSION_S, log_file=server.log_file)

    def client(self, name: str, stay: str, ledger: ClientLedger, on_end: OnEnd, seed: int) -> SiteClient:
        """Return a client."""
        return MqttSiteClient(name, stay, ledger, on_end, seed)

    def kill(self, connector: Any) -> None:
        """End a connector as the death of its process does."""
        for task in connector._tasks:
            task.cancel()
        connector._session.cut("its process has died")

    def unanswered(self, connector: Any) -> list[bytes]:
        """Return what a node has handed over and its broker has not answered: it may come twice if that dies."""
        packets = [mqtt5.read(frame)[0] for frame in connector._session._kept.values()]
        return [each.payload for each in packets if isinstance(each, mqtt5.PublishPacket) and SUBJECT in each.topic]

    def beside(self, server: Any) -> Beside:
        """Return, by client and number, how often a broker has a subscription beside an agent."""
        subscribed = Counter[tuple[str, int]]()
        for connection in server.connections:
            if isinstance(upstream := connection.end.peer.protocol, MqttUpstream):
                client: Any = upstream._owner.client  # type: ignore[attr-defined]
                ids = [each.id for each in connection.session.subscriptions.values() if each.id >= FIRST_ID]
                moving = [number for number in ids if not _stays(client.numbered(number))]
                subscribed.update((client.name, number) for number in moving)
        return subscribed

    def connected(self, server: Any) -> Counter[str]:
        """Return, by name, how many connections of clients beside agents a broker has."""
        return _names_of(server.connections)


def _names_of(connections: Iterable[Any]) -> Counter[str]:
    calling = (connection.end.peer.protocol for connection in connections)
    return Counter(each._owner.client.name for each in calling if isinstance(each, AGENTS_END))


def _stays(subscription: Any) -> bool:
    """Return True for a subscription that its agent counts among those that stay, not for one that it does not know."""
    return subscription is not None and subscription.number < 0


AGENTS_END = (NatsUpstream, MqttUpstream)
KINDS: dict[str, Callable[[], SiteKind]] = {NATS: NatsKind, MQTT: MqttKind}
