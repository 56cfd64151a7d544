"""Time a repair on the virtual clock: from a broker's silence until the repaired overlay is in force.

``python -m benchmarks.bench_repair [--brokers 40,400,1000] [--ring [--users N]] [--seed N] [--json FILE]``. Emulator,
reference aggregator and controller run on one virtual clock; a broker with the most links dies under traffic. Asserts
that only deliveries that had to cross it were lost, and none was repeated or out of order. Messages are those that
brokers exchange because of the repair; bytes count each at the emulator's size of a control message.
"""

import argparse
import random
import time
from dataclasses import replace
from pathlib import Path

from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.infra.process.measured_figures import Figure, run_facts, write_figures
from regraft.producers.emulator.emulate_overlay import CONTROL_BYTES
from regraft.producers.emulator.outage_schedule import Outage, OutageKind
from regraft.producers.emulator.place_overlay import place_overlay, place_ring
from regraft.producers.virtual_overlay import VirtualSettings
from regraft.producers.workloads.checkin_settings import USERS_SHIPPED, CheckinSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.plan_life import LIFE
from regraft.schemas.units import SECOND_MS
from regraft.virtual_runs.virtual_loop import VirtualLoop

DEGREE_MAX = 8
START_MS = 1_700_000_000_000
DEATH_S = 30.0
WATCH_S_MAX = 180.0
TREE_PLANNER, RING_PLANNER = "swap_links_cost", "place_users_dynatops"
SETTLE_S = 60.0


def measure(broker_count: int, seed: int, *, ring_users: int) -> list[Figure]:
    """Let one broker die and return the time of each part of its repair; raise AssertionError if it is not repaired.

    ``ring_users``: 0 for a tree. On a ring the rate of notifications is proportional to the users.
    """
    is_ring = ring_users > 0
    rng = random.Random(seed)
    inventory = place_ring(broker_count, rng) if is_ring else place_overlay(broker_count, DEGREE_MAX, rng)
    bootstrap = inventory.bootstrap
    whole = CheckinSettings()
    users = replace(
        whole, user_count=ring_users or 1, notifications_per_s=whole.notifications_per_s * ring_users / USERS_SHIPPED
    )
    workload = users if is_ring else WorkloadSettings(lifetime_s_mean=300.0)
    settings = ControllerSettings(
        bootstrap="", inventory_path=Path(), planner=RING_PLANNER if is_ring else TREE_PLANNER
    )
    dead = max(bootstrap.brokers, key=lambda broker: len(bootstrap.neighbours[broker]))
    outage = Outage(OutageKind.DEATH, (dead,), DEATH_S, 10 * WATCH_S_MAX)
    virtual = VirtualSettings(seed=seed, start_ms=float(START_MS), settle_ms=SETTLE_S * SECOND_MS, outages=(outage,))
    loop = VirtualLoop(inventory, workload, settings, virtual)
    began_s = time.perf_counter()
    repair = _repair_of(loop, dead)
    loop.run_for(10 * SECOND_MS)
    loop.settle()
    account = loop.virtual.finish()
    errors = (account.lost - account.excused, account.repeated, account.out_of_order, account.unexpected)
    assert not any(errors), account
    death_ms = START_MS + DEATH_S * SECOND_MS
    begun_ms, whole_ms = repair.history[0].time_ms, _in_force_ms(repair)
    where: dict[str, str | int | float] = {"brokers": broker_count, "links_of_dead": len(bootstrap.neighbours[dead])}
    return [
        Figure("death_to_repair_begun", where, begun_ms - death_ms, "ms"),
        Figure("death_to_repair_in_force", where, whole_ms - death_ms, "ms"),
        Figure("links_added", where, len(repair.links_added), "1"),
        Figure("messages_of_repair", where, repair.control_messages, "1"),
        Figure("bytes_of_repair", where, repair.control_messages * CONTROL_BYTES, "B"),
        Figure("deliveries", where, account.delivered, "1"),
        *(Figure(reason, where, count, "1") for reason, count in account.lost_by_reason.items()),
        Figure("run", where, round(time.perf_counter() - began_s, 1), "s"),
    ]


def _repair_of(loop: VirtualLoop, dead: str) -> Plan:
    deadline_ms = loop.virtual.now_ms + (DEATH_S + WATCH_S_MAX) * SECOND_MS
    while loop.virtual.now_ms < deadline_ms:
        loop.run_for(SECOND_MS)
        for plan in loop.plans:
            if dead in plan.brokers_lost and LIFE[plan.phase].is_in_force and plan.phase is not PlanPhase.RETIRING:
                return plan
    raise AssertionError(f"{dead} died and no repair was in force {WATCH_S_MAX:g} s later: {loop.plans[-3:]}")


def _in_force_ms(plan: Plan) -> int:
    return min(entry.time_ms for entry in plan.history if LIFE[PlanPhase(entry.phase)].is_in_force)


def main() -> None:
    """Measure each size, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", default="40,400,1000", help="sizes, separated by commas")
    parser.add_argument("--ring", action="store_true", help="users of a Chord ring instead of quotes over a tree")
    parser.add_argument("--users", type=int, default=USERS_SHIPPED, help="of a ring; fewer are faster")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file for the figures")
    given = parser.parse_args()
    figures = []
    for count in given.brokers.split(","):
        repair_figures = measure(int(count), given.seed, ring_users=given.users if given.ring else 0)
        for figure in repair_figures:
            print(f"{figure.name} at {figure.where['brokers']} brokers: {figure.value:,} {figure.unit}")
        figures += repair_figures
    if given.json is not None:
        settings = {"degree_max": DEGREE_MAX, "death_s": DEATH_S, "ring_users": given.users if given.ring else 0}
        write_figures(given.json, run_facts(settings, given.seed), figures)


if __name__ == "__main__":
    main()
