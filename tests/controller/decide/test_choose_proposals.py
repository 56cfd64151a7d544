"""Which accepted proposals go into one plan."""

import random
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.controller.decide.choose_proposals import Choice, plan_of
from regraft.controller.decide.judge_proposals import Situation
from regraft.controller.kinds.tree.tree_state import TreeState
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.overlay.overlay_configuration import Link, link
from regraft.overlay.tree.build_tree import random_tree
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.overlay.tree.swap_sequences import as_swaps
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.overlay.tree.tree_costs import LinkSwap, TreeCosts
from regraft.schemas.plan import PlanPhase, Proposal, Verdict
from tests.controller.choose_all import choose_proposals
from tests.controller.scripted_windows import closed_window
from tests.controller.small_kinds import tree_kind
from tests.overlay.small_overlays import NO_CAP, brokers_named, inventory_of, line_of

# Three pairs on a line with common interest: b00 and b02, b02 and b04, b00 and b06; the short links are cheap.
TREE = line_of(7)
COSTS = {("b00", "b02"): 1.0, ("b02", "b04"): 1.0, ("b00", "b05"): 1.0, ("b01", "b06"): 5.0}
INVENTORY = inventory_of(TREE, COSTS)
WANTED = [{"b00", "b02"}] * 30 + [{"b02", "b04"}] * 20 + [{"b00", "b06"}] * 5
STATE = TreeState(TREE, INVENTORY, tuple(closed_window(TREE.brokers, WANTED, 1000 * k) for k in range(3)))
JOIN_0_2, JOIN_2_4 = (("b00", "b01"), ("b00", "b02")), (("b03", "b04"), ("b02", "b04"))
JOIN_0_5, JOIN_1_6 = (("b01", "b02"), ("b00", "b05")), (("b05", "b06"), ("b01", "b06"))
SETTINGS = DecisionSettings()


SITUATION = Situation(STATE, now_ms=3500, kind=tree_kind(INVENTORY), price_per_s=0.0)


def proposal_of(removed: Link, added: Link) -> Proposal:
    return Proposal("p", (removed,), (added,), 0.0, 0.0, 0.0, "because")


def choice_of(
    *proposals: Proposal, settings: DecisionSettings = SETTINGS, degree_max: int = NO_CAP, price_per_s: float = 0.0
) -> Choice:
    situation = replace(SITUATION, kind=tree_kind(INVENTORY, degree_max), price_per_s=price_per_s)
    return choose_proposals(proposals, situation, 7, settings)


def added_by(choice: Choice) -> list[Link]:
    return [pair for one in choice.chosen for pair in one.links_added]


def test_proposals_are_costed_in_the_planners_order() -> None:
    """Proposals are taken in their order; each is costed on the tree that the earlier ones leave."""
    choice = choice_of(proposal_of(*JOIN_2_4), proposal_of(*JOIN_0_2))
    assert added_by(choice) == [("b02", "b04"), ("b00", "b02")]
    assert choice.chosen[0].cost_before_per_s == choice.cost_before_per_s
    assert choice.chosen[1].cost_before_per_s == choice.chosen[0].cost_after_per_s
    assert choice.cost_predicted_per_s == choice.chosen[1].cost_after_per_s
    assert choice.cost_predicted_per_s == pytest.approx(overlay_cost(choice.target, INVENTORY, STATE.sets).total_per_s)


def test_the_whole_plan_must_earn_the_price() -> None:
    """Two swaps that pay for the transition together are a plan, though neither pays alone."""
    both = (proposal_of(*JOIN_2_4), proposal_of(*JOIN_0_2))
    gains = [one.gain_per_s for one in choice_of(*both).chosen]
    assert len(choice_of(*both, price_per_s=max(gains) * 1.01).chosen) == 2
    expensive = choice_of(*both, price_per_s=sum(gains) * 1.01)
    assert expensive.chosen == ()
    assert [one.verdict for one in expensive.refused] == [Verdict.GAIN_BELOW_PRICE] * 2
    assert expensive.target.links == TREE.links
    assert expensive.cost_predicted_per_s == expensive.cost_before_per_s


def test_changes_of_a_plan_are_limited() -> None:
    """Beyond the limit a proposal is refused for this plan; one with several links counts each of them."""
    settings = DecisionSettings(changes_per_plan_max=1)
    choice = choice_of(proposal_of(*JOIN_0_2), proposal_of(*JOIN_2_4), settings=settings)
    assert added_by(choice) == [("b00", "b02")]
    assert [one.verdict for one in choice.refused] == [Verdict.CHANGES_PER_PLAN]
    pair = Proposal("p", (JOIN_0_2[0], JOIN_2_4[0]), (JOIN_0_2[1], JOIN_2_4[1]), 0.0, 0.0, 0.0, "because")
    assert added_by(choice_of(pair)) == [("b00", "b02"), ("b02", "b04")]
    assert [one.verdict for one in choice_of(pair, settings=settings).refused] == [Verdict.CHANGES_PER_PLAN]


def test_a_change_that_builds_on_a_refused_one_is_refused() -> None:
    """If the first step of a sequence is refused, the steps that do not need it are still chosen."""
    first = proposal_of(("b00", "b01"), ("b00", "b06"))  # saves nothing
    on_top = proposal_of(("b00", "b06"), ("b01", "b06"))
    choice = choice_of(first, on_top, proposal_of(*JOIN_0_2))
    assert added_by(choice) == [("b00", "b02")]
    assert [one.verdict for one in choice.refused] == [Verdict.GAIN_WITHIN_NOISE, Verdict.NOT_A_TREE]


def test_two_swaps_of_one_link_conflict() -> None:
    """A link can be removed only once; the second swap that removes it is a conflict."""
    choice = choice_of(proposal_of(*JOIN_0_2), proposal_of(("b00", "b01"), ("b00", "b05")))
    assert added_by(choice) == [("b00", "b02")]
    assert [one.verdict for one in choice.refused] == [Verdict.CONFLICT]
    assert "not on the cycle" in choice.refused[0].verdict_reason


def test_a_gain_already_taken_by_another_swap_is_a_conflict() -> None:
    """Once b00 reaches b06 over b05, the path over b01 is a detour."""
    wanted = [{"b00", "b06"}] * 30
    state = TreeState(TREE, INVENTORY, tuple(closed_window(TREE.brokers, wanted, 1000 * k) for k in range(3)))
    assert all(state.tree_costs.gain_per_s(LinkSwap(*swap)) > 0 for swap in (JOIN_0_5, JOIN_1_6))
    proposals = [proposal_of(*JOIN_0_5), proposal_of(*JOIN_1_6)]
    choice = choose_proposals(proposals, replace(SITUATION, state=state), 7, SETTINGS)
    assert added_by(choice) == [("b00", "b05")]
    assert [one.verdict for one in choice.refused] == [Verdict.CONFLICT]
    assert "after the earlier changes: saves -" in choice.refused[0].verdict_reason


def test_degree_is_checked_over_the_whole_plan() -> None:
    """Two swaps that each keep the cap but exceed it together do not go into one plan."""
    both = (proposal_of(*JOIN_0_2), proposal_of(*JOIN_2_4))
    assert len(choice_of(*both, degree_max=4).chosen) == 2
    capped = choice_of(*both, degree_max=3)
    assert len(capped.chosen) == 1
    assert "b02 would have 4 links, but the limit is 3" in capped.refused[0].verdict_reason


def test_plan_leads_from_the_present_tree_to_the_target() -> None:
    """The plan names exactly the links that differ, and has not begun."""
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
    """Whichever swaps are accepted, the chosen ones form a tree, keep the cap and cost what is predicted."""
    rng = random.Random(seed)
    brokers = brokers_named(8)
    tree = random_tree(brokers, 4, rng)
    costs = {link(a, b): rng.uniform(1, 20) for a in brokers for b in brokers if a < b}
    inventory = inventory_of(tree, costs)
    windows = tuple(
        closed_window(brokers, [set(rng.sample(brokers, 3)) for _ in range(30)], 1000 * k) for k in range(3)
    )
    state = TreeState(tree, inventory, windows)
    proposals = []
    for added in rng.sample(sorted(set(costs) - set(tree.links)), 10):
        proposals.append(proposal_of(rng.choice(state.tree_costs.cycle(added)), added))
    situation = Situation(state, now_ms=3500, kind=tree_kind(inventory, 4), price_per_s=0.0)
    choice = choose_proposals(proposals, situation, 1, DecisionSettings(changes_per_plan_max=4))
    assert len(choice.chosen) + len(choice.refused) == len(proposals)
    assert choice.target.degree_max <= 4
    after_per_s = overlay_cost(choice.target, inventory, state.sets).total_per_s
    assert choice.cost_predicted_per_s == pytest.approx(after_per_s)
    assert not choice.chosen or after_per_s < state.tree_costs.cost_per_s
    reached = TreeCosts(tree, inventory, state.weighted)
    for one in choice.chosen:
        for swap in as_swaps(reached, one.links_removed, one.links_added):
            reached.apply(swap)
    assert reached.links == choice.target.links


def test_what_is_certain_is_kept_if_chance_could_explain_the_plan() -> None:
    """Who shares the interest of b06 keeps changing: the second change saves on average, but hides the first gain."""
    others = [[{"b01", "b06"}] * 10, [{"b05", "b06"}] * 10] * 4
    windows = [closed_window(TREE.brokers, [{"b00", "b02"}] * 30 + wanted, 1000 * k) for k, wanted in enumerate(others)]
    situation = replace(SITUATION, state=TreeState(TREE, INVENTORY, tuple(windows)), now_ms=8500)
    both = [proposal_of(*JOIN_0_2), proposal_of(*JOIN_1_6)]
    choice = choose_proposals(both, situation, 7, SETTINGS)
    assert added_by(choice) == [("b00", "b02")]
    assert [one.links_added for one in choice.refused] == [(("b01", "b06"),)]
    certain = replace(SETTINGS, noise_factor=0.0)
    assert len(choose_proposals(both, situation, 7, certain).chosen) == 2


def test_a_plan_on_a_sample_records_its_share_and_error() -> None:
    """The error is that of the mean saved share of the cost, over windows that differ and contain a sample."""
    wishes = [WANTED, WANTED[:40], WANTED[10:]]
    windows = [closed_window(TREE.brokers, wanted, 1000 * place) for place, wanted in enumerate(wishes)]
    sampled = tuple(replace(one, sets=replace(one.sets, share=0.25, span_s=one.sets.span_s / 4)) for one in windows)
    state = TreeState(TREE, INVENTORY, sampled)
    certain = replace(SETTINGS, noise_factor=0.0)
    choice = choose_proposals([proposal_of(*JOIN_0_2)], replace(SITUATION, state=state), 7, certain)
    plan = plan_of(choice, state)
    after = TreeConfiguration.of(1, TREE.brokers, (set(TREE.links) - {JOIN_0_2[0]}) | {JOIN_0_2[1]})
    costs = [[overlay_cost(tree, INVENTORY, one.sets).total_per_s for one in sampled] for tree in (TREE, after)]
    saved = [1 - new / old for old, new in zip(*costs, strict=True)]
    assert plan.sample_share == 0.25
    expected_per_s = statistics.stdev(saved) / 3**0.5 * choice.cost_before_per_s
    assert plan.gain_error_per_s == pytest.approx(expected_per_s)
    assert plan.proposals[0].gain_error_per_s == plan.gain_error_per_s > 0
    assert plan_of(choice_of(proposal_of(*JOIN_0_2)), STATE).sample_share == 1.0
