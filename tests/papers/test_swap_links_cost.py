"""Our planner of link swaps on the cost of Jaeger07: its guarantees, and its distance from the optimum."""

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.planners.tree.swap_links_cost import SearchSettings, swap_links_cost
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import link
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree.build_tree import cycle_links
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.overlay.tree.swap_sequences import as_swaps
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.overlay.tree.tree_costs import LinkSwap, TreeCosts
from regraft.schemas.plan import Proposal
from regraft_lab.psoop.exact_optimum import exact_optimum
from regraft_lab.psoop.small_instances import SMALL_SETTINGS, small_instance
from tests.overlay.small_overlays import NO_CAP, inventory_of, overlays, sets_of

UNBOUNDED = TreeContext(proposals_max=100)
Drawn = tuple[Inventory, list[set[str]], DeliverySets]


def state_of(inventory: Inventory, sets: DeliverySets, tree: TreeConfiguration | None = None) -> TreeState:
    return TreeState(tree or inventory.bootstrap, inventory, (ClosedWindow(0, 1000, sets),))


def planned(state: TreeState, context: TreeContext = UNBOUNDED, seed: int = 0, **changed: int) -> list[Proposal]:
    return swap_links_cost(state, SearchSettings(**changed), context, random.Random(seed))


def trees_after(state: TreeState, proposals: list[Proposal]) -> list[TreeConfiguration]:
    """Return the trees that the proposals lead through, the present one first."""
    trees = [state.configuration]
    for proposal in proposals:
        trees.append(trees[-1].replaced(trees[-1].epoch + 1, proposal.links_removed, proposal.links_added))
    return trees


@settings(max_examples=40)
@given(overlays(degree_max=4), st.integers(0, 2**32))
def test_any_prefix_of_the_proposals_saves_and_keeps_the_cap(drawn: Drawn, seed: int) -> None:
    """After each proposal of the sequence the tree has the predicted cost, less than before, within the cap."""
    inventory, _, sets = drawn
    state = state_of(inventory, sets)
    proposals = planned(state, replace(UNBOUNDED, degree_max=4), seed)
    trees = trees_after(state, proposals)
    costs = [overlay_cost(tree, inventory, sets).total_per_s for tree in trees]
    for proposal, (before, after) in zip(proposals, pairwise(costs), strict=True):
        assert proposal.cost_before_per_s == pytest.approx(before)
        assert proposal.cost_after_per_s == pytest.approx(after)
        assert after < before
    assert all(tree.degree_max <= 4 for tree in trees)


@given(overlays(count_max=8))
def test_no_single_swap_saves_in_the_end(drawn: Drawn) -> None:
    """If the planner proposes nothing more, no tree one swap away is cheaper."""
    inventory, _, sets = drawn
    state = state_of(inventory, sets)
    tree = trees_after(state, planned(state, escape_words_max=0))[-1]
    costs = state.with_configuration(tree).tree_costs
    absent = [link(a, b) for a in tree.brokers for b in tree.brokers if a < b and link(a, b) not in tree.links]
    for added in absent:
        for removed in cycle_links(tree, added):
            assert costs.gain_per_s(LinkSwap(removed, added)) <= 1e-6 * max(costs.cost_per_s, 1.0)


@pytest.mark.parametrize("setting", SMALL_SETTINGS, ids=str)
def test_ends_at_the_exact_optimum_of_small_overlays(setting: object) -> None:
    """On six brokers the planner, called until it proposes nothing, ends at the least-cost tree of all 1,296."""
    for seed in range(4):
        state = small_instance(setting, 6, seed)  # type: ignore[arg-type]
        for _ in range(10):
            proposals = planned(state)
            if not proposals:
                break
            state = state.with_configuration(trees_after(state, proposals)[-1])
        best = exact_optimum(state.inventory, state.sets)
        least = overlay_cost(best, state.inventory, state.sets).total_per_s
        assert state.tree_costs.cost_per_s == pytest.approx(least)


def test_fig_2_leads_to_a_cheapest_tree() -> None:
    """From the costlier tree of Fig. 2 the planner leads to a cheapest one and stays there (Jaeger07: 80 and 100)."""
    costs = {("B1", "B2"): 2.0, ("B1", "B3"): 5.0, ("B2", "B3"): 6.0}
    first = TreeConfiguration.of(0, ("B1", "B2", "B3"), [("B2", "B1"), ("B1", "B3")])
    second = TreeConfiguration.of(0, ("B1", "B2", "B3"), [("B1", "B2"), ("B2", "B3")])
    for wanted, dear, cost_before, cost_after in (
        ([{"B2", "B3"}] * 10, first, 100, 80),
        ([{"B2", "B3"}] + [{"B1", "B2", "B3"}] * 9, second, 107, 100),
    ):
        inventory, sets = inventory_of(dear, costs), sets_of(dear.brokers, wanted)
        state = state_of(inventory, sets, dear)
        (proposal,) = planned(state)
        assert (proposal.cost_before_per_s, proposal.cost_after_per_s) == (cost_before, cost_after)
        assert planned(state.with_configuration(trees_after(state, [proposal])[-1])) == []


def stuck_instance() -> TreeState:
    """Return a random instance of seven brokers at a local optimum: no single swap makes the tree cheaper."""
    for seed in range(50):
        state = small_instance(SMALL_SETTINGS[-1], 7, seed)
        tree = trees_after(state, planned(state, escape_words_max=0))[-1]
        stuck = state.with_configuration(tree)
        best = exact_optimum(state.inventory, state.sets)
        if stuck.tree_costs.cost_per_s > 1.01 * overlay_cost(best, state.inventory, state.sets).total_per_s:
            return stuck
    raise AssertionError("no instance gets stuck: the escape is never needed")


def test_several_links_change_together_if_no_single_swap_saves() -> None:
    """At a local optimum, the planner proposes all swaps that lead to a cheaper tree as one change."""
    stuck = stuck_instance()
    assert planned(stuck, escape_words_max=0) == []
    (proposal,) = planned(stuck)
    assert len(proposal.links_added) == len(proposal.links_removed) >= 2
    after = trees_after(stuck, [proposal])[-1]
    best = exact_optimum(stuck.inventory, stuck.sets)
    least = overlay_cost(best, stuck.inventory, stuck.sets).total_per_s
    assert overlay_cost(after, stuck.inventory, stuck.sets).total_per_s == pytest.approx(proposal.cost_after_per_s)
    assert proposal.cost_after_per_s == pytest.approx(least)
    steps = as_swaps(stuck.tree_costs, proposal.links_removed, proposal.links_added)
    assert stuck.tree_costs.gain_per_s(steps[0]) <= 0


@settings(max_examples=30)
@given(overlays(count_max=8), st.integers(0, 2**32))
def test_no_broker_is_loaded_beyond_its_cap(drawn: Drawn, seed: int) -> None:
    """No proposal brings a broker above its cap, or loads one that is already above it any further."""
    inventory, _, sets = drawn
    rng = random.Random(seed)
    loads = state_of(inventory, sets).tree_costs.loads_per_s
    caps = np.array([rng.uniform(0.7, 1.3) * max(float(load), 0.1) for load in loads])
    capped = replace(inventory, load_max_per_s=caps)
    state = state_of(capped, sets)
    before = loads
    for tree in trees_after(state, planned(state))[1:]:
        after = TreeCosts(tree, capped, state.weighted).loads_per_s
        assert (after <= np.maximum(caps, before) + 1e-9).all()
        before = after


def test_the_same_state_and_seed_give_the_same_proposals() -> None:
    """Only state, settings and seed determine the result, kicks included."""
    stuck = stuck_instance()
    again = state_of(stuck.inventory, stuck.sets, stuck.configuration)
    assert planned(stuck, seed=5) == planned(again, seed=5)


def test_a_used_up_budget_leaves_a_good_beginning() -> None:
    """A budget for one look gives the best swaps of that look; a larger budget continues the same sequence."""
    state = small_instance(SMALL_SETTINGS[2], 7, 1)
    whole = planned(state)
    short = planned(state, search_words_max=1)
    assert 1 <= len(short) < len(whole)
    assert short == whole[: len(short)]


def test_the_number_of_proposals_is_limited() -> None:
    """The sequence is cut at the limit, and its beginning stays the same."""
    state = small_instance(SMALL_SETTINGS[2], 7, 1)
    assert planned(state, replace(UNBOUNDED, proposals_max=2)) == planned(state)[:2]


@pytest.mark.parametrize("count", [2, 3])
def test_the_smallest_overlays_are_planned(count: int) -> None:
    """Two brokers have one tree, three have three: none is cheaper here, and nothing fails."""
    tree = TreeConfiguration.of(0, ("a", "b", "c")[:count], [("a", "b"), ("b", "c")][: count - 1])
    state = state_of(inventory_of(tree, {}), sets_of(tree.brokers, [{"a", "b"}] * 5))
    assert planned(state, replace(UNBOUNDED, degree_max=NO_CAP)) == []
