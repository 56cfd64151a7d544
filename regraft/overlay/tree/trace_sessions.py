"""Trace sessions of publishers, and their metrics with the publisher at each broker (Cheung09, GRAPE)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.tree.link_sides import RootedTree, link_sides
from regraft.schemas.arrays import Floats, Places, Words


@dataclass(frozen=True, eq=False)
class HopDelays:
    """The delays of a notification on one tree, in ms, each of shape (brokers,).

    ``outward[b]``: from its arrival at the parent of b to its arrival at b. ``inward[b]``: the same from b to its
    parent. ``local[b]``: from its arrival at b to the subscribers there.
    """

    outward: Floats
    inward: Floats
    local: Floats


@dataclass(frozen=True, eq=False)
class TraceSessions:
    """The newest notifications of each publisher, in adjacent columns.

    ``words`` (brokers, columns) has a bit for each notification delivered at a broker. ``starts[i]`` is the first
    column of publisher i, which has ``lengths[i]`` notifications. ``deliveries`` (publishers, brokers) counts
    hand-overs to local subscribers; it may hold fractions, because a mean stands for what was not counted.
    """

    publishers: tuple[str, ...]
    words: Words
    starts: Places
    lengths: NDArray[np.int64]
    deliveries: Floats


class SessionMetrics:
    """Both metrics of GRAPE for all publishers and all homes, on one tree.

    Source: Cheung09, section 4.2. Cost O(brokers * columns) for all homes together, by re-rooting: for neighbours u and
    v, let D(u->v) be the notifications wanted and M(u->v) the hand-overs on v's side of the link. Moving from u to v
    changes the messages by |D(v->u)| - |D(u->v)| and the sum of delays by M(v->u) * hop(v->u) - M(u->v) * hop(u->v).
    The paper computes each home from scratch, O(brokers^2).
    """

    def __init__(self, tree: RootedTree, sessions: TraceSessions) -> None:
        self.tree = tree
        self.sessions = sessions
        below, above = link_sides(tree, sessions.words)
        self._below, self._above = (_counts(side, sessions.starts) for side in (below, above))

    @cached_property
    def messages(self) -> Floats:
        """The messages of each session through all brokers, shape (publishers, brokers). Source: Algorithms 2 and 3."""
        return self.tree.rerooted(self._below.sum(axis=1), self._above - self._below)

    def delays_ms(self, delays: HopDelays, pings_ms: Floats | None = None) -> Floats:
        """Return the mean delay to all subscribers with each publisher at each broker, shape (publishers, brokers).

        ``pings_ms``, of the same shape, is the delay from the publisher to each broker. Without deliveries the mean is
        0, plus ``pings_ms``. Source: Algorithm 1.
        """
        behind = self.tree.summed_below(self.sessions.deliveries)
        total = behind[:, :1]
        outward = np.where(np.arange(behind.shape[1]) == 0, 0.0, behind * delays.outward)
        first = outward.sum(axis=1) + self.sessions.deliveries @ delays.local
        sums = self.tree.rerooted(first, (total - behind) * delays.inward - outward)
        means = np.divide(sums, total, out=np.zeros_like(sums), where=total > 0)
        return means if pings_ms is None else means + pings_ms

    def reached(self, place: int, home: int) -> NDArray[np.bool_]:
        """Return True for each broker that a notification of a session reached from ``home``, itself included."""
        path = self.tree.path_to_root(home)
        reached = self._below[place] > 0
        reached[path[1:]] = self._above[place, path[:-1]] > 0
        reached[home] = True
        return np.asarray(reached)


def _counts(words: Words, starts: Places) -> Floats:
    if not len(starts):
        return np.zeros((0, len(words)))
    counts = np.ascontiguousarray(np.bitwise_count(words).T)
    return np.asarray(np.add.reduceat(counts, starts, axis=0, dtype=np.float64))
