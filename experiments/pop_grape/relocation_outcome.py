"""What a task of the evaluation gives: for each draw what each way to place publishers came to.

Records only; they are kept in files between runs.
"""

from __future__ import annotations

import msgspec

from regraft.experiments.pop_grape.placement_measures import Measures
from regraft.infra.measured_figures import Figure


class Outcome(msgspec.Struct, frozen=True):
    """What one way came to in one draw.

    ``homes`` are the last ones. ``rounds``: decisions that moved any publisher; ``moved``: publishers that ended
    elsewhere than they started; ``hops_moved``: links between the two, over all publishers. ``cost_decided_per_s``: the
    one cost of these homes on the traffic that was decided on. ``step`` is what a task varies besides, 0 when nothing;
    ``overhead_per_s`` are messages through brokers for gathering and moving, mean over brokers, where they are counted.
    """

    way: str
    measures: Measures
    homes: dict[str, str]
    rounds: int
    moved: int
    hops_moved: int
    cost_decided_per_s: float
    step: int = 0
    overhead_per_s: float = 0.0


class Draw(msgspec.Struct, frozen=True):
    """All ways on one workload; ``subscribers_at`` names the brokers with subscribers of each publisher, sorted."""

    outcomes: list[Outcome]
    subscribers_at: dict[str, list[str]]


class TaskResult(msgspec.Struct, frozen=True):
    """The draws of a task, mostly one; what brokers did by themselves has no draws but ``figures``."""

    draws: list[Draw]
    figures: list[Figure] = []
