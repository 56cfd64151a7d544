"""The cost of a tree by publisher adds up to the cost that everything else is compared by."""

import random

import pytest

from regraft.controller.kinds.tree.tree_kind import TreeKind
from regraft.overlay.tree.overlay_cost import overlay_cost
from tests.controller.published_windows import state_of
from tests.overlay.published_overlays import draw_overlay


@pytest.mark.parametrize("seed", range(8))
def test_publishers_add_up_to_the_cost(seed: int) -> None:
    """Each notification is its publisher's, at the homes of the configuration."""
    rng = random.Random(seed)
    state = state_of(draw_overlay(rng, brokers_max=9), rng)
    kind = TreeKind(state.inventory, degree_max=9)
    reached = kind.reached(state)
    costs = kind.costs_by_publisher_per_s(reached, reached)
    whole = overlay_cost(state.configuration, state.inventory, state.sets).total_per_s
    assert costs is not None
    assert [one.sum() for one in costs] == pytest.approx([whole, whole])
