"""Repeat the evaluation of Zhao11, and write the results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from regraft.api.programs import run_facts, run_tasks, show_progress
from regraft_lab.claim_evidence import Judgement, Measured
from regraft_lab.mincost.draw_mincost import draw_mincost
from regraft_lab.mincost.mincost_claims import OUR_CLAIMS, PAPER_CLAIMS, claims_document
from regraft_lab.mincost.mincost_tasks import FULL, QUICK, TaskResult, all_tasks, mean_figures, run_task
from regraft_lab.mincost.mincost_workload import WONDERPROXY_FILE
from regraft_lab.reproductions.reproduce_parts import ReproduceError, ReproduceOptions, prepare_out, write_results


@dataclass(frozen=True, slots=True)
class MincostOptions(ReproduceOptions):
    """The options; ``data`` is the folder with WonderProxy's round trips, ``draws`` the networks per point."""

    data: Path | None = None
    draws: int | None = None


def reproduce_mincost(options: MincostOptions, console: Console) -> list[tuple[str, Judgement]]:
    """Run the evaluation of Zhao11 and return the verdict on each claim.

    Writes figures.json, claims.md and the drawings to ``options.out``. The same seed gives the same figures, on any
    number of cores, except durations. Raises ReproduceError before it runs anything.
    """
    size = QUICK if options.quick else FULL
    if options.draws is not None and options.draws < 1:
        raise ReproduceError(f"--draws is {options.draws}: must be at least 1, and more for an interval")
    if options.data is not None and not (options.data / WONDERPROXY_FILE).exists():
        raise ReproduceError(f"--data {options.data} holds no {WONDERPROXY_FILE}: name the folder that does")
    size = replace(size, draws=options.draws or size.draws)
    prepare_out(options)
    tasks = all_tasks(size, options.seed, options.data)
    parts = options.out / "parts" / size.name
    with show_progress("mincost", sum(task.work_count for task in tasks), console) as advance:
        results = run_tasks(tasks, run_task, TaskResult, parts, advance, "networks")
    figures = mean_figures(results)
    run = run_facts({"size": size.name, "draws": size.draws}, options.seed)
    write_results(options, run, figures, draw_mincost(figures), claims_document(run, figures))
    measured = Measured(figures)
    return [(claim.text, claim.judged(measured)) for claim in (*PAPER_CLAIMS, *OUR_CLAIMS)]
