"""The cost of disseminating notifications over a Chord ring: messages to subscribers, through relays, and delay.

Only routes from the rendezvous to subscribers count. Zhao13 leaves out the route from a publisher to the rendezvous,
which does not depend on the configuration if anybody may publish.

Source: Zhao13, section 5, Eq. 1-5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.ring.chord_ring import ChordRing, ring_key
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.ring.user_interests import UserInterests
from regraft.schemas.arrays import Flags, Floats


@dataclass(frozen=True)
class RingCost:
    """Per second: messages to subscribed brokers, messages that other brokers relay, and delay over all deliveries.

    Delay is in hops, or in the unit of the given hop delays. The root receives no forwarded message, so it counts
    neither as subscribed nor as relay.
    """

    subscriber_per_s: float
    relay_per_s: float
    delay_per_s: float

    def total_per_s(self, delay_weight: float = 1.0) -> float:
        """Return all messages plus the weighted delay: the cost that planners of homes and of ring IDs share."""
        return self.subscriber_per_s + self.notification_cost_per_s(delay_weight)

    def notification_cost_per_s(self, delay_weight: float = 1.0) -> float:
        """Return C of Zhao13, Eq. 5: relayed messages plus the weighted delay."""
        return self.relay_per_s + delay_weight * self.delay_per_s


@dataclass(frozen=True, eq=False)
class TopicCosts:
    """The cost of one notification of each topic, shapes (topics,); at the topics' rates it becomes a RingCost."""

    subscriber: Floats
    relay: Floats
    delay: Floats

    def at_rates(self, rates_per_s: Floats) -> RingCost:
        """Return the cost if topics are published at these rates, shape (topics,)."""
        return RingCost(*(float(rates_per_s @ each) for each in (self.subscriber, self.relay, self.delay)))

    def total(self, delay_weight: float = 1.0) -> Floats:
        """Return the messages of one notification plus its weighted delay, shape (topics,)."""
        return np.asarray(self.subscriber + self.relay + delay_weight * self.delay, dtype=np.float64)


def ring_cost(
    ring: ChordRing, roots: NDArray[np.integer], wanted: Flags, rates_per_s: Floats, hop_delays: Floats | None = None
) -> RingCost:
    """Return the cost of the topics at ``rates_per_s`` (topics,); other arguments as in :func:`topic_costs`."""
    return topic_costs(ring, roots, wanted, hop_delays).at_rates(rates_per_s)


def topic_costs(
    ring: ChordRing, roots: NDArray[np.integer], wanted: Flags, hop_delays: Floats | None = None
) -> TopicCosts:
    """Return the cost of one notification of each topic.

    ``roots`` (topics,) are positions; ``wanted`` (nodes, topics) marks the positions with a subscribing broker.
    ``hop_delays`` (nodes, nodes) is the delay of a hop between two positions, 1 if not given. Cost O(topics * nodes *
    depth).
    """
    parents, depths = ring.parents[roots], ring.depths[roots]  # (topics, nodes)
    members = wanted.T
    covered = members.copy()
    topics = np.arange(len(roots))[:, None]
    reached = np.where(members, np.arange(ring.node_count), -1)
    delays = np.zeros(members.shape) if hop_delays is not None else depths
    for _ in range(int(depths.max(initial=0))):
        above = np.where(reached >= 0, parents[topics, reached], -1)
        if hop_delays is not None:
            delays = delays + np.where(above >= 0, hop_delays[above, reached], 0.0)
        rows, columns = np.nonzero(above >= 0)
        covered[rows, above[rows, columns]] = True
        reached = above
    is_root = parents < 0
    subscribed = (members & ~is_root).sum(axis=1, dtype=np.float64)
    relays = (covered & ~members & ~is_root).sum(axis=1, dtype=np.float64)
    return TopicCosts(subscribed, relays, np.where(members, delays, 0).sum(axis=1, dtype=np.float64))


def topic_roots(configuration: RingConfiguration, topics: tuple[str, ...]) -> NDArray[np.int32]:
    """Return the position of each topic's rendezvous, shape (topics,)."""
    owner, bits = configuration.ring.owner, configuration.bits
    return np.array([owner(ring_key(topic, bits)) for topic in topics], dtype=np.int32)


def at_positions(configuration: RingConfiguration, by_broker: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return rows of brokers in the order of ring positions."""
    place = {broker: row for row, broker in enumerate(configuration.brokers)}
    return by_broker[[place[broker] for broker in configuration.broker_at]]


def overlay_ring_cost(
    configuration: RingConfiguration, interests: UserInterests, rates_per_s: Floats, link_cost: Floats | None = None
) -> RingCost:
    """Return the cost of users with these interests on a configuration; ``rates_per_s`` follows ``interests.topics``.

    With ``link_cost`` (brokers, brokers), delay is the sum of link costs instead of hops.
    """
    wanted = at_positions(configuration, interests.user_counts > 0)
    hop_delays = None
    if link_cost is not None:
        place = [configuration.brokers.index(broker) for broker in configuration.broker_at]
        hop_delays = link_cost[np.ix_(place, place)]
    roots = topic_roots(configuration, interests.topics)
    return ring_cost(configuration.ring, roots, wanted.astype(np.bool_), rates_per_s, hop_delays)
