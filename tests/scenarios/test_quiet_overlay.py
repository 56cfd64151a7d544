"""A settled overlay under stationary traffic with churn is left alone: gains that only noise suggests are refused."""

import dataclasses
import functools
import random
from pathlib import Path

import msgspec
import pytest

from regraft.controller.decide.decide_plan import decide_plan
from regraft.controller.decide.judge_proposals import Situation
from regraft.controller.kinds.tree.tree_state import TreeState
from regraft.controller.planners.planner_registry import planners_of
from regraft.controller.planners.tree.swap_links_cost import SearchSettings
from regraft.controller.settings.controller_settings import AssemblyLimits, ControllerSettings
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.run_records.collect_run import assemble_windows, configurations_of
from regraft.schemas.plan import Verdict
from regraft.streaming.reference_aggregator import ReferenceAggregator
from tests.controller.small_kinds import tree_kind
from tests.scenarios.closed_loop import DESCENTS_ONLY, GRACE_MS, ClosedLoop

QUIET_MS = 30 * 60_000
WINDOW_MS = 15_000
FLUSH_MS = 1_000.0
DEGREE_MAX = 8
# A few at each decision: all of them would take half of the time.
FEW_KICKS = {"swap_links_cost": SearchSettings(escape_words_max=1_000_000)}
# Each subscription incarnations two windows: every window has much that the one before did not have.
WORKLOAD = WorkloadSettings(
    publisher_count=15, notifications_per_s=0.3, interested_broker_count=5, lifetime_s_mean=30.0
)


def settings_of(planner: str, **changes: object) -> ControllerSettings:
    values = {"bootstrap": "virtual", "inventory_path": Path("virtual"), "planner": planner, "dry_run": False}
    return ControllerSettings(**(values | changes))  # type: ignore[arg-type]


@functools.cache
def place_of(seed: int) -> Inventory:
    return place_overlay(16, DEGREE_MAX, random.Random(seed))


@functools.cache
def traffic_of(seed: int) -> list[ClosedWindow]:
    """Return all windows of the half hour; what is delivered is the same on any tree."""
    inventory = place_of(seed)
    virtual = VirtualOverlay(inventory, WORKLOAD, VirtualSettings(seed=seed, flush_ms=FLUSH_MS))
    aggregator = ReferenceAggregator(WINDOW_MS, GRACE_MS)
    virtual.run_for(QUIET_MS)
    for batch in virtual.telemetry.batches:
        aggregator.take(msgspec.to_builtins(batch))
    records = [record for window in aggregator.advance() for record in (*window.rows, window.marker)]
    return [window for window in assemble_windows(records, inventory, AssemblyLimits()) if window.is_complete]


@functools.cache
def settled(seed: int, planner: str) -> Inventory:
    """Return the overlay with the tree at which a planner that knows the whole half hour finds nothing to gain."""
    inventory, windows = place_of(seed), traffic_of(seed)
    greedy = settings_of(
        planner, decision=DecisionSettings(changes_per_plan_max=100, noise_factor=0.0, gain_share_min=0.0)
    )
    tree = inventory.bootstrap
    while True:
        # The judge wants a window of the present epoch.
        newest = dataclasses.replace(windows[-1], epoch_min=tree.epoch, epoch_max=tree.epoch, epochs={})
        state = TreeState(tree, inventory, (*windows[:-1], newest))
        situation = Situation(state, newest.end_ms, tree_kind(inventory, DEGREE_MAX), price_per_s=0.0)
        plan = decide_plan(situation, planners_of(planner, greedy), tree.epoch + 1, greedy).plan
        if plan is None:
            bootstrap = TreeConfiguration.of(0, inventory.brokers, tree.links)
            return dataclasses.replace(inventory, bootstrap=bootstrap)
        tree = tree.replaced(plan.epoch_to, plan.links_removed, plan.links_added)


def gains_per_s(loop: ClosedLoop, windows: list[ClosedWindow]) -> list[float]:
    """Return the mean saving of each plan over all windows of the half hour."""
    overlays = configurations_of(loop.plans, loop.inventory)

    def cost_per_s(epoch: int) -> float:
        overlay = overlays[epoch]
        seen = [window.sets_at(overlay.home_of) for window in windows]
        return sum(overlay_cost(overlay, loop.inventory, sets).total_per_s for sets in seen) / len(seen)

    return [cost_per_s(plan.epoch_from) - cost_per_s(plan.epoch_to) for plan in loop.plans]


@pytest.mark.parametrize(("planner", "seed", "plans_max"), [("swap_links_cost", 3, 0), ("swap_links_ci", 4, 2)])
def test_a_settled_overlay_is_left_alone(planner: str, seed: int, plans_max: int) -> None:
    """In half an hour the default planner makes no plan; another makes a few, and these do save.

    Plans cost nothing, so that only noise speaks against them. On few windows Cost and Interest proposes swaps that it
    does not propose on all of them, some of which save.
    """
    free = DecisionSettings(pay_back_s=1e9, pay_back_lifetimes=1e9, gain_share_min=0.0)
    chosen = settings_of(planner, planners=FEW_KICKS, decision=free)
    loop = ClosedLoop(settled(seed, planner), WORKLOAD, seed, chosen, window_ms=WINDOW_MS, flush_ms=FLUSH_MS)
    loop.run_for(QUIET_MS)
    shown = loop.ports.view.shown
    gains = gains_per_s(loop, traffic_of(seed))
    assert len(loop.plans) <= plans_max, (gains, [plan.proposals for plan in loop.plans])
    assert sum(gains) >= 0, (gains, [plan.proposals for plan in loop.plans])
    assert shown.windows_closed - shown.windows_incomplete >= QUIET_MS // WINDOW_MS - 2
    assert shown.refusals[Verdict.GAIN_WITHIN_NOISE] >= 10


def test_publishers_move_if_that_really_saves_and_then_stay() -> None:
    """On a settled tree with publishers at random homes every plan saves, and at most one is late.

    Whether in one plan or in several, moves save at least 4 % of the total cost; the best homes would save 9.7 %.
    """
    inventory = settled(3, "swap_links_cost")
    # No link of a settled tree should move, so the search for them is only a descent: more would take most of the time.
    chain = settings_of("swap_links_cost+relocate_publishers_joint", planners=DESCENTS_ONLY)
    loop = ClosedLoop(inventory, WORKLOAD, 3, chain, window_ms=WINDOW_MS, flush_ms=FLUSH_MS)
    loop.run_for(QUIET_MS)
    gains = gains_per_s(loop, traffic_of(3))
    assert gains
    assert min(gains) > 0, gains
    assert sum(gains) > 0.04 * loop.plans[0].cost_before_per_s
    assert sum(len(plan.moves) for plan in loop.plans) >= 2
    assert not any(plan.links_added for plan in loop.plans)
    began_ms = loop.virtual.settings.start_ms
    late = [plan for plan in loop.plans if plan.history[0].time_ms - began_ms > QUIET_MS / 5]
    assert len(late) <= 1
