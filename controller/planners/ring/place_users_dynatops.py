"""Place users at brokers whose users have similar interests (Zhao13, section 4, Algorithm 1), the best moves first.

In: the state of a ring. Out: a proposal for each cluster of brokers in which users would be better placed. Utility and
the answer to one user belong to :mod:`controller.planners.ring.steps.place_users`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from regraft.controller.kinds.ring.ring_state import RingContext, RingState, RingTraffic
from regraft.controller.planners.ring.steps.place_users import (
    AskingUsers,
    BrokerStates,
    PlacementRules,
    choose_homes,
    place_in_turn,
)
from regraft.controller.settings.planner_settings import PlannerSettings
from regraft.controller.state.planner_interface import PlannerSpec, moving_proposal
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.ring.ring_costs import overlay_ring_cost
from regraft.overlay.ring.user_clusters import UserClusters
from regraft.overlay.ring.user_interests import UserInterests
from regraft.schemas.arrays import Floats
from regraft.schemas.plan import ClientMove, Proposal

PLANNER = "place_users_dynatops"
# Brokers of a cluster for each user answered on the same states.
BROKERS_PER_ASKING_USER = 10
ASKING_MIN = 1_000  # Users that ask before moves are counted; fewer take as long in array steps.

Ints = NDArray[np.integer]


@dataclass(frozen=True)
class PlacementSettings(PlannerSettings):
    """Which broker suits a user."""

    # W_l of Zhao13, the weight of a broker's load against similar interests.
    user_load_weight: float = 1.0
    user_cluster_brokers: Annotated[int, "number of brokers that share what their users want (c in the paper)"] = 10
    user_utility_min: Annotated[float, "minimum increase of a user's utility by a move"] = 0.1
    # Users that move at once: as many as a plan may move (controller.decision.users_per_plan_max), which bounds it
    # anyway.
    users_moved_max: int = 500

    def errors(self) -> list[str]:
        """Return what is wrong with the settings, one sentence each."""
        errors = super().errors()
        if not 0 <= self.user_utility_min < math.inf:
            errors.append(f"user_utility_min is {self.user_utility_min}: must be at least 0")
        if self.user_cluster_brokers < 1:
            errors.append(
                f"user_cluster_brokers is {self.user_cluster_brokers}: must be at least 1, which is a single broker"
            )
        return errors


def place_users_dynatops(
    state: RingState, settings: PlacementSettings, context: RingContext, rng: random.Random
) -> list[Proposal]:
    """Return the moves of users by Algorithm 1, all of one cluster as one proposal.

    All users are scored at once. Those that would gain utility then ask again one by one, the largest gain first, each
    answered on the brokers as earlier users left them, until ``users_moved_max`` have moved or the plan is full.
    Clusters are ``user_cluster_brokers`` brokers, consecutive by name, the same at each call. At most ``proposals_max``
    proposals are returned, ordered by the utility that their users gain. Source: Zhao13, section 4. Cost
    O(subscriptions * brokers of a cluster), and the ring's cost for each proposal. Guarantee: with ``user_load_weight``
    0 and clusters of fewer than 20 brokers, each move lowers the number of topics that brokers subscribe to; none for
    the overlay's cost, which utility does not consider (the judge does). Departures: users are asked after a window
    instead of at each change of their topics; the readings of :mod:`controller.planners.ring.steps.place_users`.
    Nothing is drawn from ``rng``.
    """
    ring = state.traffic
    if ring is None or not ring.interests.subscription_count:
        return []
    placement = _placed(ring.interests, settings, context)
    return list(_proposals(ring, context, placement)) if len(placement.users) else []


@dataclass(frozen=True, eq=False)
class _Placement:
    """Users that move, their targets and gains, and the clusters; ``cluster_of`` (users,) is that of both homes."""

    clusters: UserClusters
    users: Ints
    homes_to: Ints
    gains: Floats
    cluster_of: Ints


def _placed(interests: UserInterests, settings: PlacementSettings, context: RingContext) -> _Placement:
    clusters = UserClusters.in_order(len(interests.brokers), settings.user_cluster_brokers)
    rules = PlacementRules(settings.user_load_weight, context.user_load_max, settings.user_utility_min)
    topics, homes = len(interests.topics), interests.homes
    states = BrokerStates.with_users(clusters, topics, homes, interests.starts, interests.wanted)
    all_users = AskingUsers.unchanged(interests.starts, interests.wanted, homes)
    possible_gains = choose_homes(states, all_users, rules)[1]
    order = np.argsort(-possible_gains, kind="stable")
    order = order[possible_gains[order] > 0]
    at_once = max(1, clusters.places // BROKERS_PER_ASKING_USER)
    found_users: list[Ints] = [order[:0]]
    found_homes: list[Ints] = [order[:0]]
    found_gains = [np.zeros(0)]
    left, first = min(settings.users_moved_max, context.moves_max), 0
    while left and first < len(order):
        asking = order[first : first + max(left, ASKING_MIN)]
        chosen, gains = place_in_turn(states, all_users.ordered(asking), rules, at_once)
        moves = np.flatnonzero(chosen != homes[asking])[:left]  # No answer depends on users that ask later.
        found_users.append(asking[moves])
        found_homes.append(chosen[moves])
        found_gains.append(gains[moves])
        first, left = first + len(asking), left - len(moves)
    users = np.concatenate(found_users)
    cluster_of = clusters.cluster_of[homes[users]]
    return _Placement(clusters, users, np.concatenate(found_homes), np.concatenate(found_gains), cluster_of)


def _proposals(ring: RingTraffic, context: RingContext, placement: _Placement) -> Iterator[Proposal]:
    """Yield a proposal for each cluster in which users move, each costed after the earlier ones."""
    gained = np.bincount(placement.cluster_of, placement.gains, placement.clusters.count)
    used = np.unique(placement.cluster_of)
    ranked = used[np.argsort(-gained[used], kind="stable")][: context.proposals_max]
    before, cost_before = ring.interests, _cost_per_s(ring, context, ring.interests)
    for cluster in ranked.tolist():
        rows = placement.cluster_of == cluster
        homes = before.homes.copy()
        homes[placement.users[rows]] = placement.homes_to[rows]
        after = replace(before, homes=homes)
        cost_after = _cost_per_s(ring, context, after)
        names = before.brokers
        moves = tuple(
            ClientMove(before.users[user], names[before.homes[user]], names[homes[user]])
            for user in placement.users[rows].tolist()
        )
        members = placement.clusters.members[cluster, : placement.clusters.sizes[cluster]]
        reason = _reason(before, after, members, len(moves), float(gained[cluster]))
        yield moving_proposal(PLANNER, moves, cost_before, cost_after, reason)
        before, cost_before = after, cost_after


def _cost_per_s(ring: RingTraffic, context: RingContext, interests: UserInterests) -> float:
    cost = overlay_ring_cost(ring.configuration, interests, ring.rates_per_s)
    return cost.total_per_s(context.delay_weight)


def _reason(before: UserInterests, after: UserInterests, members: Ints, moved: int, gained: float) -> str:
    names = [before.brokers[members[0]], before.brokers[members[-1]]]
    subscribed = [int((each.user_counts[members] > 0).sum()) for each in (before, after)]
    loads = [each.loads[members] for each in (before, after)]
    variations = [float(each.std() / each.mean()) for each in loads]
    return (
        f"{moved} users join others with the same interests at {len(members)} brokers, {names[0]} to "
        f"{names[1]}: utility "
        f"+{gained / moved:.3g} each, brokers' subscriptions {subscribed[0]} -> {subscribed[1]}, "
        f"load variation {variations[0]:.2g} -> {variations[1]:.2g}"
    )


SPEC = PlannerSpec(
    PLANNER,
    RingConfiguration.KIND,
    place_users_dynatops,
    PlacementSettings,
    summary="users' homes on a ring, by similarity of interests and load",
    source="Zhao13, section 4",
)
