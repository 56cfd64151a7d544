"""Small random problems of ring IDs, and the one of Zhao13, Fig. 2."""

from __future__ import annotations

import numpy as np

from regraft.overlay.ring.chord_ring import ChordRing
from regraft.overlay.ring.ring_reassignment import RingProblem

BITS = 16
FIG_2_BEFORE = ({0, 2, 4, 6}, {0, 1, 4, 6}, {0, 1, 2, 4})  # The lost drawing of the state before may show any of these.
FIG_2_AFTER = {1, 2, 3, 5}  # The drawing of the state after must show this one.


def draw_problem(seed: int, nodes_max: int = 24, topics_max: int = 12, *, equal_events: bool = False) -> RingProblem:
    """Return nodes at random IDs, topics of random roots, subscribers and event rates; equal rates make many ties."""
    rng = np.random.default_rng(seed)
    nodes, topics = int(rng.integers(1, nodes_max + 1)), int(rng.integers(0, topics_max + 1))
    ids = np.sort(rng.choice(1 << BITS, nodes, replace=False))
    wanted = rng.random((nodes, topics)) < rng.choice([0.05, 0.3, 0.8], topics)
    events = np.ones(topics) if equal_events else rng.exponential(100.0, topics)
    return RingProblem(
        ChordRing(BITS, tuple(ids.tolist())),
        rng.integers(nodes, size=topics),
        wanted,
        events,
        delay_weight=float(rng.choice([0.0, 0.3, 1.0, 7.0])),
    )


def fig_2(subscribed: set[int], events: float = 1.0) -> RingProblem:
    """Zhao13, Fig.

    2: eight brokers on a 3-bit ring; the given IDs subscribe to t1 at ID 1, all others to t2 at ID 4.
    """
    wanted = np.array([[broker in subscribed, broker not in subscribed] for broker in range(8)])
    return RingProblem(ChordRing(3, tuple(range(8))), np.array([1, 4]), wanted, np.full(2, events))
