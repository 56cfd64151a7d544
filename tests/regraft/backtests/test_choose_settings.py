"""Choosing settings by a recording: differences that the windows show count, differences within the noise do not."""

import random

import pytest

from regraft.backtests.backtest_outcome import CostPoint, Mode, Outcome, PlanMark
from regraft.backtests.choose_settings import HORIZONS_LIFETIMES, Candidate, candidates_for, choose
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.overlay.tree.tree_configuration import TreeConfiguration

WINDOWS = 100


def traffic(seed: int) -> list[float]:
    """Return the costs of windows with the same subscriptions, with strong noise that all candidates share."""
    rng = random.Random(seed)
    costs, swing = [], 0.0
    for _ in range(WINDOWS):
        swing = 0.8 * swing + rng.gauss(0, 100)
        costs.append(1_000 + swing)
    return costs


def outcome(name: str, costs: list[float], links: int, first: int = 0) -> Outcome:
    """Return a candidate that cost this from a window on, and exchanged links in one plan."""
    points = tuple(CostPoint((first + place) * 5_000, cost, 2_000.0) for place, cost in enumerate(costs))
    plans = (PlanMark("p", 0, links, 0, 0, 1.0, None),)
    return Outcome(name, Mode.OPEN_LOOP, points, plans)


def own(costs: list[float], share: float, seed: int) -> list[float]:
    """Return the same traffic on another overlay, more expensive by a share, with some independent noise."""
    rng = random.Random(seed)
    return [cost * (1 + share) + rng.gauss(0, 20) for cost in costs]


@pytest.mark.parametrize("seed", range(5))
def test_a_real_difference_is_found_in_shared_noise(seed: int) -> None:
    """A candidate 3 % more expensive than the best is distinguished although the traffic varies by 15 %."""
    base = traffic(seed)
    found = choose([outcome("best", own(base, 0.0, 1), 50), outcome("dear", own(base, 0.03, 2), 1)])
    assert [one.name for one in found.compared] == ["best", "dear"]
    best, dear = found.compared
    assert best.is_indistinguishable
    assert not dear.is_indistinguishable
    assert dear.low_share < 0.03 < dear.high_share
    assert found.chosen is best


@pytest.mark.parametrize("seed", range(5))
def test_of_equally_cheap_candidates_the_one_that_changes_least_is_chosen(seed: int) -> None:
    """If the windows do not distinguish two candidates, the effort decides."""
    base = traffic(seed)
    found = choose([outcome("busy", own(base, 0.0, 1), 50), outcome("calm", own(base, 0.0005, 2), 3)])
    assert found.chosen.name == "calm"
    assert "Use calm: of" in found.text
    assert {row[0]: row[-1] for row in found.rows} == {"busy": "as good", "calm": "use this"}


def test_only_common_windows_count() -> None:
    """A candidate that ran on more expensive traffic is not penalised; a lack of common windows is reported."""
    costs = [1_000.0] * WINDOWS
    found = choose([outcome("long", [9_000.0] * 50 + costs, 1), outcome("short", costs, 1, first=50)])
    assert found.windows == WINDOWS
    assert [one.above_share for one in found.compared] == [0.0, 0.0]
    with pytest.raises(ValueError, match="share no window"):
        choose([outcome("early", costs, 1), outcome("late", costs, 1, first=WINDOWS)])


def test_candidates_are_all_suitable_planners_and_chains_at_each_horizon() -> None:
    """There are no planners of another kind of overlay, and no duplicates."""
    found = candidates_for(TreeConfiguration.KIND, "swap_links_ci")
    names = [one.name for one in found]
    assert len(set(names)) == len(names)
    assert Candidate("swap_links_cost") in found
    assert not any("dynatops" in name for name in names)
    for chain in ("swap_links_ci", ControllerSettings.planner):
        assert [one.horizon_lifetimes for one in found if one.planner == chain] == list(HORIZONS_LIFETIMES)
