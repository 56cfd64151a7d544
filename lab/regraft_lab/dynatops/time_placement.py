"""Time one placement of all users of the Poisson model: 50,000 users join one after the other.

Clusters have ten brokers, which exchange their states after each user. Brokers that place users themselves need no such
pass; a controller does.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from regraft.api.planners import AskingUsers, BrokerStates, PlacementRules, place_in_turn
from regraft.api.programs import Figure
from regraft.api.rings import UserClusters
from regraft_lab.dynatops.poisson_workload import PATTERNS, PoissonSettings, draw_poisson_changes
from regraft_lab.dynatops.random_streams import random_of

CLUSTER = 10
REPEATS = 3


def placement_times(seed: int, user_count: int = 50_000) -> list[Figure]:
    """Return the times of all patterns."""
    return [_time_of(seed, PoissonSettings(pattern, 0.0, user_count)) for pattern in PATTERNS]


def _time_of(seed: int, settings: PoissonSettings) -> Figure:
    rng = random_of(seed, 0, f"pass {settings.pattern}")
    changes = draw_poisson_changes(settings, rng)
    clusters = UserClusters.at_random(settings.broker_count, CLUSTER, rng)
    asked = rng.integers(settings.broker_count, size=settings.user_count).astype(np.int64)
    asking = AskingUsers.joining(changes.starts, changes.wanted, asked)
    spent_ms = []
    for _ in range(REPEATS):
        states = BrokerStates.without_users(clusters, settings.topic_count)
        began_s = time.process_time()
        place_in_turn(states, asking, PlacementRules())
        spent_ms.append((time.process_time() - began_s) * 1000)
    where: dict[str, str | int | float] = {
        "pattern": settings.pattern,
        "users": settings.user_count,
        "cluster_brokers": CLUSTER,
    }
    return Figure("placement_pass_ms", where, statistics.median(spent_ms), "ms")
