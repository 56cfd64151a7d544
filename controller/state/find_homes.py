"""Find where clients are, from what windows have seen and what plans have set. Pure.

On a tree the clients that have homes are publishers, on a ring users.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.overlay.ring.user_interests import UserInterests
from regraft.schemas.plan import Plan


def homes_in(interests: UserInterests, users: Iterable[str]) -> dict[str, str]:
    """Return the homes of these users, for those that the interests include."""
    positions = {user: interests.position_of.get(user) for user in users}
    return {user: interests.brokers[interests.homes[at]] for user, at in positions.items() if at is not None}


def strayed_users(interests: UserInterests, placed: Mapping[str, str]) -> frozenset[str]:
    """Return the users that are not where plans have placed them, so have moved by themselves."""
    return frozenset(user for user, home in homes_in(interests, placed).items() if home != placed[user])


def homes_before(plans: Iterable[Plan]) -> dict[str, str]:
    """Return the home that each client had before these plans (oldest first) moved it.

    A client that a plan finds elsewhere than an earlier plan left it has moved there by itself: its home there counts.
    """
    origin: dict[str, str] = {}
    reached: dict[str, str] = {}
    for plan in plans:
        for move in plan.moves:
            if reached.get(move.client) != move.home_from:
                origin[move.client] = move.home_from
            reached[move.client] = move.home_to
    return origin


def homes_after(plans: Iterable[Plan]) -> dict[str, str]:
    """Return the home that the last of these plans (oldest first) gave each client that they moved."""
    return {move.client: move.home_to for plan in plans for move in plan.moves}


def configuration_after(plan: Plan, before: OverlayConfiguration) -> OverlayConfiguration:
    """Return the configuration that the plan leads to from ``before``, with the homes of all clients moved so far."""
    return before.target_of(plan).with_homes(before.home_of | homes_after([plan]))


def configuration_before(plan: Plan, after: OverlayConfiguration) -> OverlayConfiguration:
    """Return the configuration that the plan began from, with the homes of the clients that it moved."""
    return after.origin_of(plan, after.home_of | homes_before([plan]))
