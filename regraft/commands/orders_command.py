"""``regraft pause|resume|maintain|return``: orders about adaptation as a whole and about brokers.

In: a subject, who and why. Out: an order in Kafka, which stands until it is taken back, through restarts of anything.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from regraft.commands.command_options import Assignments, Bootstrap, By, Lasting, Reason, SettingsFile, settings_of, who
from schemas.order import WHOLE_OVERLAY, Order, OrderKind

MINUTE_MS = 60_000

BrokerName = Annotated[str, typer.Argument(metavar="BROKER", help="Its name.")]


def pause(
    reason: Reason,
    by: By = "",
    minutes: Lasting = None,
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Let the controller decide nothing until `regraft resume`. A plan under way is carried to its end.

    Example: `regraft pause --reason "patching the brokers" --for 90`.
    """
    order = _order(OrderKind.PAUSE, WHOLE_OVERLAY, by, reason, minutes)
    _send(order, bootstrap, settings_file, assignments)
    typer.echo(f"Adaptation is paused{_end(minutes)}: {reason}. `regraft resume --reason ...` takes it back.")


def resume(
    reason: Reason = "resumed",
    by: By = "",
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Let the controller decide again."""
    _send(_order(OrderKind.RESUME, WHOLE_OVERLAY, by, reason, None), bootstrap, settings_file, assignments)
    typer.echo("Adaptation goes on.")


def maintain(
    broker: BrokerName,
    reason: Reason,
    by: By = "",
    evacuate: Annotated[bool, typer.Option("--evacuate", help="Also move its clients to other brokers.")] = False,
    minutes: Lasting = None,
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Set a broker aside: no link and no client comes to it until `regraft return`; alerts about it are silent.

    With --evacuate its publishers (on a ring its users) move away, in plans like any others. Subscribers of a tree
    stay. It goes on passing on what crosses it.

    Example: `regraft maintain b07 --evacuate --reason "new disks" --for 120`.
    """
    order = _order(OrderKind.MAINTAIN, broker, by, reason, minutes, evacuate=evacuate)
    _check_broker(broker, settings_file, assignments)
    _send(order, bootstrap, settings_file, assignments)
    leaving = ", its clients move away" if evacuate else ""
    typer.echo(f"{broker} is in maintenance{_end(minutes)}{leaving}: {reason}. `regraft return {broker}` ends it.")


def return_broker(
    broker: BrokerName,
    reason: Reason = "back",
    by: By = "",
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """End a broker's maintenance."""
    _send(_order(OrderKind.RETURN, broker, by, reason, None), bootstrap, settings_file, assignments)
    typer.echo(f"{broker} is back.")


def _order(
    kind: OrderKind, subject: str, by: str, reason: str, minutes: float | None, *, evacuate: bool = False
) -> Order:
    if not reason.strip():
        raise typer.BadParameter("say why: what stands without a reason nobody dares to take back")
    if minutes is not None and minutes <= 0:
        raise typer.BadParameter(f"--for is {minutes:g}: above 0 minutes")
    now_ms = time.time_ns() // 1_000_000
    until_ms = 0 if minutes is None else now_ms + round(minutes * MINUTE_MS)
    return Order(subject, kind, who(by), reason, now_ms, until_ms, evacuate)


def _check_broker(broker: str, settings_file: Path | None, assignments: list[str] | None) -> None:
    """Refuse a name that the inventory, where this machine has it, does not hold."""
    from overlay.inventory import Inventory, InventoryError

    path = settings_of(assignments, settings_file).controller.inventory_path
    if not path.exists():
        return  # The controller has it, and answers with an event.
    try:
        known = Inventory.load(path).brokers
    except InventoryError:
        return
    if broker not in known:
        raise typer.BadParameter(f"{broker} is no broker of {path}: it has {known[0]} to {known[-1]}")


def _send(order: Order, bootstrap: str | None, settings_file: Path | None, assignments: list[str] | None) -> None:
    from infra.send_orders import send_order
    from schemas.remote_registry import use_registry

    kafka = settings_of(assignments, settings_file, bootstrap).kafka
    use_registry(namespace=kafka.namespace)
    send_order(kafka.access, order, kafka.namespace)


def _end(minutes: float | None) -> str:
    return "" if minutes is None else f" for {minutes:g} minutes"
