"""Which RabbitMQ a connector uses, and what of it. Pure."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import unquote

from pika import ConnectionParameters, PlainCredentials, SSLOptions

from regraft.producers.nodes.amqp.amqp_interest import Binding
from regraft.producers.nodes.amqp.ask_rabbit import login_of
from regraft.producers.nodes.connectors.ask_api import BrokerApi
from regraft.producers.nodes.connectors.connector_addresses import ConnectorAddresses
from regraft.schemas.topics import DEFAULT_NAMESPACE

PORTS = {"amqp": 5672, "amqps": 5671}
ADVICE = "amqp://host:port names a RabbitMQ broker, amqps one with TLS"
HEARTBEAT_S = 15


@dataclass(frozen=True)
class AmqpPlace:
    """The parts of a broker that a connector uses: its exchange, and where its clients' interest is reported.

    ``filters`` are binding keys that are always wanted. With ``is_durable``, messages come from a queue that survives
    restarts of node and broker. ``overlay`` is the overlay's namespace.
    """

    CHANGES_ONLY: ClassVar[str] = (
        "bindings created before the node started, and those removed while it is away, are unknown: give "
        "node.connector_api, the address of RabbitMQ's management plugin"
    )

    exchange: str = "amq.topic"
    api: BrokerApi | None = None
    filters: Sequence[str] = ()
    is_durable: bool = False
    tls: ssl.SSLContext | None = None
    overlay: str = DEFAULT_NAMESPACE


def addresses_of(connector: str) -> ConnectorAddresses:
    """Return the addresses of a connector; raise ConnectorError for any that is none of a RabbitMQ."""
    return ConnectorAddresses(connector, PORTS, ADVICE)


def parameters_of(addresses: ConnectorAddresses, user: str, password: str, place: AmqpPlace) -> ConnectionParameters:
    """Return how to connect to the address whose turn it is."""
    context = (place.tls or ssl.create_default_context()) if addresses.scheme == "amqps" else None
    return ConnectionParameters(
        addresses.host,
        addresses.port,
        vhost_of(addresses),
        PlainCredentials(*login_of(user, password)),
        heartbeat=HEARTBEAT_S,
        ssl_options=None if context is None else SSLOptions(context, addresses.host),
    )


def vhost_of(addresses: ConnectorAddresses) -> str:
    """Return the virtual host that the path of a connector names."""
    return unquote(addresses.path[1:]) or "/"


def reports_error(
    addresses: ConnectorAddresses, place: AmqpPlace, queue: str, bindings: list[Binding] | None, *, has_events: bool
) -> str:
    """Return why the broker does not report what its clients want, "" if it does; ``queue`` is the node's own."""
    is_listed = any((one.kind, one.name) == ("queue", queue) for one in bindings or ())
    if bindings is not None and place.api is not None and not is_listed:
        return (
            f"node.connector_api ({place.api.url}) does not list the binding of this node's own queue at exchange "
            f"{place.exchange!r} of {addresses}: it belongs to a different broker"
        )
    if has_events or bindings is not None or place.filters:
        return ""
    return (
        f"the broker at {addresses} does not report what its clients want: enable its plugin "
        "rabbitmq_event_exchange, whose events are in the virtual host of event_exchange.vhost, or give "
        "node.connector_api, the address of its management plugin, or name the filters in connectors.amqp.filters"
    )
