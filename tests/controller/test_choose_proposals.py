"""Which accepted proposals go into one plan."""

import random

from hypothesis import given
from hypothesis import strategies as st

from controller.choose_proposals import Choice, choose_proposals, plan_of
from controller.controller_settings import DecisionSettings
from controller.planner_interface import OverlayState
from overlay.configuration import Link, link
from overlay.cost import overlay_cost
from overlay.swap_cost import LinkSwap
from overlay.tree import random_tree
from schemas.plan import PlanPhase, Proposal, Verdict
from tests.controller.scripted_windows import closed_window
from tests.overlay.small_overlays import NO_CAP, brokers_named, inventory_of, line_of

# Three wishes on a line: b00 with b02, b02 with b04, b00 with b06; the short ways are cheap.
TREE = line_of(7)
COSTS = {("b00", "b02"): 1.0, ("b02", "b04"): 1.0, ("b00", "b05"): 1.0, ("b01", "b06"): 5.0}
INVENTORY = inventory_of(TREE, COSTS)
WANTED = [{"b00", "b02"}] * 30 + [{"b02", "b04"}] * 20 + [{"b00", "b06"}] * 5
STATE = OverlayState(TREE, INVENTORY, tuple(closed_window(TREE.brokers, WANTED, 1000 * k) for k in range(3)))
JOIN_0_2, JOIN_2_4 = (("b00", "b01"), ("b00", "b02")), (("b03", "b04"), ("b02", "b04"))
JOIN_0_5, JOIN_1_6 = (("b01", "b02"), ("b00", "b05")), (("b05", "b06"), ("b01", "b06"))
SETTINGS = DecisionSettings()


def proposal_of(removed: Link, added: Link, verdict: Verdict = Verdict.ACCEPTED) -> Proposal:
    costs = STATE.swap_costs
    after = costs.cost_after_per_s(LinkSwap(removed, added))
    return Proposal("p", removed, added, costs.cost_per_s, after, 0.0, "because", verdict)


def choice_of(*proposals: Proposal, settings: DecisionSettings = SETTINGS, degree_max: int = NO_CAP) -> Choice:
    return choose_proposals(STATE, proposals, 7, degree_max, settings)


def test_best_comes_first_and_costs_build_on_each_other() -> None:
    """The proposal with the largest gain leads; the next is costed on the tree after it."""
    choice = choice_of(proposal_of(*JOIN_2_4), proposal_of(*JOIN_0_2))
    assert [one.link_added for one in choice.chosen] == [("b00", "b02"), ("b02", "b04")]
    assert choice.chosen[1].cost_before_per_s == choice.chosen[0].cost_after_per_s
    assert choice.cost_predicted_per_s == choice.chosen[1].cost_after_per_s
    assert choice.cost_predicted_per_s == overlay_cost(choice.target, INVENTORY, STATE.sets).total_per_s


def test_refused_proposals_stay_refused() -> None:
    """What the judge refused is handed on with its verdict and never chosen."""
    muted = proposal_of(*JOIN_0_2, Verdict.MUTED)
    choice = choice_of(muted)
    assert choice.chosen == ()
    assert choice.refused == (muted,)


def test_changes_of_a_plan_are_limited() -> None:
    """Beyond the limit an accepted proposal is refused for this plan."""
    settings = DecisionSettings(changes_per_plan_max=1)
    choice = choice_of(proposal_of(*JOIN_0_2), proposal_of(*JOIN_2_4), settings=settings)
    assert [one.link_added for one in choice.chosen] == [("b00", "b02")]
    assert [one.verdict for one in choice.refused] == [Verdict.CHANGES_PER_PLAN]


def test_two_swaps_of_one_link_conflict() -> None:
    """A link can be removed once; the second swap that wants it is a conflict."""
    choice = choice_of(proposal_of(*JOIN_0_2), proposal_of(("b00", "b01"), ("b00", "b05")))
    assert [one.link_added for one in choice.chosen] == [("b00", "b02")]
    assert [one.verdict for one in choice.refused] == [Verdict.CONFLICT]
    assert "not on the cycle" in choice.refused[0].verdict_reason


def test_gain_that_another_swap_has_taken_already_conflicts() -> None:
    """Once b00 reaches b06 over b05, the way over b01 is a detour."""
    wanted = [{"b00", "b06"}] * 30
    state = OverlayState(TREE, INVENTORY, tuple(closed_window(TREE.brokers, wanted, 1000 * k) for k in range(3)))
    proposals = []
    for removed, added in (JOIN_0_5, JOIN_1_6):
        after = state.swap_costs.cost_after_per_s(LinkSwap(removed, added))
        proposals.append(Proposal("p", removed, added, state.swap_costs.cost_per_s, after, 0.0, ""))
    assert all(one.gain_per_s > 0 for one in proposals)
    choice = choose_proposals(state, proposals, 7, NO_CAP, SETTINGS)
    assert [one.link_added for one in choice.chosen] == [("b00", "b05")]
    assert [one.verdict for one in choice.refused] == [Verdict.CONFLICT]
    assert "after the earlier changes it saves -" in choice.refused[0].verdict_reason


def test_degree_is_checked_over_the_whole_plan() -> None:
    """Two swaps that each keep the cap and together break it do not go into one plan."""
    both = (proposal_of(*JOIN_0_2), proposal_of(*JOIN_2_4))
    assert len(choice_of(*both, degree_max=4).chosen) == 2
    capped = choice_of(*both, degree_max=3)
    assert len(capped.chosen) == 1
    assert "b02 would have 4 links, limit 3" in capped.refused[0].verdict_reason


def test_plan_leads_from_the_present_tree_to_the_target() -> None:
    """The plan names exactly the links that differ and is not yet begun."""
    choice = choice_of(proposal_of(*JOIN_0_2), proposal_of(*JOIN_2_4))
    plan = plan_of(choice, STATE)
    assert plan.plan == "plan-7"
    assert (plan.epoch_from, plan.epoch_to) == (0, 7)
    assert TREE.replaced(7, plan.links_removed, plan.links_added) == choice.target
    assert plan.links_target == choice.target.links
    assert plan.window_end_ms == STATE.newest.end_ms
    assert (plan.phase, plan.history) == (PlanPhase.PREPARING, ())
    assert plan.cost_predicted_per_s < plan.cost_before_per_s


@given(st.integers(0, 2**32))
def test_any_choice_is_a_cheaper_tree_under_the_cap(seed: int) -> None:
    """Whatever swaps are accepted, what is chosen of them is a tree, keeps the cap and costs what is predicted."""
    rng = random.Random(seed)
    brokers = brokers_named(8)
    tree = random_tree(brokers, 4, rng)
    costs = {link(a, b): rng.uniform(1, 20) for a in brokers for b in brokers if a < b}
    inventory = inventory_of(tree, costs)
    windows = tuple(
        closed_window(brokers, [set(rng.sample(brokers, 3)) for _ in range(30)], 1000 * k) for k in range(3)
    )
    state = OverlayState(tree, inventory, windows)
    proposals = []
    for added in rng.sample(sorted(set(costs) - set(tree.links)), 10):
        swap = LinkSwap(rng.choice(state.swap_costs.cycle(added)), added)
        after = state.swap_costs.cost_after_per_s(swap)
        proposals.append(Proposal("p", swap.removed, added, state.swap_costs.cost_per_s, after, 0.0, ""))
    choice = choose_proposals(state, proposals, 1, 4, DecisionSettings(changes_per_plan_max=4))
    assert len(choice.chosen) + len(choice.refused) == len(proposals)
    assert choice.target.degree_max <= 4
    after_per_s = overlay_cost(choice.target, inventory, state.sets).total_per_s
    assert abs(choice.cost_predicted_per_s - after_per_s) < 1e-6
    assert not choice.chosen or after_per_s < state.swap_costs.cost_per_s
