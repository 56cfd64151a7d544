"""The state for planners of a Chord ring: who wants what and where, and how often topics are published.

In: a ring configuration, and windows with users' interests and topics' rates. Out: the values that planners share.
Where windows come from belongs to the control loop, what is made of the values to the planners.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.overlay_state import OverlayState
from regraft.controller.state.planner_interface import PlannerContext
from regraft.overlay.cost_breakdown import CostBreakdown
from regraft.overlay.cut_off import CutOff
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import link
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.ring.ring_costs import (
    RingCost,
    TopicCosts,
    at_positions,
    overlay_ring_cost,
    topic_costs,
    topic_roots,
)
from regraft.overlay.ring.user_interests import UserInterests
from regraft.schemas.arrays import Floats


def ring_cut_off(ring: RingConfiguration, interests: UserInterests, rates_per_s: Floats) -> CutOff:
    """Return what the death of each broker of a ring cuts off: what passes it from a topic's rendezvous to users.

    The route from a publisher to the rendezvous is left out, as in the cost. ``rates_per_s`` follows
    ``interests.topics``. Cost O(brokers^2 * depth).
    """
    chord, roots = ring.ring, topic_roots(ring, interests.topics)
    handed = at_positions(ring, interests.user_counts).astype(np.float64) * rates_per_s
    below = np.zeros((chord.node_count, chord.node_count))  # Deliveries, by rendezvous and broker.
    np.add.at(below, roots, handed.T)
    own = below.copy()
    for depth in range(int(chord.depths.max(initial=0)), 0, -1):
        root, node = np.nonzero(chord.depths == depth)
        np.add.at(below, (root, chord.parents[root, node]), below[root, node])
    passing = (below - own).sum(axis=0)
    total = float(own.sum())
    return CutOff(ring.brokers, passing[[ring.position_of[broker] for broker in ring.brokers]], total)


PAPER_RATE_FILTER = 0.3  # alpha_pub of Zhao13, Eq. 8: the weight of the newest value.


@dataclass(frozen=True, eq=False)
class RingTraffic:
    """A ring, its users and its topics over a horizon.

    ``interests`` are those at the end of the newest window, with every user at its home in ``configuration``.
    ``window_rates_per_s`` (windows, topics), oldest first, are the notifications published per second, ``window_s``
    (windows,) the lengths of the windows. Topics are those of ``interests``.
    """

    configuration: RingConfiguration
    interests: UserInterests
    window_rates_per_s: Floats
    window_s: Floats

    def __post_init__(self) -> None:
        windows, topics = len(self.window_s), len(self.interests.topics)
        if self.window_rates_per_s.shape != (windows, topics) or not windows:
            raise ValueError(
                f"{windows} windows, at least one, and {topics} topics need rates of shape ({windows}, {topics}), "
                f"got {self.window_rates_per_s.shape}"
            )
        if self.interests.brokers != self.configuration.brokers:
            raise ValueError("the interests belong to other brokers than the ring's")

    @cached_property
    def rates_per_s(self) -> Floats:
        """The predicted rate of each topic, by the exponential filter over the windows (Zhao13, Eq. 8), (topics,)."""
        return filtered_rates(self.window_rates_per_s)

    @cached_property
    def roots(self) -> NDArray[np.int32]:
        """The position of each topic's rendezvous, (topics,)."""
        return topic_roots(self.configuration, self.interests.topics)

    @cached_property
    def wanted(self) -> NDArray[np.bool_]:
        """Whether the broker at each position of the ring subscribes to each topic, (nodes, topics)."""
        return at_positions(self.configuration, self.interests.user_counts > 0).astype(np.bool_)

    @cached_property
    def topic_costs(self) -> TopicCosts:
        """The cost of one notification of each topic, with delay in hops."""
        return topic_costs(self.configuration.ring, self.roots, self.wanted)

    @cached_property
    def cost(self) -> RingCost:
        """The cost of the topics at the filtered rates, with delay in hops."""
        return self.topic_costs.at_rates(self.rates_per_s)

    def window_costs(self) -> tuple[RingCost, ...]:
        """The cost of the topics at the rates of each window."""
        return tuple(self.topic_costs.at_rates(rates) for rates in self.window_rates_per_s)

    def with_configuration(self, configuration: RingConfiguration) -> RingTraffic:
        """Return the same users and topics on another ring, with users at its homes."""
        interests = self.interests
        if configuration.homes != self.configuration.homes:
            interests = interests.at_homes(configuration.home_of)
        return replace(self, configuration=configuration, interests=interests)


def filtered_rates(window_rates_per_s: Floats | Sequence[Floats]) -> Floats:
    """Return the estimate after all windows, oldest first: a fixed share of it is the newest window (Eq. 8)."""
    estimate: Floats | None = None
    for rates in window_rates_per_s:
        estimate = rates if estimate is None else (1 - PAPER_RATE_FILTER) * estimate + PAPER_RATE_FILTER * rates
    if estimate is None:
        raise ValueError("rates need at least one window")
    return np.asarray(estimate, dtype=np.float64)


def ring_traffic_of(configuration: RingConfiguration, windows: Sequence[ClosedWindow]) -> RingTraffic | None:
    """Return what the windows (oldest first, at least one) show of a ring; None if the newest has no interests.

    Users are at the homes that the configuration names, all others where the newest window has them. Rates are those of
    the topics that anybody wants at present; other topics of older windows cost nothing.
    """
    if windows[-1].interests is None:
        return None
    interests = windows[-1].interests_at(configuration.home_of)
    rates_per_s = np.array([rates_of(window, interests) for window in windows])
    window_s = np.array([(window.end_ms - window.start_ms) / 1000 for window in windows])
    return RingTraffic(configuration, interests, rates_per_s, window_s)


@dataclass(frozen=True, kw_only=True)
class RingContext(PlannerContext):
    """The context of planners on a ring.

    ``delay_weight`` is w_d of Zhao13, the weight of a hop of delay against a message. ``user_load_max`` caps the load
    that a broker may serve, as a multiple of the mean.
    """

    delay_weight: float
    user_load_max: float = math.inf


@dataclass(frozen=True, eq=False)
class RingState(OverlayState):
    """A ring over the windows of the horizon, oldest first; ``traffic`` is None if users are unknown."""

    configuration: RingConfiguration
    traffic: RingTraffic | None = None

    @cached_property
    def cut_off(self) -> CutOff | None:
        """What the death of each broker would cut off, at the filtered rates."""
        if self.traffic is None:
            return None
        return ring_cut_off(self.configuration, self.traffic.interests, self.traffic.rates_per_s)

    @classmethod
    def of(cls, configuration: RingConfiguration, inventory: Inventory, windows: Sequence[ClosedWindow]) -> RingState:
        """Return the state that the windows (oldest first, at least one) show."""
        return cls(configuration, inventory, tuple(windows), ring_traffic_of(configuration, windows))

    def with_configuration(self, configuration: RingConfiguration) -> RingState:
        """Return the same windows on another ring."""
        traffic = None if self.traffic is None else self.traffic.with_configuration(configuration)
        return RingState(configuration, self.inventory, self.windows, traffic)


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
