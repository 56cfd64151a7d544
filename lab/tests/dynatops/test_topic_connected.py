"""Topic-connected overlays: greedy links, DCB-M, rebuilding, the cost of events on them."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft_lab.dynatops.connect_topics import (
    GREEDY_MERGE,
    MINMAX,
    adjacency_of,
    greedy_links,
    unconnected_topics,
)
from regraft_lab.dynatops.connected_dissemination import connected_measures
from regraft_lab.dynatops.topic_connected import BULK, build_overlay, rebuild_overlay

RATIOS = st.sampled_from([GREEDY_MERGE, 2.0, MINMAX])


@st.composite
def interests(draw: st.DrawFn) -> np.ndarray:
    """Return which of up to 14 brokers want which of up to 8 topics."""
    brokers, topics = draw(st.integers(1, 14)), draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.random((brokers, topics)) < draw(st.floats(0, 1))


def _subgraph(links: object, wanted: np.ndarray, topic: int) -> nx.Graph:
    graph = nx.Graph(links)
    graph.add_nodes_from(range(len(wanted)))
    return graph.subgraph(np.flatnonzero(wanted[:, topic]).tolist())


def _parts(links: object, wanted: np.ndarray, topic: int) -> int:
    return nx.number_connected_components(_subgraph(links, wanted, topic))


@given(interests(), RATIOS)
def test_greedy_links_connect_every_topic_and_each_was_needed(wanted: np.ndarray, ratio: float) -> None:
    """In the order of their addition, each link joins parts of some topic."""
    links = greedy_links(wanted, weight_ratio_max=ratio)
    topics = range(wanted.shape[1])
    assert all(_parts(links, wanted, topic) <= 1 for topic in topics)
    for place in range(len(links)):
        before = [_parts(links[:place], wanted, topic) for topic in topics]
        assert before != [_parts(links[: place + 1], wanted, topic) for topic in topics]


@given(interests(), RATIOS)
def test_each_greedy_link_is_the_one_the_rule_names(wanted: np.ndarray, ratio: float) -> None:
    """Checked against weights and degrees recomputed for each step."""
    links = greedy_links(wanted, weight_ratio_max=ratio)
    for place, chosen in enumerate(links):
        weights = _weights(links[:place], wanted)
        degrees = adjacency_of(links[:place], len(wanted)).sum(axis=1)
        heaviest = max(weights.values())
        below = {link: weight for link, weight in weights.items() if degrees[list(link)].max() < degrees.max()}
        lightest_degree = max(below.values(), default=0)
        expected = below if lightest_degree > 0 and heaviest <= ratio * lightest_degree else weights
        assert weights[chosen] == max(expected.values())
        assert chosen in expected


def _weights(links: list[tuple[int, int]], wanted: np.ndarray) -> dict[tuple[int, int], int]:
    count = len(wanted)
    found = dict.fromkeys([(one, other) for one in range(count) for other in range(one + 1, count)], 0)
    for topic in range(wanted.shape[1]):
        parts = list(nx.connected_components(_subgraph(links, wanted, topic)))
        for one, other in found:
            if wanted[one, topic] and wanted[other, topic]:
                found[one, other] += not any({one, other} <= part for part in parts)
    return found


def test_minmax_spreads_links_that_greedy_merge_gathers() -> None:
    """All want all of twenty topics, one wants ten more, and each other broker two of these: GM makes a star."""
    wanted = np.ones((6, 20), dtype=bool)
    more = np.zeros((6, 10), dtype=bool)
    more[0] = True
    for broker in range(1, 6):
        more[broker, 2 * broker - 2 : 2 * broker] = True
    wanted = np.hstack([wanted, more])
    star, spread = greedy_links(wanted, weight_ratio_max=GREEDY_MERGE), greedy_links(wanted)
    assert sorted(star) == [(0, other) for other in range(1, 6)]
    assert len(spread) > len(star)  # The ten topics get their own links after a path for the twenty.
    ring = greedy_links(np.ones((6, 1), dtype=bool))
    assert adjacency_of(ring, 6).sum(axis=1).max() == 2


@given(interests())
def test_unconnected_topics_are_those_in_several_parts(wanted: np.ndarray) -> None:
    """On a random overlay, compared with another library."""
    rng = np.random.default_rng(len(wanted))
    count = len(wanted)
    links = [(one, other) for one in range(count) for other in range(one + 1, count) if rng.random() < 0.2]
    expected = [topic for topic in range(wanted.shape[1]) if _parts(links, wanted, topic) > 1]
    assert unconnected_topics(adjacency_of(links, count), wanted).tolist() == expected


@given(interests(), st.floats(0, 1), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_dcbm_connects_every_topic(wanted: np.ndarray, bulk_share: float, parts: int, seed: int) -> None:
    """Whichever brokers are bulk, and however many parts there are; links name the smaller broker first."""
    overlay = build_overlay(wanted, np.random.default_rng(seed), bulk_share, parts)
    assert not len(unconnected_topics(overlay.adjacency, wanted))
    assert all(one < other for one, other in overlay.links)
    assert (overlay.part_of == BULK).sum() == round(bulk_share * len(wanted))
    assert overlay.degrees.sum() == 2 * len(overlay.links)
    for part, links in enumerate(overlay.part_links):
        assert all(overlay.part_of[list(link)].tolist() == [part, part] for link in links)


@given(interests(), interests(), st.integers(0, 2**32 - 1))
def test_rebuilding_connects_again_and_counts_the_links_that_differ(
    wanted: np.ndarray, other: np.ndarray, seed: int
) -> None:
    """Nothing happens while all topics are connected; parts without changes keep their links."""
    later = wanted.copy()
    rows, columns = min(len(wanted), len(other)), min(wanted.shape[1], other.shape[1])
    later[:rows, :columns] = other[:rows, :columns]
    overlay = build_overlay(wanted, np.random.default_rng(seed), part_count=3)
    rebuilt, changed = rebuild_overlay(overlay, later)
    assert not len(unconnected_topics(rebuilt.adjacency, later))
    if not len(unconnected_topics(overlay.adjacency, later)):
        assert rebuilt is overlay
    assert changed == len(overlay.links ^ rebuilt.links)
    for part, links in enumerate(overlay.part_links):
        if (wanted == later)[overlay.part_of == part].all():
            assert rebuilt.part_links[part] == links


def test_rebuilding_for_the_same_subscriptions_changes_nothing() -> None:
    """Broken and repaired: the next overlay is that for the new subscriptions, and stays."""
    rng = np.random.default_rng(1)
    wanted = rng.random((40, 60)) < 0.2
    overlay = build_overlay(wanted, rng)
    later = rng.random((40, 60)) < 0.2
    rebuilt, changed = rebuild_overlay(overlay, later)
    assert changed > 0
    assert rebuild_overlay(rebuilt, later) == (rebuilt, 0)


def test_dcbm_has_slightly_higher_degrees_than_an_undivided_overlay() -> None:
    """A hundred brokers with a tenth of two hundred topics each: the abstract says marginally higher."""
    rng = np.random.default_rng(2)
    wanted = rng.random((100, 200)) < 0.1
    divided = build_overlay(wanted, rng)
    whole = build_overlay(wanted, rng, bulk_share=0.0, part_count=1)
    assert not whole.joining_links
    assert whole.degrees.max() <= divided.degrees.max() <= 2 * whole.degrees.max()


@pytest.mark.parametrize(("share", "parts", "words"), [(1.5, 2, "bulk_share is 1.5"), (0.1, 0, "part_count is 0")])
def test_invalid_parts_report_why(share: float, parts: int, words: str) -> None:
    """The message has the value and the limit."""
    with pytest.raises(ValueError, match=words):
        build_overlay(np.ones((3, 3), dtype=bool), np.random.default_rng(0), share, parts)


def test_events_go_over_subscribers_only() -> None:
    """A line of four, of which three want the topic: one message for each but the first, mean path (3 + 2 + 3) / 3."""
    adjacency = adjacency_of([(0, 1), (1, 2), (2, 3)], 4)
    wanted = np.array([[1, 0], [1, 0], [1, 0], [0, 0]], dtype=bool)
    found = connected_measures(adjacency, wanted, np.random.default_rng(1), entries=3_000)
    assert found.subscriber.tolist() == [2, 0]
    assert found.relay.tolist() == [0, 0]
    assert found.deliveries.tolist() == [3, 0]
    assert found.delay[0] == pytest.approx(8 / 3, abs=0.05)
    assert found.delay[1] == 0


@given(interests(), st.integers(0, 2**32 - 1))
def test_paths_are_shortest_among_subscribers(wanted: np.ndarray, seed: int) -> None:
    """Their sums equal those of another library; with delays they use a path of as many hops."""
    overlay = build_overlay(wanted, np.random.default_rng(seed))
    found = connected_measures(overlay.adjacency, wanted, np.random.default_rng(seed), entries=1)
    doubled = np.full((len(wanted),) * 2, 2.0)
    timed = connected_measures(overlay.adjacency, wanted, np.random.default_rng(seed), 1, doubled)
    for topic in range(wanted.shape[1]):
        graph = _subgraph(overlay.links, wanted, topic)
        sums = [sum(nx.single_source_shortest_path_length(graph, one).values()) for one in graph]
        assert found.delay[topic] in (sums or [0])
        assert timed.delay[topic] == 2 * found.delay[topic]
        assert found.subscriber[topic] == max(len(graph) - 1, 0)


def test_a_topic_connected_only_through_other_brokers_is_refused() -> None:
    """Broker 1 does not want the topic, so it does not relay it."""
    adjacency = adjacency_of([(0, 1), (1, 2)], 3)
    wanted = np.array([[1], [0], [1]], dtype=bool)
    with pytest.raises(ValueError, match="rebuild it first"):
        connected_measures(adjacency, wanted, np.random.default_rng(0))
    with pytest.raises(ValueError, match="entries is 0"):
        connected_measures(adjacency, wanted, np.random.default_rng(0), entries=0)
