"""Prices of swaps with delays equal those from scratch, swap after swap."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.api.planners import improve_greedily
from regraft.api.rings import ChordRing, RingProblem, ScratchSwaps
from regraft_lab.dynatops.price_delay_swaps import DelaySwaps


def random_problem(seed: int) -> RingProblem:
    """Return up to a dozen brokers on a ring of 8 bits, up to nine topics, delays of 0 to 4."""
    rng = np.random.default_rng(seed)
    brokers, topics = int(rng.integers(2, 13)), int(rng.integers(1, 10))
    ring = ChordRing(8, tuple(sorted(rng.choice(256, brokers, replace=False).tolist())))
    half = rng.uniform(0, 2, (brokers, brokers))
    return RingProblem(
        ring,
        rng.integers(brokers, size=topics),
        rng.random((brokers, topics)) < 0.4,
        rng.integers(0, 10, topics).astype(float),
        float(rng.choice([0.5, 1.0, 3.0])),
        half + half.T,
    )


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_prices_are_those_from_scratch(seed: int) -> None:
    """Each broker's cost and each swap's change, from a random mapping through three random swaps."""
    problem = random_problem(seed)
    rng = np.random.default_rng(seed)
    mapping = rng.permutation(problem.broker_count)
    fast, slow = DelaySwaps(problem, mapping), ScratchSwaps(problem, mapping)
    for _ in range(4):
        assert fast.cost == pytest.approx(slow.cost)
        np.testing.assert_allclose(fast.broker_costs, slow.broker_costs, atol=1e-9)
        for position in range(problem.broker_count):
            np.testing.assert_allclose(fast.changes(position), slow.changes(position), atol=1e-6)
        one, other = rng.choice(problem.broker_count, 2, replace=False).tolist()
        fast.swap(one, other)
        slow.swap(one, other)


def test_the_greedy_search_takes_the_same_path() -> None:
    """SSBR-Greedy on both prices, on rings of twenty problems."""
    for seed in range(20):
        problem = random_problem(seed)
        fast, slow = improve_greedily(DelaySwaps(problem)), improve_greedily(ScratchSwaps(problem))
        assert fast.swaps == slow.swaps
        assert fast.costs == pytest.approx(slow.costs)


def test_delays_must_be_given_and_symmetric() -> None:
    """Hops of delay 1 have a faster implementation."""
    problem = random_problem(3)
    delays = problem.hop_delays
    assert delays is not None
    delays[0, 1] += 1.0
    with pytest.raises(ValueError, match="given and symmetric"):
        DelaySwaps(problem)
