"""Which RabbitMQ a door uses, and what of it. Pure.

In: settings of the door. Out: how the client library connects.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from pika import ConnectionParameters, PlainCredentials, SSLOptions

from regraft.producers.nodes.ask_api import BrokerApi
from regraft.producers.nodes.ask_rabbit import login_of
from regraft.producers.nodes.door_addresses import DoorAddresses
from regraft.schemas.topics import DEFAULT_NAMESPACE

PORTS = {"amqp": 5672, "amqps": 5671}
ADVICE = "amqp://host:port names a RabbitMQ broker, amqps one with TLS"
HEARTBEAT_S = 15


@dataclass(frozen=True)
class AmqpPlace:
    """The parts of a broker that a door uses: its exchange, and where its clients' interest is reported.

    ``filters`` are binding keys that are always wanted. With ``is_durable``, messages come from a queue that survives
    restarts of node and broker. ``overlay`` is the overlay's namespace.
    """

    exchange: str = "amq.topic"
    api: BrokerApi | None = None
    filters: Sequence[str] = ()
    is_durable: bool = False
    tls: ssl.SSLContext | None = None
    overlay: str = DEFAULT_NAMESPACE


def parameters_of(addresses: DoorAddresses, user: str, password: str, place: AmqpPlace) -> ConnectionParameters:
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


def vhost_of(addresses: DoorAddresses) -> str:
    """Return the virtual host that the path of a door names."""
    return unquote(addresses.path[1:]) or "/"
