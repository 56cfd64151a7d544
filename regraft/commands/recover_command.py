"""``regraft recover``: rebuild the plan log from what the brokers hold.

In: settings and the operator's confirmation. Out: the plan that would be or was written. Finding it belongs to
:mod:`controller.recover_plans`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from regraft.commands.command_options import Assignments, Bootstrap, SettingsFile, settings_of
from regraft.infra.exit_codes import EXIT_FAILED


def recover(
    is_confirmed: Annotated[bool, typer.Option("--yes", help="Write the plan; without this it is only shown.")] = False,
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Rebuild the plan log from what the brokers hold, when plans were lost.

    Asks all brokers which overlay they hold. Stop all controllers first: recovery takes the lead while it runs. If the
    brokers do not all hold the same overlay, it refuses and lists what each holds.

    Examples: `regraft recover` shows the plan; `regraft recover --yes` writes it.
    """
    from regraft.controller.recover_plans import recover_plans
    from regraft.infra.stack_error import StackError
    from regraft.schemas.remote_registry import use_registry
    from regraft.settings.place_demo import ensure_inventory
    from regraft.stages.run_loop import require_kafka

    settings = settings_of(assignments, settings_file, bootstrap)
    require_kafka(settings.kafka.access)
    use_registry(namespace=settings.kafka.namespace)
    settings.run.directory.mkdir(parents=True, exist_ok=True)
    ensure_inventory(settings)
    try:
        plan = recover_plans(settings.controller, is_written=is_confirmed)
    except StackError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(EXIT_FAILED) from error
    if plan is None:
        typer.echo("Nothing to recover: the stored plans lead to the overlay that all brokers hold.")
        return
    what = "places" if plan.has_places else "IDs"
    changes = (
        f"{len(plan.links_removed)} links removed, {len(plan.links_added)} added, {len(plan.id_moves)} {what} changed"
    )
    typer.echo(f"{plan.plan}: epoch {plan.epoch_from} -> {plan.epoch_to}, {changes}; {plan.history[-1].reason}.")
    typer.echo(
        "Written: you may restart the controllers."
        if is_confirmed
        else "Nothing was written: `regraft recover --yes` writes the plan."
    )
