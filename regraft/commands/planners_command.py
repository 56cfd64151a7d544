"""The command `regraft planners`: every planner that settings may name, with its kind of overlay and its source.

In: the built-in planners and those of other packages. Out: lines of text or JSON. A planner's settings belong to
`regraft settings`.
"""

from __future__ import annotations

import json
from typing import Annotated

import typer


def planners(as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False) -> None:
    """List the planners: the kind of overlay that each plans for, what it changes, where it comes from.

    Planners of other packages are found by their entry points; one that cannot be loaded is listed with the reason.

    Examples: `regraft planners`; `regraft run --set controller.planner=swap_links_ci`.
    """
    from regraft.controller.planners.planner_registry import PlannerError, known_names, planner_spec

    rows: list[dict[str, str]] = []
    for name in known_names():
        try:
            spec = planner_spec(name)
        except PlannerError as error:
            rows.append({"name": name, "error": str(error)})
        else:
            rows.append({"name": name, "kind": spec.kind, "changes": spec.summary, "source": spec.source})
    if as_json:
        typer.echo(json.dumps({"planners": rows}, indent=2))
        return
    for row in rows:
        if "error" in row:
            typer.echo(f"{row['name']}\n    cannot be used: {row['error']}")
        else:
            typer.echo(f"{row['name']} ({row['kind']})\n    {row['changes']}; source: {row['source']}")
