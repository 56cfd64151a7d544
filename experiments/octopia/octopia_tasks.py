"""The runs of Shafique's evaluation, and what each comes to.

In: a size and a seed. Out: samples of each run; the same task gives the same. Means and verdicts do not belong here.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

import msgspec

from regraft.experiments.octopia.count_routing import bind_subscription, flood_advertisement
from regraft.experiments.octopia.octopia_workload import (
    SELECTIVITY,
    SUBSCRIBER_COUNT,
    Publisher,
    draw_high_rate_publisher,
    draw_publishers,
    paper_overlay,
)
from regraft.experiments.octopia.route_copies import Copy, ScotRouter
from regraft.experiments.octopia.run_queues import Load, Pace, QueueRun, Stream
from regraft.infra.measured_figures import Figure
from regraft.overlay.link_congestion import RULES
from regraft.overlay.structured_cyclic import ScotBroker, StructuredCyclicOverlay

BURSTS_PER_MIN = {"stable": 0, "burst_100k": 100_000, "burst_80k": 80_000, "burst_60k": 60_000}
PACES = {
    "link": Pace(match_ms=0.2, send_ms=1.2, link_ms=1.0, shared_sender=False),
    "broker": Pace(match_ms=0.2, send_ms=0.2, link_ms=1.0, shared_sender=True),
}
BACKGROUND_PER_S = 1.0
SECOND_MS = 1_000.0


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run: draws of publishers and subscribers, notifications of the high-rate publisher."""

    name: str
    draws: int
    notifications: int


FULL = Size("full", 5, 20_000)
QUICK = Size("quick", 3, 1_500)


class OctopiaTask(msgspec.Struct, frozen=True):
    """One run; routing is ``count`` (messages without queues), ``snr``, ``idr`` or ``tid``."""

    seed: int
    draw: int
    notifications: int
    routing: str = "count"
    workload: str = "stable"
    sender: str = "link"
    rule: str = "product"

    @property
    def label(self) -> str:
        """What its file is called by."""
        return f"{self.routing}-{self.workload}-{self.sender}-{self.rule}-{self.draw}"

    @property
    def work_count(self) -> int:
        """One run."""
        return 1


class TaskResult(msgspec.Struct, frozen=True):
    """What one run came to."""

    samples: list[Figure]


def all_tasks(size: Size, seed: int) -> list[OctopiaTask]:
    """Return the runs: each routing under each workload with each sender, other predicates under the worst burst."""
    tasks = []
    for draw in range(size.draws):
        base = OctopiaTask(seed, draw, size.notifications)
        tasks.append(base)
        for sender in PACES:
            runs = [(routing, workload, "product") for routing in ("snr", "idr", "tid") for workload in BURSTS_PER_MIN]
            runs += [("idr", "burst_100k", rule) for rule in RULES if rule != "product"]
            tasks += [
                msgspec.structs.replace(base, routing=routing, workload=workload, sender=sender, rule=rule)
                for routing, workload, rule in runs
            ]
    return tasks


def run_task(task: OctopiaTask, tell_work: Callable[[int], None] = lambda count: None) -> TaskResult:
    """Return the samples of a run."""
    overlay = paper_overlay()
    rng = random.Random(f"octopia {task.seed} {task.draw}")
    publishers, fast = draw_publishers(overlay, rng), draw_high_rate_publisher(overlay, rng)
    samples = _count(overlay, publishers, rng) if task.routing == "count" else _run(task, overlay, publishers, fast)
    tell_work(1)
    return TaskResult(samples)


def _count(overlay: StructuredCyclicOverlay, publishers: list[Publisher], rng: random.Random) -> list[Figure]:
    """Count the messages of advertisements and subscriptions in PADRES; those of OctopiA follow from the shape."""
    floods = [flood_advertisement(overlay, each.host) for each in publishers]
    region, cluster = len(overlay.regions), overlay.cluster_count
    bound = []
    for _ in range(SUBSCRIBER_COUNT):
        matching = [last_hop for _, last_hop in floods if rng.random() < SELECTIVITY]
        bound.append(len(bind_subscription(matching, rng.choice(overlay.brokers()))))
    flooded = fmean(messages for messages, _ in floods)
    cut = 1 - cluster / (region * cluster)
    return [
        Figure("srt_cut", {"routing": "octopia", "workload": "advertisements"}, cut, "share"),
        Figure("advertisement_messages", {"routing": "octopia", "workload": "advertisements"}, cluster - 1, "messages"),
        Figure("advertisement_messages", {"routing": "padres", "workload": "advertisements"}, flooded, "messages"),
        Figure("subscription_messages", {"routing": "octopia", "workload": "subscriptions"}, region - 1, "messages"),
        Figure("subscription_messages", {"routing": "padres", "workload": "subscriptions"}, fmean(bound), "messages"),
    ]


def _run(
    task: OctopiaTask, overlay: StructuredCyclicOverlay, publishers: list[Publisher], fast: Publisher
) -> list[Figure]:
    per_min = BURSTS_PER_MIN[task.workload]
    burst_ms = task.notifications * 60 * SECOND_MS / (per_min or max(BURSTS_PER_MIN.values()))
    rng = random.Random(f"times {task.seed} {task.draw}")
    streams = [_stream(task, overlay, each, _background_ms(rng, burst_ms)) for each in publishers]
    if per_min:
        times = [number * burst_ms / task.notifications for number in range(task.notifications)]
        streams.append(_stream(task, overlay, fast, times))
    outcome = QueueRun(streams, PACES[task.sender], RULES[task.rule], fast.host).run()
    where: dict[str, str | int | float] = {
        name: getattr(task, name) for name in ("routing", "workload", "sender", "rule")
    }
    expected = sum(len(each.times_ms) * len(each.targets) for each in streams)
    delivered = len(outcome.delays_ms)
    if delivered != expected:
        raise AssertionError(f"{delivered} deliveries of {expected} under {task.label}: routing lost or repeated some")
    values = {
        "delay_ms_mean": (fmean(outcome.delays_ms), "ms"),
        "drain_s": (max(0.0, outcome.last_ms - burst_ms) / SECOND_MS, "s"),
        "messages": (float(outcome.messages), "messages"),
        "queue_measure_mean": (fmean(outcome.queue_measures or [0.0]), "messages"),
        "under_1s_share": (sum(each < SECOND_MS for each in outcome.delays_ms) / delivered, "share"),
        "out_of_order_share": (outcome.out_of_order / delivered, "share"),
    }
    return [Figure(name, where, value, unit) for name, (value, unit) in values.items()]


def _background_ms(rng: random.Random, burst_ms: float) -> list[float]:
    """Return when a slow publisher publishes, regularly from a random start."""
    step_ms = SECOND_MS / BACKGROUND_PER_S
    start_ms = rng.random() * min(step_ms, burst_ms)
    return [start_ms + number * step_ms for number in range(int((burst_ms - start_ms) // step_ms) + 1)]


def _stream(task: OctopiaTask, overlay: StructuredCyclicOverlay, publisher: Publisher, times_ms: list[float]) -> Stream:
    if task.routing == "tid":
        tree = _tree_copies(overlay, publisher)
        return Stream(publisher.host, publisher.targets, 0, lambda at, *_: tree.get(at, []), times_ms)
    router = ScotRouter(overlay, publisher.host, publisher.targets)
    threshold = RULES[task.rule].threshold

    def copies(at: ScotBroker, came_from: ScotBroker | None, vector: int, load: Load) -> list[Copy]:
        if task.routing == "snr":
            return router.static_copies(at, came_from, vector)
        return router.dynamic_copies(at, came_from, vector, load, threshold)

    return Stream(publisher.host, publisher.targets, router.vector, copies, times_ms)


def _tree_copies(overlay: StructuredCyclicOverlay, publisher: Publisher) -> dict[ScotBroker, list[Copy]]:
    """Return the copies at each broker along the publisher's advertisement tree, as PADRES sends them."""
    _, last_hop = flood_advertisement(overlay, publisher.host)
    links = dict.fromkeys(link for target in publisher.targets for link in bind_subscription([last_hop], target))
    copies: dict[ScotBroker, list[Copy]] = {}
    for child, parent in links:
        copies.setdefault(parent, []).append(Copy(child))
    return copies
