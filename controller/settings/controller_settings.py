"""Settings of the controller stage as one frozen value, each with its unit and the reason for its default."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from regraft.controller.settings.decision_settings import DecisionSettings, values_below
from regraft.controller.settings.member_settings import MemberSettings
from regraft.controller.settings.planner_settings import PlannerSettings
from regraft.infra.orders.operated_settings import OperatedSettings
from regraft.infra.process.run_clock import RunClock
from regraft.infra.process.serve_metrics import port_errors
from regraft.schemas.bounds import NAME_LENGTH_MAX, UNCLEAN_ANYWHERE
from regraft.schemas.plan import PlanPhase
from regraft.schemas.plan_life import LIFE
from regraft.schemas.sampled_blocks import power_of, share_error
from regraft.schemas.units import MINUTE_MS

SESSION_MS_MIN, SESSION_MS_MAX = 1_000, 60_000
TERM_FIRST = 1  # Of the first leader; 0 is sent by controllers that do not support terms.
# No site has had this many leaders. The next term is above any accepted one, so a single answer must not exhaust the
# numbers.
TERM_LEAP_MAX = 1_000_000


@dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """Adaptation to load of the share of notifications that brokers report in full (docs/sampling.md)."""

    share_min: Annotated[
        float,
        "lowest share of notifications that brokers are asked to report in full, 0.5, 0.25 and so on; 1 asks "
        "for nothing",
    ] = 1.0
    # The share is halved if windows arrive more than this many window lengths after their end and do not catch up.
    # Default 3: 15 s of windows of 5 s.
    delay_windows_max: float = 3.0
    deliveries_max: Annotated[
        int,
        "the share is lowered until a window lists at most this many deliveries one by one; 0 for no limit",
    ] = 0
    # The share is doubled after this many windows without either, and after twice as many each time that this proved
    # too much. Default 12, a minute; at most 64 times that.
    calm_windows: int = 12

    @property
    def power_max(self) -> int:
        """The power of the smallest share, 2 ** -power."""
        return power_of(self.share_min)

    def errors(self) -> list[str]:
        """Return what is wrong with the settings, one sentence each."""
        errors = values_below(self, {"deliveries_max": 0})
        if error := share_error(self.share_min):
            errors.append(f"share_min {error}")
        if self.share_min == 1.0 and self.deliveries_max:
            errors.append(
                f"deliveries_max is {self.deliveries_max}, but share_min is 1, which asks for everything: lower that, "
                "or leave deliveries_max out"
            )
        return errors


@dataclass(frozen=True)
class AssemblyLimits:
    """Time limits and number of incomplete windows."""

    # Share of a broker's batches that must have arrived, or no decision is based on the window. 0.95: of the twenty
    # batches of a window of 5 s one may be missing.
    completeness_share_min: float = 0.95
    # How long a window waits for its rows after its marker, and for an earlier window's marker.
    rows_wait_ms: int = 10_000
    # Windows that may wait; beyond it the oldest is dropped.
    windows_pending_max: int = 64
    # Rows kept of one window; further ones are refused, so the window is incomplete.
    rows_per_window_max: int = 500_000
    # How far ahead of the present a window may lie before its records are refused: clocks of machines differ by
    # seconds, and what is minutes ahead is a mistake.
    future_ms_max: int = 600_000


@dataclass(frozen=True)
class TransitionLimits:
    """Time limits of phases, and repetition of unanswered commands.

    An activation cannot be undone, so only the first limit ends in an abort; the others end in one PLAN_STALLED event,
    and the plan continues.
    """

    # Until every broker is prepared, or the plan is aborted and nothing has changed.
    prepare_ms: int = 20_000
    # Until every broker works with both configurations.
    activate_ms: int = 20_000
    # Until no broker sees a notification of the old configuration any more; the longest phase, because it waits for
    # queues, which may hold a minute of traffic.
    drain_ms: int = 60_000
    # Until every broker has dropped the old configuration, and until an abort is answered.
    retire_ms: int = 20_000
    # Pause after which an unanswered command is sent again.
    resend_ms: int = 2_000

    def of(self, phase: PlanPhase) -> int:
        """Return how long a phase that involves brokers may take, in ms."""
        limit_ms: int = getattr(self, LIFE[phase].limit)
        return limit_ms


@dataclass(frozen=True, kw_only=True)
class LinkSettings:
    """Correction of the inventory's link costs by measured round trips."""

    cost_per_ms: Annotated[
        float,
        "cost of a millisecond of one-way delay, in the inventory's unit",
    ] = 1.0
    # A link's cost is corrected if it differs by more than this share of the one in use. Default 0.25, so that costs
    # and plans do not follow every fluctuation of the network.
    correction_share_min: float = 0.25
    # By what share the messages that brokers count, at measured delays, may cost more or less than the model predicts
    # before an event reports it. Default 0.15.
    drift_share_max: float = 0.15
    estimate_unmeasured: Annotated[
        bool, "the inventory's costs are placeholders: estimate the links that nobody measures"
    ] = False

    def errors(self) -> list[str]:
        """Return what is wrong with the settings, one sentence each."""
        errors = values_below(self, {"cost_per_ms": 0})
        if self.estimate_unmeasured and not self.cost_per_ms:
            errors.append(
                "estimate_unmeasured is true and cost_per_ms 0: estimates need measured costs, set it above 0"
            )
        return errors


@dataclass(frozen=True, kw_only=True)
class ControllerSettings(OperatedSettings):
    """All settings of the controller."""

    client_id = "regraft-controller"

    # The brokers, their costs and the bootstrap overlay.
    inventory_path: Path
    planner: Annotated[
        str,
        "one planner, or several joined by + (`regraft list planners`)",
    ] = "swap_links_cost+relocate_publishers_joint+place_clients_cost+escape_overlay_cost"
    # Of the planner's random choices.
    seed: int = 1
    shadow_planners: Annotated[
        tuple[str, ...],
        "planners for comparison, which change only simulated overlays",
    ] = ()
    horizon_lifetimes: Annotated[float, "look-back of a decision, in mean lifetimes of a subscription"] = 4.0
    # How many lifetimes a decision looks back first; further only if it finds nothing to change there, and then what it
    # finds must save on the recent windows, too. 1: gradual changes of traffic are followed sooner, and what takes many
    # windows to distinguish from luck is still found (docs/decisions.md). 0, as in old recordings, considers all of
    # them at once.
    recent_lifetimes: float = 1.0
    subscription_lifetime_s: Annotated[
        float | None,
        "that lifetime, if known; none measures it",
    ] = None
    # Bounds the number of windows that a decision looks back: one window shows no spread and so cannot separate gain
    # from noise.
    horizon_windows_min: int = 2
    # A restarted controller reads as many again, and they bound memory: 8 bytes for each broker and block of 64
    # notifications of a publisher in each window.
    horizon_windows_max: int = 60
    # A change of traffic, which invalidates everything before it, is found by mistake at most once in this many windows
    # of quiet traffic; 0 disables the detection. 2,000, some three hours of 5-s windows: a false alarm shortens the
    # look back for some windows, and at 200 as at 2,000 quiet runs gave none (docs/decisions.md).
    quiet_windows_per_change: float = 2_000.0
    degree_max: Annotated[
        int | None,
        "maximum number of links per broker, except on a ring; none for the inventory's cap",
    ] = None
    # Proposals of one planner for one plan.
    proposals_max: int = 16
    # On a ring, the weight of a hop of delay against a message, in planners and in every cost that is shown; Zhao13's
    # 1.
    ring_delay_weight: float = 1.0
    user_load_max: Annotated[
        float,
        "maximum load of a broker of a ring, as a multiple of the mean",
    ] = 2.0
    # Complete windows on which an executed plan is verified. Default 2.
    verify_windows: int = 2
    # How long a plan waits for later windows that verify it: 24 windows, ten times what verification takes, so that a
    # few incomplete ones do not leave it unverified. In proportion with longer windows.
    verify_ms_max: int = 2 * MINUTE_MS
    # How much of the state topics a restarted controller reads again: the 60 windows of the longest horizon, and no
    # more, as older ones are never decided on. In proportion with longer windows.
    lookback_ms: int = 5 * MINUTE_MS
    # How long a controller that is asked to stop continues the transition under way. Default 15 s, within which a
    # transition ends unless a broker is unhealthy.
    stop_ms_max: int = 15_000
    session_ms: Annotated[
        int,
        "after this time without a sign of life from the leader, another controller takes over; Kafka's "
        "group.min.session.timeout.ms is the minimum",
    ] = 6_000
    instance: Annotated[str, "name of this controller among several; empty for host and process id"] = ""
    # Interval of the loop's steps. Default 100 ms, small against any window.
    tick_ms: int = 100
    # How often an unchanged state is published again. Default 1 s.
    status_ms: int = 1000
    metrics_port: Annotated[
        int | None,
        "port for /metrics, /health and /ready; none opens no port",
    ] = None
    # Host to listen on for metrics.
    metrics_host: str = "127.0.0.1"
    dry_run: Annotated[
        bool,
        "plans, repairs included, wait for an operator's approval (`regraft plans`); `demo` and `run "
        "--emulate` turn this off",
    ] = True
    act_on_deaths: Annotated[
        bool,
        "in a dry run, repair the overlay after deaths and let brokers that died rejoin, without approval",
    ] = False
    review_ms_max: Annotated[int, "how long a plan may wait for approval"] = 15 * MINUTE_MS
    # The present time; the wall clock unless a run is sped up.
    clock: RunClock = field(default_factory=RunClock)
    # The settings of each planner by its name; one that is not named has its own defaults.
    planners: Mapping[str, PlannerSettings] = field(default_factory=dict)
    decision: Annotated[DecisionSettings, "Criteria for a worthwhile change"] = field(default_factory=DecisionSettings)
    assembly: Annotated[
        AssemblyLimits,
        "Time limits and number of incomplete windows",
    ] = field(default_factory=AssemblyLimits)
    transition: Annotated[
        TransitionLimits,
        "Time limits of phases, and repetition of unanswered commands",
    ] = field(default_factory=TransitionLimits)
    members: Annotated[
        MemberSettings,
        "Death, return, joining and leaving of brokers",
    ] = field(default_factory=MemberSettings)
    links: Annotated[
        LinkSettings,
        "Correction of the inventory's link costs by measured round trips",
    ] = field(default_factory=LinkSettings)
    sampling: Annotated[
        SamplingSettings,
        "Adaptation to load of the share of notifications that brokers report in full (docs/sampling.md)",
    ] = field(default_factory=SamplingSettings)

    @property
    def instance_name(self) -> str:
        """The name of this controller, for people."""
        return self.instance or f"{socket.gethostname()}:{os.getpid()}"

    def errors(self) -> list[str]:
        """Return all that is wrong with the settings and their combination, one sentence each."""
        errors = values_below(self, {"review_ms_max": 1})
        errors += self.decision.errors() + self.members.errors() + self.links.errors()
        errors += [f"sampling.{error}" for error in self.sampling.errors()]
        errors += self._kind_errors()
        if not self.bootstrap:
            errors.append("bootstrap is empty: name at least one Kafka server, for example 127.0.0.1:9092")
        errors += self._horizon_errors() + port_errors(self.metrics_port)
        if not SESSION_MS_MIN <= self.session_ms <= SESSION_MS_MAX:
            errors.append(
                f"session_ms is {self.session_ms}: must be from {SESSION_MS_MIN}, or any pause looks like a death, "
                f"to {SESSION_MS_MAX}, because no controller leads for that long"
            )
        if len(self.instance) > NAME_LENGTH_MAX or UNCLEAN_ANYWHERE.search(self.instance):
            errors.append(
                f"instance is {self.instance[:NAME_LENGTH_MAX]!r}: a readable name of at most "
                f"{NAME_LENGTH_MAX} characters"
            )
        return errors

    def _kind_errors(self) -> list[str]:
        errors = []
        if self.degree_max is not None and self.degree_max < 2:
            errors.append(f"degree_max is {self.degree_max}: a tree needs at least 2")
        if self.user_load_max < 1:
            errors.append(f"user_load_max is {self.user_load_max}: must be at least 1, or no placement could hold it")
        return errors

    def _horizon_errors(self) -> list[str]:
        errors = []
        if len(set(self.shadow_planners)) < len(self.shadow_planners):
            errors.append(f"shadow_planners are {', '.join(self.shadow_planners)}: name each once")
        if not 0 < self.horizon_lifetimes < math.inf:
            errors.append(
                f"horizon_lifetimes is {self.horizon_lifetimes}: must be above 0, because a decision needs traffic"
            )
        if self.subscription_lifetime_s is not None and not 0 < self.subscription_lifetime_s < math.inf:
            errors.append(
                f"subscription_lifetime_s is {self.subscription_lifetime_s}: must be above 0, or none to measure it"
            )
        return errors
