"""Repeat the evaluation of Shafique, and write the results."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from regraft.api.programs import run_facts, run_tasks, show_progress
from regraft_lab.claim_evidence import Judgement, Measured
from regraft_lab.octopia.compare_draws import draw_figures
from regraft_lab.octopia.octopia_claims import OUR_CLAIMS, PAPER_CLAIMS, claims_document
from regraft_lab.octopia.octopia_quotes import RealDataError, check_files
from regraft_lab.octopia.octopia_tasks import FULL, QUICK, TaskResult, all_tasks, run_task
from regraft_lab.octopia.octopia_workload import paper_overlay
from regraft_lab.reproductions.reproduce_parts import ReproduceError, ReproduceOptions, prepare_out, write_results

SHIPPED = "the shipped cut"


@dataclass(frozen=True, slots=True)
class OctopiaOptions(ReproduceOptions):
    """The options of `regraft-lab octopia`; ``quotes`` and ``delays`` are files of real input."""

    quotes: Path | None = None
    delays: Path | None = None


def reproduce_octopia(options: OctopiaOptions, console: Console) -> list[tuple[str, Judgement]]:
    """Run the evaluation of Shafique and return the verdict on each claim.

    Writes figures.json and claims.md to ``options.out``. The same seed gives the same figures, on any number of cores.
    Raises ReproduceError before it runs anything.
    """
    size = QUICK if options.quick else FULL
    prepare_out(options)
    quotes, delays = _real_files(options)
    tasks = all_tasks(size, options.seed, quotes, delays)
    parts = options.out / "parts" / size.name
    with show_progress("octopia", sum(task.work_count for task in tasks), console) as advance:
        results = run_tasks(tasks, run_task, TaskResult, parts, advance, "runs")
    figures = draw_figures(results)
    inputs = {"quotes": Path(quotes).name or SHIPPED, "delays": Path(delays).name or SHIPPED}
    run = run_facts({"size": size.name, **asdict(size), **inputs}, options.seed)
    write_results(options, run, figures, {}, claims_document(run, figures))
    measured = Measured(figures)
    return [(claim.text, claim.judged(measured)) for claim in (*PAPER_CLAIMS, *OUR_CLAIMS)]


def _real_files(options: OctopiaOptions) -> tuple[str, str]:
    """Return the files of quotes and delays, empty for the shipped samples. Raises ReproduceError if one is missing."""
    quotes, delays = (str(path.resolve()) if path else "" for path in (options.quotes, options.delays))
    try:
        check_files(quotes, delays, len(paper_overlay().brokers()))
    except RealDataError as error:
        raise ReproduceError(str(error)) from error
    return quotes, delays
