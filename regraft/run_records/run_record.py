"""The record of a finished run: the values from which the summary and the report are made.

Plain values. Collecting them belongs to ``collect_run``, showing them to ``summary`` and ``report``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from regraft.controller.kinds.overlay_kind import RELIEF
from regraft.overlay.cost_breakdown import CostBreakdown
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.producers.emulator.ledger import LedgerSnapshot
from regraft.run_records.outage_timeline import OutageTimeline
from regraft.schemas.live_view import Horizon, ShownBill
from regraft.schemas.plan import Plan
from regraft.schemas.shown_state import DecisionTimes


@dataclass(frozen=True, slots=True)
class WindowCost:
    """The cost of one window's traffic on the overlay of its time, and what it would have been on others.

    ``shadows_per_s``: by shadow planner, on the overlay that this planner alone would have produced by then.
    ``sample_share``: the share of notifications that brokers reported; below 1 all costs are estimates.
    """

    end_ms: int
    epoch: int
    cost_per_s: float
    cost_bootstrap_per_s: float
    complete: bool
    shadows_per_s: Mapping[str, float] = field(default_factory=dict)
    sample_share: float = 1.0


@dataclass(frozen=True, slots=True)
class ServiceUse:
    """Restarts and memory of one service of the local stack; ``memory_bytes_max`` includes its children."""

    name: str
    restarts: int
    memory_bytes_max: int


@dataclass(frozen=True)
class OverlayComparison:
    """The bootstrap and the final overlay, costed on the same last complete windows.

    ``least_per_s`` is a lower bound on the cost of any overlay on these windows, None if unknown.
    """

    final: OverlayConfiguration
    before: CostBreakdown
    after: CostBreakdown
    window_count: int
    least_per_s: float | None = None

    @property
    def cost_reduction_share(self) -> float:
        """The share of the bootstrap overlay's cost that the final one saves; 0 if there was no traffic."""
        initial_per_s = self.before.total_per_s
        return 1 - self.after.total_per_s / initial_per_s if initial_per_s > 0 else 0.0


@dataclass(frozen=True)
class ShadowRun:
    """What one shadow planner would have achieved in the run, as the controller reports it.

    ``overlay`` is its last overlay in the form of the live view, with ``homes`` of the publishers that it would have
    moved. ``final_cost_per_s`` is that overlay's cost on the windows of the OverlayComparison, and ``start_cost_per_s``
    that of the overlay from which it last started; None if there are none. ``starts`` counts how often it started, from
    the overlay in force: in each controller, and when brokers died or came. ``epoch_start`` is that of the last start.
    """

    planner: str
    plans: int = 0
    plans_rolled_back: int = 0
    links_exchanged: int = 0
    publishers_moved: int = 0
    users_moved: int = 0
    id_moves: int = 0
    refusals: Mapping[str, int] = field(default_factory=dict)
    errors: int = 0
    error_text: str = ""
    starts: int = 1
    overlay: Mapping[str, Any] = field(default_factory=dict)
    homes: Mapping[str, str] = field(default_factory=dict)
    final_cost_per_s: float | None = None
    start_cost_per_s: float | None = None
    epoch_start: int = 0

    @property
    def saved_share(self) -> float | None:
        """The share that it would save of the cost of the overlay from which it last started; what led there was not
        its own doing. None if not measured."""
        if self.final_cost_per_s is None or not self.start_cost_per_s:
            return None
        return 1 - self.final_cost_per_s / self.start_cost_per_s


@dataclass(frozen=True, slots=True)
class UserFigures:
    """The emulator's account of the users of a ring.

    ``subscription_changes`` counts how often a broker subscribed to or unsubscribed from a topic after the users had
    connected, including because of moves; ``subscription_changes_at_first_homes`` is the count without any moves.
    """

    users: int
    subscriptions: int
    users_moved: int
    wait_ms_max: float
    subscription_changes: int
    subscription_changes_at_first_homes: int

    @property
    def subscription_changes_cut(self) -> float | None:
        """The share of brokers' subscription changes that moving users saved; None if there were no changes."""
        without = self.subscription_changes_at_first_homes
        return 1 - self.subscription_changes / without if without else None


# The fields of BurstFigures whose names in the emulator's status and in the summary differ.
BURST_NAMES = {
    "static_delay_ms_p95": "delay_ms_p95_static",
    "dynamic_delay_ms_p95": "delay_ms_p95_dynamic",
    "static_drain_s": "drain_s_static",
    "dynamic_drain_s": "drain_s_dynamic",
}


class BurstFigures(msgspec.Struct, frozen=True, rename=BURST_NAMES):
    """The emulator's account of bursts on a structured cyclic overlay.

    Delays and durations are those with static routing and with detours around congestion, None if there was no burst.
    ``clusters_diverted``: how often a cluster was served through another broker than by static routing.
    ``congested_link_windows``: pairs of a link and a 50 ms window in which a broker considered the link congested.
    ``bursts_begun_ms``: when each burst began.
    """

    static_delay_ms_p95: float | None
    dynamic_delay_ms_p95: float | None
    static_drain_s: float | None
    dynamic_drain_s: float | None
    clusters_diverted: int
    congested_link_windows: int
    bursts_begun_ms: tuple[int, ...] = ()

    def answered_by(self, plans: Iterable[Plan]) -> int:
        """Return how many bursts led, before the next one, to a plan that moves publishers off congested links."""
        made_ms = (plan.window_end_ms for plan in plans if any(one.planner == RELIEF for one in plan.proposals))
        return len({bisect_right(self.bursts_begun_ms, time_ms) for time_ms in made_ms} - {0})


# The real fleet's account of its mobile clients, once check-ins have moved some: how often a plan brought a client
# nearer to where it was, or as near as can be; its mean round trip to its home before and after; the mean over all
# clients and the time, and what that would be if all had kept their first homes.
MOBILE_FIGURES = (
    "checkins_moving",
    "clients_brought_nearer",
    "clients_brought_to_nearest",
    "brought_trip_ms_before",
    "brought_trip_ms_after",
    "mobile_trip_ms",
    "mobile_unplanned_trip_ms",
)


@dataclass(frozen=True)
class RunRecord:
    """One run. Times are in ms since 1970.

    ``regime_change_ms``: when interests shifted, None if they did not; ``expects_regime_change``: they should have.
    ``traffic_end_ms``: when publishing was stopped. ``emulator_behind_ms_max``: how far the emulator fell behind the
    wall clock; if far, its delays are not realistic. ``withheld_count``: notifications that clients of real brokers did
    not publish because the machine was too busy. ``changes_found_ms``: the start of each change of traffic that the
    controller reported. ``links_corrected``: links whose final cost comes from round trips, not from the inventory.
    ``given_up``: the services that ended for good and so ended the run, as sentences without a full stop.
    ``decision_times``: by role and planner (``shadow:swap_links_ci``). ``users`` is None except on a ring, ``bursts``
    except on a structured cyclic overlay; ``mobile`` has the MOBILE_FIGURES of real brokers with mobile clients.
    ``bills``: before any plan and at the end, None if traffic is not charged.
    """

    seed: int
    inventory: Inventory
    started_ms: int
    ended_ms: int
    traffic_end_ms: int = 0
    expects_regime_change: bool = False
    ledger: LedgerSnapshot = field(default_factory=LedgerSnapshot)
    windows: tuple[WindowCost, ...] = ()
    windows_incomplete: int = 0
    plans: tuple[Plan, ...] = ()
    plan_outcomes: Mapping[str, str] = field(default_factory=dict)
    planner: str = ""
    shadows: tuple[ShadowRun, ...] = ()
    decision_times: Mapping[str, DecisionTimes] = field(default_factory=dict)
    horizon: Horizon | None = None
    users: UserFigures | None = None
    bursts: BurstFigures | None = None
    mobile: Mapping[str, Any] = field(default_factory=dict)
    first_window_cost_per_s: float | None = None
    bills: tuple[ShownBill, ShownBill] | None = None
    comparison: OverlayComparison | None = None
    regime_change_ms: int | None = None
    changes_found_ms: tuple[int, ...] = ()
    links_corrected: int = 0
    refusals: Mapping[str, int] = field(default_factory=dict)
    latencies_ms: tuple[float, ...] = ()
    telemetry_records: int = 0
    emulator_behind_ms_max: float = 0.0
    withheld_count: int = 0
    services: tuple[ServiceUse, ...] = ()
    memory_total_bytes_max: int = 0
    outages: OutageTimeline = field(default_factory=OutageTimeline)
    given_up: tuple[str, ...] = ()
