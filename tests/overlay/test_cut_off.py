"""Deliveries that a broker's death cuts off, compared with following every path."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.controller.kinds.ring.ring_state import ring_cut_off
from regraft.overlay.cut_off import DeliveryPairs
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.ring.user_interests import UserInterests
from regraft.overlay.tree.build_tree import random_tree
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.overlay.tree.tree_cut_off import tree_cut_off
from tests.overlay.small_overlays import brokers_named, line_of


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 12), st.integers(0, 2**32))
def test_on_a_tree_a_death_cuts_off_what_passes_the_broker(count: int, seed: int) -> None:
    """Only deliveries between other brokers count, not what is published or wanted at the broker itself."""
    rng = random.Random(seed)
    brokers = brokers_named(count)
    tree = random_tree(brokers, count, rng) if count > 1 else TreeConfiguration.of(0, brokers, [])
    deliveries = np.array([[float(rng.randint(0, 5)) for _ in brokers] for _ in brokers])
    expected = dict.fromkeys(brokers, 0.0)
    for row, home in enumerate(brokers):
        for column, broker in enumerate(brokers):
            for between in tree.path(home, broker)[1:-1]:
                expected[between] += deliveries[row, column]
    found = tree_cut_off(tree, DeliveryPairs.of_matrix(deliveries))
    assert dict(zip(found.brokers, found.per_s.tolist(), strict=True)) == pytest.approx(expected)
    assert found.total_per_s == deliveries.sum()


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 12), st.integers(0, 2**32))
def test_on_a_ring_a_death_cuts_off_what_passes_on_the_way_from_the_rendezvous(count: int, seed: int) -> None:
    """The rendezvous itself counts: without it none of its topics is delivered."""
    rng = random.Random(seed)
    ring = RingConfiguration.hashed(0, 16, brokers_named(count))
    topics = [f"t{number}" for number in range(4)]
    users = {
        f"u{number}": (rng.choice(ring.brokers), rng.sample(topics, rng.randint(1, 4)))
        for number in range(rng.randint(1, 9))
    }
    interests = UserInterests.of(ring.brokers, users, topics)
    rates = np.array([float(rng.randint(0, 5)) for _ in topics])
    expected = dict.fromkeys(ring.brokers, 0.0)
    for home, wanted in users.values():
        for topic in wanted:
            for between in ring.route(ring.rendezvous(topic), home)[:-1]:
                expected[between] += rates[topics.index(topic)]
    found = ring_cut_off(ring, interests, rates)
    assert dict(zip(found.brokers, found.per_s.tolist(), strict=True)) == pytest.approx(expected)
    assert found.total_per_s == sum(rates[topics.index(topic)] for _, wanted in users.values() for topic in wanted)


def test_the_shares_of_the_worst_and_of_a_random_death() -> None:
    """On a line of three, everything that the two ends send each other passes the middle."""
    found = tree_cut_off(line_of(3), DeliveryPairs.of({(0, 1): 1, (0, 2): 2, (2, 0): 2}, 1.0))
    assert (found.worst_broker, found.worst_share) == ("b01", 0.8)
    assert found.mean_share == pytest.approx(0.8 / 3)
    silent = tree_cut_off(line_of(3), DeliveryPairs.of({}, 1.0))
    assert silent.worst_share == silent.mean_share == 0
