"""Run one planner on the windows of a recording, on its own overlay.

In: an aggregated recording, the controller's settings. Out: an Outcome. The planner is run, judged, limited and
verified by the controller's own code, like a live shadow planner; each window is read at the earliest time at which a
live controller could have read it. Transitions are not emulated, so what they would lose or repeat is unknown.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec

from regraft.backtests.backtest_outcome import RECORDED, CostPoint, Mode, Outcome, PlanMark
from regraft.controller.decide.judge_proposals import Situation, transition_messages_max, transition_price_per_s
from regraft.controller.decide.shadow_planners import ShadowPlanner
from regraft.controller.kinds.cost_over import at_first, cost_by_time_per_s, cost_over_per_s
from regraft.controller.kinds.find_kind import kind_of
from regraft.controller.kinds.overlay_kind import AnyKind
from regraft.controller.planners.planner_registry import planners_of
from regraft.controller.ports.memory_ports import MemoryPorts
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.overlay_state import OverlayState
from regraft.controller.state.overlays_in_window import overlays_in
from regraft.controller.state.plan_log import PlanLog
from regraft.controller.windows.find_shifts import ShiftFinder
from regraft.controller.windows.measure_links import LinkMeter
from regraft.controller.windows.read_windows import WindowReader
from regraft.infra.process.log_stream import configure_logs
from regraft.infra.process.run_tasks import ReportWork
from regraft.infra.process.stack_error import StackError
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.inventory.members import FleetView
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.producers.recordings.recorded_members import added_members
from regraft.recordings.aggregate_recording import AggregatedRecording, read_changes_of, read_plans_of, read_windows_of
from regraft.recordings.aggregate_span import opened_recording
from regraft.schemas.plan import Plan
from regraft.schemas.shown_state import DecisionTimes

BOUNDED_WINDOWS_MAX = 120  # Spread over the recording; with 400 brokers each takes 0.1 s.


class OpenLoopTask(msgspec.Struct, frozen=True):
    """One planner on one recording; with RECORDED as ``planner`` it only costs the recorded overlays.

    ``name`` is the name of its outcome. ``known_after_ms``: how long after its end a window is known, which is the
    grace plus the trigger interval of the live job.
    """

    planner: str
    recording: str
    aggregated: AggregatedRecording
    settings: ControllerSettings
    known_after_ms: int
    name: str

    @property
    def label(self) -> str:
        """The task's name."""
        return self.name

    @property
    def work_count(self) -> int:
        """The amount of work, in windows."""
        return self.aggregated.windows


class WindowFeed:
    """The windows of a recording as a controller would have read them, with the plans and clients known by then.

    Like the controller, it detects changes of traffic and corrects the costs of links by round trips. It does not have
    the brokers' counts, by which the controller checks its model.
    """

    def __init__(self, task: OpenLoopTask, inventory: Inventory) -> None:
        self._task = task
        self._ports = MemoryPorts()
        self.kind = kind_of(inventory, task.settings)
        self.reader = WindowReader(task.settings, self.kind, self._ports.ports)
        self.plan_log = PlanLog(inventory)
        self.fleet = FleetView(inventory)
        self.changes_found_ms: list[int] = []
        self._changes = ShiftFinder(task.settings, self.kind)
        self._meter = LinkMeter(task.settings.links)
        self._has_asked = False

    def windows(self) -> Iterator[tuple[ClosedWindow, int]]:
        """Yield each window with the time at which it is known."""
        changes = read_changes_of(self._task.aggregated)
        change = next(changes, None)
        plans = iter(read_plans_of(self._task.aggregated))
        plan = next(plans, None)
        for recorded in read_windows_of(self._task.aggregated):
            now_ms = recorded.marker.window_end_ms + self._task.known_after_ms
            while change is not None and change.time_ms <= now_ms:
                if change.client is None:
                    self._ports.clients.remove(change.name)
                else:
                    self._ports.clients.put(change.client)
                change = next(changes, None)
            self._know(broker.broker for broker in recorded.marker.brokers)
            while plan is not None and plan.time_ms <= now_ms:
                self._record(plan.plan)
                plan = next(plans, None)
            self._ports.state.records.extend(chain(recorded.rows, (recorded.marker,)))
            for window in self.reader.read(self.plan_log, self.fleet, now_ms):
                if shift := self._changes.add(window, self.fleet, self.plan_log):
                    self.changes_found_ms.append(shift.since_ms)
                yield window, now_ms

    def kind_over(self, brokers: tuple[str, ...]) -> AnyKind:
        """Return the kind of overlay over these brokers, with the current costs of links."""
        return self.kind.over(self.fleet.inventory_over(brokers))

    def cost_at_first_per_s(self, window: ClosedWindow) -> float:
        """Return what a window would have cost on the first overlay, before any recorded plan."""
        first = at_first(self.kind, self.plan_log.homes_origin)
        return cost_over_per_s(self.kind, self.fleet, first, window)

    def least_cost_per_s(self, window: ClosedWindow) -> float | None:
        """Return a lower bound on the cost of any overlay over the inventory's brokers, None if unknown."""
        brokers = self.kind.inventory.brokers
        return self.kind_over(brokers).least_cost_per_s([window.over(brokers)])

    def correct_links(self, window: ClosedWindow) -> None:
        """Correct the costs of links by a window's round trips; decisions on the window use them, its cost does not."""
        is_changed = bool(self._meter.add(window, self.fleet.inventory_announced))
        if is_changed or self._meter.estimated is not self.fleet.estimated:
            self.fleet = self.fleet.with_measured(self._meter.costs, self._meter.estimated)

    @property
    def changed_since_ms(self) -> int | None:
        """Start of the present traffic, None until a change has been detected."""
        return self._changes.since_ms

    def _know(self, brokers: Iterable[str]) -> None:
        """Add the recorded new members when a broker is first unknown; only then, as it reads all blocks."""
        if not self._has_asked and not self.fleet.members.keys() >= set(brokers):
            self._has_asked = True
            self.fleet = self.fleet.with_records(added_members(opened_recording(self._task.recording)))

    def _record(self, plan: Plan) -> None:
        self._know(plan.brokers_target)
        try:
            self.plan_log.record(plan)
        except ValueError as error:
            raise StackError(f"The recorded {plan.plan} does not fit the recorded brokers: {error}.") from error


def run_open_loop(task: OpenLoopTask, report_work: ReportWork) -> Outcome:
    """Return what one planner would have achieved on the recording, or for RECORDED what its overlays cost."""
    configure_logs(level="warning")
    inventory = opened_recording(task.recording).info.inventory
    feed = WindowFeed(task, inventory)
    if task.planner == RECORDED:
        return _measure_overlay(task, feed, inventory, report_work)
    return _OpenLoop(task, feed).run(report_work)


def _measure_overlay(task: OpenLoopTask, feed: WindowFeed, inventory: Inventory, report_work: ReportWork) -> Outcome:
    """Return the cost of each window on its overlay (NaN if no recorded plan describes it) and on the bootstrap."""
    points: list[CostPoint] = []
    subscribers = 0, 0
    incomplete = unknown = 0
    begin_ms = end_ms = None
    kind, stride = feed.kind, -(-task.work_count // BOUNDED_WINDOWS_MAX)
    for place, (window, now_ms) in enumerate(feed.windows()):
        report_work(1)
        begin_ms, end_ms = window.start_ms if begin_ms is None else begin_ms, now_ms
        overlay = feed.plan_log.configuration_of(window.epoch_max)
        incomplete += not window.is_complete
        unknown += overlay is None
        if inventory.clients_stay:
            subscribers = max(subscribers, (sum((window.subscribers_at or {}).values()), len(window.movable)))
        if window.is_complete and kind.can_be_costed(window):
            cost = math.nan if overlay is None else _cost_per_s(feed, overlay, window)
            least_per_s = None if place % stride else feed.least_cost_per_s(window)
            points.append(CostPoint(window.end_ms, cost, feed.cost_at_first_per_s(window), least_per_s))
        feed.correct_links(window)
    marks = [mark_of(plan) for plan in feed.plan_log.in_force]
    here = tuple(mark for mark in marks if begin_ms is not None and begin_ms <= mark.time_ms <= (end_ms or 0))
    return Outcome(
        planner=RECORDED,
        mode=Mode.OPEN_LOOP,
        points=tuple(points),
        plans=here,
        plans_rolled_back=sum(mark.is_undo for mark in here),
        windows_incomplete=incomplete,
        windows_unknown=unknown,
        links_corrected=len(feed.fleet.measured),
        changes_found_ms=tuple(feed.changes_found_ms),
        subscribers=subscribers[0],
        movable=subscribers[1],
    )


def _cost_per_s(feed: WindowFeed, newest: OverlayConfiguration, window: ClosedWindow) -> float:
    plan_log = feed.plan_log
    overlays = overlays_in(window, plan_log.plans, lambda epoch: plan_log.configuration_of(epoch) or newest)
    return cost_by_time_per_s(feed.kind, feed.fleet, overlays, window)


class _OpenLoop:
    """One shadow planner that reads the windows of a recording."""

    def __init__(self, task: OpenLoopTask, feed: WindowFeed) -> None:
        self._task = task
        self._settings = task.settings
        self._feed = feed
        self._times = DecisionTimes()
        self._plans: dict[str, tuple[Plan, int]] = {}

    def run(self, report_work: ReportWork) -> Outcome:
        """Decide on each window and return the outcome."""
        points, incomplete = [], 0
        shadow: ShadowPlanner | None = None
        for window, now_ms in self._feed.windows():
            report_work(1)
            if shadow is None:
                # The planner starts from the overlay before the plans of the first window.
                plan_log = self._feed.plan_log
                start = plan_log.configuration_of(window.epoch_min) or plan_log.present
                name = self._task.planner
                kind = self._feed.kind_over(start.brokers)
                shadow = ShadowPlanner(name, planners_of(name, self._settings), start, kind, self._settings)
            seen, changed_ms = window.over(shadow.overlay.brokers), self._feed.changed_since_ms
            cost = shadow.add_window(seen, now_ms, self._feed.plan_log.homes_before_plans_since, changed_ms)
            incomplete += not window.is_complete
            if cost is not None and window.is_complete:
                points.append(CostPoint(window.end_ms, cost, math.nan))  # Filled in from the task RECORDED.
            self._feed.correct_links(window)
            shadow.reprice(self._feed.kind_over(shadow.overlay.brokers))
            self._decide(shadow, window, now_ms)
        return self._outcome(shadow, tuple(points), incomplete)

    def _decide(self, shadow: ShadowPlanner, window: ClosedWindow, now_ms: int) -> None:
        horizon, _ = self._feed.reader.horizon(window, self._feed.changed_since_ms)
        windows = tuple(one.over(shadow.overlay.brokers) for one in horizon)
        kind = self._feed.kind_over(shadow.overlay.brokers)
        situation = Situation(
            state=OverlayState(shadow.overlay, kind.inventory, windows),  # The shadow replaces it.
            now_ms=now_ms,
            kind=kind,
            price_per_s=0.0,  # The shadow computes it for its own overlay.
            subscription_lifetime_s=self._feed.reader.lifetime_s,
            changed_since_ms=self._feed.changed_since_ms,
            recent_windows=self._feed.reader.recent_count(window),
        )
        began_s = time.perf_counter()
        shadow.decide(situation, self._price_per_s)
        self._times = self._times.with_decision((time.perf_counter() - began_s) * 1000)
        for plan in shadow.plans:  # The shadow keeps only its newest plans, and replaces one when it is verified.
            made_ms = self._plans[plan.plan][1] if plan.plan in self._plans else now_ms
            self._plans[plan.plan] = plan, made_ms

    def _price_per_s(self, overlay: OverlayConfiguration) -> float:
        reader, kind = self._feed.reader, self._feed.kind_over(overlay.brokers)
        most = transition_messages_max(kind, overlay, reader.subscription_count)
        pay_back_s = self._settings.decision.pay_back_within_s(reader.lifetime_s)
        return transition_price_per_s(kind, overlay, self._feed.plan_log.control_messages_mean(most), pay_back_s)

    def _outcome(self, shadow: ShadowPlanner | None, points: tuple[CostPoint, ...], incomplete: int) -> Outcome:
        if shadow is None:
            return Outcome(self._task.name, Mode.OPEN_LOOP, points)
        return Outcome(
            planner=self._task.name,
            mode=Mode.OPEN_LOOP,
            points=points,
            plans=tuple(mark_of(plan, made_ms) for plan, made_ms in self._plans.values()),
            plans_rolled_back=shadow.plans_rolled_back,
            windows_incomplete=incomplete,
            refusals={str(verdict): count for verdict, count in sorted(shadow.refusals.items())},
            decision_time=self._times,
            errors=shadow.errors,
            error_text=shadow.error_text,
        )


def plan_time_ms(plan: Plan) -> int:
    """Return the time of a plan's first phase; without a history, the end of its window."""
    return plan.history[0].time_ms if plan.history else plan.window_end_ms


def mark_of(plan: Plan, time_ms: int | None = None) -> PlanMark:
    """Return a plan's mark; ``time_ms`` replaces the time at which it began."""
    return PlanMark(
        plan=plan.plan,
        time_ms=plan_time_ms(plan) if time_ms is None else time_ms,
        links=len(plan.links_added),
        moves=len(plan.moves),
        id_moves=len(plan.id_moves),
        gain_predicted_per_s=plan.cost_before_per_s - plan.cost_predicted_per_s,
        cost_observed_per_s=plan.cost_observed_per_s,
        is_undo=bool(plan.undoes),
    )
