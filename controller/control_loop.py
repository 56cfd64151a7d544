"""The control loop: read state, carry on the plan under way, verify, decide, show. One step at a time, at its own pace.

Level-triggered: each step looks at what is there (windows, plans, answers) and does what is missing, so a restarted
controller needs no other way in. Time comes in as an argument and everything else through ports.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import structlog

from controller.control_ports import ControlPorts
from controller.controller_settings import ControllerSettings
from controller.decide.decide_plan import decide_plan
from controller.decide.find_planners import planners_of
from controller.decide.judge_proposals import Situation, transition_price_per_s
from controller.decide.shadow_planners import ShadowPlanner
from controller.execute.carry_out_plan import PlanRunner
from controller.execute.review_plans import PlanReviewer
from controller.execute.verify_plans import PlanVerifier
from controller.kinds.find_kind import kind_of
from controller.loop_state import LoopState
from controller.report.loop_metrics import LoopMetrics
from controller.report.note_effects import CommandNotes, NotedEvents
from controller.report.render_view import render_view
from controller.report.tell_refusals import RefusalTeller
from controller.state.closed_window import ClosedWindow
from controller.state.plan_log import PlanLog
from controller.state.planner_interface import Planner
from controller.windows.read_windows import WindowReader
from overlay.inventory import Inventory
from overlay.overlay_configuration import OverlayConfiguration
from schemas.event import AdaptationEvent, EventKind, Severity
from schemas.live_view import CostPoint
from schemas.plan import PlanPhase

log = structlog.get_logger(__name__)


class ControlLoop:
    """One controller of one overlay.

    ``planner`` is the settings' one unless given. ``border_faults`` tells what went wrong in the ports, by name.
    ``stopwatch_s`` measures how long decisions take; nothing is decided by it.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        inventory: Inventory,
        ports: ControlPorts,
        planner: Planner | None = None,
        metrics: LoopMetrics | None = None,
        border_faults: Callable[[], dict[str, int]] = dict,
        stopwatch_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._settings = settings
        self._inventory = inventory
        self._ports = ports
        self._planners = (planner,) if planner else planners_of(settings.planner, settings)
        self._metrics = metrics or LoopMetrics()
        self._border_faults = border_faults
        self._stopwatch_s = stopwatch_s
        self._kind = kind_of(inventory, settings)
        self._windows = WindowReader(settings, self._kind, ports)
        self._teller = RefusalTeller()
        self.state = LoopState(PlanLog(inventory))
        self._events = NotedEvents(ports.events, self.state, self._metrics)
        notes, noted = CommandNotes(self.state, self._metrics), replace(ports, events=self._events)
        self._runner = PlanRunner(noted, self.state.plan_log, settings.transition, notes.note)
        self._reviewer = PlanReviewer(settings, ports.orders, self._runner, self._events)
        # In a dry run a person looks at a plan first.
        self._take_up = self._reviewer.propose if settings.dry_run else self._runner.begin
        self._verifier = PlanVerifier(settings, self._kind, self._windows, self._runner, self._events, self._take_up)

    def wind_down(self) -> None:
        """Begin nothing new from now on; a plan under way goes on, so keep stepping while ``is_transition_running``."""
        self.state.is_winding_down = True

    @property
    def is_transition_running(self) -> bool:
        """Tell whether brokers are between two configurations because of a plan of ours."""
        return self._runner.is_busy or self.state.plan_log.moving is not None

    def step(self, now_ms: int) -> bool:
        """Do what is to be done now; return True when the next step should follow at once.

        A plan that is decided in one step is carried out from the next, so its times are those of the deed.
        """
        state = self.state
        if not state.has_plans and not self._start(now_ms):
            return False
        self._reviewer.read(state, now_ms)
        self._reviewer.cancel(state, now_ms)
        self._runner.advance(now_ms)
        self._read_windows(now_ms)
        has_begun = False
        if not state.is_winding_down:
            self._verifier.verify(state, now_ms)
            has_begun = self._review(now_ms) or self._decide(now_ms)
            if not has_begun:  # A plan that begins goes first: no shadow may delay its commands.
                self._run_shadows(now_ms)
        for forgotten in state.plan_log.take_forgotten():
            self._ports.plans.forget(forgotten)
        self._show(now_ms)
        return has_begun

    def _start(self, now_ms: int) -> bool:
        """Read the plans so far; return whether that was possible."""
        plans, state, plan_log = self._ports.plans.load(), self.state, self.state.plan_log
        if plans is None:
            return False
        for plan in plans:
            plan_log.record(plan)
        for plan in plan_log.plans:
            if plan.history:  # The first command follows the first storing within milliseconds.
                state.add_first_command(plan, plan.history[0].time_ms)
        state.has_plans, state.started_ms = True, now_ms
        state.shadows = tuple(
            ShadowPlanner(name, planners_of(name, self._settings), plan_log.present, self._kind, self._settings)
            for name in self._settings.shadow_planners
        )
        moving = f", plan {plan_log.moving.plan} is unfinished" if plan_log.moving else ""
        text = f"controller started: epoch {plan_log.present.epoch}, {len(plan_log.plans)} plans so far{moving}"
        log.info("controller_started", epoch=plan_log.present.epoch, plans=len(plan_log.plans), moving=moving)
        self._events.emit(AdaptationEvent("controller", EventKind.CONTROLLER_STARTED, Severity.INFO, now_ms, text))
        return True

    def _read_windows(self, now_ms: int) -> None:
        state = self.state
        for window in self._windows.read(state.plan_log, now_ms):
            # What a shadow would have made of windows from before this controller nobody knows.
            looking_on = state.shadows if window.end_ms >= state.started_ms else ()
            shadow_costs: dict[str, float] = {}
            for shadow in looking_on:
                cost_per_s = shadow.add_window(window, now_ms, state.plan_log.homes_before_plans_since)
                if cost_per_s is not None:
                    shadow_costs[shadow.name] = float(cost_per_s)
            point = self._cost_point(window, shadow_costs)
            state.add_window(window, point, now_ms)
            self._metrics.windows.labels(str(window.is_complete).lower()).inc()
            if point is not None:
                self._show_costs(point)
            # A restarted controller reads old windows again; what was wrong with them has been told.
            if now_ms - window.end_ms <= self._settings.decision.window_age_ms_max:
                self._emit_if_new(self._teller.about_window(window, now_ms))

    def _cost_point(self, window: ClosedWindow, shadow_costs: dict[str, float]) -> CostPoint | None:
        """Return the window's point of the cost series; None where the window of a ring knows no interests."""
        kind, plan_log = self._kind, self.state.plan_log
        if not kind.can_be_costed(window):
            return None
        overlay = plan_log.configuration_of(window.epoch_max) or plan_log.present
        # With clients where they would be, had no plan ever moved them.
        bootstrap = kind.inventory.bootstrap.with_homes(plan_log.homes_origin)
        counted_per_s = kind.counted_cost_per_s(window)
        return CostPoint(
            window_end_ms=window.end_ms,
            cost_per_s=float(kind.cost_per_s(overlay.with_homes({}), window)),
            cost_bootstrap_per_s=float(kind.cost_per_s(bootstrap, window)),
            cost_counted_per_s=None if counted_per_s is None else float(counted_per_s),
            epoch=window.epoch_max,
            is_one_epoch=window.epoch is not None,
            is_complete=window.is_complete,
            notifications_per_s=window.sets.notification_count * 1000 / (window.end_ms - window.start_ms),
            cost_shadows_per_s=shadow_costs,
        )

    def _review(self, now_ms: int) -> bool:
        """Look after the plan that waits for a person; return whether it has begun."""

        plan_log = self.state.plan_log

        def situation() -> Situation | None:
            newest = self.state.newest
            if newest is None:
                return None
            found = self._situation(newest, now_ms)
            # The plan that this one takes back is open until it is taken back.
            is_undo = plan_log.proposed is not None and bool(plan_log.proposed.undoes)
            return replace(found, plan_in_review="", plan_running="" if is_undo else found.plan_running)

        return self._reviewer.look_after(self.state, situation, now_ms)

    def _decide(self, now_ms: int) -> bool:
        """Decide on the newest window, once; return whether a plan has begun."""
        state, runner, plan_log = self.state, self._runner, self.state.plan_log
        newest = state.newest
        if newest is None or newest.end_ms <= state.decided_until_ms:
            return False
        state.decided_until_ms = newest.end_ms
        situation = self._situation(newest, now_ms)
        state.for_shadows = situation
        if plan_log.proposed is not None and not runner.is_busy:
            as_if_new = replace(situation, plan_in_review="")
            self._reviewer.revalidate(plan_log.proposed, as_if_new, now_ms)
        began_s = self._stopwatch_s()
        decision = decide_plan(situation, self._planners, plan_log.epoch_next, self._settings)
        self._note_time(self._settings.planner, "acting", began_s)
        state.add_decision(decision)
        if decision.state_verdict is not None:
            self._metrics.refusals.labels(decision.state_verdict).inc()
        for proposal in decision.refused:
            self._metrics.refusals.labels(proposal.verdict).inc()
        self._emit_if_new(self._teller.about_decision(decision, now_ms))
        if decision.plan is None:
            return False
        self._take_up(decision.plan, now_ms)
        return True

    def _run_shadows(self, now_ms: int) -> None:
        """Let the shadow planners decide on what the acting one decided on last, once."""
        situation, self.state.for_shadows = self.state.for_shadows, None
        if situation is None:
            return
        for shadow in self.state.shadows:
            began_s = self._stopwatch_s()
            if not shadow.decide(situation, self._price_per_s) and shadow.faults == 1:
                text = f"shadow planner {shadow.name} failed, which changes nothing else: {shadow.fault_text}"
                kind, severity = EventKind.PLANNER_FAILED, Severity.WARNING
                self._events.emit(AdaptationEvent(f"planner-{shadow.name}", kind, severity, now_ms, text))
            self._note_time(shadow.name, "shadow", began_s)

    def _note_time(self, planner: str, role: str, began_s: float) -> None:
        duration_ms = (self._stopwatch_s() - began_s) * 1000
        self._metrics.decision_ms.labels(planner, role).observe(duration_ms)
        self.state.add_decision_time(f"{role}:{planner}", duration_ms)

    def _situation(self, newest: ClosedWindow, now_ms: int) -> Situation:
        plan_log, runner = self.state.plan_log, self._runner
        present = plan_log.present
        running = plan_log.moving or plan_log.verifying
        ended_ms = plan_log.transition_ended_ms
        windows, horizon = self._windows.horizon(newest)
        self.state.horizon = horizon or self.state.horizon
        configuration = self._kind.with_homes(present, windows)
        return Situation(
            state=self._kind.state_of(configuration, windows),
            now_ms=now_ms,
            kind=self._kind,
            price_per_s=self._price_per_s(present),
            plan_running=running.plan if running else ("being stored" if runner.is_busy else ""),
            windows_since_plan=self._windows.windows_since(ended_ms) if ended_ms else None,
            muted_until_ms=self._muted_until_ms(plan_log),
            subscription_lifetime_s=self._windows.lifetime_s,
            paused=self._reviewer.paused(now_ms),
            plan_in_review=plan_log.proposed.plan if plan_log.proposed else "",
            maintained=self._reviewer.maintained(now_ms),
            evacuated=self._reviewer.evacuated(now_ms),
        )

    def _muted_until_ms(self, plan_log: PlanLog) -> dict[str, int]:
        refused = self._reviewer.muted_until_ms(plan_log)
        undone = plan_log.muted_until_ms(self._settings.decision.mute_ms)
        return {planner: max(refused.get(planner, 0), undone.get(planner, 0)) for planner in refused | undone}

    def _price_per_s(self, overlay: OverlayConfiguration) -> float:
        messages_mean, pay_back_s = self.state.plan_log.control_messages_mean, self._settings.decision.pay_back_s
        return transition_price_per_s(self._kind, overlay, messages_mean, pay_back_s)

    def _emit_if_new(self, event: AdaptationEvent | None) -> None:
        if event is not None:
            self._events.emit(event)

    def _show(self, now_ms: int) -> None:
        """Show the state at every change, else at its own pace."""
        state = self.state
        if not state.is_changed and now_ms - state.shown_ms < self._settings.status_ms:
            return
        state.shown_ms, state.is_changed = now_ms, False
        faults = self._border_faults() | self._windows.faults
        faults |= {f"shadow planner: {shadow.name}": shadow.faults for shadow in state.shadows if shadow.faults}
        self._show_metrics(faults, now_ms)
        view = render_view(state, self._settings, self._reviewer.book.standing(now_ms), faults, now_ms)
        for sink in self._ports.views:
            sink.publish(view, now_ms)

    def _show_costs(self, point: CostPoint) -> None:
        costs = {"present": point.cost_per_s, "bootstrap": point.cost_bootstrap_per_s}
        costs |= {f"shadow:{name}": cost_per_s for name, cost_per_s in point.cost_shadows_per_s.items()}
        for overlay, cost_per_s in costs.items():
            self._metrics.cost_per_s.labels(overlay).set(cost_per_s)

    def _show_metrics(self, faults: dict[str, int], now_ms: int) -> None:
        plan_log = self.state.plan_log
        self._metrics.epoch.set(plan_log.present.epoch)
        for phase in PlanPhase:
            self._metrics.plans.labels(phase).set(sum(plan.phase is phase for plan in plan_log.plans))
        carried_out = plan_log.in_force
        self._metrics.changes.labels("links").set(sum(len(plan.links_added) for plan in carried_out))
        clients = plan_log.present.CLIENTS
        self._metrics.changes.labels(clients).set(sum(len(plan.moves) for plan in carried_out))
        self._metrics.changes.labels("ring_ids").set(sum(len(plan.id_moves) for plan in carried_out))
        for queue, length in self._runner.queue_lengths.items():
            self._metrics.queue_length.labels(queue).set(length)
        for what, count in faults.items():
            self._metrics.faults.labels(what).set(count)
        if self.state.newest is not None:
            self._metrics.window_age_ms.set(now_ms - self.state.newest.end_ms)
