"""CostPoint: what one window cost, on the overlay of its time and on others; a part of the live view."""

from msgspec import Struct


class CostPoint(Struct, frozen=True, kw_only=True):
    """What the overlay cost in one window, per second.

    ``cost_per_s`` is that of the window's overlay with clients where they were, ``cost_bootstrap_per_s`` what the first
    overlay with clients where they were before any plan moved them would have cost on the same window,
    ``cost_counted_per_s`` what the brokers' counters add up to, None on a ring. ``epoch`` is the newest epoch of the
    window; where a transition ran through it, ``is_one_epoch`` is False, and both overlays count for their share of the
    window's time. ``cost_shadows_per_s`` is what the overlays of
    shadow planners would have cost, by planner, without windows from before this controller. ``cost_least_per_s`` is
    what no overlay costs less than on this window; None for most, as it is found once a minute, and on a ring.
    ``sample_share`` is what share of the notifications the window knows in full: below 1 all costs but the counted one
    are estimates, and ``cost_error_per_s`` is the standard error of ``cost_per_s``, None if exact or not known.
    """

    window_end_ms: int
    cost_per_s: float
    cost_bootstrap_per_s: float
    cost_counted_per_s: float | None
    epoch: int
    is_one_epoch: bool
    is_complete: bool
    notifications_per_s: float | None = None  # A controller of before does not say it.
    cost_shadows_per_s: dict[str, float] = {}
    cost_least_per_s: float | None = None
    sample_share: float = 1.0
    cost_error_per_s: float | None = None
