"""Users are packed for money on the virtual clock: the bill falls, nothing is lost, unused brokers can be closed."""

import random
from dataclasses import replace
from itertools import pairwise

from regraft.controller.loop.watch_idle import IDLE_S_MIN
from regraft.producers.emulator.place_regions import place_regions
from regraft.producers.virtual_overlay import VirtualSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.event import EventKind
from regraft.schemas.member import MemberState
from regraft.schemas.order import Order, OrderKind
from regraft.virtual_runs.virtual_loop import VirtualLoop
from tests.scenarios.test_brokers_that_come import ACTING

WORKLOAD = WorkloadSettings(
    publisher_count=20, lifetime_s_mean=600.0, interested_broker_count=6, broker_load_exponent=1.0
)


def test_the_bill_falls_and_a_broker_without_clients_is_removed_on_request() -> None:
    """On the same traffic the bill falls by at least a fifth. Moves are split into plans of at most 60 subscribers."""
    chosen = replace(ACTING, seed=1, planner="pack_drop")
    chosen = replace(chosen, decision=replace(chosen.decision, users_per_plan_max=60))
    loop = VirtualLoop(place_regions(19, 6, random.Random(1)), WORKLOAD, chosen, VirtualSettings(seed=1))
    moved_until: dict[int, int] = {}
    while loop.virtual.now_ms < loop.virtual.settings.start_ms + 75_000:
        loop.step()
        moved_until[loop.loop.state.plan_log.present.epoch] = loop.virtual.overlay.subscribers.moved_count
    state = loop.loop.state
    first, now = state.bill_first, state.bill
    assert first is not None
    assert now is not None
    assert first.per_million is not None
    assert now.per_million is not None
    assert now.per_million < 0.8 * first.per_million
    assert now.per_month == now.links_per_month + now.access_per_month
    shown = loop.ports.view.shown
    assert shown is not None
    assert shown.bill == now
    packing = [plan for plan in loop.plans if plan.subscribers_moved]
    assert len(packing) > 1
    counts = [0, *moved_until.values()]
    assert counts[-1] > 60
    assert all(after - before <= 60 for before, after in pairwise(counts))
    loop.run_for(int(IDLE_S_MIN * 1000))
    shown = loop.ports.view.shown
    assert shown is not None
    assert shown.closable == state.closable != ()
    assert any(event.kind is EventKind.BROKERS_CLOSABLE for event in state.events)
    closing = state.closable[0]
    now_ms = int(loop.virtual.now_ms)
    loop.ports.orders.records.append(Order(closing, OrderKind.DRAIN, "ann", "serves no clients", now_ms))
    loop.run_for(15_000)
    assert closing not in state.plan_log.present.brokers
    assert state.fleet.members[closing].state in (MemberState.LEAVING, MemberState.LEFT)
    assert loop.finish()
    loop.virtual.finish()
    assert loop.virtual.ledger.snapshot().is_clean
