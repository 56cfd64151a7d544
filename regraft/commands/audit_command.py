"""``regraft audit``: who ordered what, when and from where, and with what outcome."""

from __future__ import annotations

import json
from typing import Annotated

import msgspec
import typer

from regraft.commands.command_options import AsJson, Assignments, Bootstrap, SettingsFile, settings_of
from regraft.commands.print_table import print_table


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
    from regraft.run_records.read_audit import read_audit
    from regraft.schemas.remote_registry import use_registry
    from regraft.schemas.write_times import time_text
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
