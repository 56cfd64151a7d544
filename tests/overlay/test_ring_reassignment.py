"""Costs of a mapping of brokers to ring positions, and of reaching it: Zhao13, Eq. 5-7 and 10-12."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.overlay.ring.chord_ring import ChordRing
from regraft.overlay.ring.ring_costs import ring_cost
from regraft.overlay.ring.ring_reassignment import RingProblem
from tests.overlay.drawn_ring_problems import FIG_2_AFTER, FIG_2_BEFORE, draw_problem, fig_2

SEEDS = st.integers(0, 2**32)


def problem_of(brokers: int, topics: int) -> RingProblem:
    ring = ChordRing(16, tuple(range(0, 640 * brokers, 640)))
    return RingProblem(ring, np.zeros(topics, dtype=int), np.ones((brokers, topics), dtype=bool), np.ones(topics))


@given(SEEDS)
def test_the_cost_is_relays_plus_weighted_delay_at_the_brokers_positions(seed: int) -> None:
    """Eq. 5 equals the ring's cost of what is wanted at each position; rounding of event rates hardly changes it."""
    problem = draw_problem(seed)
    mapping = np.random.default_rng(seed).permutation(problem.broker_count)
    cost = ring_cost(problem.ring, problem.roots, problem.wanted[mapping], problem.events)
    expected = cost.notification_cost_per_s(problem.delay_weight)
    assert problem.cost(mapping) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(SEEDS, st.booleans())
def test_broker_costs_add_up_to_the_cost(seed: int, with_delays: bool) -> None:
    """Eq. 12; exact to the last bit if every hop takes 1, whatever the events and weights."""
    problem = draw_problem(seed)
    rng = np.random.default_rng(seed)
    mapping = rng.permutation(problem.broker_count)
    if with_delays:
        delays = rng.random((problem.broker_count, problem.broker_count))
        problem = RingProblem(problem.ring, problem.roots, problem.wanted, problem.events, problem.delay_weight, delays)
        assert problem.broker_costs(mapping).sum() == pytest.approx(problem.cost(mapping))
    else:
        assert problem.broker_costs(mapping).sum() == problem.cost(mapping)


@pytest.mark.parametrize("subscribed", FIG_2_BEFORE)
def test_a_broker_costs_its_relaying_and_its_distance(subscribed: set[int]) -> None:
    """Fig. 2a, t1 alone: the broker on ID 0 is three hops away, and the relays on the route are not subscribed."""
    problem = fig_2(subscribed)
    t1 = RingProblem(problem.ring, problem.roots[:1], problem.wanted[:, :1], problem.events[:1])
    costs = t1.broker_costs(t1.present)
    assert costs[0] == 3
    relays = [broker for broker in range(8) if broker not in subscribed and costs[broker] > 0]
    assert [costs[broker] for broker in relays] == [1, 1, 1]


def test_hop_delays_belong_to_brokers_not_to_positions() -> None:
    """Two brokers that swap take the delays of their links along: from 0 over 2 to 3 on a ring of four."""
    ring = ChordRing(2, (0, 1, 2, 3))
    wanted = np.array([[False], [False], [False], [True]])
    delays = np.array([[0, 1, 10, 5], [1, 0, 3, 1], [10, 3, 0, 20], [5, 1, 20, 0.0]])
    problem = RingProblem(ring, np.array([0]), wanted, np.array([2.0]), 1.0, delays)
    assert ring.route(0, 3) == (0, 2, 3)
    assert problem.cost(problem.present) == 2 * (1 + 10 + 20)
    # Broker 1 relays at position 2 instead: 0 -> 1 -> 3.
    assert problem.cost(np.array([0, 2, 1, 3])) == 2 * (1 + 1 + 1)
    assert problem.benefit(np.array([0, 2, 1, 3])) == 56


def test_a_reassignment_costs_at_most_what_the_protocol_sends() -> None:
    """With 100 brokers and 100 topics: 708.5 messages per moved broker plus 100 once; nothing if no broker moves."""
    problem = problem_of(100, 100)
    assert problem.move_price == pytest.approx(708.5, abs=0.05)
    assert problem.reassignment_cost(0) == 0
    assert problem.reassignment_cost(2) == pytest.approx(100 + 2 * problem.move_price)
    swapped = problem.present.copy()
    swapped[[3, 7]] = swapped[[7, 3]]
    assert problem.moved_count(swapped) == 2
    assert problem.net_benefit(swapped) == pytest.approx(problem.benefit(swapped) - problem.reassignment_cost(2))


def test_a_reassignment_is_worth_computing_above_a_share_of_the_most_expensive() -> None:
    """beta * max Cst: 0.1 * (100 + 708.5 * 100) = 7,095 messages."""
    problem = problem_of(100, 100)
    assert not problem.is_worth_computing(7_095, 0.1)
    assert problem.is_worth_computing(7_096, 0.1)
    assert problem.is_worth_computing(1, 0)
    assert not problem.is_worth_computing(0, 0)


def test_the_papers_reassignment_improves_figure_2() -> None:
    """Fig. 2b: t1 costs 3 hops and no relay once its subscribers are at {1, 2, 3, 5}."""
    problem = fig_2(FIG_2_BEFORE[0])
    movers = sorted(FIG_2_BEFORE[0])
    mapping = np.array([1, 0, 2, 4, 3, 6, 5, 7])
    assert {at for at in range(8) if mapping[at] in movers} == FIG_2_AFTER
    assert (problem.cost(problem.present), problem.cost(mapping)) == (22, 7)


def test_mismatched_shapes_are_refused() -> None:
    """The message names both shapes."""
    ring = ChordRing(2, (0, 1))
    with pytest.raises(ValueError, match=r"of shape \(2, 1\)"):
        RingProblem(ring, np.array([0]), np.ones((3, 1), dtype=bool), np.ones(1))
    with pytest.raises(ValueError, match=r"hop delays need the shape \(2, 2\)"):
        RingProblem(ring, np.array([0]), np.ones((2, 1), dtype=bool), np.ones(1), hop_delays=np.ones((3, 3)))
