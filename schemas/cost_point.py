"""CostPoint: the cost of one window, on the overlay of its time and on others; a part of the live view."""

from msgspec import Struct


class CostPoint(Struct, frozen=True, kw_only=True):
    """The cost of one window, per second.

    ``cost_per_s`` is that of the window's overlay and homes of clients, ``cost_bootstrap_per_s`` that of the first
    overlay, with clients where they were before any plan moved them, ``cost_counted_per_s`` the sum of the brokers'
    counters, None on a ring. ``epoch`` is the newest epoch of the window; if a transition ran during it,
    ``is_one_epoch`` is False, and both overlays count by their share of the window's time. ``cost_shadows_per_s`` is
    the cost on the overlays of shadow planners, by planner, for windows since this controller started.
    ``cost_least_per_s`` is a lower bound for any overlay on this window, None for most windows because it is computed
    once a minute, and on a ring.

    ``sample_share`` is the share of notifications that the window knows in full: below 1, all costs but the counted one
    are estimates. ``cost_error_per_s`` is the standard error of ``cost_per_s``, None if exact or not known.
    """

    window_end_ms: int
    cost_per_s: float
    cost_bootstrap_per_s: float
    cost_counted_per_s: float | None
    epoch: int
    is_one_epoch: bool
    is_complete: bool
    notifications_per_s: float | None = None  # Missing from views of earlier versions.
    cost_shadows_per_s: dict[str, float] = {}
    cost_least_per_s: float | None = None
    sample_share: float = 1.0
    cost_error_per_s: float | None = None
