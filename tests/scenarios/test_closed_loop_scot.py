"""Runs of the loop on a structured cyclic overlay, on the virtual clock: publishers move, brokers come and go."""

from __future__ import annotations

import random
from pathlib import Path

from msgspec import to_builtins

from regraft.controller.kinds.overlay_kind import RELIEF
from regraft.controller.planners.scot.relieve_links_scot import ReliefSettings
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.producers.emulator.emulate_overlay import inventory_timing
from regraft.producers.emulator.meter_queues import LinkMeter
from regraft.producers.emulator.outage_schedule import Outage, OutageKind
from regraft.producers.emulator.place_overlay import place_scot
from regraft.producers.emulator.starting_point import StartingPoint
from regraft.producers.virtual_overlay import VirtualSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.producers.workloads.stock_workload import load_stock_data
from regraft.schemas.event import EventKind
from regraft.schemas.member import MemberState
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.plan import Plan
from regraft.virtual_runs.virtual_loop import VirtualLoop
from tests.scenarios.test_closed_loop_outages import assert_only_the_excused_is_lost, in_force

QUOTES = WorkloadSettings(
    publisher_count=15, notifications_per_s=4.0, interested_broker_count=5, lifetime_s_mean=10.0, regime_change_s=50.0
)

BYTES_PER_MS = 10.0  # Of a link, in each direction: 50 quotes a second.


def scot_loop(
    seed: int, *outages: Outage, planner: str = "move_publishers_scot", shadows: tuple[str, ...] = ()
) -> VirtualLoop:
    """Return twelve brokers in three clusters with fifteen publishers."""
    chosen = ControllerSettings(
        bootstrap="", inventory_path=Path(), dry_run=False, planner=planner, shadow_planners=shadows, seed=seed
    )
    virtual = VirtualSettings(seed=seed, outages=outages)
    return VirtualLoop(place_scot(12, 3, random.Random(seed)), QUOTES, chosen, virtual)


def present(loop: VirtualLoop) -> ScotConfiguration:
    """Return the overlay in force."""
    overlay = loop.loop.state.plan_log.present
    assert isinstance(overlay, ScotConfiguration)
    return overlay


def test_exchanges_and_moves_make_the_overlay_cheaper() -> None:
    """Under churn and a shift of interests, with a clean account; what exchanges alone would save is known, too."""
    exchange = "exchange_places_scot"
    loop = scot_loop(1, planner=f"link_regions_scot+{exchange}+move_publishers_scot", shadows=(exchange,))
    loop.run_for(60_000)
    assert loop.finish()
    done = in_force(loop)
    assert sum(len(plan.moves) for plan in done) > 5
    assert sum(len(plan.id_moves) for plan in done) > 1
    assert sum(len(plan.links_added) for plan in done) > 0
    assert present(loop).regions != loop.inventory.bootstrap.overlay_fields()["regions"]
    view = loop.ports.view.shown
    shadow = view.shadows[exchange]
    assert present(loop).reshaped(to_builtins(shadow)).regions == shadow.regions
    points = view.cost[-3:]
    acting, alone, none = (
        sum(costs)
        for costs in zip(
            *((one.cost_per_s, *one.cost_shadows_per_s.values(), one.cost_bootstrap_per_s) for one in points),
            strict=True,
        )
    )
    assert acting < alone < none
    account = loop.virtual.finish()
    assert account.is_clean, account
    assert account.delivered > 10_000


def test_brokers_die_and_return_and_only_what_had_to_cross_them_is_lost() -> None:
    """Neighbours stand in for them; later they have their own places again."""
    dead = ("b03", "b07")
    loop = scot_loop(3, Outage(OutageKind.DEATH, dead, 20.0, 30.0))
    loop.run_for(45_000)
    assert set(present(loop).brokers) == set(loop.inventory.brokers) - set(dead)
    assert sum(len(places) > 1 for places in present(loop).slots.values()) > 0
    loop.run_for(40_000)
    assert loop.finish()
    assert [set(plan.brokers_lost) for plan in in_force(loop) if plan.brokers_lost] == [set(dead)]
    exceeded = [event.text for event in loop.loop.state.events if event.kind is EventKind.CAPS_EXCEEDED]
    assert "links, but its limit is" in exceeded[0]  # A broker that stands in has the links of several places.
    assert present(loop).brokers == loop.inventory.brokers
    assert all(len(places) == 1 for places in present(loop).slots.values())
    overlay = loop.virtual.overlay
    assert [one.waiting_count for one in (overlay.publishers, overlay.subscribers)] == [0, 0]
    assert_only_the_excused_is_lost(loop)


def test_a_cluster_that_dies_entirely_is_dropped() -> None:
    """The others continue without it, and nothing else is lost."""
    cluster = tuple(sorted({region[1] for region in scot_loop(3).inventory.bootstrap.overlay_fields()["regions"]}))
    loop = scot_loop(3, Outage(OutageKind.DEATH, cluster, 8.0, 60.0))
    loop.run_for(30_000)
    assert (present(loop).cluster_count, len(present(loop).brokers)) == (2, 8)
    assert loop.finish()
    assert_only_the_excused_is_lost(loop)


def test_a_broker_leaves_with_its_subscribers_and_loses_nothing() -> None:
    """They and its publishers continue at the broker that gets its place."""
    loop = scot_loop(4)
    loop.run_for(20_000)
    order = Order("b05", OrderKind.DRAIN, "ann", "new disk", int(loop.virtual.now_ms))
    loop.ports.orders.records.append(order)
    loop.run_for(30_000)
    assert loop.loop.state.fleet.in_state(MemberState.LEFT) == ("b05",)
    assert "b05" not in present(loop).brokers
    assert loop.finish()
    account = loop.virtual.finish()
    assert account.is_clean, account


def filled(rate_per_s: float, burst_every_s: float | None) -> VirtualLoop:
    """Put all publishers at one broker, and fill the links from there all the time or in bursts."""
    inventory = place_scot(12, 6, random.Random(5), (0.1, 0.3))
    chosen = ControllerSettings(
        bootstrap="", inventory_path=Path(), dry_run=False, planner="relieve_links_scot", seed=5,
        planners={"relieve_links_scot": ReliefSettings(congested_windows=5)},
    )  # fmt: skip
    workload = WorkloadSettings(
        publisher_count=6, notifications_per_s=rate_per_s, interested_broker_count=5, lifetime_s_mean=30.0,
        burst_every_s=burst_every_s, burst_s=4.0, burst_factor=8.0,
    )  # fmt: skip
    start = StartingPoint(inventory.bootstrap, homes=dict.fromkeys(load_stock_data().symbols, "b04"))
    timing = inventory_timing(inventory, 0.05, BYTES_PER_MS)
    virtual = VirtualSettings(seed=5, timing=timing, settle_ms=300_000.0, start=start)
    loop = VirtualLoop(inventory, workload, chosen, virtual)
    meter = LinkMeter(loop.virtual.overlay)
    meter.start()
    loop.run_for(50_000)
    assert meter.congested_windows > 0
    return loop


def test_a_long_burst_leads_to_reliefs_and_no_other_plans() -> None:
    """Long queues delay deliveries and their reports, so planners of cost see too little; later they plan again."""
    inventory = place_scot(12, 4, random.Random(5))
    planner = "exchange_places_scot+link_regions_scot+move_publishers_scot+relieve_links_scot"
    chosen = ControllerSettings(bootstrap="", inventory_path=Path(), dry_run=False, planner=planner, seed=5)
    workload = WorkloadSettings(
        publisher_count=6, notifications_per_s=3.0, interested_broker_count=5, burst_every_s=30.0, burst_s=5.0,
        burst_factor=8.0, burst_count=3, burst_s_last=45.0, publisher_broker_count=1,
    )  # fmt: skip
    virtual = VirtualSettings(seed=5, timing=inventory_timing(inventory, 0.05, BYTES_PER_MS), settle_ms=300_000.0)
    loop = VirtualLoop(inventory, workload, chosen, virtual)
    LinkMeter(loop.virtual.overlay).start()
    began_ms = loop.virtual.now_ms
    loop.run_for(175_000)
    burst_ms = range(int(began_ms) + 95_000, int(began_ms) + 140_000)  # With a window full of it at its beginning.
    in_burst = [plan for plan in loop.plans if plan.window_end_ms in burst_ms]
    assert in_burst
    assert in_burst == [plan for plan in reliefs(loop) if plan.window_end_ms in burst_ms]
    assert [plan for plan in loop.plans if plan not in reliefs(loop)]
    assert loop.finish()
    account = loop.virtual.finish(drain_ms_max=300_000.0)
    assert account.is_clean, account


def reliefs(loop: VirtualLoop) -> list[Plan]:
    """Return the plans against persistent congestion."""
    return [plan for plan in loop.plans if any(one.planner == RELIEF for one in plan.proposals)]


def test_a_lasting_hot_spot_leads_to_a_plan_and_a_brief_one_is_left_to_the_brokers() -> None:
    """Publishers leave the congested links meanwhile, and nothing is lost or repeated."""
    assert reliefs(filled(3.0, 30.0)) == []
    loop = filled(24.0, None)
    assert reliefs(loop)[0].proposals[0].reason.startswith("congested for 5 windows: ")
    assert loop.finish()
    assert set(present(loop).home_of.values()) - {"b04"}
    account = loop.virtual.finish(drain_ms_max=300_000.0)
    assert account.final
    assert account.is_clean, account
