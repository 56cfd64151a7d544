"""Costs of topics on a ring: the worked example of Zhao13, and every topic's tree followed by hand."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from regraft.overlay.ring.chord_configuration import RingConfiguration
from regraft.overlay.ring.chord_ring import ChordRing
from regraft.overlay.ring.ring_costs import overlay_ring_cost, ring_cost
from regraft.overlay.ring.user_interests import UserInterests


def fig_2(subscribed: set[int]) -> tuple[float, float, float]:
    wanted = np.zeros((8, 1), dtype=bool)
    wanted[list(subscribed)] = True
    cost = ring_cost(ChordRing(3, tuple(range(8))), np.array([1]), wanted, np.array([1.0]))
    return cost.subscriber_per_s, cost.relay_per_s, cost.delay_per_s


@pytest.mark.parametrize("subscribed", [{0, 2, 4, 6}, {0, 1, 4, 6}, {0, 1, 2, 4}])
def test_figure_2_before_has_three_relays_and_three_hops_at_most(subscribed: set[int]) -> None:
    """Zhao13, Fig. 2a: the drawing is lost, and each of these sets fits the text."""
    _, relays, _ = fig_2(subscribed)
    assert relays == 3
    assert ChordRing(3, tuple(range(8))).depths[1, list(subscribed)].max() == 3


def test_figure_2_after_has_no_relay_and_one_hop() -> None:
    """Zhao13, Fig. 2b: only the set {1, 2, 3, 5} fits."""
    assert fig_2({1, 2, 3, 5}) == (3, 0, 3)


def test_costs_are_those_of_the_trees_that_routes_form() -> None:
    """Each topic's tree is counted edge by edge as the union of its routes."""
    rng = random.Random(5)
    brokers = [f"b{number:02d}" for number in range(17)]
    overlay = RingConfiguration.hashed(0, 32, brokers)
    users = {f"u{number}": (rng.choice(brokers), rng.sample("abcdefg", 3)) for number in range(12)}
    interests = UserInterests.of(brokers, users)
    rates = np.array([rng.random() for _ in interests.topics])
    delays = np.array([[abs(a - b) + 0.5 * (a != b) for a in range(17)] for b in range(17)], dtype=float)
    place = {broker: position for position, broker in enumerate(brokers)}
    subscriber = relay = hops = delay = 0.0
    for topic, rate in zip(interests.topics, rates, strict=True):
        root = overlay.rendezvous(topic)
        members = {home for home, topics in users.values() if topic in topics}
        edges = set()
        for broker in members:
            route = overlay.route(root, broker)
            links = list(itertools.pairwise(route))
            edges |= set(links)
            hops += rate * len(links)
            delay += rate * sum(delays[place[a], place[b]] for a, b in links)
        subscriber += rate * sum(target in members for _, target in edges)
        relay += rate * sum(target not in members for _, target in edges)
    in_hops = overlay_ring_cost(overlay, interests, rates)
    assert (in_hops.subscriber_per_s, in_hops.relay_per_s, in_hops.delay_per_s) == pytest.approx(
        (subscriber, relay, hops)
    )
    assert overlay_ring_cost(overlay, interests, rates, delays).delay_per_s == pytest.approx(delay)
    assert in_hops.total_per_s(0.5) == pytest.approx(subscriber + relay + 0.5 * hops)
    assert in_hops.notification_cost_per_s(2.0) == pytest.approx(relay + 2 * hops)


def test_interests_as_arrays_match_the_users() -> None:
    """Counts, loads, and the change that moving one user makes."""
    interests = UserInterests.of(["b", "a"], {"u2": ("b", ["y", "x"]), "u1": ("a", ["x"]), "u3": ("a", [])}, ["z"])
    assert interests.topics == ("x", "y", "z")
    assert interests.user_counts.tolist() == [[1, 0, 0], [1, 1, 0]]
    assert interests.loads.tolist() == pytest.approx([1 / 3, 2 / 3])
    assert interests.topics_of("u2") == ("x", "y")
    assert interests.at_homes({"u2": "a", "gone": "b"}).user_counts.tolist() == [[2, 1, 0], [0, 0, 0]]
    with pytest.raises(KeyError):
        interests.at_homes({"u2": "nowhere"})
