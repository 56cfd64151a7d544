"""Which RabbitMQ a door uses, and what of it. Pure.

In: settings of the door. Out: how the client library connects.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from pika import ConnectionParameters, PlainCredentials, SSLOptions

from regraft.producers.nodes.ask_api import BrokerApi
from regraft.producers.nodes.ask_rabbit import login_of
from regraft.producers.nodes.doors import DoorError
from regraft.schemas.topics import DEFAULT_NAMESPACE

PORT, TLS_PORT = 5672, 5671
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


def parameters_of(url: str, user: str, password: str, place: AmqpPlace) -> ConnectionParameters:
    """Return how to connect to ``amqp://host[:5672][/vhost]``, amqps with TLS; raise DoorError for another address."""
    parts = urlsplit(url)
    if parts.scheme not in ("amqp", "amqps") or not parts.hostname:
        raise DoorError(f"{url!r} is not a door: amqp://host:port names a RabbitMQ broker, amqps one with TLS")
    is_secure = parts.scheme == "amqps"
    context = (place.tls or ssl.create_default_context()) if is_secure else None
    return ConnectionParameters(
        parts.hostname,
        parts.port or (TLS_PORT if is_secure else PORT),
        unquote(parts.path[1:]) or "/",
        PlainCredentials(*login_of(user, password)),
        heartbeat=HEARTBEAT_S,
        ssl_options=None if context is None else SSLOptions(context, parts.hostname),
    )
