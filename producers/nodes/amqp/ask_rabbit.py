"""Ask RabbitMQ's management interface for the bindings of an exchange."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from regraft.producers.nodes.amqp.amqp_interest import Binding
from regraft.producers.nodes.connectors.ask_api import BrokerApi

GUEST = "guest"  # User and password that RabbitMQ accepts from its own machine.


class _Listed(msgspec.Struct):
    destination_type: str
    destination: str
    routing_key: str


def login_of(user: str, password: str) -> tuple[str, str]:
    """Return user and password; without a user, RabbitMQ's default login."""
    return (user, password) if user else (GUEST, GUEST)


def bindings_of(api: BrokerApi, vhost: str, exchange: str) -> list[Binding]:
    """Return the bindings whose source is the exchange; raise NoAnswerError if the interface does not answer."""
    path = f"/api/exchanges/{quote(vhost, safe='')}/{quote(exchange, safe='')}/bindings/source"
    listed = api.ask(path, list[_Listed])
    return [Binding(each.destination_type, each.destination, each.routing_key) for each in listed]
