"""Repeat the evaluation of Cheung09, with our planner for comparison, and write the results."""

from __future__ import annotations

from typing import Any

import msgspec
from rich.console import Console

from regraft.api.programs import run_facts, run_tasks, show_progress
from regraft_lab.claim_evidence import Judgement, Measured
from regraft_lab.pop_grape.draw_relocation import draw_relocation
from regraft_lab.pop_grape.judge_joint import OUR_CLAIMS
from regraft_lab.pop_grape.relocation_claims import PAPER_CLAIMS
from regraft_lab.pop_grape.relocation_figures import relocation_figures
from regraft_lab.pop_grape.relocation_outcome import TaskResult
from regraft_lab.pop_grape.relocation_tasks import FULL, QUICK, all_tasks
from regraft_lab.pop_grape.run_relocation import run_task
from regraft_lab.pop_grape.tabulate_claims import claims_document
from regraft_lab.pop_grape.time_selection import selection_figures
from regraft_lab.reproductions.reproduce_parts import ReproduceOptions, prepare_out, write_results


def reproduce_pop_grape(options: ReproduceOptions, console: Console) -> list[tuple[str, Judgement]]:
    """Run the evaluation of Cheung09 and return the verdict on each claim.

    Writes figures.json, claims.md and one SVG for each drawing to ``options.out``. The same seed gives the same
    figures, on any number of cores, except how long selections take. Raises ReproduceError before it runs anything.
    """
    size = QUICK if options.quick else FULL
    prepare_out(options)
    tasks = all_tasks(size, options.seed)
    parts = options.out / "parts" / size.name
    with show_progress("pop-grape", sum(task.work_count for task in tasks), console) as advance:
        results = list(zip(tasks, run_tasks(tasks, run_task, TaskResult, parts, advance, "workloads"), strict=True))
    # Timed last, when nothing else runs.
    with show_progress("selections", len(size.selection_brokers), console) as advance:
        timed = selection_figures(size.selection_brokers, options.seed, advance)
    figures = relocation_figures(results) + timed
    settings: dict[str, Any] = msgspec.to_builtins(size)
    run = run_facts({"size": size.name} | settings, options.seed)
    write_results(options, run, figures, draw_relocation(figures), claims_document(run, figures))
    measured = Measured(figures)
    return [(claim.text, claim.judged(measured)) for claim in (*PAPER_CLAIMS, *OUR_CLAIMS)]
