"""The command `regraft doctor`: what this machine lacks, and what is wrong with the servers that are named.

In: settings. Out: a table or JSON. What is looked at belongs to :mod:`infra.doctor`.
"""

from __future__ import annotations

import json

import typer
from rich.console import Console
from rich.table import Table

from regraft.commands.command_options import AsJson

EXIT_MISSING = 1


def doctor(as_json: AsJson = False) -> None:
    """Say what this machine has of what Regraft needs, what is missing, and what to do.

    Changes nothing. Ends with 1 when something is missing.
    """
    from infra.doctor import FindingStatus, diagnose

    findings = diagnose()
    if as_json:
        fields = [
            {"name": each.name, "status": str(each.status), "found": each.found, "to_do": each.to_do}
            for each in findings
        ]
        typer.echo(json.dumps(fields, indent=2))
    else:
        table = Table(box=None, pad_edge=False)
        for head in ("what", "state", "found", "what to do"):
            table.add_column(head, overflow="fold")
        for each in findings:
            table.add_row(each.name, str(each.status), each.found, each.to_do)
        Console().print(table)
    if any(each.status is FindingStatus.MISSING for each in findings):
        raise typer.Exit(EXIT_MISSING)
