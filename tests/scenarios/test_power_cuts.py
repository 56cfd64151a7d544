"""A whole site loses power and comes back: its brokers join again by themselves, by one plan."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from regraft.producers.emulator.outage_schedule import outage_of
from regraft.schemas.event import EventKind
from regraft.schemas.plan import PlanPhase
from regraft.virtual_runs.virtual_loop import VirtualLoop
from tests.scenarios.test_closed_loop_scot import scot_loop
from tests.scenarios.test_healing_loop import ring_with, tree_with


def scot_with(seed: int, *outages: str) -> VirtualLoop:
    """Return twelve brokers in three clusters; some die."""
    return scot_loop(seed, *map(outage_of, outages))


@pytest.mark.parametrize(
    ("overlay_with", "count", "for_s"),
    [
        (tree_with, 16, 2),
        (tree_with, 10, 30),
        (ring_with, 16, 30),
        (ring_with, 10, 2),
        (scot_with, 12, 2),
        (scot_with, 8, 30),
    ],
    ids=["tree-all", "tree-most", "ring-all", "ring-most", "scot-all", "scot-most"],
)
def test_brokers_that_all_restart_serve_again_without_an_order(
    overlay_with: Callable[..., VirtualLoop], count: int, for_s: int
) -> None:
    """Each reports another boot, so monitoring has not failed; clients connect again and get what is published then."""
    whom = ",".join(f"b{number:02}" for number in range(count))
    loop = overlay_with(1, f"death {whom} at 40 for {for_s}")
    loop.run_for(140_000)
    state = loop.loop.state
    assert state.fleet.serving == loop.inventory.brokers
    assert state.plan_log.present.brokers == loop.inventory.brokers
    assert state.newest is not None
    assert state.newest.is_complete
    assert state.newest.sets.notification_count > 0
    executed = [plan for plan in loop.plans if plan.brokers_lost and plan.phase is not PlanPhase.ABORTED]
    assert set(executed[0].brokers_lost) == set(whom.split(","))
    assert len(executed) == 1
    doubts = [event for event in loop.ports.events.emitted if event.kind is EventKind.DEATHS_IMPLAUSIBLE]
    assert doubts == [] or for_s == 30
    loop.settle()
    assert loop.virtual.finish().is_clean
