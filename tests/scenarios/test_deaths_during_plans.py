"""A broker dies in each phase of a plan: the plan ends, and no other broker is blocked; repairs are not tested here."""

from __future__ import annotations

import numpy as np
import pytest

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.ring.ring_configuration import id_moves_between
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import Notification
from regraft.producers.brokers.broker_reports import BrokerPhase
from regraft.producers.emulator.emulate_overlay import OverlayTiming
from regraft.producers.emulator.emulator_ports import OverlayListener
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.schemas.plan import ClientMove, PlanPhase
from regraft.schemas.plan_life import LIFE
from tests.producers.ring_overlays import RingRun
from tests.scenarios.run_plan import PlanOnTheClock
from tests.scenarios.step_by_step import ALL
from tests.scenarios.test_publisher_moves import line_overlay

MOVING = [phase for phase, facts in LIFE.items() if facts.is_moving and not facts.is_aborted]
COMMITTED = [phase for phase in MOVING if LIFE[phase].is_committed]


class Allowed(OverlayListener):
    """Remembers which publishers may publish."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_may_publish(self, publisher: str) -> None:
        """Remember a publisher that may publish."""
        self.names.append(publisher)


@pytest.mark.parametrize("dead", ["b03", "b06"])
@pytest.mark.parametrize("phase", MOVING)
def test_a_plan_on_a_tree_ends_and_new_clients_connect_whenever_a_broker_dies(phase: PlanPhase, dead: str) -> None:
    """Before the point of no return the plan is aborted, afterwards executed without the dead broker."""
    virtual = line_overlay(7)
    allowed = Allowed()
    virtual.overlay.listeners.append(allowed)
    virtual.run_for(100.0)
    plan = PlanOnTheClock(virtual, (ClientMove("p", "b00", "b02"),))
    plan.run_until(phase)
    virtual.overlay.kill(dead, notice_ms=50.0)
    plan.run_until(PlanPhase.VERIFYING, PlanPhase.ABORTED)
    assert plan.phase is (PlanPhase.ABORTED if phase is PlanPhase.PREPARING else PlanPhase.VERIFYING)
    survivors = [core for name, core in virtual.cores.items() if name != dead]
    assert {core.phase for core in survivors} == {BrokerPhase.STEADY}
    virtual.overlay.advertise("new", "b01", ALL)
    virtual.overlay.subscribe("late", "b02", ALL)
    virtual.run_for(2_500.0)
    assert "new" in allowed.names
    assert virtual.cores["b02"].routing.interests.locals["late"].is_confirmed
    account = virtual.finish()
    assert (account.repeated, account.out_of_order, account.unexpected, account.outstanding) == (0, 0, 0, 0)


def test_the_next_plan_names_the_dead_broker() -> None:
    """It is aborted at once instead of timing out: every broker is needed to prepare."""
    virtual = line_overlay(4)
    virtual.overlay.kill("b03", notice_ms=50.0)
    virtual.run_for(100.0)
    plan = PlanOnTheClock(virtual, (ClientMove("p", "b00", "b01"),))
    plan.run_until(PlanPhase.ABORTED, within_ms=1_500.0)
    assert "b03 dead" in plan.events[-1].text


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("phase", COMMITTED)
def test_a_plan_on_a_ring_ends_and_nothing_stays_held_whenever_a_broker_dies(phase: PlanPhase, seed: int) -> None:
    """It continues as soon as everything that had crossed the dead broker has arrived, in order."""
    run = RingRun(12, 8, 40, seed)
    run.live(6_000.0, every_ms=4.0, changes_share=0.0)
    run.virtual.run_for(500.0)
    target = run.random_target()
    plan = PlanOnTheClock(run.virtual, tuple(run.random_moves(5)), target, id_moves_between(run.ring, target))
    plan.run_until(phase)
    dead = run.rng.choice(run.ring.brokers)
    run.overlay.kill(dead, notice_ms=20.0)
    plan.run_until(PlanPhase.VERIFYING)
    survivors = [core for name, core in run.virtual.cores.items() if name != dead]
    assert {core.phase for core in survivors} == {BrokerPhase.STEADY}
    assert not any(core.state.held for core in survivors)
    account = run.virtual.finish()
    assert (account.repeated, account.out_of_order, account.unexpected, account.outstanding) == (0, 0, 0, 0)
    assert not run.overlay.users.is_any_moving


def test_a_death_is_noticed_after_everything_that_the_dead_broker_had_sent() -> None:
    """What still waits in a neighbour's queue comes before what was held back for it."""
    names = ("b00", "b01", "b02")
    tree = TreeConfiguration.of(0, names, [("b00", "b01"), ("b01", "b02")])
    cost = 1.0 - np.eye(3)
    timing = OverlayTiming(
        lambda broker, message: (10.0 if broker == "b01" else 0.1) if isinstance(message, Notification) else 0.0,
        lambda broker, _: 200.0 if broker == "b00" else 1.0,
    )
    inventory = Inventory(names, np.ones(3), cost, 3, tree)
    virtual = VirtualOverlay(inventory, settings=VirtualSettings(timing=timing, flush_ms=None))
    virtual.overlay.advertise("p", "b00", ALL)
    virtual.overlay.subscribe("s", "b01", ALL)
    virtual.run_for(1_500.0)
    for number in range(200):
        event = virtual.env.timeout(number * 3.0)
        event.callbacks.append(lambda _: virtual.overlay.publish("p", {"symbol": "A"}, 1))
    plan = PlanOnTheClock(virtual, (ClientMove("p", "b00", "b02"),))
    plan.run_until(PlanPhase.ACTIVATING)
    virtual.run_for(30.0)
    virtual.overlay.kill("b00", notice_ms=50.0)
    plan.run_until(PlanPhase.VERIFYING)
    account = virtual.finish()
    assert account.expected == 200
    assert (account.out_of_order, account.repeated, account.unexpected) == (0, 0, 0)
