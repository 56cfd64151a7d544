"""Run the evaluation of Shafique again, and write what came out.

In: options of the command line. Out: figures and verdicts in a folder. What is run, counted and judged belongs to
``experiments``.
"""

from __future__ import annotations

from dataclasses import asdict

from rich.console import Console

from regraft.experiments.claim_evidence import Judgement, Measured
from regraft.experiments.octopia.compare_draws import draw_figures
from regraft.experiments.octopia.octopia_claims import OUR_CLAIMS, PAPER_CLAIMS, claims_document
from regraft.experiments.octopia.octopia_tasks import FULL, QUICK, TaskResult, all_tasks, run_task
from regraft.experiments.run_tasks import run_tasks
from regraft.infra.measured_figures import run_facts
from regraft.infra.show_progress import show_progress
from regraft.reproductions.reproduce_parts import ReproduceOptions, prepare_out, write_results


def reproduce_octopia(options: ReproduceOptions, console: Console) -> list[tuple[str, Judgement]]:
    """Run the evaluation of Shafique and return the verdict on each claim.

    Writes figures.json and claims.md to ``options.out``. The same seed gives the same figures, on any number of cores.
    Raises ReproduceError before anything is run.
    """
    size = QUICK if options.quick else FULL
    prepare_out(options)
    tasks = all_tasks(size, options.seed)
    parts = options.out / "parts" / size.name
    with show_progress("octopia", sum(task.work_count for task in tasks), console) as tell:
        results = run_tasks(tasks, run_task, TaskResult, parts, tell, "runs")
    figures = draw_figures(results)
    run = run_facts({"size": size.name, **asdict(size)}, options.seed)
    write_results(options, run, figures, {}, claims_document(run, figures))
    measured = Measured(figures)
    return [(claim.text, claim.judged(measured)) for claim in (*PAPER_CLAIMS, *OUR_CLAIMS)]
