"""Cost a window on a ring: all messages plus the weighted delay in hops (Zhao13, Eq. 5). Pure."""

from __future__ import annotations

import numpy as np

from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.cost_breakdown import CostBreakdown
from regraft.overlay.ring.ring_breakdown import ring_breakdown
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.ring.ring_costs import RingCost, overlay_ring_cost
from regraft.overlay.ring.user_interests import UserInterests
from regraft.schemas.arrays import Floats


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
