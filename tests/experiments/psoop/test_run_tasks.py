from pathlib import Path

import pytest

import experiments.psoop.run_tasks
from experiments.psoop.evaluation_tasks import QUICK, all_tasks
from experiments.psoop.run_task import run_task
from experiments.psoop.run_tasks import run_tasks
from tests.experiments.psoop.small_evaluation import changed

TASKS = [
    changed(topology=topology, variants=("random_tree", "swap_links_ci"), regime_ticks=1_000) for topology in range(3)
]


def test_processes_give_what_one_process_gives(tmp_path: Path) -> None:
    """In the order of the tasks, whichever ends first; all rounds are told."""
    told: list[int] = []
    results = run_tasks(TASKS, tmp_path, lambda what, done: told.append(done))
    assert results == [run_task(task) for task in TASKS]
    assert told[-1] == sum(task.overlay_rounds for task in TASKS)


def test_a_second_run_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished tasks are read from their files; files of other tasks are removed."""
    results = run_tasks(TASKS, tmp_path)
    (tmp_path / "fig4-uniform-9-0123456789abcdef.json").write_text("{}", encoding="utf-8")
    monkeypatch.setattr(experiments.psoop.run_tasks, "ProcessPoolExecutor", None)
    assert run_tasks(TASKS, tmp_path) == results
    assert len(list(tmp_path.iterdir())) == len(TASKS)
    part = next(tmp_path.iterdir())
    part.write_text(part.read_text(encoding="utf-8")[:50], encoding="utf-8")  # A file that was cut off is no part.
    with pytest.raises(TypeError):
        run_tasks(TASKS, tmp_path)


def test_a_fault_in_a_task_is_raised_here() -> None:
    """A task that cannot be run ends the run with its own message."""
    with pytest.raises(ValueError, match="--data"):
        run_tasks([changed(network="zoo")], None)


def test_the_zoo_is_run_only_with_data() -> None:
    """Without the recorded networks PlanetLab's shipped cut remains."""
    without, given = ({task.network for task in all_tasks(QUICK, 1, data)} for data in ("", "somewhere"))
    assert without == {"transit_stub", "uniform", "planetlab", "small"}
    assert given == without | {"zoo"}
