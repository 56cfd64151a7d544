"""Options that several modules of the command line have in common, and how they become settings.

In: what was typed. Out: settings, or a SettingsError with all faults. Nothing is printed here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from regraft.settings.run_settings import Settings

SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", metavar="FILE", help="TOML file with settings; `regraft settings --example` makes one."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Give one setting; repeat for more."),
]
Bootstrap = Annotated[
    str | None, typer.Option("--bootstrap", metavar="HOST:PORT", help="Kafka servers; default 127.0.0.1:9092.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept with the order and shown.")]
By = Annotated[
    str,
    typer.Option(
        "--by", metavar="NAME", help="Who orders it.", show_default="whose key signs it, else your login name"
    ),
]
Lasting = Annotated[
    float | None, typer.Option("--for", metavar="MINUTES", help="End by itself after so long; without it, never.")
]


def settings_of(assignments: list[str] | None, settings_file: Path | None, bootstrap: str | None = None) -> Settings:
    """Return the settings of a command that talks to a running system. Raises SettingsError."""
    from regraft.commands.parse_assignments import parse_assignments
    from regraft.settings.run_settings import load_settings

    flags: dict[str, dict[str, Any]] = parse_assignments(assignments or [])
    if bootstrap is not None:
        flags.setdefault("kafka", {})["bootstrap"] = bootstrap
    return load_settings(flags, settings_file)
