"""Greedy topic connection: links between brokers until the subscribers of every topic are connected.

Dividing brokers into parts does not belong here (:mod:`experiments.dynatops.topic_connected`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Link = tuple[int, int]

MINMAX = math.inf  # The weight ratio of MinMax-ODA.
GREEDY_MERGE = 1.0  # The weight ratio of GM: always the heaviest link.


def greedy_links(
    wanted: Flags, present: Iterable[Link] = (), members: Flags | None = None, weight_ratio_max: float = MINMAX
) -> list[Link]:
    """Return links between ``members`` that, with those present, connect every topic as far as members can.

    ``wanted`` (brokers, topics). The weight of a link is the number of topics in which it joins two parts. Each step
    adds the heaviest of the links that raise the maximum degree least, as in Onus and Richa's MinMax-ODA (INFOCOM
    2009), unless the heaviest of all links is more than ``weight_ratio_max`` times as heavy, as in the variant with a
    parameter (Low-ODA). An infinite ratio is MinMax-ODA; 1 is the greedy merge of Chockler et al. (GM, PODC 2007) with
    ties broken by degree. Remaining ties go to the first link.

    Guarantee: if all brokers are members, every topic ends up connected; GM's number of links and MinMax-ODA's maximum
    degree are within a logarithmic factor of the minimum. Cost O(links * brokers^2 * topics joined by each).

    Verified in abstracts and in a patent on GM; the rule of Low-ODA is from memory.
    """
    merging = _Merging(wanted)
    for one, other in present:
        merging.add(one, other)
    allowed = np.ones(len(wanted), dtype=np.bool_) if members is None else members
    excluded = ~(allowed[:, None] & allowed[None, :]) | np.tri(len(wanted), dtype=np.bool_)
    added = []
    while (link := merging.next_link(excluded, weight_ratio_max)) is not None:
        merging.add(*link)
        added.append(link)
    return added


class _Merging:
    """The parts into which each topic's subscribers fall, and in how many topics each link would join two parts."""

    def __init__(self, wanted: Flags) -> None:
        count = len(wanted)
        # Part by topic and broker, named by one of its brokers; -1 if the broker does not want the topic.
        self.parts = np.where(wanted.T, np.arange(count), -1).astype(np.int32)
        dense = wanted.astype(np.float32)
        self.weights = dense @ dense.T
        np.fill_diagonal(self.weights, 0)
        self.degrees = np.zeros(count, dtype=np.int64)

    def add(self, one: int, other: int) -> None:
        """Join the parts that a link connects; other links between the two parts lose that topic's weight."""
        self.degrees[[one, other]] += 1
        here, there = self.parts[:, one], self.parts[:, other]
        joined = np.flatnonzero((here != there) & (here >= 0) & (there >= 0))
        if not len(joined):
            return
        of_one = self.parts[joined] == here[joined, None]
        of_other = self.parts[joined] == there[joined, None]
        lost = of_one.T.astype(np.float32) @ of_other.astype(np.float32)
        self.weights -= lost + lost.T
        self.parts[joined] = np.where(of_other, here[joined, None], self.parts[joined])

    def next_link(self, excluded: Flags, weight_ratio_max: float) -> Link | None:
        """Return the link to add, None if no link joins anything; ``excluded`` marks pairs that must not be linked."""
        weights = np.where(excluded, 0, self.weights)
        most = float(weights.max(initial=0))
        if most <= 0:
            return None
        heaviest = int(weights.argmax())
        below = self.degrees < self.degrees.max()
        raising_none = np.where(below[:, None] & below[None, :], weights, 0)
        lightest_degree = int(raising_none.argmax())
        weight = float(raising_none.flat[lightest_degree])
        chosen = lightest_degree if weight > 0 and most <= weight_ratio_max * weight else heaviest
        one, other = divmod(chosen, len(weights))
        return one, other


def adjacency_of(links: Iterable[Link], count: int) -> Flags:
    """Return the adjacency matrix of ``count`` brokers, shape (brokers, brokers)."""
    adjacency = np.zeros((count, count), dtype=np.bool_)
    for one, other in links:
        adjacency[one, other] = adjacency[other, one] = True
    return adjacency


def unconnected_topics(adjacency: Flags, wanted: Flags) -> NDArray[np.int64]:
    """Return the topics whose subscribers are not connected by links among themselves, ascending.

    Cost O(topics * brokers^2) for each hop of the longest path.
    """
    members = wanted.T
    links = adjacency.astype(np.float32)
    reached = np.zeros(members.shape, dtype=np.bool_)
    some = members.any(axis=1)
    reached[some, members[some].argmax(axis=1)] = True
    frontier = reached
    while frontier.any():
        frontier = (frontier.astype(np.float32) @ links > 0) & members & ~reached
        reached = reached | frontier
    return np.flatnonzero((reached != members).any(axis=1))
