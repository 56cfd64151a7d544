"""DYNATOPS-Greedy of Zhao13, Algorithms 3 and 4: its Fig. 2, and each step compared with the text, from scratch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.controller.planners.ring.steps.search_ring_ids import best_on_path, improve_greedily, swaps_of
from regraft.overlay.ring.chord_ring import ChordRing
from regraft.overlay.ring.ring_reassignment import Mapping, RingProblem
from tests.overlay.drawn_ring_problems import FIG_2_AFTER, FIG_2_BEFORE, draw_problem, fig_2

SEEDS = st.integers(0, 2**32)


def swapped(mapping: Mapping, position: int, other: int) -> Mapping:
    after = mapping.copy()
    after[[position, other]] = mapping[[other, position]]
    return after


def algorithm_3(problem: RingProblem) -> list[Mapping]:
    """Return the mappings step by step, with every cost computed from scratch."""
    found = [problem.present]
    while True:
        now = found[-1]
        costliest = int(problem.broker_costs(now).argmax())
        neighbours = [swapped(now, costliest, other) for other in range(len(now)) if other != costliest]
        best = min(neighbours, key=problem.cost, default=now)
        if problem.cost(best) >= problem.cost(now):
            return found
        found.append(best)


@pytest.mark.parametrize("subscribed", FIG_2_BEFORE)
def test_figure_2_ends_as_the_paper_draws_it(subscribed: set[int]) -> None:
    """For any state that the lost drawing may show, t1 ends with no unrelated relay and one hop to each subscriber."""
    problem = fig_2(subscribed)
    path = improve_greedily(swaps_of(problem))
    mapping = path.mapping(len(path.swaps))
    assert set(np.flatnonzero(problem.wanted[mapping, 0]).tolist()) == FIG_2_AFTER
    assert path.costs[-1] == problem.cost(mapping) == 7


@pytest.mark.parametrize(("events", "moved"), [(4, 0), (5, 2), (6, 2), (7, 4), (15, 4), (16, 6)])
def test_figure_2_is_reconfigured_only_as_far_as_it_pays(events: int, moved: int) -> None:
    """Three swaps save 8, 5 and 2 per event and cost 8 + 15, 15 and 15 for each of the two brokers that they move.

    15 is 3^2 + 2 * 3 for eight brokers and two topics. So the first swap pays from five events, the second from seven
    and the third from sixteen; of equal mappings the earlier one is chosen.
    """
    problem = fig_2(FIG_2_BEFORE[0], events)
    path = improve_greedily(swaps_of(problem))
    assert [cost / events for cost in path.costs] == [22, 14, 9, 7]
    found = best_on_path(problem, path)
    assert found.moved == problem.moved_count(found.mapping) == moved
    assert found.net_benefit == pytest.approx(max(0, 8 * events - 38, 13 * events - 68, 15 * events - 98))


@given(SEEDS, st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_path_is_that_of_algorithm_3_from_scratch(seed: int, equal_events: bool) -> None:
    """The mappings, costs and moved brokers are the same; equal events make ties, which both break alike."""
    problem = draw_problem(seed, nodes_max=14, equal_events=equal_events)
    expected = algorithm_3(problem)
    path = improve_greedily(swaps_of(problem))
    mappings = [path.mapping(steps) for steps in range(len(path.swaps) + 1)]
    assert [one.tolist() for one in mappings] == [one.tolist() for one in expected]
    assert list(path.costs) == [problem.cost(one) for one in expected]
    assert list(path.moved) == [problem.moved_count(one) for one in expected]


@given(SEEDS, st.sampled_from([1.0, 10.0, 100.0]))
@settings(max_examples=40, deadline=None)
def test_algorithm_4_takes_the_best_of_the_list(seed: int, factor: float) -> None:
    """The highest Bft - Cst of all mappings on the path, including the present one with 0."""
    drawn = draw_problem(seed, nodes_max=14)
    problem = RingProblem(drawn.ring, drawn.roots, drawn.wanted, drawn.events * factor, drawn.delay_weight)
    found = best_on_path(problem, improve_greedily(swaps_of(problem)))
    best = max(problem.net_benefit(mapping) for mapping in algorithm_3(problem))
    assert found.net_benefit == pytest.approx(best)
    assert problem.net_benefit(found.mapping) == pytest.approx(best)


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_the_tabu_variant_continues_if_the_costliest_broker_finds_nothing(seed: int) -> None:
    """It begins with the path of Algorithm 3, each step lowers the cost, and no swap of two improves its end."""
    problem = draw_problem(seed, nodes_max=14)
    plain = improve_greedily(swaps_of(problem))
    path = improve_greedily(swaps_of(problem), is_persistent=True)
    assert path.swaps[: len(plain.swaps)] == plain.swaps
    assert all(after < before for before, after in itertools.pairwise(path.costs))
    end = path.mapping(len(path.swaps))
    pairs = itertools.combinations(range(problem.broker_count), 2)
    assert all(problem.cost(swapped(end, *pair)) >= path.costs[-1] for pair in pairs)


def test_hop_delays_are_part_of_the_searched_cost() -> None:
    """The route from 0 to 3 passes position 2: the path ends at the best of all mappings of four brokers."""
    delays = np.array([[0, 1, 10, 5], [1, 0, 3, 1], [10, 3, 0, 20], [5, 1, 20, 0.0]])
    wanted = np.array([[False], [False], [False], [True]])
    problem = RingProblem(ChordRing(2, (0, 1, 2, 3)), np.array([0]), wanted, np.array([100.0]), 1.0, delays)
    path = improve_greedily(swaps_of(problem))
    assert path.costs[0] == 100 * (1 + 10 + 20)
    assert path.costs[-1] == min(problem.cost(np.array(order)) for order in itertools.permutations(range(4)))
