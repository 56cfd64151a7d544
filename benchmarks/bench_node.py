"""Measure the cost of carrying messages between three real brokers in a line: over nodes, and over native links.

``python -m benchmarks.bench_node [--brokers mqtt] [--json FILE]``. Reports messages per CPU second of each
node (publishing side, middle, delivering side), and the delay from a client of the first broker to a client of the
last at half the maximum throughput, over nodes and over native links (leaf links of NATS, bridges of Mosquitto) in the
same run. The limit is 20,000 messages per CPU second. Needs a NATS server and nats-py (the extra ``nats``), or
Mosquitto and paho-mqtt (the extra ``mqtt``).
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil

from benchmarks.line_ends import NATIVE, STARTS, connector_of, end_at
from regraft.infra.process.find_port import LOOPBACK
from regraft.infra.process.measured_figures import Figure, run_facts, write_figures
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.emulator.emulator_ports import MemoryClients, MemoryResults, MemoryTelemetry
from regraft.producers.emulator.starting_point import core_of
from regraft.producers.nodes.broker_node import BrokerNode
from regraft.producers.nodes.links.run_links import Links

BROKERS = ("b01", "b02", "b03")
LINE = TreeConfiguration.of(0, BROKERS, [("b01", "b02"), ("b02", "b03")])
FLUSH_S = 0.25
PACED_S = 5.0
BURST = 200  # The publisher checks the subscriber's progress after this many messages.
AHEAD_MAX = 4_000  # Most messages in transit while throughput is measured, so that queue limits do not matter.
LIMIT_PER_S = 20_000


class NoPorts(MemoryTelemetry, MemoryResults, MemoryClients):
    """Stands in for Kafka: telemetry is made and discarded."""

    def __init__(self) -> None:
        MemoryTelemetry.__init__(self, kept_max=1)
        MemoryResults.__init__(self)
        MemoryClients.__init__(self)


def run_node(kind: str, broker: str, port: int, directory: Path, others: Connection) -> None:
    """Run one node until killed: send its port through ``others``, receive the ports of all nodes."""
    addresses = dict.fromkeys(BROKERS, (LOOPBACK, 0))

    async def run() -> None:
        core = core_of(broker, LINE, int(time.time() * 1_000))
        node = BrokerNode(
            core,
            NoPorts(),
            connector := connector_of(kind, port, broker, directory),
            lambda node: Links(broker, "1", addresses, node.take, node.lose),
            lambda: time.time() * 1_000,
        )
        await connector.start(node.note_interest, node.note_message)
        others.send(await node.links.bind(LOOPBACK, 0))
        await node.links.start()
        ports = await asyncio.get_running_loop().run_in_executor(None, others.recv)
        addresses.update({name: (LOOPBACK, port) for name, port in ports.items()})
        node.begin()
        while True:
            await asyncio.sleep(FLUSH_S)
            node.flush()

    asyncio.run(run())


async def measure(
    kind: str, over: str, first: int, last: int, count: int, size: int, rate_per_s: float | None
) -> tuple[list[Figure], int]:
    """Send from a client of one server to a client of another, first at full speed, then at a fixed rate.

    The default rate is half the measured throughput. Raises AssertionError unless all arrived once and in order.
    """
    sender, receiver = await end_at(kind, first), await end_at(kind, last)
    received: list[tuple[int, float]] = []

    def take(payload: bytes) -> None:
        number, sent_s = payload[:40].split(b" ")[:2]
        received.append((int(number), time.monotonic() - float(sent_s)))

    await receiver.listen(take)
    while not received:  # The subscription has reached the first server once a message arrives.
        await sender.publish(b"0 0 ")
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
    received.clear()
    padding = b" " + b"x" * size
    began_s = time.monotonic()
    for number in range(count):
        await sender.publish(b"%d %f" % (number, time.monotonic()) + padding)
        if number % BURST == BURST - 1:
            await sender.flush()
            await asyncio.sleep(0)
            while number - len(received) > AHEAD_MAX:
                await asyncio.sleep(0.001)
    while len(received) < count:
        await asyncio.sleep(0.005)
    through_s = time.monotonic() - began_s
    assert [number for number, _ in received] == list(range(count)), (
        f"over {over} messages were lost, repeated or out of order"
    )
    received.clear()
    rate_per_s = rate_per_s or round(count / through_s / 2)
    paced_count = int(rate_per_s * PACED_S)
    begin_s = time.monotonic()
    for number in range(paced_count):
        await asyncio.sleep(max(begin_s + number / rate_per_s - time.monotonic(), 0.0))
        await sender.publish(b"%d %f" % (number, time.monotonic()) + padding)
        await sender.flush()
    while len(received) < paced_count:
        await asyncio.sleep(0.005)
    delays_ms = sorted(delay_s * 1_000 for _, delay_s in received)
    await sender.close()
    await receiver.close()
    where: dict[str, str | int | float] = {"brokers": kind, "over": over, "bytes": size}
    paced = where | {"messages_per_s": rate_per_s}
    figures = [
        Figure("throughput", where, round(count / through_s), "messages/s"),
        Figure("delay_ms_p50", paced, round(statistics.median(delays_ms), 2), "ms"),
        Figure("delay_ms_p99", paced, round(delays_ms[int(len(delays_ms) * 0.99)], 2), "ms"),
    ]
    return figures, count + paced_count


def over_nodes(kind: str, directory: Path, count: int, size: int, rate_per_s: float | None) -> list[Figure]:
    """Return the figures over three nodes."""
    servers = {broker: STARTS[kind](broker, directory) for broker in BROKERS}
    context = multiprocessing.get_context("spawn")
    nodes: dict[str, BaseProcess] = {}
    pipes: dict[str, Connection] = {}
    try:
        for broker, (_, _, connector_port) in servers.items():
            pipes[broker], end = context.Pipe()
            nodes[broker] = context.Process(target=run_node, args=(kind, broker, connector_port, directory, end))
            nodes[broker].start()
            end.close()
        ports = {broker: pipe.recv() for broker, pipe in pipes.items()}
        for pipe in pipes.values():
            pipe.send(ports)
        time.sleep(1.0)
        meters = {broker: psutil.Process(node.pid) for broker, node in nodes.items()}
        before = {broker: _cpu_s(meter) for broker, meter in meters.items()}
        ends = [servers[broker][1] for broker in (BROKERS[0], BROKERS[-1])]
        figures, carried = asyncio.run(measure(kind, "nodes", ends[0], ends[1], count, size, rate_per_s))
        spent = {broker: _cpu_s(meter) - before[broker] for broker, meter in meters.items()}
        for place, broker in zip(("publishing", "middle", "delivering"), BROKERS, strict=True):
            where: dict[str, str | int | float] = {"brokers": kind, "over": "nodes", "node": place, "bytes": size}
            rss_mb = round(meters[broker].memory_info().rss / 1e6)
            figures.append(Figure("messages_per_cpu_s", where, round(carried / spent[broker]), "messages/s"))
            figures.append(Figure("memory", where, rss_mb, "MB"))
        return figures
    finally:
        for node in nodes.values():
            node.kill()
        for server, _, _ in servers.values():
            server.kill()


def over_native_links(kind: str, directory: Path, count: int, size: int, rate_per_s: float | None) -> list[Figure]:
    """Return the figures over the servers' native links."""
    servers = [STARTS[kind]("n01", directory)]
    try:
        for name in ("n02", "n03"):
            servers.append(STARTS[kind](name, directory, servers[-1][2]))
        time.sleep(1.0)
        ends = [servers[place][1] for place in (0, -1)]
        return asyncio.run(measure(kind, NATIVE[kind], ends[0], ends[1], count, size, rate_per_s))[0]
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
    parser.add_argument("--brokers", choices=("nats", "mqtt"), default="nats")
    parser.add_argument(
        "--rate", type=float, help="messages a second while delays are measured, default: half the measured throughput"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        arguments = (options.brokers, Path(place), options.messages, options.bytes, options.rate)
        figures = [*over_nodes(*arguments), *over_native_links(*arguments)]
    for figure in figures:
        print(f"{figure.where} {figure.name}: {figure.value:,} {figure.unit}")
    if options.json is not None:
        settings = {
            "brokers": options.brokers,
            "messages": options.messages,
            "bytes": options.bytes,
            "rate": options.rate or 0.0,
        }
        write_figures(options.json, run_facts(settings, 0), figures)
    rates = [figure.value for figure in figures if figure.name == "messages_per_cpu_s"]
    assert min(rates) >= LIMIT_PER_S, f"{min(rates):,} messages per CPU second: at least {LIMIT_PER_S:,} are required"


if __name__ == "__main__":
    main()
