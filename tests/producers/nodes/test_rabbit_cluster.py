"""A RabbitMQ cluster of three servers as one broker, with a quorum queue."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from regraft.infra.process.find_port import is_listening
from regraft.producers.nodes.amqp.amqp_address import AmqpPlace
from regraft.producers.nodes.amqp.amqp_connector import AmqpConnector
from regraft.producers.nodes.connectors.ask_api import BrokerApi
from regraft.producers.nodes.connectors.connector import LocalMessage
from tests.producers.nodes.connector_kit import needs, until
from tests.producers.nodes.rabbit_servers import RabbitServer, rabbit_cluster
from tests.wait_until import PATIENCE_S

pytestmark = pytest.mark.stack

BEFORE, COUNT = 100, 400


def publish(server: RabbitServer, confirmed: list[int]) -> None:
    """Publish as a client that waits until the broker has each message."""
    import pika

    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", server.port))
    channel = connection.channel()
    channel.confirm_delivery()
    for number in range(COUNT):
        channel.basic_publish("amq.topic", "orders.x", b"%d" % number)
        confirmed.append(number)
    connection.close()


def test_what_a_cluster_confirms_crosses_once_although_the_nodes_server_dies(tmp_path: Path) -> None:
    """The node turns to another server, and its quorum queue to another leader."""
    needs("amqp")
    came: list[int] = []
    confirmed: list[int] = []

    async def go(servers: list[RabbitServer]) -> None:
        api = BrokerApi(",".join(server.api.url for server in servers), "guest", "guest")
        place = AmqpPlace("amq.topic", api, is_durable=True)
        connector = AmqpConnector(",".join(server.url for server in servers), "b01", place=place)

        def take(message: LocalMessage) -> None:
            came.append(int(message.payload))
            connector.release(message.receipt)

        await connector.start(lambda *_: None, take)
        publishing = asyncio.create_task(asyncio.to_thread(publish, servers[-1], confirmed))
        await until(lambda: len(came) >= BEFORE)
        servers[0].kill()
        await until(lambda: not connector.is_open)
        await until(lambda: connector.is_open)
        await publishing
        await until(lambda: len(came) >= COUNT)
        await asyncio.sleep(0.3)
        assert sorted(came) == confirmed == list(range(COUNT))
        await connector.close()

    with ExitStack() as stack:
        servers = rabbit_cluster(tmp_path, 3)
        for server in servers:
            stack.callback(server.kill)
        with ThreadPoolExecutor() as starts:
            first = starts.submit(servers[0].start)
            while not is_listening(servers[0].names_port):
                assert not first.done(), first.exception()
                time.sleep(0.01)
            for started in [first, *(starts.submit(server.start) for server in servers[1:])]:
                started.result()
        asyncio.run(asyncio.wait_for(go([servers[1], servers[0], servers[2]]), PATIENCE_S))
