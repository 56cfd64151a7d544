"""The command line: read flags, run the command, turn its outcome into an exit code.

Exit codes are those of :mod:`infra.process.exit_codes`.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

import regraft
from regraft.commands.agent_command import agent
from regraft.commands.alerts_command import alerts_app
from regraft.commands.backtest_command import backtest
from regraft.commands.command_options import (
    QUICK_RUNNING_S,
    ActOnDeaths,
    Assignments,
    Bootstrap,
    Chaos,
    DryRun,
    Duration,
    PlannerName,
    Quick,
    Rate,
    RecordTo,
    Scenario,
    Secure,
    Seed,
    SettingsFile,
    ShadowNames,
    WithDashboard,
    flags_of,
)
from regraft.commands.dashboard_command import dashboard_app
from regraft.commands.init_command import init
from regraft.commands.inventory_command import inventory_app
from regraft.commands.keys_command import keys_app
from regraft.commands.list_command import list_names
from regraft.commands.machine_commands import doctor, servers
from regraft.commands.members_command import members_app
from regraft.commands.nodes_command import nodes_app
from regraft.commands.orders_command import audit, pause
from regraft.commands.plans_command import plans_app
from regraft.commands.print_table import print_text
from regraft.commands.record_command import record, recording
from regraft.commands.recover_command import backup, recover
from regraft.commands.replay_command import replay
from regraft.commands.stage_command import stage
from regraft.commands.status_command import status
from regraft.commands.topics_command import topics
from regraft.infra.process.exit_codes import EXIT_CALL, EXIT_FAILED, EXIT_INTERRUPTED

if TYPE_CHECKING:
    from regraft.settings.run_settings import Settings


app = typer.Typer(
    name="regraft",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Keep a publish/subscribe broker overlay in shape while it runs.

Brokers report what they deliver; Spark turns that into windowed state; a controller swaps links when that saves cost,
without losing or duplicating a notification.

Start here: `regraft doctor`, then `regraft demo`.

Every setting can be given in four ways; the first one found wins: a flag (`--set streaming.window_ms=10000`), the
environment (`REGRAFT_STREAMING__WINDOW_MS=10000`), a TOML file (`--settings FILE` or `REGRAFT_SETTINGS`), or its
default. `regraft settings --example` prints them all.

Exit codes: 0 success, 1 failure, 2 wrong usage or settings, 130 interrupted by Ctrl-C.""",
)


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory for the results.")] = Path("out/demo"),
    scenario: Scenario = None,
    seed: Seed = None,
    duration: Duration = None,
    rate: Rate = None,
    quick: Quick = False,
    chaos: Chaos = False,
    dashboard: WithDashboard = False,
    secure: Secure = False,
    recording: RecordTo = None,
    planner: PlannerName = None,
    shadow: ShadowNames = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the summary, as JSON.")] = False,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Run the whole loop on this machine with real input, in about 3 minutes, without Docker or root.

    Starts Kafka, Valkey, a Spark job, a controller and 40 emulated brokers, shifts the interests halfway, and writes
    summary.json, report.html and run.json. The exit code is 0 only if every delivery arrived exactly once and in order,
    a plan followed the shift, and the final overlay costs no more than the first; otherwise, or if the run was too
    short, it is 1.

    Scenarios: stocks, a tree that routes quotes; outage, the same with a site that fails; chord, a ring for mobile
    users; scot, a structured cyclic overlay under bursts; mincost, cloud regions billed by traffic; nats, mqtt and
    amqp, real broker servers.

    With `--secure`, every connection is encrypted and every client logs in (not on your own servers); other
    commands connect with `--settings DIR/run/security/client.toml`.

    Examples: `regraft demo`; `regraft demo --quick --seed 3 --out out/seed-3`; `regraft demo --chaos --secure`;
    `regraft demo --scenario chord`;
    `regraft demo --planner swap_links_ci --shadow swap_links_cost --shadow search_overlay_cost`.
    """
    _begin("The demo", "spark", "dashboard", "plots")
    from regraft.demo.run_demo import DemoOptions, run_demo
    from regraft.demo.show_summary import show_summary
    from regraft.run_records.summary import failures

    console = Console()
    flags = flags_of(assignments, seed=seed, planner=planner, shadows=shadow)
    _add_demo_flags(flags, scenario, duration, quick, rate)
    try:
        summary = run_demo(
            flags,
            settings_file,
            DemoOptions(out, chaos, as_json, dashboard, secure, recording),
            console,
        )
    except KeyboardInterrupt:
        typer.echo("Interrupted: everything was stopped, and no summary was written.", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    errors = failures(summary)
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    else:
        show_summary(summary, out, console)
    for sentence in errors:
        typer.echo(f"Failed: {sentence}.", err=True)
    if errors:
        raise typer.Exit(EXIT_FAILED)


def _add_demo_flags(
    flags: dict[str, dict[str, Any]], scenario: str | None, duration: float | None, quick: bool, rate: float | None
) -> None:
    """Add scenario, running time and rate to ``flags`` if they were given."""
    if scenario is not None:
        flags.setdefault("demo", {})["scenario"] = scenario
    if duration is not None or quick:
        flags.setdefault("demo", {})["running_s"] = duration if duration is not None else QUICK_RUNNING_S
    if rate is not None:
        flags.setdefault("emulator", {}).setdefault("workload", {})["notifications_per_s"] = rate


def run(
    bootstrap: Bootstrap = None,
    emulate: Annotated[
        bool,
        typer.Option("--emulate", help="Also run the emulated brokers, which need no inventory."),
    ] = False,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Also serve the dashboard.")] = False,
    create_topics: Annotated[
        bool, typer.Option("--create-topics", help="Create missing topics; --emulate always does.")
    ] = False,
    dry_run: DryRun = None,
    act_on_deaths: ActOnDeaths = None,
    planner: PlannerName = None,
    shadow: ShadowNames = None,
    seed: Seed = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Run the loop against your Kafka cluster: Spark job, controller and alerts, each restarted if it dies.

    Your brokers are those in inventory.json in the run directory (docs/inventory.md; `regraft inventory make`). Runs
    until Ctrl-C or SIGTERM, then shuts down in order. Plans, repairs included, wait for approval (`regraft plans`)
    unless --act or --emulate is given; orders about members are executed.

    Examples: `regraft run --bootstrap kafka:9092 --dry-run`; `regraft run --emulate --set run.directory=out/lab`.
    """
    _begin("`regraft run`", "spark", *(["dashboard"] if dashboard else []))
    from regraft.settings.place_demo import require_inventory
    from regraft.stages.run_loop import run_loop

    flags = flags_of(
        assignments, seed=seed, bootstrap=bootstrap, dry_run=dry_run, act_on_deaths=act_on_deaths, planner=planner,
        shadows=shadow,
    )  # fmt: skip
    settings = _settings(flags, settings_file)
    if emulate and "controller.dry_run" not in settings.chosen:  # Emulated brokers need no approval.
        flags.setdefault("controller", {})["dry_run"] = False
        settings = _settings(flags, settings_file)
    if not emulate:
        require_inventory(settings, may_emulate=True)
    try:
        run_loop(settings, Console(), emulate=emulate, with_dashboard=dashboard, creates_topics=create_topics)
    except KeyboardInterrupt:
        typer.echo("Stopped immediately by a second Ctrl-C: stages had no time to finish work in progress.", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None


def show_settings(
    example: Annotated[
        bool, typer.Option("--example", help="Print a TOML file with every setting at its default.")
    ] = False,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Check the settings and print the values in effect, as TOML.

    Examples: `regraft settings --example > regraft.toml`; `regraft settings --settings regraft.toml`.
    """
    from regraft.settings.settings_example import example_text, settings_text

    if example:
        typer.echo(example_text(), nl=False)
        return
    typer.echo(settings_text(_settings(flags_of(assignments), settings_file)), nl=False)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"regraft {regraft.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def _settings(flags: dict[str, dict[str, Any]], settings_file: Path | None) -> Settings:
    from regraft.settings.run_settings import load_settings

    return load_settings(flags, settings_file)


def _begin(what: str, *extras: str) -> None:
    """Raise StackError if extras that a command needs are missing; from now on log warnings and errors only."""
    from regraft.infra.process.find_extras import require_extras
    from regraft.infra.process.log_stream import configure_logs

    require_extras(what, *extras)
    configure_logs(level="warning")


# The groups of `regraft --help`, in its order.
GROUPS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "Start here": {
        "demo": demo,
        "doctor": doctor,
        "init": init,
        "inventory": inventory_app,
        "run": run,
        "servers": servers,
        "status": status,
        "settings": show_settings,
        "list": list_names,
    },
    "Operate": {
        "topics": topics,
        "pause": pause,
        "audit": audit,
        "backup": backup,
        "recover": recover,
        "plans": plans_app,
        "members": members_app,
        "keys": keys_app,
        "alerts": alerts_app,
        "dashboard": dashboard_app,
    },
    "Analyse": {
        "record": record,
        "recording": recording,
        "replay": replay,
        "backtest": backtest,
    },
    "On several machines": {"stage": stage, "nodes": nodes_app, "agent": agent},
}


def _register() -> None:
    for panel, commands in GROUPS.items():
        for name, command in commands.items():
            if isinstance(command, typer.Typer):
                app.add_typer(command, name=name, rich_help_panel=panel)
            else:
                app.command(name, rich_help_panel=panel)(command)


_register()


def main() -> None:
    """Run the command line; an error that a user can fix is printed as one sentence, without a traceback."""
    from regraft.infra.process.describe_os_error import describe_os_error
    from regraft.infra.process.find_extras import describe_missing, extra_of
    from regraft.infra.process.stack_error import CallError, StackError
    from regraft.schemas.remote_registry import RegistryError
    from regraft.settings.run_settings import SettingsError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # Names may have letters that a terminal's encoding lacks.
    try:
        app()
    except SettingsError as error:
        for sentence in error.errors:
            print_text(f"Invalid setting: {sentence}{'' if sentence.endswith('?') else '.'}", err=True)
        sys.exit(EXIT_CALL)
    except (StackError, RegistryError) as error:
        print_text(str(error), err=True)
        sys.exit(EXIT_CALL if isinstance(error, CallError) else EXIT_FAILED)
    except ValueError as error:
        # Imports numpy, which most commands do not need.
        from regraft.overlay.inventory.inventory import InventoryError

        if not isinstance(error, InventoryError):
            raise
        print_text(str(error), err=True)
        sys.exit(EXIT_CALL)
    except ModuleNotFoundError as error:
        extra = extra_of(error.name or "")
        if extra is None:
            raise
        typer.echo(describe_missing("This command", [extra]), err=True)
        sys.exit(EXIT_FAILED)
    except OSError as error:
        print_text(describe_os_error(error), err=True)
        sys.exit(EXIT_FAILED)
