"""What planners get: settings that are checked, and prices that are computed once per tree."""

import random
from dataclasses import replace

from regraft.controller.planners.tree.relocate_publishers_joint import JointSettings
from regraft.overlay.tree.build_tree import random_tree
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from tests.controller.published_windows import state_of
from tests.overlay.published_overlays import draw_overlay


def test_settings_of_homes_are_checked() -> None:
    """The message names an invalid setting with its value and the limit."""
    (found,) = JointSettings(delay_weight=1.5).errors()
    assert found.startswith("delay_weight is 1.5: must be a share from 0 to 1")
    assert JointSettings().errors() == []


def test_prices_of_homes_are_computed_once_per_tree() -> None:
    """They depend on the links but not on the homes, so a state with publishers moved reuses them."""
    rng = random.Random(4)
    drawn = draw_overlay(rng, brokers_max=9)
    state = state_of(drawn, rng)
    tree = drawn.configuration
    moved = TreeConfiguration.of(0, tree.brokers, tree.links, dict.fromkeys(drawn.homes, tree.brokers[0]))
    priced = state.publisher_costs
    assert state.with_configuration(moved).publisher_costs is priced
    assert state.with_configuration(replace(moved, homes=())).publisher_costs is priced
    other = random_tree(tree.brokers, 2, rng)
    assert other.links != tree.links
    assert state.with_configuration(other).publisher_costs is not priced
