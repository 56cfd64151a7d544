"""Order swaps and moves that are good together into steps that each help and keep the caps.

In: the present overlay and a better one. Out: groups of changes, ordered so that any prefix is worth making. Finding
the better overlay does not belong here.
"""

from __future__ import annotations

import copy
import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from regraft.controller.planners.tree.steps.price_frailty import OverlayFrailty
from regraft.controller.planners.tree.steps.search_swaps import TIE_SHARE, Search, keeps_caps
from regraft.overlay.overlay_configuration import Link
from regraft.overlay.tree.overlay_costs import OverlayCosts
from regraft.overlay.tree.publisher_placement import ROUNDING_SHARE
from regraft.overlay.tree.tree_configuration import NotATreeError
from regraft.overlay.tree.tree_costs import LinkSwap
from regraft.schemas.arrays import Floats

Rehoming = tuple[int, int]  # A publisher and the broker it goes to, by position.
Change = LinkSwap | Rehoming


@dataclass(frozen=True)
class Step:
    """Changes that are made together, with the cost before and after them."""

    swaps: tuple[LinkSwap, ...]
    moves: tuple[Rehoming, ...]
    cost_before_per_s: float
    cost_after_per_s: float


class ChangeSequence:
    """The steps from one overlay to another; ``reached`` is the overlay after the steps so far."""

    def __init__(
        self, present: OverlayCosts, target: OverlayCosts, search: Search, frailty: OverlayFrailty | None
    ) -> None:
        self.reached = present.copy()
        self._search = search
        self._frailty = frailty
        self._frailty_per_s = 0.0 if frailty is None else frailty.price_per_s(present.tree.ends, present.homes)
        self._least_per_s = TIE_SHARE * present.cost_per_s
        self._to_remove: set[Link] = set(present.tree.links) - set(target.tree.links)
        self._to_add: set[Link] = set(target.tree.links) - set(present.tree.links)
        self._to_move = {
            place: int(home) for place, home in enumerate(target.homes.tolist()) if home != present.homes[place]
        }

    def steps(self) -> Iterator[Step]:
        """Yield steps, best first: each the best single change that helps, or the smallest group found that does.

        Changes that help in no group are left out. ``reached`` includes a step when it is yielded.
        """
        stale = [(-gain_per_s, change) for gain_per_s, change in self._all()]
        while True:
            change, stale = self._best_single(stale)
            if change is None:
                stale = [(-gain_per_s, one) for gain_per_s, one in self._all()]
                change, stale = self._best_single(stale)
            group = [change] if change is not None else self._group()
            if not group:
                return
            before_per_s = self.reached.cost_per_s
            for one in group:
                self._make(one)
            if self._frailty is not None:
                self._frailty_per_s = self._frailty.price_per_s(self.reached.tree.ends, self.reached.homes)
            swaps = tuple(one for one in group if isinstance(one, LinkSwap))
            moves = tuple(one for one in group if not isinstance(one, LinkSwap))
            yield Step(swaps, moves, before_per_s, self.reached.cost_per_s)
            stale = [(gain, one) for gain, one in stale if self._is_left(one)]

    def _best_single(self, stale: list[tuple[float, Change]]) -> tuple[Change | None, list[tuple[float, Change]]]:
        """Return the best single change, or None, from outdated gains (negated), and the other changes with theirs."""
        queue = [(gain, _key(one), one) for gain, one in stale]
        heapq.heapify(queue)
        best: Change | None = None
        while queue:
            old, key, change = heapq.heappop(queue)
            if -old <= self._least_per_s:
                heapq.heappush(queue, (old, key, change))
                break
            gain_per_s = self._gain_per_s(change)
            if queue and gain_per_s < -queue[0][0]:
                heapq.heappush(queue, (-gain_per_s, key, change))
            elif gain_per_s > self._least_per_s and self._is_sound([change], gain_per_s):
                best = change
                break
        return best, [(gain, change) for gain, _, change in queue]

    def _group(self) -> list[Change]:
        """Return changes that help only together, collected best first; empty if not even all of them help."""
        trial, group = self._copy(), []
        before_per_s = trial.reached.cost_per_s
        while changes := trial._all():
            _, change = max(changes, key=lambda pair: (pair[0], _key(pair[1])))
            trial._make(change)
            group.append(change)
            saved_per_s = before_per_s - trial.reached.cost_per_s
            if saved_per_s > self._least_per_s and self._is_sound(group, saved_per_s):
                return group
        return []

    def _copy(self) -> ChangeSequence:
        copied = copy.copy(self)
        copied.reached = self.reached.copy()
        copied._to_remove, copied._to_add = set(self._to_remove), set(self._to_add)
        copied._to_move = dict(self._to_move)
        return copied

    def _all(self) -> list[tuple[float, Change]]:
        """Return every change that can be made now, with what it saves."""
        swaps = [
            LinkSwap(removed, added)
            for added in sorted(self._to_add)
            for removed in self.reached.tree.cycle(added)
            if removed in self._to_remove
        ]
        changes: list[Change] = [*swaps, *sorted(self._to_move.items())]
        return [(self._gain_per_s(change), change) for change in changes]

    def _is_left(self, change: Change) -> bool:
        if isinstance(change, LinkSwap):
            return change.removed in self._to_remove and change.added in self._to_add
        return change[0] in self._to_move

    def _gain_per_s(self, change: Change) -> float:
        """Return what a change saves on the overlay reached, -inf if it cannot be made."""
        if isinstance(change, LinkSwap):
            try:
                return self.reached.tree.gain_per_s(change)
            except NotATreeError:
                return float("-inf")
        publisher, home = change
        costs_per_s = self.reached.at_homes.costs_per_s[publisher]
        return float(costs_per_s[self.reached.homes[publisher]] - costs_per_s[home])

    def _make(self, change: Change) -> None:
        if isinstance(change, LinkSwap):
            self.reached.apply(change)
            self._to_remove.remove(change.removed)
            self._to_add.remove(change.added)
        else:
            self.reached.move(dict([change]))
            del self._to_move[change[0]]

    def _is_sound(self, group: list[Change], saved_per_s: float) -> bool:
        """Return True if the changes keep the caps and save more than the added frailty costs."""
        first = group[0]
        if len(group) == 1 and isinstance(first, LinkSwap) and not keeps_caps(self.reached.tree, self._search, first):
            return False
        capped = self._search.load_max_per_s is not None and (len(group) > 1 or not isinstance(first, LinkSwap))
        if len(group) == 1 and not capped:
            return self._frailty is None or saved_per_s > self._rise_per_s(self._frailty, first)
        trial = self._copy()
        for change in group:
            trial._make(change)
        before, after = self.reached.tree, trial.reached.tree
        if (after.degrees > max(self._search.degree_max, 0))[after.degrees > before.degrees].any():
            return False
        caps_per_s = self._search.load_max_per_s
        if caps_per_s is not None:
            now, then = before.loads_per_s, after.loads_per_s
            if (then > _limits(caps_per_s, now)).any():
                return False
        if self._frailty is None:
            return True
        return saved_per_s > self._frailty.price_per_s(after.ends, trial.reached.homes) - self._frailty_per_s

    def _rise_per_s(self, frailty: OverlayFrailty, change: Change) -> float:
        """Return the price of the frailty that a single change adds, without making it."""
        tree, homes = self.reached.tree, self.reached.homes
        if isinstance(change, LinkSwap):
            return frailty.price_per_s(tree.ends_after(change), homes) - self._frailty_per_s
        homes = homes.copy()
        homes[change[0]] = change[1]
        return frailty.price_per_s(tree.ends, homes) - self._frailty_per_s


def _limits(caps_per_s: Floats, loads_per_s: Floats) -> Floats:
    """Return the load limits of brokers with these present loads: their cap, or the present load if that is higher."""
    return np.asarray(np.maximum(caps_per_s, loads_per_s) * (1 + ROUNDING_SHARE))


def _key(change: Change) -> tuple[str, ...]:
    """Return the sort key of changes that save the same."""
    if isinstance(change, LinkSwap):
        return ("", *change.removed, *change.added)
    return (f"{change[0]:09d}", f"{change[1]:09d}")
