"""The change of a tree's link costs if all or some subscribers of a broker move to another one.

Only the links on the path between both brokers change: any other link has both on the same side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree.link_sides import RootedTree, link_sides
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.arrays import Floats, Words


def group_move_changes_per_s(
    configuration: TreeConfiguration, inventory: Inventory, sets: DeliverySets, homes: Mapping[str, str]
) -> Floats:
    """Return the increase of link cost if all subscribers of one broker move to another, shape (from, to).

    Exact except for the processing cost of the brokers on the path. ``homes`` are those of publishers. Cost O(brokers^2
    * degree * columns). Raises ValueError if ``delivered`` of the sets is not known.
    """
    walk = _Walk(configuration, inventory, sets, homes)
    delivered = walk.delivered
    return np.stack([walk.changes_from(place, delivered[place]) for place in range(len(sets.brokers))])


def part_move_changes_per_s(
    configuration: TreeConfiguration,
    inventory: Inventory,
    sets: DeliverySets,
    homes: Mapping[str, str],
    parts: Sequence[tuple[str, Words, Words]],
) -> Floats:
    """Return the same for parts of brokers' subscribers, shape (parts, to).

    A part is its broker, what it receives, and what the broker's other subscribers receive, both over the columns of
    the sets.
    """
    walk, row = _Walk(configuration, inventory, sets, homes), {broker: at for at, broker in enumerate(sets.brokers)}
    changes = [walk.changes_from(row[broker], going, staying) for broker, going, staying in parts]
    return np.stack(changes) if changes else np.zeros((0, len(row)))


class _Walk:
    """Walks the tree from a broker, tracking what the near side of each link still wants without its subscribers."""

    def __init__(
        self, configuration: TreeConfiguration, inventory: Inventory, sets: DeliverySets, homes: Mapping[str, str]
    ) -> None:
        self._words, self.delivered = sets.words, sets.delivered
        self._costs = inventory.link_cost / max(sets.span_s, 1e-9)
        self._kept = _published_at_home(sets, homes)
        index = inventory.index
        self._peers = [[index[peer] for peer in configuration.neighbours[broker]] for broker in sets.brokers]
        tree = RootedTree.of(configuration)
        below, above = link_sides(tree, sets.words)
        self._side: dict[tuple[int, int], Words] = {}  # By directed link: all that its first end's side has.
        self._before: dict[tuple[int, int], int] = {}
        for child, parent in enumerate(tree.parents):
            if child != parent:
                self._side[child, parent], self._side[parent, child] = below[child], above[child]
                crossing = int(np.bitwise_count(below[child] & above[child]).sum())
                self._before[child, parent] = self._before[parent, child] = crossing

    def changes_from(self, start: int, going: Words, staying: Words | None = None) -> Floats:
        """Return the increase of link cost for each broker that subscribers of ``start`` may move to.

        ``going`` is what they receive, ``staying`` what the subscribers that stay receive.
        """
        changes = np.zeros(len(self._peers))
        if not going.any():
            return changes
        frontier = [(start, -1, self._kept[start] if staying is None else self._kept[start] | staying)]
        while frontier:
            here, came_from, left = frontier.pop()
            for peer in self._peers[here]:
                if peer == came_from:
                    continue
                side = left.copy()
                for other in self._peers[here]:
                    if other not in (peer, came_from):
                        side |= self._side[other, here]
                crossing = int(np.bitwise_count(side & (self._side[peer, here] | going)).sum())
                change = (crossing - self._before[here, peer]) * float(self._costs[here, peer])
                changes[peer] = changes[here] + change
                frontier.append((peer, here, side | self._words[peer]))
        return changes


def _published_at_home(sets: DeliverySets, homes: Mapping[str, str]) -> Words:
    """Return what each broker has without its subscribers, shape (brokers, columns): what was published there."""
    kept = sets.words & ~sets.delivered
    row = {broker: position for position, broker in enumerate(sets.brokers)}
    placed = [(place, row[homes[name]]) for place, (name, _) in enumerate(sets.columns) if homes.get(name) in row]
    if placed:
        columns, rows = np.array(placed, dtype=np.intp).T
        kept[rows, columns] |= sets.published[columns]
    return np.asarray(kept)
