"""Random trace sessions on random trees, and GRAPE's choice on them by the linear and by the paper's selection.

All delays are multiples of an eighth of a millisecond, so their sums are exact and ties are ties in both selections.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regraft.api.planners import Priority, select
from regraft.api.trees import HopDelays, RootedTree, SessionMetrics, TraceSessions, TreeConfiguration, random_tree
from regraft_lab.pop_grape.quadratic_selection import reports_of, select_quadratic

EIGHTH_MS = 1 / 8
DEGREES = (2, 3, 4, 40)
SHARES = (0.0, 0.0, 0.1, 0.5, 1.0)  # Shares of a publisher's traffic that a broker's subscribers sink.


@dataclass(frozen=True, eq=False)
class Instance:
    """One publisher at ``present`` with a trace session."""

    configuration: TreeConfiguration
    sessions: TraceSessions
    delays: HopDelays
    present: int
    pings_ms: NDArray[np.float64] | None = None


def random_instance(rng: random.Random, brokers_max: int = 40, length_max: int = 130) -> Instance:
    """Return a session on a random tree of 2 to ``brokers_max`` brokers, in half of the cases with pings."""
    names = tuple(f"b{number:04d}" for number in range(rng.randrange(2, brokers_max + 1)))
    tree = random_tree(names, rng.choice(DEGREES), rng)
    sessions = random_sessions(len(names), rng.randrange(1, length_max + 1), rng)
    pings_ms = random_delays_ms(len(names), rng) if rng.random() < 0.5 else None
    return Instance(tree, sessions, random_hops(len(names), rng), rng.randrange(len(names)), pings_ms)


def random_sessions(brokers: int, length: int, rng: random.Random) -> TraceSessions:
    """Return the session of one publisher; each broker has subscribers that sink nothing, all or a sample of it."""
    rows, deliveries = [], []
    for _ in range(brokers):
        share = rng.choice(SHARES)
        bits = sum(1 << place for place in range(length) if rng.random() < share)
        rows.append(np.frombuffer(bits.to_bytes(-(-length // 64) * 8, "little"), "<u8"))
        deliveries.append(float(bits.bit_count() * rng.randrange(1, 9)))
    starts, lengths = np.array([0], dtype=np.intp), np.array([length], dtype=np.int64)
    return TraceSessions(("p",), np.array(rows, dtype=np.uint64), starts, lengths, np.array([deliveries]))


def random_hops(brokers: int, rng: random.Random) -> HopDelays:
    """Return random delays that differ by direction."""
    outward, inward, local = (random_delays_ms(brokers, rng) for _ in range(3))
    return HopDelays(outward, inward, local)


def random_delays_ms(count: int, rng: random.Random) -> NDArray[np.float64]:
    """Return delays of 0 to 10 ms, with so few distinct values that ties between candidates are frequent."""
    return np.array([rng.choice((0, 1, 8, 8, 80)) * EIGHTH_MS for _ in range(count)])


def select_linear(instance: Instance, priority: Priority, weight: int) -> str:
    """Return the choice of the controller's selection, which computes both metrics for all candidates."""
    metrics = SessionMetrics(RootedTree.of(instance.configuration), instance.sessions)
    candidates = np.flatnonzero(metrics.reached(0, instance.present))
    load = metrics.messages[0, candidates]
    delay = metrics.delays_ms(instance.delays, instance.pings_ms)[0, candidates]
    chosen = select(load, delay, candidates == instance.present, priority, weight)
    return instance.configuration.brokers[int(candidates[chosen])]


def select_by_paper(instance: Instance, priority: Priority, weight: int) -> str:
    """Return the choice of the paper's Algorithms 1 to 3."""
    names = instance.configuration.brokers
    parents = [int(parent) for parent in RootedTree.of(instance.configuration).parents]
    brokers = reports_of(instance.configuration, instance.sessions, 0, instance.delays, parents)
    pings_ms = None
    if instance.pings_ms is not None:
        pings_ms = dict(zip(names, instance.pings_ms.tolist(), strict=True))
    return select_quadratic(brokers, names[instance.present], priority, weight, pings_ms)
