"""Our escape of links and homes together: where the planners of either are stuck, and the optimum of few brokers."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.planners.planner_registry import planner_names, planner_of
from regraft.controller.planners.tree.escape_overlay_cost import EscapeSettings, escape_overlay_cost
from regraft.controller.planners.tree.steps.price_every_tree import best_tree, every_tree
from regraft.controller.planners.tree.steps.search_swaps import Search
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.overlay.tree.tree_costs import TreeCosts
from regraft.schemas.plan import Proposal
from regraft_lab.psoop.exact_optimum import all_trees, tree_at, tree_costs_per_s
from tests.overlay.published_overlays import Published, PublishedOverlay, draw_overlay, published_overlays, spans_of
from tests.overlay.small_overlays import NO_CAP, inventory_of
from tests.papers.test_search_overlay_cost import (
    cost_of,
    least_cost_per_s,
    overlays_after,
    overlays_as_predicted,
    state_of,
)

CONTEXT = TreeContext(proposals_max=100)
DEFAULT = planner_names(ControllerSettings.planner)


def planned(state: TreeState, context: TreeContext = CONTEXT, seed: int = 0) -> list[Proposal]:
    return escape_overlay_cost(state, EscapeSettings(), context, random.Random(seed))


def settled(state: TreeState, names: tuple[str, ...], context: TreeContext = CONTEXT) -> TreeState:
    """Return the state once none of the planners, each in its turn, proposes anything more."""
    for seed in range(12):
        before = state.configuration
        for name in names:
            proposals = planner_of(name)(state, context, random.Random(seed))
            state = state.with_configuration(overlays_after(state, proposals)[-1])
        if (before.links, before.homes) == (state.configuration.links, state.configuration.homes):
            break
    return state


def relay() -> TreeState:
    """Return a tree h-a, h-b with a publisher at h and its subscribers at a and b; 100 notifications in a second."""
    tree = TreeConfiguration.of(0, ("a", "b", "h"), [("h", "a"), ("h", "b")], {"p": "h"})
    inventory = inventory_of(tree, {("h", "a"): 1.0, ("h", "b"): 1.0, ("a", "b"): 1.5})
    made = [Published("p", 0, frozenset({"a", "b"}))] * 20
    return state_of(PublishedOverlay(inventory, {"p": "h"}, made, spans_of(tree.brokers, made, {"p": "h"}, [1.0])))


def test_a_home_that_relays_between_its_own_subscribers_is_left_together_with_its_links() -> None:
    """With 20 notifications a second: 100/s at h, no swap and no move helps; at a subscriber, with a-b, 70/s."""
    state = relay()
    assert cost_of(state, state.configuration) == 100
    assert settled(state, DEFAULT[:2]).configuration == state.configuration
    (proposal,) = planned(state)
    assert proposal.links_added == (("a", "b"),)
    assert [(move.client, move.home_from) for move in proposal.moves] == [("p", "h")]
    reached = settled(state, DEFAULT).configuration
    assert cost_of(state, reached) == proposal.cost_after_per_s == 70


def test_kicks_free_a_home_that_relays_under_caps_of_load() -> None:
    """Three brokers with room for all: with caps not every tree is priced, and kicks lead to the same 70/s."""
    state = relay()
    capped = replace(state.inventory, load_max_per_s=np.full(3, 1_000.0))
    proposals = planned(TreeState(state.configuration, capped, state.windows))
    assert proposals[-1].cost_after_per_s == 70


def test_the_default_planners_end_at_the_joint_optimum_of_small_overlays() -> None:
    """Up to six brokers: on no tree and with no homes does the traffic cost less."""
    rng = random.Random(17)
    for _ in range(25):
        state = state_of(draw_overlay(rng, brokers_max=6, publishers_max=4))
        least_per_s = least_cost_per_s(state)
        assert cost_of(state, settled(state, DEFAULT).configuration) == pytest.approx(least_per_s)


@settings(max_examples=30, deadline=None)
@given(published_overlays(), st.integers(1, 3), st.integers(1, 2), st.integers(3, 5), st.integers(0, 2**32))
def test_any_prefix_saves_within_one_plan_and_the_cap(
    overlay: PublishedOverlay, links_max: int, moves_max: int, cap: int, seed: int
) -> None:
    """After each proposal the cost is the predicted one and less; all exchange and move no more than a plan may."""
    state = state_of(overlay)
    cap = max(cap, state.configuration.degree_max)
    limits = replace(CONTEXT, degree_max=cap, links_max=links_max, moves_max=moves_max)
    proposals = planned(state, limits, seed)
    reached = overlays_as_predicted(state, proposals)
    assert all(one.degree_max <= cap for one in reached)
    assert sum(len(one.links_added) for one in proposals) <= links_max
    assert sum(len(one.moves) for one in proposals) <= moves_max


def test_nothing_is_proposed_if_publishers_cannot_move() -> None:
    """If their homes are unknown, links are left to the planner of links."""
    state = relay()
    unknown = TreeConfiguration.of(0, state.configuration.brokers, state.configuration.links, {})
    assert planned(state.with_configuration(unknown)) == []


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6])
def test_every_tree_is_there_once(count: int) -> None:
    """There are n^(n-2) (Cayley); what wants a set of brokers crosses a link if some are on either side of it."""
    trees = every_tree(count)
    distinct = {frozenset(tuple(sorted(pair)) for pair in links.tolist()) for links in trees.ends}
    assert len(distinct) == len(trees.ends) == count ** (count - 2)
    assert (trees.passes.sum(axis=1)[:, 1:] == trees.crosses.sum(axis=1)[:, 1:] + 1).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_the_best_tree_is_that_of_all_trees_within_the_caps(seed: int, is_capped: bool) -> None:
    """Caps of degree and load and the limit of a plan: no tree that keeps them is cheaper."""
    rng = random.Random(seed)
    overlay = draw_overlay(rng, brokers_max=5)
    state = state_of(overlay)
    present = state.tree_costs
    caps = np.array([rng.uniform(0.7, 1.3) * max(float(load), 0.1) for load in present.loads_per_s])
    degree_max, links_max = rng.choice([2, 3, NO_CAP]), rng.choice([1, 2, None])
    search = Search(1, degree_max, caps if is_capped else None, present=frozenset(present.links), links_max=links_max)
    reached = best_tree(present, search) or present
    names, sets = state.inventory.brokers, state.sets
    least_per_s = present.cost_per_s
    for place, cost_per_s in enumerate(tree_costs_per_s(state.inventory, sets).tolist()):
        trial = TreeCosts(tree_at(names, place), state.inventory, present.sets)
        if (
            (trial.degrees <= np.maximum(degree_max, present.degrees)).all()
            and (links_max is None or len(set(trial.links) - set(present.links)) <= links_max)
            and (not is_capped or (trial.loads_per_s <= np.maximum(caps, present.loads_per_s) * (1 + 1e-9)).all())
        ):
            least_per_s = min(least_per_s, cost_per_s)
    assert len(all_trees(len(names)).side) == len(every_tree(len(names)).ends)
    assert reached.cost_per_s == pytest.approx(least_per_s)
