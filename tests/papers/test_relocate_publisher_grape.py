"""GRAPE against Cheung09: Algorithms 1 to 3 taken literally, the effect of priority and weight, and its proposals."""

import random
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.planners.tree.steps.select_home_grape import GrapeSelection, Priority, select
from regraft.overlay.tree.link_sides import RootedTree
from regraft.overlay.tree.trace_sessions import HopDelays, SessionMetrics, TraceSessions
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.plan import ClientMove, Proposal
from regraft_lab.planners.relocate_publisher_grape import PrioritySettings, relocate_publisher_grape
from regraft_lab.pop_grape.random_sessions import random_instance, select_by_paper, select_linear
from tests.controller.published_windows import costs_along, queue_of, state_of, window_of
from tests.overlay.published_overlays import Published, draw_overlay, spans_of
from tests.overlay.small_overlays import inventory_of, line_of

SHORT_SESSION = PrioritySettings(grape_notifications_min=1)
LINE = TreeConfiguration.of(0, line_of(3).brokers, line_of(3).links, {"p": "b00"})


def planned(
    state: TreeState, settings: PrioritySettings = SHORT_SESSION, seed: int = 0, proposals_max: int = 100
) -> list[Proposal]:
    context = TreeContext(proposals_max=proposals_max)
    return relocate_publisher_grape(state, settings, context, random.Random(seed))


def test_rerooting_selects_what_the_quadratic_algorithms_select() -> None:
    """On 1,000 random instances re-rooting selects the broker that Algorithms 1 to 3 select candidate by candidate."""
    moved = 0
    for seed in range(1000):
        rng = random.Random(seed)
        instance = random_instance(rng)
        priority: Priority = rng.choice(("load", "delay"))
        weight = rng.choice((1, 25, 50, 75, 100))
        chosen = select_linear(instance, priority, weight)
        assert chosen == select_by_paper(instance, priority, weight), f"seed {seed}, {priority}{weight}"
        moved += chosen != instance.configuration.brokers[instance.present]
    assert moved > 500


def test_metrics_of_three_brokers_by_hand() -> None:
    """Two of three notifications are wanted at one end, one at the other; delays differ by direction."""
    words = np.array([[0b001], [0b000], [0b110]], dtype=np.uint64)
    deliveries = np.array([[4.0, 0.0, 2.0]])  # Four subscribers at b00, one at b02.
    sessions = TraceSessions(("p",), words, np.array([0]), np.array([3]), deliveries)
    # b00 -> b01 takes 1 ms and back 2; b01 -> b02 takes 3 and back 5; then 10 ms to a subscriber, 20 at b02.
    delays = HopDelays(np.array([0.0, 1.0, 3.0]), np.array([0.0, 2.0, 5.0]), np.array([10.0, 10.0, 20.0]))
    metrics = SessionMetrics(RootedTree.of(LINE), sessions)
    assert metrics.messages.tolist() == [[3 + 2 + 2, 1 + 3 + 2, 1 + 1 + 3]]
    at_home = 4 * 10 + 2 * 20
    assert metrics.delays_ms(delays).tolist() == [
        [(at_home + 2 * 4) / 6, (at_home + 4 * 2 + 2 * 3) / 6, (at_home + 4 * 7) / 6]
    ]
    pings_ms = np.array([9.0, 0.0, 1.0])
    assert (metrics.delays_ms(delays, pings_ms) - metrics.delays_ms(delays)) == pytest.approx(pings_ms[None])
    assert metrics.reached(0, 0).tolist() == [True, True, True]


def test_candidates_are_the_brokers_that_received_a_notification() -> None:
    """A broker that no notification of the session reaches cannot answer; the present home is always a candidate."""
    words = np.array([[0], [1], [0]], dtype=np.uint64)
    sessions = TraceSessions(("p",), words, np.array([0]), np.array([1]), np.array([[0.0, 1.0, 0.0]]))
    metrics = SessionMetrics(RootedTree.of(LINE), sessions)
    assert metrics.reached(0, 0).tolist() == [True, True, False]
    assert metrics.reached(0, 1).tolist() == [False, True, False]
    assert metrics.reached(0, 2).tolist() == [False, True, True]


NOBODY = np.zeros(4, dtype=bool)
LOAD = np.array([10.0, 11.0, 20.0, 30.0])
DELAY = np.array([9.0, 5.0, 2.0, 1.0])


@pytest.mark.parametrize(
    ("priority", "weight", "chosen"),
    [
        ("load", 100, 0),  # Only the least load remains.
        ("load", 95, 1),  # 0, 5, 50 and 100 normalised: 5 is just not above 100 - 95.
        ("load", 96, 0),
        ("load", 50, 2),
        ("load", 1, 2),  # Only the worst is dropped.
        ("delay", 100, 3),
        ("delay", 50, 1),  # 100, 50, 12.5 and 0 normalised.
        ("delay", 1, 1),
    ],
)
def test_weight_drops_candidates_too_far_from_the_best(priority: Priority, weight: int, chosen: int) -> None:
    """Of the values normalised to 0..100, those above 100 - P are dropped; the other metric decides."""
    assert select(LOAD, DELAY, NOBODY, priority, weight) == chosen


def test_equal_candidates_keep_the_publisher_where_it_is() -> None:
    """The present broker wins a tie, else the first one by name."""
    equal = np.ones(3)
    assert select(equal, equal, np.array([False, False, True]), "load", 100) == 2
    assert select(equal, equal, np.zeros(3, dtype=bool), "load", 100) == 0
    assert select(np.array([2.0, 1.0, 1.0]), equal, np.array([True, False, False]), "load", 100) == 1


def few_and_many() -> TreeState:
    """Return a publisher at b00: ten notifications go to a single subscriber at b02, two of them to fifty at b00."""
    wanted = [frozenset({"b02"})] * 8 + [frozenset({"b00", "b02"})] * 2
    (sets,) = spans_of(LINE.brokers, [Published("p", 0, where) for where in wanted], {"p": "b00"}, [1.0])
    queues = tuple(queue_of(broker, "", service_ms=2.0) for broker in LINE.brokers)
    window = window_of(0, sets, {"p": "b00"}, {("p", "b00"): 100, ("p", "b02"): 10}, queues)
    return TreeState(LINE, inventory_of(LINE, {}), (window,))


def test_load_and_delay_want_different_brokers() -> None:
    """Priority load moves the publisher towards most of the traffic, priority delay keeps it near most subscribers."""
    state = few_and_many()
    by_load = PrioritySettings(grape_notifications_min=10, grape_priority="load")
    (proposal,) = planned(state, by_load)
    assert proposal.moves == (ClientMove("p", "b00", "b02"),)
    assert proposal.reason == (
        "1.4 instead of 3 messages per notification, mean delay 5.636 instead of 2.364 ms (load first, weight 100)"
    )
    by_delay = replace(by_load, grape_priority="delay")
    assert planned(state, by_delay) == []


@given(st.integers(0, 2**32))
@settings(max_examples=50)
def test_weight_one_of_a_metric_is_weight_hundred_of_the_other_unless_that_is_worst(seed: int) -> None:
    """With P = 1 only the worst candidates are dropped, so the other metric's best is chosen unless dropped."""
    state = state_of(draw_overlay(random.Random(seed), notifications_max=40), random.Random(seed))
    selection = GrapeSelection(state, SHORT_SESSION)
    for one, other in zip(selection.choices("load", 1), selection.choices("delay", 100), strict=True):
        assert one.delay_ms_to >= other.delay_ms_to - 1e-9
        if one.delay_ms_to > other.delay_ms_to + 1e-9:
            assert one.messages_to < other.messages_to


@given(st.integers(0, 2**32), st.sampled_from(["gain", "arrival"]), st.sampled_from(["load", "delay"]))
@settings(max_examples=50)
def test_proposals_are_costed_in_sequence(seed: int, order: Literal["gain", "arrival"], priority: Priority) -> None:
    """The costs before and after are the overlay's, with the publishers where the earlier moves put them."""
    state = state_of(draw_overlay(random.Random(seed), publishers_max=5), random.Random(seed))
    chosen = replace(SHORT_SESSION, order=order, grape_priority=priority)
    proposals = planned(state, chosen, seed)
    costs_per_s = costs_along(state, proposals)
    assert [proposal.cost_before_per_s for proposal in proposals] == pytest.approx(costs_per_s[:-1])
    assert [proposal.cost_after_per_s for proposal in proposals] == pytest.approx(costs_per_s[1:])


@given(st.integers(0, 2**32))
@settings(max_examples=30)
def test_load_alone_minimises_the_message_rate(seed: int) -> None:
    """With all notifications traced, no home has a lower message rate than the one chosen by load alone."""
    state = state_of(draw_overlay(random.Random(seed), publishers_max=1), random.Random(seed))
    costs = state.publisher_costs
    published = sum(int(np.bitwise_count(window.sets.published).sum()) for window in state.windows)
    whole = GrapeSelection(state, PrioritySettings(grape_notifications_min=published))
    for choice in whole.choices("load", 100):
        rates = costs.message_rates_per_s[costs.place_of(choice.publisher)]
        assert choice.messages_to * costs.published_per_s[0] == pytest.approx(rates.min())


def test_a_publisher_with_too_few_notifications_stays() -> None:
    """With fewer than G_threshold notifications there is no trace session to select by."""
    state = few_and_many()
    assert planned(state, replace(SHORT_SESSION, grape_notifications_min=11)) == []
    assert len(planned(state, replace(SHORT_SESSION, grape_notifications_min=10))) == 1


def test_a_publisher_with_an_unknown_home_stays() -> None:
    """No broker could be commanded to release it."""
    state = few_and_many()
    homeless = TreeState(TreeConfiguration.of(0, LINE.brokers, LINE.links), state.inventory, state.windows)
    assert planned(homeless) == []


def two_publishers() -> TreeState:
    """Return two publishers at b00 for subscribers at b02; q publishes three times as much as p."""
    homes = {"p": "b00", "q": "b00"}
    tree = TreeConfiguration.of(0, LINE.brokers, LINE.links, homes)
    notifications = [Published("p", 0, frozenset({"b02"}))] * 3 + [Published("q", 0, frozenset({"b02"}))] * 9
    (sets,) = spans_of(tree.brokers, notifications, homes, [1.0])
    return TreeState(tree, inventory_of(tree, {}), (window_of(0, sets, homes),))


def test_proposals_max_bounds_one_call() -> None:
    """If one proposal is requested and two publishers would move, the one that saves more does."""
    (proposal,) = planned(two_publishers(), proposals_max=1)
    assert proposal.moves == (ClientMove("q", "b00", "b02"),)


@pytest.mark.parametrize(("order", "orders"), [("gain", {"qp"}), ("arrival", {"pq", "qp"})])
def test_order_is_by_gain_or_random(order: Literal["gain", "arrival"], orders: set[str]) -> None:
    """Proposals come best first, or in random order, as messages of the paper's brokers arrive."""
    seen = set()
    for seed in range(20):
        proposals = planned(two_publishers(), replace(SHORT_SESSION, order=order), seed)
        seen.add("".join(proposal.moves[0].client for proposal in proposals))
    assert seen == orders
