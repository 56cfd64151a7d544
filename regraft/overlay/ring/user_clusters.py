"""Clusters of brokers that exchange their users' interests and their loads.

Source: Zhao13, section 4 (clusters) and 6.3.1 (by nearness).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int32]

NO_BROKER = -1


@dataclass(frozen=True, eq=False)
class UserClusters:
    """A partition of the brokers 0 .. n - 1.

    ``members`` (clusters, places) holds the brokers of each cluster, ascending, padded with NO_BROKER to the size of
    the largest. Raises ValueError if a broker is in no cluster or in two.
    """

    members: Positions

    @classmethod
    def of(cls, groups: Iterable[Sequence[int]]) -> UserClusters:
        """Build from the brokers of each cluster, in any order."""
        listed = [sorted(group) for group in groups]
        members = np.full((len(listed), max(map(len, listed), default=0)), NO_BROKER, dtype=np.int32)
        for cluster, group in enumerate(listed):
            members[cluster, : len(group)] = group
        return cls(members)

    @classmethod
    def in_order(cls, broker_count: int, cluster_brokers: int) -> UserClusters:
        """Return clusters of consecutive brokers; deterministic."""
        return cls.of(_even_parts(np.arange(broker_count), cluster_brokers))

    @classmethod
    def at_random(cls, broker_count: int, cluster_brokers: int, rng: np.random.Generator) -> UserClusters:
        """Return random clusters."""
        return cls.of(_even_parts(rng.permutation(broker_count), cluster_brokers))

    @classmethod
    def by_nearness(cls, distances: NDArray[np.floating], cluster_brokers: int) -> UserClusters:
        """Return clusters of nearby brokers, given symmetric distances of shape (brokers, brokers).

        Of the remaining brokers, the one farthest from all others starts a cluster with its nearest ones. So clusters
        are peeled off the border, and the last one is not made of scattered brokers. Deterministic; ties go by the
        order of brokers. Cost O(brokers^2 * clusters). Guarantee: none, heuristic.
        """
        left = np.arange(len(distances))
        groups = []
        for part in _even_parts(left, cluster_brokers):
            among = distances[np.ix_(left, left)]
            first = int(among.sum(axis=1).argmax())
            near = np.argsort(among[first], kind="stable")[: len(part)]
            groups.append(left[near].tolist())
            left = np.delete(left, near)
        return cls.of(groups)

    def __post_init__(self) -> None:
        brokers = np.sort(self.members[self.members != NO_BROKER])
        if not len(brokers) or (brokers != np.arange(len(brokers))).any():
            raise ValueError(f"clusters must hold each broker from 0 on once, they hold {brokers.tolist()}")

    @property
    def count(self) -> int:
        """The number of clusters."""
        return len(self.members)

    @property
    def places(self) -> int:
        """The number of brokers of the largest cluster."""
        return int(self.members.shape[1])

    @property
    def broker_count(self) -> int:
        """The number of brokers."""
        return int(self.sizes.sum())

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """The number of brokers of each cluster, shape (clusters,)."""
        return np.asarray((self.members != NO_BROKER).sum(axis=1))

    @cached_property
    def slot_of(self) -> NDArray[np.int64]:
        """The index of each broker in ``members`` read row by row, shape (brokers,)."""
        slots = np.empty(self.broker_count, dtype=np.int64)
        flat = self.members.ravel()
        slots[flat[flat != NO_BROKER]] = np.flatnonzero(flat != NO_BROKER)
        return slots

    @cached_property
    def cluster_of(self) -> NDArray[np.int64]:
        """The cluster of each broker, shape (brokers,)."""
        return self.slot_of // self.places

    @cached_property
    def place_of(self) -> NDArray[np.int64]:
        """The place of each broker in its cluster, shape (brokers,)."""
        return self.slot_of % self.places

    @property
    def messages_per_exchange(self) -> int:
        """The messages if every broker reports to all others of its cluster: c (c - 1) for a cluster of c brokers."""
        return int((self.sizes * (self.sizes - 1)).sum())


def _even_parts(brokers: NDArray[np.integer], cluster_brokers: int) -> list[list[int]]:
    """Cut into as few parts of at most ``cluster_brokers`` as possible, whose sizes differ by at most 1."""
    if cluster_brokers < 1:
        raise ValueError(f"cluster_brokers is {cluster_brokers}: must be at least 1, which is a single broker")
    count = -(-len(brokers) // cluster_brokers)
    return [part.tolist() for part in np.array_split(brokers, max(count, 1))]
