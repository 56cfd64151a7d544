"""Time how long a node stays out that a neighbour considers dead: until it has rejoined by a plan.

``python -m lab.benchmarks.bench_readmission [--runs N] [--seed N] [--json FILE]``. Four nodes in memory, linked by TCP,
with a controller by the wall clock, windows of 5 s with a grace of 2 s and the default settings of members. In each run
a second process with a node's name briefly connects to a neighbour, at a random time of a window. The latency of Spark
and Kafka comes on top.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import statistics
import time
from pathlib import Path

import structlog

from regraft.api.planning import MemberSettings
from regraft.api.programs import Figure, run_facts, write_figures
from tests.producers.nodes.test_broker_node import MemorySite, run_site
from tests.producers.nodes.test_taken_for_dead import RunningLoop, begin_and_end_namesake

WINDOW_MS, GRACE_MS = 5_000, 2_000
STEP_S = 0.02
CHANGES = 2  # The node's member states after the report: joining, in service.


def readmitted_after_s(rng: random.Random) -> float:
    """Return the time from the neighbour's report until the node is in service again."""
    times_s: list[float] = []

    async def steps(site: MemorySite) -> None:
        running = RunningLoop(site.fleet, MemberSettings(), WINDOW_MS, GRACE_MS)
        controller = asyncio.create_task(running.run())
        try:
            await site.fleet.all_confirmed()
            while running.loop.state.newest is None:
                await asyncio.sleep(STEP_S)
            await asyncio.sleep(rng.uniform(0, WINDOW_MS / 1000))
            await begin_and_end_namesake(site.fleet)
            begin_s = time.monotonic()
            while len(running.reasons()) < CHANGES:
                assert not controller.done(), controller.result()
                await asyncio.sleep(STEP_S)
            times_s.append(time.monotonic() - begin_s)
        finally:
            controller.cancel()

    run_site(steps)
    return times_s[0]


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    times_s = sorted(readmitted_after_s(rng) for _ in range(options.runs))
    figures = [
        Figure(f"readmitted_after_{name}", {}, round(value, 1), "s")
        for name, value in (("least", times_s[0]), ("median", statistics.median(times_s)), ("most", times_s[-1]))
    ]
    for figure in figures:
        print(f"{figure.name} {figure.value} s")
    if options.json is not None:
        write_figures(options.json, run_facts({"runs": options.runs}, options.seed), figures)


if __name__ == "__main__":
    main()
