"""The command `regraft backtest`: flags in, a table, figures and drawings out.

Planners are run by :mod:`regraft.backtests.run_backtest`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from regraft.commands.print_table import print_table, print_text, table_console
from regraft.infra.process.exit_codes import EXIT_CALL, EXIT_FAILED, EXIT_INTERRUPTED
from regraft.schemas.texts import ended
from regraft.schemas.units import SECOND_MS

if TYPE_CHECKING:
    from regraft.backtests.run_backtest import Backtest, BacktestOptions

CLOSED_LOOP_S = 180
PRINTED = Path("-")

JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the figures to this file; - prints them only.")
]
CsvFile = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the figures as CSV, one per row.")]


def backtest(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Recording, or the folder that contains it.")],
    planner: Annotated[
        list[str] | None,
        typer.Option(
            "--planner",
            metavar="NAME",
            help="Planner to run (join several with +); repeat to compare; auto compares all. Default: as recorded.",
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Override one recorded setting; repeat for more."),
    ] = None,
    begin: Annotated[
        str | None, typer.Option("--from", metavar="T", help="Start at this time: ISO 8601, or ms since 1970.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="T", help="End at this time.")] = None,
    closed_loop_s: Annotated[
        int,
        typer.Option("--closed-loop-s", metavar="SECONDS", help="Seconds of the run to emulate again; 0 for none."),
    ] = CLOSED_LOOP_S,
    resimulate: Annotated[
        bool, typer.Option("--resimulate", help="Emulate even a recording that is not from the emulator.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Directory for figures and charts.")] = None,
    json_file: JsonFile = None,
    csv_file: CsvFile = None,
) -> None:
    """Run planners on a recording and compare their results. Needs neither Kafka nor Spark.

    The open loop always runs: each planner decides on the recorded windows by the controller's own rules, on its own
    overlay. The closed loop runs if the recording is from the emulator: each planner acts on the emulator again, and
    the ledger counts what was lost. The recorded settings apply unless --set overrides them.

    Examples: `regraft backtest rec.avro --planner swap_links_ci --planner swap_links_cost --out out/backtest`;
    `regraft backtest rec.avro --planner swap_links_cost --set controller.decision.noise_factor=3 --closed-loop-s 0`.
    """
    from regraft.backtests.run_backtest import BacktestError, BacktestOptions, run_backtest
    from regraft.commands.parse_assignments import parse_assignments
    from regraft.settings.run_settings import SettingsError

    _begin(out)
    is_json_only = json_file == PRINTED
    errors: list[str] = []
    flags: dict[str, dict[str, Any]] = {}
    try:
        flags = parse_assignments(assignments or [])
    except SettingsError as error:
        errors += error.errors
    from_ms, to_ms = _time_ms("--from", begin, errors), _time_ms("--to", end, errors)
    options = BacktestOptions(file, tuple(planner or ()), flags, from_ms, to_ms, closed_loop_s, resimulate)
    try:
        if errors:
            raise BacktestError(errors)
        result = run_backtest(options, Console(stderr=True, quiet=is_json_only))
    except BacktestError as error:
        for sentence in error.errors:
            print_text(f"Cannot backtest: {ended(sentence)}", err=True)
        raise typer.Exit(EXIT_CALL) from None
    except KeyboardInterrupt:
        typer.echo("Interrupted: nothing was written.", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _write(result, options, out, json_file, csv_file)
    _show(result, options, out, is_json_only=is_json_only)
    for sentence in result.errors:
        typer.echo(f"Failed: {sentence}.", err=True)
    if result.errors:
        raise typer.Exit(EXIT_FAILED)


def _begin(out: Path | None) -> None:
    """From now on log warnings and errors only; raise StackError before minutes of planning, not after them."""
    from regraft.infra.process.find_extras import require_extras
    from regraft.infra.process.log_stream import configure_logs

    configure_logs(level="warning")
    if out is not None:
        require_extras("The option --out", "plots")


def _write(
    result: Backtest, options: BacktestOptions, out: Path | None, json_file: Path | None, csv_file: Path | None
) -> None:
    from regraft.backtests.show_backtest import write_backtest

    write_backtest(result, options, out, None if json_file == PRINTED else json_file, csv_file)


def _show(result: Backtest, options: BacktestOptions, out: Path | None, *, is_json_only: bool) -> None:
    from regraft.backtests.choose_settings import CHOICE_HEADS
    from regraft.backtests.show_backtest import figures_document, outcome_tables

    if is_json_only:
        typer.echo(json.dumps(figures_document(result, options), indent=1))
        return
    console = table_console()
    for table in outcome_tables(result.outcomes):
        console.print(table)
        console.print()
    if result.choice is not None:
        print_table(CHOICE_HEADS, result.choice.rows, wraps=("candidate",), console=console)
        typer.echo(f"\n{result.choice.text}")
    for note in result.notes:
        typer.echo(note)
    for warning in result.warnings:
        print_text(f"Warning: {warning}", err=True)
    if out is not None:
        console.print(f"Report: {out / 'backtest.html'}", markup=False, highlight=False, soft_wrap=True)


def _time_ms(flag: str, text: str | None, errors: list[str]) -> int | None:
    """Return a time of the command line in ms since 1970; without a zone it is UTC."""
    if text is None:
        return None
    if text.lstrip("-").isdigit():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        errors.append(f"{flag} {text} is not a time: write 2026-08-01T10:15:00, or ms since 1970")
        return None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * SECOND_MS)
