"""What a link swap does to the one cost, without costing the whole tree again.

In: a configuration, an inventory and delivery sets. Out: the cost per second (``overlay.cost``) of the tree and of the
tree after any one swap. Choosing a swap does not belong here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from overlay.configuration import Configuration, Link, NotATreeError, link
from overlay.delivery_sets import DeliverySets
from overlay.inventory import Inventory

Bits = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, order=True)
class LinkSwap:
    """One link of a tree exchanged for another; the removed one must lie on the cycle that the added one closes."""

    removed: Link
    added: Link


class SwapCosts:
    """The cost of a tree and of its neighbours by one swap.

    A swap changes only what crosses the links of one cycle, so after a set-up of O(brokers * columns) each swap costs
    O(cycle * degree * columns).
    """

    def __init__(self, configuration: Configuration, inventory: Inventory, sets: DeliverySets) -> None:
        if sets.brokers != configuration.brokers or inventory.brokers != configuration.brokers:
            raise ValueError("configuration, inventory and delivery sets must be over the same brokers")
        self._inventory = inventory
        self._words = sets.words
        self._span_s = max(sets.span_s, 1e-9)
        self._links = frozenset(configuration.links)
        self._neighbours = [
            [inventory.index[peer] for peer in configuration.neighbours[broker]] for broker in configuration.brokers
        ]
        order = self._hang_tree()
        self._below, self._above = self._wanted_bits(order)
        self._crossing = self._below & self._above
        self._at_broker = self._words.copy()
        for child in order[1:]:
            self._at_broker[child] |= self._crossing[child]
            self._at_broker[self._parents[child]] |= self._crossing[child]
        self._link_costs = self._crossing_costs()
        self._broker_costs = np.bitwise_count(self._at_broker).sum(axis=1, dtype=np.int64) * inventory.processing_cost
        self._cost = float(self._link_costs.sum() + self._broker_costs.sum())

    @property
    def cost_per_s(self) -> float:
        """The cost of the tree as it is."""
        return self._cost / self._span_s

    def cycle(self, added: Link) -> tuple[Link, ...]:
        """Return the present links on the cycle that ``added`` would close, from its first end to its second."""
        names = self._inventory.brokers
        return tuple(link(names[a], names[b]) for a, b in pairwise(self._path(added)))

    def cost_after_per_s(self, swap: LinkSwap) -> float:
        """Return the cost after one swap.

        Raises NotATreeError when the added link is present or the removed one is not on its cycle.
        """
        if swap.added in self._links:
            raise NotATreeError(f"link {swap.added[0]}-{swap.added[1]} cannot be added: it is in the tree already")
        cycle = self.cycle(swap.added)
        if swap.removed not in cycle:
            raise NotATreeError(
                f"removing {swap.removed[0]}-{swap.removed[1]} for {swap.added[0]}-{swap.added[1]} leaves no tree: "
                "the removed link is not on the cycle of the added one"
            )
        path = self._path(swap.added)
        saved = self._cost_on_path(path)
        cut = cycle.index(swap.removed) + 1
        # Without the removed link the cycle is a line that starts behind the cut and runs over the added link.
        return (self._cost - saved + self._cost_of_line(path, cut)) / self._span_s

    def gain_per_s(self, swap: LinkSwap) -> float:
        """Return what one swap saves per second, negative when it costs more."""
        return self.cost_per_s - self.cost_after_per_s(swap)

    def _hang_tree(self) -> list[int]:
        """Hang the tree from broker 0 and return the brokers in depth-first order, parents before children."""
        count = len(self._neighbours)
        self._parents = [-1] * count
        self._depths = [0] * count
        order: list[int] = []
        stack = [0]
        while stack:
            broker = stack.pop()
            order.append(broker)
            for peer in self._neighbours[broker]:
                if peer != self._parents[broker]:
                    self._parents[peer] = broker
                    self._depths[peer] = self._depths[broker] + 1
                    stack.append(peer)
        return order

    def _wanted_bits(self, order: list[int]) -> tuple[Bits, Bits]:
        """Return what is wanted in the subtree of each broker, and what is wanted outside of it."""
        below = self._words.copy()
        sizes = [1] * len(order)
        for broker in reversed(order[1:]):
            below[self._parents[broker]] |= below[broker]
            sizes[self._parents[broker]] += sizes[broker]
        # A subtree is one run of the depth-first order, so what is outside of it is what is before and after the run.
        before = np.bitwise_or.accumulate(self._words[order], axis=0)
        after = np.bitwise_or.accumulate(self._words[order[::-1]], axis=0)[::-1]
        above = np.zeros_like(self._words)
        for start, broker in enumerate(order):
            end = start + sizes[broker]
            if start > 0:
                above[broker] |= before[start - 1]
            if end < len(order):
                above[broker] |= after[end]
        return below, above

    def _crossing_costs(self) -> NDArray[np.float64]:
        """Return, for each broker but the root, what the link to its parent costs over the whole span."""
        parents = np.array(self._parents)
        costs = self._inventory.link_cost[np.arange(len(parents)), np.maximum(parents, 0)]
        counts = np.bitwise_count(self._crossing).sum(axis=1, dtype=np.int64)
        return np.where(parents >= 0, counts * costs, 0.0)

    def _path(self, added: Link) -> list[int]:
        """Return the brokers from the first end of ``added`` to its second."""
        left, right = (self._inventory.index[end] for end in added)
        head, tail = [left], [right]
        while left != right:
            if self._depths[left] >= self._depths[right]:
                left = self._parents[left]
                head.append(left)
            else:
                right = self._parents[right]
                tail.append(right)
        return head + tail[-2::-1]

    def _cost_on_path(self, path: list[int]) -> float:
        links = sum(float(self._link_costs[a if self._parents[a] == b else b]) for a, b in pairwise(path))
        return links + float(self._broker_costs[path].sum())

    def _cost_of_line(self, path: list[int], cut: int) -> float:
        branches, resting = zip(*(self._branch(path, place) for place in range(len(path))), strict=True)
        line = path[cut:] + path[:cut]
        wanted = np.array(branches[cut:] + branches[:cut])
        at_broker = np.array(resting[cut:] + resting[:cut])
        ahead = np.bitwise_or.accumulate(wanted, axis=0)
        behind = np.bitwise_or.accumulate(wanted[::-1], axis=0)[::-1]
        crossing = ahead[:-1] & behind[1:]
        at_broker[:-1] |= crossing
        at_broker[1:] |= crossing
        link_costs = self._inventory.link_cost[line[:-1], line[1:]]
        return float(
            np.bitwise_count(crossing).sum(axis=1, dtype=np.int64) @ link_costs
            + np.bitwise_count(at_broker).sum(axis=1, dtype=np.int64) @ self._inventory.processing_cost[line]
        )

    def _branch(self, path: list[int], place: int) -> tuple[Bits, Bits]:
        """Return what is wanted at a broker of the cycle and behind it, and what is there without the cycle's links."""
        broker = path[place]
        on_cycle = {path[place - 1] if place else -1, path[place + 1] if place + 1 < len(path) else -1}
        wanted = self._words[broker].copy()
        resting = wanted.copy()
        for peer in self._neighbours[broker]:
            if peer in on_cycle:
                continue
            child = broker if peer == self._parents[broker] else peer
            wanted |= self._above[broker] if child == broker else self._below[peer]
            resting |= self._crossing[child]
        return wanted, resting
