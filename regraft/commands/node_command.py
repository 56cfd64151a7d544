"""The command `regraft node`: run one broker of the overlay next to a real broker.

In: flags. Out: an exit code. The node itself belongs to ``producers``.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from regraft.commands.command_options import Assignments, Bootstrap, SettingsFile


def node(
    broker: Annotated[
        str | None, typer.Option("--broker", metavar="NAME", help="The inventory's name of this node's broker.")
    ] = None,
    connector: Annotated[
        str | None,
        typer.Option(
            "--connector",
            metavar="URL",
            help="The real broker next to it: nats://HOST:PORT (its leaf port), mqtt://HOST:PORT or amqp://HOST:PORT.",
        ),
    ] = None,
    door: Annotated[str | None, typer.Option("--door", metavar="URL", hidden=True)] = None,
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Run one broker of the overlay next to a real broker, whose clients need no change, until Ctrl-C or SIGTERM.

    Needs inventory.json and peers.json in the run directory, the same at every node (docs/nodes.md); `regraft nodes
    init` writes both, and a settings file with all that the options give.

    Examples: `regraft node --broker b07 --connector nats://127.0.0.1:7422 --bootstrap kafka:9092`;
    `regraft node --settings /var/lib/regraft/node.toml`.
    """
    from regraft.commands.parse_assignments import parse_assignments
    from regraft.infra.process.log_stream import configure_logs
    from regraft.settings.place_demo import require_inventory
    from regraft.settings.run_settings import load_settings
    from regraft.stages.run_stage import run_stage

    flags: dict[str, dict[str, Any]] = parse_assignments(assignments or [])
    named = {
        name: value
        for name, value in (("broker", broker), ("connector", connector), ("door", door))
        if value is not None
    }
    flags.setdefault("node", {}).update(named)
    if bootstrap is not None:
        flags.setdefault("kafka", {})["bootstrap"] = bootstrap
    settings = load_settings(flags, settings_file)
    for name in ("broker", "connector"):
        if not getattr(settings.node, name):
            raise typer.BadParameter(f"give --{name}, or node.{name} in a settings file")
    require_inventory(settings)
    configure_logs(settings.run.log_level)
    raise typer.Exit(run_stage("node", settings))
