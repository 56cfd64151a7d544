"""The cost of a tree with its publishers at their homes, maintained through swaps of links and moves of publishers."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import numpy as np

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.sets.publisher_sets import PublisherSets
from regraft.overlay.tree.link_sides import RootedTree, link_sides
from regraft.overlay.tree.publisher_costs import costs_at_homes
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.overlay.tree.tree_costs import LinkSwap, TreeCosts
from regraft.schemas.arrays import Floats, Places


class OverlayCosts:
    """A tree and the homes of publishers (positions of brokers, by publisher), with their cost.

    ``tree`` prices the tree; callers that swap links on it directly must call :meth:`links_changed`. Memory and set-up
    are those of :class:`TreeCosts`; a move costs O(brokers * words of the publisher).
    """

    def __init__(self, configuration: TreeConfiguration, inventory: Inventory, sets: PublisherSets) -> None:
        self.inventory = inventory
        self.sets = sets
        home_of = configuration.home_of
        self.homes: Places = np.array([inventory.index[home_of[name]] for name in sets.publishers], dtype=np.intp)
        self.tree = TreeCosts(configuration, inventory, sets.at_homes(self.homes))
        self._at_homes: HomeCosts | None = None

    def copy(self) -> OverlayCosts:
        """Return an independent copy, to try changes on."""
        copied = copy.copy(self)
        copied.homes, copied.tree = self.homes.copy(), self.tree.copy()
        return copied

    @property
    def cost_per_s(self) -> float:
        """The cost of the tree with all publishers at their homes."""
        return self.tree.cost_per_s

    def apply(self, swap: LinkSwap) -> list[int]:
        """Make a swap; result and errors are those of :meth:`TreeCosts.apply`."""
        self._at_homes = None
        return self.tree.apply(swap)

    def links_changed(self) -> None:
        """Invalidate cached costs after swaps were made on ``tree`` directly."""
        self._at_homes = None

    def move(self, homes: Mapping[int, int]) -> None:
        """Move publishers to brokers, both by position."""
        before, self.homes = self.homes, self.homes.copy()
        self.homes[list(homes)] = list(homes.values())
        sets = self.sets
        bits = np.flatnonzero((before != self.homes)[sets.owners])
        owners, columns, masks = sets.owners[bits], sets.columns[bits], sets.masks[bits]
        changed, place = np.unique(columns, return_inverse=True)
        words = self.tree.sets.words[:, changed]
        np.bitwise_and.at(words, (before[owners], place), ~masks | sets.words[before[owners], columns])
        np.bitwise_or.at(words, (self.homes[owners], place), masks)
        if len(bits):
            self.tree.set_wanted(changed, words)

    @property
    def at_homes(self) -> HomeCosts:
        """Cost and load of every publisher at every home on the present tree; cached until the tree changes."""
        if self._at_homes is None:
            self._at_homes = HomeCosts(self.tree.rooted, self.inventory, self.sets)
        return self._at_homes


class HomeCosts:
    """What each publisher costs at each home on one tree; publishers without a home are left out.

    ``costs_per_s`` (publishers, brokers); ``published_per_s`` (publishers,), ``below_per_s`` and ``above_per_s``
    (publishers, brokers) as in :class:`overlay.publisher_costs.PublisherCosts`.
    """

    def __init__(self, tree: RootedTree, inventory: Inventory, sets: PublisherSets) -> None:
        self.tree = tree
        below, above = link_sides(tree, sets.words)
        self.published_per_s: Floats = sets.published / sets.span_s
        self.below_per_s: Floats = sets.counts(below) / sets.span_s
        self.above_per_s: Floats = sets.counts(above) / sets.span_s
        link_cost = inventory.link_cost[np.arange(len(tree.parents)), tree.parents]
        self.costs_per_s = costs_at_homes(
            tree, inventory.processing_cost, link_cost, self.published_per_s, self.below_per_s, self.above_per_s
        )
