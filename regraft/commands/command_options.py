"""Options that several commands share, and the settings that they lead to.

Nothing is printed here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regraft.commands.float_option import float_option

if TYPE_CHECKING:
    from regraft.settings.run_settings import Settings

QUICK_RUNNING_S = 75.0


def _needed(reason: str) -> str:
    """Return a reason; refuse a blank one before the command reads, asks or orders anything."""
    if not reason.strip():
        raise typer.BadParameter("give --reason, so that others understand the order later")
    return reason


SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", metavar="FILE", help="Settings file (TOML); `regraft settings --example` prints one."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Override one setting; repeat for more."),
]
Bootstrap = Annotated[
    str | None, typer.Option("--bootstrap", metavar="HOST:PORT", help="Kafka servers; default 127.0.0.1:9092.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason, recorded with the order.")]
NeededReason = Annotated[
    str,
    typer.Option("--reason", metavar="TEXT", help="Reason, recorded with the order.", callback=_needed),
]
By = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="NAME",
        help="Your name, recorded with the order.",
        show_default="name of the key that signs it, else your login name",
    ),
]
Lasting = Annotated[
    float | None, float_option("--for", metavar="MINUTES", help="Expire after this many minutes; default: never.")
]

Seed = Annotated[int | None, typer.Option("--seed", help="Seed of all random choices; the default is 1.")]
PlannerName = Annotated[
    str | None,
    typer.Option(
        "--planner",
        metavar="NAME",
        help="Planner that decides (join several with +); `regraft list planners` lists them.",
    ),
]
ShadowNames = Annotated[
    list[str] | None,
    typer.Option("--shadow", metavar="NAME", help="Shadow planner, which decides but does not act; repeat for more."),
]
Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="Spark master; default local[2], spark:// for a cluster.")
]
DryRun = Annotated[
    bool | None,
    typer.Option(
        "--dry-run/--act",
        help="Hold plans for approval, or execute them.",
        show_default="dry-run, unless --emulate",
    ),
]
ActOnDeaths = Annotated[
    bool | None,
    typer.Option(
        "--act-on-deaths/--review-deaths",
        help="In a dry run, repair after deaths without approval, or hold repairs for approval, too.",
        show_default="review-deaths",
    ),
]
EmulatedBrokers = Annotated[
    bool, typer.Option("--emulate", help="Use the brokers of `regraft stage emulate`, which need no inventory.")
]
Scenario = Annotated[
    str | None,
    typer.Option(
        "--scenario", metavar="NAME", help="stocks (default), outage, chord, scot, mincost, nats, mqtt or amqp"
    ),
]
Duration = Annotated[
    float | None, float_option("--duration", metavar="SECONDS", help="Running time after startup; default 180.")
]
Rate = Annotated[
    float | None,
    float_option("--rate", help="Notifications per second of each publisher; default 4; not for chord."),
]
Quick = Annotated[
    bool, typer.Option("--quick", help=f"Run for {QUICK_RUNNING_S:.0f} s, up to a minute longer on a busy machine.")
]
Chaos = Annotated[bool, typer.Option("--chaos", help="Kill and suspend stages, brokers and links while it runs.")]
WithDashboard = Annotated[
    bool, typer.Option("--dashboard", help="Also serve the dashboard, with a token to give orders with.")
]
Secure = Annotated[bool, typer.Option("--secure", help="Run Kafka and Valkey with TLS, logins and access lists.")]
RecordTo = Annotated[
    Path | None,
    typer.Option(
        "--record", metavar="FILE", help="Record all topics in this file at the end, for example out/rec.avro."
    ),
]
RecordedFor = Annotated[
    float | None, float_option("--duration", metavar="SECONDS", help="Stop after this many seconds.")
]
ToEnd = Annotated[bool, typer.Option("--to-end", help="Stop at the newest record instead of waiting for more.")]


def flags_of(
    assignments: list[str] | None,
    *,
    seed: int | None = None,
    bootstrap: str | None = None,
    dry_run: bool | None = None,
    act_on_deaths: bool | None = None,
    planner: str | None = None,
    shadows: list[str] | None = None,
    master: str | None = None,
) -> dict[str, dict[str, Any]]:
    """Return flags as nested tables; a dedicated flag overrides ``--set``."""
    from regraft.commands.parse_assignments import parse_assignments

    flags = parse_assignments(assignments or [])
    for section, name, value in (
        ("run", "seed", seed),
        ("kafka", "bootstrap", bootstrap),
        ("controller", "dry_run", dry_run),
        ("controller", "act_on_deaths", act_on_deaths),
        ("controller", "planner", planner),
        ("controller", "shadow_planners", shadows or None),
        ("spark", "master", master),
    ):
        if value is not None:
            flags.setdefault(section, {})[name] = value
    return flags


def settings_of(assignments: list[str] | None, settings_file: Path | None, bootstrap: str | None = None) -> Settings:
    """Return the settings of a command that talks to a running system. Raises SettingsError."""
    from regraft.settings.run_settings import load_settings

    return load_settings(flags_of(assignments, bootstrap=bootstrap), settings_file)
