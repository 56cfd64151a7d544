"""What is wanted on either side of each link of a tree, as bits. Costs and loads do not belong here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.tree.compiled_costs import prepared_kernels
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.arrays import Places, Words

WORDS_AT_ONCE = 1 << 17  # Words swept over at a time, so that they stay in the processor's cache.


@dataclass(frozen=True, eq=False)
class RootedTree:
    """A tree rooted at its first broker; brokers are positions in the configuration's order.

    ``parents`` (brokers,) is the next broker towards the root; the root is its own parent. ``levels`` are the brokers
    by distance from the root, without the root, siblings next to each other. ``ranks[k]`` are the brokers that are the
    k-th child of their parent.
    """

    parents: Places
    levels: tuple[Places, ...]
    ranks: tuple[Places, ...]

    @classmethod
    def of(cls, configuration: TreeConfiguration) -> RootedTree:
        """Root the tree of a configuration at its first broker. O(brokers)."""
        row = {broker: position for position, broker in enumerate(configuration.brokers)}
        return cls.of_peers([[row[peer] for peer in configuration.neighbours[broker]] for broker in row])

    @classmethod
    def of_ends(cls, ends: Places, brokers: int) -> RootedTree:
        """Root a tree with these links, shape (links, 2), at its first broker. O(brokers)."""
        peers: list[list[int]] = [[] for _ in range(brokers)]
        for a, b in ends.tolist():
            peers[a].append(b)
            peers[b].append(a)
        return cls.of_peers(peers)

    @classmethod
    def of_peers(cls, peers: Sequence[Iterable[int]]) -> RootedTree:
        """Root a tree at its first broker; ``peers`` are the neighbours of each broker, in the order of siblings."""
        parents = [0] * len(peers)
        ranks: list[list[int]] = []
        levels: list[list[int]] = []
        here = [0]
        while here:
            following: list[int] = []
            for parent in here:
                above = parents[parent] if parent else -1
                rank = 0
                for child in peers[parent]:
                    if child == above:
                        continue
                    parents[child] = parent
                    following.append(child)
                    if rank == len(ranks):
                        ranks.append([])
                    ranks[rank].append(child)
                    rank += 1
            if following:
                levels.append(following)
            here = following
        by_level, by_rank = (tuple(np.array(group, dtype=np.intp) for group in groups) for groups in (levels, ranks))
        return cls(np.array(parents, dtype=np.intp), by_level, by_rank)

    def path_to_root(self, broker: int) -> list[int]:
        """Return the brokers from ``broker`` to the root, both included."""
        path = [broker]
        while (parent := int(self.parents[path[-1]])) != path[-1]:
            path.append(parent)
        return path

    @property
    def order(self) -> Places:
        """All brokers, the root first and each parent before its children."""
        return np.concatenate([np.zeros(1, dtype=np.intp), *self.levels])

    @cached_property
    def siblings(self) -> tuple[tuple[Places, Places, Places], ...]:
        """Each level, where its runs of siblings start, and the parent of each run."""
        runs = []
        for level in self.levels:
            parents = self.parents[level]
            starts = np.flatnonzero(np.concatenate([[True], parents[1:] != parents[:-1]]))
            runs.append((level, starts, parents[starts]))
        return tuple(runs)

    @cached_property
    def preorder(self) -> tuple[Places, Places]:
        """Each broker's place in preorder, and the size of its subtree, itself included."""
        sizes = np.rint(self.summed_below(np.ones(len(self.parents)))).astype(np.intp)
        places = np.zeros(len(sizes), dtype=np.intp)
        for level, starts, parents in self.siblings:
            before, runs = np.cumsum(sizes[level]) - sizes[level], np.diff(np.append(starts, len(level)))
            places[level] = np.repeat(places[parents] + 1 - before[starts], runs) + before
        return places, sizes

    @cached_property
    def paths_to_root(self) -> Places:
        """The path from each broker to the root, shape (brokers, longest path), padded with the root."""
        paths = [np.arange(len(self.parents), dtype=np.intp)]
        for _ in self.levels:
            paths.append(self.parents[paths[-1]])
        return np.stack(paths, axis=1)

    def summed_below(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return for each broker the sum over its subtree, itself included, along the last axis."""
        below = values.copy()
        for level, starts, parents in reversed(self.siblings):
            below[..., parents] += np.add.reduceat(below[..., level], starts, axis=-1)
        return below

    def rerooted(self, first: NDArray[np.float64], step: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the values at all brokers, given those at the root and the change from each broker's parent to it.

        ``step`` has shape (..., brokers), where the root's is ignored; ``first`` has shape (...).
        """
        values = np.empty_like(step)
        values[..., 0] = first
        for level in self.levels:
            values[..., level] = values[..., self.parents[level]] + step[..., level]
        return values


def link_sides(tree: RootedTree, words: Words) -> tuple[Words, Words]:
    """Return what is wanted below and above each broker, both of shape (brokers, columns).

    Row i of ``words`` is what broker i itself wants. The link from broker b to its parent has ``below[b]`` (what b's
    subtree wants) on one side and ``above[b]`` on the other; the root has everything in ``below`` and nothing in
    ``above``. Cost O(brokers * columns).
    """
    below, above = words.copy(), np.zeros_like(words)
    kernels, order = prepared_kernels(), tree.order
    columns = max(WORDS_AT_ONCE // max(len(words), 1), 1)
    for at in range(0, words.shape[1], columns):
        chunk = np.s_[:, at : at + columns]
        if kernels is None:
            below[chunk], above[chunk] = _sides(tree, words[chunk])
        else:
            below[chunk], above[chunk] = kernels.sides_of(order, tree.parents, np.ascontiguousarray(words[chunk]))
    return below, above


def wanted_repeatedly(
    tree: RootedTree, words: Words, below: Words, above: Words, children: Places
) -> tuple[Words, Words]:
    """Return what is wanted in at least two, and in three, directions of each broker, itself being one."""
    once, twice, thrice = words.copy(), np.zeros_like(words), np.zeros_like(words)
    towards = [(tree.parents[group], below[group]) for group in tree.ranks]
    for brokers, wanted in [*towards, (children, above[children])]:
        thrice[brokers] |= twice[brokers] & wanted
        twice[brokers] |= once[brokers] & wanted
        once[brokers] |= wanted
    return twice, thrice


def _sides(tree: RootedTree, words: Words) -> tuple[Words, Words]:
    below, above = words.copy(), np.zeros_like(words)
    for level, starts, parents in reversed(tree.siblings):
        below[parents] |= np.bitwise_or.reduceat(below[level], starts, axis=0)
    once, twice = words.copy(), np.zeros_like(words)  # Wanted by the broker or a child's subtree; by two of these.
    for children in tree.ranks:
        parents, wanted = tree.parents[children], below[children]
        twice[parents] |= once[parents] & wanted
        once[parents] |= wanted
    for level in tree.levels:
        parents = tree.parents[level]
        # What a child's subtree wants is wanted above it only if another one wants it as well.
        above[level] = above[parents] | twice[parents] | (once[parents] & ~below[level])
    return below, above
