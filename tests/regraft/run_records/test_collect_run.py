from dataclasses import replace

import msgspec
import pytest

from regraft.controller.settings.controller_settings import AssemblyLimits, LinkSettings
from regraft.run_records.collect_run import (
    StoredRun,
    assemble_windows,
    changes_found_ms,
    compare_overlays,
    configurations_of,
    cost_shadows,
    fleets_of,
    plan_outcomes,
    window_costs,
)
from regraft.run_records.run_record import ShadowRun
from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.plan import ClientMove, PlanPhase
from regraft.schemas.plan_life import LIFE
from regraft.schemas.state import BrokerCompleteness, LinkRtt, PublisherDelivery, StateRow, WindowClosed
from tests.controller.small_kinds import tree_kind
from tests.regraft.canned_run import BROKERS, GOOD_LINKS, START_MS, small_inventory, small_plan

WINDOW_MS = 5_000


def _window(turn: int, epoch: int = 0, missing: str = "") -> list[StateRow | WindowClosed]:
    start_ms = START_MS + turn * WINDOW_MS
    end_ms = start_ms + WINDOW_MS
    rows: list[StateRow | WindowClosed] = [
        StateRow(
            start_ms,
            end_ms,
            "delivery",
            f"ibm {broker}",
            delivery=PublisherDelivery("ibm", broker, 4, 4, 400, (turn,), (0xF,), (0,)),
        )
        for broker in ("b00", "b01")
    ]
    brokers = tuple(
        BrokerCompleteness(broker, 1, turn * 20, turn * 20 + 19, 10 if broker == missing else 20, 20, epoch, epoch)
        for broker in BROKERS
    )
    return [*rows, WindowClosed(start_ms, end_ms, 1, {"delivery": 2}, brokers, 0)]


def _moved_window(turn: int, home: str, epoch: int) -> list[StateRow | WindowClosed]:
    """Return a window in which ibm publishes at a home, and only b00 wants it."""
    start_ms = START_MS + turn * WINDOW_MS
    rows: list[StateRow | WindowClosed] = [
        StateRow(
            start_ms,
            start_ms + WINDOW_MS,
            "delivery",
            f"ibm {broker}",
            delivery=PublisherDelivery(
                "ibm", broker, 4, 4, 400, (turn,), (0xF if broker == "b00" else 0,), (0xF if broker == home else 0,)
            ),
        )
        for broker in sorted({"b00", home})
    ]
    brokers = tuple(
        BrokerCompleteness(broker, 1, turn * 20, turn * 20 + 19, 20, 20, epoch, epoch) for broker in BROKERS
    )
    return [*rows, WindowClosed(start_ms, start_ms + WINDOW_MS, 1, {"delivery": len(rows)}, brokers, 0)]


def test_compared_overlays_have_their_own_publisher_homes() -> None:
    """The bootstrap is costed with the publisher at its first home, the final overlay with it at its last."""
    inventory = small_inventory()
    plan = msgspec.structs.replace(
        small_plan(),
        links_removed=(),
        links_added=(),
        links_target=inventory.bootstrap.links,
        moves=(ClientMove("ibm", "b01", "b00"),),
    )
    records = [*_moved_window(0, "b01", 0), *_moved_window(1, "b00", 1)]
    closed = assemble_windows(records, inventory, AssemblyLimits())
    stored = StoredRun(closed, (plan,), configurations=configurations_of((plan,), inventory))
    away, near = 4 * (50 + 1.5) / 5, 4 * 0.5 / 5
    costs = window_costs(stored, tree_kind(inventory))
    assert [cost.cost_per_s for cost in costs] == pytest.approx([away, near])
    assert [cost.cost_bootstrap_per_s for cost in costs] == pytest.approx([away, away])
    comparison = compare_overlays(stored, tree_kind(inventory), START_MS + 10_000)
    assert comparison is not None
    assert (comparison.before.total_per_s, comparison.after.total_per_s) == pytest.approx((away, near))
    shadows = [
        ShadowRun("stays", overlay={"links": inventory.bootstrap.links}),
        ShadowRun("moves", overlay={"links": inventory.bootstrap.links}, homes={"ibm": "b00"}),
    ]
    costed = cost_shadows(shadows, stored, tree_kind(inventory), START_MS + 10_000)
    assert [shadow.final_cost_per_s for shadow in costed] == pytest.approx([away, near])


def test_links_cost_what_was_measured_before_the_window() -> None:
    """A link of cost 30 that takes ten times as long costs 300 from the window after the second such measurement."""
    inventory = small_inventory()
    closed = assemble_windows([*_moved_window(0, "b01", 0), *_moved_window(1, "b01", 0)], inventory, AssemblyLimits())
    slow = LinkRtt("b00", "b03", 600.0, 600.0)
    windows = [replace(closed[0], end_ms=START_MS + turn * WINDOW_MS, rtts=(slow,)) for turn in range(1, 4)]
    fleets = fleets_of(windows, inventory, LinkSettings())
    stored = StoredRun(tuple(windows), configurations=configurations_of((), inventory), fleets=fleets)
    costs = [cost.cost_per_s for cost in window_costs(stored, tree_kind(inventory))]
    assert costs == pytest.approx([4 * (50 + 1.5) / 5] * 2 + [4 * (20 + 300 + 1.5) / 5])
    assert stored.links_corrected() == 1
    fleets = fleets_of(windows, inventory, LinkSettings(cost_per_ms=0.0))
    assert replace(stored, fleets=fleets).links_corrected() == 0


def _stored(*windows: list[StateRow | WindowClosed], phase: PlanPhase = PlanPhase.COMPLETED) -> StoredRun:
    inventory = small_inventory()
    plans = (small_plan(phase),)
    records = [record for window in windows for record in window]
    closed = assemble_windows(records, inventory, AssemblyLimits())
    return StoredRun(closed, plans, configurations=configurations_of(plans, inventory))


def test_stored_records_in_any_order_or_repeated_give_the_same_windows() -> None:
    """Topics are read partition by partition, and a micro-batch may have been written twice."""
    records = [*_window(0), *_window(1), *_window(2)]
    once = assemble_windows(records, small_inventory(), AssemblyLimits())
    again = assemble_windows([*reversed(records), *records], small_inventory(), AssemblyLimits())
    assert [window.end_ms for window in once] == [window.end_ms for window in again]
    assert [window.sets.notification_count for window in again] == [4, 4, 4]


KIND = tree_kind(small_inventory())


def test_windows_are_costed_on_the_overlay_of_their_epoch() -> None:
    """A window of epoch 1 is costed on the plan's tree, and both windows on the bootstrap overlay."""
    costs = window_costs(_stored(_window(0), _window(1, epoch=1)), KIND)
    # Bootstrap: 4 notifications over b00-b03 (30) and b03-b01 (20), at three brokers of 0.5; epoch 1: b00-b01 (10).
    assert costs[0].cost_per_s == costs[0].cost_bootstrap_per_s == costs[1].cost_bootstrap_per_s
    assert costs[0].cost_per_s == pytest.approx(4 * (50 + 1.5) / 5)
    assert costs[1].cost_per_s == pytest.approx(4 * (10 + 1.0) / 5)


def test_overlays_are_compared_on_complete_windows_within_the_traffic() -> None:
    """An incomplete window, or one that reaches past the end of traffic, does not count."""
    stored = _stored(_window(0), _window(1, missing="b02"), _window(2))
    comparison = compare_overlays(stored, KIND, START_MS + 3 * WINDOW_MS - 1)
    assert comparison is not None
    assert comparison.window_count == 1
    assert comparison.cost_reduction_share == pytest.approx(1 - 11 / 51.5)
    assert compare_overlays(stored, KIND, START_MS) is None


@pytest.mark.parametrize("phase", list(PlanPhase))
def test_epochs_of_committed_plans_are_known(phase: PlanPhase) -> None:
    """Windows have them while brokers still drain the old overlay; no broker ever stamps those of other plans."""
    assert list(_stored(_window(0), phase=phase).configurations) == ([0, 1] if LIFE[phase].is_committed else [0])


def test_the_final_overlay_is_that_of_the_last_committed_plan() -> None:
    """An aborted plan leaves the overlay as it was."""
    comparison = compare_overlays(_stored(_window(0), phase=PlanPhase.ABORTED), KIND, START_MS + 10_000)
    assert comparison is not None
    assert comparison.final.epoch == 0
    assert comparison.cost_reduction_share == 0


def test_the_outcome_of_a_plan_is_its_last_observation() -> None:
    """Phases are reported as events, too, but only gains and aborts are outcomes."""
    events = [
        AdaptationEvent("plan-1", kind, Severity.INFO, time_ms, kind.value, "plan-1")
        for time_ms, kind in enumerate((EventKind.PLAN_STARTED, EventKind.PLAN_COMPLETED, EventKind.PLAN_PHASE))
    ]
    assert plan_outcomes(events) == {"plan-1": "plan_completed"}


def test_a_shadow_planners_tree_is_costed_on_the_stored_windows() -> None:
    """The controller gives its last tree; its cost on the traffic comes from Kafka alone."""
    shadow = ShadowRun("swap_links_ci", overlay={"links": GOOD_LINKS})
    stored = _stored(_window(0), _window(1))
    (costed,) = cost_shadows([shadow], stored, KIND, START_MS + 10_000)
    assert costed.final_cost_per_s == pytest.approx(4 * (10 + 1.0) / 5)
    assert cost_shadows([shadow], stored, KIND, START_MS) == (shadow,)


def test_a_shadow_that_started_again_is_not_credited_with_what_was_saved_before() -> None:
    """After a death it starts from the overlay that the acting planner has made; without plans it saves nothing."""
    shadow = ShadowRun("swap_links_ci", overlay={"links": GOOD_LINKS}, epoch_start=1)
    stored = _stored(_window(0), _window(1))
    (costed,) = cost_shadows([shadow], stored, KIND, START_MS + 10_000)
    assert costed.saved_share == 0
    (first,) = cost_shadows([replace(shadow, epoch_start=0)], stored, KIND, START_MS + 10_000)
    assert first.saved_share == pytest.approx(1 - 11 / 51.5)


def test_windows_have_what_the_controller_knew_of_shadows() -> None:
    """A window that no shadow saw has no cost for it."""
    costs = window_costs(_stored(_window(0), _window(1)), KIND, {START_MS + 10_000: {"swap_links_ci": 7.0}})
    assert [dict(cost.shadows_per_s) for cost in costs] == [{}, {"swap_links_ci": 7.0}]


def test_reported_changes_of_traffic_are_collected() -> None:
    """Each such event gives the time of the change; other events do not count."""
    details = {"since_ms": str(START_MS + 5_000), "statistic": "churn"}
    events = [
        AdaptationEvent("traffic", EventKind.CHANGE_DETECTED, Severity.INFO, START_MS + 12_000, "", details=details),
        AdaptationEvent("plan-1", EventKind.PLAN_STARTED, Severity.INFO, START_MS, ""),
    ]
    assert changes_found_ms(events) == (START_MS + 5_000,)
