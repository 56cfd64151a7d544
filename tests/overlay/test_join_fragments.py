"""The cheapest links between fragments, compared with trying all of them."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.overlay.tree.join_fragments import join_fragments


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw up to 7 brokers in fragments, with integer costs and little room for links."""
    count = draw(st.integers(2, 7))
    fragments = draw(st.integers(1, min(count, 5)))
    drawn = draw(st.lists(st.integers(0, fragments - 1), min_size=count - fragments, max_size=count - fragments))
    fragment_of = np.array(list(range(fragments)) + drawn)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    cost = rng.integers(0, 12, (count, count)).astype(float)
    return np.triu(cost, 1) + np.triu(cost, 1).T, fragment_of, rng.integers(0, 4, count)


def _tried_all(cost: np.ndarray, fragment_of: np.ndarray, room: np.ndarray) -> tuple[int, float]:
    """Return the least excess over the caps, and the least cost with that excess."""
    size, fragments = len(fragment_of), int(fragment_of.max()) + 1
    usable = [(a, b) for a, b in itertools.combinations(range(size), 2) if fragment_of[a] != fragment_of[b]]
    found = []
    for links in itertools.combinations(usable, fragments - 1):
        graph = nx.Graph()
        graph.add_nodes_from(range(fragments))
        graph.add_edges_from((fragment_of[a], fragment_of[b]) for a, b in links)
        if nx.is_connected(graph):
            used = np.bincount([end for pair in links for end in pair], minlength=size)
            found.append((int(np.maximum(used - room, 0).sum()), float(sum(cost[pair] for pair in links))))
    return min(found)


@settings(max_examples=300, deadline=None)
@given(problems())
def test_the_links_are_the_cheapest_within_the_caps(problem: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    """If no tree keeps the caps, as few links as possible exceed them."""
    cost, fragment_of, room = problem
    joined = join_fragments(cost, fragment_of, room)
    exceeded, least = _tried_all(cost, fragment_of, room)
    assert sum(joined.exceeded.values()) == exceeded
    assert joined.cost == sum(cost[pair] for pair in joined.links)
    if not exceeded:
        assert joined.cost == least == joined.cost_min
    groups = nx.Graph()
    groups.add_nodes_from(range(int(fragment_of.max()) + 1))
    groups.add_edges_from((fragment_of[a], fragment_of[b]) for a, b in joined.links)
    assert nx.is_tree(groups)


@settings(max_examples=100, deadline=None)
@given(problems())
def test_an_interrupted_search_returns_a_valid_bound(problem: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    """It still keeps the caps, and no set of links within them costs less than its bound."""
    cost, fragment_of, room = problem
    joined = join_fragments(cost, fragment_of, room, nodes_max=1)
    exceeded, least = _tried_all(cost, fragment_of, room)
    assert sum(joined.exceeded.values()) == exceeded
    if not exceeded:
        assert joined.cost_min <= least <= joined.cost
