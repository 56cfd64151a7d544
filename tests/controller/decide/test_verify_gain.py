"""Predicted against observed gain, and rolling a plan back."""

import pytest

from regraft.controller.decide.verify_gain import plan_undoing, verify_gain
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.schemas.plan import Plan, PlanPhase, Proposal
from regraft.schemas.state import QueueState
from tests.controller.scripted_windows import closed_window
from tests.controller.small_kinds import tree_kind
from tests.overlay.small_overlays import inventory_of, line_of

BEFORE = line_of(5)
INVENTORY = inventory_of(BEFORE, {("b00", "b04"): 2.0})
KIND = tree_kind(INVENTORY)
REMOVED, ADDED = ("b01", "b02"), ("b00", "b04")
AFTER = BEFORE.replaced(1, [REMOVED], [ADDED])
PLAN = Plan(
    plan="plan-1",
    epoch_from=0,
    epoch_to=1,
    window_end_ms=0,
    proposals=(Proposal("swap_links_ci", REMOVED, ADDED, 2000.0, 200.0, 10.0, "because"),),
    links_removed=(REMOVED,),
    links_added=(ADDED,),
    links_target=AFTER.links,
    cost_before_per_s=2000.0,
    cost_predicted_per_s=200.0,
    phase=PlanPhase.VERIFYING,
    history=(),
)
STILL_WANTED = [closed_window(BEFORE.brokers, [{"b00", "b04"}] * 50, 1000 * k, epoch=1) for k in range(2)]
WANTED_NO_MORE = [closed_window(BEFORE.brokers, [{"b01", "b02"}] * 50, 1000 * k, epoch=1) for k in range(2)]


def test_a_plan_that_gains_as_predicted_is_kept() -> None:
    """While interests stay the same, the plan saves what was predicted."""
    found = verify_gain(PLAN, BEFORE, AFTER, STILL_WANTED, KIND)
    assert found.cost_observed_per_s == 50 * (2.0 + 2)
    assert found.cost_without_per_s == 50 * (4 * 10.0 + 5)
    assert not found.is_missed
    assert not found.made_worse(DecisionSettings())


def test_plan_that_costs_more_than_before_made_things_worse() -> None:
    """When the interests have turned, the tree before the plan would be cheaper."""
    found = verify_gain(PLAN, BEFORE, AFTER, WANTED_NO_MORE, KIND)
    assert found.gain_per_s < 0
    assert found.is_missed
    assert found.made_worse(DecisionSettings())


def test_small_loss_is_not_worth_a_rollback() -> None:
    """A loss within the dead band is reported as a missed gain, but the plan stays."""
    found = verify_gain(PLAN, BEFORE, AFTER, WANTED_NO_MORE, KIND)
    assert not found.made_worse(DecisionSettings(gain_share_min=0.99 * -found.gain_per_s, noise_factor=0))


def test_counters_of_brokers_give_a_separate_cost() -> None:
    """Each link end pays the link's cost, each service queue the processing; without counters there is no figure."""
    window = STILL_WANTED[0]
    assert KIND.counted_cost_per_s(window) is None
    rates = [("b00", "b04", 3.0), ("b00", "", 5.0), ("stranger", "", 9.0)]
    queues = tuple(QueueState(broker, peer, 0, 0, rate, 0, 0, 0, 0, 0, 0, 1000) for broker, peer, rate in rates)
    counted = closed_window(BEFORE.brokers, [{"b00"}])
    object.__setattr__(counted, "queues", queues)
    assert KIND.counted_cost_per_s(counted) == 3.0 * 2.0 + 5.0


def test_verification_needs_a_window() -> None:
    """Without a window there is no result."""
    with pytest.raises(ValueError, match="plan-1 cannot be verified"):
        verify_gain(PLAN, BEFORE, AFTER, [], KIND)


def test_undoing_restores_the_overlay_at_a_new_epoch() -> None:
    """A rollback restores the previous links, names the plan that it undoes, and is a separate plan."""
    found = verify_gain(PLAN, BEFORE, AFTER, WANTED_NO_MORE, KIND)
    undo = plan_undoing(PLAN, BEFORE, AFTER, 5, found, WANTED_NO_MORE[-1])
    assert (undo.plan, undo.undoes) == ("plan-5", "plan-1")
    assert (undo.epoch_from, undo.epoch_to) == (1, 5)
    assert AFTER.replaced(5, undo.links_removed, undo.links_added).links == BEFORE.links == undo.links_target
    assert undo.cost_predicted_per_s < undo.cost_before_per_s
    assert (undo.phase, undo.history, undo.control_messages) == (PlanPhase.PREPARING, (), 0)
