"""Search homes for all publishers together: single moves, and chains of moves that keep the caps only together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.tree.publisher_placement import ROUNDING_SHARE, PublisherPlacement
from regraft.schemas.arrays import Floats

TIE_SHARE = 1e-9  # Gains below this share of the whole are rounding of floats.
CHAIN_MOVES_MAX = 5  # Publishers that move in one chain.
EVALUATION_HOMES = 5_000  # Homes that the array calls of an evaluation cost as much as, besides those evaluated.

Move = tuple[int, int]  # Publisher and home, by position.


class HomeSearch:
    """A descent on the sum of ``values`` (publishers, brokers), which it minimises, within the limits of placements.

    ``homes_left`` is how many homes of publishers all descents together may still evaluate.
    """

    def __init__(self, values: Floats, homes_left: int) -> None:
        self.values = values
        self.homes_left = homes_left
        self._places = np.arange(len(values))

    def value(self, placement: PublisherPlacement) -> float:
        """Return the sum over all publishers at their homes."""
        return float(self.values[self._places, placement.homes].sum())

    def gains(self, placement: PublisherPlacement) -> Floats:
        """Return what each single move saves, shape (publishers, brokers)."""
        return np.asarray(self.values[self._places, placement.homes][:, None] - self.values)

    def least_gain(self, placement: PublisherPlacement) -> float:
        """Return the saving up to which a move counts as rounding."""
        return TIE_SHARE * abs(self.value(placement))

    def descend(self, placement: PublisherPlacement) -> None:
        """Make single moves, and chains if no single one helps, until nothing helps or the budget is used up.

        Guarantee: the limits are kept, and with budget left no single move that keeps them helps. Without caps that is
        the optimum. Cost O(publishers * brokers) for each evaluation.
        """
        while True:
            fits = self._move_singly(placement)
            chain = self._chain(placement, fits)
            if chain is None:
                return
            for place, home in chain:
                placement.move(place, home)

    def _move_singly(self, placement: PublisherPlacement) -> NDArray[np.bool_]:
        """Make single moves, best first, until none helps; return which moves then keep the limits."""
        while True:
            fits = self._excess_after(placement) <= 0
            gains = np.where(fits, self.gains(placement), -np.inf)
            homes = gains.argmax(axis=1)
            best = gains[self._places, homes]
            worth = [place for place in np.argsort(-best, kind="stable") if best[place] > self.least_gain(placement)]
            if not worth:
                return fits
            for place in worth:
                # The evaluation covers the first move; it may have used room that later ones need.
                if place == worth[0] or placement.keeps(placement.limits_per_s, [(place, int(homes[place]))]):
                    placement.move(int(place), int(homes[place]))

    def _chain(self, placement: PublisherPlacement, fits: NDArray[np.bool_]) -> list[Move] | None:
        """Return moves that help together and keep the limits, or None if none are found within the budget.

        Each opening is a move that helps but breaks limits. It is followed by the publisher and home that leave the
        least excess without using up the gain, until there is no excess: an ejection chain.
        """
        gains = self.gains(placement)
        least = self.least_gain(placement)
        for opening in self._openings(np.where(fits, -np.inf, gains), least):
            if self.homes_left <= 0:
                return None
            chain = self._closed(placement.copy(), opening, gains, least)
            if chain is not None:
                return chain
        return None

    def _openings(self, gains: Floats, least: float) -> Iterator[Move]:
        """Yield moves that save more than ``least``: first the best of each publisher, then the second best of each."""
        order = np.argsort(-gains, axis=1, kind="stable")
        for rank in range(order.shape[1]):
            saved = gains[self._places, order[:, rank]]
            worth = [int(place) for place in np.argsort(-saved, kind="stable") if saved[place] > least]
            if not worth:
                return
            for place in worth:
                yield place, int(order[place, rank])

    def _closed(self, trial: PublisherPlacement, opening: Move, gains: Floats, least: float) -> list[Move] | None:
        """Return the chain that starts with the opening and finally keeps the limits, or None if there is none."""
        chain = [opening]
        while True:
            trial.move(*chain[-1])
            rounding = ROUNDING_SHARE * float(trial.loads_per_s.max())
            if trial.excess_per_s <= rounding:
                return chain if trial.keeps(trial.limits_per_s) else None
            if len(chain) == CHAIN_MOVES_MAX:
                return None
            after = self._excess_after(trial)
            total = float(sum(gains[move] for move in chain)) + gains
            usable = total > least
            usable[[place for place, _ in chain]] = False
            usable[self._places, trial.homes] = False
            if not usable.any():
                return None
            least_after = float(after[usable].min())
            score = np.where(usable & (after <= max(least_after, 0.0) + rounding), total, -np.inf)
            place, home = divmod(int(score.argmax()), gains.shape[1])
            chain.append((place, home))

    def _excess_after(self, placement: PublisherPlacement) -> Floats:
        self.homes_left -= EVALUATION_HOMES + self.values.size
        return placement.excess_after_per_s()
