"""Count the messages that an exchange of links loses or repeats: native links of three brokers against nodes.

``python -m lab.benchmarks.bench_exchange [--brokers mqtt|amqp] [--json FILE]``. b01, b02 and b03 start as a line; links
b01-b02, b02-b03 and b01-b03 delay by 20, 80 and 5 ms. b01 sends 400 numbered messages a second to b03 for 8 s, while
link b02-b03 is exchanged for b01-b03. Native links are exchanged in both orders: the old one removed first, or the new
one added first. Nodes exchange the link once, six times, six times while connections are cut, and once because b02
dies. Has the requirements of ``benchmarks.bench_node``; amqp needs an installed RabbitMQ with its plugins, whose native
links federate exchanges.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import structlog

from benchmarks.line_ends import NATIVE, RABBIT, STARTS, Killable, connector_of, end_at, links_text
from regraft.api.emulation import LinkProxy
from regraft.api.overlays import BrokerChange
from regraft.api.programs import Figure, run_facts, write_figures
from regraft.api.trees import TreeConfiguration
from tests.producers.nodes.node_fleet import NodeFleet

BROKERS = ("b01", "b02", "b03")
OLD, NEW = [("b01", "b02"), ("b02", "b03")], [("b01", "b02"), ("b01", "b03")]
DELAYS_S = {("b01", "b02"): 0.020, ("b02", "b03"): 0.080, ("b01", "b03"): 0.005}
RATE_PER_S, PUBLISHED_S, EXCHANGED_S = 400, 8.0, 3.0
OVERLAP_S = 1.0  # How long both native links exist if the new one is added first.
SWAPS = 6
CUTS = 12
REST_S = 2.0  # For messages still in transit.
Exchange = Callable[[], Awaitable[None]]


async def count_messages(kind: str, first: int, last: int, exchange: Exchange) -> dict[str, int]:
    """Publish at one broker and listen at another during an exchange; return the counts by outcome."""
    sender, receiver = await end_at(kind, first), await end_at(kind, last)
    received: list[int] = []
    await receiver.listen(lambda payload: received.append(int(payload.split(b" ")[0])))
    while not received:
        await sender.publish(b"0 ")
        await asyncio.sleep(0.05)
    await asyncio.sleep(1.0)
    received.clear()
    changing = asyncio.create_task(_later(exchange))
    count, begin_s = int(RATE_PER_S * PUBLISHED_S), time.monotonic()
    for number in range(count):
        await asyncio.sleep(max(begin_s + number / RATE_PER_S - time.monotonic(), 0.0))
        await sender.publish(b"%d " % number)
        await sender.flush()
    await changing
    await asyncio.sleep(REST_S)
    await sender.close()
    await receiver.close()
    return {
        "published": count,
        "lost": count - len(set(received)),
        "repeated": len(received) - len(set(received)),
        "out_of_order": sum(later < earlier for earlier, later in pairwise(received)),
    }


async def _later(exchange: Exchange) -> None:
    await asyncio.sleep(EXCHANGED_S)
    await exchange()


async def relink(
    kind: str, name: str, directory: Path, server: Killable, present: Sequence[int], wanted: Sequence[int]
) -> Killable:
    """Relink a server from the ``present`` ports to the ``wanted`` ones; return its process, which may be a new one."""
    if kind == RABBIT:
        from benchmarks.rabbit_ends import federate

        await asyncio.to_thread(federate, name, directory, present, wanted)
        return server
    assert isinstance(server, subprocess.Popen)
    file = directory / f"{name}.conf"
    file.write_text(file.read_text().replace(links_text(kind, name, *present), links_text(kind, name, *wanted)))
    if kind == "nats":
        server.send_signal(signal.SIGHUP)
        return server
    server.terminate()  # Mosquitto reads bridges only when it starts.
    server.wait()
    with (directory / f"{name}.log").open("ab") as printed:
        return subprocess.Popen(server.args, stderr=printed)


async def over_native_links(kind: str, directory: Path, *, new_first: bool) -> dict[str, int]:
    """Count the messages over native links, which pass through delaying proxies."""
    processes: list[Killable] = []
    proxies: dict[tuple[str, str], LinkProxy] = {}
    try:
        server, first, first_connector = await asyncio.to_thread(STARTS[kind], "b01", directory)
        processes.append(server)
        ports = {"b01": first_connector}
        for name, to in (("b02", "b01"), ("b03", "b02")):
            await asyncio.sleep(0.5)
            for one, other in ((to, name), ("b01", name)):
                if one != name and (one, name) not in proxies:
                    proxy = proxies[one, name] = LinkProxy(partial(ports.__getitem__, one), DELAYS_S[one, other])
                    await proxy.start()
            remote = proxies[to, name].port
            server, last, ports[name] = await asyncio.to_thread(STARTS[kind], name, directory, remote)
            processes.append(server)
        old, new = proxies["b02", "b03"].port, proxies["b01", "b03"].port

        async def use(present: Sequence[int], wanted: Sequence[int]) -> None:
            processes[-1] = await relink(kind, "b03", directory, processes[-1], present, wanted)

        async def exchange() -> None:
            if new_first:
                await use((old,), (old, new))
                await asyncio.sleep(OVERLAP_S)
            await use((old, new) if new_first else (old,), (new,))

        return await count_messages(kind, first, last, exchange)
    finally:
        for process in processes:
            process.kill()
        for proxy in proxies.values():
            await proxy.close()


async def over_nodes(kind: str, directory: Path, exchange_of: Callable[[NodeFleet], Exchange]) -> dict[str, int]:
    """Count the messages over nodes while ``exchange_of`` changes them."""
    servers = {broker: await asyncio.to_thread(STARTS[kind], broker, directory) for broker in BROKERS}
    fleet = NodeFleet(TreeConfiguration.of(1, BROKERS, OLD), {"b02": 0.020, "b03": 0.040})
    try:
        await asyncio.sleep(0.5)
        connectors = {broker: connector_of(kind, port, broker, directory) for broker, (_, _, port) in servers.items()}
        await fleet.begin(connectors)
        await asyncio.sleep(1.0)
        counts = await count_messages(kind, servers["b01"][1], servers["b03"][1], exchange_of(fleet))
        assert not fleet.failures, fleet.failures
        return counts
    finally:
        await fleet.close()
        for server, _, _ in servers.values():
            server.kill()


def swaps(count: int, cuts: int = 0) -> Callable[[NodeFleet], Exchange]:
    """Return an exchange of ``count`` swaps during which ``cuts`` connections are cut."""

    def exchange_of(fleet: NodeFleet) -> Exchange:
        async def cut() -> None:
            for number in range(cuts):
                fleet.proxies[BROKERS[number % 3]].cut()
                await asyncio.sleep(0.2)

        async def exchange() -> None:
            cutting = asyncio.create_task(cut())
            for number in range(count):
                await fleet.change_to(OLD if number % 2 else NEW)
            await cutting

        return exchange

    return exchange_of


def death(fleet: NodeFleet) -> Exchange:
    """Return an exchange in which the middle node dies and is repaired half a second later."""

    async def exchange() -> None:
        await fleet.kill("b02")
        await asyncio.sleep(0.5)
        await fleet.change_to([("b01", "b03")], ("b01", "b03"), BrokerChange(lost=frozenset({"b02"})))

    return exchange


async def measure(kind: str) -> list[Figure]:
    """Return how many messages were lost, repeated and out of order in each case."""
    ways: dict[str, Callable[[Path], Awaitable[dict[str, int]]]] = {
        f"{NATIVE[kind]}, old link removed first": lambda at: over_native_links(kind, at, new_first=False),
        f"{NATIVE[kind]}, new link added first": lambda at: over_native_links(kind, at, new_first=True),
        "nodes, one swap": lambda at: over_nodes(kind, at, swaps(1)),
        f"nodes, {SWAPS} swaps": lambda at: over_nodes(kind, at, swaps(SWAPS)),
        f"nodes, {SWAPS} swaps and {CUTS} cuts": lambda at: over_nodes(kind, at, swaps(SWAPS, CUTS)),
        "nodes, middle one dies": lambda at: over_nodes(kind, at, death),
    }
    figures: list[Figure] = []
    for way, run in ways.items():
        with tempfile.TemporaryDirectory() as place:
            counts = await run(Path(place))
        print(f"{kind}: {way}: " + ", ".join(f"{name} {count:,}" for name, count in counts.items()), flush=True)
        figures += [Figure(name, {"brokers": kind, "way": way}, count, "messages") for name, count in counts.items()]
    return figures


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--brokers", choices=list(STARTS), default="nats")
    options = parser.parse_args()
    figures = asyncio.run(measure(options.brokers))
    if options.json is not None:
        write_figures(options.json, run_facts({"brokers": options.brokers}, 0), figures)
    bad = [each for each in figures if "swap" in str(each.where["way"]) and each.name != "published" and each.value]
    assert not bad, f"nodes lost, repeated or swapped messages in an exchange: {bad}"


if __name__ == "__main__":
    main()
