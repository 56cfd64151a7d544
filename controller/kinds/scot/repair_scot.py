"""Make a structured cyclic overlay over other brokers than the present one, with stand-ins for those gone.

In: the present overlay and the brokers that join, leave or are lost. Out: the overlay over the later brokers, each at
its former slot.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import networkx as nx

from regraft.controller.kinds.repair import Repair, RepairTask, change_text, moved_text, named_text
from regraft.controller.kinds.scot.rehome_scot import ScotLoads, homes_within_caps
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.schemas.plan import ClientMove, HomeMove

Slot = tuple[int, int]


def repaired_scot(present: ScotConfiguration, task: RepairTask, degree_max: int) -> Repair:
    """Return the overlay over the brokers after the change; ``present`` names the homes of publishers.

    A broker that stays keeps its slots, one that comes back gets its own again. The slot of a broker that is gone
    goes to a neighbour in its cluster, which stands in for it. A joining broker takes over a slot from a stand-in,
    where the links of its region cost least; without a stand-in it starts a new region next to the nearest broker, and
    that region's brokers stand in there for the other clusters. Each choice prefers brokers within ``degree_max``
    links, else the one least above. Clients of a lost broker go to the one that has its slot; publishers that would
    load it above its cap go nearby. The traffic is not costed: both costs are 0. A cluster with no broker left, and
    none joining, is given up: the others are renumbered, and clients go to the nearest broker of the region. If clients
    stay, none moves: those of a lost broker are lost with it. Raises ValueError if no broker is left.
    """
    brokers = task.brokers_after(present)
    draft = _RepairDraft.of(present, task.fleet, degree_max)
    joining = [broker for broker in brokers if broker not in present.slots]
    vacated = draft.vacate(frozenset(present.brokers) - set(brokers), joining)
    for broker in joining:
        draft.add(broker)
    target = draft.overlay(present.epoch + 1)
    successors = {broker: draft.successor_of(broker, slots[0]) for broker, slots in vacated.items()}
    # A publisher is announced at its next home by an overlay that has both.
    shared = [broker for broker in target.brokers if broker in present.slots] or list(target.brokers)
    open_to = [broker for broker in shared if broker not in task.avoided] or shared
    emptied = frozenset() if task.fleet.clients_stay else task.emptied(present)
    homes = {name: at for name, at in present.homes if at in target.neighbours}
    goes_to = {broker: _open_successor(successors[broker], open_to, task.fleet) for broker in emptied}
    moves = tuple(ClientMove(name, home, goes_to[home]) for name, home in sorted(present.homes) if home in goes_to)[
        : task.moves_max
    ]
    placed = target.with_homes(homes | {move.client: move.home_to for move in moves})
    moves, loaded = homes_within_caps(ScotLoads(placed, task), moves, open_to)
    placed = target.with_homes(homes | {move.client: move.home_to for move in moves})
    subscribers = tuple(HomeMove(broker, goes_to[broker]) for broker in sorted(task.change.left & goes_to.keys()))
    exceeded = (*draft.exceeded(), *loaded)
    reason = _reason(task, target, successors, joining, moves)
    if exceeded:
        reason = f"{reason}; above their caps: {named_text(exceeded)}"
    return Repair(placed, task.change, moves, 0.0, 0.0, reason, subscribers, exceeded)


def _open_successor(successor: str, open_to: Collection[str], fleet: Inventory) -> str:
    if successor in open_to:
        return successor
    return min(open_to, key=lambda broker: (fleet.cost_of_link(successor, broker), broker))


@dataclass
class _RepairDraft:
    """The slots of the overlay after the change, step by step; ``links_max``: how many links each broker may have."""

    holders: dict[Slot, str]
    tree: nx.Graph[int]
    clusters: list[int]
    fleet: Inventory
    degree_max: int
    links_max: dict[str, int]

    @classmethod
    def of(cls, present: ScotConfiguration, fleet: Inventory, degree_max: int) -> _RepairDraft:
        tree: nx.Graph[int] = nx.Graph(present.region_links)
        holders = {slot: broker for broker, slots in present.slots.items() for slot in slots}
        links_max = {broker: max(degree_max, len(peers)) for broker, peers in present.neighbours.items()}
        return cls(holders, tree, list(range(present.cluster_count)), fleet, degree_max, links_max)

    def links_above(self, broker: str, *more: Slot, count: int = 0) -> int:
        """Return by how many links a broker exceeds its cap with ``more`` slots and ``count`` more links."""
        held = {slot for slot, holder in self.holders.items() if holder == broker}.union(more)
        peers: set[object] = set()
        for region, cluster in held:
            around = [(region, other) for other in self.clusters] + [(other, cluster) for other in self.tree[region]]
            peers.update(self.holders.get(slot, slot) for slot in set(around) - held)
        return max(len(peers) + count - self.links_max.get(broker, self.degree_max), 0)

    def exceeded(self) -> list[str]:
        """Describe the brokers with more links than allowed, and than they had."""
        above = {broker: self.links_above(broker) for broker in sorted(set(self.holders.values()))}
        most = {broker: self.links_max.get(broker, self.degree_max) for broker in above}
        return [
            f"{one} has {most[one] + more} links, but its limit is {self.degree_max}"
            for one, more in above.items()
            if more
        ]

    def vacate(self, gone: Collection[str], joining: list[str]) -> Mapping[str, list[Slot]]:
        """Give the slots of gone brokers to neighbours, and a slot of each empty cluster to a joining broker, if any.

        A cluster that stays empty is given up. Raises ValueError if no broker is left.
        """
        vacated: dict[str, list[Slot]] = {broker: [] for broker in gone}
        for slot, broker in sorted(self.holders.items()):
            if broker in vacated:
                vacated[broker].append(slot)
        for slots in vacated.values():
            for slot in slots:
                del self.holders[slot]
        for cluster in list(self.clusters):
            self._fill(cluster, joining)
        if not self.clusters:
            raise ValueError("no broker is left: restart some brokers, or let others join")
        return vacated

    def successor_of(self, broker: str, slot: Slot) -> str:
        """Return the successor of a gone broker: for a cluster given up, the nearest broker in its region."""
        if slot in self.holders:
            return self.holders[slot]
        left = sorted({self.holders[slot[0], cluster] for cluster in self.clusters})
        return min(left, key=lambda peer: self._cost(broker, peer))

    def _fill(self, cluster: int, joining: list[str]) -> None:
        vacant = [region for region in sorted(self.tree) if (region, cluster) not in self.holders]
        if len(vacant) == len(self.tree):
            if not joining:
                self.clusters.remove(cluster)
                return
            self.holders[vacant.pop(0), cluster] = joining.pop(0)
        while vacant:
            near = [
                (self.links_above(holder, (region, cluster)), len(self._slots(holder)), holder, region)
                for region in vacant
                for peer in sorted(self.tree[region])
                if (holder := self.holders.get((peer, cluster)))
            ]
            *_, holder, region = min(near)
            self.holders[region, cluster] = holder
            vacant.remove(region)

    def _slots(self, broker: str) -> list[int]:
        return [region for (region, _), holder in self.holders.items() if holder == broker]

    def add(self, broker: str) -> None:
        """Give a slot to a joining broker."""
        if broker in self.holders.values():
            return
        free = [slot for slot, holder in sorted(self.holders.items()) if self._may_give(holder, slot[0])]
        if free:
            above = {slot: self.links_above(broker, slot) for slot in free}
            self.holders[min(free, key=lambda slot: (above[slot], self._cost_at(broker, slot), slot))] = broker
            return
        region, cluster = min(
            self.holders,
            key=lambda slot: (self._above_next_to(slot[0]), self._cost(broker, self.holders[slot]), slot),
        )
        number = max(self.tree) + 1
        self.tree.add_edge(region, number)
        for other in self.clusters:
            self.holders[number, other] = broker if other == cluster else self.holders[region, other]

    def _above_next_to(self, region: int) -> int:
        """Return by how many links brokers would exceed their caps if a new region began next to theirs."""
        return sum(self.links_above(self.holders[region, cluster], count=1) for cluster in self.clusters)

    def _may_give(self, holder: str, region: int) -> bool:
        """Return True if a stand-in can spare a slot: its others stay adjacent."""
        others = [one for one in self._slots(holder) if one != region]
        return bool(others) and nx.is_connected(self.tree.subgraph(others))

    def _cost_at(self, broker: str, slot: Slot) -> float:
        region, cluster = slot
        peers = [self.holders[region, other] for other in self.clusters if other != cluster]
        return sum(self._cost(broker, peer) for peer in peers)

    def _cost(self, broker: str, peer: str) -> float:
        return self.fleet.cost_of_link(broker, peer)

    def overlay(self, epoch: int) -> ScotConfiguration:
        """Return the overlay that the slots form."""
        regions = tuple(
            tuple(self.holders[region, cluster] for cluster in self.clusters) for region in sorted(self.tree)
        )
        links = tuple(sorted((min(pair), max(pair)) for pair in self.tree.edges))
        return ScotConfiguration(epoch, regions, links)


def _reason(
    task: RepairTask,
    target: ScotConfiguration,
    successors: Mapping[str, str],
    joining: list[str],
    moves: tuple[ClientMove, ...],
) -> str:
    reasons = [change_text(task.change)]
    if successors:
        reasons.append(named_text([f"{one} stands in for {broker}" for broker, one in sorted(successors.items())]))
    new = [broker for broker in target.brokers if broker in task.change.joined - task.change.lost]
    if new:
        reasons.append(named_text([f"{one} takes a slot in region {target.slot_of[one][0]}" for one in new]))
    if moves:
        reasons.append(moved_text(moves, ScotConfiguration.CLIENTS))
    return "; ".join(reasons)
