"""Trees and measures shared by all systems, and Chord in that form."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.api.rings import UserInterests, overlay_ring_cost
from regraft_lab.dynatops.chord_baseline import chord_roots, chord_trees, random_configuration
from regraft_lab.dynatops.dissemination import NO_PARENT, RootedTrees, topic_measures, walk_routes

# Brokers in a line, 0 - 1 - 2 - 3: the next one towards the target.
LINE = np.array([[min(at + 1, to) if to > at else max(at - 1, to) for to in range(4)] for at in range(4)], np.int32)


def test_routes_on_a_line() -> None:
    """The last broker before the target, and how far it is."""
    parents, depths = walk_routes(LINE)
    assert parents[0].tolist() == [NO_PARENT, 0, 1, 2]
    assert parents[2].tolist() == [1, 2, NO_PARENT, 2]
    assert depths[1].tolist() == [1, 0, 1, 2]


def test_a_route_that_never_arrives_is_refused() -> None:
    """0 and 1 send messages for 2 to each other."""
    with pytest.raises(ValueError, match="loop"):
        walk_routes(np.array([[0, 1, 1], [0, 1, 0], [0, 1, 2]], np.int32))


def test_messages_and_delay_by_hand() -> None:
    """On the line: topic 0 from root 0 to brokers 1 and 3, relayed by 2; topic 1 from 2 to 2 and 3; topic 2 to none."""
    wanted = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]], dtype=bool)
    trees = RootedTrees.of_routes(LINE)
    found = topic_measures(trees, np.array([0, 2, 1]), wanted)
    assert found.subscriber.tolist() == [2, 1, 0]
    assert found.relay.tolist() == [1, 0, 0]
    assert found.delay.tolist() == [1 + 3, 0 + 1, 0]
    assert found.deliveries.tolist() == [2, 2, 0]
    assert found.mean_delay() == 5 / 4
    assert found.mean_messages() == 4 / 3
    rates = np.array([2.0, 0.0, 5.0])
    assert found.mean_delay(rates) == 2.0
    assert found.mean_messages(rates) == 6 / 7
    cost = found.cost(rates)
    assert (cost.subscriber_per_s, cost.relay_per_s, cost.delay_per_s) == (4.0, 2.0, 8.0)


def test_delays_add_up_along_the_path_and_count_for_each_user() -> None:
    """Hops of 1, 10 and 100; two users at broker 1, five at broker 3."""
    hop_delays = np.abs(np.subtract.outer([0.0, 1.0, 11.0, 111.0], [0.0, 1.0, 11.0, 111.0]))
    trees = RootedTrees.of_routes(LINE)
    users = np.array([[0], [2], [0], [5]])
    found = topic_measures(trees, np.array([0]), users > 0, trees.delays(hop_delays), users)
    assert found.delay.tolist() == [2 * 1 + 5 * 111]
    assert found.deliveries.tolist() == [7]
    assert found.subscriber.tolist() == [2]


def test_a_change_costs_the_path_there_and_for_routes_also_the_path_back() -> None:
    """Trees of routes are updated from the root down, trees of requests on the path to it."""
    assert RootedTrees.of_routes(LINE).change_messages[0].tolist() == [0, 2, 4, 6]
    assert RootedTrees.of_requests(LINE).change_messages[0].tolist() == [0, 1, 2, 3]


def test_trees_of_requests_reverse_their_routes() -> None:
    """One way around a ring of four: requests go up, notifications come down."""
    around = np.array([[(at + 1) % 4 if to != at else at for to in range(4)] for at in range(4)], np.int32)
    trees = RootedTrees.of_requests(around)
    assert trees.parents[0].tolist() == [NO_PARENT, 2, 3, 0]
    assert trees.depths[0].tolist() == [0, 3, 2, 1]
    assert RootedTrees.of_routes(around).parents[0].tolist() == [NO_PARENT, 0, 1, 2]


@given(st.integers(1, 25), st.integers(1, 12), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_chord_costs_the_same_as_its_ring(brokers: int, topics: int, density: float, seed: int) -> None:
    """The shared measures agree with the cost that planners use, with hops and with link delays."""
    rng = np.random.default_rng(seed)
    names = [f"b{place:02d}" for place in range(brokers)]
    configuration = random_configuration(names, rng)
    wanted = rng.random((brokers, topics)) < density
    labels = tuple(f"t{place:02d}" for place in range(topics))
    users = {
        f"u{broker:02d}": (names[broker], [labels[topic] for topic in np.flatnonzero(wanted[broker])])
        for broker in range(brokers)
    }
    interests = UserInterests.of(names, users, labels)
    rates = rng.random(topics)
    trees, roots = chord_trees(configuration), chord_roots(configuration, labels)
    delays = rng.random((brokers, brokers))
    for link_cost in (None, delays):
        expected = overlay_ring_cost(configuration, interests, rates, link_cost)
        ways = None if link_cost is None else trees.delays(link_cost)
        found = topic_measures(trees, roots, wanted, ways).cost(rates)
        assert found.subscriber_per_s == pytest.approx(expected.subscriber_per_s)
        assert found.relay_per_s == pytest.approx(expected.relay_per_s)
        assert found.delay_per_s == pytest.approx(expected.delay_per_s)
    assert [configuration.brokers[root] for root in roots.tolist()] == [configuration.rendezvous(one) for one in labels]


def test_random_rings_differ_and_repeat_by_seed() -> None:
    """Every broker has an ID; another seed gives another ring."""
    names = [f"b{place}" for place in range(40)]
    first, again, other = (random_configuration(names, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert len(set(first.ids)) == 40
    assert random_configuration(names[:8], np.random.default_rng(1), bits=3).bits == 3
