"""Time the placement of users (Zhao13, Algorithm 1), and check its homes against a plain loop; asserts the limits.

``python -m lab.benchmarks.bench_user_placement [--seed N] [--json FILE]``. One pass: 50,000 users with 5 of 1,000
topics join 100 brokers, or ask again from random homes, one after the other; a plain loop over users with a dictionary
for each broker must find the same homes. Planner: one decision on a ring with all users at random homes. Hours: 100
simulated hours in which each user's topics change every ten; brokers' subscription changes are compared with those for
static homes. Times are processor times on one core.
"""

import argparse
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from regraft.api.overlays import DeliverySets, Inventory
from regraft.api.planners import (
    AskingUsers,
    BrokerStates,
    PlacementRules,
    PlacementSettings,
    place_in_turn,
    place_users_dynatops,
)
from regraft.api.planning import ClosedWindow, RingContext, RingState, RingTraffic
from regraft.api.programs import Figure, run_facts, write_figures
from regraft.api.rings import RingConfiguration, UserClusters, UserInterests
from regraft_lab.dynatops.poisson_workload import PATTERNS, Pattern, PoissonSettings, draw_poisson_changes
from regraft_lab.dynatops.user_changes import UserChanges
from regraft_lab.dynatops.user_model import (
    UserHomes,
    UserTotals,
    hops_to_roots,
    place_by_utility,
    total_steps,
    user_steps,
)

Result = TypeVar("Result")

MADE = PoissonSettings()
BROKERS = tuple(f"b{number:03d}" for number in range(MADE.broker_count))
TOPICS = tuple(f"t{number:04d}" for number in range(MADE.topic_count))
RULES = PlacementRules()
REPEATS = 3
CONTEXT = RingContext(proposals_max=16, delay_weight=1.0, user_load_max=2.0)
PASS_CLUSTERS = (5, 10, 50)
HOUR_CLUSTERS = (5, 10, 20, 50)
PLAIN_CLUSTER = 10
LIMITS = {"pass_ms_p50": 1000.0, "planner_ms_p50": 1000.0, "hours_s": 60.0}
CUT_MIN = 0.8  # Of brokers' subscription changes, for the multimodal pattern in clusters of at least 5.
LOAD_CV_MAX = 0.2


def measure_pass(changes: UserChanges, pattern: Pattern, cluster_brokers: int, seed: int) -> list[Figure]:
    """Time both passes; raise AssertionError if the plain loop (run for one cluster size) finds other homes."""
    clusters = UserClusters.in_order(len(BROKERS), cluster_brokers)
    brokers = np.random.default_rng([seed, 1]).integers(len(BROKERS), size=changes.user_count)
    starts, wanted = changes.starts, changes.wanted
    figures = []
    for kind in ("join", "again"):
        is_join = kind == "join"
        asking = (AskingUsers.joining if is_join else AskingUsers.unchanged)(starts, wanted, brokers)

        def begin(is_join: bool = is_join) -> BrokerStates:
            if is_join:
                return BrokerStates.without_users(clusters, len(TOPICS))
            return BrokerStates.with_users(clusters, len(TOPICS), brokers, starts, wanted)

        at_once = max(1, cluster_brokers // 10)
        times_ms = []
        for _ in range(REPEATS):
            states = begin()
            spent_ms, (homes, _) = _timed(partial(place_in_turn, states, asking, RULES, at_once))
            times_ms.append(spent_ms)
        where: dict[str, str | int | float] = {"kind": kind, "pattern": pattern, "c": cluster_brokers}
        figures.append(Figure("pass_ms_p50", where, statistics.median(times_ms), "ms"))
        figures.append(Figure("pass_subscriptions", where, int((states.user_counts > 0).sum()), "1"))
        if cluster_brokers == PLAIN_CLUSTER:
            plain_ms, expected = _timed(partial(place_one_by_one, clusters, asking, is_join=is_join))
            assert homes.tolist() == expected, f"{kind}, {pattern}: other homes than by placing one user at a time"
            figures.append(Figure("plain_loop_ms", where, plain_ms, "ms"))
    return figures


def place_one_by_one(clusters: UserClusters, asking: AskingUsers, *, is_join: bool) -> list[int]:
    """Return the homes by Algorithm 1 without arrays: w_l = 1, no cap, ties broken as in
    :mod:`controller.planners.ring.steps.place_users`.

    Utilities are compared in integers, as shared * total - size * load * members: the utility times size and total.
    """
    bounds, topics = asking.starts.tolist(), asking.wanted.tolist()
    asked, cluster_of = asking.asked.tolist(), clusters.cluster_of.tolist()
    groups = [row[:size].tolist() for row, size in zip(clusters.members, clusters.sizes, strict=True)]
    counts: list[Counter[int]] = [Counter() for _ in cluster_of]
    loads, totals = [0] * len(counts), [0] * len(groups)
    homes = [-1] * len(asked)

    def count(user: int, home: int, sign: int) -> None:
        size = bounds[user + 1] - bounds[user]
        for topic in topics[bounds[user] : bounds[user + 1]]:
            counts[home][topic] += sign
        loads[home] += sign * size
        totals[cluster_of[home]] += sign * size

    if not is_join:
        homes = list(asked)
        for user, home in enumerate(homes):
            count(user, home, 1)
    for user, broker in enumerate(asked):
        wanted, group = topics[bounds[user] : bounds[user + 1]], groups[cluster_of[broker]]
        total, present = totals[cluster_of[broker]], homes[user]
        place = group.index(broker)
        best, chosen = None, broker
        if not is_join:
            count(user, present, -1)
        for one in group[place:] + group[:place]:
            has = counts[one]
            shared = sum(1 for topic in wanted if has[topic] > 0)
            worth = shared * total - len(wanted) * loads[one] * len(group) if total else shared
            if best is None or worth > best:
                best, chosen = worth, one
        homes[user] = chosen
        count(user, chosen, 1)
    return homes


def measure_planner(changes: UserChanges, pattern: Pattern, seed: int) -> list[Figure]:
    """Time decisions with all users at random homes: with the default bound of moves, and without a bound."""
    rng = np.random.default_rng([seed, 1])
    users = {
        f"u{user:05d}": (BROKERS[rng.integers(len(BROKERS))], [TOPICS[topic] for topic in wanted])
        for user, wanted in enumerate(changes.initial_topics())
    }
    homes = {user: home for user, (home, _) in users.items()}
    ring = RingConfiguration.of(0, 32, RingConfiguration.hashed(0, 32, BROKERS).id_of, homes)
    interests = UserInterests.of(BROKERS, users, TOPICS)
    state = RingTraffic(ring, interests, np.ones((1, len(TOPICS))), np.ones(1))
    count = len(BROKERS)
    inventory = Inventory(BROKERS, np.ones(count), 1.0 - np.eye(count), count, ring)
    window = ClosedWindow(0, 1000, DeliverySets.of(BROKERS, {}, 1.0))
    overlay = RingState(ring, inventory, (window,), state)
    figures = []
    for bound in (PlacementSettings().users_moved_max, len(users)):
        times_ms = []
        for _ in range(REPEATS):
            settings = PlacementSettings(users_moved_max=bound)
            spent_ms, proposals = _timed(partial(place_users_dynatops, overlay, settings, CONTEXT, random.Random(0)))
            times_ms.append(spent_ms)
        where: dict[str, str | int | float] = {"users_moved_max": bound, "pattern": pattern}
        share = proposals[-1].cost_after_per_s / proposals[0].cost_before_per_s
        figures.append(Figure("planner_ms_p50", where, statistics.median(times_ms), "ms"))
        figures.append(Figure("planner_moves", where, sum(len(one.moves) for one in proposals), "1"))
        figures.append(Figure("planner_cost_share", where, share, "1"))
    return figures


def measure_hours(changes: UserChanges, pattern: Pattern, seed: int) -> list[Figure]:
    """Time the simulated hours.

    Raises AssertionError if for the multimodal pattern they save too little or unbalance loads.
    """
    rng = np.random.default_rng([seed, 1])
    asked = rng.integers(len(BROKERS), size=changes.user_count)
    hops = hops_to_roots(RingConfiguration.hashed(0, 32, BROKERS), TOPICS)
    static = total_steps(user_steps(changes, UserHomes(asked), hops, duration_h=MADE.duration_h))
    figures = []
    for cluster_brokers in HOUR_CLUSTERS:
        clusters = UserClusters.at_random(len(BROKERS), cluster_brokers, rng)

        def run(clusters: UserClusters = clusters) -> UserTotals:
            homes = place_by_utility(changes, clusters, RULES, asked)
            exchange = clusters.messages_per_exchange
            return total_steps(user_steps(changes, homes, hops, exchange, duration_h=MADE.duration_h))

        spent_ms, placed = _timed(run)
        cut = 1 - placed.subscription_changes / static.subscription_changes
        if pattern == "multimodal":
            assert cut >= CUT_MIN, f"c = {cluster_brokers}: only {cut:.3f} of the subscription changes are saved"
            assert placed.load_cv <= LOAD_CV_MAX, f"c = {cluster_brokers}: loads vary by {placed.load_cv:.3f}"
        where: dict[str, str | int | float] = {"pattern": pattern, "c": cluster_brokers}
        management = 1 - placed.management_messages / static.management_messages
        figures += [
            Figure("hours_s", where, spent_ms / 1000, "s"),
            Figure("subscription_changes_cut", where, cut, "1"),
            Figure("management_messages_cut", where, management, "1"),
            Figure("load_cv", where, placed.load_cv, "1"),
        ]
    return figures


def _timed(task: Callable[[], Result]) -> tuple[float, Result]:
    began_s = time.process_time()
    result = task()
    return (time.process_time() - began_s) * 1000, result


def main() -> None:
    """Measure, print figures and limits, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    figures = []
    for pattern in PATTERNS:
        changes = draw_poisson_changes(PoissonSettings(pattern), np.random.default_rng(chosen.seed))
        for cluster_brokers in PASS_CLUSTERS:
            figures += measure_pass(changes, pattern, cluster_brokers, chosen.seed)
        figures += measure_planner(changes, pattern, chosen.seed)
        figures += measure_hours(changes, pattern, chosen.seed)
    late = 0
    for figure in figures:
        limit = LIMITS.get(figure.name)
        where = ", ".join(f"{name} {value}" for name, value in figure.where.items())
        print(f"{figure.name:26} {where:44} {figure.value:10.5g} {figure.unit:3} {f'limit {limit:g}' if limit else ''}")
        late += limit is not None and figure.value > limit
    if chosen.json:
        settings = {"users": MADE.user_count, "brokers": MADE.broker_count, "topics": MADE.topic_count}
        write_figures(chosen.json, run_facts(settings, chosen.seed), figures)
    sys.exit(1 if late else 0)


if __name__ == "__main__":
    main()
