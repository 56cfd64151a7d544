"""Dissemination trees and the cost of topics on them (messages, relays, delay), in one form for all systems.

In: routes between brokers, roots of topics, brokers' topics. Out: comparable :class:`TopicMeasures`. How a system
routes does not belong here (:mod:`experiments.dynatops.bayeux`, ``geops``, ``chord_baseline``), nor do overlays without
roots (:mod:`experiments.dynatops.connected_dissemination`).

Terms are those of Zhao13, section 5: an event goes from the root of its topic to all brokers that subscribe to it;
a broker that consumes a message is a subscriber or an unrelated relay; the root consumes none. The path from a
publisher to the root is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regraft.api.rings import NO_PARENT, RingCost

Positions = NDArray[np.int32]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RootedTrees:
    """The tree of each broker as root; every topic rooted there spans a part of that tree.

    ``parents`` and ``depths`` (roots, brokers): the parent of a broker, NO_PARENT for the root, and its depth in links.
    ``change_messages`` (roots, brokers): how many messages it takes to announce that a broker subscribes to a topic of
    this root, or unsubscribes.
    """

    parents: Positions
    depths: Positions
    change_messages: Positions

    @classmethod
    def of_routes(cls, next_hops: Positions) -> RootedTrees:
        """Build trees that follow the routes from the root, as Bayeux and DYNATOPS do.

        ``next_hops`` (brokers, brokers) is the next broker on the route from one to another. Routes from one broker may
        share prefixes only. A change travels to the root and from there down the tree.
        """
        parents, depths = walk_routes(next_hops)
        return cls(parents, depths, depths + depths.T)

    @classmethod
    def of_requests(cls, next_hops: Positions) -> RootedTrees:
        """Build trees that follow the routes to the root backwards. A change travels only to the root."""
        depths = walk_routes(next_hops)[1].T
        parents = next_hops.T.copy()
        np.fill_diagonal(parents, NO_PARENT)
        return cls(parents, depths, depths)

    @cached_property
    def depth_max(self) -> int:
        """The largest depth of a broker in any tree."""
        return int(self.depths.max(initial=0))

    def delays(self, hop_delays: Floats) -> Floats:
        """Return the delay from each root to each broker, shape (roots, brokers).

        ``hop_delays`` (brokers, brokers) is the delay of one hop.
        """
        delays = np.zeros(self.parents.shape)
        for depth in range(1, self.depth_max + 1):
            roots, brokers = np.nonzero(self.depths == depth)
            above = self.parents[roots, brokers]
            delays[roots, brokers] = delays[roots, above] + hop_delays[above, brokers]
        return delays


@dataclass(frozen=True, eq=False)
class TopicMeasures:
    """The cost of one event of each topic, arrays of shape (topics,).

    ``subscriber`` and ``relay``: messages consumed by subscribed and by other brokers. ``delay``: sum over all
    deliveries, in hops or in the unit of the delays given. ``deliveries``: their number.
    """

    subscriber: Floats
    relay: Floats
    delay: Floats
    deliveries: Floats

    def cost(self, rates_per_s: Floats) -> RingCost:
        """Return the sums over topics, weighted with these rates of events."""
        return RingCost(
            float(rates_per_s @ self.subscriber), float(rates_per_s @ self.relay), float(rates_per_s @ self.delay)
        )

    def mean_delay(self, rates_per_s: Floats | None = None) -> float:
        """Return the mean delay of a delivery, 0 if nothing is delivered; topics are equally busy by default."""
        weights = np.ones(len(self.delay)) if rates_per_s is None else rates_per_s
        deliveries = float(weights @ self.deliveries)
        return float(weights @ self.delay) / deliveries if deliveries else 0.0

    def mean_messages(self, rates_per_s: Floats | None = None) -> float:
        """Return the mean number of messages per event, 0 if nothing is published."""
        weights = np.ones(len(self.delay)) if rates_per_s is None else rates_per_s
        events = float(weights.sum())
        return float(weights @ (self.subscriber + self.relay)) / events if events else 0.0


def topic_measures(
    trees: RootedTrees,
    roots: NDArray[np.integer],
    wanted: Flags,
    delays: Floats | None = None,
    audience: NDArray[np.integer] | None = None,
) -> TopicMeasures:
    """Return the cost of one event of each topic on its tree.

    ``roots`` (topics,) are brokers; ``wanted`` (brokers, topics) marks subscriptions. ``delays`` (roots, brokers) are
    those of :meth:`RootedTrees.delays`, by default hops. ``audience`` (brokers, topics): how many deliveries a broker
    makes, such as to its users with that topic; by default one per subscribed broker. Cost O(topics * brokers * depth).
    """
    members = np.ascontiguousarray(wanted.T)
    parents, depths = trees.parents[roots], trees.depths[roots]
    covered = members.copy()
    for depth in range(trees.depth_max, 1, -1):
        topics, brokers = np.nonzero(covered & (depths == depth))
        covered[topics, parents[topics, brokers]] = True
    at_root = depths == 0
    weights = (members if audience is None else audience.T).astype(np.float64)
    ways = depths if delays is None else delays[roots]
    return TopicMeasures(
        subscriber=(members & ~at_root).sum(axis=1).astype(np.float64),
        relay=(covered & ~members & ~at_root).sum(axis=1).astype(np.float64),
        delay=(weights * ways).sum(axis=1),
        deliveries=weights.sum(axis=1),
    )


def walk_routes(next_hops: Positions) -> tuple[Positions, Positions]:
    """Return the last broker before t on the route from r, and the route's length in links, both of shape (r, t).

    Raises ValueError if a route never arrives. Cost O(brokers^2) for each hop of the longest route.
    """
    count = len(next_hops)
    everywhere = np.arange(count, dtype=np.int32)
    targets = np.broadcast_to(everywhere, (count, count))
    parents = np.repeat(everywhere[:, None], count, axis=1)
    at = next_hops.astype(np.int32, copy=True)
    depths = (at != everywhere[:, None]).astype(np.int32)
    while True:
        under_way = np.nonzero(at != targets)
        if not len(under_way[0]):
            break
        depths[under_way] += 1
        if depths[under_way[0][0], under_way[1][0]] > count:
            raise ValueError(
                f"the route from {under_way[0][0]} to {under_way[1][0]} takes more than {count} hops: it is a loop"
            )
        here = at[under_way]
        parents[under_way] = here
        at[under_way] = next_hops[here, under_way[1]]
    np.fill_diagonal(parents, NO_PARENT)
    return parents, depths
