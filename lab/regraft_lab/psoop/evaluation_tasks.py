"""The tasks of the evaluation of Jaeger07, which are independent of each other, in two sizes.

In: a size and a seed. Out: tasks, each with one network, one workload and all the overlays that share them. Running
them and using the results do not belong here.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from regraft_lab.psoop.small_instances import SMALL_SETTINGS

Experiment = Literal["fig4", "fig5", "fig6", "figh", "optimum"]
Memory = Literal["cache", "interval"]
Network = Literal["transit_stub", "uniform", "planetlab", "zoo", "small"]

ETA = 4  # The paper's default.
ROUND_TICKS = 250  # The paper's broadcast interval.
LIFETIME_TICKS = 2_500  # The mean lifetime of a subscription.
INSTANCE_ROUNDS = 10  # Work of a small overlay with its optimum, in overlay rounds.
ALPHA = 0.5  # c_max = p_max = 10, the paper's default.


class Task(msgspec.Struct, frozen=True):
    """One network with one workload.

    ``variants``: names of :mod:`experiments.psoop.adapt_overlay`. ``steps``: values of the varied parameter: eta
    (fig5), alpha (fig6), remembered subscription lifetimes (figh), or brokers of ``instances`` small overlays
    (optimum). ``memory``: what brokers compare: their caches (section 4), or the ids added in the last interval
    (section 4.3.1, by which a broadcast contains only these). A run lasts ``warmup_ticks``, in which traffic is only
    recorded, and ``regimes`` times ``regime_ticks``, each with its own costs and loads.
    """

    experiment: Experiment
    network: Network
    topology: int
    seed: int
    variants: tuple[str, ...]
    regime_ticks: int
    regimes: int = 1
    warmup_ticks: int = 0
    steps: tuple[float, ...] = ()
    broker_count: int = 100
    type_count: int = 50
    data: str = ""
    instances: int = 0
    memory: Memory = "cache"

    @property
    def overlays(self) -> list[tuple[str, float]]:
        """Each overlay's variant and step; a random tree is the same for every eta, so it occurs only once."""
        steps = self.steps or (0.0,)
        return [
            (variant, step)
            for step in steps
            for variant in self.variants
            if variant != "random_tree" or self.experiment != "fig5" or step == steps[0]
        ]

    @property
    def ticks(self) -> int:
        """The length of the run without its warm-up."""
        return self.regimes * self.regime_ticks

    @property
    def label(self) -> str:
        """The name of the task in file names."""
        return f"{self.experiment}-{self.network}-{self.topology}"

    @property
    def work_count(self) -> int:
        """The work of the task: rounds, summed over overlays."""
        if self.experiment == "optimum":
            return len(SMALL_SETTINGS) * len(self.steps) * self.instances * INSTANCE_ROUNDS
        return len(self.overlays) * (self.ticks // ROUND_TICKS)


class Size(msgspec.Struct, frozen=True):
    """The extent of a run. ``topologies``: by experiment; ``other_topologies``: for networks other than the paper's.

    ``decision_brokers``: the sizes of overlay for which ``decisions`` decisions are timed.
    """

    name: str
    regime_ticks: int
    topologies: dict[Experiment, int]
    other_topologies: int
    etas: tuple[float, ...]
    alphas: tuple[float, ...]
    lifetimes: tuple[float, ...]
    memory_ticks: int
    optimum_brokers: tuple[int, ...]
    optimum_instances: int
    decision_brokers: tuple[int, ...]
    decisions: int
    broker_count: int = 100
    type_count: int = 50


FULL = Size(
    name="full",
    regime_ticks=25_000,
    topologies={"fig4": 25, "fig5": 20, "fig6": 12, "figh": 8},
    other_topologies=10,
    etas=(1, 2, 3, 4, 5, 6, 7, 8),
    alphas=(0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
    lifetimes=(0.25, 0.5, 1, 2, 4, 8, 16),
    memory_ticks=10_000,
    optimum_brokers=(5, 6, 7),
    optimum_instances=30,
    decision_brokers=(40, 100, 1000),
    decisions=20,
)
QUICK = Size(
    name="quick",
    regime_ticks=5_000,
    topologies={"fig4": 4, "fig5": 4, "fig6": 3, "figh": 2},
    other_topologies=2,
    etas=(1, 2, 4, 6, 8),
    alphas=(0.0, 0.5, 1.0),
    lifetimes=(0.25, 1, 4),
    memory_ticks=5_000,
    optimum_brokers=(5, 6),
    optimum_instances=3,
    decision_brokers=(40, 100),
    decisions=4,
)

FIG4_VARIANTS = (
    "random_tree",
    "minimum_spanning_tree",
    "maximum_interest_tree",
    "swap_links_lmst",
    "swap_links_lmit",
    "swap_links_ci",
    "swap_links_cost",
)
COMPARED_VARIANTS = ("random_tree", "swap_links_lmst", "swap_links_lmit", "swap_links_ci", "swap_links_cost")


def all_tasks(size: Size, seed: int, data: str = "") -> list[Task]:
    """Return the tasks of one run, longest first, so that the last ones to finish are short.

    ``data`` is the folder of recorded networks; if it is empty, the Topology Zoo is left out and PlanetLab is the
    shipped cut.
    """

    def task(experiment: Experiment, network: Network, topology: int, variants: tuple[str, ...], ticks: int) -> Task:
        return Task(
            experiment, network, topology, seed, variants, ticks,
            broker_count=size.broker_count, type_count=size.type_count, data=data,
        )  # fmt: skip

    replace = msgspec.structs.replace
    tasks = [
        replace(task("fig4", "transit_stub", topology, FIG4_VARIANTS, size.regime_ticks), regimes=3)
        for topology in range(size.topologies["fig4"])
    ]
    others: tuple[Network, ...] = ("uniform", "planetlab", "zoo") if data else ("uniform", "planetlab")
    tasks += [
        task("fig4", network, topology, FIG4_VARIANTS, size.regime_ticks)
        for network in others
        for topology in range(size.other_topologies)
    ]
    tasks += [
        replace(task("fig4", "transit_stub", topology, COMPARED_VARIANTS, size.regime_ticks), memory="interval")
        for topology in range(size.other_topologies)
    ]
    tasks += [
        replace(
            task("fig5", "transit_stub", topology, ("random_tree", "swap_links_ci"), size.regime_ticks), steps=size.etas
        )
        for topology in range(size.topologies["fig5"])
    ]
    tasks += [
        replace(task("fig6", "transit_stub", topology, COMPARED_VARIANTS, size.regime_ticks), steps=size.alphas)
        for topology in range(size.topologies["fig6"])
    ]
    networks: tuple[Network, ...] = ("transit_stub", "uniform")
    tasks += [
        replace(
            task("figh", network, topology, COMPARED_VARIANTS, size.memory_ticks),
            steps=size.lifetimes,
            warmup_ticks=round(max(size.lifetimes) * LIFETIME_TICKS),
        )
        for network in networks
        for topology in range(size.topologies["figh"])
    ]
    tasks += [
        Task("optimum", "small", 0, seed, (), 0, steps=(brokers,), instances=size.optimum_instances)
        for brokers in size.optimum_brokers
    ]
    return sorted(tasks, key=lambda each: -each.work_count)
