"""The overlay and the publishers and subscribers of Shafique's evaluation, as far as the text gives them.

In: a seed and sizes. Out: where publishers are and which brokers want their notifications. Fig. 10 is lost: the 4 inner
brokers of the tree are taken as a path, the 10 at its edge as shared out 3, 2, 2 and 3.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from regraft.overlay.structured_cyclic import ScotBroker, StructuredCyclicOverlay, scot_overlay

EDGE_OF = {"f": "abc", "g": "de", "h": "jk", "i": "lmn"}
CLUSTER_COUNT = 5
PUBLISHER_COUNT = 100
SUBSCRIBER_COUNT = 2_000
SELECTIVITY = 0.02


@dataclass(frozen=True, slots=True)
class Publisher:
    """Where a publisher is, and the brokers with subscribers that want what it publishes."""

    host: ScotBroker
    targets: frozenset[ScotBroker]


def paper_overlay() -> StructuredCyclicOverlay:
    """Return the overlay of the evaluation, 14 x K5."""
    edges = ((inner, leaf) for inner, leaves in EDGE_OF.items() for leaf in leaves)
    return scot_overlay([*zip("fgh", "ghi", strict=True), *edges], CLUSTER_COUNT)


def draw_publishers(overlay: StructuredCyclicOverlay, rng: random.Random) -> list[Publisher]:
    """Draw publishers and subscribers to brokers; each subscriber wants a publisher with the paper's selectivity."""
    brokers = overlay.brokers()
    subscribers = [rng.choice(brokers) for _ in range(SUBSCRIBER_COUNT)]
    return [
        Publisher(rng.choice(brokers), frozenset(each for each in subscribers if rng.random() < SELECTIVITY))
        for _ in range(PUBLISHER_COUNT)
    ]


def draw_high_rate_publisher(overlay: StructuredCyclicOverlay, rng: random.Random) -> Publisher:
    """Draw a publisher with 2 % of the subscribers, each at its own broker, none at the host, in all clusters."""
    brokers = overlay.brokers()
    host = rng.choice(brokers)
    others = [each for each in brokers if each != host]
    while True:
        targets = frozenset(rng.sample(others, round(SUBSCRIBER_COUNT * SELECTIVITY)))
        if len({each.cluster for each in targets}) == overlay.cluster_count:
            return Publisher(host, targets)
