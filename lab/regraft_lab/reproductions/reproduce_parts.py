"""What all reproductions share: options, output, and how verdicts are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from regraft.api.programs import Figure, write_figures
from regraft.api.records import replace_file
from regraft_lab.claim_evidence import Judgement


class ReproduceError(ValueError):
    """The evaluation cannot be run as requested; the message says what to change."""


@dataclass(frozen=True, slots=True)
class ReproduceOptions:
    """The options of `regraft-lab`; ``json_file`` gets a copy of the figures."""

    out: Path
    quick: bool = False
    seed: int = 1
    json_file: Path | None = None


def prepare_out(options: ReproduceOptions) -> None:
    """Make the folder of results. Raises ReproduceError if it cannot be made or the seed is invalid."""
    if options.seed < 0:
        raise ReproduceError(f"--seed is {options.seed}: must be at least 0")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReproduceError(f"--out {options.out} cannot be made ({error.strerror}): choose another place") from error


def write_results(
    options: ReproduceOptions,
    run: dict[str, Any],
    figures: Sequence[Figure],
    drawings: Mapping[str, str],
    claims: str,
) -> None:
    """Write figures.json, its copy if requested, the drawings and claims.md."""
    for path in (options.out / "figures.json", options.json_file):
        if path is not None:
            write_figures(path, run, list(figures))
    for name, drawing in drawings.items():
        replace_file(options.out / name, drawing)
    replace_file(options.out / "claims.md", claims)


def show_judgements(judgements: Sequence[tuple[str, Judgement]], out: Path, console: Console) -> None:
    """Print each claim with its verdict, and where the figures are."""
    table = Table(box=None, pad_edge=False)
    table.add_column("verdict", no_wrap=True)
    table.add_column("claim", overflow="fold")
    for text, judgement in judgements:
        table.add_row(str(judgement.verdict), text)
    console.print(table)
    console.print(f"Figures and tables: {out / 'claims.md'}", markup=False, highlight=False, soft_wrap=True)
