"""Cost a window on a ring: all messages plus the weighted delay in hops (Zhao13, Eq. 5). Pure."""

from __future__ import annotations

import numpy as np

from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.cost_breakdown import CostBreakdown
from regraft.overlay.overlay_configuration import link
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.ring.ring_costs import RingCost, at_positions, overlay_ring_cost, topic_roots
from regraft.overlay.ring.user_interests import UserInterests
from regraft.schemas.arrays import Floats


def ring_breakdown(
    configuration: RingConfiguration, interests: UserInterests, rates_per_s: Floats, delay_weight: float = 1.0
) -> CostBreakdown:
    """Return the cost of each link, both directions together, if topics are published at ``rates_per_s`` (topics,).

    A notification costs 1 on each link of its topic's tree plus the delay weight for each subscribed broker behind the
    link. Summed over links, that is all messages plus the weighted hops of all deliveries, so the total is that of
    :func:`overlay.ring_costs.overlay_ring_cost`. Brokers add no cost. Cost O(topics * nodes * depth).
    """
    ring = configuration.ring
    wanted = at_positions(configuration, interests.user_counts > 0).astype(np.bool_)
    parents = ring.parents[topic_roots(configuration, interests.topics)]  # (topics, nodes)
    topics = np.arange(len(parents))[:, None]
    reached = np.where(wanted.T, np.arange(ring.node_count), -1)
    behind = np.zeros(parents.shape)  # Subscribed brokers at or below a node.
    while (reached >= 0).any():
        rows, columns = np.nonzero(reached >= 0)
        np.add.at(behind, (rows, reached[rows, columns]), 1)
        reached = np.where(reached >= 0, parents[topics, reached], -1)
    messages_per_s = np.zeros((ring.node_count, ring.node_count))
    costs_per_s = np.zeros_like(messages_per_s)
    rows, nodes = np.nonzero((behind > 0) & (parents >= 0))
    ends = parents[rows, nodes], nodes
    np.add.at(messages_per_s, ends, rates_per_s[rows])
    np.add.at(costs_per_s, ends, rates_per_s[rows] * (1 + delay_weight * behind[rows, nodes]))
    names = configuration.broker_at
    used = [(int(a), int(b)) for a, b in zip(*np.nonzero(np.triu(messages_per_s + messages_per_s.T)), strict=True)]
    return CostBreakdown(
        {link(names[a], names[b]): float(costs_per_s[a, b] + costs_per_s[b, a]) for a, b in used},
        dict.fromkeys(configuration.brokers, 0.0),
        {link(names[a], names[b]): float(messages_per_s[a, b] + messages_per_s[b, a]) for a, b in used},
    )


def ring_cost_of(configuration: RingConfiguration, window: ClosedWindow) -> RingCost:
    """Return messages and hops of the window's traffic on a ring. Raises ValueError without interests."""
    interests = window.interests_at(configuration.home_of)
    return overlay_ring_cost(configuration, interests, rates_of(window, interests))


def ring_breakdown_of(configuration: RingConfiguration, window: ClosedWindow, delay_weight: float) -> CostBreakdown:
    """Return the cost by link. Raises ValueError without interests."""
    interests = window.interests_at(configuration.home_of)
    return ring_breakdown(configuration, interests, rates_of(window, interests), delay_weight)


def rates_of(window: ClosedWindow, interests: UserInterests) -> Floats:
    """Return how often each topic of the interests was published in the window; unwanted topics cost nothing."""
    rates = window.topic_rates_per_s
    return np.array([rates.get(topic, 0.0) for topic in interests.topics])
