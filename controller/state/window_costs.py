"""What an overlay costs on one window: the one cost of a tree, or what a ring's topics cost. Pure.

In: a configuration, tree or ring, and a closed window. Out: a cost per second. Every comparison of overlays uses it:
the live view, verification, shadow planners and the record of a run.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.state.closed_window import ClosedWindow
from overlay.chord_configuration import AnyConfiguration, ChordConfiguration
from overlay.cost import overlay_cost
from overlay.inventory import Inventory
from overlay.ring_costs import RingCost, overlay_ring_cost
from overlay.user_interests import UserInterests

Floats = NDArray[np.float64]


def cost_per_s(
    configuration: AnyConfiguration, inventory: Inventory, window: ClosedWindow, ring_delay_weight: float = 1.0
) -> float:
    """Return what the window's traffic costs on the configuration with clients at the homes that it names.

    Clients that it does not name are where the window has them. A tree: paper 000, Eq. 1-2. A ring: all messages plus
    the weighted delay in hops (paper 002, Eq. 5, with the messages to subscribers), at the window's own rates. Raises
    ValueError when the window does not know the interests of a ring's users.
    """
    if isinstance(configuration, ChordConfiguration):
        return ring_cost_of(configuration, window).total_per_s(ring_delay_weight)
    return overlay_cost(configuration, inventory, window.sets_at(configuration.home_of)).total_per_s


def ring_cost_of(configuration: ChordConfiguration, window: ClosedWindow) -> RingCost:
    """Return messages and hops of the window's traffic on a ring. Raises ValueError without interests."""
    interests = window.interests_at(configuration.home_of)
    return overlay_ring_cost(configuration, interests, rates_of(window, interests))


def can_be_costed(configuration: AnyConfiguration, window: ClosedWindow) -> bool:
    """Tell whether the window knows what the cost rests on: on a ring what users want."""
    return window.interests is not None or not isinstance(configuration, ChordConfiguration)


def rates_of(window: ClosedWindow, interests: UserInterests) -> Floats:
    """Return how often each topic of the interests was published in the window; what nobody wants costs nothing."""
    rates = window.topic_rates_per_s
    return np.array([rates.get(topic, 0.0) for topic in interests.topics])
