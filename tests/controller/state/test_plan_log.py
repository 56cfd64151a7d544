"""What the log derives from the plans so far."""

import msgspec
import pytest

from regraft.controller.state.plan_log import PLANS_KEPT_MAX, TRANSITION_ENDS, PlanLog
from regraft.overlay.tree.tree_configuration import NotATreeError
from regraft.schemas.plan import PhaseChange, Plan, PlanPhase, Proposal
from regraft.schemas.plan_life import LIFE
from tests.overlay.small_overlays import inventory_of, line_of

BOOTSTRAP = line_of(4)
INVENTORY = inventory_of(BOOTSTRAP, {})
OTHER = BOOTSTRAP.replaced(1, [("b00", "b01")], [("b00", "b03")])


def plan_at(epoch: int, phase: PlanPhase, undoes: str = "", sent: int = 10, since_ms: int = 0) -> Plan:
    """Return a plan to the other tree."""
    return Plan(
        plan=f"plan-{epoch}",
        epoch_from=epoch - 1,
        epoch_to=epoch,
        window_end_ms=0,
        proposals=(Proposal("swap_links_ci", (("b00", "b01"),), (("b00", "b03"),), 2.0, 1.0, 0.0, ""),),
        links_removed=(("b00", "b01"),),
        links_added=(("b00", "b03"),),
        links_target=OTHER.links,
        cost_before_per_s=2.0,
        cost_predicted_per_s=1.0,
        phase=phase,
        history=(PhaseChange(PlanPhase.PREPARING, since_ms, ""), PhaseChange(phase, since_ms + 100, "")),
        undoes=undoes,
        control_messages=sent,
    )


def test_the_bootstrap_is_in_force_before_any_plan() -> None:
    """Without plans the inventory's overlay is in force and the first epoch is 1."""
    log = PlanLog(INVENTORY)
    assert log.present == BOOTSTRAP
    assert log.epoch_next == 1
    assert log.moving is log.control_messages_mean(100) is None
    assert log.verifying == ()
    assert log.transition_ended_ms == 0


@pytest.mark.parametrize("phase", list(PlanPhase))
def test_a_target_is_in_force_only_after_activation(phase: PlanPhase) -> None:
    """A plan's target is in force once every broker has drained the old epoch, and its epoch is used up in any case."""
    log = PlanLog(INVENTORY, [plan_at(1, phase)])
    is_in_force = LIFE[phase].is_in_force
    assert log.present.epoch == (1 if is_in_force else 0)
    assert log.present.links == (OTHER if is_in_force else BOOTSTRAP).links
    assert len(log.in_force) == is_in_force
    assert log.epoch_next == 2
    assert (log.moving is None) is not LIFE[phase].is_moving
    assert bool(log.verifying) is (phase is PlanPhase.VERIFYING)


def test_aborted_epochs_are_never_used_again() -> None:
    """After two aborted plans the next epoch is 3, and the bootstrap is still in force."""
    log = PlanLog(INVENTORY, [plan_at(1, PlanPhase.ABORTED), plan_at(2, PlanPhase.ABORTED)])
    assert (log.epoch_next, log.present.epoch) == (3, 0)


def test_newest_version_of_a_plan_counts() -> None:
    """A plan recorded again in a later phase replaces itself."""
    log = PlanLog(INVENTORY)
    for phase in (PlanPhase.PREPARING, PlanPhase.ACTIVATING, PlanPhase.VERIFYING):
        log.record(plan_at(1, phase))
    assert [plan.phase for plan in log.plans] == [PlanPhase.VERIFYING]
    assert log.transition_ended_ms == 100


def test_a_transition_ends_when_no_broker_is_executing_it() -> None:
    """Executed or aborted; the later end of the verification does not count."""
    assert {PlanPhase.VERIFYING, PlanPhase.ABORTED} == TRANSITION_ENDS


def test_undone_plan_mutes_its_planner() -> None:
    """From the moment the undoing plan began, for the configured time."""
    log = PlanLog(INVENTORY, [plan_at(1, PlanPhase.COMPLETED), plan_at(2, PlanPhase.COMPLETED, "plan-1", since_ms=500)])
    assert log.muted_until_ms(1000) == {"swap_links_ci": 1500}
    assert log.undo_of("plan-1") is not None
    assert log.undo_of("plan-2") is None


def test_the_price_is_learned_from_recent_plans() -> None:
    """The mean is over the last five executed plans; aborted ones do not count."""
    plans = [plan_at(epoch, PlanPhase.COMPLETED, sent=epoch) for epoch in range(1, 8)]
    log = PlanLog(INVENTORY, [*plans, plan_at(8, PlanPhase.ABORTED, sent=1000)])
    assert log.control_messages_mean(100) == 5.0


def test_a_stored_count_that_no_overlay_reaches_prices_nothing() -> None:
    """A version that believed every broker may have stored it; until another plan is executed, no count is known."""
    impossible = (1 << 63) - 20
    assert PlanLog(INVENTORY, [plan_at(1, PlanPhase.COMPLETED, sent=impossible)]).control_messages_mean(100) is None
    plans = [plan_at(1, PlanPhase.COMPLETED, sent=impossible), plan_at(2, PlanPhase.COMPLETED, sent=7)]
    assert PlanLog(INVENTORY, plans).control_messages_mean(100) == 7.0


def test_configurations_of_past_epochs_are_known() -> None:
    """Epochs of plans and of the bootstrap can be looked up, others cannot."""
    log = PlanLog(INVENTORY, [plan_at(3, PlanPhase.COMPLETED)])
    assert log.configuration_of(0) == BOOTSTRAP
    found = log.configuration_of(3)
    assert found is not None
    assert found.links == OTHER.links
    assert log.configuration_of(2) is None


def test_plan_of_another_inventory_is_refused() -> None:
    """A stored plan whose target is not a tree over the inventory's brokers is an error at once."""
    foreign = msgspec.structs.replace(plan_at(1, PlanPhase.COMPLETED), links_target=(("x", "y"),))
    with pytest.raises(NotATreeError):
        PlanLog(INVENTORY, [foreign])


def test_memory_is_bounded_and_the_present_is_kept() -> None:
    """Old finished plans are forgotten, except the one whose target is in force."""
    log = PlanLog(INVENTORY, [plan_at(1, PlanPhase.COMPLETED)])
    for epoch in range(2, PLANS_KEPT_MAX + 50):
        log.record(plan_at(epoch, PlanPhase.ABORTED))
    assert len(log.plans) == PLANS_KEPT_MAX
    assert log.take_forgotten() == [f"plan-{epoch}" for epoch in range(2, 50 + 1)]
    assert log.take_forgotten() == []
    assert log.present.epoch == 1
    assert log.epoch_next == PLANS_KEPT_MAX + 50
