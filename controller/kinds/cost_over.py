"""Cost the traffic of a window on an overlay whose brokers differ from the fleet's. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from regraft.controller.kinds.overlay_kind import AnyKind
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.inventory.members import FleetView
from regraft.overlay.overlay_configuration import OverlayConfiguration

GROUPS_MIN = 4  # Fewer groups say hardly anything about the error.


def cost_over_per_s(kind: AnyKind, fleet: FleetView, overlay: OverlayConfiguration, window: ClosedWindow) -> float:
    """Return the cost of an overlay with what its own brokers wanted and published in a window.

    Homes that the overlay names are its own brokers. Raises ValueError if the window cannot be costed.
    """
    own = kind.over(fleet.inventory_over(overlay.brokers))
    return float(own.cost_per_s(overlay, window.over(overlay.brokers)))


def sample_error_per_s(
    kind: AnyKind, fleet: FleetView, overlay: OverlayConfiguration, window: ClosedWindow
) -> float | None:
    """Return the standard error of an overlay's cost in a window that holds a sample.

    Estimated by random groups of the sample, with finite-population correction. None if the window knows everything, or
    too little for an estimate.
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
    """Return what a window cost on several overlays, each weighted by its share of the window's time.

    Raises ValueError if the window cannot be costed.
    """
    return sum(share * cost_over_per_s(kind, fleet, overlay, window) for share, overlay in overlays)


def at_first(kind: AnyKind, homes_origin: dict[str, str]) -> OverlayConfiguration:
    """Return the overlay of epoch 0, with clients where they would be if no plan had ever moved them.

    Clients whose first home is a broker that joined later are not named.
    """
    first: OverlayConfiguration = kind.inventory.bootstrap
    return first.with_homes({client: home for client, home in homes_origin.items() if home in first.neighbours})
