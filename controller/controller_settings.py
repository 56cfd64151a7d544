"""Settings of the controller stage as one frozen value, each with its unit and the reason for its default."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from controller.decide.planner_table import CHAIN, PLANNERS, RING_PLANNERS, TREE_PLANNERS, planner_names
from controller.execute.transition import TransitionLimits
from controller.state.planner_interface import PlannerSettings
from controller.windows.assemble_state import AssemblyLimits
from infra.kafka_access import KafkaAccess, KafkaSecurity
from infra.run_clock import RunClock
from infra.serve_metrics import port_faults
from overlay.bloom_filters import PAPER_HASHES
from overlay.chord_configuration import AnyConfiguration, ChordConfiguration
from schemas.topics import DEFAULT_NAMESPACE

MINUTE_MS = 60_000


@dataclass(frozen=True, kw_only=True)
class DecisionSettings:
    """When a change is worth making.

    ``changes_per_plan_max``: links exchanged in one plan. Few enough that verification can tell what helped, so many
    that a bad overlay is soon a good one. Default 12: over a run of the demo 3 saved 54 %, 12 64 %, 39 only 65 %.
    ``moves_per_plan_max``: publishers moved in one plan. Default 24: a move opens no link, it only sends subscriptions
    along the way between the two homes.
    ``users_per_plan_max``: users moved in one plan, on a ring. Default 500: a move costs two brokers a few messages,
    and only its own user notices. A reassignment of ring IDs is one change however many brokers it concerns.
    ``pay_back_s``: a change must earn its control messages within this time. Default 300 s, a small part of the hours
    that an interest usually lives.
    ``noise_factor``: a gain must exceed so many standard errors of its mean over the windows, and the square root of k
    times as many when k links, ring IDs or homes of publishers change as one. Default 2, about 95 % for a single link.
    ``gain_share_min``: a gain must exceed this share of the present cost whatever the noise, or the overlay would be
    rebuilt for crumbs. Default 0.01.
    ``cool_down_windows``: windows that must close after a plan before the next. Default 2: what the plan did must be
    seen before more is done.
    ``window_age_ms_max``: a state whose newest window ended longer ago is stale. Default 60 s, several windows.
    ``mute_ms``: how long a planner is not heard after one of its plans had to be undone. Default 5 minutes.
    """

    changes_per_plan_max: int = 12
    moves_per_plan_max: int = 24
    users_per_plan_max: int = 500
    pay_back_s: float = 300.0
    noise_factor: float = 2.0
    gain_share_min: float = 0.01
    cool_down_windows: int = 2
    window_age_ms_max: int = MINUTE_MS
    mute_ms: int = 5 * MINUTE_MS

    def faults(self) -> list[str]:
        """Return what is wrong with the settings, one sentence each."""
        least = {
            "changes_per_plan_max": 1,
            "moves_per_plan_max": 1,
            "users_per_plan_max": 1,
            "noise_factor": 0,
            "gain_share_min": 0,
            "cool_down_windows": 0,
            "window_age_ms_max": 1,
            "mute_ms": 0,
        }
        found = _below(self, least)
        if self.pay_back_s <= 0:
            found.append(f"pay_back_s is {self.pay_back_s}: above 0, a change needs time to earn its price")
        if self.gain_share_min >= 1:
            found.append(f"gain_share_min is {self.gain_share_min}: below 1, no change saves the whole cost")
        return found


@dataclass(frozen=True, kw_only=True)
class ControllerSettings:
    """Everything the controller is told at its start.

    ``bootstrap``: Kafka's bootstrap servers. ``security``: its TLS and SASL. ``namespace``: prefix of topics and
    live-view keys. ``redis_url``: where the live view is kept; None runs without one.
    ``inventory_path``: the brokers, their costs and the bootstrap overlay.
    ``planner``: a name of ``controller.decide.planner_table``, or several joined by +, which decide in turn on
    one plan. Default: links first, then publishers on the tree that these lead to. ``seed``: of the planner's random
    choices. ``shadow_planners``: names of planners that decide on the same windows and change only an overlay of their
    own, which shows what they would have made of the traffic. Default none; each costs its time once a window.
    ``horizon_lifetimes``: how many mean lifetimes of a subscription a decision looks back. Default 4: there Cost and
    Interest has got most of what looking back further saves, and swap_links_cost saves the same within a hundredth from
    a quarter of a lifetime to 16 (``regraft reproduce psoop``, figure H). ``subscription_lifetime_s``: the mean
    lifetime, where it is known; None measures it from telemetry and the clients topic. ``horizon_windows_min``,
    ``horizon_windows_max``: bounds of the windows so found. Default at least 2, as one window shows no spread and no
    gain could be told from noise; at most 60, which a restarted controller reads again and which bounds memory: 8 bytes
    for each broker and block of 64 notifications of a publisher in each window. ``verify_windows``: complete windows on
    which a finished plan is judged. Default 2. ``verify_ms_max``: after so long without them the plan is closed
    unverified. Default 2 minutes. ``horizon_hops``, ``degree_max`` (None takes the inventory's cap), ``proposals_max``:
    see PlannerSettings. ``cache_ids_max``: of how many notifications a broker of swap_links_ci remembers that it had
    them (in the paper 8192). Default None, all of the horizon. ``bloom_bits``, ``bloom_hashes``: shape of the Bloom
    filters in which they tell each other (in the paper 100000 and 5). Default None bits, which compares exactly: here
    the controller knows all delivery sets anyway. ``path_interest``: what three of them have in common, the paper's
    "estimate" or counted as a "conjunction". ``grape_priority``, ``grape_weight``: what relocate_publisher_grape
    minimises first, "load" or "delay", and by how many percent. ``grape_notifications_min``: length of its trace
    session, the paper's 100. ``pop_traces_min``, ``pop_traces_max``, ``pop_window_s``: how many notifications
    relocate_publisher_pop traces before it decides, and how many at most in how long; the paper's 100, 50 and 60 s.
    ``link_delays``: whether links count in delivery delays; not in the paper. ``delay_weight``: share of the mean
    delivery delay in what relocate_publishers_joint minimises. Default 0: cost alone. ``ring_delay_weight``: on a ring,
    what a hop of delay weighs against a message, in planners and in every cost that is shown; paper 002's 1.
    ``ring_free_s``: within what time a reassignment of IDs must pay for planners. Default 600 s: the paper's 10 hours
    are for changes of an hour. ``ring_demand_share_min``: what the notifications of that time must cost, as a share of
    the dearest reassignment, before one is computed; the paper's 0.1. ``user_load_weight``: what a broker's load weighs
    against likeness of interests. ``user_cluster_brokers``: how many brokers tell each other what their users want; the
    paper's 10. ``user_load_max``: what a broker may serve as a multiple of the mean; judged, too. Default 2.
    ``user_utility_min``: by how much a move must better a user's utility. ``users_moved_max``: users that one planner
    moves at once, at most ``decision.users_per_plan_max``. ``lookback_ms``: how much of the state topics a restarted
    controller reads again. Default 5 minutes. ``stop_ms_max``: how long a controller that is told to stop goes on with
    the transition under way. Default 15 s, in which a transition is over unless a broker is ill. ``tick_ms``: pace of
    the loop. Default 100 ms, small against any window. ``status_file``: JSON for people and reports; None writes none.
    ``status_ms``: its pace, default 1 s. ``metrics_port``, ``metrics_host``: where Prometheus may scrape, and /health
    and /ready answer; None opens no port, the default host is this one. ``clock``: what time it is; the wall clock
    unless a run is sped up. ``dry_run``: plans wait for a person's approval (`regraft plans`) instead of being carried
    out. Default true: a system that is not ours is not rewired unasked; `demo` and `run --emulate` turn it off.
    ``review_ms_max``: how long a plan may wait for that. Default 15 minutes.
    """

    bootstrap: str
    inventory_path: Path
    security: KafkaSecurity = field(default_factory=KafkaSecurity)
    namespace: str = DEFAULT_NAMESPACE
    redis_url: str | None = None
    planner: str = "swap_links_cost+relocate_publishers_joint"
    seed: int = 1
    shadow_planners: tuple[str, ...] = ()
    horizon_lifetimes: float = 4.0
    subscription_lifetime_s: float | None = None
    horizon_windows_min: int = 2
    horizon_windows_max: int = 60
    horizon_hops: int = 4
    degree_max: int | None = None
    proposals_max: int = 16
    cache_ids_max: int | None = None
    bloom_bits: int | None = None
    bloom_hashes: int = PAPER_HASHES
    path_interest: Literal["estimate", "conjunction"] = "estimate"
    grape_priority: Literal["load", "delay"] = "load"
    grape_weight: int = 100
    grape_notifications_min: int = 100
    pop_traces_min: int = 100
    pop_traces_max: int = 50
    pop_window_s: float = 60.0
    link_delays: bool = False
    delay_weight: float = 0.0
    ring_delay_weight: float = 1.0
    ring_free_s: float = 600.0
    ring_demand_share_min: float = 0.1
    user_load_weight: float = 1.0
    user_cluster_brokers: int = 10
    user_load_max: float = 2.0
    user_utility_min: float = 0.1
    users_moved_max: int = 500
    verify_windows: int = 2
    verify_ms_max: int = 2 * MINUTE_MS
    lookback_ms: int = 5 * MINUTE_MS
    stop_ms_max: int = 15_000
    tick_ms: int = 100
    status_file: Path | None = None
    status_ms: int = 1000
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    dry_run: bool = True
    review_ms_max: int = 15 * MINUTE_MS
    clock: RunClock = field(default_factory=RunClock)
    decision: DecisionSettings = field(default_factory=DecisionSettings)
    assembly: AssemblyLimits = field(default_factory=AssemblyLimits)
    transition: TransitionLimits = field(default_factory=TransitionLimits)

    @property
    def kafka(self) -> KafkaAccess:
        """How this stage reaches Kafka."""
        return KafkaAccess(self.bootstrap, "regraft-controller", self.security)

    def planner_settings(self, inventory_degree_max: int | None) -> PlannerSettings:
        """Return what the planner is told; the inventory's degree cap holds unless the settings name another."""
        degree_max = inventory_degree_max if self.degree_max is None else self.degree_max
        return PlannerSettings(
            horizon_hops=self.horizon_hops,
            degree_max=degree_max,
            proposals_max=self.proposals_max,
            cache_ids_max=self.cache_ids_max,
            bloom_bits=self.bloom_bits,
            bloom_hashes=self.bloom_hashes,
            path_interest=self.path_interest,
            grape_priority=self.grape_priority,
            grape_weight=self.grape_weight,
            grape_notifications_min=self.grape_notifications_min,
            pop_traces_min=self.pop_traces_min,
            pop_traces_max=self.pop_traces_max,
            pop_window_s=self.pop_window_s,
            link_delays=self.link_delays,
            delay_weight=self.delay_weight,
            ring_delay_weight=self.ring_delay_weight,
            ring_free_s=self.ring_free_s,
            ring_demand_share_min=self.ring_demand_share_min,
            user_load_weight=self.user_load_weight,
            user_cluster_brokers=self.user_cluster_brokers,
            user_load_max=self.user_load_max,
            user_utility_min=self.user_utility_min,
            # What a plan may not hold would be refused as a whole, again and again.
            users_moved_max=min(self.users_moved_max, self.decision.users_per_plan_max),
        )

    def overlay_faults(self, bootstrap: AnyConfiguration) -> list[str]:
        """Return which planners named do not suit the overlay, one sentence each; to be asked once it is known."""
        is_ring = isinstance(bootstrap, ChordConfiguration)
        overlay, planned = ("a ring", RING_PLANNERS) if is_ring else ("a tree", TREE_PLANNERS)
        return [
            f"{what} {name!r} cannot plan for {overlay}, which the overlay is: take one of "
            f"{', '.join(sorted(planned))}, or several of them joined by {CHAIN}"
            for what, chain in self._named_planners
            for name in planner_names(chain)
            if name not in planned
        ]

    def faults(self) -> list[str]:
        """Return what is wrong with the settings and between them, one sentence each; all at once."""
        least = {
            "horizon_windows_min": 2,  # One window shows no spread, so no gain could be told from noise.
            "horizon_windows_max": self.horizon_windows_min,
            "verify_windows": 1,
            "verify_ms_max": 1,
            "lookback_ms": 0,
            "stop_ms_max": 0,
            "review_ms_max": 1,
            "tick_ms": 1,
            "status_ms": 1,
        }
        found = _below(self, least) + self.decision.faults()
        found += self.planner_settings(inventory_degree_max=None).faults()
        if not self.bootstrap:
            found.append("bootstrap is empty: name at least one Kafka server, for example 127.0.0.1:9092")
        found += self._planner_faults() + self._horizon_faults() + port_faults(self.metrics_port)
        if not 0 < self.assembly.completeness_share_min <= 1:
            found.append(f"completeness_share_min is {self.assembly.completeness_share_min}: above 0, at most 1")
        if self.transition.resend_ms >= self.transition.prepare_ms:
            found.append(
                f"resend_ms is {self.transition.resend_ms}, prepare_ms {self.transition.prepare_ms}: a command must be "
                "repeated at least once before its phase times out"
            )
        if self.tick_ms > self.transition.resend_ms:
            found.append(f"tick_ms is {self.tick_ms}, resend_ms {self.transition.resend_ms}: the tick must be shorter")
        return found

    @property
    def _named_planners(self) -> list[tuple[str, str]]:
        looking_on = dict.fromkeys(self.shadow_planners)
        return [("planner", self.planner), *(("shadow planner", chain) for chain in looking_on)]

    def _planner_faults(self) -> list[str]:
        known = ", ".join(sorted(PLANNERS))
        found = [
            f"{what} {name!r} is unknown, known are {known}, or several joined by {CHAIN}"
            for what, chain in self._named_planners
            for name in planner_names(chain)
            if name not in PLANNERS
        ]
        if len(set(self.shadow_planners)) < len(self.shadow_planners):
            found.append(f"shadow_planners are {', '.join(self.shadow_planners)}: name each once")
        return found

    def _horizon_faults(self) -> list[str]:
        found = []
        if not 0 < self.horizon_lifetimes < math.inf:
            found.append(f"horizon_lifetimes is {self.horizon_lifetimes}: above 0, a decision needs something to see")
        if self.subscription_lifetime_s is not None and not 0 < self.subscription_lifetime_s < math.inf:
            found.append(
                f"subscription_lifetime_s is {self.subscription_lifetime_s}: above 0, or none to have it measured"
            )
        return found


def _below(settings: object, least: dict[str, int]) -> list[str]:
    return [
        f"{name} is {getattr(settings, name)}: at least {limit}"
        for name, limit in least.items()
        if getattr(settings, name) < limit
    ]
