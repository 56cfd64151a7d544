"""Run systems through the same steps of time, and turn their results into samples of figures.

The systems are in :mod:`experiments.dynatops.compared_systems`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from regraft.api.programs import Figure
from regraft_lab.dynatops.broker_interests import InterestStep
from regraft_lab.dynatops.compared_systems import Measures, System, SystemCounts

Where = dict[str, str | int | float]
Name = tuple[str, str]  # System, users' homes.

ROUNDING = 1e-6  # Of a time measured in periods.
CUT_METRICS = ("delay", "messages", "management_per_h")


@dataclass(frozen=True)
class Schedule:
    """Measure every ``measure_h`` from ``settle_h`` on; periods last ``period_h``. Times are in h, from 0."""

    measure_h: float
    settle_h: float
    period_h: float = np.inf

    def is_measured(self, end_h: float) -> bool:
        """Return True if the end of a step is measured."""
        return end_h > 0 and end_h >= self.settle_h and _is_multiple(end_h, self.measure_h)

    def ends_period(self, end_h: float) -> bool:
        """Return True if a period ends at the end of a step."""
        return end_h > 0 and _is_multiple(end_h, self.period_h)


@dataclass(frozen=True)
class SystemTotals:
    """The results of one system: mean measures, messages, and the hours over which these were counted."""

    measures: Measures
    counts: SystemCounts
    hours: float
    exchange_messages: float = 0.0

    @property
    def management_per_h(self) -> float:
        """Messages per hour for requests to roots and exchanges within clusters."""
        return (self.counts.requests + self.exchange_messages) / self.hours

    def metric(self, name: str) -> float:
        """Return one of :data:`CUT_METRICS`."""
        return self.management_per_h if name == "management_per_h" else float(getattr(self.measures, name))


def watch_systems(
    steps: Iterable[InterestStep],
    systems: Mapping[str, System],
    schedule: Schedule,
    report_step: Callable[[], None] = lambda: None,
) -> dict[str, SystemTotals]:
    """Return the totals of each system; at the end of a period, systems are measured before they adapt.

    Raises ValueError if the schedule has no time to measure within the steps.
    """
    measures: dict[str, list[Measures]] = {name: [] for name in systems}
    hours = 0.0
    for step in steps:
        hours = step.end_h
        for name, system in systems.items():
            system.observe(step)
            if schedule.is_measured(hours):
                measures[name].append(system.measures(step))
            if schedule.ends_period(hours):
                system.adapt(step)
        report_step()
    if not all(measures.values()):
        raise ValueError(f"there is no time to measure within {hours} h: {schedule}")
    return {name: SystemTotals(_mean(measures[name]), system.counts, hours) for name, system in systems.items()}


def total_samples(where: Where, totals: Mapping[Name, SystemTotals], delay_unit: str) -> list[Figure]:
    """Return the samples of all systems by ``system`` and ``homes``."""
    samples: list[Figure] = []
    for (system, homes), total in totals.items():
        here: Where = {**where, "system": system, "homes": homes}
        measures, counts = total.measures, total.counts
        samples += [
            Figure("delay", here, measures.delay, delay_unit),
            Figure("broker_delay", here, measures.broker_delay, delay_unit),
            Figure("messages_per_notification", here, measures.messages, "messages"),
            Figure("relays_per_notification", here, measures.relays, "messages"),
            Figure("requests_per_h", here, counts.requests / total.hours, "messages/h"),
            Figure("management_per_h", here, total.management_per_h, "messages/h"),
            Figure("reassignments_per_100h", here, 100 * counts.reassignments / total.hours, "1"),
            Figure("reassignment_messages_per_h", here, counts.reassignment_messages / total.hours, "messages/h"),
            Figure("moved_per_h", here, counts.moved / total.hours, "1/h"),
        ]
        if delay_unit != "hops":
            samples.append(Figure("hops", here, measures.hops, "hops"))
    return samples


def cut_samples(
    where: Where, totals: Mapping[Name, SystemTotals], subjects: Sequence[Name], against: Sequence[Name]
) -> list[Figure]:
    """Return the savings of each subject over each of ``against``: 1 - subject / other, in the same draw."""
    samples: list[Figure] = []
    for subject in subjects:
        for other in against:
            if subject == other or subject not in totals or other not in totals:
                continue
            here: Where = {
                **where, "system": subject[0], "homes": subject[1], "against": other[0], "against_homes": other[1]
            }  # fmt: skip
            for metric in CUT_METRICS:
                before = totals[other].metric(metric)
                if before > 0:
                    samples.append(Figure(f"{metric}_cut", here, 1 - totals[subject].metric(metric) / before, "1"))
    return samples


def _mean(measures: Sequence[Measures]) -> Measures:
    means = {each.name: float(np.mean([getattr(one, each.name) for one in measures])) for each in fields(Measures)}
    return Measures(**means)


def _is_multiple(time_h: float, of_h: float) -> bool:
    if not np.isfinite(of_h):
        return False
    count = time_h / of_h
    return abs(count - round(count)) < ROUNDING
