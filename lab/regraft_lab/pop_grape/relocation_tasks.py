"""The tasks of the evaluation of Cheung09, which are independent of each other, in two sizes.

In: a size and a seed. Out: tasks, each with one testbed, one workload and all ways to place its publishers. Running
them and using the results do not belong here.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from regraft_lab.pop_grape.compare_relocation import DEFAULT_VARIANTS, SIMULATED_S, TRIGGER_BROKERS
from regraft_lab.pop_grape.distributed_runs import NOTIFICATIONS_PER_S, STATIC, TRIGGERS
from regraft_lab.pop_grape.quote_workload import Distribution, QuoteSettings, Sampling

Kind = Literal["emulated", "counted", "sessions", "distributed", "triggers", "migrations"]
Testbed = Literal["planetlab", "cluster", "hops"]

# Work relative to an exact count: of runs on the virtual clock, with tracing brokers, and of migrations.
RUN_WORK = 10
BROKERS_WORK = 30
MIGRATION_WORK = 15
EMULATED_WAYS = ("baseline", "load100", "delay100", "delay100_links", "pop", "ours", "ours_both")
COUNTED_WAYS = ("baseline", "load100", "delay100", "pop", "ours")
WEIGHT_WAYS = (
    "baseline", "load100", "load75", "load50", "load25", "load1",
    "delay100", "delay75", "delay50", "delay25", "delay1", "pop", "ours",
)  # fmt: skip
SESSION_WAYS = ("baseline", "load100", "delay100")
SESSION_BROKERS = 16  # "the enterprise scenario on the cluster testbed with subscribers distributed among 16 brokers".
MIGRATION_BROKERS = 8
COUNTED_PUBLISHERS = 1  # Each draw of an exact count has one publisher.


class Task(msgspec.Struct, frozen=True):
    """One testbed with one workload.

    ``kind``: "emulated" runs placements on the virtual clock; "counted" counts ``draws`` workloads exactly on a tree
    of equal brokers; "sessions" lets GRAPE decide after each of many trace sessions, for each length in ``steps``, over
    ``publications`` publications; "distributed" lets the brokers themselves trace, decide and move for ``simulated_s``,
    "triggers" does so with other thresholds (:mod:`experiments.pop_grape.compare_relocation`); "migrations" moves
    ``draws`` publishers over paths of each length. ``ways``: names of :mod:`experiments.pop_grape.choose_homes`, or of
    variants that brokers run.
    """

    kind: Kind
    testbed: Testbed
    distribution: Distribution
    sampling: Sampling
    interested_brokers: int
    seed: int
    draw: int
    ways: tuple[str, ...]
    publisher_count: int
    subscribers_per_publisher: int = 60
    notifications_per_s: float = 8.0
    draws: int = 1
    steps: tuple[int, ...] = ()
    publications: int = 0
    simulated_s: float = 0.0

    @property
    def label(self) -> str:
        """The name of the task in file names."""
        return f"{self.kind}-{self.testbed}-{self.distribution}-{self.sampling}-{self.interested_brokers}-{self.draw}"

    @property
    def work_count(self) -> int:
        """The work of the task, in exact counts."""
        if self.kind == "migrations":
            return MIGRATION_WORK * self.draws
        if self.kind in ("emulated", "distributed", "triggers"):
            return (RUN_WORK if self.kind == "emulated" else BROKERS_WORK) * len(self.ways)
        return self.draws * max(len(self.steps), 1)


class Size(msgspec.Struct, frozen=True):
    """The extent of a run: testbeds, values of X (``interested_brokers``), numbers of draws.

    ``draws``: by testbed and predicates, of new workloads and testbeds. ``session_lengths``: values of G_threshold,
    each over ``session_publications``. ``distributed_brokers``: X for which the brokers run the paper's protocols;
    ``has_triggers``: also with other thresholds. ``migrations``: publishers moved over each number of hops.
    ``selection_brokers``: sizes of overlays for which a selection is timed.
    """

    name: str
    draws: dict[Testbed, dict[Sampling, int]]
    interested_brokers: tuple[int, ...]
    publisher_count: int
    counted_draws: int
    counted_brokers: tuple[int, ...]
    session_lengths: tuple[int, ...]
    session_publications: int
    session_draws: int
    distributed_brokers: tuple[int, ...]
    has_triggers: bool
    migrations: int
    selection_brokers: tuple[int, ...]


FULL = Size(
    name="full",
    draws={"planetlab": {"shared": 3, "independent": 1}, "cluster": {"shared": 1, "independent": 1}},
    interested_brokers=(1, 2, 4, 8, 16, 32, 64),
    publisher_count=8,
    counted_draws=30,
    counted_brokers=(1, 2, 4, 8, 16, 32, 64),
    session_lengths=(10, 25, 50, 100, 200),
    session_publications=1_600,
    session_draws=20,
    distributed_brokers=(1, 2, 8, 32),
    has_triggers=True,
    migrations=4,
    selection_brokers=(63, 255, 1023),
)
QUICK = Size(
    name="quick",
    draws={"planetlab": {"shared": 1}},
    interested_brokers=(1, 2, 8, 32),
    publisher_count=6,
    counted_draws=30,
    counted_brokers=(1, 2, 8, 32),
    session_lengths=(10, 100),
    session_publications=800,
    session_draws=5,
    distributed_brokers=(8,),
    has_triggers=False,
    migrations=4,
    selection_brokers=(63, 255, 1023),
)


def all_tasks(size: Size, seed: int) -> list[Task]:
    """Return the tasks of one run, longest first, so that the last ones to finish are short."""
    distributions: tuple[Distribution, ...] = ("clustered", "random")
    tasks = [
        Task("emulated", testbed, distribution, sampling, x, seed, draw, EMULATED_WAYS, size.publisher_count)
        for testbed, by_sampling in size.draws.items()
        for sampling, draws in by_sampling.items()
        for draw in range(draws)
        for distribution in distributions
        for x in size.interested_brokers
    ]
    samplings: tuple[Sampling, ...] = ("shared", "independent")
    tasks += [
        Task(
            "counted", "hops", distribution, sampling, x, seed, 0,
            WEIGHT_WAYS if sampling == "shared" else COUNTED_WAYS, COUNTED_PUBLISHERS, draws=size.counted_draws,
        )
        for distribution in distributions
        for sampling in samplings
        for x in size.counted_brokers
    ]  # fmt: skip
    tasks += [
        Task(
            "sessions", "cluster", "clustered", "shared", SESSION_BROKERS, seed, draw, SESSION_WAYS, 1,
            steps=size.session_lengths, publications=size.session_publications,
        )
        for draw in range(size.session_draws)
    ]  # fmt: skip
    return sorted(tasks + _broker_tasks(size, seed), key=lambda each: -each.work_count)


def _broker_tasks(size: Size, seed: int) -> list[Task]:
    """Return the tasks in which brokers decide by themselves, as in :mod:`experiments.pop_grape.compare_relocation`."""
    settings = QuoteSettings()
    distributions: tuple[Distribution, ...] = ("clustered", "random")
    blank = Task(
        "distributed", "planetlab", "clustered", "shared", 0, seed, 0, DEFAULT_VARIANTS, settings.publisher_count,
        notifications_per_s=NOTIFICATIONS_PER_S, simulated_s=SIMULATED_S,
    )  # fmt: skip
    replace = msgspec.structs.replace
    tasks = [
        replace(blank, distribution=distribution, interested_brokers=x)
        for distribution in distributions
        for x in size.distributed_brokers
    ]
    if size.has_triggers:
        tasks.append(
            replace(
                blank, kind="triggers", testbed="cluster", interested_brokers=TRIGGER_BROKERS, ways=(STATIC, *TRIGGERS)
            )
        )
    if size.migrations:
        tasks.append(
            replace(blank, kind="migrations", interested_brokers=MIGRATION_BROKERS, ways=(), draws=size.migrations)
        )
    return tasks
