"""The runs of Shafique's evaluation, and their samples.

In: a size and a seed. Out: samples of each run, which depend only on the task. Means and verdicts do not belong here.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from statistics import fmean

import msgspec

from regraft.api.cyclic import RULES, ScotBroker, StructuredCyclicOverlay
from regraft.api.programs import Figure
from regraft_lab.octopia.count_samples import count_samples
from regraft_lab.octopia.make_streams import StreamsOf
from regraft_lab.octopia.octopia_quotes import (
    LinkDelays,
    draw_quote_publishers,
    place_brokers,
    read_delays,
    read_quotes,
)
from regraft_lab.octopia.octopia_workload import StockWorkload, draw_workload, paper_overlay
from regraft_lab.octopia.run_queues import Pace, QueueRun, Stream

Prepared = tuple[list[Stream], ScotBroker, float, LinkDelays | None]  # Watched broker, ms of the burst.
BURSTS_PER_MIN = {"stable": 0, "burst_100k": 100_000, "burst_80k": 80_000, "burst_60k": 60_000}


@dataclass(frozen=True, slots=True)
class Workload:
    """Rate of a burst (0 for none) and number of bursting publishers; ``is_real``: real instead of drawn input."""

    per_min: int
    bursting: int = 1
    is_real: bool = False


WORKLOADS = {
    **{name: Workload(per_min) for name, per_min in BURSTS_PER_MIN.items()},
    "burst_100k_of_2": Workload(100_000, 2),
    "burst_100k_of_3": Workload(100_000, 3),
    "quotes_stable": Workload(0, is_real=True),
    "quotes_100k": Workload(100_000, is_real=True),
}
BURSTING_MAX = max(workload.bursting for workload in WORKLOADS.values())
PACES = {
    "link": Pace(match_ms=0.2, send_ms=1.2, link_ms=1.0, shared_sender=False),
    "broker": Pace(match_ms=0.2, send_ms=0.2, link_ms=1.0, shared_sender=True),
}
BACKGROUND_PER_S = 1.0
SECOND_MS = 1_000.0


@dataclass(frozen=True, slots=True)
class Size:
    """The extent of a run: draws of publishers and subscribers, notifications of the high-rate publisher.

    Predicates make a difference only in some draws, so two of them are compared on ``rule_draws`` draws.
    """

    name: str
    draws: int
    notifications: int
    rule_draws: int


FULL = Size("full", 6, 10_000, 24)
QUICK = Size("quick", 6, 1_500, 24)
OURS, PAPERS, RULE_SENDER, RULE_WORKLOAD = (
    "sum",
    "product",
    "broker",
    "burst_100k",
)  # With one sender per link all predicates do about the same.


class OctopiaTask(msgspec.Struct, frozen=True):
    """One run; routing is ``count`` (messages without queues), ``snr``, ``idr``, ``tid`` or ``tid_dynamic``.

    ``quotes`` and ``delays`` are files of real input, empty for the shipped cuts. ``compared`` names the comparison
    that a run with extra draws is for.
    """

    seed: int
    draw: int
    notifications: int
    routing: str = "count"
    workload: str = "stable"
    sender: str = "link"
    rule: str = "product"
    quotes: str = ""
    delays: str = ""
    compared: str = ""

    @property
    def label(self) -> str:
        """The name of the task in file names."""
        parts = (self.routing, self.workload, self.sender, self.rule, self.compared)
        return "-".join([*(part for part in parts if part), str(self.draw)])

    @property
    def work_count(self) -> int:
        """Every run counts as one unit of work."""
        return 1


class TaskResult(msgspec.Struct, frozen=True):
    """The samples of one run."""

    samples: list[Figure]


def all_tasks(size: Size, seed: int, quotes: str = "", delays: str = "") -> list[OctopiaTask]:
    """Return the runs: each routing under each workload with each sender, other predicates under the worst burst.

    The last ones compare two predicates under that burst on more draws.
    """
    tasks = []
    for draw in range(size.draws):
        base = OctopiaTask(seed, draw, size.notifications, quotes=quotes, delays=delays)
        tasks.append(base)
        for sender in PACES:
            runs = [(routing, workload, "product") for routing in ("snr", "idr", "tid") for workload in WORKLOADS]
            runs += [("tid_dynamic", workload, "product") for workload, per_min in BURSTS_PER_MIN.items() if per_min]
            runs += [("idr", "burst_100k", rule) for rule in RULES if rule != "product"]
            tasks += [
                msgspec.structs.replace(base, routing=routing, workload=workload, sender=sender, rule=rule)
                for routing, workload, rule in runs
            ]
    return tasks + [
        OctopiaTask(seed, draw, size.notifications, "idr", RULE_WORKLOAD, RULE_SENDER, rule, compared="rules")
        for draw in range(size.rule_draws)
        for rule in (PAPERS, OURS)
    ]


def run_task(task: OctopiaTask, report_work: Callable[[int], None] = lambda count: None) -> TaskResult:
    """Return the samples of a run."""
    overlay = paper_overlay()
    rng = random.Random(f"octopia {task.seed} {task.draw}")
    samples = count_samples(overlay, task.delays, rng) if task.routing == "count" else _run(task, overlay, rng)
    report_work(1)
    return TaskResult(samples)


def _run(task: OctopiaTask, overlay: StructuredCyclicOverlay, rng: random.Random) -> list[Figure]:
    workload = WORKLOADS[task.workload]
    streams, watched, burst_ms, delays = (_quote_run if workload.is_real else _drawn_run)(task, overlay, rng)
    link_ms = None if delays is None else delays.ms
    outcome = QueueRun(streams, PACES[task.sender], RULES[task.rule], watched, link_ms).run()
    where: dict[str, str | int | float] = {
        name: getattr(task, name) for name in ("routing", "workload", "sender", "rule")
    } | ({"compared": task.compared} if task.compared else {})
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


@lru_cache(maxsize=2)
def _drawn_workload(seed: int, draw: int) -> StockWorkload:
    """Return the publishers and subscribers of a draw, which are the same for all its runs."""
    return draw_workload(paper_overlay(), random.Random(f"octopia {seed} {draw}"), BURSTING_MAX)


def _drawn_run(task: OctopiaTask, overlay: StructuredCyclicOverlay, rng: random.Random) -> Prepared:
    """Return streams of drawn quotes for drawn subscriptions, over equally fast links."""
    workload = _drawn_workload(task.seed, task.draw)
    make = StreamsOf(overlay, task.routing, RULES[task.rule])
    background, burst, burst_ms = _times(task)
    published = [(each, next(background)) for each in workload.publishers]
    if burst:
        published += [(each, burst) for each in workload.bursting[: WORKLOADS[task.workload].bursting]]
    streams = [
        stream for each, times_ms in published for stream in make.of(each, times_ms, partial(workload.trees_to, each))
    ]
    return streams, workload.bursting[0].host, burst_ms, None


def _quote_run(task: OctopiaTask, overlay: StructuredCyclicOverlay, rng: random.Random) -> Prepared:
    """Return streams of real quotes for real subscriptions, over links with measured delays."""
    delays = place_brokers(overlay, read_delays(task.delays), rng)
    publishers, fast = draw_quote_publishers(overlay, read_quotes(task.quotes), rng)
    make = StreamsOf(overlay, task.routing, RULES[task.rule], delays)
    background, burst, burst_ms = _times(task)
    streams = [stream for each in publishers for stream in make.of(each, next(background))]
    if burst:
        streams += make.of(fast, burst)
    return streams, fast.host, burst_ms, delays


def _times(task: OctopiaTask) -> tuple[Iterator[list[float]], list[float], float]:
    """Return the publication times of each slow publisher, those of a bursting one, and the burst's length in ms."""
    per_min = WORKLOADS[task.workload].per_min
    burst_ms = task.notifications * 60 * SECOND_MS / (per_min or max(BURSTS_PER_MIN.values()))
    rng = random.Random(f"times {task.seed} {task.draw}")
    burst = [number * burst_ms / task.notifications for number in range(task.notifications)] if per_min else []
    return (_background_ms(rng, burst_ms) for _ in itertools.count()), burst, burst_ms


def _background_ms(rng: random.Random, burst_ms: float) -> list[float]:
    """Return the publication times of a slow publisher, regular from a random start."""
    step_ms = SECOND_MS / BACKGROUND_PER_S
    start_ms = rng.random() * min(step_ms, burst_ms)
    return [start_ms + number * step_ms for number in range(int((burst_ms - start_ms) // step_ms) + 1)]
