"""What the death of each broker would cut off: deliveries between other brokers that pass through it. Pure.

In: an overlay and the rate of deliveries at each broker. Out: for each broker, the deliveries per second that its death
cuts off until the overlay is repaired. Losses of a dead broker's own clients are left out because they are the same in
any overlay.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.chord_configuration import ChordConfiguration
from regraft.overlay.configuration import Configuration
from regraft.overlay.link_sides import RootedTree
from regraft.overlay.ring_costs import at_positions, topic_roots
from regraft.overlay.user_interests import UserInterests

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CutOff:
    """Deliveries per second that each broker's death cuts off, shape (brokers,), out of ``total_per_s``."""

    brokers: tuple[str, ...]
    per_s: Floats
    total_per_s: float

    @cached_property
    def worst_broker(self) -> str:
        """The broker whose death cuts off the most."""
        return self.brokers[int(self.per_s.argmax())]

    @property
    def worst_share(self) -> float:
        """The share of all deliveries that the worst broker's death cuts off; 0 if nothing is delivered."""
        return float(self.per_s.max()) / self.total_per_s if self.total_per_s else 0.0

    @property
    def mean_share(self) -> float:
        """The mean share of all deliveries that a broker's death cuts off; 0 if nothing is delivered.

        Multiplied by the number of brokers, the deaths per broker and year, and the time to repair in years, it gives
        the share of a year's deliveries that deaths cut off.
        """
        return float(self.per_s.mean()) / self.total_per_s if self.total_per_s else 0.0


def tree_cut_off(tree: Configuration, deliveries_per_s: Floats) -> CutOff:
    """Return what the death of each broker of a tree cuts off.

    ``deliveries_per_s`` (brokers, brokers) holds the deliveries at each broker (column) of what is published at each
    broker (row). Cost O(brokers^2).
    """
    rooted = RootedTree.of(tree)
    places, sizes = _preorder(rooted)
    order = np.argsort(places)
    sums = np.zeros((len(order) + 1, len(order) + 1))
    np.cumsum(np.cumsum(deliveries_per_s[np.ix_(order, order)], axis=0), axis=1, out=sums[1:, 1:])
    first, end = places, places + sizes
    inside = sums[end, end] - sums[first, end] - sums[end, first] + sums[first, first]  # Within each broker's subtree.
    total = sums[-1, -1]
    touching = (sums[end, -1] - sums[first, -1]) + (sums[-1, end] - sums[-1, first]) - inside
    above = total - touching  # Between brokers outside its subtree.
    own = np.diagonal(deliveries_per_s)
    of_broker = deliveries_per_s.sum(axis=0) + deliveries_per_s.sum(axis=1) - own
    children = np.zeros(len(order))
    below_root = np.flatnonzero(rooted.parents != np.arange(len(order)))
    np.add.at(children, rooted.parents[below_root], inside[below_root])
    per_s = np.maximum(total - of_broker - above - children, 0.0)
    return CutOff(tree.brokers, per_s, float(total))


def ring_cut_off(ring: ChordConfiguration, interests: UserInterests, rates_per_s: Floats) -> CutOff:
    """Return what the death of each broker of a ring cuts off: what passes it from a topic's rendezvous to users.

    The route from a publisher to the rendezvous is left out, as in the cost. ``rates_per_s`` follows
    ``interests.topics``. Cost O(brokers^2 * depth).
    """
    chord, roots = ring.ring, topic_roots(ring, interests.topics)
    handed = at_positions(ring, interests.user_counts).astype(np.float64) * rates_per_s
    below = np.zeros((chord.node_count, chord.node_count))  # Deliveries, by rendezvous and broker.
    np.add.at(below, roots, handed.T)
    own = below.copy()
    for depth in range(int(chord.depths.max(initial=0)), 0, -1):
        root, node = np.nonzero(chord.depths == depth)
        np.add.at(below, (root, chord.parents[root, node]), below[root, node])
    passing = (below - own).sum(axis=0)
    total = float(own.sum())
    return CutOff(ring.brokers, passing[[ring.position_of[broker] for broker in ring.brokers]], total)


def _preorder(rooted: RootedTree) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return each broker's place in preorder and the size of its subtree, itself included."""
    sizes = np.rint(rooted.summed_below(np.ones(len(rooted.parents)))).astype(np.intp)
    places = np.zeros(len(sizes), dtype=np.intp)
    for level in rooted.levels:
        parents = rooted.parents[level]
        before = np.cumsum(sizes[level]) - sizes[level]
        firsts = np.flatnonzero(np.concatenate([[True], parents[1:] != parents[:-1]]))
        runs = np.diff(np.append(firsts, len(level)))
        places[level] = places[parents] + 1 + before - np.repeat(before[firsts], runs)
    return places, sizes
