"""``regraft nodes init``: write what each machine with a node needs, ready to be copied there.

The texts belong to :mod:`inventories.write_node_files`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regraft.commands.command_options import Assignments, Bootstrap, SettingsFile, settings_of
from regraft.infra.process.exit_codes import EXIT_CALL
from regraft.overlay.read_inventory import load_inventory

if TYPE_CHECKING:
    from regraft.settings.run_settings import Settings

nodes_app = typer.Typer(no_args_is_help=True, help="Prepare the machines that run nodes (docs/nodes.md).")


@nodes_app.callback()
def _nodes() -> None:
    """Prepare the machines that run nodes (docs/nodes.md)."""


@nodes_app.command("init")
def init_nodes(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE.csv",
            help="One line per broker: broker, address (host:port for other nodes), connector, further "
            "[node] settings.",
        ),
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory in which a folder for each broker is created.")
    ] = Path("out/nodes"),
    inventory_file: Annotated[
        Path | None,
        typer.Option("--inventory", metavar="FILE", help="Default: inventory.json in the run directory."),
    ] = None,
    directory: Annotated[
        str, typer.Option(metavar="DIR", help="Directory of these files on the broker's machine.")
    ] = "/var/lib/regraft",
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Write the settings, inventory.json and peers.json of each node, in one folder per broker.

    The settings of Kafka and [node] given here apply to all nodes; columns of the table apply to one. All
    errors are listed; if there are any, nothing is written.

    Example: `regraft nodes init nodes.csv --bootstrap kafka:9092`, then copy `out/nodes/b01` to `/var/lib/regraft` of
    b01's machine, and start `regraft stage node --settings /var/lib/regraft/node.toml` there.
    """
    from regraft.inventories.write_node_files import SETTINGS, node_files, read_nodes
    from regraft.settings.place_demo import require_inventory

    settings = settings_of(assignments, settings_file, bootstrap)
    if inventory_file is None:
        require_inventory(settings)
    inventory = load_inventory(inventory_file or settings.controller.inventory_path)
    files = node_files(inventory, read_nodes(table), _shared(settings), directory)
    _write(files, out)
    for folder in sorted({out / Path(name).parent for name in files}):
        typer.echo(f"Wrote {shlex.quote(str(folder))}: copy its files to {shlex.quote(directory)} of its machine.")
    typer.echo(f"Start each node there with: regraft stage node --settings {shlex.quote(f'{directory}/{SETTINGS}')}")
    if "kafka.bootstrap" not in settings.chosen:
        typer.echo(
            f"Note: kafka.bootstrap is {settings.kafka.bootstrap}, because none was given: nodes look for Kafka there."
        )


def _write(files: Mapping[str, str], out: Path) -> None:
    """Write new files; exit with 2 if one exists, as it may be in use."""
    from regraft.schemas.status_file import replace_file

    if there := sorted(name for name in files if (out / name).exists()):
        typer.echo(f"{out / there[0]} already exists: name a different folder with --out, or remove it.", err=True)
        raise typer.Exit(EXIT_CALL)
    for name, text in files.items():
        replace_file(out / name, text)


def _shared(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return what was set for Kafka, [node], connectors and [run], and where Kafka is in any case."""
    shared: dict[str, dict[str, Any]] = {}
    kafka = ("kafka.bootstrap", "kafka.namespace")
    for name in sorted({*settings.chosen, *kafka}):
        table, *inner, setting = name.split(".")
        if table not in ("kafka", "node", "connectors", "run"):
            continue
        value: Any = settings.given[table]
        place = shared.setdefault(table, {})
        for part in inner:
            value, place = value[part], place.setdefault(part, {})
        place[setting] = value[setting] if isinstance(value, Mapping) else value
    return shared
