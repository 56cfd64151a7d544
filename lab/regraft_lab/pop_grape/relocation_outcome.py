"""The results of a task: for each draw the outcome of each way to place publishers.

Records only; they are stored in files between runs.
"""

from __future__ import annotations

import msgspec

from regraft.api.programs import Figure
from regraft_lab.pop_grape.placement_measures import Measures


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of one way in one draw.

    ``homes``: the last homes. ``rounds``: decisions that moved any publisher. ``moved``: publishers whose last home
    differs from the first; ``hops_moved``: links between the two, summed over publishers. ``cost_decided_per_s``: the
    one cost of these homes on the traffic decided on. ``step``: another parameter that a task varies, else 0.
    ``overhead_per_s``: messages through brokers for gathering and moving, mean over brokers, if they are counted.
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
    """All ways on one workload; ``subscribers_at``: the brokers with subscribers of each publisher, sorted."""

    outcomes: list[Outcome]
    subscribers_at: dict[str, list[str]]


class TaskResult(msgspec.Struct, frozen=True):
    """The draws of a task, mostly one; runs in which brokers decide by themselves have ``figures`` instead."""

    draws: list[Draw]
    figures: list[Figure] = []
