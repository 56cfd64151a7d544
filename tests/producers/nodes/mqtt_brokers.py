"""Real MQTT brokers for tests: one Mosquitto process each, on a free port, and a client."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regraft.infra.local.mosquitto_server import NoMosquittoError, find_mosquitto, mosquitto_settings
from regraft.producers.nodes.mqtt.mqtt_connector import MqttConnector
from tests.producers.nodes.server_process import WAIT_S_MAX, ServerProcess, free_port
from tests.wait_until import PATIENCE_S

LOGS_RELOADS = "log_type information\n"


def needs_mosquitto() -> None:
    """Skip the test if Mosquitto is not available."""
    try:
        find_mosquitto()
    except NoMosquittoError:
        pytest.skip("no MQTT broker is installed")


def cut(connector: MqttConnector) -> None:
    """Cut the connector's connection as a network does: each end notices when it reads."""
    connector._session._connection._transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


class MqttServer(ServerProcess):
    """One broker; ``more`` are further lines of its settings, or all lines if ``is_plain``."""

    def __init__(self, name: str, directory: Path, more: str = "", *, is_plain: bool = False) -> None:
        self.port = free_port()
        self.file = directory / f"{name}.conf"
        plain = f"listener {self.port} 127.0.0.1\nallow_anonymous true\n{more}"
        self.file.write_text(plain if is_plain else mosquitto_settings(self.port, more))
        super().__init__((str(find_mosquitto()), "-c", str(self.file)), self.port, directory / f"{name}.log")

    async def reload(self) -> None:
        """Let it read its settings, with ``LOGS_RELOADS``, and rules again; what is sent afterwards meets them."""
        assert self.process is not None
        count = self._reloads
        self.process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(PATIENCE_S):
            while self._reloads == count:
                await asyncio.sleep(0.01)

    @property
    def _reloads(self) -> int:
        return self.log.read_text(errors="replace").count("Reloading config")

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    @property
    def connector_url(self) -> str:
        return self.url


class MqttClient:
    """A client with its own thread; its messages are passed to ``take`` in the event loop that created it."""

    def __init__(
        self,
        port: int,
        take: Callable[[Any], None],
        name: str = "",
        version: int = 5,
        will: str = "",
        user: str | None = None,
        *,
        has_session: bool = False,
    ) -> None:
        from paho.mqtt import client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        loop = asyncio.get_running_loop()
        is_clean = not has_session if version < paho.MQTTv5 else None
        self.paho = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=version, clean_session=is_clean)
        self.paho.username_pw_set(user, "x" if user else None)
        self.paho.max_inflight_messages_set(1_000)
        self._done: set[int] = set()
        self.paho.on_message = lambda _client, _data, message: loop.call_soon_threadsafe(take, message)
        self.paho.on_subscribe = lambda _client, _data, number, *_: self._done.add(number)
        self.paho.on_unsubscribe = lambda _client, _data, number, *_: self._done.add(number)
        self.paho.on_connect = lambda *_: self._done.add(0)
        if will:  # Retained: the device is gone.
            self.paho.will_set(will, b"0", 1, retain=True)
        self.paho.connect("127.0.0.1", port)
        self.paho.loop_start()

    async def connected(self) -> MqttClient:
        await self._until(0)
        return self

    async def subscribe(self, topic: str, qos: int = 1) -> None:
        await self._until(self.paho.subscribe(topic, qos)[1])

    async def unsubscribe(self, topic: str) -> None:
        await self._until(self.paho.unsubscribe(topic)[1])

    async def publish(self, topic: str, payload: bytes, properties: Any = None, **more: Any) -> None:
        sent = self.paho.publish(topic, payload, properties=properties, **more)
        while not sent.is_published():
            await asyncio.sleep(0.001)

    def close(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    async def _until(self, number: int) -> None:
        async with asyncio.timeout(WAIT_S_MAX):
            while number not in self._done:
                await asyncio.sleep(0.002)
        self._done.discard(number)
