"""Repeat the evaluation of Jaeger07, with our planner for comparison, and write the results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.console import Console

from regraft.api.programs import run_facts, run_tasks, show_progress
from regraft_lab.claim_evidence import Judgement, Measured
from regraft_lab.psoop import topologies
from regraft_lab.psoop.claims_table import claims_document
from regraft_lab.psoop.count_figures import evaluation_figures
from regraft_lab.psoop.draw_evaluation import draw_evaluation
from regraft_lab.psoop.evaluation_tasks import FULL, QUICK, Size, all_tasks
from regraft_lab.psoop.judge_claims import PAPER_CLAIMS
from regraft_lab.psoop.judge_ours import OUR_CLAIMS
from regraft_lab.psoop.run_task import TaskResult, run_task
from regraft_lab.psoop.time_decisions import PLANNERS_TIMED, STARTS, decision_figures
from regraft_lab.reproductions.reproduce_parts import ReproduceError, ReproduceOptions, prepare_out, write_results


@dataclass(frozen=True, slots=True)
class PsoopOptions(ReproduceOptions):
    """The options of `regraft-lab psoop`; ``data`` is the folder of recorded networks, if any."""

    data: Path | None = None


def reproduce_psoop(options: PsoopOptions, console: Console) -> list[tuple[str, Judgement]]:
    """Run the evaluation of Jaeger07 and return the verdict on each claim.

    Writes figures.json, claims.md and one SVG for each drawing to ``options.out``. The same seed gives the same
    figures, on any number of cores, except how long decisions take. Raises ReproduceError before it runs anything.
    """
    size = QUICK if options.quick else FULL
    _check(options, size)
    tasks = all_tasks(size, options.seed, str(options.data.resolve()) if options.data else "")
    parts = options.out / "parts" / size.name
    with show_progress("psoop", sum(task.work_count for task in tasks), console) as advance:
        results = list(zip(tasks, run_tasks(tasks, run_task, TaskResult, parts, advance), strict=True))
    # Timed last, when nothing else runs.
    with show_progress("decisions", len(size.decision_brokers) * len(PLANNERS_TIMED) * len(STARTS), console) as advance:
        timed = decision_figures(size.decision_brokers, size.decisions, options.seed, advance)
    figures = evaluation_figures(results) + timed
    run = run_facts(_settings(size, options), options.seed)
    write_results(options, run, figures, draw_evaluation(results, figures), claims_document(run, figures))
    measured = Measured(figures)
    return [(claim.text, claim.judged(measured)) for claim in (*PAPER_CLAIMS, *OUR_CLAIMS)]


def _settings(size: Size, options: PsoopOptions) -> dict[str, Any]:
    data = str(options.data) if options.data else "none: PlanetLab is the shipped cut, no Topology Zoo"
    settings: dict[str, Any] = msgspec.to_builtins(size)
    return {"size": size.name, "data": data} | settings


def _check(options: PsoopOptions, size: Size) -> None:
    """Raise ReproduceError now for what would otherwise fail after an hour of work."""
    if options.data is not None:
        try:
            topologies.zoo_costs(options.data, size.broker_count, np.random.default_rng(0))
            topologies.planetlab_costs(size.broker_count, np.random.default_rng(0), options.data)
        except OSError as error:
            raise ReproduceError(f"--data {options.data} is not the folder of recorded networks: {error}") from error
    prepare_out(options)
