"""Search of ring IDs: swaps that also pay for the move, and results that are never worse than DYNATOPS-Greedy's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.controller.planners.ring.steps.assign_ring_ids import assign_ids, assigned_mapping
from regraft.controller.planners.ring.steps.search_ring_ids import (
    PaidSwaps,
    best_on_path,
    descend,
    improve_greedily,
    swaps_of,
)
from regraft.overlay.ring.ring_reassignment import Mapping, RingProblem
from regraft.overlay.ring.ring_swaps import RingSwaps
from tests.overlay.drawn_ring_problems import draw_problem

SEEDS = st.integers(0, 2**32)


def whole_cost(problem: RingProblem, mapping: Mapping) -> float:
    """Return C + Cst without the part of Cst that does not depend on how many brokers move."""
    return problem.cost(mapping) + problem.move_price * problem.moved_count(mapping)


def swapped_pairs(mapping: Mapping) -> Iterator[tuple[int, int, Mapping]]:
    for one, two in itertools.combinations(range(len(mapping)), 2):
        swapped = mapping.copy()
        swapped[[one, two]] = mapping[[two, one]]
        yield one, two, swapped


def with_delays(problem: RingProblem, seed: int) -> RingProblem:
    delays = np.random.default_rng(seed).random((problem.broker_count, problem.broker_count))
    return RingProblem(problem.ring, problem.roots, problem.wanted, problem.events, problem.delay_weight, delays)


def greedy_net_benefit(problem: RingProblem) -> float:
    return best_on_path(problem, improve_greedily(swaps_of(problem))).net_benefit


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_paid_swaps_count_the_brokers_that_change_place(seed: int) -> None:
    """Each price, of one broker and of all pairs, is the difference of C + Cst, along swaps away from home and back."""
    problem = draw_problem(seed, nodes_max=9)
    rng = np.random.default_rng(seed)
    paid = PaidSwaps(RingSwaps(problem, rng.permutation(problem.broker_count)))
    for _ in range(4):
        mapping = paid.swaps.mapping.copy()
        before, everything = whole_cost(problem, mapping), paid.all_changes()
        for one, two, swapped in swapped_pairs(mapping):
            change = whole_cost(problem, swapped) - before
            assert paid.changes(one)[two] == pytest.approx(change, abs=1e-6)
            assert paid.changes(two)[one] == pytest.approx(change, abs=1e-6)
            assert [everything[one, two], everything[two, one]] == pytest.approx([change, change], abs=1e-6)
        paid.swap(*(int(place) for place in rng.integers(problem.broker_count, size=2)))


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_a_descent_ends_where_no_swap_pays(seed: int) -> None:
    """The cost never rises, and no further swap of two brokers would lower C + Cst."""
    problem = draw_problem(seed)
    mapping = np.random.default_rng(seed).permutation(problem.broker_count)
    swaps = RingSwaps(problem, mapping)
    descend(swaps)
    after = whole_cost(problem, swaps.mapping)
    assert after <= whole_cost(problem, mapping) + 1e-6
    assert all(whole_cost(problem, swapped) >= after - 1e-6 for *_, swapped in swapped_pairs(swaps.mapping))


@given(SEEDS)
@settings(max_examples=20, deadline=None)
def test_without_a_move_price_the_assignment_is_the_optimum_of_the_delay(seed: int) -> None:
    """None of the mappings of six brokers has fewer hops; with this many events the price of moves is negligible."""
    drawn = draw_problem(seed, nodes_max=6)
    problem = RingProblem(drawn.ring, drawn.roots, drawn.wanted, drawn.events * 1e6, 1.0)
    mapping = assigned_mapping(problem, problem.cost(problem.present))
    depths = problem.ring.depths[problem.roots]

    def delay(order: Mapping) -> float:
        return float((problem.delay_weights @ (problem.wanted[order].T * depths)).sum())

    every = itertools.permutations(range(problem.broker_count))
    assert delay(mapping) == pytest.approx(min(delay(np.array(order)) for order in every), rel=1e-4)


@given(SEEDS, st.booleans(), st.sampled_from([1.0, 30.0, 1000.0]))
@settings(max_examples=80, deadline=None)
def test_our_benefit_is_at_least_that_of_dynatops_greedy(seed: int, equal_events: bool, factor: float) -> None:
    """It is never negative, and the promised benefit is that of the mapping."""
    drawn = draw_problem(seed, equal_events=equal_events)
    problem = RingProblem(drawn.ring, drawn.roots, drawn.wanted, drawn.events * factor, drawn.delay_weight)
    found = assign_ids(problem)
    assert found.net_benefit >= max(0.0, greedy_net_benefit(problem))
    assert found.net_benefit == pytest.approx(problem.net_benefit(found.mapping), rel=1e-9, abs=1e-6)
    assert found.moved == problem.moved_count(found.mapping)
    assert sorted(found.mapping.tolist()) == list(range(problem.broker_count))
    assert assign_ids(problem).mapping.tolist() == found.mapping.tolist()


@given(SEEDS)
@settings(max_examples=20, deadline=None)
def test_our_benefit_is_at_least_that_of_dynatops_greedy_for_any_assignment(seed: int) -> None:
    """With brokers assigned at random and no swaps afterwards, DYNATOPS-Greedy's answer is returned."""
    problem = draw_problem(seed, nodes_max=10)
    rng = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "regraft.controller.planners.ring.steps.assign_ring_ids.assigned_mapping",
            lambda *_: rng.permutation(problem.broker_count),
        )
        patch.setattr("regraft.controller.planners.ring.steps.assign_ring_ids.descend", lambda _: None)
        assert assign_ids(problem).net_benefit >= max(0.0, greedy_net_benefit(problem))


@given(SEEDS)
@settings(max_examples=15, deadline=None)
def test_our_benefit_is_at_least_that_of_dynatops_greedy_with_hop_delays(seed: int) -> None:
    """In this case swaps are priced from scratch."""
    problem = with_delays(draw_problem(seed, nodes_max=7, topics_max=4), seed)
    found = assign_ids(problem)
    assert found.net_benefit >= max(0.0, greedy_net_benefit(problem))
    assert found.net_benefit == pytest.approx(problem.net_benefit(found.mapping), abs=1e-6)


def test_ours_ends_near_the_optimum_of_small_rings() -> None:
    """Of 40 problems with six brokers most end at the best of all 720 mappings, DYNATOPS-Greedy farther away."""
    every = np.array(list(itertools.permutations(range(6))))
    drawn = (draw_problem(seed, nodes_max=6) for seed in itertools.count())
    ours, greedy = [], []
    for problem in itertools.islice((one for one in drawn if one.broker_count == 6), 40):
        optimum = max(problem.net_benefit(mapping) for mapping in every)
        if optimum > 1e-6:
            ours.append(assign_ids(problem).net_benefit / optimum)
            greedy.append(greedy_net_benefit(problem) / optimum)
    assert len(ours) > 20
    assert max(ours) <= 1 + 1e-9
    assert np.mean(np.array(ours) > 1 - 1e-9) > 0.8
    assert np.mean(ours) > 0.97 > np.mean(greedy)
