"""Trees of advertisements with dynamic routing: each target once, by shortest paths."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from itertools import product

import networkx as nx
import pytest

from regraft.api.cyclic import ScotBroker
from regraft_lab.octopia.count_routing import LastHops, flood_advertisement
from regraft_lab.octopia.octopia_workload import paper_overlay
from regraft_lab.octopia.overlay_links import a_links, i_links
from regraft_lab.octopia.route_trees import BoundTrees

OVERLAY = paper_overlay()
GRAPH: nx.Graph[ScotBroker] = nx.Graph([*a_links(OVERLAY), *i_links(OVERLAY)])
THRESHOLD = 10.0


@cache
def last_hops(host: ScotBroker) -> LastHops:
    """Return the tree of an advertisement."""
    return flood_advertisement(OVERLAY, host)[1]


def delivered(
    bound: BoundTrees, host: ScotBroker, loads: dict[tuple[ScotBroker, ScotBroker], float]
) -> tuple[Counter[ScotBroker], dict[ScotBroker, int], int]:
    """Return how often a notification reaches each broker with a task, over how many links, and the copies."""
    taken, links, copies = Counter[ScotBroker](), {host: 0}, 0
    waiting = [(host, bound.all_targets, 0)]
    while waiting:
        at, targets, length = waiting.pop()
        for copy in bound.copies(at, targets, lambda one, other: loads.get((one, other), 0.0), THRESHOLD):
            copies += 1
            assert GRAPH.has_edge(at, copy.to)
            for bit, target in enumerate(bound.targets):
                if copy.vector >> bit & 1 and target == copy.to:
                    taken[target] += 1
                    links[target] = length + 1
            waiting.append((copy.to, copy.vector, length + 1))
    return taken, links, copies


@pytest.mark.parametrize("seed", range(6))
def test_each_target_gets_a_notification_once_by_a_shortest_path_whatever_is_overloaded(seed: int) -> None:
    """Even if all links are overloaded; without overload only the publisher's own tree is used."""
    rng = random.Random(seed)
    brokers = OVERLAY.brokers()
    host = rng.choice(brokers)
    targets = rng.sample([each for each in brokers if each != host], 20)
    bound = BoundTrees(host, {each: frozenset(rng.sample(brokers, 4)) for each in targets}, last_hops)
    both = [(one, other) for link in GRAPH.edges for one, other in (link, link[::-1])]
    usual = delivered(bound, host, {})[2]
    assert usual == len({link for target in targets for link in _path_links(target, host)})
    for share in (0.2, 0.6, 1.0):
        loads = {link: THRESHOLD + rng.random() for link in both if rng.random() <= share}
        taken, links, _ = delivered(bound, host, loads)
        assert taken == Counter(targets)
        assert all(links[each] == nx.shortest_path_length(GRAPH, host, each) for each in targets)


def _path_links(target: ScotBroker, host: ScotBroker) -> list[tuple[ScotBroker, ScotBroker]]:
    way = [target]
    while way[-1] != host:
        way.append(last_hops(host)[way[-1]])
    return list(zip(way[1:], way, strict=False))


def test_an_overloaded_link_is_avoided_by_another_tree_through_the_broker() -> None:
    """Two shortest paths lead to a broker of another region and cluster: some trees use the one, some the other."""
    host, target, other = next(
        (host, target, root)
        for host, target, root in product(OVERLAY.brokers()[:20], OVERLAY.brokers(), OVERLAY.brokers())
        if nx.shortest_path_length(GRAPH, host, target) == 2
        and host in dict(_path_links(target, root))
        and last_hops(root)[target] != last_hops(host)[target]
    )
    own = last_hops(host)[target]
    bound = BoundTrees(host, {target: [other]}, last_hops)
    full = {(host, own): THRESHOLD + 1}
    assert [copy.to for copy in bound.copies(host, 1, lambda *_: 0.0, THRESHOLD)] == [own]
    hot = bound.copies(host, 1, lambda one, to: full.get((one, to), 0.0), THRESHOLD)
    assert [copy.to for copy in hot] == [last_hops(other)[target]]
    alone = BoundTrees(host, {target: []}, last_hops)
    assert [copy.to for copy in alone.copies(host, 1, lambda one, to: full.get((one, to), 0.0), THRESHOLD)] == [own]
