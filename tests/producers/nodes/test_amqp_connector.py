"""The connector to a RabbitMQ broker: features of AMQP alone, and brokers that do not report interest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from regraft.producers.nodes.amqp.amqp_address import AmqpPlace
from regraft.producers.nodes.amqp.amqp_connector import AmqpConnector
from regraft.producers.nodes.connectors.ask_api import BrokerApi, NoAnswerError
from regraft.producers.nodes.connectors.connector import ConnectorError, LocalMessage
from tests.producers.nodes.connector_brokers import Received
from tests.producers.nodes.connector_kit import all_arrived, opened, run_connector, until
from tests.producers.nodes.http_stand_in import answering

pytestmark = pytest.mark.stack


@pytest.fixture
def run_amqp(tmp_path: Path) -> Callable[..., None]:
    return partial(run_connector, "amqp", tmp_path)


def test_bindings_come_and_go(run_amqp: Callable[..., None]) -> None:
    """Each binding of a queue or exchange counts until its queue ends; # in the middle widens to all that follows."""

    async def steps(broker: Any, received: Received) -> None:
        client, ask = broker.client, broker.client.main.ask
        before = await client.bind("a.#")
        await client.bind("a.*.b", before)
        await opened(broker, received)
        assert received.wanted == {"a", "a.>", "a.*.b"}
        await client.unbind(before, "a.*.b")
        await until(lambda: received.wanted == {"a", "a.>"})
        await client.bind("x.#.y", before)
        await client.bind(" ", before)
        await ask(client.main.channel.exchange_declare, exchange="beside", exchange_type="fanout", auto_delete=True)
        bind = {"destination": "beside", "source": broker.exchange, "routing_key": "a.#"}
        await ask(client.main.channel.exchange_bind, **bind)
        await until(lambda: received.wanted == {"a", "a.>", "x.>"})
        await client.delete(before)
        await until(lambda: received.wanted == {"a", "a.>"})
        await ask(client.main.channel.exchange_unbind, **bind)
        await until(lambda: not received.wanted)
        assert broker.connector.counts["bad_filter"] == 1

    run_amqp(steps)


PROPERTIES = {
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "delivery_mode": 2,
    "priority": 7,
    "correlation_id": "4711",
    "reply_to": "answers",
    "expiration": "60000",
    "message_id": "m1",
    "timestamp": 1_795_627_000,
    "type": "quote",
    "app_id": "shop",
    "headers": {
        "plain": "text", "empty": "", " odd : name ": "x", "Amqp-Type": "not ours", "number": -1, "big": 1 << 40,
        "yes": True, "price": Decimal("1.25"), "bytes": b"\0\xff", "none": None, "list": [1, "a"],
        "table": {"a": {"b": 1}}, "when": datetime(2026, 1, 2, tzinfo=UTC),
    },
}  # fmt: skip


def test_properties_of_amqp_cross_unchanged(run_amqp: Callable[..., None]) -> None:
    """Properties and headers of every type come in and go out unchanged, with the mark of carried messages."""

    async def steps(broker: Any, received: Received) -> None:
        await opened(broker, received)
        got: list[Any] = []
        broker.client._take = got.append
        await broker.client.bind("out")
        await broker.client.publish("in", b"hello", **PROPERTIES)
        await until(lambda: bool(received.messages))
        (message,) = received.messages
        assert message.reply == "answers"
        assert broker.connector.publish(LocalMessage("out", b"hello", message.reply, message.headers))
        await until(lambda: bool(got))
        _, _, properties, _ = got[0]
        assert " b01 " in properties.headers.pop("Regraft-Carried-regraft")
        found = {name: getattr(properties, name) for name in PROPERTIES}
        assert found == PROPERTIES

    run_amqp(steps)


def test_a_header_that_the_library_cannot_write_becomes_text() -> None:
    """A fraction, alone or in a table, can be read but not written; other headers keep their types."""
    from pika import BasicProperties

    from regraft.producers.nodes.amqp.amqp_headers import block_of, properties_of

    block = block_of(BasicProperties(headers={"share": 0.5, "table": {"a": [0.5]}, "number": 1}))
    headers = properties_of(block, "", ("Stamp", "1")).headers
    assert headers == {"share": "0.5", "table": "{'a': [0.5]}", "number": 1, "Stamp": "1"}


def test_foreign_headers_never_end_the_channel(run_amqp: Callable[..., None]) -> None:
    """Values that other clients write into properties that AMQP checks become headers."""

    async def steps(broker: Any, received: Received) -> None:
        connector = await opened(broker, received)
        got: list[Any] = []
        broker.client._take = got.append
        await broker.client.bind("out")
        bad = ["Expiration: soon", "Priority: 999", "Delivery-Mode: 3", "Timestamp: -1", "Type: " + "x" * 300]
        lines = [*(f"Amqp-{each}" for each in bad), "Amqp-Headers: AAAA", "Amqp-Headers: ?"]
        block = "".join(f"{line}\r\n" for line in ["NATS/1.0", *lines, ""]).encode()
        assert connector.publish(LocalMessage("out", b"1", headers=block))
        assert connector.publish(LocalMessage("out", b"2"))
        await until(lambda: len(got) == 2)
        assert got[0][2].headers["Amqp-Expiration"] == "soon"
        assert got[0][2].expiration is None
        assert connector.counts == {"returned": 2}

    run_amqp(steps)


def test_a_cut_connection_is_made_again(run_amqp: Callable[..., None]) -> None:
    """Interest stays meanwhile; changes during the cut are known once the connection is back."""

    async def steps(broker: Any, received: Received) -> None:
        connector = await opened(broker, received)
        stays, goes = await broker.client.bind("stays"), await broker.client.bind("goes")
        await until(lambda: received.wanted == {"stays", "goes"})
        connector._interest.end = lambda _: None  # As if the connection had been cut before.
        await broker.client.delete(goes)
        await broker.client.bind("*", stays)
        await until(lambda: "*" in received.wanted)
        del connector._interest.end
        connector._connection._connection._transport._sock.shutdown(2)  # As a network does.
        await until(lambda: not connector.is_open)
        assert not connector.publish(LocalMessage("stays", b""))
        await until(lambda: received.wanted == {"stays", "*"} and connector.is_open)
        assert [each for each in received.interest if each[0] != "goes"] == [("stays", True), ("*", True)]
        await broker.client.publish("x", b"1")
        await until(lambda: len(received.messages) == 1)

    run_amqp(steps)


def test_a_durable_queue_redelivers_unsafe_messages_once(run_amqp: Callable[..., None]) -> None:
    """After a cut nothing that was taken comes again, safe or not; the next incarnation gets what is not safe yet."""

    async def steps(broker: Any, received: Received) -> None:
        connector = await opened(broker, received)
        for number in range(6):
            await broker.client.publish("n", b"%d" % (number // 2))  # Each twice: equal, but not the same message.
        await until(lambda: len(received.messages) == 6)
        connector.release(received.messages[0].receipt)
        connection = connector._connection
        connection._connection._transport._sock.shutdown(2)  # As a network does.
        connector.release(received.messages[3].receipt)
        await until(lambda: connector._connection is not connection and connector.is_open)
        await broker.client.publish("n", b"3")
        await until(lambda: len(received.messages) == 7)
        assert [message.payload for message in received.messages] == [b"0", b"0", b"1", b"1", b"2", b"2", b"3"]
        assert connector.counts["redelivered"] >= 4
        connector.release(received.messages[6].receipt)
        assert connector.publish(LocalMessage("n", b"ours"))
        await all_arrived(broker, connector)
        await connector.close()
        await broker.client.publish("n", b"4")
        again: list[LocalMessage] = []
        broker.connector = broker.make_connector("b01")
        await broker.connector.start(lambda *_: None, again.append)
        await until(lambda: len(again) == 5)
        assert sorted(message.payload for message in again) == [b"0", b"1", b"2", b"2", b"4"]

    run_amqp(steps, durable_session=True)


def test_a_broker_without_events_is_polled(run_amqp: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a virtual host without an event exchange the management interface gives the interest, seconds later."""
    monkeypatch.setattr("regraft.producers.nodes.amqp.amqp_connector.PROBE_S", 0.1)

    async def steps(broker: Any, received: Received) -> None:
        server = broker.server
        server.put("/api/vhosts/quiet%20one", {})
        rights = {"configure": ".*", "write": ".*", "read": ".*"}
        server.put("/api/permissions/quiet%20one/guest", rights)
        url = f"{server.url}/quiet%20one"
        with pytest.raises(
            ConnectorError, match=r"rabbitmq_event_exchange.*node\.connector_api.*connectors\.amqp\.filters"
        ):
            await AmqpConnector(url, "b01").start(lambda *_: None, lambda _: None)
        filtered = AmqpConnector(url, "b01", place=AmqpPlace(filters=["a.#"]))
        await filtered.start(lambda *one: received.interest.append(one), received.messages.append)
        assert received.wanted == {"a", "a.>"}
        await filtered.close()
        received.interest.clear()
        connector = AmqpConnector(url, "b01", place=AmqpPlace(api=server.api))
        await connector.start(lambda *one: received.interest.append(one), received.messages.append)
        binding = "/api/bindings/quiet%20one/e/amq.topic/e/amq.fanout"
        server.put(binding, {"routing_key": "b.*"}, "POST")
        await until(lambda: received.wanted == {"b.*"})
        server.put(f"{binding}/b.%2A", {}, "DELETE")
        await until(lambda: not received.wanted)
        await connector.close()

    run_amqp(steps)


class _LateApi:
    """The interface of a server that does not answer the first questions."""

    def __init__(self, api: BrokerApi) -> None:
        self.url, self._api, self._refused = api.url, api, 0

    def ask(self, path: str, kind: type[Any]) -> Any:
        self._refused += 1
        if self._refused <= 2:
            raise NoAnswerError("not yet")
        return self._api.ask(path, kind)


def test_bindings_are_asked_for_until_they_are_known(
    run_amqp: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events report only later bindings: what was made before, as when a server of a cluster dies, must be listed."""
    monkeypatch.setattr("regraft.producers.nodes.amqp.amqp_connector.PROBE_S", 0.1)

    async def steps(broker: Any, received: Received) -> None:
        await broker.client.bind("before.*")
        place = AmqpPlace(broker.exchange, cast(BrokerApi, _LateApi(broker.server.api)))
        broker.connector = AmqpConnector(broker.server.url, "b01", place=place)
        await opened(broker, received)
        await broker.client.bind("after.*")
        await until(lambda: received.wanted == {"before.*", "after.*"})

    run_amqp(steps)


def test_what_a_broker_does_not_report_is_said(run_amqp: Callable[..., None]) -> None:
    """The list of another broker is refused; without a list, the log says what is not known."""

    async def steps(broker: Any, _received: Received) -> None:
        other = [{"destination_type": "queue", "destination": "regraft.b02.x", "routing_key": "#"}]
        with answering(lambda *_: (200, other)) as url:
            place = AmqpPlace(broker.exchange, BrokerApi(url))
            with pytest.raises(ConnectorError, match=r"node\.connector_api .* belongs to a different broker"):
                await AmqpConnector(broker.server.url, "b01", place=place).start(lambda *_: None, lambda _: None)
        with capture_logs() as logs:
            connector = AmqpConnector(broker.server.url, "b01", place=AmqpPlace(broker.exchange))
            await connector.start(lambda *_: None, lambda _: None)
            await connector.close()
        assert "give node.connector_api" in next(each["reason"] for each in logs if "reports" in each["event"])

    run_amqp(steps)


def test_the_amqp_connector_reports_what_is_wrong(run_amqp: Callable[..., None]) -> None:
    """An invalid key and a missing exchange are named with what to do."""

    async def steps(broker: Any, _received: Received) -> None:
        with pytest.raises(ConnectorError, match=r"exchange 'nowhere' of 127.0.0.1:\d+ cannot be used: .*NOT_FOUND"):
            await broker.make_connector("b01", exchange="nowhere").start(lambda *_: None, lambda _: None)
        with pytest.raises(ConnectorError, match=r"connectors\.amqp\.filters: 'a b'"):
            await broker.make_connector("b01", filters=("a b",)).start(lambda *_: None, lambda _: None)

    run_amqp(steps)


def test_dead_letters_of_carried_messages_cross(run_amqp: Callable[..., None]) -> None:
    """What a queue rejects after it was handed over is published again, once, with the same key or another."""

    async def steps(broker: Any, received: Received) -> None:
        connector = await opened(broker, received)
        await broker.client.reject_first("in", {"x-dead-letter-exchange": broker.exchange})
        await broker.client.reject_first("in.b", {"x-dead-letter-exchange": broker.exchange})
        assert connector.publish(LocalMessage("in", b"hello"))
        await until(lambda: len(received.messages) == 1)
        (first,) = received.messages
        assert (first.subject, first.payload) == ("in", b"hello")
        assert connector.publish(
            LocalMessage("in.b", b"again", headers=first.headers)
        )  # As another broker's node would.
        await until(lambda: len(received.messages) == 2)
        assert (received.messages[1].subject, received.messages[1].payload) == ("in.b", b"again")
        await asyncio.sleep(0.2)
        assert len(received.messages) == 2

    run_amqp(steps)
