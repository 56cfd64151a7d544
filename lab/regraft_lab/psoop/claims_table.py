"""Tabulate claims and costs from a file of figures, and put the tables into the README.

``python -m regraft_lab.psoop.claims_table --json FILE [--readme FILE]``. In: figures of `regraft-lab
psoop`. Out: Markdown on standard output, or between the markers of a README. Every number is from the figures.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from regraft.api.programs import Figure
from regraft_lab.claim_evidence import Measured, Value
from regraft_lab.claims_block import claim_rows, put_claims, summary_rows
from regraft_lab.psoop.claim_words import NAMES
from regraft_lab.psoop.judge_claims import PAPER_CLAIMS
from regraft_lab.psoop.judge_ours import NETWORKS, OUR_CLAIMS
from regraft_lab.psoop.small_instances import SMALL_SETTINGS

PROGRAM = "regraft_lab.psoop.claims_table"
ADAPTED = [planner for planner in NAMES if planner != "random_tree"]  # Costs are relative to the random tree.


def claims_document(run: dict[str, Any], figures: Sequence[Figure]) -> str:
    """Return the tables as Markdown: the run, the paper's claims, ours, and the costs by network and to the optimum."""
    measured = Measured(figures)
    claims = ["### Claims of the paper", "", *claim_rows(PAPER_CLAIMS, measured), "", "### Claims of ours", ""]
    claims += claim_rows(OUR_CLAIMS, measured)
    return "\n".join([*_head(run), *claims, "", *_relative(measured), *_optimum(measured)])


def readme_document(run: dict[str, Any], figures: Sequence[Figure]) -> str:
    """Return the summary of the claims, and the costs relative to the random tree."""
    measured = Measured(figures)
    summary = summary_rows({"Claims of the paper": PAPER_CLAIMS, "Ours": OUR_CLAIMS}, measured)
    return "\n".join([*_head(run), *summary, "", *_relative(measured)])


def _head(run: dict[str, Any]) -> list[str]:
    settings = run["settings"]
    networks = ", ".join(f"{name} {count}" for name, count in settings["topologies"].items())
    return [
        f"Run: size {settings['size']}, seed {run['seed']}, commit {run['commit'][:12]}.",
        f"Networks by figure: {networks}.",
        "",
    ]


def _relative(measured: Measured) -> list[str]:
    return ["### Cost relative to the random tree", "", *_costs(measured), ""]


def _costs(measured: Measured) -> list[str]:
    """Return a row for each network: settled cost with messages, and that of notifications only in brackets."""
    lines = [
        "Settled, messages included; in brackets notifications alone.",
        "",
        f"| costs | {' | '.join(NAMES[planner] for planner in ADAPTED)} |",
        f"|---|{' ---: |' * len(ADAPTED)}",
    ]
    for network, label in NETWORKS.items():
        for memory, suffix in (("cache", ""), ("interval", ", comparing the last interval")):
            cells = [_cost(measured, planner, network, memory) for planner in ADAPTED]
            if any(cells):
                lines.append(f"| {label}{suffix} | {' | '.join(cell or '–' for cell in cells)} |")
    return lines


def _cost(measured: Measured, planner: str, network: str, memory: str) -> str:
    total, alone = (
        measured.interval(name, figure="fig4", costs=network, planner=planner, period="settled", memory=memory)
        for name in ("cost_vs_random", "forwarding_vs_random")
    )
    return "" if total is None or alone is None else f"{total} ({alone.mean:.3f})"


def _optimum(measured: Measured) -> list[str]:
    """Return how close planners come to the least-cost tree of the largest small overlays; empty if not run."""
    brokers = max(measured.steps("optimum_ratio_mean", "brokers"), default=0)
    if not brokers:
        return []
    lines = [
        "### Cost relative to the optimum",
        "",
        f"Small overlays of {brokers:.0f} brokers whose optimum is known by enumeration: mean (worst).",
        "",
        f"| costs | flows x subscribers | {' | '.join(NAMES.values())} |",
        f"|---|---|{' ---: |' * len(NAMES)}",
    ]
    for setting in SMALL_SETTINGS:
        where: dict[str, Value] = {
            "brokers": round(brokers),
            "costs": setting.costs,
            "flows": setting.flow_count,
            "subscribers": setting.subscriber_count,
        }
        cells = []
        for planner in NAMES:
            mean, worst = (
                measured.value(f"optimum_ratio_{name}", **where, planner=planner) for name in ("mean", "worst")
            )
            cells.append("–" if mean is None or worst is None else f"{mean:.3f} ({worst:.2f})")
        lines.append(f"| {setting.costs} | {setting.flow_count} x {setting.subscriber_count} | {' | '.join(cells)} |")
    return [*lines, ""]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables of a file of figures, or replace those in a README; exit with 2 if a file is unusable."""
    return put_claims(PROGRAM, "regraft-lab psoop", claims_document, readme_document, arguments)


if __name__ == "__main__":
    sys.exit(main())
