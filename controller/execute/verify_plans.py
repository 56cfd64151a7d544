"""Close executed plans: verified on the windows after them, rolled back if they made things worse.

Computing what a plan saves belongs to :mod:`controller.decide.verify_gain`, calling this in time to the control loop.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from regraft.controller.control_ports import ClientRegister, EventSink
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.decide.place_moved import MovedSubscribers, follower_of
from regraft.controller.decide.verify_gain import Verification, observed_gains_per_s, plan_undoing, verify_gain
from regraft.controller.execute.execute_plan import PlanRunner
from regraft.controller.execute.transition import EmitEvent, PersistPlan
from regraft.controller.kinds.overlay_kind import AnyKind, needs_no_gain
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.find_homes import configuration_before
from regraft.controller.windows.read_windows import WindowReader
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.plan_life import LIFE, entered


class PlanVerifier:
    """Verifies the executed plans, also while the next one is executed.

    A plan that made things worse is rolled back only while it is the newest in force; once others have followed, this
    is reported and left to the planners. A plan decided before traffic changed is closed without verification: it was
    made for other traffic. Windows delayed by congestion are skipped. ``begin`` starts a rollback, or has it reviewed
    first.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        kind: AnyKind,
        windows: WindowReader,
        runner: PlanRunner,
        events: EventSink,
        clients: ClientRegister,
        begin: Callable[[Plan, int], None],
    ) -> None:
        self._settings = settings
        self._kind = kind
        self._windows = windows
        self._runner = runner
        self._events = events
        self._clients = clients
        self._begin = begin
        self._verified: dict[str, Verification] = {}

    def verify(self, state: LoopState, now_ms: int) -> None:
        """Verify each executed plan and close it; start its rollback if it made things worse."""
        if self._runner.is_storing:
            return
        for plan in state.plan_log.verifying:
            self._verify(plan, state, now_ms)
            if state.has_begun:
                return

    def _verify(self, plan: Plan, state: LoopState, now_ms: int) -> None:
        plan_log = state.plan_log
        undo = plan_log.undo_of(plan.plan)
        if undo is not None and not LIFE[undo.phase].is_in_force and not LIFE[undo.phase].is_final:
            return
        if undo is not None:
            done = "rolled back by" if LIFE[undo.phase].is_in_force else "made things worse, but was not rolled back by"
            self._close(plan, self._verified.pop(plan.plan, None), f"{done} {undo.plan}", now_ms)
            return
        after = plan_log.configuration_of(plan.epoch_to)
        if after is None or plan.is_membership:
            self._close(plan, None, "not verified: brokers joined or left, so it need not save", now_ms)
            return
        if plan.window_end_ms <= (state.changed_since_ms or 0):
            self._close(plan, None, "not verified: traffic has changed since it was decided on", now_ms)
            return
        follower = follower_of(plan, plan_log.in_force)
        epochs = range(plan.epoch_to, plan_log.epoch_next if follower is None else follower.epoch_to)
        closed, wait_ms_max = self._windows.verifying(epochs), self._settings.decision.queue_wait_ms_max
        # Deliveries behind a long queue come too late to count, and with them what the plan saves there.
        windows = [window.over(after.brokers) for window in closed if not window.is_delayed(wait_ms_max)]
        lacking, unmeasured = "", [f"{a}-{b}" for a, b in plan.links_added if state.fleet.is_estimate((a, b))]
        if len(windows) < self._settings.verify_windows:
            short = "" if len(windows) == len(closed) else " without long queues"
            until = "" if follower is None else f", before {follower.plan}"
            lacking = f"no {self._settings.verify_windows} complete windows{short} since epoch {plan.epoch_to}{until}"
        elif unmeasured:  # An estimate would confirm itself.
            lacking = f"no measurement of {unmeasured[0]}, whose cost is an estimate,"
        if not lacking:
            self._judge(plan, after, windows, state, now_ms)
        elif now_ms - plan.history[-1].time_ms > self._settings.verify_ms_max:
            self._close(plan, None, f"not verified: {lacking} within {self._settings.verify_ms_max} ms", now_ms)

    def _judge(
        self, plan: Plan, after: OverlayConfiguration, windows: list[ClosedWindow], state: LoopState, now_ms: int
    ) -> None:
        plan_log = state.plan_log
        before = configuration_before(plan, after)
        kind = self._kind.over(state.fleet.inventory_over(after.brokers))
        moved = MovedSubscribers.of(plan, self._clients.registered.came_from, windows[-1].movable)
        verification = verify_gain(plan, before, after, windows, kind, self._windows.lifetime_s, moved)
        # If brokers do not report the moved subscribers' deliveries, the saving is assumed as predicted.
        is_whole = moved.are_reported(windows)
        is_to_save = is_whole and not (plan.undoes or needs_no_gain(plan.proposals))
        is_worse, followed_by = is_to_save and verification.made_worse(self._settings.decision), plan_log.in_force[-1]
        if is_worse and followed_by.plan == plan.plan:
            if self._runner.is_busy:
                return  # The next plan is under way: this one is rolled back if that one is aborted.
            self._verified = {plan.plan: verification}
            self._report_missed(plan, verification, "it is rolled back", now_ms)
            came = self._clients.registered.came_from
            self._begin(plan_undoing(plan, before, after, plan_log.epoch_next, verification, windows[-1], came), now_ms)
            state.has_begun = True
            return
        if is_worse:
            self._report_missed(
                plan, verification, f"{followed_by.plan} followed, so the planners decide what to do", now_ms
            )
        elif is_to_save and verification.is_missed:
            self._report_missed(plan, verification, "it is kept", now_ms)
        gains = observed_gains_per_s(plan, before, windows, kind, moved)
        observed = zip(plan.proposals, gains, strict=True)
        proposals = tuple(msgspec.structs.replace(one, gain_observed_per_s=gain) for one, gain in observed)
        part = ", links and publishers alone: brokers do not report the moved subscribers separately"
        text = verification.text + part * (not is_whole)
        self._close(msgspec.structs.replace(plan, proposals=proposals), verification, text, now_ms)

    def _close(self, plan: Plan, verification: Verification | None, reason: str, now_ms: int) -> None:
        """Store the plan as completed and report it."""
        observed_per_s = None if verification is None else verification.cost_observed_per_s
        completed = entered(plan, PlanPhase.COMPLETED, reason, now_ms)
        completed = msgspec.structs.replace(completed, cost_observed_per_s=observed_per_s)
        text = f"{plan.plan} completed: {reason}"
        event = AdaptationEvent(plan.plan, EventKind.PLAN_COMPLETED, Severity.INFO, now_ms, text, plan.plan)
        self._runner.add([PersistPlan(completed), EmitEvent(event)])

    def _report_missed(self, plan: Plan, verification: Verification, outcome: str, now_ms: int) -> None:
        text = f"{plan.plan}: {verification.text}; {outcome}"
        self._events.emit(AdaptationEvent(plan.plan, EventKind.GAIN_MISSED, Severity.WARNING, now_ms, text, plan.plan))
