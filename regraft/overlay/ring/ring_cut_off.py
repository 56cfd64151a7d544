"""What the death of each broker of a ring would cut off, until the ring is repaired. Pure."""

from __future__ import annotations

import numpy as np

from regraft.overlay.cut_off import CutOff
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.ring.ring_costs import at_positions, topic_roots
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
