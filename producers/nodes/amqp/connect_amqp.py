"""The connector to a RabbitMQ, as the settings describe it.

What it does belongs to :mod:`producers.nodes.amqp.amqp_connector`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from regraft.infra.process.find_extras import require_extras
from regraft.producers.connector_settings import ConnectorSettings
from regraft.producers.nodes.amqp.ask_rabbit import login_of
from regraft.producers.nodes.connectors.ask_api import BrokerApi
from regraft.producers.nodes.connectors.connector import Connector
from regraft.producers.nodes.connectors.connector_spec import ConnectorContext, ConnectorSpec


@dataclass(frozen=True)
class AmqpSettings(ConnectorSettings):
    """Settings of a node next to a RabbitMQ."""

    filters: Annotated[
        tuple[str, ...],
        "binding keys that the node always requests",
    ] = ()
    exchange: Annotated[str, "the topic exchange that takes part"] = "amq.topic"
    durable_session: Annotated[
        bool,
        "forward messages from a quorum queue",
    ] = False


def connect_amqp(context: ConnectorContext, settings: AmqpSettings) -> Connector:
    """Return the connector to a RabbitMQ."""
    require_extras("A connector to RabbitMQ", "amqp")
    from regraft.producers.nodes.amqp.amqp_address import AmqpPlace
    from regraft.producers.nodes.amqp.amqp_connector import AmqpConnector

    api, durable = rabbit_api(context), settings.durable_session
    place = AmqpPlace(settings.exchange, api, settings.filters, durable, context.tls, context.overlay)
    return AmqpConnector(context.url, context.broker, context.user, context.password, place)


def rabbit_api(context: ConnectorContext) -> BrokerApi | None:
    """Return the management interface, None if not set; without a separate user, the connector's asks."""
    api = context.api
    if api is None:
        return None
    login = (api.user, api.password) if api.user else (context.user, context.password)
    user, password = login_of(*login)
    return replace(api, user=user, password=password)


SPEC = ConnectorSpec(
    name="amqp",
    secure_scheme="amqps",
    settings=AmqpSettings,
    connect=connect_amqp,
    broker="a RabbitMQ",
    form="amqp://HOST:PORT/VHOST",
)
