"""Jaeger07: worked examples, equations and interpretations of Cost and Interest, lMST and lMIT."""

import random
from itertools import pairwise
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.planners.planner_registry import planner_of
from regraft.controller.planners.tree.swap_links_ci import (
    LocalKnowledge,
    cycle_costs,
    indirect_costs,
    mean_common_interest,
    paths_within,
    wanted_links,
)
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import link
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree.build_tree import random_tree
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.plan import Proposal
from tests.overlay.small_overlays import NO_CAP, inventory_of, line_of, overlays, sets_of

PAPER_PLANNERS = ("swap_links_ci", "swap_links_lmst", "swap_links_lmit")
LINK_PLANNERS = ("swap_links_cost", *PAPER_PLANNERS)
ASKED: list[tuple[str, dict[str, str]]] = [
    ("swap_links_cost", {}),
    *((name, {"order": order}) for name in PAPER_PLANNERS for order in ("gain", "arrival")),
]
UNBOUNDED = TreeContext(proposals_max=100)

# Fig. 2 with p = 1: the figures in the text determine these link costs.
FIG_2_COSTS = {("B1", "B2"): 2.0, ("B1", "B3"): 5.0, ("B2", "B3"): 6.0}
FIG_2A = TreeConfiguration.of(0, ("B1", "B2", "B3"), [("B2", "B1"), ("B1", "B3")])
FIG_2B = TreeConfiguration.of(0, ("B1", "B2", "B3"), [("B1", "B2"), ("B2", "B3")])
TEN_FOR_B3 = [{"B2", "B3"}] * 10
TEN_AND_NINE_FOR_B1 = [{"B2", "B3"}] + [{"B1", "B2", "B3"}] * 9


def state_of(inventory: Inventory, sets: DeliverySets, configuration: TreeConfiguration | None = None) -> TreeState:
    return TreeState(configuration or inventory.bootstrap, inventory, (ClosedWindow(0, 1000, sets),))


def planned(name: str, state: TreeState, context: TreeContext = UNBOUNDED, **changed: object) -> list[Proposal]:
    return planner_of(name, **changed)(state, context, random.Random(0))


@pytest.mark.parametrize(
    ("tree", "wanted", "cost"),
    [
        (FIG_2A, TEN_FOR_B3, 100),
        (FIG_2B, TEN_FOR_B3, 80),
        (FIG_2B, TEN_AND_NINE_FOR_B1, 107),
        # The text says 80, but its own expression gives 100; both are "lower" than 107.
        (FIG_2A, TEN_AND_NINE_FOR_B1, 100),
    ],
)
def test_fig_2_costs(tree: TreeConfiguration, wanted: list[set[str]], cost: float) -> None:
    """The four costs that the text works out for Fig. 2."""
    assert overlay_cost(tree, inventory_of(tree, FIG_2_COSTS), sets_of(tree.brokers, wanted)).total_per_s == cost


def test_fig_2a_is_swapped_when_b1_wants_nothing() -> None:
    """Without interest at B1, B2 and B3 are linked directly, and the tree costs 80 instead of 100."""
    state = state_of(inventory_of(FIG_2A, FIG_2_COSTS), sets_of(FIG_2A.brokers, TEN_FOR_B3))
    (proposal,) = planned("swap_links_ci", state)
    assert proposal.links_added == (("B2", "B3"),)
    assert (proposal.cost_before_per_s, proposal.cost_after_per_s) == (100, 80)


def test_lmit_builds_the_maximum_interest_tree_of_fig_2() -> None:
    """lMIT leads from tree (a) to tree (b), although (b) costs 107 and (a) 100."""
    state = state_of(inventory_of(FIG_2A, FIG_2_COSTS), sets_of(FIG_2A.brokers, TEN_AND_NINE_FOR_B1))
    (proposal,) = planned("swap_links_lmit", state)
    assert proposal.links_added == (("B2", "B3"),)
    after = FIG_2A.replaced(1, proposal.links_removed, proposal.links_added)
    assert overlay_cost(after, state.inventory, state.sets).total_per_s == proposal.cost_after_per_s > 100


def test_lmst_keeps_the_minimum_spanning_tree_of_fig_2() -> None:
    """Tree (a) is the minimum spanning tree, so lMST keeps it; from (b) it leads to (a)."""
    inventory = inventory_of(FIG_2A, FIG_2_COSTS)
    sets = sets_of(FIG_2A.brokers, TEN_FOR_B3)
    assert planned("swap_links_lmst", state_of(inventory, sets)) == []
    (proposal,) = planned("swap_links_lmst", state_of(inventory, sets, FIG_2B))
    assert FIG_2B.replaced(1, proposal.links_removed, proposal.links_added).links == FIG_2A.links


@given(st.integers(0, 2**32))
def test_eq_5_follows_from_eq_3_and_4(seed: int) -> None:
    """B_i prefers the direct link by Eq. 5 exactly if Eq. 3 exceeds Eq. 4; C_ij is the right side of Eq. 5."""
    rng = random.Random(seed)
    c_ij, c_ik, c_kj, p_i, p_j, p_k = (rng.uniform(0, 10) for _ in range(6))
    i_ij, i_ik = rng.randrange(1, 100), rng.randrange(0, 100)
    phi = rng.uniform(0, 120)
    i_ikj = min(phi, i_ij, i_ik)
    eq_3 = i_ik * (p_i + c_ik + p_k) + i_ij * (p_i + c_ik + p_k + c_kj + p_j) - i_ikj * (p_i + c_ik + p_k)
    eq_4 = i_ik * (p_i + c_ik + p_k) + i_ij * (p_i + c_ij + p_j) - i_ikj * p_i
    link_cost = np.array([[0, c_ik, c_ij], [c_ik, 0, c_kj], [c_ij, c_kj, 0]])
    interest = np.array([[200, i_ik, i_ij], [i_ik, 200, 50], [i_ij, 50, 200]])
    known = LocalKnowledge(link_cost, np.array([p_i, p_k, p_j]), interest, np.full(3, phi))
    right_side = (i_ij - i_ikj) / i_ij * (c_ik + p_k) + c_kj
    assert indirect_costs(np.array([[0, 1, 2]]), known)[0].tolist() == pytest.approx([0, c_ik, right_side])
    # Eq. 3 minus Eq. 4 is I_ij times the difference of Eq. 5's right and left sides.
    assert eq_3 - eq_4 == pytest.approx(i_ij * (right_side - c_ij), abs=1e-6)


def cost_by_eq_7(path: list[int], known: LocalKnowledge) -> float:
    """Return C from the first to the last broker of the path by the recursion as the paper writes it."""
    i, j = path[0], path[-1]
    if len(path) == 1:
        return 0.0
    k = path[-2]
    c_kj = float(known.link_cost[k, j])
    if k == i:
        return c_kj
    i_ij, i_ik = int(known.interest[i, j]), int(known.interest[i, k])
    i_ikj = min(float(known.phi[i]), i_ij, i_ik)
    share = (i_ij - i_ikj) / i_ij if i_ij else 1.0
    return share * (cost_by_eq_7(path[:-1], known) + float(known.processing_cost[k])) + c_kj


def known_of(inventory: Inventory, sets: DeliverySets, hops: int) -> LocalKnowledge:
    interest = sets.interest()
    phi = mean_common_interest(paths_within(inventory.bootstrap, hops), interest)
    return LocalKnowledge(inventory.link_cost, inventory.processing_cost, interest, phi)


@given(overlays(), st.integers(2, 5))
def test_cycle_costs_are_eq_8_and_9(drawn: tuple[Inventory, list[set[str]], DeliverySets], hops: int) -> None:
    """cost_R(e) adds I_ij * C_ij over all ordered pairs of the cycle, with C_ij along the cycle without e."""
    inventory, _, sets = drawn
    known = known_of(inventory, sets, hops)
    for length, paths in paths_within(inventory.bootstrap, hops).items():
        if length < 2 or not len(paths):
            continue
        costs = cycle_costs(paths[:5], known)
        for row, path in enumerate(paths[:5].tolist()):
            for removed in range(len(path)):
                line = path[removed + 1 :] + path[: removed + 1]
                expected = 0.0
                for a in range(len(line)):
                    for b in range(len(line)):
                        between = line[a : b + 1] if a <= b else line[b : a + 1][::-1]
                        expected += int(known.interest[line[a], line[b]]) * cost_by_eq_7(between, known)
                assert costs[row, removed] == pytest.approx(expected)


@given(overlays(), st.integers(2, 4))
def test_phi_is_eq_6(drawn: tuple[Inventory, list[set[str]], DeliverySets], hops: int) -> None:
    """phi is the sum of I_ij over the neighbourhood with B_i, minus I_i, divided by its size less one."""
    inventory, _, sets = drawn
    tree, interest = inventory.bootstrap, sets.interest()
    phi = mean_common_interest(paths_within(tree, hops), interest)
    for i, broker in enumerate(tree.brokers):
        near = [j for j, peer in enumerate(tree.brokers) if len(tree.path(broker, peer)) - 1 <= hops]
        assert phi[i] == pytest.approx((sum(interest[i, j] for j in near) - interest[i, i]) / (len(near) - 1))


@given(overlays(), st.integers(2, 4))
def test_ci_proposes_only_what_evaluation_and_consensus_allow(
    drawn: tuple[Inventory, list[set[str]], DeliverySets], hops: int
) -> None:
    """At least one end wants the new link by Eq. 5-7, and no removal on the cycle has a lower estimate (Eq. 10)."""
    inventory, _, sets = drawn
    known = known_of(inventory, sets, hops)
    tree = inventory.bootstrap
    for proposal in planned("swap_links_ci", state_of(inventory, sets), horizon_hops=hops):
        ((added,), (removed,)) = proposal.links_added, proposal.links_removed
        names = tree.path(*added)
        path = [inventory.index[name] for name in names]
        i, j = path[0], path[-1]
        assert known.interest[i, j] > 0
        assert len(path) - 1 <= hops
        direct = float(known.link_cost[i, j])
        assert direct < max(cost_by_eq_7(path, known), cost_by_eq_7(path[::-1], known))
        costs = cycle_costs(np.array([path]), known)[0]
        cut = [link(a, b) for a, b in pairwise(names)].index(removed)
        assert costs[cut] == costs.min() < costs[-1]


@given(overlays(), st.sampled_from(PAPER_PLANNERS), st.sampled_from(["gain", "arrival"]))
def test_any_subset_of_the_papers_swaps_leaves_a_tree(
    drawn: tuple[Inventory, list[set[str]], DeliverySets], planner: str, order: Literal["gain", "arrival"]
) -> None:
    """Brokers that agree on swaps at the same time need not know of each other: any of the swaps can be left out."""
    inventory, _, sets = drawn
    tree = inventory.bootstrap
    proposals = planned(planner, state_of(inventory, sets), order=order)
    for mask in range(1 << min(len(proposals), 4)):
        subset = [proposal for position, proposal in enumerate(proposals) if mask >> position & 1]
        removed = [pair for one in subset for pair in one.links_removed]
        tree.replaced(1, removed, [pair for one in subset for pair in one.links_added])


@given(overlays(), st.sampled_from(ASKED))
def test_proposals_of_a_call_are_costed_in_sequence(
    drawn: tuple[Inventory, list[set[str]], DeliverySets], asked: tuple[str, dict[str, str]]
) -> None:
    """The k-th proposal states the true cost (Eq.

    1-2) before and after it, on the tree that the first k - 1 lead to.
    """
    inventory, _, sets = drawn
    tree = inventory.bootstrap
    name, changed = asked
    for proposal in planned(name, state_of(inventory, sets), **changed):
        assert proposal.cost_before_per_s == pytest.approx(overlay_cost(tree, inventory, sets).total_per_s)
        tree = tree.replaced(tree.epoch + 1, proposal.links_removed, proposal.links_added)
        assert proposal.cost_after_per_s == pytest.approx(overlay_cost(tree, inventory, sets).total_per_s)


@given(overlays(count_max=12, degree_max=3), st.sampled_from(LINK_PLANNERS))
def test_the_degree_cap_holds_for_every_proposal(
    drawn: tuple[Inventory, list[set[str]], DeliverySets], planner: str
) -> None:
    """No proposal gives a broker more links than the cap allows, and neither do all proposals of a call together."""
    inventory, _, sets = drawn
    tree = inventory.bootstrap
    for proposal in planned(planner, state_of(inventory, sets), TreeContext(proposals_max=100, degree_max=3)):
        tree = tree.replaced(tree.epoch + 1, proposal.links_removed, proposal.links_added)
        assert tree.degree_max <= 3


@given(overlays(), st.sampled_from(LINK_PLANNERS))
def test_planners_are_deterministic(drawn: tuple[Inventory, list[set[str]], DeliverySets], planner: str) -> None:
    """The same state gives the same proposals."""
    inventory, _, sets = drawn
    assert planned(planner, state_of(inventory, sets)) == planned(planner, state_of(inventory, sets))


def test_the_horizon_limits_which_brokers_are_joined() -> None:
    """Two brokers four hops apart are joined with eta = 4 but not with eta = 3."""
    tree = line_of(5)
    inventory = inventory_of(tree, {("b00", "b04"): 1.0})
    state = state_of(inventory, sets_of(tree.brokers, [{"b00", "b04"}] * 10))
    assert planned("swap_links_ci", state, TreeContext(proposals_max=10), horizon_hops=3) == []
    assert [p.links_added for p in planned("swap_links_ci", state)] == [(("b00", "b04"),)]


def test_without_common_interest_nothing_is_wanted() -> None:
    """If I_ij = 0 the link is not wanted, however cheap it is."""
    tree = line_of(3)
    inventory = inventory_of(tree, {("b00", "b02"): 0.0})
    state = state_of(inventory, sets_of(tree.brokers, [{"b00", "b01"}, {"b01", "b02"}]))
    assert planned("swap_links_ci", state) == []


def test_zero_interest_before_the_end_pays_the_whole_detour() -> None:
    """If B_i shares nothing with a broker on the path, the recursion charges the entire path up to it."""
    inventory = inventory_of(line_of(4), {}, processing=1.0)
    interest = np.array([[9, 9, 0, 9], [9, 9, 0, 0], [0, 0, 0, 0], [9, 0, 0, 9]])
    known = LocalKnowledge(inventory.link_cost, inventory.processing_cost, interest, np.full(4, 9.0))
    # b01 wants everything and b02 nothing, so the cost to b03 is (10 + 1 + 10) + 1 + 10.
    assert indirect_costs(np.array([[0, 1, 2, 3]]), known)[0].tolist() == [0, 10, 21, 32]


def test_tie_keeps_the_present_topology() -> None:
    """Three brokers with the same interests and link costs keep their links."""
    tree = line_of(3)
    state = state_of(inventory_of(tree, {}), sets_of(tree.brokers, [set(tree.brokers)] * 20))
    known = known_of(state.inventory, state.sets, 4)
    costs = cycle_costs(np.array([[0, 1, 2]]), known)[0]
    assert costs == pytest.approx(costs[0])
    assert planned("swap_links_ci", state) == []


def test_a_direct_link_that_costs_as_much_as_the_detour_is_not_wanted() -> None:
    """Eq. 5 is a strict inequality."""
    tree = line_of(3)
    inventory = inventory_of(tree, {("b00", "b02"): 21.0}, processing=1.0)
    state = state_of(inventory, sets_of(tree.brokers, [{"b00", "b02"}]))
    known = known_of(inventory, state.sets, 4)
    assert len(wanted_links(np.array([[0, 1, 2]]), known)) == 0


def test_an_idle_overlay_gives_no_proposals_by_interest() -> None:
    """Without notifications CI and lMIT propose nothing; lMST uses link costs alone."""
    tree = line_of(3)
    inventory = inventory_of(tree, {("b00", "b02"): 1.0})
    state = state_of(inventory, DeliverySets.of(tree.brokers, {}, 1.0))
    assert planned("swap_links_ci", state) == []
    assert planned("swap_links_lmit", state) == []
    assert len(planned("swap_links_lmst", state)) == 1


def test_repeated_swaps_improve_a_random_tree() -> None:
    """If CI's proposals are executed again and again, the true cost of a random tree falls by a third."""
    rng = random.Random(7)
    brokers = tuple(f"b{number:02d}" for number in range(30))
    tree = random_tree(brokers, 8, rng)
    place = np.array([[rng.random() * 100, rng.random() * 100] for _ in brokers])
    distance = np.hypot(*(place[:, None] - place[None]).transpose(2, 0, 1))
    inventory = Inventory(brokers, np.ones(30), distance, NO_CAP, tree)
    wanted = [set(rng.sample(brokers, 5)) for _ in range(20)] * 20
    sets = sets_of(brokers, wanted)
    present = tree
    for _ in range(40):
        state = state_of(inventory, sets, present)
        first = planned("swap_links_ci", state, TreeContext(proposals_max=1, degree_max=8))
        if not first or first[0].gain_per_s <= 0:
            break
        present = present.replaced(present.epoch + 1, first[0].links_removed, first[0].links_added)
    before = overlay_cost(tree, inventory, sets).total_per_s
    assert overlay_cost(present, inventory, sets).total_per_s < 0.67 * before
