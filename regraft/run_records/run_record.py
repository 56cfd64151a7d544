"""The record of a finished run: the values that the summary and the report are made of.

Plain values. Collecting them belongs to ``collect_run``, showing them to ``summary`` and ``report``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from regraft.controller.kinds.overlay_kind import RELIEF
from regraft.overlay.cost import CostBreakdown
from regraft.overlay.inventory import Inventory
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.run_records.outage_story import OutageStory
from regraft.schemas.live_view import ShownBill
from regraft.schemas.plan import Plan


@dataclass(frozen=True, slots=True)
class DeliveryLedger:
    """The emulator's account of what was owed to whom; it knows nothing of the controller or of Spark.

    ``published`` counts notifications, ``expected`` and ``delivered`` count pairs of notification and subscription.
    ``unexpected`` counts hand-overs to a subscription that was not owed them. ``excused`` of the lost ones had to
    cross a broker that died, ``out_of_order_on_detours`` of those out of order came around congested links, or behind
    one that did. ``final`` means that traffic had ended and nothing was in transit when it was written.
    """

    published: int = 0
    expected: int = 0
    delivered: int = 0
    lost: int = 0
    excused: int = 0
    repeated: int = 0
    out_of_order: int = 0
    out_of_order_on_detours: int = 0
    unexpected: int = 0
    final: bool = False
    lost_by_reason: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        """Return True if all arrived exactly once and in order, except as excused by deaths and detours."""
        return self.lost - self.excused == self.repeated == self.disordered == self.unexpected == 0

    @property
    def disordered(self) -> int:
        """Deliveries out of order that no detour excuses."""
        return self.out_of_order - self.out_of_order_on_detours


@dataclass(frozen=True, slots=True)
class WindowCost:
    """What one window's traffic cost on the overlay of its time, and would have cost on others.

    ``shadows_per_s`` is by shadow planner, on the tree that this planner alone would have made by then.
    ``sample_share`` is the share of the notifications that the window knows: below 1 all its costs are estimates.
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
    """How one service of the local stack fared; ``rss_bytes_max`` includes its children."""

    name: str
    restarts: int
    rss_bytes_max: int


@dataclass(frozen=True)
class OverlayComparison:
    """The bootstrap overlay and the final one on the traffic of the same last complete windows.

    ``least_per_s`` is a lower bound on any overlay's cost on it, None if unknown.
    """

    final: OverlayConfiguration
    before: CostBreakdown
    after: CostBreakdown
    window_count: int
    least_per_s: float | None = None

    @property
    def cost_reduction_share(self) -> float:
        """The share of the bootstrap overlay's cost that the final one saves; 0 when there was no traffic."""
        initial_per_s = self.before.total_per_s
        return 1 - self.after.total_per_s / initial_per_s if initial_per_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class DecisionTime:
    """How long the decisions of one planner took, judge and choice included."""

    count: int
    mean_ms: float
    max_ms: float


@dataclass(frozen=True)
class ShadowRun:
    """What one shadow planner would have achieved in the run; plans, refusals and tree as the controller reports.

    ``homes`` are those of the publishers that it would have moved. ``final_cost_per_s`` is that of its last overlay on
    the windows of the OverlayComparison, None without these. ``overlay`` is that overlay, as the controller shows it.
    ``starts`` counts the controllers that it ran in: each started from the overlay then in force.
    """

    planner: str
    plans: int = 0
    plans_taken_back: int = 0
    links_exchanged: int = 0
    publishers_moved: int = 0
    users_moved: int = 0
    id_moves: int = 0
    refusals: Mapping[str, int] = field(default_factory=dict)
    faults: int = 0
    fault_text: str = ""
    starts: int = 1
    overlay: Mapping[str, Any] = field(default_factory=dict)
    homes: Mapping[str, str] = field(default_factory=dict)
    final_cost_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class UserFigures:
    """The emulator's account of the users of a ring.

    ``subscription_changes`` counts how often a broker began or stopped subscribing to a topic since the users had
    connected, by moves as well; ``subscription_changes_at_first_homes`` is what it would have been if nobody had moved.
    """

    users: int
    subscriptions: int
    users_moved: int
    wait_ms_max: float
    subscription_changes: int
    subscription_changes_at_first_homes: int

    @property
    def subscription_changes_cut(self) -> float | None:
        """The share of brokers' subscription changes saved by moving users; None without any."""
        without = self.subscription_changes_at_first_homes
        return 1 - self.subscription_changes / without if without else None


@dataclass(frozen=True, slots=True)
class RoutingFigures:
    """The outcome of bursts with one routing; None without a burst."""

    delay_ms_p95: float | None
    drain_s: float | None


@dataclass(frozen=True, slots=True)
class BurstFigures:
    """The emulator's account of bursts on a structured cyclic overlay, without and with detours around congestion.

    ``diverted``: clusters served through another broker than with static routing. ``congested``: links and
    windows of 50 ms in which a broker considered its link congested. ``begun_ms``: when each burst began.
    """

    static: RoutingFigures
    dynamic: RoutingFigures
    diverted: int
    congested: int
    begun_ms: tuple[int, ...] = ()

    def answered_by(self, plans: Iterable[Plan]) -> int:
        """Return in how many bursts, or after them, plans were made that move publishers off congested links."""
        made_ms = (plan.window_end_ms for plan in plans if any(one.planner == RELIEF for one in plan.proposals))
        return len({bisect_right(self.begun_ms, time_ms) for time_ms in made_ms} - {0})


@dataclass(frozen=True, slots=True)
class HorizonUse:
    """How far the last decision looked back; ``lifetime_s`` is None if too few subscriptions had ended."""

    windows: int
    lifetime_s: float | None


@dataclass(frozen=True)
class RunRecord:
    """One run. Times are Unix milliseconds; ``regime_change_ms`` is None when the interests never shifted.

    ``expects_regime_change`` means that they should have; ``traffic_end_ms`` is when publishing was ended.

    ``emulator_behind_ms_max`` is how far the model fell behind the wall clock: far behind, its delays are not real.
    ``withheld_count`` is how many notifications clients of real brokers did not publish, as the machine was too busy.
    ``changes_found_ms`` lists when traffic changed, as the controller reported it. ``links_corrected`` counts the links
    whose final cost is the brokers' measurement, not the inventory's. ``given_up`` names the services that ended for
    good and ended the run, in sentences without a full stop. ``decision_times`` is by role and planner
    (``shadow:swap_links_ci``). ``users`` is None but on a ring, ``bursts`` but on a structured cyclic overlay.
    ``bills`` are before any plan and at the end, None where traffic is not charged.
    """

    seed: int
    inventory: Inventory
    started_ms: int
    ended_ms: int
    traffic_end_ms: int = 0
    expects_regime_change: bool = False
    ledger: DeliveryLedger = field(default_factory=DeliveryLedger)
    windows: tuple[WindowCost, ...] = ()
    windows_incomplete: int = 0
    plans: tuple[Plan, ...] = ()
    plan_outcomes: Mapping[str, str] = field(default_factory=dict)
    planner: str = ""
    shadows: tuple[ShadowRun, ...] = ()
    decision_times: Mapping[str, DecisionTime] = field(default_factory=dict)
    horizon: HorizonUse | None = None
    users: UserFigures | None = None
    bursts: BurstFigures | None = None
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
    rss_total_bytes_max: int = 0
    outages: OutageStory = field(default_factory=OutageStory)
    given_up: tuple[str, ...] = ()
