"""A client of an MQTT broker in a fleet: QoS 0, several subscriptions to one topic, each reported separately."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import structlog
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from regraft.infra.process.end_tasks import end_tasks
from regraft.producers.nodes.mqtt.mqtt_topics import topic_of
from regraft.producers.real_fleet.drive_paho import PahoDriver
from regraft.producers.real_fleet.fleet_client import PUBLISHER_HEADER, Take

log = structlog.get_logger(__name__)

QOS = 0  # The highest rate that the Python library can handle on a machine that all brokers share.
KEEP_ALIVE_S = 30
CONNECT_S_MAX = 20.0
PAUSE_S = 0.2


@cache
def _properties_of(publisher: str) -> Properties:
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = [(PUBLISHER_HEADER, publisher)]
    return properties


class MqttClient:
    """One connection. MQTT allows a client one subscription per topic, so messages are distributed here."""

    def __init__(self, name: str) -> None:
        client = self._client = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5)
        self._driver = PahoDriver(client)
        self._takers: dict[str, list[Take]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._connected = asyncio.Event()
        self._cut = asyncio.Event()
        client.on_message, client.on_connect, client.on_disconnect = self._handle, self._note_connected, self._note_cut

    @classmethod
    async def connect(cls, url: str, name: str = "") -> MqttClient:
        """Connect to a broker under a name, and reconnect whenever the connection is cut."""
        self, parts = cls(name), urlsplit(url)
        self._client.connect_async(parts.hostname or "", parts.port or 0, KEEP_ALIVE_S)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep_open()), loop.create_task(self._driver.maintain())]
        async with asyncio.timeout(CONNECT_S_MAX):
            await self._connected.wait()
        return self

    async def publish(self, subject: str, payload: bytes, publisher: str) -> None:
        """Publish as this publisher; without a name, as whom the broker, or an agent, considers it."""
        properties = _properties_of(publisher) if publisher else None
        self._client.publish(topic_of(subject), payload, QOS, properties=properties)

    async def subscribe(self, subject: str, take: Take) -> tuple[str, Take]:
        """Call ``take`` with the payload of each message with a subject; return the subscription."""
        topic = topic_of(subject)
        takers = self._takers.setdefault(topic, [])
        takers.append(take)
        if len(takers) == 1:
            self._client.subscribe(topic, QOS)
        return topic, take

    async def unsubscribe(self, subscription: tuple[str, Take]) -> None:
        """End a subscription."""
        topic, take = subscription
        takers = self._takers[topic]
        takers.remove(take)
        if not takers:
            del self._takers[topic]
            self._client.unsubscribe(topic)

    async def close(self) -> None:
        """End the connection."""
        await end_tasks(self._tasks)
        self._client.disconnect()
        self._client.loop_write()

    async def _keep_open(self) -> None:
        while True:
            self._cut.clear()
            try:
                await self._driver.reconnect()
                await self._cut.wait()
            except OSError as error:
                log.warning("client_failed", reason=str(error))
            await asyncio.sleep(PAUSE_S)

    def _note_connected(self, *_: Any) -> None:
        self._connected.set()
        for topic in self._takers:
            self._client.subscribe(topic, QOS)

    def _note_cut(self, *_: Any) -> None:
        self._cut.set()

    def _handle(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        for take in list(self._takers.get(message.topic, ())):
            take(bytes(message.payload))
