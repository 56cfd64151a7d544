"""``regraft backup`` and ``regraft recover``: keep what must not be lost, and bring it back.

Recording belongs to :mod:`regraft.recordings.record_run`, restoring to :mod:`regraft.recordings.restore_topics`,
finding the plans that brokers hold to :mod:`controller.ports.recover_plans`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from regraft.commands.command_options import Assignments, Bootstrap, SettingsFile, settings_of
from regraft.commands.print_table import print_text
from regraft.infra.process.exit_codes import EXIT_FAILED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regraft.settings.run_settings import Settings


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Output file, for example backup.avro.")],
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Write a backup of plans, members, registers, terms, alerts, orders and the audit to a file.

    Everything may keep running. Back up the files of the inventory, the settings and the order keys separately.

    Examples: `regraft backup /var/backups/regraft.avro`; then `regraft recover --from /var/backups/regraft.avro`.
    """
    from regraft.infra.process.log_stream import configure_logs
    from regraft.recordings.record_run import RecordOptions, record_run
    from regraft.recordings.restore_topics import BACKED_UP
    from regraft.stages.run_loop import require_kafka

    configure_logs(level="warning")
    settings = settings_of(assignments, settings_file, bootstrap)
    require_kafka(settings.kafka.access)
    options = RecordOptions(file, from_start=True, to_end=True, topics=BACKED_UP)
    recorded = record_run(settings, options, Console(stderr=True))
    typer.echo(f"{recorded['records']} records, {recorded['bytes'] / 1e6:.1f} MB: {recorded['file']}")
    for warning in recorded["warnings"]:
        print_text(f"Warning: {warning}", err=True)
    if recorded["warnings"]:
        raise typer.Exit(EXIT_FAILED)


def recover(
    is_confirmed: Annotated[bool, typer.Option("--yes", help="Write it; without this, only show it.")] = False,
    backup_file: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="First restore this backup into empty topics.")
    ] = None,
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Restore a backup or, if plans were lost, rebuild the plan log from the brokers.

    Asks all brokers which overlay they hold. Stop all controllers first: recovery takes the lead while it runs. If the
    brokers do not all hold the same overlay, it refuses and lists what each holds.

    Examples: `regraft recover` shows the plan, `regraft recover --yes` writes it; `regraft recover --from backup.avro`.
    """
    from regraft.controller.ports.recover_plans import recover_plans
    from regraft.infra.process.stack_error import StackError
    from regraft.schemas.remote_registry import use_registry
    from regraft.settings.place_demo import require_inventory
    from regraft.stages.run_loop import require_kafka

    settings = settings_of(assignments, settings_file, bootstrap)
    require_inventory(settings)
    require_kafka(settings.kafka.access)
    use_registry(namespace=settings.kafka.namespace)
    if backup_file is not None:
        _restore(backup_file, settings, is_confirmed=is_confirmed)
        return
    try:
        with Console(stderr=True).status("Taking the lead and asking the brokers, which takes up to 80 s"):
            plan = recover_plans(settings.controller, is_written=is_confirmed)
    except StackError as error:
        print_text(str(error), err=True)
        raise typer.Exit(EXIT_FAILED) from error
    if plan is None:
        typer.echo("Nothing to recover: the stored plans lead to the overlay that all brokers hold.")
        return
    what = "places" if plan.has_places else "IDs"
    changes = (
        f"{len(plan.links_removed)} links removed, {len(plan.links_added)} added, {len(plan.id_moves)} {what} changed"
    )
    print_text(f"{plan.plan}: epoch {plan.epoch_from} -> {plan.epoch_to}, {changes}; {plan.history[-1].reason}.")
    typer.echo(
        "Written: you may restart the controllers."
        if is_confirmed
        else "Nothing was written: `regraft recover --yes` writes the plan."
    )


def _restore(file: Path, settings: Settings, *, is_confirmed: bool) -> None:
    """Restore a backup, or show what it would restore."""
    from regraft.recordings.restore_topics import open_backup, restore
    from regraft.schemas.texts import time_text
    from regraft.settings.shape_topics import create_run_topics

    kafka = settings.kafka
    opened = open_backup(file, kafka.namespace, settings.run.clock.now_ms())
    counts = ", ".join(f"{count} {topic}" for topic, count in opened.counts.items())
    typer.echo(f"{file} holds, up to {time_text(opened.last_ms)}: {counts or 'nothing'}.")
    if not is_confirmed:
        _name_orders(opened.orders)
        typer.echo("Nothing was written: add --yes to restore it.")
        return
    create_run_topics(settings)
    with Console(stderr=True).status("Restoring") as status:
        restore(kafka.access, kafka.namespace, opened, lambda count: status.update(f"Restoring: {count} records"))
    typer.echo("Restored. `regraft recover` now shows whether brokers hold a later overlay than the backup.")
    _name_orders(opened.orders)


def _name_orders(orders: Sequence[str]) -> None:
    """Print the orders in force that a backup cannot restore, as commands."""
    for order in orders:
        print_text(f"Not restored, because orders cannot be copied; give it again: {order}")
