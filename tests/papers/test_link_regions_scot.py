"""Our planner of links between regions: an overlay that can be computed by hand, and properties of any overlay."""

import random

import pytest

from regraft.controller.kinds.scot.reached_scot import ReachedScot
from regraft.controller.kinds.scot.scot_state import ScotState
from regraft.controller.planners.scot.link_regions_scot import RegionLinkSettings, link_regions_scot
from regraft.controller.state.planner_interface import PlannerContext
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.schemas.plan import Proposal
from tests.controller.published_windows import window_of
from tests.overlay.small_overlays import brokers_named, inventory_of, line_of, publishers_of

NAMES = brokers_named(8)
# Four regions in a line, two clusters.
LINE = ScotConfiguration(0, (NAMES[0:2], NAMES[2:4], NAMES[4:6], NAMES[6:8]), ((0, 1), (1, 2), (2, 3)))


def planned(state: ScotState, **changed: float) -> list[Proposal]:
    settings = RegionLinkSettings(**changed)  # type: ignore[arg-type]
    assert settings.errors() == []
    return link_regions_scot(state, settings, PlannerContext(), random.Random(1))


def test_the_ends_of_a_line_are_linked_if_one_wants_what_the_other_publishes() -> None:
    """From b00 to b06 a notification crosses three links of 10 and four brokers of 1, then one and two."""
    sets = publishers_of(NAMES, {"p": ("b00", [{"b06"}] * 4)})
    homes = {"p": "b00"}
    state = ScotState(LINE.with_homes(homes), inventory_of(line_of(8), {}), (window_of(0, sets, homes),))
    (proposal,) = planned(state)
    assert (proposal.cost_before_per_s, proposal.cost_after_per_s) == (4 * 34.0, 4 * 12.0)
    assert proposal.links_added == (("region 0", "region 3"),)
    assert len(proposal.links_removed) == 1
    assert "b06" in ReachedScot(state).after(proposal).configuration.neighbours["b00"]


@pytest.mark.parametrize("seed", range(5))
def test_each_exchange_has_the_predicted_cost_and_no_saving_is_left(seed: int) -> None:
    """Costs follow the exchanges before it; b02 stands in for a neighbour and keeps its places next to each other."""
    draw = random.Random(seed)
    brokers = tuple(sorted(set(NAMES) - {"b04"}))
    regions = (NAMES[0:2], NAMES[2:4], ("b02", "b05"), NAMES[6:8])
    pairs = [(a, b) for a in brokers for b in brokers if a < b]
    homes = {name: draw.choice(brokers) for name in "pqr"}
    published = {name: (home, [set(draw.sample(brokers, 2))] * draw.randrange(1, 9)) for name, home in homes.items()}
    overlay = ScotConfiguration(0, regions, LINE.region_links, tuple(sorted(homes.items())))
    inventory = inventory_of(line_of(8), {pair: draw.uniform(1, 30) for pair in pairs}).restricted_to(brokers)
    state = ScotState(overlay, inventory, (window_of(0, publishers_of(brokers, published), homes),))
    reached = ReachedScot(state)
    for proposal in planned(state, gain_share_min=0.0, exchanges_max=20):
        assert reached.cost_per_s == pytest.approx(proposal.cost_before_per_s)
        reached = reached.after(proposal)
        assert reached.cost_per_s == pytest.approx(proposal.cost_after_per_s)
        assert proposal.gain_per_s > 0
    assert planned(reached.state, gain_share_min=1e-9) == []
    assert planned(state, gain_share_min=0.99) == []
    assert len(planned(state, gain_share_min=0.0, evaluations_max=2)) <= 1
