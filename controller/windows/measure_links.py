"""Measure what links cost: a robust estimate of each link's delay over windows, compared with its cost in use.

In: round trips of closed windows, and the inventory as its file has it. Out: costs of the links whose delay differs
from the inventory. Choosing which links are probed and using the costs do not belong here.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from regraft.controller.settings.controller_settings import LinkSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.windows.estimate_links import NetworkCoordinates
from regraft.overlay.inventory.estimated_costs import EstimatedCosts
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import Link, link

VALUES_KEPT = 3  # A single outlier is outvoted, and a change shows with its second value.
VALUES_MIN = 2
SWINGS_MIN = 2.0  # How far a link must be off, relative to the difference of its last two values.
LINKS_MAX = 50_000  # Links whose values are kept; the one measured longest ago is forgotten first.
MEASURED_MS_MAX = 30 * 60_000  # How long a cost stays in use without new measurements.
UNIT_LINKS_MIN = 5  # This many links show whether the inventory's costs are delays at all.
UNIT_FACTOR_MAX = 3.0
ESTIMATED_EVERY = 12  # Windows between estimates: costs and plans do not follow each move of a place.
CHANGED_SHARE_MAX = 0.2  # Of all links: in a network at rest up to 12 % change by correction_share_min.


@dataclass
class _Measured:
    """The last values of one link, oldest first, as costs; when the last one came; the cost in use."""

    costs: deque[float] = field(default_factory=lambda: deque(maxlen=VALUES_KEPT))
    time_ms: int = 0
    in_use: float | None = None

    @property
    def median(self) -> float:
        """The robust estimate of the cost."""
        return statistics.median(self.costs)

    @property
    def swing(self) -> float:
        """The difference of the last two values."""
        return abs(self.costs[-1] - self.costs[-2])


class LinkMeter:
    """Estimates the cost of every probed link, and decides which estimates replace the inventory's costs.

    The value of a window is the least round trip, which excludes queues; the estimate is the median over the last
    windows with a value. It replaces the cost in use if it differs by more than the settings' share and by more than
    twice the difference of the last two values, so that costs do not flicker. If all links together differ by more than
    UNIT_FACTOR_MAX, the inventory uses another unit and nothing is corrected: ``unit_factor`` is the median factor, and
    ``is_usable`` is whether it is small enough.

    If the settings declare the inventory's costs placeholders, each measured link gets its estimate at once, and
    ``estimated`` has the costs of all others: that of the most expensive measured link until both ends have enough
    measurements for an estimate, so that no plan prefers unknown links.
    """

    def __init__(self, settings: LinkSettings) -> None:
        self._settings = settings
        self._measured: dict[Link, _Measured] = {}
        self._coordinates = NetworkCoordinates()
        self._windows_since_estimated = 0
        self.unit_factor = 1.0
        self.estimated: EstimatedCosts | None = None

    @property
    def is_usable(self) -> bool:
        """Return True if the inventory's costs may be delays, or are placeholders."""
        is_near = 1 / UNIT_FACTOR_MAX <= self.unit_factor <= UNIT_FACTOR_MAX
        return is_near or self._settings.estimate_unmeasured

    @property
    def costs(self) -> dict[Link, float]:
        """The costs in use instead of the inventory's."""
        if not self.is_usable:
            return {}
        return {pair: one.in_use for pair, one in self._measured.items() if one.in_use is not None}

    def estimate(self, pair: Link) -> float | None:
        """Return the estimate of a link's cost, in use or not; None if there is none."""
        measured = self._measured.get(pair)
        return (
            measured.median if measured is not None and len(measured.costs) >= VALUES_MIN and self.is_usable else None
        )

    def add(self, window: ClosedWindow, inventory: Inventory) -> dict[Link, tuple[float, float]]:
        """Add a window; return the links whose cost changes, each with the cost before and after."""
        if not self._settings.cost_per_ms or inventory.prices is not None:  # A price does not depend on delays.
            return {}
        before = self.costs
        for pair, rtt_ms in _least_rtts_ms(window).items():
            measured = self._measured.setdefault(pair, _Measured())
            measured.costs.append(rtt_ms / 2 * self._settings.cost_per_ms)
            measured.time_ms = window.end_ms
            self._judge(measured, self._expected(pair, inventory))
        self._forget(window.end_ms)
        self._judge_unit(inventory)
        if self._settings.estimate_unmeasured:
            self._estimate(inventory)
        after = self.costs
        changed = {pair for pair in before.keys() | after.keys() if before.get(pair) != after.get(pair)}
        expected = {pair: self._expected(pair, inventory) for pair in sorted(changed)}
        return {pair: (before.get(pair, cost), after.get(pair, cost)) for pair, cost in expected.items()}

    def refit(self, links: Iterable[Link]) -> bool:
        """Use the present estimates of these links; return True if a cost changes."""
        before = self.costs
        for pair in links:
            estimate = self.estimate(pair)
            if estimate is not None:
                self._measured[pair].in_use = estimate
        return self.costs != before

    def _judge(self, known: _Measured, cost_expected: float) -> None:
        if len(known.costs) < VALUES_MIN:
            return
        if self._settings.estimate_unmeasured and known.in_use is None:
            known.in_use = known.median
            return
        present, median = cost_expected if known.in_use is None else known.in_use, known.median
        least = max(self._settings.correction_share_min * present, SWINGS_MIN * known.swing)
        if abs(median - present) > least:
            is_as_expected = abs(median - cost_expected) <= self._settings.correction_share_min * cost_expected
            known.in_use = None if is_as_expected and not self._settings.estimate_unmeasured else median

    def _expected(self, pair: Link, inventory: Inventory) -> float:
        """Return the cost of a link without measurements."""
        estimate = None if self.estimated is None else self.estimated.cost_of_link(pair)
        return inventory.cost_of_link(*pair) if estimate is None else estimate

    def _estimate(self, inventory: Inventory) -> None:
        """Improve the places of brokers, and use them if that changes the costs of enough links."""
        costs = {pair: one.in_use for pair, one in self._measured.items() if one.in_use is not None}
        self._coordinates.relax(costs)
        self._windows_since_estimated += 1
        if self.estimated is None and costs:
            self.estimated = replace(EstimatedCosts.empty(inventory.brokers), unknown_cost=max(costs.values()))
        if not self._coordinates.is_settled or self._windows_since_estimated < ESTIMATED_EVERY:
            return
        estimates, share = self._coordinates.estimates(inventory.brokers), self._settings.correction_share_min
        if self.estimated is None or self.estimated.share_changed(estimates, share) > CHANGED_SHARE_MAX:
            self.estimated = replace(estimates, unknown_cost=max(costs.values()))
        self._windows_since_estimated = 0

    def _judge_unit(self, inventory: Inventory) -> None:
        factors = [
            one.median / cost
            for pair, one in self._measured.items()
            if len(one.costs) >= VALUES_MIN and (cost := inventory.cost_of_link(*pair)) > 0
        ]
        self.unit_factor = statistics.median(factors) if len(factors) >= UNIT_LINKS_MIN else 1.0

    def _forget(self, now_ms: int) -> None:
        old = [pair for pair, one in self._measured.items() if now_ms - one.time_ms > MEASURED_MS_MAX]
        if len(self._measured) - len(old) > LINKS_MAX:
            by_age = sorted(self._measured, key=lambda pair: self._measured[pair].time_ms)
            old = by_age[: len(by_age) - LINKS_MAX]
        for pair in old:
            del self._measured[pair]


def counted_drift(
    meter: LinkMeter, window: ClosedWindow, costs: Mapping[Link, float], counted_per_s: float, model_per_s: float
) -> float:
    """Return by what share the counted messages cost more at measured delays than in the model; may be negative.

    ``costs`` are the links' costs in use, from which both ``counted_per_s`` and ``model_per_s`` were computed.
    """
    for queue in window.queues:
        pair = link(queue.broker, queue.peer) if queue.peer else None
        measured = None if pair is None else meter.estimate(pair)
        if pair is not None and measured is not None and pair in costs:
            counted_per_s += queue.notifications_out_per_s * (measured - costs[pair])
    return counted_per_s / model_per_s - 1 if model_per_s > 0 else 0.0


def _least_rtts_ms(window: ClosedWindow) -> dict[Link, float]:
    least_ms: dict[Link, float] = {}
    for rtt in window.rtts:
        pair = link(rtt.broker, rtt.peer)
        least_ms[pair] = min(least_ms.get(pair, rtt.rtt_ms_min), rtt.rtt_ms_min)
    return least_ms
