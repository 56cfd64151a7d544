"""Seeded runs of the control loop on the virtual clock: the overlay gets cheaper and nothing is lost."""

import random

import pytest

from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.plan import Plan, PlanPhase
from tests.scenarios.closed_loop import ClosedLoop

WORKLOAD = WorkloadSettings(
    publisher_count=15,
    notifications_per_s=2.0,
    interested_broker_count=5,
    lifetime_s_mean=10.0,
    regime_change_s=50.0,
)


def small_overlay(seed: int, **options: object) -> ClosedLoop:
    """Return 16 brokers on measured hosts, a random tree and quotes with churn and one regime change."""
    return ClosedLoop(place_overlay(16, 8, random.Random(seed)), WORKLOAD, seed, **options)  # type: ignore[arg-type]


def assert_account_is_clean(loop: ClosedLoop) -> None:
    """Check the ledger, and that enough was owed to be meaningful."""
    account = loop.virtual.finish()
    assert (account.lost, account.repeated, account.out_of_order, account.unexpected) == (0, 0, 0, 0)
    assert account.delivered == account.expected > 5_000


def cost_share(loop: ClosedLoop) -> float:
    """Return the present overlay's cost divided by the bootstrap's, both on the last windows."""
    points = loop.ports.view.shown.cost[-3:]
    return sum(point.cost_per_s for point in points) / sum(point.cost_bootstrap_per_s for point in points)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_loop_makes_a_random_tree_cheaper_and_loses_nothing(seed: int) -> None:
    """Swaps under churn and a regime change cut the cost by at least a quarter, with a clean account."""
    loop = small_overlay(seed)
    loop.run_for(100_000)
    loop.finish()
    completed = [plan for plan in loop.plans if plan.phase is PlanPhase.COMPLETED]
    assert len(completed) >= 2
    assert cost_share(loop) <= 0.75
    assert_account_is_clean(loop)


def test_controllers_that_keep_dying_lose_and_repeat_nothing() -> None:
    """A controller replaced every 0.7 s executes each of its plans once, with commands delayed at random."""
    rng = random.Random(5)
    loop = small_overlay(3, command_delay_ms=lambda _: rng.uniform(1, 400))
    for _ in range(110):
        loop.run_for(700)
        loop.kill_controller()
    loop.run_for(20_000)
    loop.finish()
    assert any(plan.phase is PlanPhase.COMPLETED for plan in loop.plans)
    assert_each_epoch_follows_from_its_plan(loop)
    assert_account_is_clean(loop)


def test_a_moved_publisher_waits_only_while_its_homes_await_the_command() -> None:
    """Commands take up to 400 ms, each a random time; no publisher waits longer, on average at most half of that."""
    rng = random.Random(5)
    loop = small_overlay(5, command_delay_ms=lambda _: rng.uniform(1, 400))
    loop.run_for(60_000)
    silences = loop.virtual.overlay.publishers.moves
    assert silences.moved >= 3
    assert 0 < silences.wait_ms_max < 400
    assert silences.wait_ms_sum / silences.moved < 200
    loop.finish()
    assert_account_is_clean(loop)


def test_a_stopping_controller_finishes_its_plan() -> None:
    """Winding down ends the transition under way and begins no other."""
    loop = small_overlay(1)
    while not loop.loop.is_transition_running:
        loop.step()
    loop.loop.wind_down()
    loop.run_for(40_000)
    assert not loop.loop.is_transition_running
    assert [plan.phase for plan in loop.plans] == [PlanPhase.VERIFYING]
    assert_account_is_clean(loop)


def test_the_same_seed_gives_the_same_plans() -> None:
    """Two runs of one seed make the same decisions to the byte."""

    def plans() -> list[Plan]:
        loop = small_overlay(4)
        loop.run_for(40_000)
        return loop.plans

    first, second = plans(), plans()
    assert first
    assert first == second


def test_the_reported_cost_is_the_brokers_real_cost() -> None:
    """The cost from delivery sets agrees with the notifications that links really carried, to a few per cent."""
    loop = small_overlay(6)
    loop.run_for(32_000)
    points = [point for point in loop.ports.view.shown.cost if point.is_complete and point.is_one_epoch]
    assert len(points) >= 3
    for point in points[1:]:
        # Counters include what is under way at the window's edges, and copies towards subscriptions that just ended.
        assert point.cost_counted_per_s == pytest.approx(point.cost_per_s, rel=0.1)


def assert_each_epoch_follows_from_its_plan(loop: ClosedLoop) -> None:
    """Check that every broker ends in the last completed plan's tree, and that no epoch was used twice."""
    plans = loop.plans
    assert len({plan.epoch_to for plan in plans}) == len(plans)
    completed = [plan for plan in plans if plan.phase is PlanPhase.COMPLETED]
    for core in loop.virtual.cores.values():
        assert core.epoch == completed[-1].epoch_to
        assert core.state.tables[core.epoch].configuration.links == completed[-1].links_target


def test_an_empty_window_costs_nothing() -> None:
    """Without notifications every tree costs 0, so there is nothing to gain."""
    inventory = place_overlay(5, 4, random.Random(1))
    empty = DeliverySets.of(inventory.brokers, {}, 5.0)
    assert overlay_cost(inventory.bootstrap, inventory, empty).total_per_s == 0
