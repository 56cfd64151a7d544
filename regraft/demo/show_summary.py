"""Show the summary of a demo in the terminal. In: its figures. Out: a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def show_summary(summary: dict[str, Any], out: Path, console: Console) -> None:
    """Print the figures that were measured, and where the report is."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in summary.items():
        shown = "not measured" if value is None else value
        if name == "rss_bytes_max":
            shown = ", ".join(f"{service} {size / 1e6:.0f} MB" for service, size in value.items())
        elif name == "restarts":
            shown = ", ".join(f"{service} {count}" for service, count in value.items() if count) or "none"
        elif name == "given_up":
            shown = "; ".join(value) or {}
        elif name == "shadows":
            shown = "; ".join(f"{planner} {_shadow_summary(figures)}" for planner, figures in value.items()) or {}
        if shown != {}:
            table.add_row(name.replace("_", " "), str(shown))
    console.print(table)
    console.print(f"Report: {out / 'report.html'}", markup=False, highlight=False, soft_wrap=True)


def _shadow_summary(figures: dict[str, Any]) -> str:
    share = figures["cost_reduction_share"]
    saved = "cost not measured" if share is None else f"would save {share:.1%}"
    return f"{saved} by {figures['plans']} plans"
