"""Costs of publishers at each home, compared with the overlay's cost and with each delivery tree."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree.overlay_cost import link_crossings, overlay_cost
from regraft.overlay.tree.publisher_costs import PublisherCosts
from regraft_lab.pop_grape.costs_of_homes import cost_at_per_s, loads_at_per_s
from tests.overlay.published_overlays import Published, PublishedOverlay, published_overlays, spans_of
from tests.overlay.small_overlays import inventory_of, line_of

SEEDS = st.integers(0, 2**32)


def priced(drawn: PublishedOverlay) -> PublisherCosts:
    return PublisherCosts(drawn.inventory.bootstrap, drawn.inventory, drawn.spans)


def other_homes(drawn: PublishedOverlay, seed: int) -> dict[str, str]:
    rng = random.Random(seed)
    return {publisher: rng.choice(drawn.inventory.brokers) for publisher in sorted(drawn.homes)}


@given(published_overlays(), SEEDS)
def test_publishers_add_up_to_the_overlays_cost(drawn: PublishedOverlay, seed: int) -> None:
    """Wherever the publishers are, their costs add up to what the tree costs, over all spans and in each."""
    costs, homes = priced(drawn), other_homes(drawn, seed)
    tree, index = drawn.inventory.bootstrap, drawn.inventory.index
    whole = DeliverySets.joined(drawn.spans).at_homes(homes)
    assert cost_at_per_s(costs, homes) == pytest.approx(overlay_cost(tree, drawn.inventory, whole).total_per_s)
    for place, span in enumerate(drawn.spans):
        by_span = sum(costs.costs_by_span_per_s(name)[place, index[homes[name]]] for name in costs.publishers)
        expected = overlay_cost(tree, drawn.inventory, span.at_homes(homes)).total_per_s
        assert by_span == pytest.approx(expected)


@given(published_overlays(), SEEDS)
def test_loads_are_what_passes_each_broker(drawn: PublishedOverlay, seed: int) -> None:
    """The loads of all publishers add up to the notifications that pass each broker on their delivery trees."""
    homes = other_homes(drawn, seed)
    whole = DeliverySets.joined(drawn.spans).at_homes(homes)
    passing = whole.words.copy()
    for pair, words in link_crossings(drawn.inventory.bootstrap, whole).items():
        for end in pair:
            passing[drawn.inventory.index[end]] |= words
    expected = np.bitwise_count(passing).sum(axis=1) / whole.span_s
    assert loads_at_per_s(priced(drawn), homes) == pytest.approx(expected)


@given(published_overlays(publishers_max=2))
def test_the_message_rate_counts_each_broker_that_a_notification_passes(drawn: PublishedOverlay) -> None:
    """From each home, every broker counts what is wanted there or further out; the sum is the message rate."""
    costs, tree = priced(drawn), drawn.inventory.bootstrap
    span_s = sum(span.span_s for span in drawn.spans)
    for place, publisher in enumerate(costs.publishers):
        for home_place, home in enumerate(tree.brokers):
            towards = tree.parents_from(home)
            total = 0
            for one in drawn.notifications:
                passed: set[str] = set()
                for broker in one.delivered if one.publisher == publisher else ():
                    while broker != home:
                        passed.add(broker)
                        broker = towards[broker]
                    passed.add(home)
                total += len(passed)
            assert costs.message_rates_per_s[place, home_place] == pytest.approx(total / span_s)


@given(published_overlays())
def test_recorded_homes_do_not_affect_prices(drawn: PublishedOverlay) -> None:
    """Prices of homes depend on what was delivered and published, not on where the publishers were."""
    moved = [span.at_homes(other_homes(drawn, 1)) for span in drawn.spans]
    again = PublisherCosts(drawn.inventory.bootstrap, drawn.inventory, moved)
    assert np.array_equal(again.costs_per_s, priced(drawn).costs_per_s)


def test_line_of_three_by_hand() -> None:
    """Two notifications are wanted at one end, one at no broker: from the other end, the two cross both links."""
    tree = line_of(3)
    inventory = inventory_of(tree, {("b00", "b01"): 2.0, ("b01", "b02"): 5.0}, processing=1.0)
    wanted = [frozenset({"b02"}), frozenset({"b02"}), frozenset[str]()]
    spans = spans_of(tree.brokers, [Published("p", 0, where) for where in wanted], {"p": "b00"}, [2.0])
    costs = PublisherCosts(tree, inventory, spans)
    # At b00: 2 x (2 + 5) over links, 3 + 2 + 2 through brokers, in 2 s.
    assert costs.costs_per_s.tolist() == [[21 / 2, 15 / 2, 3 / 2]]
    assert costs.message_rates_per_s.tolist() == [[6 / 2, 4 / 2, 2 / 2]]
    assert costs.loads_per_s("p", "b01").tolist() == [0.0, 3 / 2, 2 / 2]
    assert costs.published_per_s.tolist() == [3 / 2]


def test_a_publisher_seen_in_only_one_span_costs_nothing_in_the_others() -> None:
    """A publisher costs nothing in spans without its notifications; a span without any publisher is valid."""
    tree = line_of(3)
    inventory = inventory_of(tree, {})
    notifications = [Published("p", 1, frozenset({"b02"})), Published("q", 0, frozenset({"b00"}))]
    spans = spans_of(tree.brokers, notifications, {"p": "b00", "q": "b00"}, [1.0, 1.0, 1.0])
    costs = PublisherCosts(tree, inventory, spans)
    assert costs.costs_by_span_per_s("p").tolist() == [[0, 0, 0], [23, 12, 1], [0, 0, 0]]
    assert PublisherCosts(tree, inventory, spans[2:]).costs_per_s.shape == (0, 3)
    assert cost_at_per_s(PublisherCosts(tree, inventory, spans[2:]), {}) == 0


def test_no_spans_and_other_brokers_are_refused() -> None:
    """The error says what is wrong."""
    tree = line_of(3)
    inventory = inventory_of(tree, {})
    spans = spans_of(tree.brokers, [Published("p", 0, frozenset({"b02"}))], {"p": "b00"}, [1.0])
    with pytest.raises(ValueError, match="at least one window"):
        PublisherCosts(tree, inventory, [])
    with pytest.raises(ValueError, match="same brokers"):
        PublisherCosts(line_of(4), inventory, spans)
