"""Where clients are: from what windows have seen and what plans have set. Pure.

On a tree the clients that have homes are publishers, on a ring users.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from controller.state.closed_window import ClosedWindow
from overlay.chord_configuration import AnyConfiguration, ChordConfiguration
from overlay.user_interests import UserInterests
from schemas.plan import Plan


def with_homes(present: AnyConfiguration, windows: Sequence[ClosedWindow]) -> AnyConfiguration:
    """Return the present configuration with the homes that a decision on the windows (oldest first) rests on.

    On a tree: the homes of all publishers of the windows. What a window of the present epoch saw is newest; then what
    the plans set (``present.homes``), for a publisher that has been silent since it was moved; then what was seen
    before the last transition.
    On a ring: the users that plans have moved, each where the register of the newest window says; those that have left
    are not named. All other users are where the register says, too, and need no naming.
    """
    if isinstance(present, ChordConfiguration):
        newest = windows[-1].interests
        homes = {} if newest is None else homes_in(newest, present.home_of)
    else:
        homes = _publisher_homes(present, windows)
    return replace(present, homes=tuple(sorted(homes.items())))


def homes_in(interests: UserInterests, users: Iterable[str]) -> dict[str, str]:
    """Return where those of the users are that the interests know."""
    known = {user: interests.position_of.get(user) for user in users}
    return {user: interests.brokers[interests.homes[at]] for user, at in known.items() if at is not None}


def strayed_users(interests: UserInterests, placed: Mapping[str, str]) -> frozenset[str]:
    """Return the users that are elsewhere than plans have placed them: they have gone there by themselves."""
    return frozenset(user for user, home in homes_in(interests, placed).items() if home != placed[user])


def homes_before(plans: Iterable[Plan]) -> dict[str, str]:
    """Return the home that each client had before these plans (oldest first) moved it.

    A client that a plan finds elsewhere than the plan before left it has gone there by itself, and counts from there.
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


def _publisher_homes(present: AnyConfiguration, windows: Sequence[ClosedWindow]) -> dict[str, str]:
    earlier: dict[str, str] = {}
    since: dict[str, str] = {}
    for window in windows:
        (since if window.epoch == present.epoch else earlier).update(window.homes)
    return earlier | {name: home for name, home in present.homes if name in earlier or name in since} | since
