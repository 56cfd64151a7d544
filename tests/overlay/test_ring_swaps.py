"""Prices of swaps on a ring equal those computed from scratch, to the last bit, after any number of swaps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.controller.planners.ring.steps.search_ring_ids import ScratchSwaps
from regraft.overlay.ring.chord_ring import ChordRing
from regraft.overlay.ring.ring_arcs import RingArcs, ring_arcs
from regraft.overlay.ring.ring_reassignment import RingProblem
from regraft.overlay.ring.ring_swaps import RingSwaps
from tests.overlay.drawn_ring_problems import draw_problem

SEEDS = st.integers(0, 2**32)


@given(SEEDS, st.booleans())
@settings(max_examples=60, deadline=None)
def test_prices_are_those_from_scratch_after_any_swaps(seed: int, equal_events: bool) -> None:
    """Costs of brokers, of the mapping, of every swap of a broker and of all brokers, before and after swaps."""
    problem = draw_problem(seed, equal_events=equal_events)
    rng = np.random.default_rng(seed)
    mapping = rng.permutation(problem.broker_count)
    fast, slow = RingSwaps(problem, mapping), ScratchSwaps(problem, mapping)
    for _ in range(6):
        position, other = (int(rng.integers(problem.broker_count)) for _ in range(2))
        assert fast.changes(position).tolist() == slow.changes(position).tolist()
        fast.swap(position, other)
        slow.swap(position, other)
        assert fast.mapping.tolist() == slow.mapping.tolist()
        assert fast.broker_costs.tolist() == slow.broker_costs.tolist()
        assert fast.cost == slow.cost
    everything = fast.all_changes()
    for position in range(problem.broker_count):
        assert everything[position].tolist() == fast.changes(position).tolist()


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_prices_do_not_drift_over_many_swaps(seed: int) -> None:
    """After 200 swaps all prices are those of the resulting mapping priced for the first time."""
    problem = draw_problem(seed, nodes_max=40)
    rng = np.random.default_rng(seed)
    swaps = RingSwaps(problem)
    for _ in range(200):
        swaps.swap(*(int(place) for place in rng.integers(problem.broker_count, size=2)))
    again = RingSwaps(problem, swaps.mapping)
    elsewhere = swaps.at(problem.present)
    elsewhere.swap(0, problem.broker_count - 1)
    assert elsewhere.cost == problem.cost(elsewhere.mapping)
    assert swaps.broker_costs.tolist() == again.broker_costs.tolist()
    assert swaps.all_changes().tolist() == again.all_changes().tolist()


@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_with_hop_delays_prices_from_scratch_are_differences_of_costs(seed: int) -> None:
    """Every swap of one broker is checked by the cost of the mapping before and after."""
    drawn = draw_problem(seed, nodes_max=9, topics_max=4)
    rng = np.random.default_rng(seed)
    count = drawn.broker_count
    delays = rng.random((count, count))
    problem = RingProblem(drawn.ring, drawn.roots, drawn.wanted, drawn.events, drawn.delay_weight, delays)
    swaps = ScratchSwaps(problem, rng.permutation(count))
    position = int(rng.integers(count))
    changes, before = swaps.changes(position), swaps.cost
    assert changes[position] == np.inf
    for other in set(range(count)) - {position}:
        after = ScratchSwaps(problem, swaps.mapping)
        after.swap(position, other)
        assert after.cost - before == pytest.approx(changes[other])
        assert after.broker_costs.sum() == pytest.approx(after.cost)
    with pytest.raises(ValueError, match="use ScratchSwaps"):
        RingSwaps(problem)


@given(SEEDS)
@settings(deadline=None)
def test_the_subtree_of_a_position_is_an_arc_that_begins_there(seed: int) -> None:
    """The positions whose route from the root passes v are v and the next ones, as many as ``sizes`` gives."""
    problem = draw_problem(seed)
    ring, arcs = problem.ring, problem.arcs
    nodes = ring.node_count
    for topic, root in enumerate(problem.roots.tolist()):
        routes = [ring.route(root, target) for target in range(nodes)]
        for position in range(nodes):
            below = {target for target, route in enumerate(routes) if position in route}
            size = arcs.sizes[arcs.rows[topic] + position]
            assert below == {(position + step) % nodes for step in range(size)}
            places = arcs.routes[:, topic * nodes + position] - topic * (nodes + 1)
            way = [one for one in places.tolist() if one != nodes]
            assert tuple(reversed(way)) == routes[position]


@given(SEEDS)
@settings(deadline=None)
def test_sums_over_subtrees_and_along_routes(seed: int) -> None:
    """Compared with adding up along every route."""
    problem = draw_problem(seed, nodes_max=12, topics_max=5)
    values = np.random.default_rng(seed).integers(-5, 9, (problem.topic_count, problem.broker_count))
    below, along = np.zeros_like(values), np.zeros_like(values)
    for topic, root in enumerate(problem.roots.tolist()):
        for target in range(problem.broker_count):
            for position in problem.ring.route(root, target):
                below[topic, position] += values[topic, target]
                along[topic, target] += values[topic, position]
    assert problem.arcs.arc_sums(values).tolist() == below.tolist()
    assert problem.arcs.route_sums(values).tolist() == along.tolist()


def test_the_arcs_of_a_ring_are_computed_once() -> None:
    """A reassignment keeps positions and roots; other roots need other arcs."""
    ring, roots = ChordRing(4, (0, 3, 9)), np.array([1, 1, 2])
    kept = ring_arcs(ring, roots)
    assert ring_arcs(ChordRing(4, (0, 3, 9)), np.array([1, 1, 2], dtype=np.int32)) is kept
    assert ring_arcs(ring, np.array([1, 1, 0])) is not kept
    assert kept.routes.tolist() == RingArcs(ring, roots).routes.tolist()
