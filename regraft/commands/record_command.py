"""The commands `regraft record` and `regraft recording`: flags in, files or a description of them out.

Recording belongs to :mod:`regraft.recordings.record_run`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from regraft.commands.command_options import (
    AsJson,
    Assignments,
    Bootstrap,
    RecordedFor,
    SettingsFile,
    ToEnd,
    settings_of,
)
from regraft.commands.float_option import float_option
from regraft.commands.print_table import print_text, table_console
from regraft.infra.process.exit_codes import EXIT_FAILED
from regraft.infra.process.find_port import LOOPBACK
from regraft.producers.recordings.recording_format import COMPRESS_LEVEL

MetricsPort = Annotated[
    int | None, typer.Option("--metrics-port", help="Serve /metrics, /health and /ready on this port.")
]
MetricsHost = Annotated[
    str,
    typer.Option("--metrics-host", help="Address to serve them at; default: this machine only.", show_default=False),
]


def record(
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Output file, for example out/rec.avro; parts are numbered.")
    ],
    bootstrap: Bootstrap = None,
    is_all: Annotated[
        bool, typer.Option("--all", help="Also record state, windows, commands, results, plans, events and alerts.")
    ] = False,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Start at the oldest record in Kafka, not now.")
    ] = False,
    to_end: ToEnd = False,
    rotate_mb: Annotated[float, float_option("--rotate-mb", help="Start a new file at this size in MB.")] = 512.0,
    rotate_s: Annotated[float, float_option("--rotate-s", help="Start a new file after this many seconds.")] = 3_600.0,
    compress_level: Annotated[
        int,
        typer.Option("--compress-level", help="zstandard compression level, -50 to 22; higher is smaller and slower."),
    ] = COMPRESS_LEVEL,
    duration: RecordedFor = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOOPBACK,
    as_json: AsJson = False,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Record telemetry, clients and orders of a run in Avro files, until Ctrl-C or for a given time.

    Any Avro tool reads these files (zstandard). A kill loses at most the last second, never a finished block. The
    run directory (run.directory) must hold the run's inventory.

    Examples: `regraft record --out out/rec.avro --set run.directory=out/run`;
    `regraft record --out rec.avro --all --from-start --duration 600 --bootstrap kafka:9092`.
    """
    from regraft.infra.process.log_stream import configure_logs
    from regraft.infra.process.serve_metrics import port_errors
    from regraft.producers.recordings.write_recording import RecordingLimits
    from regraft.recordings.record_run import RecordOptions, record_run
    from regraft.settings.run_settings import SettingsError

    configure_logs(level="warning")
    settings = settings_of(assignments, settings_file, bootstrap)
    limits = RecordingLimits(rotate_mb, rotate_s, compress_level)
    if errors := [*limits.errors(), *port_errors(metrics_port, metrics_host)]:
        raise SettingsError(errors)
    options = RecordOptions(out, is_all, from_start, to_end, duration, limits, metrics_port, metrics_host)
    _print_outcome(record_run(settings, options, Console(stderr=True, quiet=as_json)), as_json=as_json)


def _print_outcome(outcome: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(outcome, indent=2))
    else:
        files = "1 file" if outcome["parts"] == 1 else f"{outcome['parts']} files"
        typer.echo(f"{outcome['records']} records, {outcome['bytes'] / 1e6:.1f} MB in {files}: {outcome['file']}")
    for warning in outcome["warnings"]:
        print_text(f"Warning: {warning}", err=True)
    if outcome["is_disk_full"]:
        raise typer.Exit(EXIT_FAILED)


def recording(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Recording, one of its parts, or its folder.")],
    as_json: AsJson = False,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Show a recording's contents: topics, time, brokers, epochs, parts, and any damage.

    Exits with 1 if a part of it is truncated or damaged.

    Examples: `regraft recording out/rec.avro`; `regraft recording out --json`.
    """
    from regraft.recordings.describe_recording import describe_recording, recording_table

    described = describe_recording(file, settings_of(assignments, settings_file).recordings)
    if as_json:
        typer.echo(json.dumps(described, indent=2))
    else:
        table_console().print(recording_table(described))
    for warning in described["warnings"]:
        print_text(f"Warning: {warning}", err=True)
    if described["warnings"]:
        raise typer.Exit(EXIT_FAILED)
