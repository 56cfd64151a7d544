"""Counted messages of a reassignment: by our protocol, and by the paper's."""

import math
from collections import Counter

import numpy as np
import pytest

from regraft.api.rings import RingConfiguration
from regraft_lab.claim_evidence import Measured
from regraft_lab.dynatops.count_protocol import (
    STEPS,
    CountedRing,
    ProtocolTask,
    bounds,
    by_step,
    paper_messages,
    run_protocol,
)

TASK = ProtocolTask(1, 0, 8, 10)


def test_commands_are_seven_for_each_broker() -> None:
    """Prepare, activate and retire, and four answers; no lookups; END is sent when due or requested."""
    ring = CountedRing(TASK, np.random.default_rng(1))
    sent = ring.execute(ring.exchange_ids(4), [])
    found = by_step(sent)
    assert found["commands"] == 7 * 8
    assert found["overlay"] == 0
    assert sent["Join"] == sent["JoinAck"] > 0
    ends, asked = sent["EndPublisher"] + sent["EndTopic"], sent["AskEndPublisher"] + sent["AskEndTopic"]
    assert found["drain"] == ends + asked
    assert min(ends, asked) > 0


def routes_of(ring: CountedRing, configuration: RingConfiguration) -> set[tuple[str, tuple[str, ...]]]:
    """Return the routes from each rendezvous to all brokers in the topic's tree, subscribers and relays."""
    ways = set()
    for user, home in ring.home_of.items():
        for topic in ring.wanted[user]:
            route = configuration.route(configuration.rendezvous(topic), home)
            ways |= {(topic, route[:end]) for end in range(2, len(route) + 1)}
    return ways


@pytest.mark.parametrize("moved", [0, 2, 8])
def test_each_broker_whose_route_changes_joins_once(moved: int) -> None:
    """Subscribers and relays of the new trees; places whose route from the rendezvous is unchanged are kept."""
    ring = CountedRing(TASK, np.random.default_rng(2))
    target = ring.exchange_ids(moved)
    new = routes_of(ring, target) - routes_of(ring, ring.ring)
    assert bool(new) == bool(moved)
    assert ring.execute(target, [])["Join"] == len(new)


def test_the_papers_protocol_only_sends_commands_if_no_broker_moves() -> None:
    """Except its commands; with all moved, tables are transferred and repaired."""
    ring = CountedRing(TASK, np.random.default_rng(3))
    assert paper_messages(ring, ring.exchange_ids(0)) == {"commands": 48.0, "overlay": 0.0, "pubsub": 0.0, "drain": 0.0}
    found = paper_messages(ring, ring.exchange_ids(8))
    assert found["commands"] == 2 * (3 * 8 + 8)
    assert found["overlay"] == pytest.approx(8 * 9)
    assert found["pubsub"] > 0


def test_the_bound_is_the_papers_without_constants() -> None:
    """Eq. 7 at 16 brokers, 20 topics, 4 moved: 16 + (16 + 20 * 4) * 4."""
    figures = Measured(run_protocol(ProtocolTask(1, 0, 16, 20)))
    steps = bounds(ProtocolTask(1, 0, 16, 20), 4)
    assert steps == {"commands": 32.0, "overlay": 64.0, "pubsub": 21 * 4 * 4, "drain": 0.0}
    assert figures.value("protocol_bound", brokers=16, topics=20, moved=4) == pytest.approx(16 + (16 + 80) * 4)
    assert figures.value("protocol_bound", brokers=16, topics=20, moved=16) == pytest.approx(
        16 + (math.log2(16) ** 2 + 20 * math.log2(16)) * 16
    )
    for step in STEPS:
        assert figures.value("step_messages", protocol_step=step, moved=4) is not None
    requests = figures.value("moved_user_requests", brokers=16)
    # It is ordered to move and need not wait, attaches, and its three subscriptions are drained.
    assert requests == pytest.approx(6.0)


def test_a_message_of_an_unknown_kind_is_an_error() -> None:
    """Every message must be accounted for."""
    with pytest.raises(KeyError):
        by_step(Counter({"Gossip": 1}))
