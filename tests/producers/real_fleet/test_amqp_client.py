"""A client of RabbitMQ in a fleet, without a server: what comes once a subscription has ended is not handed on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from regraft.producers.nodes.amqp.drive_pika import PikaChannel
from regraft.producers.real_fleet.amqp_client import AmqpClient


class _Channel:
    """Confirms each request at once, and keeps the callbacks of consumers."""

    def __init__(self) -> None:
        self.channel: Any = self
        self.handlers: list[Callable[..., None]] = []
        self.queue_declare = self.queue_bind = self.queue_delete = self.basic_consume = None

    async def ask(self, _method: object, **what: Any) -> Any:
        if "on_message_callback" in what:
            self.handlers.append(what["on_message_callback"])
        return SimpleNamespace(method=SimpleNamespace(queue="q"))


def test_a_delivery_behind_the_deletion_of_its_queue_is_not_handed_on() -> None:
    """RabbitMQ confirms the deletion before it sends what the queue had already handed to the channel."""

    async def steps() -> list[bytes]:
        client, channel, got = AmqpClient("amqp://127.0.0.1:1#data"), _Channel(), list[bytes]()
        client._main = cast(PikaChannel, channel)
        subscription = await client.subscribe("data.a", got.append)
        channel.handlers[0](None, None, None, b"before")
        await client.unsubscribe(subscription)
        channel.handlers[0](None, None, None, b"behind")
        return got

    assert asyncio.run(steps()) == [b"before"]
