"""Systems count the messages that they send, and report the same cost per notification as the overlay's costs."""

import numpy as np
import pytest

from regraft.api.rings import ring_cost, topic_roots
from regraft_lab.dynatops.broker_interests import InterestStep
from regraft_lab.dynatops.chord_baseline import random_configuration
from regraft_lab.dynatops.compared_systems import ConnectedSystem, RingSystem, bayeux_systems, ring_systems
from regraft_lab.dynatops.reassign_over_time import Reassigner

BROKERS = tuple(f"b{number:02d}" for number in range(20))
TOPICS = tuple(f"t{number:02d}" for number in range(15))


def step_of(counts: np.ndarray, end_h: float = 1.0, changed: list[tuple[int, int]] | None = None) -> InterestStep:
    """Return a step with these users at brokers (brokers, topics), and these changes of (broker, topic)."""
    pairs = np.array(changed or [], dtype=np.int32).reshape(-1, 2)
    return InterestStep(end_h, counts.astype(np.int32), pairs[:, 0], pairs[:, 1], 0)


def random_counts(seed: int) -> np.ndarray:
    """Return users at brokers, none at most of them."""
    rng = np.random.default_rng(seed)
    return rng.integers(1, 5, (len(BROKERS), len(TOPICS))) * (rng.random((len(BROKERS), len(TOPICS))) < 0.25)


def test_a_ring_measures_what_the_ring_costs() -> None:
    """Messages, relays and mean delay over brokers equal those of the ring's cost at equal rates."""
    configuration = random_configuration(BROKERS, np.random.default_rng(1))
    counts = random_counts(2)
    found = RingSystem(configuration, TOPICS).measures(step_of(counts))
    place = {broker: number for number, broker in enumerate(configuration.brokers)}
    wanted = (counts > 0)[[place[broker] for broker in configuration.broker_at]]
    roots = topic_roots(configuration, TOPICS)
    cost = ring_cost(configuration.ring, roots, wanted, np.ones(len(TOPICS)))
    assert found.messages == pytest.approx((cost.subscriber_per_s + cost.relay_per_s) / len(TOPICS))
    assert found.relays == pytest.approx(cost.relay_per_s / len(TOPICS))
    assert found.broker_delay == pytest.approx(cost.delay_per_s / (counts > 0).sum())
    assert found.delay == found.hops  # hops of delay 1


def test_requests_take_the_hops_to_the_root() -> None:
    """Changes at the start do not count: all systems begin with the initial interests."""
    configuration = random_configuration(BROKERS, np.random.default_rng(1))
    ring = RingSystem(configuration, TOPICS)
    ring.observe(step_of(random_counts(2), 0.0, [(0, 0), (1, 1)]))
    assert ring.counts.requests == 0
    ring.observe(step_of(random_counts(2), 1.0, [(3, 4), (3, 4), (7, 0)]))
    expected = sum(
        len(configuration.route(BROKERS[broker], configuration.rendezvous(TOPICS[topic]))) - 1
        for broker, topic in ((3, 4), (3, 4), (7, 0))
    )
    assert ring.counts.requests == expected


def test_reassigning_lowers_the_cost_and_is_counted() -> None:
    """By both methods, with enough events to pay off; interests do not change, so delay and relays fall together."""
    configuration = random_configuration(BROKERS, np.random.default_rng(1))
    step = step_of(random_counts(3))
    systems = ring_systems(configuration, TOPICS, 10_000.0, lambda: np.random.default_rng(5))
    before = systems["chord"].measures(step)
    costs = {}
    for name, system in systems.items():
        system.adapt(step)
        after = system.measures(step)
        costs[name] = after.relays * len(TOPICS) + after.broker_delay * (step.user_counts > 0).sum()
        assert system.counts.reassignments == (name != "chord")
        assert (system.counts.reassignment_messages > 0) == (name != "chord")
    assert systems["chord"].measures(step) == before
    assert costs["assignment"] <= costs["ssbr"] < costs["chord"]


def test_nothing_moves_when_events_are_too_few() -> None:
    """One event per topic does not pay for a move."""
    configuration = random_configuration(BROKERS, np.random.default_rng(1))
    reassigner = Reassigner("assignment", np.ones(len(TOPICS)), np.random.default_rng(1))
    ring = RingSystem(configuration, TOPICS, reassigner)
    ring.adapt(step_of(random_counts(3)))
    assert ring.counts.reassignments == 0


def test_ssbr_considers_delays_of_hops() -> None:
    """With brokers on a line the mean delay falls below that of the start, unlike with random swaps."""
    configuration = random_configuration(BROKERS, np.random.default_rng(1))
    places = np.arange(len(BROKERS), dtype=float)
    delays = np.abs(places[:, None] - places[None, :])
    step = step_of(random_counts(3))
    reassigner = Reassigner("ssbr", np.full(len(TOPICS), 10_000.0), np.random.default_rng(1))
    ring = RingSystem(configuration, TOPICS, reassigner, delays)
    before = ring.measures(step)
    ring.adapt(step)
    assert ring.counts.moved > 0
    assert ring.measures(step).broker_delay < before.broker_delay
    assert before.delay != before.hops


def test_a_connected_overlay_is_rebuilt_only_if_a_topic_is_disconnected() -> None:
    """The same subscriptions change no link; others do, at one message per link."""
    system = ConnectedSystem(np.random.default_rng(1))
    system.observe(step_of(random_counts(4), 0.0))
    system.observe(step_of(random_counts(4), 1.0))
    assert system.counts.reassignments == system.counts.moved == 0
    system.observe(step_of(random_counts(5), 2.0))
    assert system.counts.reassignments == 1
    assert system.counts.reassignment_messages == system.counts.moved > 0
    found = system.measures(step_of(random_counts(5), 2.0))
    assert found.relays == 0
    assert found.messages == pytest.approx(np.maximum((random_counts(5) > 0).sum(axis=0) - 1, 0).mean())


def test_larger_digits_make_shorter_routes() -> None:
    """Bayeux with base 16 resolves more at each hop than with base 4."""
    systems = bayeux_systems(len(BROKERS), TOPICS, lambda name: np.random.default_rng(len(name)))
    hops = {name: system.measures(step_of(random_counts(6))).hops for name, system in systems.items()}
    assert hops["bayeux16"] < hops["bayeux4"]
