"""The cost of a ring broken down by link adds up to the cost of the ring."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.controller.kinds.ring.ring_state import ring_breakdown
from regraft.overlay.overlay_configuration import link
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.ring.ring_costs import overlay_ring_cost
from regraft.overlay.ring.user_interests import UserInterests


@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.5, 1.0]))
def test_links_carry_what_the_routes_to_subscribers_cross(seed: int, weight: float) -> None:
    """Each topic's tree is the union of routes; the total is that of the ring, with no cost of brokers."""
    rng = random.Random(seed)
    brokers = [f"b{number:02d}" for number in range(rng.randrange(2, 14))]
    overlay = RingConfiguration.hashed(0, 32, brokers)
    users = {f"u{number}": (rng.choice(brokers), rng.sample("abcde", 2)) for number in range(rng.randrange(1, 12))}
    interests = UserInterests.of(brokers, users)
    rates = np.array([rng.random() for _ in interests.topics])
    found = ring_breakdown(overlay, interests, rates, weight)
    crossed: dict[tuple[str, str], float] = {}
    for topic, rate in zip(interests.topics, rates, strict=True):
        members = {home for home, topics in users.values() if topic in topics}
        routes = [overlay.route(overlay.rendezvous(topic), broker) for broker in members]
        for a, b in {pair for route in routes for pair in itertools.pairwise(route)}:
            crossed[link(a, b)] = crossed.get(link(a, b), 0.0) + rate
    assert found.link_notifications_per_s == pytest.approx(crossed)
    assert set(found.links_per_s) <= set(overlay.links)
    assert found.total_per_s == pytest.approx(overlay_ring_cost(overlay, interests, rates).total_per_s(weight))
    assert set(found.brokers_per_s.values()) == {0.0}


def test_a_notification_costs_its_links_and_the_hops_behind_them() -> None:
    """Fig. 2 of Zhao13 after the reassignment: three links to 2, 3 and 5, one subscriber behind each."""
    ring = RingConfiguration.of(0, 3, {f"b{number}": number for number in range(8)})
    topic = next(name for name in (f"t{count}" for count in range(100)) if ring.rendezvous(name) == "b1")
    users = {f"u{number}": (f"b{number}", [topic]) for number in (1, 2, 3, 5)}
    found = ring_breakdown(ring, UserInterests.of(ring.brokers, users), np.array([10.0]))
    assert found.links_per_s == {("b1", "b2"): 20.0, ("b1", "b3"): 20.0, ("b1", "b5"): 20.0}
    assert found.link_notifications_per_s == dict.fromkeys(found.links_per_s, 10.0)
