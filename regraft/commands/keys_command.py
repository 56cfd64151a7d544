"""``regraft keys``: make a key to sign orders with, and show which keys are trusted."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from regraft.commands.command_options import AsJson, Assignments, SettingsFile, settings_of
from regraft.commands.print_table import print_table
from regraft.schemas.order import OrderKind

DAYS_MAX = 3_650

keys_app = typer.Typer(
    no_args_is_help=True,
    help="""Create and list the keys that sign orders.

The controller follows an order only if a key that it trusts has signed it (docs/security.md). Everyone who gives
orders has a private key; the controller and the alert stage read the public keys from a file and reload it when it
changes.""",
)


@keys_app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of its holder, who signs orders with it.")],
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Default: NAME.key.")] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=DAYS_MAX, help="Days until the key expires.")] = 365,
    orders: Annotated[
        list[OrderKind] | None, typer.Option("--order", help="Allow only these orders; repeat for more. Default: all.")
    ] = None,
    for_others: Annotated[
        bool, typer.Option("--for-others", help="Let it sign orders on behalf of other operators, as a dashboard does.")
    ] = False,
) -> None:
    """Create a key: write the private part to a file that only you can read, and print the line for trusted keys.

    Examples: `regraft keys create ana >> trusted.toml`; `regraft keys create dashboard --for-others`;
    `regraft keys create night-shift --days 30 --order pause --order resume`.
    """
    from regraft.infra.orders.order_keys import DAY_S, create_signing_key

    file = out or Path(f"{name.replace('/', '_')}.key")
    key = create_signing_key(name, file)
    not_after = datetime.fromtimestamp(time.time() + days * DAY_S, UTC)
    setting = "orders.dashboard_key_file" if for_others else "orders.key_file or REGRAFT_ORDERS__KEY_FILE"
    typer.echo(
        f"{file} is the private key of {name}: keep it secret, and set {setting} to it. Add the "
        "next line to the file named in orders.trusted_keys_file.",
        err=True,
    )
    typer.echo(key.trusted_line(not_after, orders or (), for_others=for_others))


@keys_app.command(name="list")
def list_keys(as_json: AsJson = False, settings_file: SettingsFile = None, assignments: Assignments = None) -> None:
    """Show the keys that stages with these settings trust, their expiry and the orders that they may sign."""
    from regraft.infra.orders.order_keys import OrderKeyError, read_trusted_keys
    from regraft.schemas.texts import time_text

    settings = settings_of(assignments, settings_file).orders
    file = settings.trusted_file
    if file is None:
        raise OrderKeyError("No file of trusted keys is set: set orders.trusted_keys_file.")
    keys, now_ms = read_trusted_keys(file), int(time.time() * 1000)
    if as_json:
        rows = [
            {
                "name": key.name,
                "state": key.state(now_ms),
                "not_after_ms": key.not_after_ms,
                "orders": sorted(key.kinds),
                "for_others": key.is_for_others,
            }
            for key in keys.values()
        ]
        typer.echo(json.dumps({"file": str(file), "unsigned": settings.allow_unsigned, "keys": rows}, indent=2))
        return
    cells = []
    for key in keys.values():
        kinds = "everything" if key.kinds == frozenset(OrderKind) else ", ".join(sorted(key.kinds))
        signs_for = "anyone" if key.is_for_others else "itself"
        cells.append((key.name, key.state(now_ms), time_text(key.not_after_ms), kinds, signs_for))
    print_table(
        ("key", "state", "until", "may order", "may sign for"), cells, wraps=["may order"], drops=["may sign for"]
    )
    if settings.allow_unsigned:
        typer.echo("Unsigned orders are followed, too (orders.allow_unsigned).")
