"""POP against Cheung09: the worked example of Fig. 1, the tracing of section 3.1, and the end of the walk."""

import random
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.planners.tree.steps.trace_publishers import columns_by_publisher
from regraft.overlay.tree.link_sides import RootedTree
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.plan import ClientMove, Proposal
from regraft_lab.planners.relocate_publisher_pop import (
    TraceSettings,
    probe_walk,
    relocate_publisher_pop,
    running_average,
    trace,
    trace_probability,
)
from tests.controller.published_windows import costs_along, state_of, window_of
from tests.overlay.published_overlays import Published, PublishedOverlay, draw_overlay, published_overlays, spans_of
from tests.overlay.small_overlays import inventory_of, line_of

# Fig. 1: 1 subscriber at B1, 6 behind B2, 3 behind B4, and 15 around B6 behind B5, which has none itself.
FIG_1 = TreeConfiguration.of(
    0,
    ("B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8"),
    [("B1", "B2"), ("B2", "B3"), ("B1", "B4"), ("B1", "B5"), ("B5", "B6"), ("B6", "B7"), ("B6", "B8")],
    {"P": "B1"},
)
SUBSCRIBERS = {"B1": 1, "B2": 4, "B3": 2, "B4": 3, "B6": 4, "B7": 6, "B8": 5}
ONE_TRACE = TraceSettings(pop_traces_min=1)


def planned(state: TreeState, settings: TraceSettings = ONE_TRACE, seed: int = 0) -> list[Proposal]:
    return relocate_publisher_pop(state, settings, TreeContext(), random.Random(seed))


def fig_1_state(notifications: int = 1) -> TreeState:
    """Return the publisher of Fig. 1 at B1; all subscribers get every notification."""
    published = [Published("P", 0, frozenset(SUBSCRIBERS))] * notifications
    (sets,) = spans_of(FIG_1.brokers, published, {"P": "B1"}, [60.0])
    handed = {("P", broker): count * notifications for broker, count in SUBSCRIBERS.items()}
    return TreeState(FIG_1, inventory_of(FIG_1, {}), (window_of(0, sets, {"P": "B1"}, handed),))


def test_fig_1_moves_the_publisher_to_b6() -> None:
    """The 15 subscribers behind B5 outnumber 6 + 3 + 1; B5 has none itself; at B6 no link dominates."""
    (proposal,) = planned(fig_1_state())
    assert proposal.moves == (ClientMove("P", "B1", "B6"),)
    assert proposal.links_added == proposal.links_removed == ()
    assert proposal.reason == (
        "of 25 matching subscribers, 15 are behind the link to B5; B6 is 2 hops that way (1 notifications traced)"
    )


def test_fig_1_walk_passes_b5() -> None:
    """The relocation request follows the migration path B1, B5, B6."""
    counts = np.array([float(SUBSCRIBERS.get(broker, 0)) for broker in FIG_1.brokers])
    walk = probe_walk(FIG_1, RootedTree.of(FIG_1), counts, 0)
    assert [FIG_1.brokers[place] for place in walk.path] == ["B1", "B5", "B6"]
    assert walk.behind_first == 15


def test_the_running_average_gives_the_newest_value_a_quarter() -> None:
    """4 followed by 8 gives 0.25 * 8 + 0.75 * 4 = 5; the first value is taken unchanged."""
    first = running_average(None, np.array([4.0]))
    assert first.tolist() == [4.0]
    assert running_average(first, np.array([8.0])).tolist() == [5.0]


def test_the_trace_probability_falls_with_the_number_traced() -> None:
    """P_trace = 1 - T / N: 1 at first, 1/2 at half of N, 0 at N."""
    assert [trace_probability(traced, 50) for traced in (0, 25, 50)] == [1.0, 0.5, 0.0]


def test_nothing_moves_before_enough_is_traced() -> None:
    """With fewer traced notifications than P_threshold nothing is proposed."""
    assert planned(fig_1_state(99), replace(ONE_TRACE, pop_traces_min=100)) == []


def test_at_most_n_notifications_are_traced_per_window() -> None:
    """However much is published, at most N are traced in each W; the first of a W always is."""
    sets = spans_of(
        FIG_1.brokers, [Published("P", at // 600, frozenset()) for at in range(1200)], {"P": "B1"}, [30, 30]
    )
    windows = [window_of(number, each, {"P": "B1"}) for number, each in enumerate(sets)]
    parts = [(window, columns_by_publisher(window.sets)["P"], window.sets.delivered) for window in windows]
    rng = random.Random(5)
    for period_s, most in ((60.0, 7), (30.0, 14), (10.0, 42)):
        chosen = replace(ONE_TRACE, pop_traces_max=7, pop_window_s=period_s)
        traced = trace(parts, "P", chosen, rng)
        assert traced is not None
        # With 100 or more notifications per W, the chance that one leaves N unused is below one in a million.
        assert traced.count == most
    traced = trace(parts, "P", replace(ONE_TRACE, pop_traces_max=1, pop_window_s=30.0), rng)
    assert traced is not None
    assert traced.count == 2


def test_a_publisher_with_an_unknown_home_stays() -> None:
    """No broker could be commanded to release it."""
    state = fig_1_state()
    homeless = TreeState(TreeConfiguration.of(0, FIG_1.brokers, FIG_1.links), state.inventory, state.windows)
    assert planned(homeless) == []


def test_a_publisher_without_subscribers_stays() -> None:
    """Without interest no link dominates."""
    (sets,) = spans_of(FIG_1.brokers, [Published("P", 0, frozenset())], {"P": "B1"}, [60.0])
    state = TreeState(FIG_1, inventory_of(FIG_1, {}), (window_of(0, sets, {"P": "B1"}),))
    assert planned(state) == []


def test_newer_notifications_count_more() -> None:
    """Once interest has moved to the other end, the publisher follows, although most was delivered at the first end."""
    tree = TreeConfiguration.of(0, line_of(5).brokers, line_of(5).links, {"p": "b02"})
    old, new = Published("p", 0, frozenset({"b00"})), Published("p", 1, frozenset({"b04"}))
    sets = spans_of(tree.brokers, [old] * 40 + [new] * 8, {"p": "b02"}, [60.0, 60.0])
    windows = tuple(window_of(number, each, {"p": "b02"}) for number, each in enumerate(sets))
    state = TreeState(tree, inventory_of(tree, {}), windows)
    (proposal,) = planned(state, replace(ONE_TRACE, pop_traces_max=1000), seed=1)
    assert proposal.moves == (ClientMove("p", "b02", "b04"),)


@given(published_overlays(), st.integers(0, 2**32))
def test_the_target_is_a_median_of_the_subscribers(drawn: PublishedOverlay, seed: int) -> None:
    """No broker has a lower mean number of hops to the traced subscribers than the broker at which the walk ends."""
    tree = drawn.configuration
    rng = random.Random(seed)
    counts = np.array([float(rng.choice([0, 0, 1, 2, 9])) for _ in tree.brokers])
    walk = probe_walk(tree, RootedTree.of(tree), counts, rng.randrange(len(tree.brokers)))
    hops = [
        sum(count * (len(tree.path(broker, to)) - 1) for count, to in zip(counts, tree.brokers, strict=True))
        for broker in tree.brokers
    ]
    assert hops[walk.path[-1]] == min(hops)
    assert list(walk.path) == [
        tree.brokers.index(broker) for broker in tree.path(tree.brokers[walk.path[0]], tree.brokers[walk.path[-1]])
    ]


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.sampled_from(["gain", "arrival"]))
def test_proposals_are_costed_in_sequence(seed: int, order: Literal["gain", "arrival"]) -> None:
    """Costs include the moves of earlier proposals; ordered by gain, the best comes first."""
    state = state_of(draw_overlay(random.Random(seed), publishers_max=5), random.Random(seed))
    proposals = planned(state, replace(ONE_TRACE, order=order), seed)
    costs_per_s = costs_along(state, proposals)
    assert [proposal.cost_before_per_s for proposal in proposals] == pytest.approx(costs_per_s[:-1])
    assert [proposal.cost_after_per_s for proposal in proposals] == pytest.approx(costs_per_s[1:])
    gains = [proposal.gain_per_s for proposal in proposals]
    assert order == "arrival" or gains == pytest.approx(sorted(gains, reverse=True))
