"""Whole runs of the loop on a structured cyclic overlay, on the virtual clock: publishers move, brokers come and go."""

from __future__ import annotations

import random
from pathlib import Path

from regraft.controller.controller_settings import ControllerSettings
from regraft.overlay.scot_configuration import ScotConfiguration
from regraft.producers.emulator.outage_schedule import Outage, OutageKind
from regraft.producers.emulator.place_overlay import place_scot
from regraft.producers.virtual_overlay import VirtualSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.member import MemberState
from regraft.schemas.order import Order, OrderKind
from regraft.virtual_runs.virtual_loop import VirtualLoop
from tests.scenarios.test_closed_loop_outages import assert_only_the_excused_is_lost, in_force

QUOTES = WorkloadSettings(
    publisher_count=15, notifications_per_s=4.0, interested_broker_count=5, lifetime_s_mean=10.0, regime_change_s=50.0
)


def scot_loop(seed: int, *outages: Outage) -> VirtualLoop:
    """Twelve brokers in three clusters with fifteen publishers."""
    told = ControllerSettings(
        bootstrap="", inventory_path=Path(), dry_run=False, planner="move_publishers_scot", seed=seed
    )
    virtual = VirtualSettings(seed=seed, outages=outages)
    return VirtualLoop(place_scot(12, 3, random.Random(seed)), QUOTES, told, virtual)


def present(loop: VirtualLoop) -> ScotConfiguration:
    """Return the overlay in force."""
    overlay = loop.loop.state.plan_log.present
    assert isinstance(overlay, ScotConfiguration)
    return overlay


def test_publishers_move_and_the_overlay_gets_cheaper() -> None:
    """Under churn and a shift of interests, with a clean account."""
    loop = scot_loop(1)
    loop.run_for(60_000)
    assert loop.finish()
    done = in_force(loop)
    assert sum(len(plan.moves) for plan in done) > 5
    points = loop.ports.view.shown.cost[-3:]
    assert sum(one.cost_per_s for one in points) < sum(one.cost_bootstrap_per_s for one in points)
    account = loop.virtual.finish()
    assert account.is_clean, account
    assert account.delivered > 10_000


def test_brokers_die_and_come_back_and_only_what_had_to_cross_them_is_lost() -> None:
    """Neighbours stand in for them; then they have places of their own again."""
    dead = ("b03", "b07")
    loop = scot_loop(3, Outage(OutageKind.DEATH, dead, 20.0, 30.0))
    loop.run_for(45_000)
    assert set(present(loop).brokers) == set(loop.inventory.brokers) - set(dead)
    assert sum(len(places) > 1 for places in present(loop).places.values()) > 0
    loop.run_for(40_000)
    assert loop.finish()
    assert [set(plan.brokers_lost) for plan in in_force(loop) if plan.brokers_lost] == [set(dead)]
    assert present(loop).brokers == loop.inventory.brokers
    assert all(len(places) == 1 for places in present(loop).places.values())
    overlay = loop.virtual.overlay
    assert [one.waiting_count for one in (overlay.publishers, overlay.subscribers)] == [0, 0]
    assert_only_the_excused_is_lost(loop)


def test_a_broker_leaves_with_its_subscribers_and_loses_nothing() -> None:
    """They and its publishers go on at the broker that has its place."""
    loop = scot_loop(4)
    loop.run_for(20_000)
    order = Order("b05", OrderKind.DRAIN, "ann", "new disk", int(loop.virtual.now_ms))
    loop.ports.orders.records.append(order)
    loop.run_for(30_000)
    assert loop.loop.state.fleet.in_state(MemberState.LEFT) == ("b05",)
    assert "b05" not in present(loop).brokers
    assert loop.finish()
    account = loop.virtual.finish()
    assert account.is_clean, account
