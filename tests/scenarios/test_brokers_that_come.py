"""Whole runs on the virtual clock in which a broker announces itself and is admitted, without loss."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.settings.member_settings import MemberSettings
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.emulator.newcomers import newcomer_of
from regraft.producers.emulator.place_overlay import place_overlay, place_ring
from regraft.producers.virtual_overlay import VirtualSettings
from regraft.producers.workloads.checkin_settings import CheckinSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.member import MemberState
from regraft.schemas.order import Order, OrderKind
from regraft.virtual_runs.virtual_loop import VirtualLoop
from tests.scenarios.closed_loop import DESCENTS_ONLY
from tests.scenarios.test_closed_loop import WORKLOAD
from tests.scenarios.test_closed_loop_ring import CHECKINS

COMES_S = 30
ACTING = ControllerSettings(bootstrap="virtual", inventory_path=Path("virtual"), dry_run=False, planners=DESCENTS_ONLY)


def tree(seed: int) -> tuple[Inventory, WorkloadSettings | CheckinSettings, ControllerSettings]:
    """Return 16 brokers on measured hosts and a random tree."""
    return place_overlay(16, 8, random.Random(seed)), WORKLOAD, ACTING


def ring(seed: int) -> tuple[Inventory, WorkloadSettings | CheckinSettings, ControllerSettings]:
    """Return 16 brokers on a ring and 300 mobile users."""
    return place_ring(16, random.Random(seed)), CHECKINS, replace(ACTING, planner="place_users_dynatops")


def loop_with(overlay: Callable[..., tuple[Inventory, object, ControllerSettings]], *, admits: bool) -> VirtualLoop:
    """Return an overlay with a newcomer that announces the costs of three links."""
    inventory, workload, settings = overlay(1)
    text = f"x01 at {COMES_S} by b03=400,b05=20,b09=300"
    virtual = VirtualSettings(seed=1, newcomers=(newcomer_of(text),))
    chosen = replace(settings, seed=1, members=MemberSettings(admit_announced=admits))
    return VirtualLoop(inventory, workload, chosen, virtual)  # type: ignore[arg-type]


def member_state(loop: VirtualLoop) -> MemberState | None:
    """Return the state of the newcomer as a member."""
    member = loop.loop.state.fleet.members.get("x01")
    return None if member is None else member.state


def finish(loop: VirtualLoop) -> None:
    """End the run, and check that everything arrived once."""
    assert loop.finish()
    loop.virtual.finish()
    account = loop.virtual.ledger.snapshot()
    assert account.is_clean, account
    assert account.delivered > 1_000


@pytest.mark.parametrize("overlay", [tree, ring])
def test_an_announced_broker_joins_without_loss_and_serves(
    overlay: Callable[..., tuple[Inventory, object, ControllerSettings]],
) -> None:
    """In a tree it joins as a leaf at its cheapest link; from then on windows are complete with it."""
    loop = loop_with(overlay, admits=True)
    loop.run_for((COMES_S - 1) * 1_000)
    assert member_state(loop) is None
    loop.run_for(26_000)
    assert member_state(loop) is MemberState.IN_SERVICE
    joins = [plan for plan in loop.plans if "x01" in plan.brokers_target]
    assert joins[0].brokers_lost == ()
    present = loop.loop.state.plan_log.present
    if isinstance(present, TreeConfiguration):
        assert [pair for pair in joins[0].links_added if "x01" in pair] == [("b05", "x01")]
    loop.run_for(20_000)
    window = loop.loop.state.newest
    assert window is not None
    assert window.is_complete
    assert "x01" in window.boots
    finish(loop)


def test_a_broker_that_is_not_admitted_stays_silent_until_it_is_added() -> None:
    """It keeps announcing itself and sends no telemetry before an order admits it."""
    loop = loop_with(tree, admits=False)
    loop.run_for(100_000)
    assert member_state(loop) is None
    (shown,) = loop.loop.state.announced
    assert (shown.broker, shown.to_do) == ("x01", "`regraft members add x01` admits it")
    assert loop.loop.state.newest is not None
    assert "x01" not in loop.loop.state.newest.boots
    facts = newcomer_of("x01 at 0 by b05=20").facts
    now_ms = int(loop.virtual.now_ms)
    loop.ports.orders.records.append(Order("x01", OrderKind.ADD, "ann", "it asks", now_ms, facts=facts))
    loop.run_for(25_000)
    assert member_state(loop) is MemberState.IN_SERVICE
    assert loop.loop.state.announced == ()
    finish(loop)
