"""Make a tree over other brokers than the present one: repair what deaths cut, let brokers join and leave.

In: the present tree and the brokers that join, leave or are lost. Out: the tree over the later brokers, with every link
that can stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from regraft.controller.kinds.repair import Repair, RepairTask, change_text, moved_text, named_text
from regraft.controller.kinds.tree.rehome_publishers import at_known_homes, rehomed_publishers, rehomed_subscribers
from regraft.overlay.overlay_configuration import Link, link
from regraft.overlay.sets.weighted_sets import WeightedSets
from regraft.overlay.tree.exchange_joints import exchange_joints
from regraft.overlay.tree.join_fragments import JoinedFragments, join_fragments
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.overlay.tree.tree_costs import TreeCosts
from regraft.schemas.plan import ClientMove
from regraft.schemas.texts import figure


def repaired_tree(present: TreeConfiguration, task: RepairTask, degree_max: int) -> Repair:
    """Return the tree over the brokers after the change; ``present`` names the homes of publishers.

    All links between brokers that stay are kept. The fragments, and each broker that comes back, are joined by the
    cheapest links within the cap (:func:`overlay.join_fragments.join_fragments`); if the traffic is known, each of
    these links is then moved to where it costs least (:func:`overlay.exchange_joints.exchange_joints`). New brokers are
    added as leaves, the cheapest link first. Publishers whose broker is gone go to their cheapest homes within the caps
    of load, the subscribers of a leaving broker to the nearest one. If no tree keeps the cap, as few links as possible
    exceed it, and the reason says so.
    """
    sets = _traffic(present, task) if task.windows else None
    draft = _RepairDraft(present, task, degree_max, sets)
    tree = TreeConfiguration.of(present.epoch + 1, draft.brokers, draft.kept | set(draft.joints) | set(draft.leaves))
    stay = {name: home for name, home in present.homes if home in tree.neighbours}
    tree = tree.with_homes(stay)
    moves, added_per_s = rehomed_publishers(tree, present.home_of, task.emptied(present), task)
    target = tree.with_homes(stay | {move.client: move.home_to for move in moves})
    before, after = (_cost_per_s(overlay, task, sets) for overlay in (present, target))
    subscribers = rehomed_subscribers(target, task)
    reason, above = draft.reason(moves), tuple(draft.exceeded)
    return Repair(target, task.change, moves, before, after + added_per_s, reason, subscribers, above)


def _traffic(overlay: TreeConfiguration, task: RepairTask) -> WeightedSets:
    """Return the traffic of the windows with publishers at the homes of the overlay.

    Sets that the windows have merged already are reused if they are of these brokers and homes.
    """
    homes = overlay.home_of
    brokers = set(overlay.brokers).intersection(*(window.sets.brokers for window in task.windows))
    if all(window.sets.brokers == task.windows[0].sets.brokers for window in task.windows) and brokers.issuperset(
        homes.values()
    ):
        return WeightedSets.over_all([window.sets_at(homes) for window in task.windows])
    whole = tuple(sorted(set(overlay.brokers).union(*(window.sets.brokers for window in task.windows))))
    return WeightedSets.over_all([at_known_homes(window.sets, homes, whole) for window in task.windows])


def _cost_per_s(overlay: TreeConfiguration, task: RepairTask, sets: WeightedSets | None) -> float:
    """Return the cost of the traffic on an overlay, 0 if the traffic or the overlay's link costs are unknown."""
    if sets is None or any(broker not in task.fleet.index for broker in overlay.brokers):
        return 0.0
    return TreeCosts(overlay, task.fleet.restricted_to(overlay.brokers), sets.over(overlay.brokers)).cost_per_s


@dataclass(frozen=True, eq=False)
class _RepairDraft:
    """The links of the tree after the change, step by step."""

    present: TreeConfiguration
    task: RepairTask
    degree_max: int
    sets: WeightedSets | None

    @cached_property
    def brokers(self) -> tuple[str, ...]:
        return self.task.brokers_after(self.present)

    @cached_property
    def kept(self) -> set[Link]:
        """The links between brokers that stay."""
        gone = self.task.change.left | self.task.change.lost
        return {pair for pair in self.present.links if gone.isdisjoint(pair)}

    @cached_property
    def core(self) -> tuple[str, ...]:
        """The brokers of the fragments: those that stay or come back, or all brokers if there are none."""
        linked = tuple(broker for broker in self.brokers if broker in self.present.neighbours)
        return linked or self.brokers

    @cached_property
    def link_cost(self) -> NDArray[np.float64]:
        """The cost of a link between any two of the brokers."""
        places = [self.task.fleet.index[broker] for broker in self.brokers]
        return self.task.fleet.link_cost[np.ix_(places, places)]

    @cached_property
    def room(self) -> dict[str, int]:
        """How many links a broker may have in addition to the kept ones; 0 in maintenance."""
        degree = dict.fromkeys(self.brokers, 0)
        for pair in self.kept:
            for end in pair:
                degree[end] += 1
        cap = {broker: 0 if broker in self.task.avoided else self.degree_max for broker in self.brokers}
        return {broker: max(cap[broker] - degree[broker], 0) for broker in self.brokers}

    @cached_property
    def joined(self) -> JoinedFragments:
        graph = nx.Graph()
        graph.add_nodes_from(self.core)
        graph.add_edges_from(sorted(self.kept))
        parts = sorted(sorted(part) for part in nx.connected_components(graph))
        fragment_of = {broker: number for number, part in enumerate(parts) for broker in part}
        places = [self.brokers.index(broker) for broker in self.core]
        return join_fragments(
            self.link_cost[np.ix_(places, places)],
            np.array([fragment_of[broker] for broker in self.core]),
            np.array([self.room[broker] for broker in self.core]),
        )

    @cached_property
    def joints(self) -> tuple[Link, ...]:
        """The links that join the fragments: the cheapest, moved to where they cost least if the traffic is known."""
        cheapest = tuple(sorted(link(self.core[a], self.core[b]) for a, b in self.joined.links))
        if not cheapest or self.sets is None:
            return cheapest
        tree = TreeConfiguration.of(0, self.core, self.kept | set(cheapest))
        room = np.array([self.room[broker] for broker in self.core])
        inventory = self.task.fleet.restricted_to(tree.brokers)
        return exchange_joints(tree, inventory, self.sets.over(self.core), cheapest, room)

    @cached_property
    def leaves(self) -> tuple[Link, ...]:
        """A link for each new broker to one already in the tree: the cheapest to a broker with room, else to any."""
        room = dict(self.room)
        for pair in self.joints:
            for end in pair:
                room[end] -= 1
        place = {broker: position for position, broker in enumerate(self.brokers)}
        inside, outside = list(self.core), [broker for broker in self.brokers if broker not in self.core]
        links = []
        while outside:
            open_to = [broker for broker in inside if room[broker] > 0] or inside
            costs = self.link_cost[np.ix_([place[one] for one in outside], [place[one] for one in open_to])]
            row, column = np.unravel_index(int(costs.argmin()), costs.shape)
            new, peer = outside.pop(int(row)), open_to[int(column)]
            room[new] -= 1
            room[peer] -= 1
            inside.append(new)
            links.append(link(new, peer))
        return tuple(links)

    @cached_property
    def exceeded(self) -> list[str]:
        """Describe the brokers with more links than allowed."""
        degrees = TreeConfiguration.of(0, self.brokers, self.kept | set(self.joints) | set(self.leaves)).neighbours
        return [
            f"{broker} has {len(peers)} links, but its limit is {self.degree_max}"
            for broker, peers in degrees.items()
            if len(peers) > self.degree_max
        ]

    def reason(self, moves: Sequence[ClientMove]) -> str:
        """Describe for people what is done and how good it is."""
        reasons = [change_text(self.task.change)]
        if self.joints:
            reasons.append(f"{len(self.joints) + 1} fragments are joined by {_links_text(self.joints)}")
        if self.leaves:
            reasons.append(f"new brokers are linked by {_links_text(self.leaves)}")
        if self.sets is None and self.joined.cost_min < self.joined.cost * (1 - 1e-9):
            reasons.append(
                f"links cost {figure(self.joined.cost)}, no choice costs less than {figure(self.joined.cost_min)}"
            )
        if self.exceeded:
            reasons.append(f"above their caps, as few as possible: {named_text(self.exceeded)}")
        if moves:
            reasons.append(moved_text(moves, TreeConfiguration.CLIENTS))
        return "; ".join(reasons)


def _links_text(links: Sequence[Link]) -> str:
    return named_text([f"{a}-{b}" for a, b in links])
