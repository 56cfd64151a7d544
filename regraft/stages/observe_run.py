"""Watch a run from outside by the status files that its stages replace every second.

In: the run directory. Out: what is known so far. A stage that restarts counts from 0; here its counts continue. Final
values are read from Kafka at the end (``collect_run``).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from regraft.producers.emulator.ledger import LedgerSnapshot
from regraft.run_records.judge_plans import began_after, has_saved
from regraft.run_records.outage_timeline import OutageTimeline, last_deaths, outage_timeline
from regraft.run_records.run_record import (
    MOBILE_FIGURES,
    BurstFigures,
    ServiceUse,
    ShadowRun,
    UserFigures,
    WindowCost,
)
from regraft.schemas.bounds import TIME_MS_MAX
from regraft.schemas.event import AdaptationEvent
from regraft.schemas.live_view import Horizon, LiveView, LiveViewError, ShownPlan, ShownShadow, decode_view
from regraft.schemas.loop_verdict import SILENCE_S_MAX
from regraft.schemas.member import MemberState
from regraft.schemas.parse_text import parse_json_object
from regraft.schemas.plan import Plan
from regraft.schemas.shown_state import CostPoint, DecisionTimes
from regraft.stages.show_run import Frame

Document = Mapping[str, Any]

EVENTS_MAX = 500
USERS_CONNECT_MS = 10_000  # The initial users have connected by then; their arrival is not a change of interests.
WINDOWS_MAX = 10_000
NO_LEADER = "no controller leads at present: plans are those of the last one"
CONGESTION_RULES = ("congestion", "link_congestion")  # As in regraft/alerts/default_rules.toml.


class RunObserver:
    """What the status files have shown so far; ``refresh`` reads them again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.emulator: Document = {}
        self.streaming: Document = {}
        self.view: LiveView | None = None  # That of the current or last leader.
        self._has_leader = True
        self._news_s = 0.0  # When the view last changed.
        self.windows: dict[int, WindowCost] = {}
        self.behind_ms_max = 0.0
        self.at_risk_per_s_max = 0.0  # Deliveries per second that had to cross dead brokers.
        self.latencies_ms: dict[str, float] = {}
        self.events: dict[tuple[int, str, str, str], AdaptationEvent] = {}
        self._changes_before: tuple[int, int] | None = None  # At USERS_CONNECT_MS.
        self._shadows: dict[tuple[int, int, str], ShownShadow] = {}  # By controller, epoch of the start, planner.
        self._refusals_before: Counter[str] = Counter()
        self._refusals: Counter[str] = Counter()

    def refresh(self) -> list[AdaptationEvent]:
        """Read the files again and return new events; a missing file leaves the last values."""
        self.emulator = read_status(self._directory / "emulator.json") or self.emulator
        self.behind_ms_max = max(self.behind_ms_max, float(self.emulator.get("behind_ms", 0.0)))
        if self._changes_before is None and self._emulated_ms >= USERS_CONNECT_MS:
            self._changes_before = self._changes
        self.streaming = read_status(self._directory / "streaming.json") or self.streaming
        view = None
        with suppress(LiveViewError):  # On a full disk, or from an earlier run: try again at the next call.
            view = read_view(self._directory / "controller.json")
        self._has_leader = view is None or not view.is_standby
        if view is None or view.is_standby:  # A standby has no plans or windows: keep those of the last leader.
            return []
        self.at_risk_per_s_max = max(self.at_risk_per_s_max, view.members.traffic_at_risk_per_s or 0.0)
        return self._take_view(view)

    @property
    def ledger(self) -> LedgerSnapshot:
        """The emulator's account so far."""
        return parse_ledger(self.emulator)

    @property
    def written_until_ms(self) -> int:
        """The end of the newest window that the streaming job has written; 0 before the first."""
        return int(self.streaming.get("window_end_ms_last", 0))

    @property
    def traffic_start_ms(self) -> int:
        """When the emulator started; 0 if it has not."""
        return int(self.emulator.get("started_ms", 0))

    @property
    def regime_change_ms(self) -> int | None:
        """When the interests shifted; None if they have not yet."""
        time_ms = self.emulator.get("regime_changed_ms")
        return None if time_ms is None else int(time_ms)

    @property
    def outage_notes(self) -> list[list[object]]:
        """What has happened to brokers and links so far: pairs of time and text, oldest first."""
        return list(self.emulator.get("outage_notes", []))

    def timeline(
        self, events: Sequence[AdaptationEvent], plans: Sequence[Plan], disturbances: Mapping[str, int]
    ) -> OutageTimeline:
        """Return the timeline of the outages so far; ``disturbances`` counts the errors injected into stages."""
        counts = {**self.emulator.get("outages", {}), **disturbances}
        return outage_timeline(self.outage_notes, events, plans, self.at_risk_per_s_max, counts)

    @property
    def is_whole(self) -> bool:
        """True if the controller knows all deaths, and the overlay in force consists of the brokers that are up."""
        if self.view is None or not self.emulator:
            return False
        members = self.view.members
        changed_ms = {one.broker: one.since_ms for one in members.members}  # The view lists all recent deaths.
        is_known = all(changed_ms.get(name, 0) > time_ms for name, time_ms in last_deaths(self.outage_notes).items())
        away_count = sum(members.counts.get(state, 0) for state in (MemberState.DEAD, MemberState.JOINING))
        is_dead_inside = any(one.state == MemberState.DEAD and one.in_overlay for one in members.members)
        return is_known and away_count == int(self.emulator["brokers_dead"]) and not is_dead_inside

    @property
    def is_congested(self) -> bool:
        """True while an alert about congestion of a broker or link is active."""
        alerts = read_status(self._directory / "alerts.json") or {}
        return any(alert.get("rule") in CONGESTION_RULES for alert in alerts.get("active", []))

    @property
    def returns_ms(self) -> int:
        """When the last of the dead brokers may rejoin; 0 if there is none that rejoins by itself."""
        members = () if self.view is None else self.view.members.members
        dead = [one.returns_ms for one in members if one.state == MemberState.DEAD]
        return max((returns_ms for returns_ms in dead if returns_ms < TIME_MS_MAX), default=0)

    @property
    def has_followed_shift(self) -> bool:
        """True if a plan that began after the interests shifted has saved something."""
        plans = () if self.view is None else self.view.plans
        return any(map(has_saved, began_after(plans, self.regime_change_ms)))

    @property
    def users(self) -> UserFigures | None:
        """Figures about users of a ring; None on other overlays, and until the users have connected."""
        document, before, now = self.emulator, self._changes_before, self._changes
        if before is None or now is None:
            return None
        return UserFigures(
            users=int(document["users"]),
            subscriptions=int(document["subscriptions"]),
            users_moved=int(document["users_moved"]),
            wait_ms_max=float(document["user_wait_ms_max"]),
            subscription_changes=now[0] - before[0],
            subscription_changes_at_first_homes=now[1] - before[1],
        )

    @property
    def bursts(self) -> BurstFigures | None:
        """Figures about bursts on a structured cyclic overlay; None on others."""
        document = self.emulator
        if "clusters_diverted" not in document:
            return None
        return msgspec.convert(document, BurstFigures)

    @property
    def mobile(self) -> dict[str, Any]:
        """Figures about mobile clients of real brokers; empty if there are none."""
        return {name: self.emulator[name] for name in MOBILE_FIGURES if name in self.emulator}

    @property
    def _changes(self) -> tuple[int, int] | None:
        """Brokers' subscription changes so far, actual and without any moves; None except on a ring."""
        names = ("broker_subscription_changes", "broker_subscription_changes_at_first_homes")
        counts = [self.emulator.get(name) for name in names]
        return None if None in counts else (int(counts[0] or 0), int(counts[1] or 0))

    @property
    def _emulated_ms(self) -> int:
        return int(self.emulator.get("time_ms", 0)) - self.traffic_start_ms

    @property
    def refusals(self) -> Counter[str]:
        """Refused proposals by verdict, including those of controllers that were killed."""
        return self._refusals_before + self._refusals

    @property
    def shadows(self) -> tuple[ShadowRun, ...]:
        """What the shadow planners have achieved so far, including counts from before they started again."""
        by_planner: dict[str, list[ShownShadow]] = {}
        for (*_, planner), shadow in sorted(self._shadows.items(), key=lambda item: item[0]):
            by_planner.setdefault(planner, []).append(shadow)
        return tuple(_shadow_run(planner, shadows) for planner, shadows in by_planner.items())

    @property
    def decision_times(self) -> dict[str, DecisionTimes]:
        """How long decisions of the current controller took, by role and planner."""
        return {} if self.view is None else self.view.decision_ms

    @property
    def horizon(self) -> Horizon | None:
        """How far the last decision looked back; None before the first decision on a complete window."""
        return None if self.view is None else self.view.horizon

    def frame(self, stage: str, elapsed_s: float, running_s: float | None, services: tuple[ServiceUse, ...]) -> Frame:
        """Return the present frame; ``running_s`` is None if the run has no planned end."""
        view = self.view
        windows = tuple(self.windows[end_ms] for end_ms in sorted(self.windows))
        return Frame(
            stage=stage,
            elapsed_s=elapsed_s,
            running_s=running_s,
            epoch=0 if view is None else view.configuration.epoch,
            windows=windows,
            windows_incomplete=sum(not window.complete for window in windows),
            plans=tuple(
                (plan.plan, plan.epoch_to, plan.phase, _reason(plan)) for plan in (() if view is None else view.plans)
            ),
            plans_completed=0 if view is None else view.plans_completed,
            plans_aborted=0 if view is None else view.plans_aborted,
            refusals=self.refusals,
            shadow_plans={shadow.planner: shadow.plans for shadow in self.shadows},
            horizon=self.horizon,
            ledger=self.ledger if self.emulator else None,
            services=services,
            note=self._note_text(),
        )

    def _note_text(self) -> str:
        """Describe why the values are old, or why the controller does not act by itself; empty if neither is so."""
        if self.view is None or not self._has_leader:
            return "" if self._has_leader else NO_LEADER
        silent_s, note = time.monotonic() - self._news_s, _note(self.view)
        if silent_s <= SILENCE_S_MAX:
            return note
        return "; ".join(filter(None, (f"the controller has written no status for {silent_s:.0f} s", note)))

    def _take_view(self, view: LiveView) -> list[AdaptationEvent]:
        refusals = Counter(view.refusals)
        if refusals.total() < self._refusals.total():  # a restarted controller counts from 0
            self._refusals_before += self._refusals
        self._refusals = refusals
        if self.view is None or view.time_ms != self.view.time_ms:
            self._news_s = time.monotonic()
        self.view = view
        self.latencies_ms.update(view.window_close_to_command_ms)
        for planner, shadow in view.shadows.items():
            self._shadows[view.started_ms, shadow.epoch_start, planner] = shadow
        for point in view.cost:
            self._take_window(point)
        _forget_oldest(self.windows, WINDOWS_MAX)
        return self._take_events(view.events)

    def _take_window(self, point: CostPoint) -> None:
        shown = self.windows.get(point.window_end_ms)
        # A restarted controller reads old windows again, but no longer has the shadow planners' costs on them.
        shadows_per_s = point.cost_shadows_per_s or (shown.shadows_per_s if shown else {})
        self.windows[point.window_end_ms] = WindowCost(
            point.window_end_ms,
            point.epoch,
            point.cost_per_s,
            point.cost_bootstrap_per_s,
            point.is_complete,
            shadows_per_s,
            point.sample_share,
        )

    def _take_events(self, events: Sequence[AdaptationEvent]) -> list[AdaptationEvent]:
        fresh = []
        for event in events:
            key = (event.time_ms, event.subject, event.kind, event.text)
            if key not in self.events:
                self.events[key] = event
                fresh.append(event)
        _forget_oldest(self.events, EVENTS_MAX)
        return fresh


def read_view(file: Path) -> LiveView | None:
    """Return the controller's live view from its status file; None if there is no readable file.

    Raises LiveViewError if the file is not a live view.
    """
    try:
        text = file.read_bytes()
    except OSError:
        return None
    return decode_view(text)


def read_status(file: Path) -> Document | None:
    """Return a status file's document; None if there is none or it cannot be read."""
    try:
        return parse_json_object(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # not written yet, or on a full disk: try again at the next call


def parse_ledger(document: Document) -> LedgerSnapshot:
    """Return the emulator's account in its status document; all zeros if there is none yet.

    Without what is outstanding and how long deliveries took: a run shows neither.
    """
    account = {**document.get("ledger", document), "outstanding": 0}  # What is still on its way is not wrong.
    return msgspec.convert(account, LedgerSnapshot, strict=False)


def _shadow_run(planner: str, shadows: Sequence[ShownShadow]) -> ShadowRun:
    """Return a planner's totals over all its starts; its overlay is that of the last."""
    refusals: Counter[str] = Counter()
    for shadow in shadows:
        refusals.update(shadow.refusals)
    last = shadows[-1]
    return ShadowRun(
        planner,
        plans=sum(shadow.plans for shadow in shadows),
        plans_rolled_back=sum(shadow.plans_taken_back for shadow in shadows),
        links_exchanged=sum(shadow.links_exchanged for shadow in shadows),
        publishers_moved=sum(shadow.publishers_moved for shadow in shadows),
        users_moved=sum(shadow.users_moved for shadow in shadows),
        id_moves=sum(shadow.id_moves for shadow in shadows),
        errors=sum(shadow.errors for shadow in shadows),
        refusals=refusals,
        error_text=next((shadow.error_text for shadow in shadows if shadow.error_text), ""),
        starts=len(shadows),
        overlay={
            "links": last.links,
            "ring": last.ring,
            "regions": last.regions,
            "region_links": last.region_links,
        },
        homes=dict(last.homes),
        epoch_start=last.epoch_start,
    )


def _note(view: LiveView) -> str:
    """Describe why the controller does not act by itself; empty if it does."""
    notes = []
    if paused := view.orders.paused:
        notes.append(f"paused by {paused.by}: {paused.reason}")
    if waiting := view.plan_in_review:
        notes.append(f"{waiting} waits: regraft plans list {waiting}")
    elif view.dry_run:
        notes.append("dry run: plans wait for approval")
    notes += [f"{one.broker} in maintenance" for one in view.orders.maintenance]
    return "; ".join(notes)


def _reason(plan: ShownPlan) -> str:
    if plan.undoes:
        return f"undoes {plan.undoes}"
    reasons = [proposal.reason for proposal in plan.proposals]
    if not reasons:
        return ""
    return reasons[0] if len(reasons) == 1 else f"{reasons[0]} (and {len(reasons) - 1} more)"


def _forget_oldest(entries: dict[Any, Any], count_max: int) -> None:
    while len(entries) > count_max:
        del entries[next(iter(entries))]
