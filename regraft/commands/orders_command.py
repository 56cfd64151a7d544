"""``regraft pause`` and ``regraft members maintain``, orders that hold for a while, and ``regraft audit`` of orders.

The audit shows who ordered what, when and from where, and with what outcome.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from regraft.commands.command_options import (
    AsJson,
    Assignments,
    Bootstrap,
    By,
    Lasting,
    Reason,
    SettingsFile,
    settings_of,
)
from regraft.commands.give_orders import give_order, print_answer
from regraft.commands.members_command import BrokerName, members_app
from regraft.commands.print_table import print_table
from regraft.overlay.read_inventory import load_inventory
from regraft.schemas.bounds import TIME_MS_MAX
from regraft.schemas.order import WHOLE_OVERLAY, OrderKind
from regraft.schemas.units import MINUTE_MS

RETURNED, RESUMED = "back", "resumed"  # The reasons of an end without one.


def pause(
    reason: Reason = "",
    by: By = "",
    minutes: Lasting = None,
    is_over: Annotated[bool, typer.Option("--end", help="Let the controller decide again; needs no reason.")] = False,
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Stop the controller from deciding until --end. A plan in progress is completed.

    Examples: `regraft pause --reason "patching the brokers" --for 90`; `regraft pause --end`.
    """
    if is_over and minutes is not None:
        raise typer.BadParameter("--end ends the pause: --for applies only to its beginning")
    until_ms = _until_ms(reason or (RESUMED if is_over else ""), minutes)
    settings = settings_of(assignments, settings_file, bootstrap)
    if is_over:
        answer = give_order(settings, OrderKind.RESUME, WHOLE_OVERLAY, by, reason or RESUMED)
        print_answer(answer, "Adaptation resumes.")
        return
    answer = give_order(settings, OrderKind.PAUSE, WHOLE_OVERLAY, by, reason, until_ms=until_ms)
    print_answer(answer, f"Adaptation is paused{_end(minutes)}: {reason}. `regraft pause --end` ends the pause.")


@members_app.command()
def maintain(
    broker: BrokerName,
    reason: Reason = "",
    by: By = "",
    evacuate: Annotated[bool, typer.Option("--evacuate", help="Also move its clients to other brokers.")] = False,
    minutes: Lasting = None,
    is_over: Annotated[bool, typer.Option("--end", help="End its maintenance; needs no reason.")] = False,
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Put a broker into maintenance: it gets no new links or clients and raises no alerts until --end.

    With --evacuate, its clients move away in ordinary plans: publishers and subscribers on a tree, users on a
    ring, publishers on a structured cyclic overlay. It keeps forwarding what crosses it.

    Examples: `regraft members maintain b07 --evacuate --reason "new disks" --for 120`;
    `regraft members maintain b07 --end`.
    """
    if is_over and (evacuate or minutes is not None):
        raise typer.BadParameter("--end ends the maintenance: --evacuate and --for apply only to its beginning")
    until_ms = _until_ms(reason or (RETURNED if is_over else ""), minutes)
    settings = settings_of(assignments, settings_file, bootstrap)
    if is_over:
        print_answer(give_order(settings, OrderKind.RETURN, broker, by, reason or RETURNED), f"{broker} is back.")
        return
    _check_broker(broker, settings.controller.inventory_path)
    answer = give_order(settings, OrderKind.MAINTAIN, broker, by, reason, until_ms=until_ms, evacuate=evacuate)
    leaving = " and its clients move away" if evacuate else ""
    ends = f"`regraft members maintain {broker} --end` ends it."
    print_answer(answer, f"{broker} is in maintenance{_end(minutes)}{leaving}: {reason}. {ends}")


def _until_ms(reason: str, minutes: float | None) -> int:
    """Return when an order expires, 0 for never; refuse it if it has no reason or expires at once."""
    if not reason.strip():
        raise typer.BadParameter("give --reason, so that others know when the order may end")
    if minutes is None:
        return 0
    now_ms = time.time_ns() // 1_000_000
    minutes_max = (TIME_MS_MAX - now_ms) // MINUTE_MS
    if not 0 < minutes <= minutes_max:
        raise typer.BadParameter(f"--for is {minutes:g}: must be above 0 and at most {minutes_max:,} minutes")
    return now_ms + round(minutes * MINUTE_MS)


def _check_broker(broker: str, path: Path) -> None:
    """Refuse a name that is not in the inventory, if this machine has one."""
    from regraft.overlay.inventory.inventory import InventoryError

    if not path.exists():
        return  # The controller knows all names, and answers with an event.
    try:
        brokers = load_inventory(path).brokers
    except InventoryError:
        return
    if broker not in brokers:
        raise typer.BadParameter(f"{broker} is not in {path}, which has {brokers[0]} to {brokers[-1]}")


def _end(minutes: float | None) -> str:
    return "" if minutes is None else f" for {minutes:g} minutes"


def audit(
    count: Annotated[int, typer.Option("--last", min=1, help="Number of entries to show, newest first.")] = 50,
    about: Annotated[
        str | None, typer.Option("--about", metavar="SUBJECT", help="Only this plan or broker; 'overlay' for pauses.")
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Show every order, including rejected forgeries: who, when, where from, and the outcome.

    Examples: `regraft audit`; `regraft audit --about plan-7 --json`.
    """
    from regraft.run_records.read_topics import read_audit
    from regraft.schemas.remote_registry import use_registry
    from regraft.schemas.texts import time_text
    from regraft.stages.run_loop import require_kafka

    kafka = settings_of(assignments, settings_file, bootstrap).kafka
    require_kafka(kafka.access)
    use_registry(namespace=kafka.namespace)
    entries = [entry for entry in read_audit(kafka.access, kafka.namespace) if about in (None, entry.subject)][-count:]
    if as_json:
        typer.echo(json.dumps([msgspec.to_builtins(entry) for entry in entries], indent=2))
        return
    heads = ("judged", "order", "by", "key", "from", "reason", "outcome", "why")
    rows = [
        (
            time_text(entry.time_ms),
            f"{entry.kind} {entry.subject}".strip(),
            entry.by,
            entry.key_name or "unsigned",
            entry.source,
            entry.reason,
            str(entry.outcome),
            entry.why,
        )
        for entry in entries
    ]
    print_table(heads, rows, wraps=["reason", "why"], drops=["from", "key", "reason", "why"])
