"""What carrying messages between NATS servers costs: nodes in a line of three, and the servers' own leaf links.

``python -m benchmarks.bench_node [--json FILE]``. Messages for each CPU second of each node (publishing side, in the
middle, delivering side), and the delay from a client of the first server to one of the last, at a steady rate, over
nodes and over native leaf links in the same run. The limit beside it is 20,000 messages for each CPU second. Needs a
NATS server and nats-py (the extra ``nats``).
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil

from regraft.infra.find_port import choose_ports
from regraft.infra.measured_figures import Figure, run_facts, write_figures
from regraft.overlay.configuration import Configuration
from regraft.producers.brokers.broker_cores import core_of
from regraft.producers.emulator.emulator_ports import MemoryClients, MemoryResults, MemoryTelemetry
from regraft.producers.nodes.broker_node import BrokerNode
from regraft.producers.nodes.nats_door import NatsDoor
from regraft.producers.nodes.run_links import Links

BROKERS = ("b01", "b02", "b03")
LINE = Configuration.of(0, BROKERS, [("b01", "b02"), ("b02", "b03")])
FLUSH_S = 0.25
BURST = 200  # Messages between two looks of the publisher at how far the subscriber is.
AHEAD_MAX = 4_000  # Messages under way at most while throughput is measured: no queue decides it.
LIMIT_PER_S = 20_000
Addresses = dict[str, tuple[str, int]]


class NoPorts(MemoryTelemetry, MemoryResults, MemoryClients):
    """Kafka's place: telemetry is made and forgotten."""

    def __init__(self) -> None:
        MemoryTelemetry.__init__(self, kept_max=1)
        MemoryResults.__init__(self)
        MemoryClients.__init__(self)


def be_node(broker: str, leaf_url: str, addresses: Addresses) -> None:
    """Be one node until killed."""

    async def run() -> None:
        core = core_of(broker, LINE, int(time.time() * 1_000))
        node = BrokerNode(
            core,
            NoPorts(),
            door := NatsDoor(leaf_url, broker),
            lambda node: Links(broker, "1", addresses, node.take, node.lose),
            lambda: time.time() * 1_000,
        )
        await door.start(node.note_interest, node.note_message)
        await node.links.start(*addresses[broker])
        node.begin()
        while True:
            await asyncio.sleep(FLUSH_S)
            node.flush()

    asyncio.run(run())


def start_server(name: str, directory: Path, remote: int | None = None) -> tuple[subprocess.Popen[bytes], int, int]:
    """Start a server, linked to the leaf port ``remote`` if there is one; return it with its two ports."""
    program = shutil.which("nats-server") or str(Path(sys.executable).with_name("nats-server"))
    client_port, leaf_port = choose_ports(2)
    link = "" if remote is None else f'remotes: [{{ url: "nats://127.0.0.1:{remote}" }}]'
    file = directory / f"{name}.conf"
    file.write_text(
        f'server_name: {name}\nlisten: "127.0.0.1:{client_port}"\n'
        f'leafnodes {{ listen: "127.0.0.1:{leaf_port}"\n{link} }}\n'
    )
    server = subprocess.Popen([program, "-c", str(file), "-l", str(directory / f"{name}.log")])
    return server, client_port, leaf_port


async def measure(over: str, first: str, last: str, count: int, size: int, rate_per_s: float) -> list[Figure]:
    """Send from a client of one server to one of another, as fast as it goes and then at a rate.

    Raises AssertionError unless each message came once and in order.
    """
    import nats

    sender, receiver = await nats.connect(first), await nats.connect(last)
    came: list[tuple[int, float]] = []

    async def take(message: Any) -> None:
        number, sent_s = message.data[:40].split(b" ")[:2]
        came.append((int(number), time.monotonic() - float(sent_s)))

    await receiver.subscribe("data.x", cb=take)
    await receiver.flush()
    while not came:  # Until the subscription is known at the first server.
        await sender.publish("data.x", b"0 0 ")
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
    came.clear()
    padding = b" " + b"x" * size
    began_s = time.monotonic()
    for number in range(count):
        await sender.publish("data.x", b"%d %f" % (number, time.monotonic()) + padding)
        if number % BURST == BURST - 1:
            await sender.flush()
            while number - len(came) > AHEAD_MAX:
                await asyncio.sleep(0.001)
    while len(came) < count:
        await asyncio.sleep(0.005)
    through_s = time.monotonic() - began_s
    assert [number for number, _ in came] == list(range(count)), f"over {over} not all came once, in order"
    came.clear()
    paced_count = int(rate_per_s * 5)
    begin_s = time.monotonic()
    for number in range(paced_count):
        await asyncio.sleep(max(begin_s + number / rate_per_s - time.monotonic(), 0.0))
        await sender.publish("data.x", b"%d %f" % (number, time.monotonic()) + padding)
        await sender.flush()
    while len(came) < paced_count:
        await asyncio.sleep(0.005)
    delays_ms = sorted(delay_s * 1_000 for _, delay_s in came)
    await sender.close()
    await receiver.close()
    where: dict[str, str | int | float] = {"over": over, "bytes": size}
    paced = where | {"messages_per_s": rate_per_s}
    return [
        Figure("throughput", where, round(count / through_s), "messages/s"),
        Figure("delay_ms_p50", paced, round(statistics.median(delays_ms), 2), "ms"),
        Figure("delay_ms_p99", paced, round(delays_ms[int(len(delays_ms) * 0.99)], 2), "ms"),
    ]


def over_nodes(directory: Path, count: int, size: int, rate_per_s: float) -> list[Figure]:
    """Return what is measured over three nodes."""
    servers = {broker: start_server(broker, directory) for broker in BROKERS}
    ports = choose_ports(len(BROKERS))
    addresses = {broker: ("127.0.0.1", port) for broker, port in zip(BROKERS, ports, strict=True)}
    context = multiprocessing.get_context("spawn")
    nodes: dict[str, BaseProcess] = {}
    try:
        for broker, (_, _, leaf_port) in servers.items():
            nodes[broker] = context.Process(target=be_node, args=(broker, f"nats://127.0.0.1:{leaf_port}", addresses))
            nodes[broker].start()
        time.sleep(3.0)
        meters = {broker: psutil.Process(node.pid) for broker, node in nodes.items()}
        before = {broker: _cpu_s(meter) for broker, meter in meters.items()}
        urls = [f"nats://127.0.0.1:{servers[broker][1]}" for broker in (BROKERS[0], BROKERS[-1])]
        found = asyncio.run(measure("nodes", *urls, count, size, rate_per_s))
        carried = count + int(rate_per_s * 5)
        spent = {broker: _cpu_s(meter) - before[broker] for broker, meter in meters.items()}
        for place, broker in zip(("publishing", "middle", "delivering"), BROKERS, strict=True):
            where: dict[str, str | int | float] = {"over": "nodes", "node": place, "bytes": size}
            rss_mb = round(meters[broker].memory_info().rss / 1e6)
            found.append(Figure("messages_per_cpu_s", where, round(carried / spent[broker]), "messages/s"))
            found.append(Figure("memory", where, rss_mb, "MB"))
        return found
    finally:
        for node in nodes.values():
            node.kill()
        for server, _, _ in servers.values():
            server.kill()


def over_leaf_links(directory: Path, count: int, size: int, rate_per_s: float) -> list[Figure]:
    """Return what is measured over the servers' own links."""
    servers = [start_server("n01", directory)]
    try:
        for name in ("n02", "n03"):
            time.sleep(0.5)
            servers.append(start_server(name, directory, servers[-1][2]))
        time.sleep(1.0)
        urls = [f"nats://127.0.0.1:{servers[place][1]}" for place in (0, -1)]
        return asyncio.run(measure("leaf links", *urls, count, size, rate_per_s))
    finally:
        for server, _, _ in servers:
            server.kill()


def _cpu_s(meter: psutil.Process) -> float:
    times = meter.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--bytes", type=int, default=200)
    parser.add_argument("--rate", type=float, default=500.0, help="messages a second while delays are measured")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        told = (Path(place), options.messages, options.bytes, options.rate)
        figures = [*over_nodes(*told), *over_leaf_links(*told)]
    for figure in figures:
        print(f"{figure.where} {figure.name}: {figure.value:,} {figure.unit}")
    if options.json is not None:
        settings = {"messages": options.messages, "bytes": options.bytes, "rate": options.rate}
        write_figures(options.json, run_facts(settings, 0), figures)
    rates = [figure.value for figure in figures if figure.name == "messages_per_cpu_s"]
    assert min(rates) >= LIMIT_PER_S, f"{min(rates):,} messages for each CPU second: {LIMIT_PER_S:,} wanted"


if __name__ == "__main__":
    main()
