"""The cost of a tree, maintained through swaps of links made one by one.

In: a configuration, an inventory and weighted delivery sets. Out: costs per second (``overlay.tree.overlay_cost``) and
loads. Pricing all swaps at once belongs to :mod:`overlay.tree.walk_cuts`; choosing swaps belongs to neither.

The effect of a swap: removing link a-b cuts the tree into the side A of a and the side B of b. The notifications C that
both sides want crossed a-b and will cross the new link i-j. Move the place in A where B is attached from v over one
link to the next broker k, away from a. Of C, alpha are wanted in A but not behind that link, and must now cross it;
beta are wanted in A only behind it, and no longer need to cross it. Nothing else in A changes, so A's cost changes by
(alpha - beta) * c_vk + alpha * p_k - beta * p_v, and B's likewise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import Link, link
from regraft.overlay.sets.span_sets import SpanSets
from regraft.overlay.sets.weighted_sets import WeightedSets
from regraft.overlay.tree.compiled_costs import kernels_for
from regraft.overlay.tree.link_sides import RootedTree, link_sides, wanted_repeatedly
from regraft.overlay.tree.tree_configuration import NotATreeError, TreeConfiguration
from regraft.schemas.arrays import Floats, Places, Words

WORDS_AT_ONCE = 1 << 16  # Words processed at a time, so that they stay in the processor's cache.


@dataclass(frozen=True, slots=True, order=True)
class LinkSwap:
    """The exchange of one link of a tree for another, where ``removed`` is on the cycle that ``added`` closes."""

    removed: Link
    added: Link


@dataclass(frozen=True, slots=True, eq=False)
class _PricedSwap:
    """A swap on the present tree: the walks from the cut to the added link, their alpha and beta, and the gains."""

    swap: LinkSwap
    near: list[int]
    far: list[int]
    near_steps: tuple[Floats, Floats]
    far_steps: tuple[Floats, Floats]
    gains: Floats


class TreeCosts:
    """The cost of a tree, now and after any swap; :meth:`apply` makes a swap.

    Set-up costs O(brokers * words), a swap O(cycle * degree * words), because nothing off the cycle changes. A directed
    link is a number: 2l for link l of the tree from its first end to its second, 2l + 1 for the way back.
    """

    def __init__(self, configuration: TreeConfiguration, inventory: Inventory, sets: WeightedSets | SpanSets) -> None:
        if sets.brokers != configuration.brokers or inventory.brokers != configuration.brokers:
            raise ValueError("configuration, inventory and delivery sets must cover the same brokers")
        self.inventory = inventory
        self.sets, self.kernels = sets, kernels_for(inventory, sets)  # None: the code below, with the same results.
        self._row = inventory.index
        ends = [(self._row[a], self._row[b]) for a, b in configuration.links]
        self.ends: Places = np.array(ends, dtype=np.intp).reshape(-1, 2)
        self._peers: list[dict[int, int]] = [{} for _ in inventory.brokers]  # Neighbour -> directed link to it.
        for number, (a, b) in enumerate(ends):
            self._peers[a][b] = 2 * number
            self._peers[b][a] = 2 * number + 1
        self._rooted: RootedTree | None = None
        self._above: list[int] = self.rooted.parents.tolist()  # Next broker towards a root, which is its own.
        shape = (2 * len(ends), sets.words.shape[1])
        self.side = np.zeros(shape, dtype=np.uint64)  # What is wanted at or behind the far end of a directed link.
        self.thrice = np.empty_like(sets.words)  # Wanted in at least three directions of a broker, itself being one.
        self._loads = np.zeros((len(inventory.brokers), len(sets.spans_s)))
        self._crossings = np.zeros((len(ends), len(sets.spans_s)))
        self._costs: Floats = np.zeros(len(sets.spans_s))
        self._last: _PricedSwap | None = None
        if self.kernels is None:
            self._count_words(np.arange(shape[1]), 1)
        else:
            self.kernels.fill_tree(self.ends, self.rooted.order, self.rooted.parents, *self._arrays())
        self._add_costs()

    def copy(self) -> TreeCosts:
        """Return an independent copy, to try swaps on."""
        copied = object.__new__(TreeCosts)
        copied.inventory, copied._row, copied.sets, copied.kernels = self.inventory, self._row, self.sets, self.kernels
        copied.ends, copied.side, copied.thrice = self.ends.copy(), self.side.copy(), self.thrice.copy()
        copied._peers = [dict(peers) for peers in self._peers]
        copied._above, copied._last, copied._rooted = self._above.copy(), self._last, self._rooted
        copied._loads, copied._crossings, copied._costs = self._loads.copy(), self._crossings.copy(), self._costs.copy()
        return copied

    @property
    def weighted(self) -> WeightedSets:
        """The sets if words have weights, which all walks need that price many swaps at once."""
        assert isinstance(self.sets, WeightedSets), "sets that are counted by bit price single swaps only"
        return self.sets

    @property
    def cost_per_s(self) -> float:
        """The cost of the present tree, over all spans."""
        return float(self._costs.sum() / self.sets.spans_s.sum())

    @property
    def costs_per_s(self) -> Floats:
        """The cost of the present tree in each span, shape (spans,)."""
        return self._costs / self.sets.spans_s

    @property
    def costs_by_span(self) -> Floats:
        """The total cost of the present tree in each span, not per second, shape (spans,); never changed in place."""
        return self._costs

    @property
    def loads_per_s(self) -> Floats:
        """The notifications that pass each broker, over all spans, shape (brokers,)."""
        return np.asarray(self._loads.sum(axis=1) / self.sets.spans_s.sum())

    @property
    def degrees(self) -> NDArray[np.int64]:
        """The number of links of each broker, shape (brokers,)."""
        return np.array([len(peers) for peers in self._peers], dtype=np.int64)

    def degree_after(self, swap: LinkSwap) -> int:
        """Return the larger number of links that an end of the added link has after the swap."""
        return max(len(self._peers[self._row[end]]) + (end not in swap.removed) for end in swap.added)

    @property
    def links(self) -> tuple[Link, ...]:
        """The links of the tree, sorted."""
        names = self.inventory.brokers
        return tuple(sorted(link(names[a], names[b]) for a, b in self.ends))

    def cycle(self, added: Link) -> tuple[Link, ...]:
        """Return the links on the cycle that ``added`` would close, from its first end to its second."""
        names = self.inventory.brokers
        path = self._path(self._row[added[0]], self._row[added[1]])
        return tuple(link(names[a], names[b]) for a, b in pairwise(path))

    def cost_after_per_s(self, swap: LinkSwap) -> float:
        """Return the cost after one swap. Raises NotATreeError like :meth:`gains_per_s`."""
        return self.cost_per_s - self.gain_per_s(swap)

    def gain_per_s(self, swap: LinkSwap) -> float:
        """Return what one swap saves, negative if it costs more. Raises NotATreeError like :meth:`gains_per_s`."""
        return float(self._priced(swap).gains.sum() / self.sets.spans_s.sum())

    def gains_per_s(self, swap: LinkSwap) -> Floats:
        """Return what one swap saves in each span, shape (spans,).

        Raises NotATreeError if the added link is present or the removed one is not on its cycle.
        """
        return self._priced(swap).gains / self.sets.spans_s

    def apply(self, swap: LinkSwap) -> list[int]:
        """Make the swap and return the numbers of the links on the cycle, except the removed one.

        The added link takes over the number of the removed one. Raises NotATreeError like :meth:`gains_per_s`, and then
        changes nothing.
        """
        priced = self._priced(swap)
        near, far, self._last, self._rooted = priced.near, priced.far, None, None
        self._costs = self._costs - priced.gains
        line = near + far[::-1]  # a ... i, then over the new link j ... b.
        freed = self._peers[near[0]].pop(far[0])
        del self._peers[far[0]][near[0]]
        number = freed // 2
        self._hang_on(near, far)
        first, second = sorted((near[-1], far[-1]))
        self.ends[number] = first, second
        self._peers[first][second], self._peers[second][first] = 2 * number, 2 * number + 1
        onward = np.array([self._peers[a][b] for a, b in pairwise(line)], dtype=np.intp)
        if self.kernels is not None:
            self.kernels.update_line(self.ends, np.array(line, dtype=np.intp), onward, *self._arrays())
        else:
            self._set_sides_of_line(line, onward)
            for broker in line:
                self._count_directions(broker)
        touched: list[int] = (onward // 2).tolist()
        return touched

    def undo(self, swap: LinkSwap, costs_by_span: Floats) -> None:
        """Undo a swap, the last one; ``costs_by_span`` are the costs before it."""
        self.apply(LinkSwap(swap.added, swap.removed))
        self._costs = costs_by_span

    def loads_after_per_s(self, swap: LinkSwap) -> dict[int, float]:
        """Return the load after one swap of every broker on its cycle, by position, over all spans."""
        priced = self._priced(swap)
        cycle, length_s = priced.near + priced.far, self.sets.spans_s.sum()
        loads = dict(zip(cycle, self._loads[cycle].sum(axis=1).tolist(), strict=True))
        for walk, steps in ((priced.near, priced.near_steps), (priced.far, priced.far_steps)):
            alphas, betas = (counts.sum(axis=1).tolist() for counts in steps)
            for (tail, head), alpha, beta in zip(pairwise(walk), alphas, betas, strict=True):
                loads[tail] -= beta
                loads[head] += alpha
        return {broker: float(load / length_s) for broker, load in loads.items()}

    @property
    def crossings_by_span(self) -> Floats:
        """The number of notifications that cross each link in each span, shape (links, spans); changed in place."""
        return self._crossings

    def crossings(self) -> Floats:
        """Return the number of notifications that cross each link, over all spans, shape (links,)."""
        return np.asarray(self._crossings.sum(axis=1))

    def links_by_broker(self) -> tuple[Places, Places]:
        """Return where groups start (and the end), and all directed links grouped by the broker they leave."""
        starts = np.concatenate([[0], np.cumsum(self.degrees)]).astype(np.intp)
        links_of = [number for peers in self._peers for _, number in sorted(peers.items())]
        return starts, np.array(links_of, dtype=np.intp)

    def directed_ends(self) -> tuple[Places, Places]:
        """Return the broker that each directed link leaves, and the broker it leads to."""
        return self.ends.flatten(), self.ends[:, ::-1].flatten()

    def link_at(self, number: int) -> Link:
        """Return the link with this number."""
        return link(*(self.inventory.brokers[end] for end in self.ends[number]))

    def number_of(self, pair: Link) -> int | None:
        """Return the number of a link, None if it is not in the tree."""
        directed = self._peers[self._row[pair[0]]].get(self._row[pair[1]])
        return None if directed is None else directed // 2

    def _count_words(self, columns: Places, sign: int) -> None:
        """Add some words of the sets to all counts (sign 1), or subtract them (-1)."""
        tree = self.rooted
        children = np.flatnonzero(tree.parents != np.arange(len(tree.parents)))
        down = np.array([self._peers[tree.parents[child]][child] for child in children.tolist()], dtype=np.intp)
        at_once = max(WORDS_AT_ONCE // len(tree.parents), 1)
        for at in range(0, len(columns), at_once):
            chunk = columns[at : at + at_once]
            words = self.sets.words[:, chunk]
            below, above = link_sides(tree, words)
            twice, thrice = wanted_repeatedly(tree, words, below, above, children)
            self._loads += sign * self.sets.counts_in(words | twice, chunk)
            self._crossings[down // 2] += sign * self.sets.counts_in(below[children] & above[children], chunk)
            if sign > 0:
                self.side[np.ix_(down, chunk)] = below[children]
                self.side[np.ix_(down ^ 1, chunk)] = above[children]
                self.thrice[:, chunk] = thrice

    def _arrays(self) -> tuple[Any, ...]:
        """Return what is wanted, how it is counted and all counts, as compiled loops take them."""
        assert self.sets.whole is not None, "kernels are for sets that they count exactly"
        return self.sets.words, *self.sets.whole, self.side, self.thrice, self._loads, self._crossings

    def _add_costs(self) -> None:
        costs = self.inventory.link_cost[self.ends[:, 0], self.ends[:, 1]]
        self._costs = costs @ self._crossings + self.inventory.processing_cost @ self._loads

    @property
    def rooted(self) -> RootedTree:
        """The present tree, rooted at its first broker. O(brokers), kept until a swap is made."""
        if self._rooted is None:
            self._rooted = RootedTree.of_peers([sorted(peers) for peers in self._peers])
        return self._rooted

    def ends_after(self, swap: LinkSwap) -> Places:
        """Return ``ends`` after a swap that leaves a tree."""
        ends, (a, b) = self.ends.copy(), swap.removed
        ends[self._peers[self._row[a]][self._row[b]] // 2] = [self._row[end] for end in swap.added]
        return ends

    def set_wanted(self, columns: Places, words: Words) -> None:
        """Replace what brokers want: ``words`` (brokers, columns) take the place of these columns of the sets.

        Cost O(brokers * columns).
        """
        self._last = None
        self._count(columns, -1)
        changed = self.sets.words.copy()
        changed[:, columns] = words
        self.sets = replace(self.weighted, words=changed)
        self.kernels = kernels_for(self.inventory, self.sets)
        self._count(columns, 1)
        self._add_costs()

    def _count(self, columns: Places, sign: int) -> None:
        """Add some words of weighted sets to all counts (sign 1), or subtract them (-1)."""
        if self.kernels is None:
            self._count_words(columns, sign)
            return
        words, weights, *entries = self._arrays()[:5]
        words, weights = np.ascontiguousarray(words[:, columns]), np.ascontiguousarray(weights[columns])
        side, thrice = np.zeros((len(self.side), len(columns)), dtype=np.uint64), np.empty_like(words)
        loads, crossings = np.zeros_like(self._loads), np.zeros_like(self._crossings)
        tree, counts = (self.ends, self.rooted.order, self.rooted.parents), (side, thrice, loads, crossings)
        self.kernels.fill_tree(*tree, words, weights, *entries, *counts)
        self._loads += sign * loads
        self._crossings += sign * crossings
        if sign > 0:
            self.side[:, columns], self.thrice[:, columns] = side, thrice

    def _count_directions(self, broker: int) -> None:
        """Update what is wanted in at least two and three directions of a broker, itself being one."""
        once = self.sets.words[broker].copy()
        twice, thrice = np.zeros_like(once), np.zeros_like(once)
        for number in self._peers[broker].values():
            wanted = self.side[number]
            thrice |= twice & wanted
            twice |= once & wanted
            once |= wanted
        self.thrice[broker] = thrice
        self._loads[broker] = self.sets.counts(self.sets.words[broker] | twice)

    def _path(self, source: int, target: int) -> list[int]:
        """Return the brokers from source to target. O(depth of the tree)."""
        above = self._above
        up, place_of = [source], {source: 0}
        while (broker := above[up[-1]]) != up[-1]:
            place_of[broker] = len(up)
            up.append(broker)
        down = [target]
        while down[-1] not in place_of:
            down.append(above[down[-1]])
        return up[: place_of[down.pop()] + 1] + down[::-1]

    def _hang_on(self, near: list[int], far: list[int]) -> None:
        """Turn round the way to the root of those whose way to it ran over the cut: it now runs over the new link."""
        loose, held = (far, near) if self._above[far[0]] == near[0] else (near, far)
        for broker, following in pairwise([*loose, held[-1]]):
            self._above[broker] = following

    def _cut_path(self, swap: LinkSwap) -> tuple[list[int], list[int]]:
        """Return the cycle cut at the removed link: the brokers from the cut to each end of the added link."""
        ends = [self._row[end] for end in swap.added]
        if ends[1] in self._peers[ends[0]]:
            raise NotATreeError(f"link {swap.added[0]}-{swap.added[1]} cannot be added: it is already in the tree")
        path = self._path(*ends)
        removed = {self._row[end] for end in swap.removed}
        for place in range(len(path) - 1):
            if {path[place], path[place + 1]} == removed:
                return path[place::-1], path[place + 1 :]
        raise NotATreeError(
            f"removing {swap.removed[0]}-{swap.removed[1]} for {swap.added[0]}-{swap.added[1]} leaves no tree: "
            "the removed link is not on the cycle of the added one"
        )

    def _steps_of_both(self, near: list[int], far: list[int]) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
        """Return alpha and beta of each step of both walks outward from the cut, each of shape (steps, spans)."""
        if self.kernels is None:
            return self._steps(near, near, far), self._steps(far, near, far)
        outward = [self._peers[a][b] for walk in (near, far) for a, b in pairwise(walk)]
        cut, split = self._peers[near[0]][far[0]] // 2, len(near) - 1
        alpha, beta = self.kernels.count_steps(self.ends, cut, np.array(outward, dtype=np.intp), split, *self._arrays())
        return (alpha[:split], beta[:split]), (alpha[split:], beta[split:])

    def _steps(self, walk: list[int], near: list[int], far: list[int]) -> tuple[Floats, Floats]:
        """Return alpha and beta of each step of a walk outward from the cut, shape (steps, spans)."""
        number = self._peers[near[0]][far[0]]
        crossing = self.side[number] & self.side[number ^ 1]
        behind = self.side[[self._peers[a][b] for a, b in pairwise(walk)]]
        only = behind & ~self.thrice[walk[:-1]]
        alone: Words = np.bitwise_and.accumulate(np.concatenate([crossing[None], only]), axis=0)[1:]
        alpha = self._crossings[number // 2] - self.sets.counts(crossing & behind)
        return alpha, self.sets.counts(alone)

    def _priced(self, swap: LinkSwap) -> _PricedSwap:
        """Price a swap; the last one is kept until the tree changes, as those who look at a swap then make it."""
        if self._last is None or self._last.swap != swap:
            near, far = self._cut_path(swap)
            near_steps, far_steps = self._steps_of_both(near, far)
            gains = self._gains(near, far, near_steps, far_steps)
            self._last = _PricedSwap(swap, near, far, near_steps, far_steps, gains)
        return self._last

    def _gains(self, near: list[int], far: list[int], *steps: tuple[Floats, Floats]) -> Floats:
        """Return what the swap saves in each span in total, not per second, given the steps of both walks."""
        costs, processing = self.inventory.link_cost, self.inventory.processing_cost
        count = self._crossings[self._peers[near[0]][far[0]] // 2]
        change = (costs[near[-1], far[-1]] - costs[near[0], far[0]]) * count
        for walk, (alpha, beta) in zip((near, far), steps, strict=True):
            link_cost = costs[walk[:-1], walk[1:]]
            change = change + link_cost @ (alpha - beta) + processing[walk[1:]] @ alpha - processing[walk[:-1]] @ beta
        return np.asarray(-change)

    def _set_sides_of_line(self, line: list[int], onward: Places) -> None:
        """Recompute what is wanted behind the links of a line of brokers, from the branches off the line."""
        on_line = set(line)
        branches = self.sets.words[line]
        for place, broker in enumerate(line):
            off = [number for peer, number in self._peers[broker].items() if peer not in on_line]
            if off:
                branches[place] |= np.bitwise_or.reduce(self.side[off], axis=0)
        before: Words = np.bitwise_or.accumulate(branches, axis=0)
        after: Words = np.bitwise_or.accumulate(branches[::-1], axis=0)[::-1]
        self.side[onward] = after[1:]
        self.side[onward ^ 1] = before[:-1]
        self._crossings[onward // 2] = self.sets.counts(before[:-1] & after[1:])
