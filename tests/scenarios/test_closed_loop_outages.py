"""Brokers die and come back under the real controller on the virtual clock: repaired, taken in, accounted for."""

from __future__ import annotations

import random
from pathlib import Path

from controller.controller_settings import ControllerSettings
from producers.emulator.outage_schedule import Outage, OutageKind
from producers.emulator.place_overlay import place_ring
from producers.virtual_overlay import VirtualSettings
from producers.workloads.checkin_settings import CheckinSettings
from regraft.virtual_runs.virtual_loop import VirtualLoop
from schemas.plan_life import LIFE

DEATH_S, BACK_S, END_S = 20.0, 30.0, 100.0
DEAD = ("b03", "b07")


def ring_loop(outages: tuple[Outage, ...]) -> VirtualLoop:
    """Twelve brokers on a ring with a hundred users."""
    told = ControllerSettings(bootstrap="", inventory_path=Path(), planner="place_users_dynatops")
    virtual = VirtualSettings(seed=3, start_ms=1_700_000_000_000.0, outages=outages)
    return VirtualLoop(place_ring(12, random.Random(3)), CheckinSettings(user_count=100), told, virtual)


def test_two_brokers_of_a_ring_die_and_come_back_and_only_what_had_to_cross_them_is_lost() -> None:
    """The repair takes them out, later plans take them in; then all clients are connected again."""
    loop = ring_loop((Outage(OutageKind.DEATH, DEAD, DEATH_S, BACK_S),))
    loop.run_for(END_S * 1_000)
    assert loop.finish()
    in_force = [plan for plan in loop.plans if LIFE[plan.phase].is_in_force]
    assert [set(plan.brokers_lost) for plan in in_force if plan.brokers_lost] == [set(DEAD)]
    assert set(DEAD) <= set(in_force[-1].brokers_target)
    assert {core.epoch for core in loop.virtual.ring_cores.values()} == {in_force[-1].epoch_to}
    assert loop.virtual.overlay.users.waiting_count == loop.virtual.overlay.publishers.waiting_count == 0
    loop.come_to_rest()
    account = loop.virtual.finish()
    assert account.is_clean, account
    assert 0 < account.lost == account.excused


def test_a_suspended_broker_of_a_ring_that_is_declared_dead_comes_back_without_a_repeat() -> None:
    """It has outlived its being declared dead: what it still sends then is taken by nobody."""
    loop = ring_loop((Outage(OutageKind.SUSPENSION, ("b03",), DEATH_S, BACK_S),))
    loop.run_for(END_S * 1_000)
    assert loop.finish()
    in_force = [plan for plan in loop.plans if LIFE[plan.phase].is_in_force]
    assert [set(plan.brokers_lost) for plan in in_force if plan.brokers_lost] == [{"b03"}]
    assert "b03" in in_force[-1].brokers_target
    loop.come_to_rest()
    account = loop.virtual.finish()
    assert account.is_clean, account
