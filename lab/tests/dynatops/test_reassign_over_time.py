"""Algorithm 2: rates are filtered, and only what pays is proposed."""

import numpy as np
import pytest

from regraft_lab.dynatops.cut_patterns import PATTERNS, draw_problem
from regraft_lab.dynatops.reassign_over_time import WAYS, Reassigner


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("events", [0.0, 30.0, 300.0, 3000.0])
def test_proposals_pay(way: str, events: float) -> None:
    """Bft is above Cst, or there is no proposal; with hardly any events there is none."""
    problem = draw_problem(PATTERNS[1], 30, 40, 1)
    reassigner = Reassigner(way, np.full(40, events), np.random.default_rng(1))  # type: ignore[arg-type]
    found = reassigner.reassign(problem.ring, problem.roots, problem.wanted)
    if events < 1:
        assert found is None
    if events > 1000:
        assert found is not None
    if found is not None:
        assert found.net_benefit > 0
        assert found.moved == np.count_nonzero(found.mapping != np.arange(30))


def test_rates_are_filtered_over_periods() -> None:
    """A burst counts 0.3 in the next period (Eq. 8): after one without events, 1,000 per topic bring less at first."""
    problem = draw_problem(PATTERNS[1], 30, 40, 1)
    quiet = Reassigner("ssbr", np.zeros(40), np.random.default_rng(1))
    assert quiet.reassign(problem.ring, problem.roots, problem.wanted) is None
    quiet.events = np.full(40, 1000.0)
    filtered = quiet.reassign(problem.ring, problem.roots, problem.wanted)
    at_once = Reassigner("ssbr", np.full(40, 1000.0), np.random.default_rng(1))
    unfiltered = at_once.reassign(problem.ring, problem.roots, problem.wanted)
    assert filtered is not None
    assert unfiltered is not None
    assert filtered.benefit < 0.5 * unfiltered.benefit
