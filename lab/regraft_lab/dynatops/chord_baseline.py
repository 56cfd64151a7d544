"""Chord in the form of the other structured overlays: trees and roots by broker, and rings with random IDs.

Random IDs are the bootstrap of Zhao13, section 6.3.3: "consistent hashing of brokers public keys or IP addresses".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regraft.api.rings import DEFAULT_BITS, NO_PARENT, RingConfiguration, topic_roots
from regraft_lab.dynatops.dissemination import Positions, RootedTrees


def random_configuration(
    brokers: Sequence[str], rng: np.random.Generator, bits: int = DEFAULT_BITS
) -> RingConfiguration:
    """Return a ring with distinct, uniformly random IDs: consistent hashing with a random hash function."""
    drawn: set[int] = set()
    while len(drawn) < len(brokers):
        drawn.update(rng.integers(1 << bits, size=len(brokers) - len(drawn)).tolist())
    ids = rng.permutation(sorted(drawn)).tolist()
    return RingConfiguration.of(0, bits, dict(zip(sorted(brokers), ids, strict=True)))


def chord_trees(configuration: RingConfiguration) -> RootedTrees:
    """Return the tree of each broker, in the order of ``configuration.brokers``."""
    positions = _positions(configuration)
    parents = configuration.ring.parents[np.ix_(positions, positions)]
    broker_at = np.empty(len(positions) + 1, dtype=np.int32)
    broker_at[positions] = np.arange(len(positions))
    broker_at[NO_PARENT] = NO_PARENT  # NO_PARENT, -1, indexes the extra last entry.
    depths = configuration.ring.depths[np.ix_(positions, positions)]
    return RootedTrees(broker_at[parents], depths, depths + depths.T)


def chord_roots(configuration: RingConfiguration, topics: tuple[str, ...]) -> Positions:
    """Return the rendezvous of each topic, as an index into ``configuration.brokers``."""
    return np.argsort(_positions(configuration))[topic_roots(configuration, topics)].astype(np.int32)


def _positions(configuration: RingConfiguration) -> Positions:
    return np.array([configuration.position_of[broker] for broker in configuration.brokers], dtype=np.int32)
