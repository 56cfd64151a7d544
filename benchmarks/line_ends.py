"""Start, link natively and connect to the brokers of a line, for each kind of broker (bench_node, bench_exchange).

In: the name of a kind. Out: servers with their ports for clients and for connectors, and clients of one subject.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import structlog

from regraft.infra.local.mosquitto_server import find_mosquitto, mosquitto_settings
from regraft.infra.process.find_port import choose_ports, is_listening
from regraft.producers.nodes.connectors.connector import Connector
from regraft.producers.nodes.mqtt.mqtt_connector import MqttConnector
from regraft.producers.nodes.nats.nats_connector import NatsConnector
from regraft.producers.real_fleet.mqtt_client import MqttClient

log = structlog.get_logger(__name__)

SUBJECT = "data.x"
RABBIT = "amqp"
TRIES = 3  # Another process may grab a free port before the server listens on it.
READY_S_MAX = 20.0


class Killable(Protocol):
    """A process, or several."""

    def kill(self) -> None:
        """Kill it at once."""


Server = tuple[Killable, int, int]  # A server, its port for clients, its port for connectors.


class End(Protocol):
    """A client at one end of the line."""

    async def listen(self, take: Callable[[bytes], None]) -> None:
        """Subscribe; ``take`` gets each payload."""

    async def publish(self, payload: bytes) -> None:
        """Publish."""

    async def flush(self) -> None:
        """Hand all published messages to the broker."""

    async def close(self) -> None:
        """Close the connection."""


class NatsEnd:
    """A client of NATS."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.flush, self.close = client.flush, client.close

    @classmethod
    async def connect(cls, port: int) -> NatsEnd:
        """Connect to the broker at a port."""
        import nats

        return cls(await nats.connect(f"nats://127.0.0.1:{port}", error_cb=_log_failure))

    async def listen(self, take: Callable[[bytes], None]) -> None:
        """Subscribe."""

        async def on_message(message: Any) -> None:
            take(message.data)

        await self._client.subscribe(SUBJECT, cb=on_message)
        await self._client.flush()

    async def publish(self, payload: bytes) -> None:
        """Publish."""
        await self._client.publish(SUBJECT, payload)


async def _log_failure(error: Exception) -> None:
    """Log an error that nats-py would print with a traceback; it reconnects by itself."""
    log.warning("client_failed", reason=str(error))


class MqttEnd:
    """A client of MQTT, QoS 0."""

    def __init__(self, client: MqttClient) -> None:
        self._client = client
        self.close = client.close

    @classmethod
    async def connect(cls, port: int) -> MqttEnd:
        """Connect to the broker at a port."""
        return cls(await MqttClient.connect(f"mqtt://127.0.0.1:{port}"))

    async def listen(self, take: Callable[[bytes], None]) -> None:
        """Subscribe."""
        await self._client.subscribe(SUBJECT, take)

    async def publish(self, payload: bytes) -> None:
        """Publish."""
        await self._client.publish(SUBJECT, payload, "")

    async def flush(self) -> None:
        """Do nothing: the loop sends by itself."""


def links_text(kind: str, name: str, *remotes: int) -> str:
    """Return the settings of a server's native links to others at these ports."""
    if kind == "nats":
        urls = ", ".join(f'{{ url: "nats://127.0.0.1:{each}" }}' for each in remotes)
        return f"remotes: [{urls}]"
    lines = (f"connection {name}-{each}\naddress 127.0.0.1:{each}\ntopic # both 0\n" for each in remotes)
    return "".join(lines)


def start_nats(name: str, directory: Path, remote: int | None = None) -> Server:
    """Start a NATS server, linked to the leaf port ``remote`` if given."""
    program = shutil.which("nats-server") or str(Path(sys.executable).with_name("nats-server"))
    link = "" if remote is None else links_text("nats", name, remote)
    file, log_file = directory / f"{name}.conf", directory / f"{name}.log"

    def settings(ports: tuple[int, ...]) -> str:
        return (
            f'server_name: {name}\nlisten: "127.0.0.1:{ports[0]}"\n'
            f'leafnodes {{ listen: "127.0.0.1:{ports[1]}"\n{link} }}\n'
        )

    server, (client_port, leaf_port) = _start(2, settings, file, log_file, program, "-c", str(file))
    return server, client_port, leaf_port


def start_mosquitto(name: str, directory: Path, remote: int | None = None) -> Server:
    """Start a Mosquitto server, with a bridge of QoS 0 to the one at port ``remote`` if given."""
    link = "" if remote is None else links_text("mqtt", name, remote)
    file, log_file = directory / f"{name}.conf", directory / f"{name}.log"

    def settings(ports: tuple[int, ...]) -> str:
        return mosquitto_settings(ports[0], link)

    server, (port,) = _start(1, settings, file, log_file, str(find_mosquitto()), "-c", str(file))
    return server, port, port


def _start(
    count: int, settings: Callable[[tuple[int, ...]], str], file: Path, log_file: Path, *command: str
) -> tuple[subprocess.Popen[bytes], tuple[int, ...]]:
    """Start a server on free ports, retrying on others if it exits at once; return it and its ports once it listens."""
    for _ in range(TRIES):
        ports = choose_ports(count)
        file.write_text(settings(ports))
        with log_file.open("ab") as printed:
            server = subprocess.Popen(command, stderr=printed)
        until_s = time.monotonic() + READY_S_MAX
        while server.poll() is None and time.monotonic() < until_s:
            if all(is_listening(port) for port in ports):
                return server, ports
            time.sleep(0.02)
        server.kill()
    raise RuntimeError(f"{command[0]} does not listen after {TRIES} tries: see {log_file}")


def start_rabbit(name: str, directory: Path, remote: int | None = None) -> Server:
    """Start a RabbitMQ server, federated with the one at port ``remote`` if given."""
    from benchmarks import rabbit_ends

    return rabbit_ends.start_rabbit(name, directory, remote)


STARTS: dict[str, Callable[..., Server]] = {"nats": start_nats, "mqtt": start_mosquitto, RABBIT: start_rabbit}
NATIVE = {"nats": "leaf links", "mqtt": "bridges", RABBIT: "federation"}


def connector_of(kind: str, port: int, broker: str, directory: Path) -> Connector:
    """Return the connector of a broker to the server at a port; ``directory`` is where the server was started."""
    if kind == "nats":
        return NatsConnector(f"nats://127.0.0.1:{port}", broker)
    if kind == RABBIT:
        from benchmarks.rabbit_ends import rabbit_connector

        return rabbit_connector(port, broker, directory)
    return MqttConnector(f"mqtt://127.0.0.1:{port}", broker, log_file=directory / f"{broker}.log")


async def end_at(kind: str, port: int) -> End:
    """Return a connected client of the server at a port."""
    if kind == RABBIT:
        from benchmarks.rabbit_ends import AmqpEnd

        return await AmqpEnd.connect(port, SUBJECT)
    return await (NatsEnd if kind == "nats" else MqttEnd).connect(port)
