"""The lower bound of the cost, compared with the least cost of all trees and homes of small overlays."""

import random
from statistics import fmean

import numpy as np
import pytest

from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree import least_cost
from regraft.overlay.tree.least_cost import least_cost_per_s
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft_lab.psoop.exact_optimum import tree_costs_per_s
from tests.overlay.published_overlays import PublishedOverlay, draw_overlay
from tests.overlay.small_overlays import inventory_of, line_of, publishers_of


def optimum_per_s(overlay: PublishedOverlay) -> float:
    """Return the least cost of all trees, each with all publishers at their best homes: publishers are independent."""
    inventory, sets = overlay.inventory, DeliverySets.joined(overlay.spans)
    trees = 0.0
    for publisher in sorted({name for name, _ in sets.columns}):
        own = sets.of_publishers({publisher})
        trees = trees + np.min([tree_costs_per_s(inventory, own.at_homes({publisher: b})) for b in own.brokers], axis=0)
    return float(np.min(trees))


def test_no_tree_with_any_homes_costs_less_than_the_bound() -> None:
    """On up to six brokers no overlay costs less than the bound, which is on average two thirds of the least cost."""
    rng = random.Random(23)
    shares = []
    while len(shares) < 60:
        overlay = draw_overlay(rng, brokers_max=6)
        least_per_s = optimum_per_s(overlay)
        bound_per_s = least_cost_per_s(overlay.inventory, overlay.spans)
        assert bound_per_s <= least_per_s * (1 + 1e-9)
        if least_per_s > 0:
            shares.append(bound_per_s / least_per_s)
    assert fmean(shares) > 2 / 3


def test_a_limited_search_lowers_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a budget, or with paths of several links only bounded, the bound still holds and is no higher."""
    rng = random.Random(29)
    for _ in range(40):
        overlay = draw_overlay(rng, brokers_max=12, publishers_max=6)
        whole_per_s = least_cost_per_s(overlay.inventory, overlay.spans)
        budgets = [least_cost_per_s(overlay.inventory, overlay.spans, joined_max) for joined_max in (0, 5, 20, 10**9)]
        assert budgets == sorted(budgets)
        assert budgets[-1] == whole_per_s
        with monkeypatch.context() as patched:
            patched.setattr(least_cost, "PATHS_BROKERS_MAX", 0)
            assert 0 <= least_cost_per_s(overlay.inventory, overlay.spans) <= whole_per_s * (1 + 1e-9)


def test_with_two_brokers_the_bound_is_the_cost() -> None:
    """Both want everything, and there is only one tree."""
    tree = line_of(2)
    inventory = inventory_of(tree, {("b00", "b01"): 7.0})
    sets = publishers_of(tree.brokers, {"p": ("b00", [{"b00", "b01"}] * 5)})
    cost_per_s = overlay_cost(tree, inventory, sets).total_per_s
    assert least_cost_per_s(inventory, [sets]) == pytest.approx(cost_per_s)


def test_without_a_window_there_is_no_bound() -> None:
    """The message says that at least one window is needed."""
    with pytest.raises(ValueError, match="at least one window"):
        least_cost_per_s(inventory_of(line_of(2), {}), [])
