"""The command `regraft-lab`: read flags, repeat a paper's evaluation, turn outcomes into exit codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from regraft.api.programs import EXIT_CALL, EXIT_FAILED, EXIT_INTERRUPTED, StackError, require_extras

if TYPE_CHECKING:
    from regraft_lab.claim_evidence import Judgement


JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the figures to this file as well.")
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of all random choices.")]

app = typer.Typer(
    no_args_is_help=True, help="Repeat the evaluation of a paper, compare with our planners, and judge its claims."
)


@app.command()
def psoop(
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer networks and shorter runs: 1 to 2 minutes instead of 25.")
    ] = False,
    json_file: JsonFile = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory for the results.")] = Path("out/psoop"),
    seed: Seed = 1,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Folder of recorded networks; adds the Topology Zoo."),
    ] = None,
) -> None:
    """Run the evaluation of Jaeger07 (self-organising broker topologies) and compare with our planner.

    Needs no server. Writes figures.json, claims.md and the drawings. A stopped run resumes where it was.

    Examples: `regraft-lab psoop --quick`; `regraft-lab psoop --seed 3 --out out/psoop-3`.
    """
    from regraft_lab.reproductions.reproduce_psoop import PsoopOptions, reproduce_psoop

    options = PsoopOptions(out, quick, seed, json_file, data)
    _reproduce(lambda console: reproduce_psoop(options, console), out)


@app.command("pop-grape")
def pop_grape(
    quick: Annotated[
        bool, typer.Option("--quick", help="One testbed and fewer workloads: about 2 minutes instead of 10.")
    ] = False,
    json_file: JsonFile = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory for the results.")] = Path(
        "out/pop-grape"
    ),
    seed: Seed = 1,
) -> None:
    """Run the evaluation of Cheung09 (moving publishers by POP and GRAPE) and compare with our planner.

    Needs no server. Writes figures.json, claims.md and the drawings. A stopped run resumes where it was.

    Examples: `regraft-lab pop-grape --quick`; `regraft-lab pop-grape --seed 3 --out out/pop-grape-3`.
    """
    from regraft_lab.reproductions.reproduce_parts import ReproduceOptions
    from regraft_lab.reproductions.reproduce_pop_grape import reproduce_pop_grape

    options = ReproduceOptions(out, quick, seed, json_file)
    _reproduce(lambda console: reproduce_pop_grape(options, console), out)


@app.command()
def dynatops(
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer settings and shorter runs: 1 to 2 minutes instead of 20.")
    ] = False,
    json_file: JsonFile = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory for the results.")] = Path(
        "out/dynatops"
    ),
    seed: Seed = 1,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Folder of recorded check-ins; default: the shipped sample."),
    ] = None,
) -> None:
    """Run the evaluation of Zhao13 (user placement and broker reassignment) and compare with our planner.

    Needs no server. Writes figures.json, claims.md and the drawings. A stopped run resumes where it was.

    Examples: `regraft-lab dynatops --quick`; `regraft-lab dynatops --seed 3 --out out/dynatops-3`.
    """
    from regraft_lab.reproductions.reproduce_dynatops import DynatopsOptions, reproduce_dynatops

    options = DynatopsOptions(out, quick, seed, json_file, data)
    _reproduce(lambda console: reproduce_dynatops(options, console), out)


@app.command()
def octopia(
    quick: Annotated[bool, typer.Option("--quick", help="Shorter bursts: 1 to 2 minutes.")] = False,
    json_file: JsonFile = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory for the results.")] = Path("out/octopia"),
    seed: Seed = 1,
    quotes: Annotated[
        Path | None,
        typer.Option("--quotes", metavar="FILE", help="CSV (.gz) of stock quotes; default: the shipped sample."),
    ] = None,
    delays: Annotated[
        Path | None,
        typer.Option("--delays", metavar="FILE", help=".npz of round-trip times; default: PlanetLab's, as shipped."),
    ] = None,
) -> None:
    """Run the evaluation of Shafique (routing around overloaded links of structured cyclic overlays).

    Needs no server. Writes figures.json and claims.md. A stopped run resumes where it was.

    Examples: `regraft-lab octopia --quick`; `regraft-lab octopia --seed 3 --out out/octopia-3`.
    """
    from regraft_lab.reproductions.reproduce_octopia import OctopiaOptions, reproduce_octopia

    options = OctopiaOptions(out, quick, seed, json_file, quotes, delays)
    _reproduce(lambda console: reproduce_octopia(options, console), out)


@app.command()
def mincost(
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer and smaller networks: 2 minutes instead of hours.")
    ] = False,
    json_file: JsonFile = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory for the results.")] = Path("out/mincost"),
    seed: Seed = 1,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Folder with wonderproxy_rtt.npz; adds networks with its prices."),
    ] = None,
    draws: Annotated[
        int | None, typer.Option("--draws", metavar="N", help="Networks per point; default 100, with --quick 6.")
    ] = None,
) -> None:
    """Run the evaluation of Zhao11 (users packed onto brokers that are priced by traffic) and compare with ours.

    Needs no server. Writes figures.json, claims.md and the drawings. A stopped run resumes where it was.

    Examples: `regraft-lab mincost --quick`; `regraft-lab mincost --draws 5 --data latency`.
    """
    from regraft_lab.reproductions.reproduce_mincost import MincostOptions, reproduce_mincost

    options = MincostOptions(out, quick, seed, json_file, data, draws)
    _reproduce(lambda console: reproduce_mincost(options, console), out)


def _reproduce(run: Callable[[Console], list[tuple[str, Judgement]]], out: Path) -> None:
    """Run an evaluation and show its verdicts; exit with 2 if the call is wrong and 130 on Ctrl-C."""
    from regraft_lab.reproductions.reproduce_parts import ReproduceError, show_judgements

    try:
        judgements = run(Console(stderr=True))
    except ReproduceError as error:
        typer.echo(f"{error}.", err=True)
        raise typer.Exit(EXIT_CALL) from None
    except KeyboardInterrupt:
        typer.echo(f"Stopped by Ctrl-C: finished work is kept in {out}; the same call resumes from there.", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    show_judgements(judgements, out, Console())


def main() -> None:
    """Run the command line; a missing package is named in a sentence, without a traceback."""
    try:
        require_extras("The lab", "plots")
        app()
    except StackError as error:
        typer.echo(str(error), err=True)
        raise SystemExit(EXIT_FAILED) from None
