"""A real RabbitMQ for tests: one per process because it takes seconds to start; each test has its own exchange."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from regraft.infra.local.make_certificates import LocalAuthority
from regraft.infra.local.rabbit_server import NoRabbitError, find_rabbit, rabbit_environment
from regraft.infra.process.find_port import choose_ports
from regraft.producers.nodes.connectors.ask_api import BrokerApi

PLUGINS = "[rabbitmq_event_exchange,rabbitmq_management,rabbitmq_federation,rabbitmq_shovel]."
START_S_MAX = 90.0
STARTS_MAX = 3
IS_UP = b"Server startup complete"
SETTINGS = """\
listeners.tcp.1 = 127.0.0.1:{port}
management.tcp.ip = 127.0.0.1
management.tcp.port = {api_port}
listeners.ssl.1 = 127.0.0.1:{tls_port}
ssl_options.cacertfile = {directory}/ca.pem
ssl_options.certfile = {directory}/server.pem
ssl_options.keyfile = {directory}/server-key.pem
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
"""


def needs_rabbit() -> None:
    """Skip the test if RabbitMQ is not available."""
    try:
        find_rabbit()
    except NoRabbitError:
        pytest.skip("no RabbitMQ is installed")


class RabbitServer:
    """One broker with its event exchange and its management interface, without and with TLS."""

    def __init__(self, directory: Path, plugins: str = PLUGINS, names_port: int = 0) -> None:
        self.directory = directory
        self.port, self.tls_port, self.api_port, self.names_port, self.peers_port = choose_ports(5)
        self.names_port = names_port or self.names_port
        self.authority, self.log = LocalAuthority(directory), directory / "rabbit.log"
        self.authority.issue("server")
        (directory / "plugins").write_text(plugins)
        places = {"port": self.port, "tls_port": self.tls_port, "api_port": self.api_port, "directory": directory}
        (directory / "rabbit.conf").write_text(SETTINGS.format(**places))
        environment = rabbit_environment(directory, self.node, self.names_port, self.peers_port)
        self._environment = {**os.environ, **environment}
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}"

    @property
    def node(self) -> str:
        """Its name among the servers of a cluster."""
        return f"t{self.port}"

    @property
    def api(self) -> BrokerApi:
        return BrokerApi(f"http://127.0.0.1:{self.api_port}", "guest", "guest")

    def put(self, path: str, what: dict[str, Any], method: str = "PUT") -> None:
        """Change something by the management interface."""
        heads = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q=", "Content-Type": "application/json"}
        urlopen(Request(f"{self.api.url}{path}", json.dumps(what).encode(), heads, method=method)).close()

    def start(self) -> RabbitServer:
        begin = self.log.stat().st_size if self.log.exists() else 0
        names = ("epmd", "-port", str(self.names_port), "-address", "127.0.0.1")
        with self.log.open("ab") as log:
            for command in (names, (str(find_rabbit()),)):
                self._processes.append(
                    subprocess.Popen(command, stdout=log, stderr=log, env=self._environment, start_new_session=True)
                )
        deadline_s = time.monotonic() + START_S_MAX
        while IS_UP not in self.log.read_bytes()[begin:]:
            assert time.monotonic() < deadline_s, self.log.read_text()
            assert self._processes[-1].poll() is None, self.log.read_text()
            time.sleep(0.05)
        return self

    def listens(self) -> bool:
        """Return True if all its listeners are up; it starts without a listener whose port is in use."""
        log = self.log.read_text()
        return all(
            f"{kind} listener on 127.0.0.1:{port}" in log
            for kind, port in (("TCP", self.port), ("TLS (SSL)", self.tls_port))
        )

    def kill(self) -> None:
        """Kill it with all its child processes."""
        for process in reversed(self._processes):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes.clear()


def rabbit_cluster(directory: Path, count: int) -> list[RabbitServer]:
    """Return the servers of a cluster, not started yet; start the first one first: it has their name service."""
    servers: list[RabbitServer] = []
    for number in range(count):
        place = directory / f"s{number}"
        place.mkdir()
        servers.append(RabbitServer(place, names_port=servers[0].names_port if servers else 0))
    peers = "".join(
        f"cluster_formation.classic_config.nodes.{number} = {server.node}@localhost\n"
        for number, server in enumerate(servers, 1)
    )
    for server in servers:
        with (server.directory / "rabbit.conf").open("a") as file:
            file.write(f"cluster_formation.peer_discovery_backend = classic_config\n{peers}")
        cookie = server.directory / ".erlang.cookie"
        cookie.write_text("SHARED")
        cookie.chmod(0o400)
    return servers


@cache
def shared_rabbit() -> RabbitServer:
    """Return the RabbitMQ of this process, which ends with the process."""
    for _ in range(STARTS_MAX):
        directory = Path(tempfile.mkdtemp(prefix="rabbit-"))
        server = RabbitServer(directory)
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        atexit.register(server.kill)
        if server.start().listens():
            return server
        server.kill()
    raise AssertionError(f"of {STARTS_MAX} starts of a RabbitMQ none got its ports; the log of the last: {server.log}")


class RabbitClient:
    """A client of one exchange; each call waits for the broker's answer."""

    def __init__(self, port: int, exchange: str, take: Callable[[Any], None]) -> None:
        self._port, self.exchange, self._take = port, exchange, take

    async def connected(self) -> RabbitClient:
        from pika import ConnectionParameters

        from regraft.producers.nodes.amqp.drive_pika import PikaConnection

        self.connection = PikaConnection(ConnectionParameters("127.0.0.1", self._port))
        self.main = await self.connection.channel()
        declare = self.main.channel.exchange_declare
        await self.main.ask(declare, exchange=self.exchange, exchange_type="topic", auto_delete=False)
        return self

    async def consume(self, queue: str = "", **more: Any) -> tuple[str, str]:
        """Declare a queue, a new one if it has no name, and consume it; return its name and the consumer."""
        channel = self.main.channel
        declared = await self.main.ask(channel.queue_declare, queue=queue, exclusive=True, **more)
        consuming = await self.main.ask(
            channel.basic_consume,
            queue=declared.method.queue,
            on_message_callback=lambda *delivered: self._take(delivered),
            auto_ack=True,
        )
        return declared.method.queue, consuming.method.consumer_tag

    async def bind(self, key: str, queue: str = "", **more: Any) -> str:
        """Bind a queue by a key and return its name; without a name a new queue is declared and consumed."""
        queue = queue or (await self.consume(**more))[0]
        await self.main.ask(self.main.channel.queue_bind, queue=queue, exchange=self.exchange, routing_key=key)
        return queue

    async def leave(self, queue: str, consumer: str) -> None:
        """End a consumer, and its queue if that was the last one."""
        channel = self.main.channel
        await self.main.ask(channel.basic_cancel, consumer_tag=consumer)
        declared = await self.main.ask(channel.queue_declare, queue=queue, passive=True)
        if not declared.method.consumer_count:
            await self.delete(queue)

    async def reject_first(self, key: str, arguments: dict[str, str]) -> None:
        """Bind a queue whose consumer rejects the first message, and takes all further ones."""
        channel, seen = self.main.channel, list[int]()
        declared = await self.main.ask(channel.queue_declare, queue="", exclusive=True, arguments=arguments)

        def take(_channel: Any, deliver: Any, _properties: Any, _body: bytes) -> None:
            if seen:
                channel.basic_ack(deliver.delivery_tag)
            else:
                channel.basic_reject(deliver.delivery_tag, requeue=False)
            seen.append(deliver.delivery_tag)

        queue = declared.method.queue
        await self.main.ask(channel.basic_consume, queue=queue, on_message_callback=take)
        await self.main.ask(channel.queue_bind, queue=queue, exchange=self.exchange, routing_key=key)

    async def unbind(self, queue: str, key: str) -> None:
        await self.main.ask(self.main.channel.queue_unbind, queue=queue, exchange=self.exchange, routing_key=key)

    async def delete(self, queue: str) -> None:
        await self.main.ask(self.main.channel.queue_delete, queue=queue)

    async def publish(self, key: str, payload: bytes, **properties: Any) -> None:
        from pika import BasicProperties

        self.main.channel.basic_publish(self.exchange, key, payload, BasicProperties(**properties))
        await asyncio.sleep(0)

    async def close(self) -> None:
        await self.connection.close(5.0)
