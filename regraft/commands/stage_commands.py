"""The commands of single stages, which ``regraft run`` starts together: ``emulate``, ``stream`` and ``control``.

In: flags. Out: an exit code. The stages themselves are run by :mod:`stages.run_stage`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from regraft.commands.command_options import (
    ActOnDeaths,
    Assignments,
    DryRun,
    EmulatedBrokers,
    Master,
    PlannerName,
    SettingsFile,
    ShadowNames,
    flags_of,
)


def emulate(settings_file: SettingsFile = None, assignments: Assignments = None) -> None:
    """Run only the emulated brokers and clients, until Ctrl-C or SIGTERM. Part of `run --emulate`."""
    _run_stage("emulate", flags_of(assignments), settings_file, is_emulated=True)


def stream(
    master: Master = None,
    is_emulated: EmulatedBrokers = False,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Run only the Spark job that turns telemetry into windowed state, until Ctrl-C or SIGTERM. Part of `run`.

    Examples: `regraft stream --master spark://db1:7077 --set spark.driver_host=db2`.
    """
    _run_stage("stream", flags_of(assignments, master=master), settings_file, is_emulated=is_emulated)


def control(
    dry_run: DryRun = None,
    act_on_deaths: ActOnDeaths = None,
    planner: PlannerName = None,
    shadow: ShadowNames = None,
    is_emulated: EmulatedBrokers = False,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Run only the controller, until Ctrl-C or SIGTERM. Part of `run`."""
    flags = flags_of(assignments, dry_run=dry_run, act_on_deaths=act_on_deaths, planner=planner, shadows=shadow)
    _run_stage("control", flags, settings_file, is_emulated=is_emulated)


def _run_stage(name: str, flags: dict[str, dict[str, Any]], settings_file: Path | None, *, is_emulated: bool) -> None:
    from regraft.infra.process.log_stream import configure_logs
    from regraft.settings.place_demo import require_inventory
    from regraft.settings.run_settings import load_settings
    from regraft.stages.run_stage import run_stage

    settings = load_settings(flags, settings_file)
    if not is_emulated:
        require_inventory(settings, may_emulate=True)
    configure_logs(settings.run.log_level)
    raise typer.Exit(run_stage(name, settings, is_emulated=is_emulated))
