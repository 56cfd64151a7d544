"""Run tasks on all cores if that pays, else in this process: starting a process takes longer than a small task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from regraft.infra.process.run_tasks import ReportDone, ReportWork, Task, progress_text, run_tasks

TaskT = TypeVar("TaskT", bound=Task)
ResultT = TypeVar("ResultT", bound=msgspec.Struct)


def divide_work(
    tasks: Sequence[TaskT],
    run_task: Callable[[TaskT, ReportWork], ResultT],
    result_type: type[ResultT],
    advance: ReportDone,
    noun: str,
    small_work: int,
) -> list[ResultT]:
    """Return the results of tasks, run in this process if their total work is at most ``small_work``.

    Work is in the unit of ``Task.work_count``.

    ``advance(what, work_count)`` and ``noun`` are as in :func:`run_tasks`.
    """
    if sum(task.work_count for task in tasks) > small_work:
        return run_tasks(tasks, run_task, result_type, None, advance, noun)
    done = 0
    results = []
    for number, task in enumerate(tasks):
        what = progress_text(number, len(tasks), noun, [task])

        def report_work(count: int, what: str = what) -> None:
            nonlocal done
            done += count
            advance(what, done)

        results.append(run_task(task, report_work))
    return results
