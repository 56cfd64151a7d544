"""Price swaps on a ring whose hops have delays: all partners of a broker at once, with the same result as from scratch.

A swap of two brokers changes the delays of the links at both positions, and the events delivered there. The first
effect is a sum over links, weighted by their flows; the second needs the delays to both positions after the swap.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from regraft.api.rings import Mapping, RingProblem, RingSwaps

Floats = NDArray[np.float64]

ROUNDING = 1e-9  # Smaller changes, as a share of the cost, count as 0.


class DelaySwaps:
    """A mapping, the costs of its brokers, and the change of cost by a swap. ``mapping`` defaults to the present one.

    Raises ValueError if the problem has no hop delays, or they are not symmetric. Cost of pricing all partners of a
    broker, and of a swap: O(roots * positions * depth).
    """

    def __init__(self, problem: RingProblem, mapping: Mapping | None = None) -> None:
        delays = problem.hop_delays
        if delays is None or not np.allclose(delays, delays.T):
            raise ValueError("hop delays must be given and symmetric: use RingSwaps where every hop takes 1")
        self.problem = problem
        self._broker_delays = delays * ~np.eye(len(delays), dtype=np.bool_)  # A hop to itself costs nothing.
        self._relays = RingSwaps(replace(problem, delay_weight=0.0, hop_delays=None), mapping)
        roots, row_of = np.unique(problem.roots, return_inverse=True)
        self._roots = roots
        self._parents, self._depths = problem.ring.parents[roots], problem.ring.depths[roots]
        self._rows = np.arange(len(roots))
        self._sizes = problem.arcs.sizes.reshape(len(roots), -1)  # Sizes of subtrees, which are arcs of the ring.
        weights = np.zeros((len(roots), problem.broker_count))
        np.add.at(weights, row_of, problem.wanted.T * problem.delay_weights[:, None])
        self._broker_weights = weights  # (roots, brokers): cost per unit of delay to a broker.
        self._levels = [np.nonzero(self._depths == depth) for depth in range(1, int(self._depths.max()) + 1)]
        self._count()

    @property
    def mapping(self) -> Mapping:
        """The broker at each position."""
        return self._relays.mapping

    @property
    def broker_costs(self) -> Floats:
        """c_b of the broker at each position (Eq. 12)."""
        return np.asarray(self._relays.broker_costs + (self._weights * self._path_delays).sum(axis=0))

    @property
    def cost(self) -> float:
        """C of the mapping (Eq. 5)."""
        return float(self._relays.cost + (self._weights * self._path_delays).sum())

    def changes(self, position: int) -> Floats:
        """Return the change of C if the broker at a position swaps with each other one; inf at its own position."""
        to_here, to_others = self._path_delays_after(position)
        gained = self._weights - self._weights[:, [position]]  # Events here instead of there, by partner.
        changes = self._link_changes(position) + (gained * (to_here - to_others)).sum(axis=0)
        changes += self._relays.changes(position)
        changes[np.abs(changes) < ROUNDING * self.cost] = 0.0
        changes[position] = np.inf
        return np.asarray(changes)

    def swap(self, position: int, other: int) -> None:
        """Swap the brokers at two positions."""
        self._relays.swap(position, other)
        self._count()

    def _count(self) -> None:
        mapping = self.mapping
        self._delays = self._broker_delays[np.ix_(mapping, mapping)]
        self._weights = self._broker_weights[:, mapping]
        self._path_delays = np.zeros(self._weights.shape)
        for rows, nodes in self._levels:
            above = self._parents[rows, nodes]
            self._path_delays[rows, nodes] = self._path_delays[rows, above] + self._delays[above, nodes]
        behind = self._weights.copy()
        for rows, nodes in reversed(self._levels):
            np.add.at(behind, (rows, self._parents[rows, nodes]), behind[rows, nodes])
        rows, nodes = np.nonzero(self._depths > 0)
        count = self.problem.broker_count
        links = self._parents[rows, nodes].astype(np.int64) * count + nodes
        flows = np.bincount(links, behind[rows, nodes], count * count).reshape(count, count)
        self._flows = flows + flows.T  # Both directions together: delays are symmetric.

    def _link_changes(self, here: int) -> Floats:
        """Return the change of cost by changed link delays, weighted by the present flows, for each partner."""
        flows, delays = self._flows, self._delays
        changes = delays @ flows[:, here] - flows[here] @ delays[here]
        changes -= np.einsum("ij,ij->j", flows, delays)
        changes += flows @ delays[:, here]
        # A link between the two positions keeps its delay.
        return np.asarray(changes + 2 * flows[here] * delays[here])

    def _path_delays_after(self, here: int) -> tuple[Floats, Floats]:
        """Return the delays from each root to this position and to the partner's after each swap (roots, positions)."""
        delays, rows = self._delays, self._rows
        above_here = self._parents[:, here]
        is_root = above_here < 0
        to_here = self._path_delays[:, [here]] + np.where(
            is_root[:, None], 0.0, delays[above_here] - delays[above_here, here][:, None]
        )
        # Partners on the path to this position: this broker takes over the links on both their sides.
        below, node = np.full(len(rows), here), above_here.copy()
        while True:
            inside = node >= 0
            if not inside.any():
                break
            r, at, child = rows[inside], node[inside], below[inside]
            up = self._parents[r, at]
            above, is_child = above_here[r], child == here
            delay = self._path_delays[r, here] + np.where(is_child, 0.0, delays[above, at] - delays[above, here])
            delay += np.where(is_child, 0.0, delays[here, child] - delays[at, child])
            delay += np.where(up >= 0, delays[up, here] - delays[up, at], 0.0)
            to_here[r, at] = delay
            below[inside], node[inside] = at, up
        return to_here, self._path_delays_to_others(here, above_here)

    def _path_delays_to_others(self, here: int, above_here: NDArray[np.integer]) -> Floats:
        """Return the delays from each root to each other position once this broker is there."""
        delays, count = self._delays, self.problem.broker_count
        parents = self._parents
        path_delays = self._path_delays + np.where(
            parents < 0, 0.0, delays[parents, here] - delays[parents, np.arange(count)]
        )
        # Partners behind this position: they take over the links on both its sides.
        offsets = (np.arange(count) - here) % count
        rows, nodes = np.nonzero((offsets > 0) & (offsets < self._sizes[:, [here]]))
        child = self.problem.ring.next_hops[here, nodes]
        above, up = parents[rows, nodes], above_here[rows]
        delay = self._path_delays[rows, nodes]
        is_child = child == nodes
        delay = delay + np.where(is_child, 0.0, delays[above, here] - delays[above, nodes])
        delay += np.where(is_child, 0.0, delays[nodes, child] - delays[here, child])
        delay += np.where(up >= 0, delays[up, nodes] - delays[up, here], 0.0)
        path_delays[rows, nodes] = delay
        return np.asarray(path_delays)
