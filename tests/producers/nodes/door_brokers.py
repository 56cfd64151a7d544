"""Brokers behind doors as tests use them: the same few client actions for every kind of broker."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from regraft.producers.nodes import ask_api
from regraft.producers.nodes.ask_api import BrokerApi
from regraft.producers.nodes.doors import LocalMessage, MemoryDoor
from regraft.producers.nodes.mqtt_door import MqttDoor
from regraft.producers.nodes.nats_door import NatsDoor
from tests.producers.nodes.mqtt_brokers import MqttClient, MqttServer, needs_mosquitto
from tests.producers.nodes.nats_servers import NatsServer, needs_nats
from tests.producers.nodes.rabbit_servers import RabbitClient, RabbitServer, needs_rabbit, shared_rabbit

STEPS_S_MAX = 60.0
NEEDS: dict[str, Callable[[], None]] = {
    "memory": lambda: None,
    "nats": needs_nats,
    "nats without a leaf port": needs_nats,
    "mqtt": needs_mosquitto,
    "amqp": needs_rabbit,
}


@dataclass
class Received:
    """The interest and messages that a door reported, in order, and what local clients received."""

    interest: list[tuple[str, bool]] = field(default_factory=list)
    messages: list[LocalMessage] = field(default_factory=list)
    got: dict[str, list[LocalMessage]] = field(default_factory=dict)

    @property
    def wanted(self) -> set[str]:
        """Return the subjects that are wanted now, by everything reported so far."""
        return {subject for subject, _ in self.interest if [w for s, w in self.interest if s == subject][-1]}

    def take(self, message: LocalMessage) -> None:
        """Note what a client received, without the stamp that nodes add."""
        block = re.sub(rb"Regraft-Carried-regraft: [^\r]*\r\n", b"", message.headers)
        message = replace(message, headers=b"" if block == b"NATS/1.0\r\n\r\n" else block)
        self.got.setdefault(message.subject, []).append(message)


class MemoryBroker:
    """The broker of a memory door, as its clients use it."""

    GETS_OWN_MESSAGES = False
    REPORTS_EARLIER_INTEREST = True
    UNUSUAL = "wärme.东京.a-b_c=d:{}/$x"

    def __init__(self, received: Received) -> None:
        self.door = MemoryDoor()
        self._received = received

    @staticmethod
    def subjects(wanted: str) -> list[str]:
        """Return the subjects that a door reports if a client wants this one."""
        return [wanted]

    async def want(self, subject: str, queue: str = "") -> Callable[[], Awaitable[None]]:
        self.door.want(subject)

        async def leave() -> None:
            self.door.leave(subject)

        return leave

    async def publish(self, message: LocalMessage) -> None:
        self.door.publish_locally(message)

    def got(self, subject: str) -> list[LocalMessage]:
        return [message for message in self.door.handed if message.subject == subject]


class NatsBroker:
    """A NATS server with one client."""

    GETS_OWN_MESSAGES = True
    REPORTS_EARLIER_INTEREST = True
    UNUSUAL = MemoryBroker.UNUSUAL

    def __init__(self, server: NatsServer, client: Any, received: Received) -> None:
        self.server, self.client, self._received = server, client, received
        self.door: Any = NatsDoor(server.leaf_url, "b01")

    def ask_for_interest(self) -> None:
        """Replace the door by one that polls for interest, often."""
        from regraft.producers.nodes.nats_client_door import NatsClientDoor

        ask_api.POLL_S = 0.02
        api = f"http://127.0.0.1:{self.server.api_port}"
        self.door = NatsClientDoor(self.server.url, "b01", BrokerApi(api))

    subjects = staticmethod(MemoryBroker.subjects)

    async def want(self, subject: str, queue: str = "") -> Callable[[], Awaitable[None]]:
        async def take(message: Any) -> None:
            heads = "".join(f"{name}: {value}\r\n" for name, value in (message.headers or {}).items())
            block = f"NATS/1.0\r\n{heads}\r\n".encode() if heads else b""
            self._received.take(LocalMessage(message.subject, message.data, message.reply, block))

        subscription = await self.client.subscribe(subject, queue=queue, cb=take)
        await self.client.flush()
        return subscription.unsubscribe

    async def publish(self, message: LocalMessage) -> None:
        lines = message.headers.decode().split("\r\n")[1:-2] if message.headers else []
        headers = dict(line.split(": ", 1) for line in lines) or None
        await self.client.publish(message.subject, message.payload, message.reply, headers=headers)
        await self.client.flush()

    def got(self, subject: str) -> list[LocalMessage]:
        return self._received.got.get(subject, [])


class MqttBroker:
    """A Mosquitto with one client, whose topics are subjects with / in place of the dot."""

    GETS_OWN_MESSAGES = True
    REPORTS_EARLIER_INTEREST = False  # Its log reports changes, not the present state.
    UNUSUAL = "wärme.东京.a-b_c=d:{}.$x././"  # It ends in two empty levels.

    def __init__(self, server: MqttServer, received: Received) -> None:
        self.server, self._received = server, received
        self.door = MqttDoor(server.url, "b01")
        self.client: MqttClient

    @staticmethod
    def subjects(wanted: str) -> list[str]:
        return [wanted.removesuffix(".>"), wanted] if wanted.endswith(".>") else [wanted]

    async def connect(self) -> None:
        self.client = await MqttClient(self.server.port, self._take, "a client").connected()

    def _take(self, message: Any) -> None:
        fields = vars(message.properties)
        heads = "".join(f"{name}: {value}\r\n" for name, value in fields.get("UserProperty", []))
        block = f"NATS/1.0\r\n{heads}\r\n".encode() if heads else b""
        reply = fields.get("ResponseTopic", "").replace("/", ".")
        self._received.take(LocalMessage(_subject_of(message.topic), bytes(message.payload), reply, block))

    async def want(self, subject: str, queue: str = "") -> Callable[[], Awaitable[None]]:
        topic = _topic_of(subject).replace("*", "+").replace(">", "#")
        share = f"$share/{queue}/" if queue else ""
        await self.client.subscribe(share + topic)

        async def leave() -> None:
            await self.client.unsubscribe(share + topic)

        return leave

    async def publish(self, message: LocalMessage) -> None:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.PUBLISH)
        lines = message.headers.decode().split("\r\n")[1:-2] if message.headers else []
        if lines:
            properties.UserProperty = [tuple(line.split(": ", 1)) for line in lines]
        if message.reply:
            properties.ResponseTopic = message.reply.replace(".", "/")
        self.client.paho.publish(_topic_of(message.subject), message.payload, properties=properties)

    def got(self, subject: str) -> list[LocalMessage]:
        return self._received.got.get(subject, [])


class AmqpBroker:
    """A RabbitMQ with one client at a separate exchange; a queue group is a queue that several clients share."""

    GETS_OWN_MESSAGES = True
    REPORTS_EARLIER_INTEREST = True
    UNUSUAL = "wärme.东京.a-b_c=d:{}/$x"

    def __init__(self, server: RabbitServer, received: Received, **more: Any) -> None:
        from regraft.producers.nodes.amqp_door import AmqpDoor
        from regraft.producers.nodes.amqp_place import AmqpPlace

        self.server, self._received = server, received
        self.exchange = f"x{secrets.token_hex(4)}"
        self.door = AmqpDoor(server.url, "b01", place=AmqpPlace(self.exchange, **({"api": server.api} | more)))
        self.client = RabbitClient(server.port, self.exchange, self._take)

    subjects = staticmethod(MqttBroker.subjects)

    def _take(self, delivered: Any) -> None:
        _, deliver, properties, body = delivered
        heads = "".join(f"{name}: {value}\r\n" for name, value in (properties.headers or {}).items())
        block = f"NATS/1.0\r\n{heads}\r\n".encode() if heads else b""
        self._received.take(LocalMessage(deliver.routing_key, body, properties.reply_to or "", block))

    async def want(self, subject: str, queue: str = "") -> Callable[[], Awaitable[None]]:
        bound = await self.client.bind(f"{subject[:-1]}#" if subject.endswith(".>") else subject)

        async def leave() -> None:
            await self.client.delete(bound)

        return leave

    async def publish(self, message: LocalMessage) -> None:
        lines = message.headers.decode().split("\r\n")[1:-2] if message.headers else []
        headers = dict(line.split(": ", 1) for line in lines) or None
        reply = message.reply or None
        await self.client.publish(message.subject, message.payload, headers=headers, reply_to=reply)

    def got(self, subject: str) -> list[LocalMessage]:
        return self._received.got.get(subject, [])


def _topic_of(subject: str) -> str:
    return "/".join("" if token == "/" else token for token in subject.split("."))


def _subject_of(topic: str) -> str:
    return ".".join(level or "/" for level in topic.split("/"))


def door_runner(kind: str, directory: Path) -> Callable[..., None]:
    """Return what runs a test's steps with a broker of that kind, and skip the test if it is not installed."""
    NEEDS[kind]()

    def run(steps: Callable[[Any, Received], Awaitable[None]]) -> None:
        async def go() -> None:
            received = Received()
            async with broker_of(kind, received, directory) as broker:
                await asyncio.wait_for(steps(broker, received), STEPS_S_MAX)

        asyncio.run(go())

    return run


@asynccontextmanager
async def broker_of(kind: str, received: Received, directory: Path) -> AsyncIterator[Any]:
    """Yield a broker of that kind with one client."""
    if kind == "memory":
        yield MemoryBroker(received)
        return
    if kind == "amqp":
        async with amqp_broker(shared_rabbit(), received) as broker:
            yield broker
        return
    is_nats = kind.startswith("nats")
    server: Any = (NatsServer if is_nats else MqttServer)("b01", directory).start()
    try:
        async with (nats_broker if is_nats else mqtt_broker)(server, received) as broker:
            if kind == "nats without a leaf port":
                broker.ask_for_interest()
            try:
                yield broker
            finally:
                await broker.door.close()
    finally:
        server.stop()


@asynccontextmanager
async def nats_broker(server: NatsServer, received: Received) -> AsyncIterator[Any]:
    import nats

    client = await nats.connect(server.url)
    yield NatsBroker(server, client, received)
    await client.close()


@asynccontextmanager
async def mqtt_broker(server: MqttServer, received: Received) -> AsyncIterator[Any]:
    broker = MqttBroker(server, received)
    await broker.connect()
    yield broker
    broker.client.close()


@asynccontextmanager
async def amqp_broker(server: RabbitServer, received: Received, **more: Any) -> AsyncIterator[Any]:
    broker = AmqpBroker(server, received, **more)
    await broker.client.connected()
    try:
        yield broker
    finally:
        await broker.door.close()
        await broker.client.close()
