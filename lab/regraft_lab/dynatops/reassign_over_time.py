"""Algorithm 2 of Zhao13 period by period: filter rates, test the demand, compute a reassignment, weigh its price.

Readings: the number of events of a topic in a period is drawn around its true rate (Poisson) and filtered (Eq. 8); the
next period is expected to have as many. Hop delays are taken in units of the mean delay between two brokers, so that
with w_d = 1 a relayed message weighs as much as one more mean hop of a delivery.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from regraft.api.planners import Reassignment, assign_ids, best_on_path, improve_greedily, swaps_of
from regraft.api.planning import PAPER_RATE_FILTER
from regraft.api.rings import ChordRing, RingProblem
from regraft_lab.dynatops.price_delay_swaps import DelaySwaps

Floats = NDArray[np.float64]
Way = Literal["ssbr", "assignment"]
WAYS: tuple[Way, ...] = get_args(Way)

PAPER_TEST_SHARE = 0.1  # beta of Zhao13, section 5.1.


@dataclass
class Reassigner:
    """Reassigns IDs after each period.

    ``way``: "ssbr" is DYNATOPS-Greedy, which considers hop delays; "assignment" is ours, which counts hops. ``events``
    (topics,): mean number of events of each topic in a period.
    """

    way: Way
    events: Floats
    rng: np.random.Generator
    delay_weight: float = 1.0
    test_share: float = PAPER_TEST_SHARE
    rate_filter: float = PAPER_RATE_FILTER

    def __post_init__(self) -> None:
        self._estimate: Floats | None = None

    def reassign(
        self,
        ring: ChordRing,
        roots: NDArray[np.integer],
        wanted: NDArray[np.bool_],
        hop_delays: Floats | None = None,
    ) -> Reassignment | None:
        """Return the reassignment at the end of a period, None if it gains nothing.

        ``roots`` (topics,) are positions; ``wanted`` (positions, topics) and ``hop_delays`` (positions, positions) are
        indexed by the brokers' present positions.
        """
        relative = None
        if hop_delays is not None and self.way == "ssbr":
            relative = hop_delays / _mean_between(hop_delays)
        problem = RingProblem(ring, roots, wanted, self._expected_events(), self.delay_weight, relative)
        if not problem.is_worth_computing(problem.cost(problem.present), self.test_share):
            return None
        reassignment = assign_ids(problem) if self.way == "assignment" else _solve_ssbr(problem)
        return reassignment if reassignment.net_benefit > 0 else None

    def _expected_events(self) -> Floats:
        counted = self.rng.poisson(self.events).astype(np.float64)
        old = counted if self._estimate is None else self._estimate
        self._estimate = np.asarray((1 - self.rate_filter) * old + self.rate_filter * counted)
        return self._estimate


def _solve_ssbr(problem: RingProblem) -> Reassignment:
    swaps = swaps_of(problem) if problem.hop_delays is None else DelaySwaps(problem)
    return best_on_path(problem, improve_greedily(swaps))


def _mean_between(delays: Floats) -> float:
    count = len(delays)
    return float(delays.sum() - np.trace(delays)) / (count * (count - 1))
