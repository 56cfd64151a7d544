"""Whole runs on the virtual clock in which plans use links that were never measured."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from regraft.controller.settings.controller_settings import ControllerSettings, LinkSettings
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import Link, link
from regraft.producers.emulator.emulate_overlay import OverlayTiming, inventory_timing
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.virtual_overlay import CONTROL_SERVICE_MS, VirtualSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.event import EventKind
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.plan_life import LIFE
from regraft.virtual_runs.virtual_loop import WINDOW_MS, VirtualLoop
from tests.scenarios.closed_loop import DESCENTS_ONLY

WORKLOAD = WorkloadSettings(
    publisher_count=15,
    notifications_per_s=4.0,
    interested_broker_count=5,
    lifetime_s_mean=20.0,
    regime_change_s=None,
)
BROKERS, PROBED = 16, 6  # Each broker measures the same few peers: most links between the others are never measured.
PLACEHOLDER = 1.0  # Far below the cost of any link: a controller that believed it would use no others.
SLOW_FACTOR = 10.0
WINDOWS_MAX = 40


class UnmeasuredLinks:
    """A loop whose inventory file need not give the real link costs, and whose plans exchange one link at a time.

    ``slow`` gives by what factor a link takes longer than between its hosts. A plan begins only when the one before is
    verified, so it is the newest when it is judged.
    """

    def __init__(
        self, seed: int, inventory: Inventory, links: LinkSettings, slow: Mapping[Link, float], probes_per_s: float
    ) -> None:
        real = inventory_timing(hosts(seed), CONTROL_SERVICE_MS)

        def delay_ms(broker: str, peer: str) -> float:
            return real.link_delay_ms(broker, peer) * slow.get(link(broker, peer), 1.0)

        controller = ControllerSettings(
            bootstrap="virtual",
            inventory_path=Path("virtual"),
            dry_run=False,
            seed=seed,
            planner="swap_links_cost",
            planners=DESCENTS_ONLY,
            links=links,
            decision=DecisionSettings(changes_per_plan_max=1, cool_down_windows=2),
        )
        virtual = VirtualSettings(
            seed=seed,
            flush_ms=1_000.0,
            timing=OverlayTiming(real.service_ms, delay_ms),
            candidate_probes_per_s=probes_per_s,
            candidates_max=PROBED,
        )
        self.loop = VirtualLoop(inventory, WORKLOAD, controller, virtual)

    def plan_over(self, reason: str) -> Plan:
        """Run until a plan begins whose reason contains this text about its new link; return the plan."""
        for _ in range(WINDOWS_MAX):
            for plan in self.loop.plans:
                if reason in plan.history[0].reason:
                    return plan
            self.loop.run_for(WINDOW_MS)
        raise AssertionError(f"of {len(self.loop.plans)} plans none was made over such a link")

    def closed(self, name: str) -> Plan:
        """Run until a plan is verified; return it as it is then."""
        for _ in range(WINDOWS_MAX):
            plan = self.loop.ports.plans.stored[name]
            if LIFE[plan.phase].is_final:
                return plan
            self.loop.run_for(WINDOW_MS)
        raise AssertionError(f"{name} is still {plan.phase}")

    def undone(self, name: str) -> Plan:
        """Run until a plan is rolled back and closed; return its rollback."""
        assert self.closed(name).history[-1].reason.startswith("rolled back by ")
        (undo,) = [plan for plan in self.loop.plans if plan.undoes == name]
        return undo

    def cost_of(self, pair: Link) -> float:
        """Return the cost that the controller assumes for a link."""
        return self.loop.loop.state.fleet.inventory.cost_of_link(*pair)

    @property
    def links(self) -> tuple[Link, ...]:
        """The links of the overlay in force."""
        return self.loop.loop.state.plan_log.present.links

    def missed(self, name: str) -> list[str]:
        """Return what was reported about a plan that does not save what it predicted."""
        events = self.loop.ports.events.emitted
        return [one.text for one in events if one.kind is EventKind.GAIN_MISSED and one.plan == name]

    def run_on(self, windows: int) -> None:
        """Let this many windows pass, then let everything come to rest with a clean account."""
        self.loop.run_for(windows * WINDOW_MS)
        assert self.loop.finish()
        assert self.loop.virtual.finish().is_clean


@cache
def hosts(seed: int) -> Inventory:
    """Return hosts of PlanetLab with the real costs of links between them."""
    return place_overlay(BROKERS, 8, random.Random(seed))


def with_placeholders(seed: int, slow: Mapping[Link, float]) -> UnmeasuredLinks:
    inventory = hosts(seed)
    costs = np.full_like(inventory.link_cost, PLACEHOLDER)
    np.fill_diagonal(costs, 0.0)
    placeholders = replace(inventory, link_cost=costs)
    return UnmeasuredLinks(seed, placeholders, LinkSettings(estimate_unmeasured=True), slow, 200.0)


ESTIMATED = "is an estimate until measured"


@pytest.mark.parametrize("seed", [3, 7])
def test_a_plan_over_an_estimated_link_is_verified_with_the_measured_cost(seed: int) -> None:
    """The estimate was about right: the plan is kept, and saves what it predicted at the measured cost."""
    run = with_placeholders(seed, {})
    plan = run.plan_over(ESTIMATED)
    ((added,), fleet) = plan.links_added, run.loop.loop.state.fleet
    assert plan.history[0].reason == f"chosen; the cost of {added[0]}-{added[1]} {ESTIMATED}"
    pairs = [link(a, b) for a, b in itertools.combinations(fleet.inventory.brokers, 2)]
    assert sum(pair not in fleet.measured for pair in pairs) > len(pairs) / 4
    estimate, real = run.cost_of(added), hosts(seed).cost_of_link(*added)
    assert estimate == pytest.approx(real, rel=0.25)
    done = run.closed(plan.plan)
    assert done.phase is PlanPhase.COMPLETED
    assert done.history[-1].reason.startswith("predicted gain ")
    assert run.loop.loop.state.fleet.measured[added] == pytest.approx(real, rel=0.05)
    assert run.missed(plan.plan) == []
    assert added in run.links
    run.run_on(2)


@pytest.mark.parametrize("seed", [7])
def test_a_plan_over_a_link_ten_times_slower_than_estimated_is_rolled_back(seed: int) -> None:
    """Its first windows as a link in use show its cost; no plan returns to it afterwards."""
    expected = with_placeholders(seed, {}).plan_over(ESTIMATED)
    ((added,),) = (expected.links_added,)
    run = with_placeholders(seed, {added: SLOW_FACTOR})
    plan = run.plan_over(ESTIMATED)
    assert (plan.plan, plan.links_added) == (expected.plan, expected.links_added)  # Nothing could show it earlier.
    real = SLOW_FACTOR * hosts(seed).cost_of_link(*added)
    assert run.cost_of(added) < real / 5
    undo = run.undone(plan.plan)
    assert (undo.links_removed, undo.links_added) == (plan.links_added, plan.links_removed)
    assert run.loop.loop.state.fleet.measured[added] == pytest.approx(real, rel=0.05)
    (missed,) = run.missed(plan.plan)
    assert missed.endswith("; it is rolled back")
    run.run_on(6)
    assert added not in run.links


@pytest.mark.parametrize("seed", [2])
def test_a_plan_over_a_link_ten_times_slower_than_the_file_says_is_rolled_back(seed: int) -> None:
    """The file counts for links that were never measured, and only until they are."""
    expected = UnmeasuredLinks(seed, hosts(seed), LinkSettings(), {}, 0.0).plan_over("chosen")
    ((added,),) = (expected.links_added,)
    run = UnmeasuredLinks(seed, hosts(seed), LinkSettings(), {added: SLOW_FACTOR}, 0.0)
    plan = run.plan_over("chosen")
    assert plan.links_added == (added,)
    assert run.cost_of(added) == hosts(seed).cost_of_link(*added)
    undo = run.undone(plan.plan)
    assert (undo.links_removed, undo.links_added) == (plan.links_added, plan.links_removed)
    assert run.cost_of(added) == pytest.approx(SLOW_FACTOR * hosts(seed).cost_of_link(*added), rel=0.05)
    run.run_on(6)
    assert added not in run.links
