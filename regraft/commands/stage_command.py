"""The command `regraft stage NAME`: one stage in this process, where `regraft run` starts several.

In: flags. Out: an exit code. The stages themselves are run by :mod:`stages.run_stage`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regraft.commands.command_options import (
    ActOnDeaths,
    Assignments,
    Bootstrap,
    DryRun,
    EmulatedBrokers,
    Master,
    PlannerName,
    SettingsFile,
    ShadowNames,
    flags_of,
)

if TYPE_CHECKING:
    from regraft.settings.run_settings import Settings


Host = Annotated[str | None, typer.Option("--host", help="Address to listen on; default 127.0.0.1, this machine only.")]
Port = Annotated[int | None, typer.Option("--port", help="Port to listen on; default 8090, 0 picks a free one.")]
BrokerName = Annotated[
    str | None, typer.Option("--broker", metavar="NAME", help="Name of this node's broker in the inventory.")
]
ConnectorUrl = Annotated[
    str | None,
    typer.Option(
        "--connector",
        metavar="URL",
        help=(
            "Address of the real broker next to it: nats://HOST:PORT (its leaf port), mqtt://HOST:PORT or "
            "amqp://HOST:PORT."
        ),
    ),
]


class StageName(StrEnum):
    """A stage, as the command line and the units of systemd name it."""

    EMULATE = "emulate"
    STREAM = "stream"
    CONTROL = "control"
    ALERTS = "alerts"
    DASHBOARD = "dashboard"
    NODE = "node"


# The stages that take an option; the others are for all stages.
STAGES_OF = {
    "--emulate": (StageName.STREAM, StageName.CONTROL),
    "--master": (StageName.STREAM,),
    "--dry-run/--act": (StageName.CONTROL,),
    "--act-on-deaths/--review-deaths": (StageName.CONTROL,),
    "--planner": (StageName.CONTROL,),
    "--shadow": (StageName.CONTROL,),
    "--host": (StageName.DASHBOARD,),
    "--port": (StageName.DASHBOARD,),
    "--broker": (StageName.NODE,),
    "--connector": (StageName.NODE,),
    "--door": (StageName.NODE,),
}


def stage(
    name: Annotated[StageName, typer.Argument(metavar="NAME", help="Stage to run; each is described below.")],
    is_emulated: EmulatedBrokers = False,
    master: Master = None,
    dry_run: DryRun = None,
    act_on_deaths: ActOnDeaths = None,
    planner: PlannerName = None,
    shadow: ShadowNames = None,
    host: Host = None,
    port: Port = None,
    broker: BrokerName = None,
    connector: ConnectorUrl = None,
    door: Annotated[str | None, typer.Option("--door", metavar="URL", hidden=True)] = None,
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Run one stage until Ctrl-C or SIGTERM: emulate, stream, control, alerts, dashboard or node.

    `regraft run` starts all of them together, except a node. Options without a stage apply to all.

    - `emulate`: the emulated brokers and clients.
    - `stream` (--master, --emulate): the Spark job that turns telemetry into windowed state.
    - `control` (--act, --act-on-deaths, --planner, --shadow, --emulate): the controller; a second one stands by.
    - `alerts`: evaluates rules on windows, plans and events, and notifies. One per namespace: a second one takes over
      from the first, resumes where it stopped and sends nothing twice. Recipients are alerts.targets (apprise URLs) and
      alerts.webhooks: set them in the environment rather than on a command line, as they hold secrets.
    - `dashboard` (--host, --port): serves the live view that the controller keeps in Valkey. Anyone who can reach it
      may read it, unless dashboard.login_to_read is set; orders need a token (`regraft dashboard token`). Read
      docs/dashboard.md before you serve it to others.
    - `node` (--broker, --connector): one broker of the overlay next to a real broker, whose clients need no change.
      Needs inventory.json and peers.json in the run directory, the same at every node; `regraft nodes init` writes
      both, and a settings file that replaces the options.

    Examples: `regraft stage control --act`;
    `regraft stage stream --master spark://db1:7077 --set spark.driver_host=db2`;
    `REGRAFT_ALERTS__TARGETS='["mailtos://user:password@example.org"]' regraft stage alerts`;
    `regraft stage dashboard --host 0.0.0.0 --set 'dashboard.host_names=["ops.example.org"]'`;
    `regraft stage node --broker b07 --connector nats://127.0.0.1:7422 --bootstrap kafka:9092`.
    """
    own = (is_emulated or None, master, dry_run, act_on_deaths, planner, shadow, host, port, broker, connector, door)
    _refuse_others(name, dict(zip(STAGES_OF, own, strict=True)))
    flags = flags_of(
        assignments, bootstrap=bootstrap, dry_run=dry_run, act_on_deaths=act_on_deaths, planner=planner, shadows=shadow,
        master=master,
    )  # fmt: skip
    _add(flags, "dashboard", host=host, port=port)
    _add(flags, "node", broker=broker, connector=connector, door=door)
    from regraft.infra.process.log_stream import configure_logs
    from regraft.settings.run_settings import load_settings
    from regraft.stages.run_stage import run_stage

    settings = load_settings(flags, settings_file)
    _require_brokers(name, settings, is_emulated=is_emulated)
    configure_logs(settings.run.log_level)
    raise typer.Exit(run_stage(name.value, settings, is_emulated=is_emulated or name is StageName.EMULATE))


def _refuse_others(name: StageName, given: dict[str, Any]) -> None:
    """Refuse options of another stage, which would change nothing."""
    for option, value in given.items():
        if value not in (None, []) and name not in STAGES_OF[option]:
            raise typer.BadParameter(f"{option} is of the stage {' and '.join(STAGES_OF[option])}, not of {name}")


def _add(flags: dict[str, dict[str, Any]], section: str, **values: str | int | None) -> None:
    for name, value in values.items():
        if value is not None:
            flags.setdefault(section, {})[name] = value


def _require_brokers(name: StageName, settings: Settings, *, is_emulated: bool) -> None:
    """Refuse to run without an inventory a stage that manages brokers, and a node without its broker."""
    from regraft.settings.place_demo import require_inventory

    if name is StageName.NODE:
        for setting in ("broker", "connector"):
            if not getattr(settings.node, setting):
                raise typer.BadParameter(f"give --{setting}, or node.{setting} in a settings file")
        require_inventory(settings)
    elif name in (StageName.STREAM, StageName.CONTROL) and not is_emulated:
        require_inventory(settings, may_emulate=True)
