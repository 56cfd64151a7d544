"""Real MQTT brokers for tests: one Mosquitto process each, on a free port, and a client of it."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regraft.infra.mosquitto_server import NoMosquittoError, find_mosquitto, mosquitto_settings
from tests.producers.nodes.nats_servers import free_port

WAIT_S_MAX = 20.0


def needs_mosquitto() -> None:
    """Skip the test where there is no Mosquitto."""
    try:
        find_mosquitto()
    except NoMosquittoError:
        pytest.skip("no MQTT broker is installed")


class MqttServer:
    """One broker; ``more`` are further lines of its settings, or all of them if ``is_plain``."""

    def __init__(self, name: str, directory: Path, more: str = "", *, is_plain: bool = False) -> None:
        self.port = free_port()
        self.file = directory / f"{name}.conf"
        plain = f"listener {self.port} 127.0.0.1\nallow_anonymous true\n{more}"
        self.file.write_text(plain if is_plain else mosquitto_settings(self.port, more))
        self.log = directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    @property
    def door_url(self) -> str:
        return self.url

    def start(self) -> MqttServer:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([str(find_mosquitto()), "-c", str(self.file)], stderr=log, stdout=log)
        deadline_s = time.monotonic() + WAIT_S_MAX
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                assert time.monotonic() < deadline_s, self.log.read_text()
                assert self.process.poll() is None, self.log.read_text()
                time.sleep(0.01)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(WAIT_S_MAX)
            self.process = None


class MqttClient:
    """A client with a thread of its own; what it gets is handed to ``take`` in the loop that made it."""

    def __init__(self, port: int, take: Callable[[Any], None], name: str = "", version: int = 5) -> None:
        from paho.mqtt import client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        loop = asyncio.get_running_loop()
        self.paho = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=version)
        self.paho.max_inflight_messages_set(1_000)
        self._done: set[int] = set()
        self.paho.on_message = lambda _client, _data, message: loop.call_soon_threadsafe(take, message)
        self.paho.on_subscribe = lambda _client, _data, number, *_: self._done.add(number)
        self.paho.on_unsubscribe = lambda _client, _data, number, *_: self._done.add(number)
        self.paho.on_connect = lambda *_: self._done.add(0)
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
