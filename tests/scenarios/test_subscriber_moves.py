"""A subscriber of a tree changes its home while others publish: nothing is lost or repeated, all in order."""

import random
from dataclasses import replace

import pytest

from regraft.controller.settings.member_settings import MemberSettings
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.command import CommandPhase, Outcome
from regraft.schemas.member import MemberState
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.plan import ClientMove, HomeMove
from regraft.virtual_runs.virtual_loop import VirtualLoop
from tests.producers.drive_plan import answered, drive_plan, random_swaps, send_phase
from tests.scenarios.test_brokers_that_come import ACTING
from tests.scenarios.test_closed_loop import WORKLOAD
from tests.scenarios.test_publisher_moves import assert_clean, line_overlay, next_epoch


def home_of(virtual: VirtualOverlay, name: str) -> str:
    return virtual.overlay.subscribers._subscribers[name].home


@pytest.mark.parametrize("home_to", ["b00", "b01", "b03"])
def test_a_subscriber_moves_while_a_publisher_publishes(home_to: str) -> None:
    """It moves to the publisher's home, towards it or away from it."""
    virtual = line_overlay(4)
    virtual.run_for(200.0)
    drive_plan(virtual, next_epoch(virtual), (ClientMove("s-b02", "b02", home_to),))
    virtual.run_for(2_000.0)
    assert_clean(virtual.finish(), 4 * 600)
    assert home_of(virtual, "s-b02") == home_to
    assert virtual.overlay.subscribers.moved_count == 1
    assert virtual.clients.connected["s-b02"].home == home_to


def test_all_subscribers_of_a_broker_move_with_the_publisher_of_another() -> None:
    """The plan names only the broker."""
    virtual = line_overlay(4)
    virtual.run_for(200.0)
    drive_plan(virtual, next_epoch(virtual), (ClientMove("p", "b00", "b03"),), emptied=(HomeMove("b02", "b01"),))
    virtual.run_for(2_000.0)
    assert_clean(virtual.finish(), 4 * 600)
    assert {home_of(virtual, f"s-{broker}") for broker in ("b01", "b02")} == {"b01"}
    assert not virtual.cores["b02"].routing.interests.locals


def test_a_move_to_a_broker_outside_is_refused() -> None:
    """No broker could take the subscribers."""
    virtual = line_overlay(3)
    target = next_epoch(virtual)
    send_phase(virtual, target, CommandPhase.PREPARE, emptied=(HomeMove("b01", "x"),))
    virtual.run_for(10.0)
    refused = {result.reason for result in virtual.results.results if result.outcome is Outcome.REFUSED}
    assert refused == {"subscribers of b01 cannot move to x: it is not in the overlay"}


@pytest.mark.parametrize("seed", range(8))
def test_subscribers_move_with_links_and_publishers_under_real_traffic(seed: int) -> None:
    """Stock quotes, churn, and five transitions that exchange links and empty two brokers of subscribers at once."""
    rng = random.Random(seed)
    inventory = place_overlay(20, 5, rng)
    workload = WorkloadSettings(publisher_count=12, interested_broker_count=5, lifetime_s_mean=4.0)
    jitter = random.Random(seed + 1)
    settings = VirtualSettings(seed=seed, flush_ms=None, command_delay_ms=lambda _: jitter.uniform(1.0, 150.0))
    virtual = VirtualOverlay(inventory, workload, settings)
    virtual.run_for(5_000.0)
    target = inventory.bootstrap
    for _ in range(5):
        target = random_swaps(target, rng.randint(0, 3), inventory.degree_max, rng)
        homes = sorted({one.home for one in virtual.overlay.subscribers._subscribers.values()})
        emptied = rng.sample(homes, 2)
        moves = tuple(HomeMove(home, rng.choice([one for one in inventory.brokers if one != home])) for home in emptied)
        drive_plan(virtual, target, emptied=tuple(sorted(moves)))
        virtual.run_for(1_000.0)
    assert_clean(virtual.finish(), 1_000)
    assert virtual.overlay.subscribers.moved_count > 20


@pytest.mark.parametrize("dies", ["b01", "b03"])
@pytest.mark.parametrize("dies_after_ms", [0.0, 5.0, 40.0, 130.0])
@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_home_dies_while_its_subscriber_moves(dies: str, dies_after_ms: float, is_prepared: bool) -> None:
    """Lost is what the dead broker held or had to pass on; the subscriber reconnects at the remaining home."""
    virtual = line_overlay(4)
    virtual.run_for(100.0)
    target, move = next_epoch(virtual), ClientMove("s-b01", "b01", "b03")
    send_phase(virtual, target, CommandPhase.PREPARE, (move,))
    if is_prepared:
        while answered(virtual, target, Outcome.PREPARED) < set(target.brokers):
            virtual.run_for(1.0)
        send_phase(virtual, target, CommandPhase.ACTIVATE)
    virtual.run_for(dies_after_ms + 1.0)
    virtual.overlay.kill(dies, notice_ms=50.0)
    virtual.run_for(500.0)
    send_phase(virtual, target, CommandPhase.RETIRE if is_prepared else CommandPhase.ABORT)
    virtual.run_for(2_500.0)
    account = virtual.finish()
    assert (account.repeated, account.out_of_order, account.unexpected, account.outstanding) == (0, 0, 0, 0)
    assert account.excused == account.lost
    assert not any(core.state.held for name, core in virtual.cores.items() if name != dies)


def test_a_broker_leaves_while_it_has_subscribers() -> None:
    """One order, one plan: its subscribers go to the nearest broker, and nothing is lost."""
    inventory = place_overlay(16, 8, random.Random(1))
    chosen = replace(ACTING, seed=1, members=MemberSettings(drain_ms_max=5_000))
    loop = VirtualLoop(inventory, WORKLOAD, chosen, VirtualSettings(seed=1))
    loop.run_for(20_000)
    tree = loop.loop.state.plan_log.present
    assert isinstance(tree, TreeConfiguration)
    subscribers = loop.virtual.overlay.subscribers._subscribers
    leaving = next(name for name in tree.brokers if any(one.home == name for one in subscribers.values()))
    now_ms = int(loop.virtual.now_ms)
    loop.ports.orders.records.append(Order(leaving, OrderKind.DRAIN, "ann", "new disks", now_ms))
    loop.run_for(60_000)
    assert leaving not in loop.loop.state.plan_log.present.brokers
    assert loop.loop.state.fleet.members[leaving].state in (MemberState.LEAVING, MemberState.LEFT)
    left = next(plan for plan in loop.plans if leaving not in plan.brokers_target and plan.subscribers_moved)
    assert left.subscribers_moved[0].home_from == leaving
    assert loop.finish()
    loop.virtual.finish()
    assert loop.virtual.ledger.snapshot().is_clean


def test_subscribers_leave_a_broker_in_maintenance() -> None:
    """It stays in the overlay and forwards; later clients leave with the next plan. Nothing is lost."""
    inventory = place_overlay(16, 8, random.Random(1))
    loop = VirtualLoop(inventory, WORKLOAD, replace(ACTING, seed=1), VirtualSettings(seed=1))
    loop.run_for(20_000)
    subscribers = loop.virtual.overlay.subscribers._subscribers
    emptied = next(name for name in inventory.brokers if any(one.home == name for one in subscribers.values()))
    now_ms = int(loop.virtual.now_ms)
    loop.ports.orders.records.append(Order(emptied, OrderKind.MAINTAIN, "ann", "new disks", now_ms, 0, True))
    loop.run_for(30_000)
    plans = [plan for plan in loop.plans if plan.subscribers_moved]
    assert {move.home_from for plan in plans for move in plan.subscribers_moved} == {emptied}
    assert loop.virtual.overlay.subscribers.moved_count > 0
    assert emptied in loop.loop.state.plan_log.present.brokers
    assert not any(plan.undoes for plan in loop.plans)
    assert loop.finish()
    loop.virtual.finish()
    assert loop.virtual.ledger.snapshot().is_clean
