"""Durable ingress from JetStream while consumers and streams are deleted and made again, and with names of any kind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.producers.nodes.nats.jetstream_taken import StreamTaken
from regraft.producers.nodes.nats.nats_connector import NatsConnector
from regraft.schemas.safe_names import safe_name
from tests.producers.nodes.connector_brokers import Received
from tests.producers.nodes.connector_kit import until
from tests.producers.nodes.nats_servers import NatsServer, needs_nats
from tests.producers.nodes.server_process import free_port
from tests.wait_until import PATIENCE_S

STREAM = "ORDERS"
MENDED_S_MAX = 9.0
Steps = Callable[[NatsConnector, Any, Received], Awaitable[None]]


def server_in(directory: Path) -> NatsServer:
    needs_nats()
    return NatsServer("b01", directory, f'jetstream {{ store_dir: "{directory}/b01" }}').start()


async def make_stream(stream: Any, copies: int) -> None:
    import nats.errors

    async with asyncio.timeout(PATIENCE_S):  # Three servers start on a busy machine.
        while True:
            try:
                await stream.add_stream(name=STREAM, subjects=["orders.>"], num_replicas=copies)
                return
            except nats.errors.Error:  # The cluster has no leader yet.
                await asyncio.sleep(0.3)


async def acknowledged(stream: Any, number: int) -> None:
    """Wait until everything up to a number of the stream is acknowledged; nothing behind it is."""
    async with asyncio.timeout(PATIENCE_S):
        while (floor := (await stream.consumer_info(STREAM, "regraft-b01")).ack_floor.stream_seq) < number:
            await asyncio.sleep(0.02)
    assert floor == number


def run_connector(servers: list[NatsServer], steps: Steps, name: str = "b01") -> None:
    """Run steps with an open connector that reads from a stream, and with a client's JetStream."""
    import nats

    async def go() -> None:
        client, received = await nats.connect([server.url for server in servers]), Received()
        stream = client.jetstream()
        await make_stream(stream, len(servers))
        connector = NatsConnector(",".join(server.leaf_url for server in servers), name, stream=STREAM)

        def take(message: LocalMessage) -> None:
            if message.subject == "orders.x":  # Not the stream's answers to its publisher.
                received.messages.append(message)

        await connector.start(lambda *one: received.interest.append(one), take)
        try:
            await asyncio.wait_for(steps(connector, stream, received), PATIENCE_S)
        finally:
            await connector.close()
            await client.close()

    try:
        asyncio.run(go())
    finally:
        for server in servers:
            server.stop()


async def publish(stream: Any, numbers: range) -> None:
    for number in numbers:
        await stream.publish("orders.x", b"%d" % number)


async def all_there(received: Received, count: int) -> None:
    async with asyncio.timeout(MENDED_S_MAX):
        while len(received.messages) < count:
            await asyncio.sleep(0.01)
    assert [int(message.payload) for message in received.messages] == list(range(count))


@pytest.mark.stack
def test_a_deleted_consumer_is_made_again(tmp_path: Path) -> None:
    """Within seconds, where it was: what was stored meanwhile crosses, and nothing twice, safe or not."""

    async def steps(connector: NatsConnector, stream: Any, received: Received) -> None:
        for ended in (10, 20):
            await publish(stream, range(ended - 10, ended))
            await all_there(received, ended)
            for message in received.messages[1 : ended - 2]:  # Not the first, nor the last two.
                connector.release(message.receipt)
            await asyncio.sleep(0.1)
            await stream.delete_consumer(STREAM, "regraft-b01")
        await publish(stream, range(20, 30))
        await all_there(received, 30)
        assert connector.counts["consumer_made_again"] == 2
        assert connector.error == ""
        for message in received.messages:
            connector.release(message.receipt)
        await acknowledged(stream, 30)
        await asyncio.sleep(0.3)
        assert len(received.messages) == 30

    run_connector([server_in(tmp_path)], steps)


@pytest.mark.stack
def test_a_deleted_stream_is_reported_until_it_is_back(tmp_path: Path) -> None:
    """The error names it; what it stored crosses as any other message; a new one is read from its beginning."""

    async def steps(connector: NatsConnector, stream: Any, received: Received) -> None:
        await publish(stream, range(3))
        await all_there(received, 3)
        await stream.delete_stream(STREAM)
        async with asyncio.timeout(MENDED_S_MAX):
            while "stream not found (stream 'ORDERS')" not in connector.error:
                await asyncio.sleep(0.01)
        assert connector.is_open
        await stream._nc.publish("orders.x", b"3")
        await all_there(received, 4)
        await stream.add_stream(name=STREAM, subjects=["orders.>"])
        await publish(stream, range(4, 7))
        async with asyncio.timeout(MENDED_S_MAX):
            while connector.error:
                await asyncio.sleep(0.01)
        await until(lambda: len(received.messages) >= 7)
        await asyncio.sleep(0.3)
        assert {int(message.payload) for message in received.messages} == set(range(7))
        connector.release(received.messages[0].receipt)  # Of the former stream: it acknowledges nothing of this one.
        for message in received.messages[4:]:
            connector.release(message.receipt)
        await acknowledged(stream, 3)

    run_connector([server_in(tmp_path)], steps)


@pytest.mark.stack
def test_a_server_without_jetstream_is_reported_until_it_has_it_again(tmp_path: Path) -> None:
    """The connector stays open for everything else; what the stream holds crosses once JetStream is switched on."""
    server = server_in(tmp_path)
    settings = server.file.read_text()

    async def steps(connector: NatsConnector, stream: Any, received: Received) -> None:
        await publish(stream, range(3))
        await all_there(received, 3)
        server.stop()
        server.file.write_text(settings.replace("jetstream {", "# {"))
        server.start()
        await until(lambda: connector.error == "JetStream does not answer (stream 'ORDERS')")
        assert connector.is_open
        server.stop()
        server.file.write_text(settings)
        server.start()
        await until(lambda: connector.is_open and not connector.error)
        await publish(stream, range(3, 6))
        await all_there(received, 6)

    run_connector([server], steps)


@pytest.mark.stack
def test_ingress_survives_the_loss_of_leaders(tmp_path: Path) -> None:
    """In a cluster of three, another server leads stream and consumer; then the consumer's dies. Nothing is lost."""
    needs_nats()
    ports = [free_port() for _ in range(3)]
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    servers = [
        NatsServer(
            f"s{number}",
            tmp_path,
            f'cluster {{ name: c, listen: "127.0.0.1:{port}", routes: [{routes}] }}\n'
            f'jetstream {{ store_dir: "{tmp_path}/s{number}" }}',
        )
        for number, port in enumerate(ports)
    ]
    for server in servers:
        server.start()

    async def send(stream: Any, numbers: range) -> None:
        import nats.errors

        for number in numbers:
            is_stored = False
            while not is_stored:  # A stream without a leader answers nobody.
                try:
                    await stream.publish("orders.x", b"%d" % number, headers={"Nats-Msg-Id": str(number)})
                    is_stored = True
                except nats.errors.Error:
                    await asyncio.sleep(0.2)

    async def steps(_connector: NatsConnector, stream: Any, received: Received) -> None:
        for turn, what in enumerate(("CONSUMER", "STREAM")):
            await send(stream, range(10 * turn, 10 * turn + 10))
            await until(lambda: len(received.messages) == 10 * turn + 10)  # noqa: B023
            of = f"{STREAM}.regraft-b01" if what == "CONSUMER" else STREAM
            await stream._nc.request(f"$JS.API.{what}.LEADER.STEPDOWN.{of}", b"", timeout=10)
        await send(stream, range(20, 30))
        await until(lambda: len(received.messages) >= 30)
        leader = (await stream.consumer_info(STREAM, "regraft-b01")).cluster.leader
        next(server for server in servers if server.file.stem == leader).stop()
        await send(stream, range(30, 40))
        await until(lambda: {int(message.payload) for message in received.messages} == set(range(40)))

    run_connector(servers, steps)


@pytest.mark.stack
@pytest.mark.parametrize("name", ["eu.west/1 b", "kühlhaus 東京 *", "b" * 256, "東" * 256])
def test_a_broker_may_have_any_name(tmp_path: Path, name: str) -> None:
    """The node's consumer is named after it, without characters that JetStream refuses."""

    async def steps(_connector: NatsConnector, stream: Any, received: Received) -> None:
        await publish(stream, range(2))
        await all_there(received, 2)
        assert [each.name for each in await stream.consumers_info(STREAM)] == [f"regraft-{safe_name(name)}"]

    run_connector([server_in(tmp_path)], steps, name)


def test_a_new_consumer_begins_at_the_first_message_that_is_not_safe() -> None:
    """Messages that were safe before are recognised; those of another stream with equal numbers are not."""
    taken = StreamTaken()
    assert taken.next_number is None
    taken.note_floor(4)
    receipts = [taken.take((number, "t"), f"ack {number}") for number in (5, 6, 7)]
    assert taken.release(receipts[1] or 0) == "ack 6"
    assert taken.next_number == 5
    assert taken.take((5, "t"), "ack again") is None
    assert taken.take((6, "t"), "ack 6") == 0
    assert taken.release(receipts[0] or 0) == "ack again"
    taken.begin_again()
    assert (taken.next_number, taken.release(receipts[2] or 0)) == (1, "")
    assert (taken.take((6, "later"), "") or 0) > 3
