"""Order moves of publishers that are good together into steps that each help and keep the caps of load."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, islice

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.tree.publisher_placement import PublisherPlacement
from regraft.schemas.arrays import Floats

GROUP_TRIALS_MAX = 3_000  # Groups tried for one step, smallest first, before all remaining moves become one.

Homes = NDArray[np.intp]
Step = tuple[int, ...]


def steps_to(present: PublisherPlacement, homes: Homes, gains: Floats, least: float) -> list[Step]:
    """Return steps from ``present`` to ``homes``, each the publishers (by position) that move in it.

    Single moves come first, best first, while one saves more than ``least`` and breaks no cap; then the smallest group
    that does both, and so on. Moves that no longer save are left out. In a step, a broker above its cap may stay there
    but gets no more load. All moves together must keep the limits of ``present``.
    """
    reached = present.copy()
    steps: list[Step] = []
    left = [int(place) for place in np.flatnonzero(present.homes != homes)]
    while left:
        step = _next_step(reached, homes, gains, left, least)
        if step is None and _sum(gains, left) <= least:
            break
        while step is None:
            # Earlier steps have lowered the limit of a broker above its cap: merge them into this step.
            undone = steps.pop() if steps else ()
            for place in undone:
                reached.move(place, int(present.homes[place]))
            left = sorted([*left, *undone])
            step = tuple(left) if not steps or _keeps(reached, homes, left) else None
        for place in step:
            reached.move(place, int(homes[place]))
        left = [place for place in left if place not in step]
        steps.append(step)
    return steps


def _next_step(
    reached: PublisherPlacement, homes: Homes, gains: Floats, left: Sequence[int], least: float
) -> Step | None:
    """Return the best single move that fits and saves enough, else the smallest group that does, else None."""
    for place in sorted(left, key=lambda place: (-gains[place], place)):
        if gains[place] > least and _keeps(reached, homes, (place,)):
            return (place,)
    groups = (group for size in range(2, len(left)) for group in combinations(left, size))
    for group in (*islice(groups, GROUP_TRIALS_MAX), tuple(left)):
        if _sum(gains, group) > least and _keeps(reached, homes, group):
            return group
    return None


def _sum(gains: Floats, places: Sequence[int]) -> float:
    return sum(float(gains[place]) for place in places)


def _keeps(reached: PublisherPlacement, homes: Homes, places: Sequence[int]) -> bool:
    return reached.keeps(reached.limits_now(), [(place, int(homes[place])) for place in places])
