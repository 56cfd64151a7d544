"""The command `regraft reproduce`: read flags, run a paper's evaluation again, turn outcomes into exit codes.

Exit codes as in :mod:`regraft.cli`. What is run, counted and judged belongs to ``experiments``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

EXIT_CALL = 2
EXIT_INTERRUPTED = 130

reproduce_app = typer.Typer(
    no_args_is_help=True, help="Run the evaluation of a paper again, with ours beside it, and judge its claims."
)


@reproduce_app.callback()
def _papers() -> None:
    """Keep the paper's name a word of the command line, however many papers there are."""


@reproduce_app.command()
def psoop(
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer networks and shorter runs: about 2 minutes instead of 20.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures to this file as well.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where results go.")] = Path("out/psoop"),
    seed: Annotated[int, typer.Option("--seed", help="Seed of all random choices.")] = 1,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Folder of recorded networks; adds the Topology Zoo."),
    ] = None,
) -> None:
    """Run the evaluation of paper 000 (self-organising broker topologies) with our planner beside the paper's.

    Needs no server. Writes figures.json, claims.md and the drawings. A run that was stopped goes on where it was.

    Examples: `regraft reproduce psoop --quick`; `regraft reproduce psoop --seed 3 --out out/psoop-3`.
    """
    from regraft.reproduce_psoop import ReproduceError, ReproduceOptions, reproduce_psoop, show_judgements

    options = ReproduceOptions(out, quick, seed, json_file, data)
    try:
        judgements = reproduce_psoop(options, Console(stderr=True))
    except ReproduceError as error:
        typer.echo(f"{error}.", err=True)
        raise typer.Exit(EXIT_CALL) from None
    except KeyboardInterrupt:
        typer.echo(f"Stopped by Ctrl-C: what is done is kept in {out}, the same call goes on from there.", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    show_judgements(judgements, out, Console())
