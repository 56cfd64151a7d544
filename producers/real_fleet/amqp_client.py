"""A client of a RabbitMQ in a fleet: each subscription is a queue bound to the topic exchange that the node serves.

The client library is pika.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import structlog
from pika import BasicProperties, BlockingConnection, URLParameters

from regraft.infra.process.end_tasks import end_tasks
from regraft.producers.nodes.amqp.amqp_keys import binding_key_of, key_of
from regraft.producers.nodes.amqp.drive_pika import ClosedError, PikaChannel, PikaConnection
from regraft.producers.real_fleet.fleet_client import PUBLISHER_HEADER, Take

log = structlog.get_logger(__name__)

CLOSE_S_MAX = 2.0
PAUSE_S = 0.5


def exchange_of(url: str) -> str:
    """Return the exchange of a broker's address, which follows # there."""
    return urlsplit(url).fragment


def declare_exchange(url: str) -> None:
    """Declare the exchange of a broker's address."""
    connection = BlockingConnection(URLParameters(url))
    connection.channel().exchange_declare(exchange_of(url), "topic")
    connection.close()


class AmqpClient:
    """One connection, opened again whenever it is cut; its queues are declared again, too."""

    def __init__(self, url: str) -> None:
        self._parameters = URLParameters(url)
        self._exchange = exchange_of(url)
        self._connection: PikaConnection | None = None
        self._main: PikaChannel | None = None
        self._queues: dict[int, tuple[str, Take, str]] = {}  # Number -> subject, taker, name of the queue.
        self._made = 0
        self._keeping: asyncio.Task[None] | None = None

    @classmethod
    async def connect(cls, url: str) -> AmqpClient:
        """Connect to a server."""
        self = cls(url)
        await self._open()
        self._keeping = asyncio.get_running_loop().create_task(self._keep_open())
        return self

    async def publish(self, subject: str, payload: bytes, publisher: str) -> None:
        """Publish as this publisher."""
        if self._main is None or not self._main.channel.is_open:
            raise ConnectionError("the server is away")
        properties = BasicProperties(headers={PUBLISHER_HEADER: publisher})
        self._main.channel.basic_publish(self._exchange, key_of(subject), payload, properties)

    async def subscribe(self, subject: str, take: Take) -> int:
        """Call ``take`` with the payload of each message with a subject; return the subscription."""
        self._made += 1
        self._queues[self._made] = subject, take, ""
        await self._declare(self._made)
        return self._made

    async def unsubscribe(self, subscription: int) -> None:
        """End a subscription."""
        _, _, queue = self._queues.pop(subscription)
        if self._main is not None and queue:
            await self._main.ask(self._main.channel.queue_delete, queue=queue)

    async def close(self) -> None:
        """End the connection."""
        if self._keeping is not None:
            await end_tasks([self._keeping])
        if self._connection is not None:
            await self._connection.close(CLOSE_S_MAX)

    async def _open(self) -> None:
        self._connection = PikaConnection(self._parameters)
        self._main = await self._connection.channel()
        for number in list(self._queues):
            await self._declare(number)

    async def _keep_open(self) -> None:
        while True:
            assert self._main is not None
            log.warning("client_cut", reason=await self._main.closed)
            while not self._main.channel.is_open:
                await asyncio.sleep(PAUSE_S)
                try:
                    await self._open()
                except (ClosedError, OSError) as error:
                    log.debug("client_failed", reason=str(error))

    async def _declare(self, number: int) -> None:
        main = self._main
        assert main is not None
        subject, take, _ = self._queues[number]
        declared = await main.ask(main.channel.queue_declare, queue="", exclusive=True)
        queue = declared.method.queue
        self._queues[number] = subject, take, queue

        def handle(_channel: Any, _deliver: Any, _properties: Any, body: bytes) -> None:
            if number in self._queues:  # RabbitMQ may deliver after it has confirmed that the queue is deleted.
                take(body)

        await main.ask(main.channel.basic_consume, queue=queue, on_message_callback=handle, auto_ack=True)
        key = binding_key_of(subject)
        await main.ask(main.channel.queue_bind, queue=queue, exchange=self._exchange, routing_key=key)
