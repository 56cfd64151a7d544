"""Time the move of a publisher by the number of hops: the paper's migration by its rules, and our transition.

Publishers start at leaves of the PlanetLab testbed and are moved one at a time, while all publish.
"""

from __future__ import annotations

import random
from collections import defaultdict

from regraft.api.programs import Figure
from regraft.api.trees import bootstrap_tree
from regraft_lab.mean_figures import with_interval
from regraft_lab.pop_grape.distributed_moves import Move
from regraft_lab.pop_grape.distributed_relocation import RelocatingOverlay
from regraft_lab.pop_grape.distributed_runs import DRAIN_MS_MAX, SET_UP_MS, UncleanRunError
from regraft_lab.pop_grape.quote_workload import QuoteSettings, QuoteTraffic, draw_workload
from regraft_lab.pop_grape.testbeds import hops_between, planetlab_testbed

HOPS_MAX = 10  # From a leaf via the root to another leaf; the paper's longest path.
# A third of the usual clients and less traffic: the timed part waits for links, and the run covers two minutes.
SUBSCRIBERS = 20
NOTIFICATIONS_PER_S = 0.5
STEP_MS = 50.0
MOVE_MS_MAX = 60_000.0


def migration_figures(interested_brokers: int, seed: int, repeats: int) -> list[Figure]:
    """Return waits and total times by hops, with ``repeats`` publishers for each number of hops.

    ``publisher_wait_ms``: how long the publisher cannot publish; ``paper_wait_ms``: the same by the paper's protocol,
    without queues (:mod:`experiments.pop_grape.distributed_moves`); ``move_ms``: from the decision to the end of the
    transition. Raises UncleanRunError if a notification was lost, repeated or reordered, or a move failed.
    """
    rng = random.Random(f"migrations {seed}")
    inventory = planetlab_testbed(rng)
    tree = bootstrap_tree(inventory)
    wanted = [hops for hops in range(1, HOPS_MAX + 1) for _ in range(repeats)]
    leaves = [broker for broker in tree.brokers if len(tree.neighbours[broker]) == 1]
    settings = QuoteSettings(
        interested_brokers=interested_brokers,
        publisher_count=len(wanted),
        subscribers_per_publisher=SUBSCRIBERS,
        notifications_per_s=NOTIFICATIONS_PER_S,
    )
    workload = draw_workload(inventory.brokers, settings, rng)
    workload = workload.at_homes({name: rng.choice(leaves) for name in workload.homes})
    overlay = RelocatingOverlay(inventory, seed, None)
    virtual = overlay.virtual
    began_ms = virtual.now_ms + SET_UP_MS
    traffic = QuoteTraffic(virtual.overlay, workload, began_ms)
    traffic.start()
    virtual.run_until(began_ms)
    timings: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    for publisher, hops in zip(workload.publishers, wanted, strict=True):
        away = hops_between(tree, publisher.home)
        target = rng.choice([broker for broker in tree.brokers if away[broker] == hops])
        timings[hops].append(_move(overlay, publisher.name, tree.path(publisher.home, target)))
    traffic.stop()
    account = virtual.finish(DRAIN_MS_MAX)
    if not (account.final and account.is_clean):
        raise UncleanRunError(f"migrations with seed {seed}: {account}")
    figures: list[Figure] = []
    for hops, times_ms in sorted(timings.items()):
        where: dict[str, str | int | float] = {"hops": hops, "moves": len(times_ms)}
        for place, name in enumerate(("publisher_wait_ms", "paper_wait_ms", "move_ms")):
            values_ms = [times[place] for times in times_ms]
            figures += with_interval(name, where, values_ms, "ms")
            figures.append(Figure(f"{name}_max", where, max(values_ms), "ms"))
    return figures


def _move(overlay: RelocatingOverlay, publisher: str, path: tuple[str, ...]) -> tuple[float, float, float]:
    """Move one publisher; return its pause, its pause by the paper, and the time of the whole move, in ms."""
    virtual, counts = overlay.virtual, overlay.virtual.overlay.publishers.moves
    begun_ms, waited_ms, moved = virtual.now_ms, counts.wait_ms_sum, counts.moved
    overlay.moves.hand_over(Move(publisher, path, begun_ms))
    while not overlay.moves.is_idle:
        if virtual.now_ms > begun_ms + MOVE_MS_MAX:
            raise UncleanRunError(f"{publisher} is still moving after {MOVE_MS_MAX:g} ms: a broker is stuck")
        virtual.run_for(STEP_MS)
    if counts.moved != moved + 1:
        raise UncleanRunError(f"{publisher} has not moved to {path[-1]}: its transition was aborted")
    _, over_ms = overlay.moves.executed[-1]
    return counts.wait_ms_sum - waited_ms, overlay.moves.paper_waits_ms[-1], over_ms - begun_ms
