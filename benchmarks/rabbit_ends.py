"""Start, federate and connect to the RabbitMQ servers of a line.

The servers are those of the tests, because no package provides one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from pika import ConnectionParameters

from regraft.infra.process.find_port import LOOPBACK
from regraft.producers.nodes.amqp.amqp_address import AmqpPlace
from regraft.producers.nodes.amqp.amqp_connector import AmqpConnector
from regraft.producers.nodes.amqp.ask_rabbit import GUEST
from regraft.producers.nodes.amqp.drive_pika import PikaChannel, PikaConnection
from regraft.producers.nodes.connectors.ask_api import BrokerApi
from tests.producers.nodes.rabbit_servers import RabbitServer

EXCHANGE = "amq.topic"
CLOSE_S_MAX, ASK_S_MAX = 5.0, 10.0
HOPS_MAX = 2  # The line has two links.
RETRY_S = 1  # Between attempts of a link to connect; RabbitMQ's default is 5.
PLUGINS = "[rabbitmq_event_exchange,rabbitmq_management,rabbitmq_federation]."
POLICY = {"pattern": r"^amq\.topic$", "definition": {"federation-upstream-set": "all"}, "apply-to": "exchanges"}
UPSTREAMS = "/api/parameters/federation-upstream/%2F"


def start_rabbit(name: str, directory: Path, remote: int | None = None) -> tuple[RabbitServer, int, int]:
    """Start a server, federated with the one at port ``remote`` if given.

    Returns it with its ports for clients and for connectors, which are the same.
    """
    place = directory / name
    place.mkdir()
    server = RabbitServer(place, PLUGINS).start()
    (directory / f"{name}.api").write_text(server.api.url)
    if remote is not None:
        federate(name, directory, (), (remote,))
    return server, server.port, server.port


def federate(name: str, directory: Path, present: Collection[int], wanted: Collection[int]) -> None:
    """Replace a server's links to the ``present`` ports with links to the ``wanted`` ones, removing old links first."""
    api = (directory / f"{name}.api").read_text()
    _put(f"{api}/api/policies/%2F/line", POLICY)
    for port in set(present) - set(wanted):
        _ask(Request(f"{api}{UPSTREAMS}/at-{port}", method="DELETE"))
    for port in set(wanted) - set(present):
        uri = f"amqp://{GUEST}:{GUEST}@{LOOPBACK}:{port}"
        link = {"uri": uri, "max-hops": HOPS_MAX, "reconnect-delay": RETRY_S}
        _put(f"{api}{UPSTREAMS}/at-{port}", {"value": link})


def rabbit_connector(port: int, broker: str, directory: Path) -> AmqpConnector:
    """Return the connector of a broker to its server; ``directory`` is where the server was started."""
    api = BrokerApi((directory / f"{broker}.api").read_text(), GUEST, GUEST)
    return AmqpConnector(f"amqp://{LOOPBACK}:{port}", broker, place=AmqpPlace(EXCHANGE, api))


class AmqpEnd:
    """A client of RabbitMQ; publishes without confirms."""

    def __init__(self, connection: PikaConnection, channel: PikaChannel, key: str) -> None:
        self._connection, self._channel, self._key = connection, channel, key

    @classmethod
    async def connect(cls, port: int, key: str) -> AmqpEnd:
        """Connect to the broker at a port."""
        connection = PikaConnection(ConnectionParameters(LOOPBACK, port))
        return cls(connection, await connection.channel(), key)

    async def listen(self, take: Callable[[bytes], None]) -> None:
        """Bind a queue and consume from it."""

        def on_message(_channel: Any, _method: Any, _properties: Any, payload: bytes) -> None:
            take(payload)

        channel, ask = self._channel.channel, self._channel.ask
        queue = (await ask(channel.queue_declare, queue="", exclusive=True)).method.queue
        await ask(channel.queue_bind, queue=queue, exchange=EXCHANGE, routing_key=self._key)
        await ask(channel.basic_consume, queue=queue, on_message_callback=on_message, auto_ack=True)

    async def publish(self, payload: bytes) -> None:
        """Publish."""
        self._channel.channel.basic_publish(EXCHANGE, self._key, payload)

    async def flush(self) -> None:
        """Do nothing: the loop sends by itself."""

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close(CLOSE_S_MAX)


def _put(url: str, value: object) -> None:
    body = json.dumps(value).encode()
    _ask(Request(url, body, {"Content-Type": "application/json"}, method="PUT"))


def _ask(request: Request) -> None:
    login = base64.b64encode(f"{GUEST}:{GUEST}".encode()).decode()
    request.add_header("Authorization", f"Basic {login}")
    try:
        urlopen(request, timeout=ASK_S_MAX).close()
    except HTTPError as error:
        raise RuntimeError(f"{request.get_method()} {request.full_url}: {error} ({error.read()!r})") from error
