"""Repeat the evaluation of Zhao13, with our planner for comparison, and write the results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from regraft.api.programs import Advance, Figure, run_facts, run_tasks, show_progress
from regraft_lab.claim_evidence import Judgement, Measured
from regraft_lab.dynatops.draw_dynatops import draw_dynatops
from regraft_lab.dynatops.dynatops_claims import PAPER_CLAIMS
from regraft_lab.dynatops.dynatops_figures import mean_figures
from regraft_lab.dynatops.dynatops_tasks import FULL, QUICK, Size, all_tasks
from regraft_lab.dynatops.judge_dynatops_ours import OUR_CLAIMS
from regraft_lab.dynatops.location_setting import recorded_movements
from regraft_lab.dynatops.run_dynatops import TaskResult, run_task
from regraft_lab.dynatops.tabulate_dynatops import claims_document
from regraft_lab.dynatops.time_placement import placement_times
from regraft_lab.dynatops.time_reassignment import reassignment_times
from regraft_lab.reproductions.reproduce_parts import ReproduceError, ReproduceOptions, prepare_out, write_results


@dataclass(frozen=True, slots=True)
class DynatopsOptions(ReproduceOptions):
    """The options of `regraft-lab dynatops`; ``data`` is a folder of check-ins, None for the shipped sample."""

    data: Path | None = None


def reproduce_dynatops(options: DynatopsOptions, console: Console) -> list[tuple[str, Judgement]]:
    """Run the evaluation of Zhao13 and return the verdict on each claim.

    Writes figures.json, claims.md and one SVG for each drawing to ``options.out``. The same seed gives the same
    figures, on any number of cores, except how long placements and reassignments take. Raises ReproduceError before it
    runs anything.
    """
    size = QUICK if options.quick else FULL
    _check(options)
    tasks = all_tasks(size, options.seed, str(options.data.resolve()) if options.data else "")
    parts = options.out / "parts" / size.name
    with show_progress("dynatops", sum(task.work_count for task in tasks), console) as advance:
        results = run_tasks(tasks, run_task, TaskResult, parts, advance, "settings")
    # Timed last, when nothing else runs.
    with show_progress("times", len(size.timed_sizes), console) as advance:
        timed = _times(size, options.seed, advance)
    figures = mean_figures(results) + timed
    run = run_facts(_settings(size, options), options.seed)
    write_results(options, run, figures, draw_dynatops(figures), claims_document(run, figures))
    measured = Measured(figures)
    return [(claim.text, claim.judged(measured)) for claim in (*PAPER_CLAIMS, *OUR_CLAIMS)]


def _times(size: Size, seed: int, advance: Advance) -> list[Figure]:
    timed = reassignment_times(size.timed_sizes, seed, scratch_values_max=size.scratch_values_max, on_progress=advance)
    return timed + placement_times(seed, size.user_count)


def _settings(size: Size, options: DynatopsOptions) -> dict[str, Any]:
    data = str(options.data) if options.data else "the shipped cut"
    settings: dict[str, Any] = msgspec.to_builtins(size)
    return {"size": size.name, "data": data} | settings


def _check(options: DynatopsOptions) -> None:
    """Raise ReproduceError now for what would otherwise fail after minutes of work."""
    if options.data is not None:
        try:
            recorded_movements(options.data)
        except (OSError, KeyError, ValueError) as error:
            raise ReproduceError(f"--data {options.data} is not the folder of recorded check-ins: {error}") from error
    prepare_out(options)
