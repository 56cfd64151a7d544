"""The command `regraft replay`: play a recording back to Kafka, and show the decisions made on it.

Replaying belongs to :mod:`regraft.replays.replay_run`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from regraft.commands.command_options import AsJson, Assignments, SettingsFile
from regraft.commands.print_table import print_text
from regraft.infra.process.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED

if TYPE_CHECKING:
    pass

SPEED_MAX_WORD = "max"


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Recording, one of its parts, or its folder.")],
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap", metavar="HOST:PORT", help="Kafka servers; default 127.0.0.1:9092.")
    ] = None,
    speed: Annotated[
        str, typer.Option("--speed", metavar="N|max", help="1: as recorded; 10: ten times as fast; max: unpaced.")
    ] = SPEED_MAX_WORD,
    from_time: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TIME", help="Start: seconds from its beginning, or a time such as 2026-01-31T12:00."
        ),
    ] = None,
    to_time: Annotated[str | None, typer.Option("--to", metavar="TIME", help="End, in the same form.")] = None,
    namespace: Annotated[
        str, typer.Option("--namespace", metavar="NAME", help="Prefix of its topics; default replay- and a number.")
    ] = "",
    is_all: Annotated[bool, typer.Option("--all", help="Also play back derived topics: state, plans, events.")] = False,
    is_run: Annotated[
        bool, typer.Option("--run", help="Aggregate it with Spark and decide again; compare with the recorded plans.")
    ] = False,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Directory for plans.json, which --run writes.")
    ] = Path("out/replay"),
    as_json: AsJson = False,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Play a recording back to Kafka, with its keys and times, into separate topics; live ones are refused.

    With `--run`, Spark aggregates it again and the control loop decides again on its virtual clock, with the recorded
    settings unless `--set` or `--settings` override them. The same recording and settings give the same plans.json.
    Windows that the last telemetry does not close stay open. Exits with 1 if the recording is faulty: it
    is truncated, damaged or incomplete, or its times go backwards.

    Examples: `regraft replay out/rec.avro --speed 10`; `regraft replay out/rec.avro --from 60 --to 180`;
    `regraft replay out/rec.avro --run --set controller.planner=swap_links_ci`.
    """
    from regraft.commands.parse_assignments import parse_assignments
    from regraft.infra.process.log_stream import configure_logs
    from regraft.replays.replay_run import ReplayOptions, replay_run, require_span
    from regraft.settings.run_settings import SettingsError

    configure_logs(level="warning")
    if is_all and is_run:
        raise SettingsError(["--all and --run: Spark recomputes the state, so use only one of the two"])
    flags = parse_assignments(assignments or [])
    if bootstrap is not None:
        flags.setdefault("kafka", {})["bootstrap"] = bootstrap
    first_ms = _first_ms(file) if from_time or to_time else 0
    from_ms, to_ms = time_of(from_time, "--from", first_ms), time_of(to_time, "--to", first_ms)
    require_span(from_ms, to_ms)
    options = ReplayOptions(file, out, namespace, speed_of(speed), from_ms, to_ms, is_all, is_run)
    try:
        outcome = replay_run(flags, settings_file, options, Console(stderr=True, quiet=as_json))
    except KeyboardInterrupt:
        typer.echo("Interrupted: records already written to Kafka stay there.", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if as_json:
        typer.echo(json.dumps(outcome.document, indent=2))
    else:
        _show(outcome.document, options.out, is_run=is_run)
    for warning in outcome.document["warnings"]:
        print_text(f"Warning: {warning}", err=True)
    if outcome.errors:
        raise typer.Exit(EXIT_FAILED)


def _first_ms(file: Path) -> int:
    """Return the earliest time of a recording's telemetry, 0 if it has none."""
    from regraft.producers.recordings.read_recording import open_recording

    span_ms = open_recording(file).telemetry_span_ms
    return span_ms[0] if span_ms else 0


def speed_of(text: str) -> float | None:
    """Return a speed, None for max. Raises SettingsError."""
    from regraft.settings.run_settings import SettingsError

    if text == SPEED_MAX_WORD:
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise SettingsError([f"--speed {text}: a number above 0, or {SPEED_MAX_WORD}"])
    return speed


def time_of(text: str | None, flag: str, first_ms: int) -> int | None:
    """Return a time in ms since 1970, from seconds after the start of the recording or a date. Raises SettingsError."""
    from regraft.settings.run_settings import SettingsError

    if text is None:
        return None
    try:
        return first_ms + round(float(text) * 1000)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise SettingsError(
            [f"{flag} {text}: seconds from the start of the recording, or a time such as 2026-01-31T12:00:00 (UTC)"]
        ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _show(document: dict[str, Any], out: Path, *, is_run: bool) -> None:
    console = Console()
    topics = ", ".join(f"{topic} {count}" for topic, count in document["topics"].items())
    typer.echo(f"{document['records']} records in {document['seconds']:.1f} s to {document['namespace']}.*: {topics}")
    if not is_run:
        return
    table = Table(box=None, pad_edge=False)
    for head in ("plan", "phase", "links", "clients", "IDs", "cost before", "predicted", "observed", "recorded plan"):
        table.add_column(head)
    for plan in document["plans"]:
        observed = plan["cost_observed_per_s"]
        table.add_row(
            plan["plan"],
            plan["phase"],
            *(str(plan[name]) for name in ("links", "clients", "ring_ids")),
            f"{plan['cost_before_per_s']:.0f}",
            f"{plan['cost_predicted_per_s']:.0f}",
            "-" if observed is None else f"{observed:.0f}",
            plan["difference"],
        )
    console.print(table)
    typer.echo(_verdict(document))
    typer.echo(f"Decided on {document['windows']} windows. Plans: {out / 'plans.json'}")


def _verdict(document: dict[str, Any]) -> str:
    """Describe how the plans compare with the recorded ones."""
    if document["plans_same"] is None:
        return "No plans were recorded: these are advice, executed by simulated brokers on a separate overlay."
    text = f"{document['plans_same']} of {document['plans_recorded']} recorded plans were reproduced"
    if document["first_difference"]:
        text += f"; first difference: {document['first_difference']}"
    if document["brokers_imagined_from_ms"] == 0:
        text += ". The brokers' answers were not recorded: simulated brokers obeyed at once"
    elif document["brokers_imagined_from_ms"] is not None:
        text += ". From there on simulated brokers obeyed at once"
    return text + "."
