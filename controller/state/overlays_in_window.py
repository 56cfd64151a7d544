"""Find which overlays carried what was published in a window, for which share of its time; who is elsewhere. Pure.

Costing them belongs to :mod:`controller.kinds`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.find_homes import homes_after, homes_before
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.texts import name_some

Share = tuple[float, OverlayConfiguration]
BROKERS_NAMED_MAX = 5


def time_shares(window: ClosedWindow, changes_ms: Sequence[int]) -> list[float]:
    """Return the shares of a window's time before, between and after these times (oldest first), one more."""
    inside = [min(max(change_ms, window.start_ms), window.end_ms) for change_ms in changes_ms]
    ends_ms = [window.start_ms, *inside, window.end_ms]
    window_ms = window.end_ms - window.start_ms
    return [(until_ms - since_ms) / window_ms for since_ms, until_ms in pairwise(ends_ms)]


def overlays_in(
    window: ClosedWindow, plans: Sequence[Plan], overlay_of: Callable[[int], OverlayConfiguration]
) -> list[Share]:
    """Return the overlays on which a window's notifications were published, each with its share of the window's time.

    ``plans`` are by epoch, ``overlay_of`` returns the overlay of an epoch. Homes are given only for clients that a plan
    moved within the window, as they were at the time; all others are where the window has them.
    """
    if window.epoch is not None:
        return [(1.0, overlay_of(window.epoch).with_homes({}))]
    used = [(since_ms, plan) for plan in plans if plan.epoch_to <= window.epoch_max and (since_ms := _used_since(plan))]
    before = max((plan.epoch_to for since_ms, plan in used if since_ms <= window.start_ms), default=window.epoch_min)
    inside = [(since_ms, plan) for since_ms, plan in used if window.start_ms < since_ms < window.end_ms]
    begun = [plan for _, plan in inside]
    overlays = [overlay_of(epoch) for epoch in (before, *(plan.epoch_to for plan in begun))]
    shares = time_shares(window, [since_ms for since_ms, _ in inside])
    homes = [homes_after(begun[:place]) | homes_before(begun[place:]) for place in range(len(overlays))]
    return [
        (share, overlay.with_homes({client: home for client, home in known.items() if home in overlay.neighbours}))
        for share, overlay, known in zip(shares, overlays, homes, strict=True)
    ]


def _used_since(plan: Plan) -> int:
    """Return when everything was first published on a plan's overlay, in ms; 0 if not yet, or unknown."""
    return next((change.time_ms for change in plan.history if change.phase is PlanPhase.DRAINING), 0)


def brokers_elsewhere(window: ClosedWindow, epoch: int, transition_ended_ms: int) -> dict[str, int]:
    """Return the brokers that ended the window at another epoch than the one in force, with theirs.

    Return none if the window began less than its own length after a transition: brokers may still have been changing.
    """
    if window.start_ms - transition_ended_ms < window.end_ms - window.start_ms:
        return {}
    return {broker: newest for broker, newest in window.epochs.items() if newest != epoch}


def elsewhere_text(elsewhere: Mapping[str, int]) -> str:
    """List which brokers are at which epoch."""
    by_epoch: dict[int, list[str]] = defaultdict(list)
    for broker, epoch in sorted(elsewhere.items()):
        by_epoch[epoch].append(broker)
    parts = []
    for epoch, brokers in sorted(by_epoch.items()):
        parts.append(f"{name_some(brokers, BROKERS_NAMED_MAX)} at epoch {epoch}")
    return "; ".join(parts)
