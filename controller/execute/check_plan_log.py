"""Refuse to lead with plans that are behind the brokers: some were lost, and their epochs would be used again.

In: the loop's state. Out: nothing, or an error that says what to do. Rebuilding the plans belongs to
:mod:`controller.ports.recover_plans`.
"""

from __future__ import annotations

from regraft.controller.decide.loop_state import LoopState
from regraft.controller.state.compare_epochs import elsewhere_text
from regraft.infra.process.stack_error import StackError


class PlanLogBehindError(StackError):
    """The stored plans are behind the brokers; the message names both epochs and the way out."""


def check_plan_log(state: LoopState, now_ms: int, window_age_ms_max: int) -> None:
    """Raise PlanLogBehindError if most brokers are at a later epoch than the one in force, by no plan under way.

    An aborted plan leads nowhere, so its epoch counts as no more than any other: the plans before it may be lost. Only
    a current window counts: older ones may describe an earlier life. Half of the brokers or fewer stop nothing: they
    may be faulty, and are reported as an epoch mismatch.
    """
    window = state.newest
    if window is None or not state.has_plans or abs(now_ms - window.end_ms) > window_age_ms_max:
        return
    plan_log = state.plan_log
    epoch_max, present, moving = plan_log.epoch_next - 1, plan_log.present.epoch, plan_log.moving
    to = present if moving is None else moving.epoch_to
    beyond = {broker: epoch for broker, epoch in window.epochs.items() if epoch > present and epoch != to}
    if 2 * len(beyond) <= len(window.epochs):
        return
    count, in_force = len(plan_log.plans), "" if epoch_max == present else f", with {present} in force"
    raise PlanLogBehindError(
        f"The stored plans lag behind the brokers: there are {count}, up to epoch {epoch_max}{in_force}, but "
        f"{elsewhere_text(beyond)}. Plans have been lost, so nothing starts. Restore the topic of plans if there is a "
        "copy; else stop all controllers, check what `regraft recover` would write, and run it with --yes."
    )
