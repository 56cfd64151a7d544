"""Run one task of Zhao13's evaluation, of any kind."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from regraft.api.programs import Figure
from regraft_lab.dynatops.count_protocol import ProtocolTask, run_protocol
from regraft_lab.dynatops.run_clusters import ClusterTask, run_clusters
from regraft_lab.dynatops.run_location import LocationTask, run_location
from regraft_lab.dynatops.run_location_users import LocationUsersTask, run_location_users
from regraft_lab.dynatops.run_patterns import PatternTask, run_patterns
from regraft_lab.dynatops.run_poisson import PoissonTask, run_poisson

Task = PoissonTask | ClusterTask | LocationTask | LocationUsersTask | PatternTask | ProtocolTask


class TaskResult(msgspec.Struct, frozen=True):
    """The samples of one draw as figures without the draw: means are taken over equal settings."""

    samples: list[Figure]


def run_task(task: Task, report_work: Callable[[int], None] = lambda count: None) -> TaskResult:
    """Return the samples of a task; ``report_work`` is called with the amount of work as it is done."""
    match task:
        case PoissonTask():
            return TaskResult(run_poisson(task, report_work))
        case ClusterTask():
            return TaskResult(run_clusters(task, report_work))
        case LocationTask():
            return TaskResult(run_location(task, report_work))
        case LocationUsersTask():
            return TaskResult(run_location_users(task, report_work))
        case PatternTask():
            return TaskResult(run_patterns(task, report_work))
        case ProtocolTask():
            return TaskResult(run_protocol(task, report_work))
