"""Whole runs on the virtual clock in which brokers die and return: the control loop repairs the overlay."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.producers.emulator.outage_schedule import outage_of
from regraft.producers.emulator.place_overlay import place_overlay, place_ring
from regraft.producers.virtual_overlay import VirtualSettings
from regraft.schemas.event import EventKind
from regraft.schemas.member import MemberState
from regraft.schemas.plan import PlanPhase
from regraft.schemas.plan_life import LIFE
from regraft.virtual_runs.virtual_loop import VirtualLoop
from tests.scenarios.closed_loop import DESCENTS_ONLY
from tests.scenarios.test_closed_loop import WORKLOAD
from tests.scenarios.test_closed_loop_ring import CHECKINS

DEATH_MS = 40_000


def tree_with(seed: int, *outages: str) -> VirtualLoop:
    """Return 16 brokers on measured hosts and a random tree; some brokers die."""
    settings = ControllerSettings(
        bootstrap="virtual", inventory_path=Path("virtual"), dry_run=False, seed=seed, planners=DESCENTS_ONLY
    )
    virtual = VirtualSettings(seed=seed, outages=tuple(map(outage_of, outages)))
    return VirtualLoop(place_overlay(16, 8, random.Random(seed)), WORKLOAD, settings, virtual)


def ring_with(seed: int, *outages: str) -> VirtualLoop:
    """Return 16 brokers on a ring and 300 mobile users; some brokers die."""
    settings = ControllerSettings(
        bootstrap="virtual", inventory_path=Path("virtual"), dry_run=False, seed=seed, planner="place_users_dynatops"
    )
    virtual = VirtualSettings(seed=seed, outages=tuple(map(outage_of, outages)))
    return VirtualLoop(place_ring(16, random.Random(seed)), CHECKINS, settings, virtual)


@pytest.mark.parametrize("overlay_with", [tree_with, ring_with], ids=["tree", "ring"])
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("whom", ["b03", "b13,b14"])
def test_a_dead_broker_is_removed_and_admitted_again_and_nothing_else_is_lost(
    overlay_with: Callable[..., VirtualLoop], seed: int, whom: str
) -> None:
    """The dead are out of the overlay within 20 s, adaptation continues, and they serve again after their return."""
    loop = overlay_with(seed, f"death {whom} at {DEATH_MS / 1000:g} for 40")
    loop.run_for(60_000)
    dead = tuple(whom.split(","))
    assert loop.loop.state.fleet.in_state(MemberState.DEAD) == dead
    present = loop.loop.state.plan_log.present
    assert set(present.brokers) == set(loop.inventory.brokers) - set(dead)
    loop.run_for(20_000)
    assert loop.loop.state.newest is not None
    assert loop.loop.state.newest.is_complete
    loop.run_for(30_000)
    assert loop.loop.state.fleet.serving == loop.inventory.brokers
    assert loop.loop.state.plan_log.present.brokers == loop.inventory.brokers
    loop.run_for(25_000)
    (repair,) = [plan for plan in loop.plans if plan.brokers_lost]
    assert repair.brokers_lost == dead
    # A death ends only what is being prepared then: decisions continue without the dead and with the returned.
    for plan in loop.plans:
        if LIFE[plan.phase].is_aborted:
            why = next(change for change in plan.history if change.phase is PlanPhase.ABORTING)
            assert plan.epoch_to == repair.epoch_to - 1
            assert why.time_ms > loop.virtual.settings.start_ms + DEATH_MS
            assert why.reason.startswith(dead)  # Whichever of them was found first.
            assert " dead" in why.reason
    changes = [event.text for event in loop.ports.events.emitted if event.kind is EventKind.CHANGE_DETECTED]
    assert not changes or overlay_with is tree_with  # The interests of a tree's clients do shift after the death.
    loop.settle()
    account = loop.virtual.finish()
    assert account.is_clean, account
    assert account.delivered > 5_000
