"""Reassign ring IDs for subscriptions that follow patterns: Fig. 10, one draw at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec

from regraft.api.programs import Figure
from regraft_lab.dynatops.cut_patterns import EVENTS, PATTERNS, cut_figures, net_benefit_figures

COUNT_OF_WORK = 10  # This many brokers or topics take as long as an hour of the Poisson model.


class PatternTask(msgspec.Struct, frozen=True, tag="patterns"):
    """All patterns for one size; with ``has_prices`` also reassignments that must pay off."""

    seed: int
    draw: int
    brokers: int
    topics: int
    has_prices: bool

    @property
    def label(self) -> str:
        """The name of the task in file names."""
        return f"patterns-{self.brokers}-{self.topics}-{self.draw}"

    @property
    def work_count(self) -> int:
        """The work of the task, in simulated hours of the Poisson model."""
        return max(1, (2 * self.brokers + self.topics) // COUNT_OF_WORK)


def run_patterns(task: PatternTask, report_work: Callable[[int], None]) -> list[Figure]:
    """Return the samples of one draw."""
    # Draws of consecutive seeds must not coincide.
    seed = task.seed * 1_000 + task.draw
    figures = cut_figures(task.brokers, task.topics, 1, seed, PATTERNS)
    if task.has_prices:
        figures += net_benefit_figures(task.brokers, task.topics, 1, seed, PATTERNS, EVENTS)
    report_work(task.work_count)
    return [
        replace(each, where={key: value for key, value in each.where.items() if key != "draws"}) for each in figures
    ]
