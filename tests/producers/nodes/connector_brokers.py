"""What the conformance kit knows of each kind of broker: its server, its connector, and a few actions of its
clients.
"""

from __future__ import annotations

import re
import secrets
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.producers.nodes.nats import jetstream_ingress
from regraft.producers.nodes.node_setup import connector_of
from regraft.schemas.safe_names import safe_name
from regraft.schemas.wire_grammar import PAYLOAD_BYTES_MAX
from tests.producers.nodes.given_settings import given_settings
from tests.producers.nodes.memory_connector import MemoryConnector
from tests.producers.nodes.mqtt_brokers import MqttClient, MqttServer, needs_mosquitto
from tests.producers.nodes.nats_servers import NatsServer, needs_nats, reach_server
from tests.producers.nodes.rabbit_servers import RabbitClient, RabbitServer, needs_rabbit, shared_rabbit

Feature = Literal["server", "earlier interest", "headers", "groups", "asking", "durable", "denial"]
Leave = Callable[[], Awaitable[None]]
STREAM, USER, PASSWORD = "KEPT", "node", "right"
NATS_GUARD = f"""accounts {{ A: {{ users: [
  {{ user: {USER}, password: {PASSWORD}, permissions: {{ publish: ["q.>", "_REGRAFT.>"], subscribe: [">"] }} }},
  {{ user: client, password: x }} ] }} }}
no_auth_user: client"""
MQTT_GUARD = f"""topic readwrite #
user {USER}
topic write q/#
topic write _REGRAFT/#
topic read #
topic read $SYS/broker/log/#
"""


@dataclass
class Received:
    """The interest and messages that a connector reported, in order, and what local clients received."""

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


class ConnectorBroker:
    """One kind of broker with one connector and one client; what a new kind overrides, and all that the kit knows of
    it.

    ``more`` are settings of its node. If ``is_guarded``, the node has a login, with which it may publish only q.>.
    ``CANNOT`` names the requirements that do not concern the kind, and why.
    """

    CANNOT: ClassVar[dict[Feature, str]] = {}
    GETS_OWN_MESSAGES = True
    UNUSUAL = "wärme.东京.a-b_c=d:{}/$x"
    SCHEME = ""  # Of the addresses of its connectors.
    MODULE = ""  # Where CONNECT_S_MAX is.
    ADVICE = ""  # What the connector says of a port where nobody answers.
    TOO_LARGE = PAYLOAD_BYTES_MAX + 1  # For its clients, handed over.
    DURABLE: ClassVar[dict[str, Any]] = {}  # Settings of a node that releases what is safe.
    # What its clients can publish and no node takes, and what no node hands to it, with the names of the counts.
    NOT_TAKEN: tuple[tuple[LocalMessage, str], ...] = ()
    NOT_HANDED: tuple[tuple[LocalMessage, str], ...] = ()
    DENIED, ASKS_ANSWER = "", b""  # How what it denies is counted, for messages with these headers.

    def __init__(
        self, received: Received, directory: Path, name: str = "b01", *, is_guarded: bool = False, **more: Any
    ) -> None:
        self.received, self.directory, self.name, self.more = received, directory, name, more
        self.is_guarded = is_guarded
        if is_guarded:
            (directory / "password").write_text(PASSWORD)
            more |= {"connector_user": USER, "connector_password_file": directory / "password"}
        self.server: Any = None
        self.client: Any = None
        self.connector: Any = None

    @staticmethod
    def needs() -> None:
        """Skip the test if the server is not installed."""

    @property
    def settings(self) -> dict[str, Any]:
        """Return what a node's settings say of the broker."""
        return {}

    def make_connector(self, name: str, **more: Any) -> Any:
        """Return a connector as a node with these settings has it."""
        settings = given_settings(self.directory, name, **{**self.settings, **self.more, **more})
        return connector_of(settings, name)

    async def begin(self) -> None:
        """Start the server, connect the client, and make the connector without opening it."""
        self.server.start()
        await self.connect()
        self.connector = self.make_connector(self.name)

    async def connect(self) -> None:
        """Connect the client, for the first time or after a restart of the server."""

    async def restart(self) -> None:
        """Start the server again, and connect the client to it."""
        self.server.start()
        await self.connect()

    async def end(self) -> None:
        """Close and stop everything."""
        await self.connector.close()
        await self.client.close()
        self.server.stop()

    def stop_server(self) -> None:
        """End the server at once."""
        self.server.stop()

    @staticmethod
    def subjects(wanted: str) -> list[str]:
        """Return the subjects that a connector reports if a client wants this one."""
        return [wanted]

    async def want(self, subject: str, queue: str = "") -> Leave:
        """Subscribe, in a queue group if one is named; return what ends it."""
        raise NotImplementedError

    async def publish(self, message: LocalMessage) -> None:
        """Publish as a client."""
        raise NotImplementedError

    def got(self, subject: str) -> list[LocalMessage]:
        """Return what clients have received."""
        return self.received.got.get(subject, [])


class MemoryBroker(ConnectorBroker):
    """The broker of a memory connector, as its clients use it."""

    CANNOT: ClassVar[dict[Feature, str]] = {
        "server": "there is none",
        "groups": "it only keeps what it was handed",
        "asking": "everything arrives",
        "durable": "it ends with its process",
    }
    GETS_OWN_MESSAGES = False

    async def begin(self) -> None:
        self.connector = MemoryConnector()

    async def end(self) -> None:
        await self.connector.close()

    async def want(self, subject: str, queue: str = "") -> Leave:
        self.connector.want(subject)

        async def leave() -> None:
            self.connector.leave(subject)

        return leave

    async def publish(self, message: LocalMessage) -> None:
        self.connector.publish_locally(message)

    def got(self, subject: str) -> list[LocalMessage]:
        return [message for message in self.connector.handed if message.subject == subject]


class NatsBroker(ConnectorBroker):
    """A NATS server with a leaf port."""

    SCHEME, MODULE, ADVICE = "nats", "nats.nats_connector", "start it with `leafnodes"
    TOO_LARGE = 5 << 20  # Its max_payload is 4 MB.
    DURABLE: ClassVar[dict[str, Any]] = {"durable_stream": STREAM}
    NOT_TAKEN = ((LocalMessage("_REGRAFT.x", b"x"), "own_subject"),)
    DENIED = "permission_denied"

    needs = staticmethod(needs_nats)

    @property
    def settings(self) -> dict[str, Any]:
        return {"connector": self.server.leaf_url}

    async def begin(self) -> None:
        has_stream = "durable_stream" in self.more
        jetstream_ingress.ACK_WAIT_S = 0.5
        streams = f'jetstream {{ store_dir: "{self.directory / self.name}" }}' if has_stream else ""
        self.server = NatsServer(self.name, self.directory, NATS_GUARD if self.is_guarded else streams)
        await super().begin()
        if has_stream:
            await self.client.jetstream().add_stream(name=STREAM, subjects=["kept.*"])

    async def connect(self) -> None:
        import nats

        if self.client is not None:
            await self.client.close()
        self.client = await nats.connect(self.server.url)

    async def want(self, subject: str, queue: str = "") -> Leave:
        async def take(message: Any) -> None:
            heads = message.headers or {}
            self.received.take(LocalMessage(message.subject, message.data, message.reply, block_of(heads.items())))

        subscription = await self.client.subscribe(subject, queue=queue, cb=take)
        await reach_server(self.client)
        return subscription.unsubscribe  # type: ignore[no-any-return]

    async def publish(self, message: LocalMessage) -> None:
        headers = dict(heads_of(message)) or None
        await self.client.publish(message.subject, message.payload, message.reply, headers=headers)
        await reach_server(self.client)


class MqttBroker(ConnectorBroker):
    """A Mosquitto, whose topics are subjects with / in place of the dot."""

    CANNOT: ClassVar[dict[Feature, str]] = {
        "earlier interest": "its log reports changes, not the present state",
        "asking": "everything arrives",
    }
    UNUSUAL = "wärme.东京.a-b_c=d:{}.$x././"  # It ends in two empty levels.
    SCHEME, MODULE, ADVICE = "mqtt", "mqtt.mqtt_connector", "connector_user"
    DURABLE: ClassVar[dict[str, Any]] = {"durable_session": True}
    NOT_TAKEN = ((LocalMessage("x", bytes(PAYLOAD_BYTES_MAX + 1)), "payload_too_large"),)
    NOT_HANDED = ((LocalMessage("a/b.c", b""), "bad_topic"),)
    DENIED, ASKS_ANSWER = "broker_refused", b"NATS/1.0\r\nMqtt-QoS: 1\r\n\r\n"
    VERSION = 5

    needs = staticmethod(needs_mosquitto)

    @property
    def settings(self) -> dict[str, Any]:
        return {"connector": self.server.url}

    async def begin(self) -> None:
        self.server = MqttServer(self.name, self.directory, self._guard() if self.is_guarded else "")
        self.members: list[MqttClient] = []
        await super().begin()

    def _guard(self) -> str:
        passwords, rights = self.directory / "passwords", self.directory / "rights"
        subprocess.run(["mosquitto_passwd", "-b", "-c", passwords, USER, PASSWORD], check=True)
        rights.write_text(MQTT_GUARD)
        return f"password_file {passwords}\nacl_file {rights}\n"

    async def end(self) -> None:
        await self.connector.close()
        for client in (self.client, *self.members):
            client.close()
        self.server.stop()

    async def connect(self) -> None:
        if self.client is not None:
            self.client.close()
        self.client = await MqttClient(self.server.port, self._take, "a client", self.VERSION).connected()

    @staticmethod
    def subjects(wanted: str) -> list[str]:
        return [wanted.removesuffix(".>"), wanted] if wanted.endswith(".>") else [wanted]

    def _take(self, message: Any) -> None:
        fields = vars(message.properties) if message.properties else {}
        reply = fields.get("ResponseTopic", "").replace("/", ".")
        block = block_of(fields.get("UserProperty", []))
        self.received.take(LocalMessage(_subject_of(message.topic), bytes(message.payload), reply, block))

    async def want(self, subject: str, queue: str = "") -> Leave:
        client, topic = self.client, _topic_of(subject).replace("*", "+").replace(">", "#")
        if queue:
            topic = f"$share/{queue}/{topic}"
            client = await MqttClient(self.server.port, self._take, version=self.VERSION).connected()
            self.members.append(client)
        await client.subscribe(topic)

        async def leave() -> None:
            await client.unsubscribe(topic)

        return leave

    async def publish(self, message: LocalMessage) -> None:
        qos = int("durable_session" in self.more)
        properties = self._properties(message)
        self.client.paho.publish(_topic_of(message.subject), message.payload, qos, properties=properties)

    def _properties(self, message: LocalMessage) -> Any:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.PUBLISH)
        if heads := heads_of(message):
            properties.UserProperty = heads
        if message.reply:
            properties.ResponseTopic = message.reply.replace(".", "/")
        return properties


class OldMqttBroker(MqttBroker):
    """The same with clients of MQTT 3.1.1, which have neither headers nor replies."""

    CANNOT: ClassVar[dict[Feature, str]] = {**MqttBroker.CANNOT, "headers": "not in MQTT 3.1.1"}
    VERSION = 4

    def _properties(self, message: LocalMessage) -> None:
        return None


class AmqpBroker(ConnectorBroker):
    """A RabbitMQ, shared by all tests, with a separate exchange; a queue that several clients share is a group."""

    SCHEME, MODULE, ADVICE = "amqp", "amqp.amqp_connector", "connector_user"
    DURABLE: ClassVar[dict[str, Any]] = {"durable_session": True}
    CANNOT: ClassVar[dict[Feature, str]] = {
        "denial": "a channel ends at what it may not publish: the connector opens again"
    }
    NOT_TAKEN = (
        *((LocalMessage(key, b""), "bad_subject") for key in ("a b", "", "a..b")),
        (LocalMessage("x", bytes(PAYLOAD_BYTES_MAX + 1)), "payload_too_large"),
    )
    NOT_HANDED = ((LocalMessage("a" * 256, b""), "bad_topic"),)

    needs = staticmethod(needs_rabbit)
    subjects = staticmethod(MqttBroker.subjects)

    @property
    def settings(self) -> dict[str, Any]:
        return {"connector": self.server.url, "connector_api": self.server.api.url, "exchange": self.exchange}

    async def begin(self) -> None:
        self.server: RabbitServer = shared_rabbit()
        self.exchange = f"x{secrets.token_hex(4)}"
        await self.connect()
        if self.is_guarded:
            self._guard()
        self.connector = self.make_connector(self.name)

    async def connect(self) -> None:
        self.client = await RabbitClient(self.server.port, self.exchange, self._take).connected()

    async def end(self) -> None:
        await self.connector.close()
        if "durable_session" in self.more:
            await self.client.delete(f"regraft.{safe_name(self.name)}")
        await self.client.close()

    def _guard(self) -> None:
        self.server.put(f"/api/users/{USER}", {"password": PASSWORD, "tags": "administrator"})
        self.server.put(f"/api/permissions/%2F/{USER}", {"configure": ".*", "write": ".*", "read": ".*"})

    def stop_server(self) -> None:
        self.server.kill()

    def _take(self, delivered: Any) -> None:
        _, deliver, properties, body = delivered
        block = block_of((properties.headers or {}).items())
        self.received.take(LocalMessage(deliver.routing_key, body, properties.reply_to or "", block))

    async def want(self, subject: str, queue: str = "") -> Leave:
        key = f"{subject[:-1]}#" if subject.endswith(".>") else subject
        bound, tag = await self.client.consume(f"{self.exchange}.{queue}" if queue else "")
        await self.client.bind(key, bound)

        async def leave() -> None:
            await self.client.leave(bound, tag)

        return leave

    async def publish(self, message: LocalMessage) -> None:
        headers, reply = dict(heads_of(message)) or None, message.reply or None
        await self.client.publish(message.subject, message.payload, headers=headers, reply_to=reply)


def heads_of(message: LocalMessage) -> list[tuple[str, str]]:
    """Return the headers of a message that a client publishes."""
    lines = message.headers.decode().split("\r\n")[1:-2] if message.headers else []
    return [(name, value) for name, _, value in (line.partition(": ") for line in lines)]


def block_of(heads: Any) -> bytes:
    """Return the block of the headers that a client has received."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in heads)
    return f"NATS/1.0\r\n{lines}\r\n".encode() if lines else b""


def _topic_of(subject: str) -> str:
    return "/".join("" if token == "/" else token for token in subject.split("."))


def _subject_of(topic: str) -> str:
    return ".".join(level or "/" for level in topic.split("/"))
