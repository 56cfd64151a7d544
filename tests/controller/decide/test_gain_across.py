"""The error of a gain across publishers: worthless gains pass at most at the nominal rate."""

import numpy as np
import pytest

from regraft.controller.decide.gain_noise import gain_across
from tests.controller.decide.test_gain_noise import NOMINAL

RUNS = 4_000


@pytest.mark.parametrize("changed", [1.0, 0.2])
@pytest.mark.parametrize("skew", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("publishers", [12, 49])
def test_worthless_changes_pass_at_most_at_the_nominal_rate(publishers: int, skew: float, changed: float) -> None:
    """What each publisher saves is chance; rates differ up to a thousandfold. At two sigma at most one in 44 passes.

    ``changed`` is the share of publishers that a change concerns at all.
    """
    rng, passed = np.random.default_rng(publishers), 0
    for _ in range(RUNS):
        costs = np.exp(rng.normal(0, skew, publishers))
        shares = rng.normal(0, 0.2, publishers) * (rng.random(publishers) < changed)
        gain = gain_across(costs, costs - costs * shares)
        passed += gain.mean > gain.limit(2.0)
    assert passed / RUNS < NOMINAL + 3 * (NOMINAL / RUNS) ** 0.5  # Three standard errors of the count.


def test_a_gain_that_most_publishers_share_passes() -> None:
    """49 publishers that save about a third each are no chance, even as the best of 1,600 changes."""
    rng = np.random.default_rng(1)
    costs = np.exp(rng.normal(0, 0.5, 49))
    gain = gain_across(costs, costs * (1 - rng.normal(0.35, 0.15, 49)))
    assert gain.mean > gain.limit(2.0, alternatives=1_600)


def test_a_gain_of_one_publisher_does_not_pass() -> None:
    """A single publisher's gain is as large as its own spread, whatever it saves."""
    costs, saved = np.ones(49), np.zeros(49)
    saved[7] = 0.9
    gain = gain_across(costs, costs - saved)
    assert gain.mean < gain.limit(2.0)


def test_nothing_published_saves_nothing() -> None:
    """Without traffic there is no gain to trust."""
    gain = gain_across(np.full(3, 1e-300), np.full(3, 1e-300))
    assert not gain.mean > gain.limit(2.0)
