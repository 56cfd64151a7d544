"""Search links and homes together: descents from several starts, then kicks, within what one plan may change.

The order in which a plan gets there belongs to :mod:`controller.planners.tree.steps.sequence_changes`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from regraft.controller.planners.tree.steps.escape_links import kick
from regraft.controller.planners.tree.steps.price_every_tree import best_overlays, may_price_overlays
from regraft.controller.planners.tree.steps.price_frailty import OverlayFrailty
from regraft.controller.planners.tree.steps.search_homes import HomeSearch
from regraft.controller.planners.tree.steps.search_swaps import TIE_SHARE, Search, descend
from regraft.overlay.tree.overlay_costs import OverlayCosts
from regraft.overlay.tree.publisher_placement import PublisherPlacement
from regraft.schemas.arrays import Places

HOMES_EVALUATED_MAX = 2_000_000  # By one descent over homes, if caps of load are tight.
HOMES_WORDS = 300_000  # Words that the array calls of evaluating all homes cost as much as.


@dataclass(frozen=True, eq=False)
class OverlaySearch:
    """A search from a present overlay; ``search`` has its budget, its caps and how many links may differ.

    ``moves_max`` is how many publishers may have another home. The value of an overlay is its cost plus the price of
    its added frailty (``frailty``).
    """

    present: OverlayCosts
    search: Search
    moves_max: int
    frailty: OverlayFrailty | None

    def value_per_s(self, overlay: OverlayCosts) -> float:
        """Return the overlay's cost, plus the price of its frailty above that of the present one."""
        if self.frailty is None:
            return overlay.cost_per_s
        rise_per_s = self.frailty.price_per_s(overlay.tree.ends, overlay.homes) - self._present_frailty_per_s
        return overlay.cost_per_s + max(rise_per_s, 0.0)

    @cached_property
    def _present_frailty_per_s(self) -> float:
        return self.frailty.price_per_s(self.present.tree.ends, self.present.homes) if self.frailty else 0.0

    def best(self, starts: Sequence[OverlayCosts]) -> OverlayCosts:
        """Return the best of the present overlay, the starts, and where a descent from each start ends."""
        candidates = []
        for start in starts:
            trial = start.copy()
            self.settle(trial)
            candidates.append(trial)
        return min([self.present, *starts, *candidates], key=self.value_per_s)

    def escape(self, best: OverlayCosts, rng: random.Random) -> OverlayCosts:
        """Return the best overlay found by kicks from this one, each followed by a descent, within the budget.

        Of up to six brokers without caps of load every tree is priced instead, with the cheapest homes on it.
        """
        if not self.search.is_over and may_price_overlays(best, self.search):
            return self._best_of_all(best)
        best_per_s = self.value_per_s(best)
        while not self.search.is_over and len(best.tree.ends) > 1:
            trial = best.copy()
            touched = kick(trial.tree, self.search, rng)
            trial.links_changed()
            self.settle(trial, touched)
            if trial.cost_per_s >= best_per_s - TIE_SHARE * best.cost_per_s:
                continue
            value_per_s = self.value_per_s(trial)
            if value_per_s < best_per_s - TIE_SHARE * best.cost_per_s:
                best, best_per_s = trial, value_per_s
        return best

    def _best_of_all(self, best: OverlayCosts) -> OverlayCosts:
        best_per_s = self.value_per_s(best)
        for trial in best_overlays(best, self.present, self.search, self.moves_max):
            if trial.cost_per_s >= best_per_s - TIE_SHARE * best.cost_per_s:
                break  # A value is never below the cost, and the others cost more.
            value_per_s = self.value_per_s(trial)
            if value_per_s < best_per_s - TIE_SHARE * best.cost_per_s:
                best, best_per_s = trial, value_per_s
        return best

    def settle(self, overlay: OverlayCosts, near: Places | None = None) -> None:
        """Move publishers to their best homes and swap links, in turn, until neither helps or the budget is used up.

        With ``near`` only swaps of these links, and of those that change with them, are evaluated.
        """
        while True:
            self.rehome(overlay)
            swaps = list(descend(overlay.tree, self.search, near=near))
            if not swaps:
                return
            overlay.links_changed()
            if self.search.is_over:
                self.rehome(overlay)
                return

    def rehome(self, overlay: OverlayCosts) -> None:
        """Move publishers to their best homes on the tree, at most ``moves_max`` of them away from the present ones."""
        if not len(overlay.homes):
            return
        self.search.words_left -= HOMES_WORDS + 2 * overlay.sets.words.size
        homes = self._best_homes(overlay)
        values = overlay.at_homes.costs_per_s
        places = np.arange(len(homes))
        gains = values[places, self.present.homes] - values[places, homes]
        stay = np.argsort(-gains, kind="stable")[self.moves_max :]
        homes[stay] = self.present.homes[stay]
        homes[gains <= TIE_SHARE * overlay.cost_per_s] = self.present.homes[gains <= TIE_SHARE * overlay.cost_per_s]
        overlay.move({int(place): int(homes[place]) for place in np.flatnonzero(homes != overlay.homes)})

    def _best_homes(self, overlay: OverlayCosts) -> Places:
        at_homes, caps_per_s = overlay.at_homes, self.search.load_max_per_s
        if caps_per_s is None:
            return np.asarray(at_homes.costs_per_s.argmin(axis=1), dtype=np.intp)
        placement = PublisherPlacement(at_homes, range(len(overlay.homes)), overlay.homes.tolist(), caps_per_s)
        HomeSearch(at_homes.costs_per_s, HOMES_EVALUATED_MAX).descend(placement)
        return placement.homes
