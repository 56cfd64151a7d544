"""The nodes of a fleet, in one process, each with its own core, links and connector.

In: brokers, link costs (ms one way), and connectors to the servers. Out: nodes that run, die and come back. Links
between nodes go through proxies that delay data by the link's cost in the inventory, as the emulator does. What a node
does belongs to :mod:`producers.nodes.broker_node`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import networkx as nx
import structlog

from regraft.infra.process.find_port import LOOPBACK
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import Link, OverlayConfiguration
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.producers.emulator.due_heartbeats import HeartbeatRule
from regraft.producers.emulator.overlay_paths import target_of
from regraft.producers.emulator.starting_point import StartingPoint
from regraft.producers.nodes.broker_node import BrokerNode, NodePorts
from regraft.producers.nodes.connectors.connector import Connector
from regraft.producers.nodes.guard_calls import CallGuard
from regraft.producers.nodes.links.carried_messages import CarriedNotification
from regraft.producers.nodes.links.choose_candidates import CandidateChoice
from regraft.producers.nodes.links.run_links import LinkLimits, Links
from regraft.producers.nodes.watch_congestion import CONGESTED, DIVERTED
from regraft.producers.real_fleet.client_ledger import Death
from regraft.producers.real_fleet.link_proxy import LinkProxy
from regraft.schemas.command import Command, CommandPhase
from regraft.schemas.sampled_blocks import FULL, Sampling
from regraft.schemas.units import SECOND_MS

log = structlog.get_logger(__name__)

LIMITS = LinkLimits()
NEVER_CALLED = (LOOPBACK, 0)  # Of two nodes, the one whose name comes first calls the other.


Separation = Callable[[str, str], bool]  # Whether a broker is between two others.


class FleetOverlays:
    """The overlays by epoch; ``note_command`` returns True if another one may carry notifications from now on."""

    def __init__(self, start: OverlayConfiguration) -> None:
        self._live = {start.epoch: start}
        self._prepared: dict[tuple[int, str], OverlayConfiguration] = {}

    def note_command(self, command: Command) -> bool:
        """Note a command to any node; the same command to other nodes changes nothing."""
        key = command.epoch_to, command.digest
        match command.phase:
            case CommandPhase.PREPARE:
                before = self._live.get(command.epoch_from)
                target = None if before is None or key in self._prepared else target_of(before, command)
                if target is not None:
                    self._prepared[key] = target
            case CommandPhase.ACTIVATE if key in self._prepared:
                self._live[command.epoch_to] = self._prepared.pop(key)
                return True
            case CommandPhase.RETIRE if command.epoch_to in self._live:
                self._live = {epoch: each for epoch, each in self._live.items() if epoch >= command.epoch_to}
            case CommandPhase.ABORT:
                self._prepared.pop(key, None)
        return False

    def separations_by(self, broker: str) -> list[Separation]:
        """Return, for each overlay with the broker, between which others it is."""
        return [separation_by(broker, each) for each in self._live.values() if broker in each.brokers]


def separation_by(dead: str, overlay: OverlayConfiguration) -> Separation:
    """Return what says between which brokers a dead one is: on a structured cyclic overlay, by static routing."""
    if isinstance(overlay, ScotConfiguration):
        slots, route = overlay.slots, overlay.static_route
        return lambda one, other: not {one, other} <= slots.keys() or dead in route(one, other)
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(overlay.brokers)
    graph.add_edges_from(overlay.links)
    graph.remove_node(dead)
    part_of = {name: place for place, part in enumerate(nx.connected_components(graph)) for name in part}
    return lambda one, other: part_of.get(one) != part_of.get(other)


class FleetNodes:
    """Nodes by broker. ``connectors_of`` makes a broker's connector for each of its incarnations; ``failure`` ends the
    fleet.

    ``on_confirmed`` is called with a broker, a subject, and whether the overlay carries it there from now on,
    ``on_detour`` with a broker and what comes to it around congested links. ``bytes_per_s`` is the bandwidth of each
    link in each direction, None for no limit.
    """

    def __init__(
        self,
        inventory: Inventory,
        start: StartingPoint,
        ports: NodePorts,
        connectors_of: Callable[[str], Connector],
        now_ms: Callable[[], float],
        sampling: Sampling = FULL,
        on_confirmed: Callable[[str, str, bool], None] = lambda _broker, _subject, _is_confirmed: None,
        heartbeats: HeartbeatRule | None = None,
        on_detour: Callable[[str, CarriedNotification], None] = lambda _broker, _notification: None,
        bytes_per_s: float | None = None,
    ) -> None:
        self.brokers = inventory.brokers
        self._on_confirmed, self._heartbeats = on_confirmed, heartbeats
        self._on_detour, self._bytes_per_s = on_detour, bytes_per_s
        self._takes_detours = True
        self._counts_before: Counter[str] = Counter()
        self.nodes: dict[str, BrokerNode] = {}
        self._guarded = CallGuard()
        self._overlays = FleetOverlays(start.configuration)
        self._deaths: list[Death] = []
        self._inventory, self._start, self._ports = inventory, start, ports
        self._connectors_of, self._now_ms, self._sampling = connectors_of, now_ms, sampling
        self._proxies: dict[tuple[str, str], LinkProxy] = {}
        self._listening: dict[str, int] = {}

    @property
    def failure(self) -> Exception | None:
        """The exception that ended the fleet, None so far."""
        return self._guarded.failure

    async def begin(self) -> None:
        """Start a proxy for each link, then all nodes."""
        brokers = self._inventory.brokers
        for place, caller in enumerate(brokers):
            for called in brokers[place + 1 :]:
                delay_s = self._inventory.cost_of_link(caller, called) / SECOND_MS
                proxy = self._proxies[caller, called] = LinkProxy(self._target(called), delay_s)
                proxy.bytes_per_s = self._bytes_per_s
                await proxy.start()
        for broker in brokers:
            await self.begin_node(broker)

    def _target(self, broker: str) -> Callable[[], int]:
        return lambda: self._listening.get(broker, 1)  # Nobody listens on port 1: a call to the dead is refused.

    async def begin_node(self, broker: str, *, is_outside: bool = False) -> None:
        """Begin an incarnation of a node: its first inside the overlay, a later one outside."""
        boot_ms = int(self._now_ms())
        core = self._start.outsider(broker, boot_ms) if is_outside else self._start.core_of(broker, boot_ms)
        addresses = {
            peer: (LOOPBACK, self._proxies[broker, peer].port) if broker < peer else NEVER_CALLED
            for peer in self._inventory.brokers
        }

        def links_of(node: BrokerNode) -> Links:
            take, lose = self._guarded(node.take, broker), self._guarded(node.lose, broker)
            return Links(broker, str(core.boot_ms), addresses, take, lose, LIMITS)

        connector = self._connectors_of(broker)
        candidates = CandidateChoice(broker, self._inventory).next(addresses)
        node = BrokerNode(
            core, self._ports, connector, links_of, self._now_ms, candidates, self._sampling, self._heartbeats
        )
        node.clients.on_confirmed = partial(self._on_confirmed, broker)
        node.on_detour = partial(self._on_detour, broker)
        node.congestion.set_detours(self._takes_detours)
        self._listening[broker] = await node.links.bind(LOOPBACK, 0)
        await node.links.start()
        self._guarded(node.begin, broker)()
        await connector.start(self._guarded(node.note_interest, broker), self._guarded(node.note_message, broker))
        self.nodes[broker] = node
        log.info("node_started", broker=broker, epoch=core.epoch, is_outside=is_outside)

    async def kill(self, broker: str) -> Death:
        """Stop a node at once, losing what it held; return its death, with what it was between."""
        at_ms = self._now_ms()
        node = self.nodes.pop(broker)
        self._counts_before += node.counts
        del self._listening[broker]
        for (caller, called), proxy in self._proxies.items():
            if broker in (caller, called):
                proxy.cut()  # First, so that nothing waiting is still sent.
        await node.links.close()
        await node.connector.close()
        death = Death(broker, at_ms, self._overlays.separations_by(broker))
        self._deaths.append(death)
        return death

    def links(self) -> list[Link]:
        """Return the links of the current overlay, or of the initial one if there are none."""
        sorted_links = sorted((min(edge), max(edge)) for edge in self._graph().edges)
        return sorted_links or list(self._inventory.bootstrap.links)

    def disturb(self, ends: Sequence[str], *, factor: float | None) -> None:
        """Multiply the delay between two nodes by ``factor``, or cut the link with None."""
        caller, called = sorted(ends)
        proxy = self._proxies[caller, called]
        proxy.is_refusing = factor is None
        proxy.delay_s = self._inventory.cost_of_link(caller, called) / SECOND_MS * (factor or 1.0)
        if factor is None:
            proxy.cut()

    def is_repaired(self, dead: str) -> bool:
        """Return True if overlay links connect the other brokers, and none has the dead one as a neighbour."""
        inside = {broker: node for broker, node in self.nodes.items() if node.core.takes_clients and broker != dead}
        if not inside or any(dead in node.core.live_neighbours for node in inside.values()):
            return False
        return bool(nx.is_connected(self._graph().subgraph(inside)))

    def _graph(self) -> nx.Graph[str]:
        graph: nx.Graph[str] = nx.Graph()
        graph.add_nodes_from(self.nodes)
        for broker, node in self.nodes.items():
            graph.add_edges_from((broker, peer) for peer in node.core.live_neighbours if peer in self.nodes)
        return graph

    def obey(self, command: Command) -> None:
        """Note the overlay that a command leads to, and pass it to its node, unless that is dead."""
        if self._overlays.note_command(command):
            for death in self._deaths:
                if death.repaired_ms == math.inf:
                    death.separations += self._overlays.separations_by(death.broker)
        node = self.nodes.get(command.broker)
        if node is not None:
            self._guarded(node.obey, command.broker)(command)

    def set_detours(self, takes_detours: bool) -> None:
        """Let notifications go around congested links from now on, or not; also at nodes that start later."""
        self._takes_detours = takes_detours
        for node in self.nodes.values():
            node.congestion.set_detours(takes_detours)

    def measure_links(self) -> None:
        """Let all nodes learn which of their links are congested."""
        for broker, node in self.nodes.items():
            self._guarded(node.congestion.measure, broker)()

    def sample(self, sampling: Sampling) -> None:
        """Set the sampling of all nodes, including those that start later."""
        self._sampling = sampling
        for node in self.nodes.values():
            node.sampling = sampling

    def flush(self, *, is_last: bool = False) -> None:
        """Make all nodes send telemetry; the last batches include counts of spans that have not ended."""
        for broker, node in self.nodes.items():
            self._guarded(partial(node.flush, is_last=is_last), broker)()

    def congestion(self) -> Mapping[str, int]:
        """Return the status file's figures on congested links."""
        counts = sum((node.counts for node in self.nodes.values()), self._counts_before.copy())
        return {name: counts[name] for name in (DIVERTED, CONGESTED)}

    def status(self) -> Mapping[str, Any]:
        """Return the status file's figures on nodes."""
        epochs: dict[str, int] = {}
        for node in self.nodes.values():
            epochs[str(node.core.epoch)] = epochs.get(str(node.core.epoch), 0) + 1
        return {
            "sample_share": self._sampling.share,
            "brokers_by_epoch": dict(sorted(epochs.items())),
            "held_deliveries": sum(len(node.core.held_notifications) for node in self.nodes.values()),
            "links_cut": sum(node.links.counts["cut"] for node in self.nodes.values()),
            "dropped_link_full": sum(node.counts["link_full"] for node in self.nodes.values()),
        }

    async def close(self) -> None:
        """Stop all nodes and proxies."""
        for broker in list(self.nodes):
            node = self.nodes.pop(broker)
            self._counts_before += node.counts
            await node.links.close()
            await node.connector.close()
        for proxy in self._proxies.values():
            await proxy.close()
