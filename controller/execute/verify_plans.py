"""Close plans that are carried out: verified on the windows after them, taken back when they made things worse.

In: the plan that is to be verified and the windows since. Out: effects for the plan runner, and events. What a plan
saves is found by :mod:`controller.decide.verify_gain`; when to look belongs to the control loop.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from controller.control_ports import EventSink
from controller.controller_settings import ControllerSettings
from controller.decide.verify_gain import Verification, observed_gains_per_s, plan_undoing, verify_gain
from controller.execute.carry_out_plan import PlanRunner
from controller.execute.transition import EmitEvent, PersistPlan
from controller.kinds.overlay_kind import AnyKind, is_evacuation
from controller.kinds.repair import is_membership
from controller.loop_state import LoopState
from controller.state.plan_target import configuration_before
from controller.windows.read_windows import WindowReader
from overlay.overlay_configuration import OverlayConfiguration
from schemas.event import AdaptationEvent, EventKind, Severity
from schemas.plan import Plan, PlanPhase
from schemas.plan_life import LIFE, entered


class PlanVerifier:
    """Looks at the one plan that is carried out and not yet checked.

    ``begin`` takes up the plan that takes another back, or has it reviewed first.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        kind: AnyKind,
        windows: WindowReader,
        runner: PlanRunner,
        events: EventSink,
        begin: Callable[[Plan, int], None],
    ) -> None:
        self._settings = settings
        self._kind = kind
        self._windows = windows
        self._runner = runner
        self._events = events
        self._begin = begin
        self._verified: dict[str, Verification] = {}

    def verify(self, state: LoopState, now_ms: int) -> None:
        """Check the plan that is carried out; close it, and begin the plan that takes it back when it is worse."""
        plan_log = state.plan_log
        plan = plan_log.verifying
        if plan is None or self._runner.is_busy:
            return
        undo = plan_log.undo_of(plan.plan)
        if undo is not None and undo.phase is PlanPhase.PROPOSED:
            return
        if undo is not None:
            done = "taken back by" if LIFE[undo.phase].is_in_force else "made things worse, but was not taken back by"
            self._close(plan, self._verified.pop(plan.plan, None), f"{done} {undo.plan}", now_ms)
            return
        after = plan_log.present
        if why := _against_verifying(plan, after):
            self._close(plan, None, why, now_ms)
            return
        windows = [window.over(after.brokers) for window in self._windows.verifying(plan.epoch_to)]
        if len(windows) < self._settings.verify_windows:
            since_ms = plan.history[-1].time_ms
            if now_ms - since_ms > self._settings.verify_ms_max:
                reason = f"not verified: no {self._settings.verify_windows} complete windows of epoch {plan.epoch_to}"
                self._close(plan, None, f"{reason} within {self._settings.verify_ms_max} ms", now_ms)
            return
        before = configuration_before(plan, after)
        kind = self._kind.over(state.fleet.inventory_over(after.brokers))
        found = verify_gain(plan, before, after, windows, kind, self._windows.lifetime_s)
        is_to_save = not plan.undoes and not is_evacuation(plan)
        if is_to_save and found.made_worse(self._settings.decision):
            self._verified = {plan.plan: found}
            self._tell_missed(plan, found, "it is taken back", now_ms)
            self._begin(plan_undoing(plan, before, after, plan_log.epoch_next, found, windows[-1]), now_ms)
            return
        if is_to_save and found.is_missed:
            self._tell_missed(plan, found, "it is kept", now_ms)
        gains = observed_gains_per_s(plan, before, windows, kind)
        observed = zip(plan.proposals, gains, strict=True)
        proposals = tuple(msgspec.structs.replace(one, gain_observed_per_s=gain) for one, gain in observed)
        plan = msgspec.structs.replace(plan, proposals=proposals)
        self._close(plan, found, found.text, now_ms)

    def _close(self, plan: Plan, found: Verification | None, reason: str, now_ms: int) -> None:
        """Store the plan as completed and tell it."""
        observed_per_s = None if found is None else found.cost_observed_per_s
        completed = entered(plan, PlanPhase.COMPLETED, reason, now_ms)
        completed = msgspec.structs.replace(completed, cost_observed_per_s=observed_per_s)
        text = f"plan {plan.plan} completed: {reason}"
        event = AdaptationEvent(plan.plan, EventKind.PLAN_COMPLETED, Severity.INFO, now_ms, text, plan.plan)
        self._runner.add([PersistPlan(completed), EmitEvent(event)])

    def _tell_missed(self, plan: Plan, found: Verification, outcome: str, now_ms: int) -> None:
        text = f"plan {plan.plan}: {found.text}; {outcome}"
        self._events.emit(AdaptationEvent(plan.plan, EventKind.GAIN_MISSED, Severity.WARNING, now_ms, text, plan.plan))


def _against_verifying(plan: Plan, present: OverlayConfiguration) -> str:
    """Return why there is nothing to verify, empty when there is."""
    if is_membership(plan):
        return "brokers have changed, which nobody did for a gain"
    if plan.epoch_to != present.epoch:
        return f"not verified: epoch {present.epoch} is in force"
    return ""
