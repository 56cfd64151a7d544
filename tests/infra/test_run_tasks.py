import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

import regraft.infra.process.run_tasks
from lab.tests.psoop.small_evaluation import changed
from regraft.infra.process.run_tasks import ReportWork, progress_text, run_tasks
from regraft_lab.psoop.run_task import TaskResult, run_task
from tests.wait_until import PATIENCE_S

TASKS = [
    changed(topology=topology, variants=("random_tree", "swap_links_ci"), regime_ticks=1_000) for topology in range(3)
]


def test_processes_give_what_one_process_gives(tmp_path: Path) -> None:
    """In the order of the tasks, whichever ends first; all rounds are reported."""
    reported: list[tuple[str, int]] = []
    results = run_tasks(TASKS, run_task, TaskResult, tmp_path, lambda what, done: reported.append((what, done)))
    assert results == [run_task(task) for task in TASKS]
    assert reported[-1] == ("3 of 3 networks done", sum(task.work_count for task in TASKS))


def test_progress_names_the_tasks_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks start in order, one per core, so the first unfinished ones are those that run."""
    monkeypatch.setattr(regraft.infra.process.run_tasks, "_core_count", lambda: 2)
    one, two = TASKS[1].label, TASKS[2].label
    assert progress_text(1, 9, "networks", [*TASKS[1:], *TASKS]) == f"{one}, {two}; 1 of 9 networks done"


def test_a_second_run_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished tasks are read from their files; files of other tasks are removed."""
    results = run_tasks(TASKS, run_task, TaskResult, tmp_path)
    (tmp_path / "fig4-uniform-9-0123456789abcdef.json").write_text("{}", encoding="utf-8")
    monkeypatch.setattr(regraft.infra.process.run_tasks, "ProcessPoolExecutor", None)
    assert run_tasks(TASKS, run_task, TaskResult, tmp_path) == results
    assert len(list(tmp_path.iterdir())) == len(TASKS)
    part = next(tmp_path.iterdir())
    part.write_text(part.read_text(encoding="utf-8")[:50], encoding="utf-8")  # A truncated file does not count.
    with pytest.raises(TypeError):
        run_tasks(TASKS, run_task, TaskResult, tmp_path)


def test_a_error_in_a_task_ends_the_run() -> None:
    """A task that cannot run ends the run with its own message."""
    with pytest.raises(ValueError, match="--data"):
        run_tasks([changed(network="zoo")], run_task, TaskResult, None)


class _TaskWithTable(msgspec.Struct, frozen=True):
    """A task that is not hashable, like settings that contain a table."""

    number: int
    table: dict[str, int] = {}
    label: str = "table"
    work_count: int = 1


class _Number(msgspec.Struct, frozen=True):
    number: int


def _number_of(task: _TaskWithTable, report_work: ReportWork) -> _Number:
    report_work(1)
    return _Number(task.number)


def test_a_task_need_not_be_hashable() -> None:
    """Settings of planners contain a table; equal tasks each have their result, in order."""
    tasks = [_TaskWithTable(2), _TaskWithTable(1), _TaskWithTable(2)]
    assert [one.number for one in run_tasks(tasks, _number_of, _Number, None)] == [2, 1, 2]


def test_an_interrupt_waits_until_processes_are_started() -> None:
    """On whichever thread it arrives; the previous handler gets it afterwards."""
    may_end = threading.Event()
    other = threading.Thread(target=may_end.wait)
    other.start()
    steps: list[str] = []
    before = signal.signal(signal.SIGINT, lambda *_: steps.append("interrupted"))
    try:
        with regraft.infra.process.run_tasks._interrupts_held_back():
            os.kill(os.getpid(), signal.SIGINT)
            may_end.wait(0.05)
            steps.append("started")
        steps.append("after")
    finally:
        signal.signal(signal.SIGINT, before)
        may_end.set()
        other.join()
    assert steps == ["started", "interrupted", "after"]


def number_in_an_hour(task: _TaskWithTable, report_work: ReportWork) -> _Number:
    """Report that it runs, then continue for longer than any test."""
    report_work(1)
    time.sleep(3_600)
    return _Number(task.number)


def announce(what: str, work_count: int) -> None:
    """Print a line once a task runs."""
    if work_count:
        sys.stdout.write("running\n")
        sys.stdout.flush()


LONG_RUN = """
from tests.infra.test_run_tasks import *
from tests.infra.test_run_tasks import _Number, _TaskWithTable
if __name__ == "__main__":
    run_tasks([_TaskWithTable(1), _TaskWithTable(2)], number_in_an_hour, _Number, None, announce)
"""


def test_sigterm_ends_a_run_in_order(tmp_path: Path) -> None:
    """Processes end with it, the exit code is 143, and nothing is said of what it has left behind."""
    script = tmp_path / "long_run.py"
    script.write_text(LONG_RUN, encoding="utf-8")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "running\n"
        run.terminate()
        _, complaint = run.communicate(timeout=PATIENCE_S)
    assert (run.returncode, complaint) == (143, "")
