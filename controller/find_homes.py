"""Where publishers are: from what windows have seen and what plans have set. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controller.closed_window import ClosedWindow
from overlay.configuration import Configuration
from schemas.plan import Plan


def with_homes(present: Configuration, windows: Sequence[ClosedWindow]) -> Configuration:
    """Return the present configuration with the homes of all publishers of the windows (oldest first).

    What a window of the present epoch saw is newest; then what the plans set (``present.homes``), for a publisher that
    has been silent since it was moved; then what was seen before the last transition.
    """
    earlier: dict[str, str] = {}
    since: dict[str, str] = {}
    for window in windows:
        (since if window.epoch == present.epoch else earlier).update(window.homes)
    homes = earlier | {name: home for name, home in present.homes if name in earlier or name in since} | since
    return Configuration.of(present.epoch, present.brokers, present.links, homes)


def homes_before(plans: Iterable[Plan]) -> dict[str, str]:
    """Return the home that each publisher had before the first of these plans (oldest first) moved it."""
    origin: dict[str, str] = {}
    for plan in plans:
        for move in plan.moves:
            origin.setdefault(move.client, move.home_from)
    return origin


def homes_after(plans: Iterable[Plan]) -> dict[str, str]:
    """Return the home that the last of these plans (oldest first) gave each publisher that they moved."""
    return {move.client: move.home_to for plan in plans for move in plan.moves}
