"""The kinds of real brokers that a fleet on this machine can have: how each is started, and what its clients can do.

In: the name of a kind. Out: a server and its addresses, a connector to it, and clients that all behave alike.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from regraft.infra.local.mosquitto_server import start_mosquitto_service
from regraft.infra.local.nats_server import start_nats_service
from regraft.infra.local.rabbit_server import RabbitAddress, start_rabbit_service
from regraft.infra.local.supervise import Supervisor
from regraft.infra.process.find_extras import require_extras
from regraft.infra.process.find_port import LOOPBACK
from regraft.producers.agents.client_session import ClientSession
from regraft.producers.agents.nats_session import NatsSession
from regraft.producers.emulator_settings import AMQP, MQTT, NATS
from regraft.producers.nodes.amqp.ask_rabbit import login_of
from regraft.producers.nodes.connectors.ask_api import BrokerApi
from regraft.producers.nodes.connectors.connector import Connector
from regraft.producers.nodes.nats.nats_connector import NatsConnector
from regraft.producers.real_fleet.fleet_client import PUBLISHER_HEADER, FleetClient, Take

log = structlog.get_logger(__name__)

BROKERS_OF_RABBIT = 4


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where clients and a node's connector connect.

    ``interest_file`` is where a connector may keep what clients want for its next incarnation, ``log_file`` the
    broker's output, ``api_url`` its management interface.
    """

    url: str
    connector_url: str
    interest_file: Path | None = None
    log_file: Path | None = None
    api_url: str = ""


@dataclass(frozen=True)
class BrokerKind:
    """One kind of broker. ``start`` runs a server, ``connect`` connects a client, ``connector_of`` makes a node's
    connector; ``session_of`` is what an agent has for each client, None if clients can have none, and ``name_of``
    returns the name under which such a client has connected.
    """

    name: str
    start: Callable[[Supervisor, str, Path], ServerAddress]
    connect: Callable[[str, str], Awaitable[FleetClient]]
    connector_of: Callable[[ServerAddress, str], Connector]
    session_of: type[ClientSession[Any]] | None = None
    name_of: Callable[[Any], str] = str


def broker_kind(name: str) -> BrokerKind:
    """Return the kind with this name; raise StackError if a package that it needs is missing."""
    require_extras(f"Brokers = {name}", name)
    if name == NATS:
        return BrokerKind(
            NATS,
            _start_nats,
            NatsClient.connect,
            lambda at, broker: NatsConnector(at.connector_url, broker),
            NatsSession,
            lambda client: str(client.connect.get("name", "")),
        )
    if name == AMQP:
        from regraft.producers.nodes.amqp.amqp_address import AmqpPlace
        from regraft.producers.nodes.amqp.amqp_connector import AmqpConnector
        from regraft.producers.real_fleet.amqp_client import AmqpClient, exchange_of

        def amqp_connector_of(at: ServerAddress, broker: str) -> Connector:
            place = AmqpPlace(exchange_of(at.url), BrokerApi(at.api_url, *login_of("", "")))
            return AmqpConnector(at.connector_url, broker, place=place)

        return BrokerKind(AMQP, RabbitServers().start, lambda url, _name: AmqpClient.connect(url), amqp_connector_of)
    from regraft.producers.agents.mqtt_client_side import MqttSession
    from regraft.producers.nodes.mqtt.mqtt_connector import MqttConnector
    from regraft.producers.real_fleet.mqtt_client import MqttClient

    def connector_of(at: ServerAddress, broker: str) -> Connector:
        return MqttConnector(at.connector_url, broker, interest_file=at.interest_file, log_file=at.log_file)

    return BrokerKind(
        MQTT, _start_mosquitto, MqttClient.connect, connector_of, MqttSession, lambda client: str(client.id)
    )


def _start_nats(supervisor: Supervisor, broker: str, directory: Path) -> ServerAddress:
    address = start_nats_service(supervisor, broker, directory)
    return ServerAddress(address.url, address.leaf_url)


def _start_mosquitto(supervisor: Supervisor, broker: str, directory: Path) -> ServerAddress:
    url = f"mqtt://{LOOPBACK}:{start_mosquitto_service(supervisor, broker, directory)}"
    return ServerAddress(url, url, directory / f"{broker}.interest.json", directory / f"{broker}.log")


class RabbitServers:
    """The RabbitMQs of a fleet: each is several brokers, with an exchange for each, as it takes seconds to start."""

    def __init__(self) -> None:
        self._count = 0
        self._last: RabbitAddress | None = None

    def start(self, supervisor: Supervisor, broker: str, directory: Path) -> ServerAddress:
        """Declare one more broker's exchange, at a new server if the last one has its share."""
        from regraft.producers.real_fleet.amqp_client import declare_exchange

        if self._last is None or self._count % BROKERS_OF_RABBIT == 0:
            self._last = start_rabbit_service(supervisor, broker, directory)
        self._count += 1
        at = self._last
        declare_exchange(url := f"{at.url}#{broker}")
        return ServerAddress(url, at.url, api_url=at.api_url)


class NatsClient:
    """A connection of nats-py."""

    def __init__(self, client: Any) -> None:
        self._client = client

    @classmethod
    async def connect(cls, url: str, name: str) -> NatsClient:
        """Connect to a server under a name, and again whenever the connection is cut."""
        import nats

        return cls(await nats.connect(url, name=name, max_reconnect_attempts=-1, error_cb=_log_error))

    async def publish(self, subject: str, payload: bytes, publisher: str) -> None:
        """Publish as this publisher; without a name, as whom the broker, or an agent, considers it."""
        headers = {PUBLISHER_HEADER: publisher} if publisher else None
        await self._client.publish(subject, payload, headers=headers)

    async def subscribe(self, subject: str, take: Take) -> Any:
        """Call ``take`` with the payload of each message with a subject; return the subscription."""

        async def handle(message: Any) -> None:
            take(message.data)

        return await self._client.subscribe(subject, cb=handle)

    async def unsubscribe(self, subscription: Any) -> None:
        """End a subscription."""
        await subscription.unsubscribe()

    async def close(self) -> None:
        """End the connection."""
        await self._client.close()


async def _log_error(error: Exception) -> None:
    log.warning("client_failed", reason=str(error))
