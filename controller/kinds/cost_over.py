"""What the traffic of a window costs on an overlay that has other brokers than the fleet. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from regraft.controller.kinds.overlay_kind import AnyKind
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.members import FleetView
from regraft.overlay.overlay_configuration import OverlayConfiguration

GROUPS_MIN = 4  # Fewer say hardly anything of the error.


def cost_over_per_s(kind: AnyKind, fleet: FleetView, overlay: OverlayConfiguration, window: ClosedWindow) -> float:
    """Return what an overlay costs with what its own brokers wanted and published in a window.

    Homes that the overlay names are its own brokers'. Raises ValueError when the window cannot be costed.
    """
    own = kind.over(fleet.inventory_over(overlay.brokers))
    return float(own.cost_per_s(overlay, window.over(overlay.brokers)))


def sample_error_per_s(
    kind: AnyKind, fleet: FleetView, overlay: OverlayConfiguration, window: ClosedWindow
) -> float | None:
    """Return the standard error of what an overlay costs in a window that holds a sample.

    By random groups of what is in the sample, less what a sample of nearly all knows for certain. None if the window
    knows all, or too little for an estimate.
    """
    share = window.sets.share
    if share >= 1:
        return None
    own = kind.over(fleet.inventory_over(overlay.brokers))
    costs_per_s = own.reached(own.state_of(overlay, [window.over(overlay.brokers)])).costs_per_s
    if len(costs_per_s) < GROUPS_MIN:
        return None
    return float(np.std(costs_per_s, ddof=1) * math.sqrt((1 - share) / len(costs_per_s)))


def cost_by_time_per_s(
    kind: AnyKind, fleet: FleetView, overlays: Iterable[tuple[float, OverlayConfiguration]], window: ClosedWindow
) -> float:
    """Return what a window cost on several overlays, each for its share of the window's time.

    Raises ValueError when the window cannot be costed.
    """
    return sum(share * cost_over_per_s(kind, fleet, overlay, window) for share, overlay in overlays)


def at_first(kind: AnyKind, homes_origin: dict[str, str]) -> OverlayConfiguration:
    """Return the overlay of epoch 0 with clients where they would be, had no plan ever moved them.

    Those that were first at home at a broker that has joined since are not named.
    """
    first: OverlayConfiguration = kind.inventory.bootstrap
    return first.with_homes({client: home for client, home in homes_origin.items() if home in first.neighbours})
