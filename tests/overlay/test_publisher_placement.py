"""Publishers under caps of load: loads and the excess after every move, compared with making the move."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.overlay.tree.publisher_costs import PublisherCosts
from regraft.overlay.tree.publisher_placement import PublisherPlacement
from regraft_lab.pop_grape.costs_of_homes import loads_at_per_s
from tests.overlay.published_overlays import Published, draw_overlay, spans_of
from tests.overlay.small_overlays import inventory_of, line_of


def drawn_placement(seed: int) -> PublisherPlacement:
    """Return publishers at random homes under random caps; in half of the cases one has moved and may exceed a cap."""
    rng = random.Random(seed)
    drawn = draw_overlay(rng)
    costs = PublisherCosts(drawn.inventory.bootstrap, drawn.inventory, drawn.spans)
    count = len(costs.brokers)
    homes = [rng.randrange(count) for _ in costs.publishers]
    loads = loads_at_per_s(costs, dict(zip(costs.publishers, (costs.brokers[home] for home in homes), strict=True)))
    caps = loads * np.array([rng.choice([0.5, 1.0, 1.2, 3.0]) for _ in costs.brokers]) + 0.1
    placement = PublisherPlacement(costs, range(len(homes)), homes, caps)
    assert placement.loads_per_s == pytest.approx(loads)
    if rng.random() < 0.5:
        placement.move(rng.randrange(len(homes)), rng.randrange(count))
    return placement


@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_excess_after_each_move_is_that_of_the_moved_placement(seed: int) -> None:
    """The excess predicted for each single move is found after it, even if limits are exceeded already."""
    placement = drawn_placement(seed)
    expected = placement.excess_after_per_s()
    for place, row in enumerate(expected):
        for home, excess in enumerate(row):
            moved = placement.copy()
            moved.move(place, home)
            assert moved.excess_per_s == pytest.approx(excess, abs=1e-6)
            assert placement.keeps(placement.limits_per_s, [(place, home)]) == moved.keeps(moved.limits_per_s)
            if placement.excess_per_s == 0:
                assert (excess == 0) == moved.keeps(moved.limits_per_s)


def test_limits_are_caps_or_the_initial_loads() -> None:
    """A broker above its cap may stay so while others move; once its load falls, its limit falls with it."""
    line = line_of(3)
    spans = spans_of(line.brokers, [Published("p", 0, frozenset({"b02"}))] * 10, {"p": "b00"}, [1.0])
    costs = PublisherCosts(line, inventory_of(line, {}), spans)
    placement = PublisherPlacement(costs, [0], [0], np.array([4.0, 20.0, 20.0]))
    assert placement.limits_per_s == pytest.approx([10.0, 20.0, 20.0])
    placement.move(0, 1)
    assert placement.loads_per_s.tolist() == [0.0, 10.0, 10.0]
    assert placement.limits_per_s == pytest.approx([10.0, 20.0, 20.0])
    assert placement.limits_now() == pytest.approx([4.0, 20.0, 20.0])
    assert placement.keeps(placement.limits_per_s, [(0, 0)])
    assert not placement.keeps(placement.limits_now(), [(0, 0)])


def test_without_caps_every_move_is_free() -> None:
    """Without caps there is no excess."""
    line = line_of(3)
    spans = spans_of(line.brokers, [Published("p", 0, frozenset({"b02"}))] * 10, {"p": "b00"}, [1.0])
    costs = PublisherCosts(line, inventory_of(line, {}), spans)
    placement = PublisherPlacement(costs, [0], [0], None)
    assert placement.excess_after_per_s().tolist() == [[0.0, 0.0, 0.0]]
    assert placement.excess_per_s == 0
