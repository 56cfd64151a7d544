"""A change that lets one death cut off more has to save more; a setting says how much."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from regraft.controller.decide.judge_proposals import Situation, frailty_price_per_s
from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.planners.tree.swap_links_cost import SearchSettings, swap_links_cost
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.plan import Proposal, Verdict
from tests.controller.choose_all import choose_proposals
from tests.controller.small_kinds import tree_kind
from tests.overlay.small_overlays import brokers_named, inventory_of, publishers_of

# Two pairs of brokers around two hubs, b00 and b03. Moving b04 from b03 to b00 almost makes b00 the hub of a star.
BROKERS = brokers_named(6)
TREE = TreeConfiguration.of(
    0, BROKERS, [("b00", "b01"), ("b00", "b02"), ("b00", "b03"), ("b03", "b04"), ("b03", "b05")], {}
)
TO_STAR = Proposal("p", (("b03", "b04"),), (("b00", "b04"),), 0.0, 0.0, 0.0, "shorter")


def state_of(link_cost: float) -> TreeState:
    """Return a state in which every broker wants what b01 and b04 publish; the star's link costs ``link_cost``."""
    inventory: Inventory = inventory_of(TREE, {("b00", "b04"): link_cost, ("b03", "b04"): 11.0})
    homes = {"p": "b01", "q": "b04"}
    windows = []
    for start_ms in (0, 1000, 2000):
        drawn = publishers_of(BROKERS, {name: (home, [set(BROKERS)] * 10) for name, home in homes.items()})
        sets = replace(drawn, columns=tuple((name, block + start_ms) for name, block in drawn.columns))
        handed = {(name, broker): 10 for name in homes for broker in BROKERS}
        window = ClosedWindow(start_ms, start_ms + 1000, sets, epoch_min=0, epoch_max=0, homes=homes)
        windows.append(replace(window, local_deliveries=handed))
    return TreeState(TREE.with_homes(homes), inventory, tuple(windows))


def judged(link_cost: float, weight: float) -> Proposal:
    state = state_of(link_cost)
    situation = Situation(state, now_ms=3500, kind=tree_kind(state.inventory), price_per_s=0.0)
    settings = DecisionSettings(frailty_weight=weight, gain_share_min=0.0)
    choice = choose_proposals([TO_STAR], situation, 7, settings)
    (found,) = choice.chosen + choice.refused
    return found


def test_frailty_is_computed_from_the_windows() -> None:
    """Of 120 deliveries/s 20 occur at the publishers' own brokers; b00 is on the path of most others."""
    cut_off = state_of(10.0).cut_off
    assert cut_off is not None
    # From b01 to b02, b03, b04 and b05, and from b04 to b01 and b02: six of twelve paths, 10/s each.
    assert (cut_off.worst_broker, cut_off.worst_share) == ("b00", pytest.approx(60 / 120))


def test_a_small_gain_is_not_worth_a_frailer_overlay() -> None:
    """Without the weight the same change is made; with it, only once it saves enough."""
    assert judged(9.0, 0.0).verdict is Verdict.ACCEPTED
    refused = judged(9.0, 0.3)
    assert refused.verdict is Verdict.FRAILTY
    assert "one death would cut off at most 66.7% (b00) of all deliveries, 50.0% (b00) before" in refused.verdict_reason
    accepted = judged(0.5, 0.3)
    assert accepted.verdict is Verdict.ACCEPTED
    assert "66.7% (b00)" in accepted.verdict_reason


def test_unknown_or_decreasing_frailty_has_no_price() -> None:
    """A change that makes the overlay less frail is judged by its cost alone."""
    now = state_of(10.0)
    star = now.with_configuration(now.configuration.replaced(1, TO_STAR.links_removed, TO_STAR.links_added))
    assert frailty_price_per_s(now.cut_off, star.cut_off, 100.0, 0.3) == pytest.approx(100 * 0.3 / 6)
    assert frailty_price_per_s(star.cut_off, now.cut_off, 100.0, 0.3) == 0
    assert frailty_price_per_s(None, now.cut_off, 100.0, 0.3) == 0


def test_the_planner_chooses_another_swap_if_the_best_one_makes_the_overlay_frail() -> None:
    """It saves half as much, and one death cuts off no more than before."""
    state = state_of(9.0)
    found = []
    for weight in (0.0, 0.3):
        context = TreeContext(frailty_weight=weight)
        (proposal,) = swap_links_cost(state, SearchSettings(escape_words_max=0), context, random.Random(1))
        tree = state.configuration.replaced(1, proposal.links_removed, proposal.links_added)
        cut_off = state.with_configuration(tree).cut_off
        assert cut_off is not None
        found.append((proposal.gain_per_s, cut_off.worst_share))
    assert found == [pytest.approx((40.0, 40 / 60)), pytest.approx((20.0, 30 / 60))]
