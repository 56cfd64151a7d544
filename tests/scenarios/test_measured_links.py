"""Whole runs on the virtual clock whose links take another time than the inventory says."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from regraft.controller.settings.controller_settings import ControllerSettings, LinkSettings
from regraft.overlay.overlay_configuration import Link, link
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.producers.emulator.emulate_overlay import OverlayTiming, inventory_timing
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.virtual_overlay import CONTROL_SERVICE_MS, VirtualSettings
from regraft.schemas.event import EventKind
from regraft.virtual_runs.virtual_loop import WINDOW_MS, VirtualLoop
from tests.scenarios.closed_loop import DESCENTS_ONLY
from tests.scenarios.test_closed_loop import WORKLOAD

SLOW_FACTOR = 10.0
STEADY = replace(WORKLOAD, regime_change_s=None)
PROBES_PER_S = 16.0
SETTLED_MS = 40_000


class SlowLinks:
    """A loop whose links take longer than the inventory says from the moment they are named."""

    def __init__(self, seed: int, settings: LinkSettings) -> None:
        inventory = place_overlay(16, 8, random.Random(seed))
        self.slow: set[Link] = set()
        timing_of_file = inventory_timing(inventory, CONTROL_SERVICE_MS)

        def delay_ms(broker: str, peer: str) -> float:
            factor = SLOW_FACTOR if link(broker, peer) in self.slow else 1.0
            return timing_of_file.link_delay_ms(broker, peer) * factor

        controller = ControllerSettings(
            bootstrap="virtual",
            inventory_path=Path("virtual"),
            dry_run=False,
            seed=seed,
            links=settings,
            shadow_planners=("swap_links_cost",),
            planners=DESCENTS_ONLY,
        )
        timing = OverlayTiming(timing_of_file.service_ms, delay_ms)
        virtual = VirtualSettings(seed=seed, timing=timing, candidate_probes_per_s=PROBES_PER_S)
        self.loop = VirtualLoop(inventory, STEADY, controller, virtual)

    @property
    def links(self) -> set[Link]:
        """The links of the overlay in force."""
        return set(self.loop.loop.state.plan_log.present.links)

    @property
    def drifts(self) -> list[str]:
        """Return what was reported about the cost model."""
        return [one.text for one in self.loop.ports.events.emitted if one.kind is EventKind.MODEL_DRIFT]

    def slow_down_one(self) -> Link:
        """Slow down the link of the overlay in force that causes most of its cost; return it."""
        state = self.loop.loop.state
        assert state.newest is not None
        costs_per_s = overlay_cost(state.plan_log.present, self.loop.inventory, state.newest.sets).links_per_s
        slow = max(costs_per_s, key=lambda pair: costs_per_s[pair])
        self.slow = {slow}
        return slow


@pytest.mark.parametrize("seed", [1, 2])
def test_a_link_ten_times_slower_than_the_file_says_is_left(seed: int) -> None:
    """It is left within a few windows and not used again; what was sent meanwhile arrives once and in order."""
    run = SlowLinks(seed, LinkSettings())
    run.loop.run_for(SETTLED_MS)
    assert run.drifts == []
    slow = run.slow_down_one()
    run.loop.run_for(8 * WINDOW_MS)
    assert slow not in run.links
    assert f"{slow[0]}-{slow[1]} " in run.drifts[0]
    assert run.loop.loop.state.fleet.measured.keys() == {slow}
    run.loop.run_for(4 * WINDOW_MS)
    assert slow not in run.links
    (shadow,) = run.loop.loop.state.shadows
    assert slow not in shadow.overlay.links  # It lives in the same world.
    changes = [one.text for one in run.loop.ports.events.emitted if one.kind is EventKind.CHANGE_DETECTED]
    assert changes == []  # The cost of a notification has changed, but the traffic is the same.
    run.loop.finish()
    assert run.loop.virtual.finish().is_clean


def test_a_slow_link_stays_if_measurements_are_turned_off() -> None:
    """With cost_per_ms 0 links cost what the inventory says."""
    run = SlowLinks(1, LinkSettings(cost_per_ms=0.0))
    run.loop.run_for(SETTLED_MS)
    slow = run.slow_down_one()
    run.loop.run_for(8 * WINDOW_MS)
    assert slow in run.links
    assert run.loop.loop.state.fleet.measured == {}


def test_a_link_outside_the_overlay_is_probed_before_it_is_used() -> None:
    """Brokers probe other peers in turn, so a planner knows what a new link would cost."""
    run = SlowLinks(1, LinkSettings())
    run.slow = {link("b00", broker) for broker in run.loop.inventory.brokers[1:]}
    run.loop.run_for(SETTLED_MS)
    measured = run.loop.loop.state.fleet.measured
    outside = run.slow - run.links
    assert len(outside & measured.keys()) > len(outside) / 2
    for pair in outside & measured.keys():
        assert measured[pair] == pytest.approx(SLOW_FACTOR * run.loop.inventory.cost_of_link(*pair), rel=0.1)
