"""Find swaps that replace the heaviest link of a path by a lighter direct one, from the weights of all pairs. Pure.

The planner defines the weight (cost, lack of interest); ``rank_swaps`` chooses which swaps to propose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regraft.api.overlays import link
from regraft.api.planning import TreeState
from regraft.api.trees import LinkSwap, paths_within


@dataclass(frozen=True, slots=True)
class PathSwap:
    """A direct link instead of the heaviest link of the path between its ends, with the weights of both."""

    swap: LinkSwap
    weight_removed: float
    weight_added: float


def lighter_swaps(state: TreeState, horizon_hops: int, weights: NDArray[Any]) -> Iterator[PathSwap]:
    """Yield the swaps between brokers within the horizon whose direct link weighs less than a link of their path.

    ``weights`` (n, n) follow the order of the inventory's brokers. Cost O(pairs within the horizon * horizon).
    """
    names = state.inventory.brokers
    for hops, paths in paths_within(state.configuration, horizon_hops).items():
        if hops < 2:
            continue
        ascending = paths[paths[:, 0] < paths[:, -1]]
        on_path = weights[ascending[:, :-1], ascending[:, 1:]]
        direct = weights[ascending[:, 0], ascending[:, -1]]
        heaviest = on_path.argmax(axis=1)
        for row in np.flatnonzero(on_path.max(axis=1) > direct):
            path = [names[position] for position in ascending[row]]
            cut = int(heaviest[row])
            swap = LinkSwap(link(path[cut], path[cut + 1]), link(path[0], path[-1]))
            yield PathSwap(swap, on_path[row, cut], direct[row])
