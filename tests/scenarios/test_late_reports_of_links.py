"""A link that reports the end of a neighbour's incarnation after the controller did, when that neighbour is back.

The plan to epoch 1 readmits b2, whose next incarnation need not answer anything. Its neighbour b1 knew of no end
before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import End, FlowEnd
from regraft.producers.brokers.broker_state import NeighbourIncarnations
from regraft.producers.brokers.ring_messages import EndTopic
from regraft.schemas.command import CommandPhase, Outcome
from tests.scenarios.step_by_step import StepByStep

PREPARE, ACTIVATE, RETIRE = CommandPhase.PREPARE, CommandPhase.ACTIVATE, CommandPhase.RETIRE
WHOLE = (PREPARE, ACTIVATE, RETIRE)
TREE = TreeConfiguration.of(0, ("b0", "b1", "b2"), [("b0", "b1"), ("b1", "b2")])
RING = RingConfiguration.of(0, 6, {"b0": 3, "b1": 20, "b2": 40})
SCOT = ScotConfiguration(0, (("b1", "b2"), ("b0", "b3")), ((0, 1),))
ALL_KINDS = pytest.mark.parametrize("overlay", [TREE, RING, SCOT], ids=["tree", "ring", "scot"])


def execute(
    after: StepByStep, target: OverlayConfiguration, phases: Sequence[CommandPhase], returned: tuple[str, ...] = ()
) -> None:
    """Take the brokers other than b2 through these phases of a plan that changes nothing but who is back."""
    for phase in phases:
        for broker in after.brokers:
            if broker != "b2":
                lost = returned if phase is PREPARE else ()
                after.command(broker, phase, target, lost_brokers=lost, returned=returned)
        after.run(held=[(broker, "b2") for broker in after.brokers])


def readmitted(overlay: OverlayConfiguration, phases: Sequence[CommandPhase] = WHOLE) -> StepByStep:
    """Return brokers that have gone through these phases of the plan that readmits b2."""
    after = StepByStep(overlay)
    execute(after, overlay.at_epoch(1), phases, returned=("b2",))
    assert after.answered(Outcome.REFUSED) == set()
    assert dead_in(after).get(1, set()) == set()
    return after


def dead_in(after: StepByStep) -> dict[int, set[str]]:
    """Return the brokers that b1 considers dead, by epoch."""
    return {epoch: set(tables.dead) for epoch, tables in after.cores["b1"].state.tables.items()}


@ALL_KINDS
def test_a_late_report_does_not_concern_the_next_life_that_is_being_admitted(overlay: OverlayConfiguration) -> None:
    after = readmitted(overlay, (PREPARE,))
    after.lose_peer("b1", "b2")
    assert dead_in(after) == {0: {"b2"}, 1: set()}
    assert after.cores["b1"].state.lost_peers == set()


@ALL_KINDS
def test_a_late_report_does_not_concern_the_next_life_in_any_epoch(overlay: OverlayConfiguration) -> None:
    """In the later one its plan names nobody lost."""
    after = readmitted(overlay)
    execute(after, overlay.at_epoch(2), (PREPARE,))
    after.lose_peer("b1", "b2")
    assert dead_in(after) == {1: set(), 2: set()}
    assert after.cores["b1"].state.lost_peers == set()


def test_a_late_report_does_not_concern_the_next_life_once_the_plan_that_admitted_it_is_forgotten() -> None:
    """Nothing of a ring without clients takes another path, so nothing has come from that incarnation yet."""
    after = readmitted(RING)
    execute(after, RING.at_epoch(2), WHOLE)
    after.lose_peer("b1", "b2")
    assert dead_in(after) == {2: set()}


@ALL_KINDS
def test_no_plan_inherits_a_late_report(overlay: OverlayConfiguration) -> None:
    after = readmitted(overlay)
    after.lose_peer("b1", "b2")
    execute(after, overlay.at_epoch(2), (PREPARE,))
    assert dead_in(after) == {1: set(), 2: set()}


@ALL_KINDS
def test_a_report_counts_once_the_next_life_has_sent_something(overlay: OverlayConfiguration) -> None:
    """The report of the earlier incarnation would have come before that, or never comes: it only counted as dead."""
    after = readmitted(overlay)
    marker = End(1) if overlay is TREE else EndTopic(1, "A") if overlay is RING else FlowEnd(1, 0)
    after.feed("b1", "b2", marker)
    after.lose_peer("b1", "b2")
    assert dead_in(after) == {1: {"b2"}}
    assert after.cores["b1"].state.lost_peers == {"b2"}


@ALL_KINDS
def test_what_the_earlier_life_has_sent_does_not_count_for_the_next_one(overlay: OverlayConfiguration) -> None:
    after = readmitted(overlay)
    marker = End(0) if overlay is TREE else EndTopic(0, "A") if overlay is RING else FlowEnd(0, 0)
    after.feed("b1", "b2", marker)
    after.lose_peer("b1", "b2")
    assert dead_in(after) == {1: set()}


@ALL_KINDS
def test_a_second_report_is_the_end_of_the_next_life(overlay: OverlayConfiguration) -> None:
    after = readmitted(overlay)
    for _ in range(2):
        after.lose_peer("b1", "b2")
    assert dead_in(after) == {1: {"b2"}}


@ALL_KINDS
def test_a_report_counts_if_the_plan_that_admits_the_next_life_is_aborted(overlay: OverlayConfiguration) -> None:
    after = readmitted(overlay, (PREPARE, CommandPhase.ABORT))
    after.lose_peer("b1", "b2")
    assert dead_in(after) == {0: {"b2"}}
    assert after.cores["b1"].state.lost_peers == {"b2"}


# --- which epochs a report concerns -----------------------------------------------------------------------------------


def test_a_report_concerns_all_epochs_if_nobody_else_has_reported_the_end() -> None:
    incarnations = NeighbourIncarnations()
    incarnations.begin_plan(TREE, TREE.at_epoch(1), {"b2"})
    assert incarnations.end("b2") == math.inf


def test_an_aborted_plan_admits_nobody() -> None:
    """A plan of a controller that does not know of the death follows; it still has the earlier incarnation."""
    incarnations = NeighbourIncarnations()
    incarnations.note_reported({"b2"})
    incarnations.begin_plan(TREE, TREE.at_epoch(1), {"b2"})
    incarnations.begin_plan(TREE, TREE.at_epoch(2), ())
    incarnations.begin_plan(TREE.at_epoch(2), TREE.at_epoch(3), ())
    assert incarnations.end("b2") == math.inf


def test_a_broker_that_joins_behind_the_plan_that_removed_it_is_in_its_next_life() -> None:
    incarnations, without = NeighbourIncarnations(), TreeConfiguration.of(1, ("b0", "b1"), [("b0", "b1")])
    incarnations.note_reported({"b2"})
    incarnations.begin_plan(TREE, without, {"b2"})
    incarnations.begin_plan(without, TREE.at_epoch(2), ())
    incarnations.begin_plan(TREE.at_epoch(2), TREE.at_epoch(3), ())
    assert incarnations.end("b2") == 2
