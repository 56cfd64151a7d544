"""Measure what exchanging places saves on a structured cyclic overlay: closed loops on the virtual clock, by planner.

``python -m lab.benchmarks.bench_slots [--draws N] [--brokers N] [--clusters N] [--seconds S] [--json FILE]``. Real
quotes and subscriptions, brokers on PlanetLab hosts grouped into regions of neighbours; each draw runs once with each
planner. Costs are summed over the second half of all windows, as a share of the cost of the initial overlay on the same
traffic with publishers at their first homes. Exits with 1 if anything was lost, repeated or out of order.
"""

import argparse
import logging
import random
import statistics
import sys
from pathlib import Path

import structlog

from regraft.api.emulation import VirtualLoop, VirtualSettings, WorkloadSettings, place_scot
from regraft.api.planning import ControllerSettings
from regraft.api.programs import Figure, run_facts, show_progress, write_figures
from regraft.api.transitions import LIFE

PLANNERS = (
    "move_publishers_scot",
    "exchange_places_scot",
    "exchange_places_scot+move_publishers_scot",
    "exchange_places_scot+link_regions_scot+move_publishers_scot",
)


def run(planner: str, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """Run one loop and return its figures by name."""
    inventory = place_scot(options.brokers, options.clusters, random.Random(seed))
    workload = WorkloadSettings(publisher_count=options.publishers, lifetime_s_mean=options.lifetime_s)
    settings = ControllerSettings(bootstrap="", inventory_path=Path(), dry_run=False, planner=planner, seed=seed)
    loop = VirtualLoop(inventory, workload, settings, VirtualSettings(seed=seed))
    loop.run_for(options.seconds * 1000)
    is_still = loop.finish()
    points = loop.ports.view.shown.cost
    late = points[len(points) // 2 :]
    account = loop.virtual.finish()
    done = [plan for plan in loop.plans if LIFE[plan.phase].is_in_force]
    times = loop.loop.state.decision_times[f"acting:{planner}"]
    return {
        "cost_share": sum(one.cost_per_s for one in late) / sum(one.cost_bootstrap_per_s for one in late),
        "plans": len(done),
        "exchanges": sum(len(plan.id_moves) for plan in done) / 2,
        "publishers_moved": sum(len(plan.moves) for plan in done),
        "deliveries": account.delivered,
        "decision_ms_max": times.max_ms,
        "errors": account.lost + account.repeated + account.out_of_order + account.unexpected + (not is_still),
    }


def main() -> None:
    """Measure, print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--brokers", type=int, default=40)
    parser.add_argument("--clusters", type=int, default=4)
    parser.add_argument("--publishers", type=int, default=49)
    parser.add_argument("--lifetime-s", type=float, default=60.0, help="how long a subscription lives, on average")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    figures: list[Figure] = []
    with show_progress("running", options.draws * len(PLANNERS)) as advance:
        for number, (draw, planner) in enumerate((draw, name) for draw in range(options.draws) for name in PLANNERS):
            advance(f"draw {draw}, {planner}", number)
            result = run(planner, options.seed + draw, options)
            figures += [Figure(name, {"draw": draw, "planner": planner}, value, "") for name, value in result.items()]
    for planner in PLANNERS:
        print(planner)
        mine = [one for one in figures if one.where["planner"] == planner]
        for name in dict.fromkeys(one.name for one in mine):
            values = [one.value for one in mine if one.name == name]
            print(f"  {name:18} mean {statistics.fmean(values):10.4g}   " + " ".join(f"{one:.4g}" for one in values))
    if options.json:
        chosen = {name: value for name, value in vars(options).items() if name not in ("json", "seed")}
        write_figures(options.json, run_facts(chosen, options.seed), figures)
    sys.exit(1 if any(one.value for one in figures if one.name == "errors") else 0)


if __name__ == "__main__":
    main()
