"""Make the tables of claims and costs from a file of figures, and put them into the README.

``python -m experiments.psoop.claims_table --json FILE [--readme FILE]``. In: figures of `regraft reproduce psoop`. Out:
Markdown on standard output, or between the markers of a README. Every number comes from the file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.psoop.claim_evidence import NAMES, Claim, Measured, Value
from experiments.psoop.judge_claims import PAPER_CLAIMS
from experiments.psoop.judge_ours import NETWORKS, OUR_CLAIMS
from experiments.psoop.small_instances import SMALL_SETTINGS
from infra.measured_figures import Figure
from schemas.status_file import replace_file

BEGIN = "<!-- claims: begin, made by experiments.psoop.claims_table -->"
END = "<!-- claims: end -->"
EXIT_CALL = 2
ADAPTED = [planner for planner in NAMES if planner != "random_tree"]  # Costs are relative to the random tree's.


def claims_document(run: dict[str, Any], figures: Sequence[Figure]) -> str:
    """Return the tables as Markdown: what was run, the paper's claims, ours, and the costs by network."""
    measured = Measured(figures)
    settings = run["settings"]
    networks = ", ".join(f"{name} {count}" for name, count in settings["topologies"].items())
    return "\n".join(
        [
            f"Run: size {settings['size']}, seed {run['seed']}, commit {run['commit'][:12]}.",
            f"Networks by figure: {networks}.",
            "",
            "### Claims of the paper",
            "",
            *_claims(PAPER_CLAIMS, measured),
            "",
            "### Claims of ours",
            "",
            *_claims(OUR_CLAIMS, measured),
            "",
            "### Cost relative to the random tree",
            "",
            *_costs(measured),
            "",
            *_optimum(measured),
        ]
    )


def _claims(claims: Sequence[Claim], measured: Measured) -> list[str]:
    lines = ["| where | claim | judged by | verdict | figures |", "|---|---|---|---|---|"]
    for claim in claims:
        judgement = claim.judged(measured)
        lines.append(
            f"| {claim.place} | {claim.text} | {claim.test} | **{judgement.verdict}** | {judgement.evidence} |"
        )
    return lines


def _costs(measured: Measured) -> list[str]:
    """Return a row for each network: settled cost with messages, and notifications alone in brackets."""
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
    """Return how far planners end from the least-cost tree of the largest small overlays, nothing when not run."""
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


def read_figures(path: Path) -> tuple[dict[str, Any], list[Figure]]:
    """Return the run and the figures of a file. Raises OSError or ValueError when it is not one."""
    document = json.loads(path.read_text(encoding="utf-8"))
    try:
        return document["run"], [Figure(**figure) for figure in document["figures"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"no run and figures in it: {error}") from error


def with_block(text: str, block: str) -> str:
    """Return a text with what is between the markers replaced. Raises ValueError without both markers."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no lines {BEGIN!r} and {END!r} in it")
    return f"{head}{BEGIN}\n\n{block}\n{END}{tail}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables of a file of figures, or replace those in a README; end with code 2 when that cannot be."""
    parser = argparse.ArgumentParser(prog="python -m experiments.psoop.claims_table", description=main.__doc__)
    parser.add_argument("--json", type=Path, required=True, metavar="FILE", help="figures of `regraft reproduce psoop`")
    parser.add_argument("--readme", type=Path, metavar="FILE", help="file whose marked block is replaced")
    given = parser.parse_args(arguments)
    try:
        document = claims_document(*read_figures(given.json))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{given.json} holds no figures ({error}): name a file that `regraft reproduce psoop` wrote\n")
        return EXIT_CALL
    if given.readme is None:
        sys.stdout.write(document)
        return 0
    try:
        replace_file(given.readme, with_block(given.readme.read_text(encoding="utf-8"), document))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{given.readme} cannot take the tables ({error})\n")
        return EXIT_CALL
    return 0


if __name__ == "__main__":
    sys.exit(main())
