"""Brokers die and return under the real controller on the virtual clock: repaired, admitted, accounted for."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from regraft.controller.kinds.overlay_kind import EVACUATION
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.producers.emulator.outage_schedule import Outage, OutageKind
from regraft.producers.emulator.place_overlay import place_overlay, place_ring
from regraft.producers.virtual_overlay import VirtualSettings
from regraft.producers.workloads.checkin_settings import CheckinSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.member import MemberState
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.plan import Plan
from regraft.schemas.plan_life import LIFE
from regraft.virtual_runs.virtual_loop import VirtualLoop
from tests.scenarios.closed_loop import DESCENTS_ONLY

START_MS = 1_700_000_000_000.0
DEATH_S, BACK_S, END_S = 20.0, 30.0, 100.0
DEAD = ("b03", "b07")
QUOTES = WorkloadSettings(
    publisher_count=15, notifications_per_s=4.0, interested_broker_count=5, lifetime_s_mean=10.0, regime_change_s=50.0
)

USUAL = DecisionSettings()
CHECKINS = CheckinSettings(user_count=100, notifications_per_s=40.0)
OF_PERSONS = {EVACUATION, "membership", "repair"}  # The planner given by plans that no planner proposed.
# They cannot leave a broker of a ring.
FEW_FEEDS = replace(CHECKINS, grid_rows=2, grid_columns=3)


def tree_loop(*outages: Outage, decision: DecisionSettings = USUAL) -> VirtualLoop:
    """Return twelve brokers on a random tree with fifteen publishers."""
    chosen = ControllerSettings(
        bootstrap="", inventory_path=Path(), dry_run=False, decision=decision, planners=DESCENTS_ONLY
    )
    virtual = VirtualSettings(seed=3, start_ms=START_MS, outages=outages)
    return VirtualLoop(place_overlay(12, 6, random.Random(3)), QUOTES, chosen, virtual)


def ring_loop(
    *outages: Outage, checkins: CheckinSettings = CHECKINS, decision: DecisionSettings = USUAL
) -> VirtualLoop:
    """Return twelve brokers on a ring with a hundred users."""
    chosen = ControllerSettings(
        bootstrap="", inventory_path=Path(), dry_run=False, planner="place_users_dynatops", decision=decision
    )
    virtual = VirtualSettings(seed=3, start_ms=START_MS, outages=outages)
    return VirtualLoop(place_ring(12, random.Random(3)), checkins, chosen, virtual)


ON_BOTH = pytest.mark.parametrize("loop_with", [tree_loop, ring_loop], ids=["tree", "ring"])
LoopWith = Callable[..., VirtualLoop]
ClientsAt = Callable[[VirtualLoop, str], list[str]]


def in_force(loop: VirtualLoop) -> list[Plan]:
    """Return the plans that were executed."""
    return [plan for plan in loop.plans if LIFE[plan.phase].is_in_force]


def assert_only_the_excused_is_lost(loop: VirtualLoop) -> None:
    """Let everything come to rest, and check the account."""
    loop.settle()
    account = loop.virtual.finish()
    assert account.is_clean, account
    assert 0 < account.lost == account.excused
    assert (account.repeated, account.out_of_order) == (0, 0)


@ON_BOTH
def test_two_brokers_die_and_return_and_only_what_had_to_cross_them_is_lost(loop_with: LoopWith) -> None:
    """The repair removes them, later plans admit them; then all clients are connected again."""
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
def test_a_suspended_broker_that_is_declared_dead_returns_without_a_repeat(loop_with: LoopWith) -> None:
    """It survived being declared dead: no broker takes what it still sends then."""
    loop = loop_with(Outage(OutageKind.SUSPENSION, ("b03",), DEATH_S, BACK_S))
    loop.run_for(END_S * 1_000)
    assert loop.finish()
    assert [set(plan.brokers_lost) for plan in in_force(loop) if plan.brokers_lost] == [{"b03"}]
    assert "b03" in loop.loop.state.plan_log.present.brokers
    loop.settle()
    account = loop.virtual.finish()
    assert account.is_clean, account


# --- an operator takes a broker out while another one is dead
# ------------------------------------------------------------


def order(loop: VirtualLoop, kind: OrderKind, broker: str, *, evacuate: bool = False) -> None:
    """Give an order about a broker."""
    loop.ports.orders.records.append(
        Order(broker, kind, "ann", "new disk", int(loop.virtual.now_ms), evacuate=evacuate)
    )


def publishers_at(loop: VirtualLoop, broker: str) -> list[str]:
    """Return the publishers at home at a broker."""
    known = loop.virtual.overlay.publishers
    return [name for name in known._publishers if known.home_of(name) == broker]


def users_at(loop: VirtualLoop, broker: str) -> list[str]:
    """Return the users at home at a broker."""
    known = loop.virtual.overlay.users
    return [name for name in known._users if known.home_of(name) == broker]


def planners_since(loop: VirtualLoop, since_ms: float) -> set[str]:
    """Return the planners of the executed plans that began since a time."""
    began = [plan for plan in in_force(loop) if plan.history[0].time_ms >= since_ms]
    return {one.planner for plan in began for one in plan.proposals}


@pytest.mark.parametrize(
    ("loop_with", "clients_at"), [(tree_loop, publishers_at), (ring_loop, users_at)], ids=["tree", "ring"]
)
def test_a_broker_can_be_evacuated_while_another_one_is_dead(loop_with: LoopWith, clients_at: ClientsAt) -> None:
    """Its clients are elsewhere before the dead broker returns, and decisions continue."""
    loop = loop_with(Outage(OutageKind.DEATH, ("b07",), DEATH_S, 50.0))
    loop.run_for(40_000)
    evacuated = max(set(loop.inventory.brokers) - {"b07"}, key=lambda name: (len(clients_at(loop, name)), name))
    assert clients_at(loop, evacuated)
    ordered_ms = loop.virtual.now_ms
    order(loop, OrderKind.MAINTAIN, evacuated, evacuate=True)
    loop.run_for(33_000)  # Clients just moved there follow once all windows show them.
    assert loop.loop.state.fleet.in_state(MemberState.DEAD) == ("b07",)
    assert clients_at(loop, evacuated) == []
    planners = planners_since(loop, ordered_ms)
    assert EVACUATION in planners
    assert planners - OF_PERSONS
    loop.run_for(27_000)
    assert loop.loop.state.fleet.serving == loop.inventory.brokers
    assert_only_the_excused_is_lost(loop)


def test_a_broker_can_be_drained_while_another_one_is_dead() -> None:
    """It leaves by a lossless plan, its users elsewhere, before the dead broker returns."""
    loop = ring_loop(Outage(OutageKind.DEATH, ("b07",), DEATH_S, 50.0), checkins=FEW_FEEDS)
    loop.run_for(40_000)
    drained = next(name for name in loop.inventory.brokers if users_at(loop, name) and not publishers_at(loop, name))
    ordered_ms = loop.virtual.now_ms
    order(loop, OrderKind.DRAIN, drained)
    loop.run_for(25_000)
    assert loop.loop.state.fleet.in_state(MemberState.LEFT) == (drained,)
    assert loop.loop.state.fleet.in_state(MemberState.DEAD) == ("b07",)
    assert planners_since(loop, ordered_ms) - OF_PERSONS
    loop.run_for(35_000)
    assert loop.loop.state.fleet.in_state(MemberState.DEAD) == ()
    assert loop.loop.state.plan_log.present.brokers == tuple(sorted(set(loop.inventory.brokers) - {drained}))
    assert_only_the_excused_is_lost(loop)


@pytest.mark.parametrize(
    ("loop_with", "clients_at"), [(tree_loop, publishers_at), (ring_loop, users_at)], ids=["tree", "ring"]
)
def test_a_repair_gives_all_clients_of_the_dead_a_home_however_few_other_plans_may_move(
    loop_with: LoopWith, clients_at: ClientsAt
) -> None:
    """Otherwise they would wait until their broker returns."""
    decision = DecisionSettings(moves_per_plan_max=1, users_per_plan_max=1)
    loop = loop_with(decision=decision)
    loop.run_for(DEATH_S * 1_000)
    dead = max(loop.inventory.brokers, key=lambda name: (len(clients_at(loop, name)), name))
    there = clients_at(loop, dead)
    assert len(there) > 2
    loop.virtual.overlay.kill(dead, loop.virtual.settings.notice_ms)
    loop.run_for(30_000)
    assert [set(plan.brokers_lost) for plan in in_force(loop) if plan.brokers_lost] == [{dead}]
    assert not set(there) & set(clients_at(loop, dead))
    assert_only_the_excused_is_lost(loop)
