"""One broker's estimates: Eq. 6-10 of Jaeger07 by hand, and compared with the central planner's arrays."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.api.planners import LocalKnowledge, cycle_costs
from regraft_lab.psoop.distributed_estimates import cycle_share, indirect_costs, removals
from regraft_lab.psoop.distributed_messages import Cycle


def test_cost_of_an_indirect_link_is_eq_7_by_hand() -> None:
    """A line of four with p = 1 and c = 2, 3, 4: half of what the end wants passes interested brokers anyway."""
    common = {"b": 10, "c": 8, "d": 4}
    shared = {("b", "c"): 4.0, ("c", "d"): 1.0}
    costs = indirect_costs("abcd", [2, 3, 4], [1, 1, 1, 1], common.__getitem__, lambda k, j: shared[k, j])
    to_c = (8 - 4) / 8 * (2 + 1) + 3
    assert costs == [0, 2, to_c, (4 - 1) / 4 * (to_c + 1) + 4]


def test_without_common_interest_the_whole_path_is_paid() -> None:
    """If B_i shares nothing with a broker, C is the path's full cost."""
    assert indirect_costs("abc", [2, 3], [1, 1, 1], lambda _: 0, lambda *_: 0.0) == [0, 2, 6]


@given(st.integers(0, 2**32), st.integers(3, 7))
def test_the_brokers_shares_add_up_to_the_central_cycle_costs(seed: int, size: int) -> None:
    """Eq. 9: the sum of what each broker adds is what the planner computes for all of them at once."""
    rng = random.Random(seed)
    link_cost = np.array([[rng.uniform(0, 10) for _ in range(size)] for _ in range(size)])
    link_cost += link_cost.T
    processing = np.array([rng.uniform(0, 10) for _ in range(size)])
    interest = np.array([[rng.randrange(0, 4) * 25 for _ in range(size)] for _ in range(size)])
    phi = np.array([rng.uniform(0, 80) for _ in range(size)])
    cycle = Cycle(
        "drawn",
        0,
        tuple(map(str, range(size))),
        tuple(float(link_cost[place, (place + 1) % size]) for place in range(size)),
        tuple(processing.tolist()),
    )

    def share(i: int) -> list[float]:
        return cycle_share(
            cycle,
            i,
            lambda j: int(interest[i, int(j)]),
            lambda k, j: float(min(phi[i], interest[i, int(j)], interest[i, int(k)])),
        )

    known = LocalKnowledge(link_cost, processing, interest, phi)
    expected = cycle_costs(np.arange(size)[None, :], known)[0]
    assert [sum(entries) for entries in zip(*map(share, range(size)), strict=True)] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("costs", "removed"),
    [([5, 3, 4], (1,)), ([5, 3, 3], ()), ([3, 5, 3.0000000001], ()), ([2, 2, 3], (0, 1)), ([7, 6, 5], ())],
)
def test_the_link_without_which_the_cycle_costs_least_is_removed(costs: list[float], removed: tuple[int, ...]) -> None:
    """Eq. 10: the last entry is the new link's; if none is cheaper than it, ties included, nothing changes."""
    assert removals(costs) == removed
