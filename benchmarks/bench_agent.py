"""Measure what an agent between clients and a server costs, beside direct connections in the same run.

``python -m benchmarks.bench_agent [--protocol mqtt] [--json FILE]``. Reports the round trip of a message to oneself
(medians, alternating between both ways), and messages per second from one client to another, with what a CPU second of
the agent carries. Limits: 0.3 ms more for a round trip, 20,000 messages per second. Needs a NATS server (the extra
``nats``) or Mosquitto (``mqtt``).
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

from regraft.infra.local.mosquitto_server import start_mosquitto_service
from regraft.infra.local.nats_server import start_nats_service
from regraft.infra.local.supervise import Supervisor
from regraft.infra.process.find_port import LOOPBACK, choose_ports
from regraft.infra.process.measured_figures import Figure, run_facts, write_figures
from regraft.producers.agents import mqtt_frames, nats_frames

ROUNDS, PAUSE_S = 2_000, 0.001
MESSAGES, SIZE_BYTES, BURST = 200_000, 128, 200
PAYLOAD = b"x" * SIZE_BYTES
ADDED_MS_MAX, PER_S_MIN = 0.3, 20_000
WAIT_S_MAX = 20.0


class NatsClient:
    """A client as bare as possible, so that its own cost hides little of the agent's."""

    scheme = "nats"

    def __init__(self, port: int) -> None:
        self.socket, self._reader = _connect(port), nats_frames.FrameReader()
        self._ask(b'CONNECT {"verbose":false,"headers":true,"lang":"bench"}\r\n')

    def _ask(self, lines: bytes) -> None:
        self.socket.sendall(lines + b"PING\r\n")
        self.await_frame(b"PONG\r\n")

    def await_frame(self, frame: bytes) -> None:
        """Read until this frame has come; a server's PING, which may be behind it, is answered."""
        came: list[bytes] = []
        while frame not in came:
            came = [each.raw for each in self._reader.feed(_received(self.socket))]
            self.socket.sendall(b"PONG\r\n" * came.count(b"PING\r\n"))

    def subscribe(self, name: bytes) -> None:
        """Subscribe, and wait until the server has handled that."""
        self._ask(b"SUB %b 9\r\n" % name)

    @staticmethod
    def sent(name: bytes, payload: bytes) -> bytes:
        """Return a message as a client sends it."""
        return b"PUB %b %d\r\n%b\r\n" % (name, len(payload), payload)

    @staticmethod
    def got(name: bytes, payload: bytes) -> bytes:
        """Return it as a client gets it."""
        return b"MSG %b 9 %d\r\n%b\r\n" % (name, len(payload), payload)

    @staticmethod
    def start(supervisor: Supervisor, directory: Path) -> int:
        """Start a server; return its port."""
        return start_nats_service(supervisor, "b01", directory).client_port


class MqttClient:
    """The same for MQTT 3.1.1, at QoS 0."""

    scheme = "mqtt"

    def __init__(self, port: int) -> None:
        self.socket, self._reader = _connect(port), mqtt_frames.FrameReader()
        name = b"%d" % self.socket.getsockname()[1]
        self.socket.sendall(_packet(0x10, b"\0\4MQTT\4\2\0\x3c" + _text(name)))
        self.await_frame(_packet(0x20, b"\0\0"))

    def await_frame(self, frame: bytes) -> None:
        """Read until this packet has come."""
        while frame not in list(self._reader.feed(_received(self.socket))):
            pass

    def subscribe(self, name: bytes) -> None:
        """Subscribe, and wait until the broker has handled that."""
        self.socket.sendall(_packet(0x82, b"\0\1" + _text(name) + b"\0"))
        self.await_frame(_packet(0x90, b"\0\1\0"))

    @staticmethod
    def sent(name: bytes, payload: bytes) -> bytes:
        """Return a message as a client sends it."""
        return _packet(0x30, _text(name) + payload)

    got = sent

    @staticmethod
    def start(supervisor: Supervisor, directory: Path) -> int:
        """Start a broker; return its port."""
        return start_mosquitto_service(supervisor, "b01", directory)


Client = NatsClient | MqttClient
PROTOCOLS: dict[str, type[Client]] = {"nats": NatsClient, "mqtt": MqttClient}


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection((LOOPBACK, port), WAIT_S_MAX)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _text(text: bytes) -> bytes:
    return len(text).to_bytes(2) + text


def _packet(first: int, content: bytes) -> bytes:
    return mqtt_frames.head(first, len(content)) + content


def _received(connection: socket.socket) -> bytes:
    data = connection.recv(65_536)
    if not data:
        raise ConnectionError("the server, or the agent, ended the connection")
    return data


def round_trip_ms(client: Client, name: bytes) -> float:
    """Return how long a message to oneself takes."""
    began_s = time.perf_counter()
    client.socket.sendall(client.sent(name, b"hello"))
    client.await_frame(client.got(name, b"hello"))
    return (time.perf_counter() - began_s) * 1_000


def throughput_per_s(publisher: Client, subscriber: Client, name: bytes) -> float:
    """Return the messages per second that arrive when one client sends as fast as they are taken."""
    subscriber.subscribe(name)
    message, expected = publisher.sent(name, PAYLOAD), MESSAGES * len(publisher.got(name, PAYLOAD))

    def send() -> None:
        for _ in range(MESSAGES // BURST):
            publisher.socket.sendall(message * BURST)

    sender, began_s, came = threading.Thread(target=send), time.perf_counter(), 0
    sender.start()
    while came < expected:  # Bytes, as reading frames takes longer than an agent does; a PING of NATS is 6 of them.
        came += len(subscriber.socket.recv(1 << 20))
    took_s = time.perf_counter() - began_s
    sender.join()
    return MESSAGES / took_s


def start_agent(scheme: str, server_port: int, directory: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start an agent beside the server; return its process and its port."""
    brokers, port = directory / "brokers.json", choose_ports(1)[0]
    brokers.write_text(json.dumps({"b01": f"{scheme}://{LOOPBACK}:{server_port}"}))
    command = [sys.executable, "-m", "regraft", "agent", "--broker", "b01", "--brokers", str(brokers)]
    process = subprocess.Popen([*command, "--listen", f"{LOOPBACK}:{port}"], stderr=subprocess.DEVNULL)
    until_s = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < until_s:
        try:
            socket.create_connection((LOOPBACK, port), 1).close()
            return process, port
        except OSError:
            time.sleep(0.05)
    process.kill()
    raise SystemExit(f"the agent does not listen on {LOOPBACK}:{port} after {WAIT_S_MAX:g} s")


def measure(of: type[Client], ports: dict[str, int], agent: psutil.Process) -> list[Figure]:
    """Return the figures of both ways."""
    ends = {way: of(port) for way, port in ports.items()}
    for way, client in ends.items():
        client.subscribe(b"echo" + way.encode())
    rounds: dict[str, list[float]] = {way: [] for way in ports}
    for _ in range(ROUNDS):
        for way, client in ends.items():
            rounds[way].append(round_trip_ms(client, b"echo" + way.encode()))
            time.sleep(PAUSE_S)
    figures = [Figure("round_trip", {"way": way}, statistics.median(took), "ms") for way, took in rounds.items()]
    for way, port in ports.items():
        before = agent.cpu_times()
        per_s = throughput_per_s(of(port), of(port), b"load" + way.encode())
        after = agent.cpu_times()
        figures.append(Figure("messages", {"way": way}, per_s, "1/s"))
        if way == "agent":
            cpu_s = after.user + after.system - before.user - before.system
            figures.append(Figure("messages_per_cpu", {"way": way}, MESSAGES / cpu_s, "1/s"))
    figures.append(Figure("memory", {"way": "agent"}, agent.memory_info().rss / 2**20, "MiB"))
    return figures


def main() -> None:
    """Measure, print and check the limits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--protocol", choices=PROTOCOLS, default="nats")
    arguments = parser.parse_args()
    of = PROTOCOLS[arguments.protocol]
    with tempfile.TemporaryDirectory() as name, Supervisor() as supervisor:
        directory = Path(name)
        server_port = of.start(supervisor, directory)
        process, port = start_agent(of.scheme, server_port, directory)
        try:
            figures = measure(of, {"direct": server_port, "agent": port}, psutil.Process(process.pid))
        finally:
            process.terminate()
            process.wait(WAIT_S_MAX)
    for figure in figures:
        print(f"{figure.name:18} {figure.where['way']:8} {figure.value:12,.3f} {figure.unit}")
    if arguments.json is not None:
        write_figures(arguments.json, run_facts({"messages": MESSAGES, "size_bytes": SIZE_BYTES}, 0), figures)
    values = {(figure.name, figure.where["way"]): figure.value for figure in figures}
    added_ms = values["round_trip", "agent"] - values["round_trip", "direct"]
    assert added_ms <= ADDED_MS_MAX, f"an agent adds {added_ms:.2f} ms to a round trip: at most {ADDED_MS_MAX}"
    per_s = values["messages", "agent"]
    assert per_s >= PER_S_MIN, f"an agent carries {per_s:,.0f} messages/s: at least {PER_S_MIN:,}"


if __name__ == "__main__":
    main()
