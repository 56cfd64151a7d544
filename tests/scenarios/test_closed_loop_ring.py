"""Seeded runs of the control loop on a ring, on the virtual clock: it gets cheaper, and nothing is lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from regraft.controller.planners.ring.place_users_dynatops import PlacementSettings
from regraft.controller.planners.shared_settings import ReassignmentSettings
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.producers.emulator.place_overlay import place_ring
from regraft.producers.workloads.checkin_settings import CheckinSettings
from regraft.schemas.plan import Plan, PlanPhase
from tests.scenarios.closed_loop import ClosedLoop

CHECKINS = CheckinSettings(
    user_count=300, days_per_s=0.1, grid_rows=6, grid_columns=6, notifications_per_s=20.0, connect_spread_s=2.0
)
PLANNERS = "place_users_dynatops+reassign_ids_assignment"


def small_ring(seed: int, planner: str = PLANNERS, **options: object) -> ClosedLoop:
    """Return 16 brokers on a ring by hashed names, and 300 mobile users of a city of 36 cells."""
    settings = ControllerSettings(
        bootstrap="virtual",
        inventory_path=Path("virtual"),
        planner=planner,
        dry_run=False,
        horizon_lifetimes=1.0,
        planners={
            "reassign_ids_assignment": ReassignmentSettings(ring_free_s=60.0),
            "place_users_dynatops": PlacementSettings(user_cluster_brokers=16),
        },
    )
    return ClosedLoop(place_ring(16, random.Random(seed)), CHECKINS, seed, settings, **options)  # type: ignore[arg-type]


def cost_share(loop: ClosedLoop) -> float:
    """Return the ring's cost divided by that at the start, with users at their first homes, on the last windows."""
    points = loop.ports.view.shown.cost[-3:]
    return sum(point.cost_per_s for point in points) / sum(point.cost_bootstrap_per_s for point in points)


def assert_account_is_clean(loop: ClosedLoop) -> None:
    """Check the ledger, and that enough was owed to be meaningful."""
    account = loop.virtual.finish()
    assert account.final
    assert account.is_clean, account
    assert account.delivered > 20_000


def completed(loop: ClosedLoop) -> list[Plan]:
    """Return the plans that were executed and verified."""
    return [plan for plan in loop.plans if plan.phase is PlanPhase.COMPLETED]


@pytest.mark.parametrize("seed", [1, 2])
def test_users_and_ids_move_and_the_ring_gets_cheaper(seed: int) -> None:
    """Moving users and IDs under churn cuts the cost by at least a tenth, with a clean account."""
    loop = small_ring(seed)
    loop.run_for(80_000)
    loop.finish()
    done = completed(loop)
    assert len(done) >= 2
    assert sum(len(plan.moves) for plan in done) > 50
    assert sum(len(plan.id_moves) for plan in done) > 0
    assert cost_share(loop) <= 0.9
    cores = loop.virtual.cores.values()
    assert {core.epoch for core in cores} == {loop.loop.state.plan_log.present.epoch}
    assert_account_is_clean(loop)


def test_reassigning_ids_alone_leaves_users_where_they_are() -> None:
    """The paper's greedy algorithm runs alone."""
    loop = small_ring(3, "reassign_ids_ssbr")
    loop.run_for(60_000)
    loop.finish()
    assert completed(loop)
    assert loop.virtual.overlay.users.counts.moved == 0
    assert_account_is_clean(loop)


def test_controllers_that_keep_dying_lose_and_repeat_nothing() -> None:
    """A controller replaced every 0.7 s executes each of its plans once, with commands delayed at random."""
    rng = random.Random(5)
    loop = small_ring(4, command_delay_ms=lambda _: rng.uniform(1, 400))
    for _ in range(90):
        loop.run_for(700)
        loop.kill_controller()
    loop.run_for(20_000)
    loop.finish()
    assert loop.plans
    assert loop.virtual.overlay.users.counts.moved > 0
    assert_account_is_clean(loop)


def test_the_same_seed_makes_the_same_plans() -> None:
    """Decisions depend only on the windows and the register."""

    def plans() -> list[tuple[object, ...]]:
        loop = small_ring(6)
        loop.run_for(45_000)
        loop.finish()
        return [(plan.epoch_to, plan.moves, plan.id_moves, plan.cost_predicted_per_s) for plan in loop.plans]

    first = plans()
    assert first
    assert first == plans()
