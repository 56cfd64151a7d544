"""Brokers die and come back under the real controller on the virtual clock: repaired, taken in, accounted for."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from controller.controller_settings import ControllerSettings
from producers.emulator.outage_schedule import Outage, OutageKind
from producers.emulator.place_overlay import place_overlay, place_ring
from producers.virtual_overlay import VirtualSettings
from producers.workloads.checkin_settings import CheckinSettings
from producers.workloads.stock_settings import WorkloadSettings
from regraft.virtual_runs.virtual_loop import VirtualLoop
from schemas.plan import Plan
from schemas.plan_life import LIFE

START_MS = 1_700_000_000_000.0
DEATH_S, BACK_S, END_S = 20.0, 30.0, 100.0
DEAD = ("b03", "b07")
QUOTES = WorkloadSettings(
    publisher_count=15, notifications_per_s=4.0, interested_broker_count=5, lifetime_s_mean=10.0, regime_change_s=50.0
)


def tree_loop(*outages: Outage) -> VirtualLoop:
    """Twelve brokers on a random tree with fifteen publishers."""
    told = ControllerSettings(bootstrap="", inventory_path=Path(), dry_run=False)
    virtual = VirtualSettings(seed=3, start_ms=START_MS, outages=outages)
    return VirtualLoop(place_overlay(12, 6, random.Random(3)), QUOTES, told, virtual)


def ring_loop(*outages: Outage) -> VirtualLoop:
    """Twelve brokers on a ring with a hundred users."""
    told = ControllerSettings(bootstrap="", inventory_path=Path(), dry_run=False, planner="place_users_dynatops")
    virtual = VirtualSettings(seed=3, start_ms=START_MS, outages=outages)
    return VirtualLoop(place_ring(12, random.Random(3)), CheckinSettings(user_count=100), told, virtual)


ON_BOTH = pytest.mark.parametrize("loop_with", [tree_loop, ring_loop], ids=["tree", "ring"])
LoopWith = Callable[..., VirtualLoop]


def in_force(loop: VirtualLoop) -> list[Plan]:
    """Return the plans that were carried out."""
    return [plan for plan in loop.plans if LIFE[plan.phase].is_in_force]


def assert_only_the_excused_is_lost(loop: VirtualLoop) -> None:
    """Let all come to rest, and look at the account."""
    loop.come_to_rest()
    account = loop.virtual.finish()
    assert account.is_clean, account
    assert 0 < account.lost == account.excused
    assert (account.repeated, account.out_of_order) == (0, 0)


@ON_BOTH
def test_two_brokers_die_and_come_back_and_only_what_had_to_cross_them_is_lost(loop_with: LoopWith) -> None:
    """The repair takes them out, later plans take them in; then all clients are connected again."""
    loop = loop_with(Outage(OutageKind.DEATH, DEAD, DEATH_S, BACK_S))
    loop.run_for(END_S * 1_000)
    assert loop.finish()
    done = in_force(loop)
    assert [set(plan.brokers_lost) for plan in done if plan.brokers_lost] == [set(DEAD)]
    assert loop.loop.state.plan_log.present.brokers == loop.inventory.brokers
    assert {broker.core.epoch for broker in loop.virtual.overlay.brokers.values()} == {done[-1].epoch_to}
    overlay = loop.virtual.overlay
    assert [one.waiting_count for one in (overlay.users, overlay.publishers, overlay.subscribers)] == [0, 0, 0]
    assert_only_the_excused_is_lost(loop)


@ON_BOTH
def test_a_suspended_broker_that_is_declared_dead_comes_back_without_a_repeat(loop_with: LoopWith) -> None:
    """It has outlived its being declared dead: what it still sends then is taken by nobody."""
    loop = loop_with(Outage(OutageKind.SUSPENSION, ("b03",), DEATH_S, BACK_S))
    loop.run_for(END_S * 1_000)
    assert loop.finish()
    assert [set(plan.brokers_lost) for plan in in_force(loop) if plan.brokers_lost] == [{"b03"}]
    assert "b03" in loop.loop.state.plan_log.present.brokers
    loop.come_to_rest()
    account = loop.virtual.finish()
    assert account.is_clean, account
