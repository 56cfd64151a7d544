"""A RabbitMQ whose queues, bindings and exchange are deleted while a node uses them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.producers.nodes.connector_brokers import Received
from tests.producers.nodes.connector_kit import opened, until
from tests.producers.nodes.test_amqp_connector import run_amqp  # noqa: F401

pytestmark = pytest.mark.stack
MENDED_S_MAX = 12.0  # Without the broker's word, a heartbeat of 15 s would be missed first.


async def crosses(broker: Any, received: Received, payload: bytes) -> None:
    """Wait until the connector is open and passes on what is published."""
    async with asyncio.timeout(MENDED_S_MAX):
        while payload not in [message.payload for message in received.messages]:
            await broker.client.publish("n", payload)
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("is_durable", [False, True])
def test_a_deleted_queue_is_made_again(run_amqp: Callable[..., None], is_durable: bool) -> None:  # noqa: F811
    """The broker says that it has ended the node's consumer, and the connector opens again with a new queue."""

    async def steps(broker: Any, received: Received) -> None:
        connector = await opened(broker, received)
        await crosses(broker, received, b"1")
        connection = connector._connection
        main = broker.client.main if is_durable else connector._main  # Nobody else may delete an exclusive queue.
        await main.ask(main.channel.queue_delete, queue=connector._queue)
        async with asyncio.timeout(MENDED_S_MAX):
            while connector._connection is connection or not connector.is_open:
                await asyncio.sleep(0.01)
        assert "queue" in connector._reason
        await crosses(broker, received, b"2")

    run_amqp(steps, **({"durable_session": True} if is_durable else {}))


def test_interest_is_reported_after_the_queue_of_events_was_deleted(run_amqp: Callable[..., None]) -> None:  # noqa: F811
    """Without its queue of events a connector would learn of no binding any more."""

    async def steps(broker: Any, received: Received) -> None:
        connector = await opened(broker, received)
        connector._events.note_cancelled(None)  # As if the broker had ended it: its queue belongs to this connection.
        async with asyncio.timeout(MENDED_S_MAX):
            while connector.is_open:
                await asyncio.sleep(0.01)
            while not connector.is_open:
                await asyncio.sleep(0.01)
        await broker.client.bind("later")
        await until(lambda: received.wanted == {"later"})

    run_amqp(steps)


@pytest.mark.parametrize("what", ["binding", "exchange"])
def test_lost_bindings_are_made_again(run_amqp: Callable[..., None], what: str) -> None:  # noqa: F811
    """The queue's bindings are removed by somebody, or with their exchange, which is made again."""

    async def steps(broker: Any, received: Received) -> None:
        connector = await opened(broker, received)
        await crosses(broker, received, b"1")
        client, channel = broker.client, broker.client.main.channel
        if what == "binding":
            await client.unbind(connector._queue, "#")
        else:
            await client.main.ask(channel.exchange_delete, exchange=broker.exchange)
            declare = channel.exchange_declare
            await client.main.ask(declare, exchange=broker.exchange, exchange_type="topic", auto_delete=False)
        await crosses(broker, received, b"2")

    run_amqp(steps, durable_session=True)


def test_what_a_full_queue_rejects_is_counted(run_amqp: Callable[..., None]) -> None:  # noqa: F811
    """With reject-publish the broker says so; with drop-head, its default, it says nothing."""

    async def steps(broker: Any, received: Received) -> None:
        from regraft.producers.nodes.connectors.connector import LocalMessage

        connector = await opened(broker, received)
        client, channel = broker.client, broker.client.main.channel
        for key, overflow in (("rejected", "reject-publish"), ("dropped", "drop-head")):
            limits = {"x-max-length": 1, "x-overflow": overflow}
            declared = await client.main.ask(channel.queue_declare, queue="", exclusive=True, arguments=limits)
            await client.bind(key, declared.method.queue)
            for _ in range(3):
                assert connector.publish(LocalMessage(key, b""))
        await until(lambda: not connector._unconfirmed)
        assert connector.counts["broker_refused"] == 2

    run_amqp(steps)
