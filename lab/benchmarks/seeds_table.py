"""Make a table of demos, one row for each seed: ``python -m lab.benchmarks.seeds_table out/seed-*/summary.json``.

Figures come from the files alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TREE_CHANGES = (
    ("plans to save (after the shift)", "plans_to_save", "{:d}"),
    ("links exchanged", "links_exchanged", "{:d}"),
    ("publishers moved", "publishers_moved", "{:d}"),
)
RING_CHANGES = (
    ("plans", "plans_completed", "{:d}"),
    ("users moved", "users_moved", "{:,d}"),
    ("IDs reassigned", "id_moves", "{:d}"),
    ("brokers' subscription changes cut", "subscription_changes_cut", "{:.1%}"),
)
BEFORE_CHANGES = (
    ("seed", "seed", "{:d}"),
    ("notifications", "notifications_published", "{:,d}"),
    ("deliveries", "deliveries", "{:,d}"),
    ("lost", "lost", "{:d}"),
    ("repeated", "repeated", "{:d}"),
    ("out of order", "out_of_order", "{:d}"),
    ("windows (incomplete)", "windows_closed", "{:d}"),
)
AFTER_CHANGES = (
    ("cost/s, bootstrap", "cost_initial", "{:,.0f}"),
    ("cost/s, final", "cost_final", "{:,.0f}"),
    ("saved", "cost_reduction_share", "{:.1%}"),
    ("window to command p50 / p95, ms", "window_close_to_command_ms_p50", "{:,.0f}"),
    ("memory, MB", "memory_bytes_max", "{:,.0f}"),
)


def seeds_table(summaries: Sequence[dict[str, Any]]) -> str:
    """Return a Markdown table of runs of one scenario, by seed. A figure that a run lacks is a dash."""
    is_ring = any("users_moved" in summary for summary in summaries)
    columns = (*BEFORE_CHANGES, *(RING_CHANGES if is_ring else TREE_CHANGES), *AFTER_CHANGES)
    heads = [head for head, _, _ in columns]
    lines = [f"| {' | '.join(heads)} |", f"|{' ---: |' * len(heads)}"]
    for summary in sorted(summaries, key=lambda each: int(each["seed"])):
        lines.append(f"| {' | '.join(_cell(summary, name, form) for _, name, form in columns)} |")
    return "\n".join(lines)


def _cell(summary: dict[str, Any], name: str, form: str) -> str:
    value = summary.get(name)
    if name == "memory_bytes_max" and value is not None:
        value = value["total"] / 1e6
    if value is None:
        return "–"
    text = form.format(value)
    if name == "windows_closed":
        return f"{text} ({summary['windows_incomplete']})"
    if name == "plans_to_save":
        return f"{text} ({summary['plans_completed_after_regime_change']})"
    if name == "window_close_to_command_ms_p50":
        return f"{text} / {summary['window_close_to_command_ms_p95']:,.0f}"
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of the given summary files; the exit code is 2 if one is not a summary."""
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.seeds_table", description=main.__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="summary.json")
    summaries: list[dict[str, Any]] = []
    for file in parser.parse_args(arguments).files:
        try:
            summaries.append(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            sys.stderr.write(f"{file} is not a summary of a demo ({error}): name files that `regraft demo` wrote\n")
            return 2
    sys.stdout.write(seeds_table(summaries) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
