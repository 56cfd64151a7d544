"""Tabulate claims and cuts from a file of figures, and put the tables into the README.

``python -m regraft_lab.pop_grape.tabulate_claims --json FILE [--readme FILE]``. In: figures of `regraft-lab pop-grape`.
Out: Markdown on standard output, or between the markers of a README and of claims.md. Every number is from the figures.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from regraft.api.programs import Figure
from regraft_lab.claim_evidence import Measured, Value
from regraft_lab.claims_block import claim_rows, put_claims, summary_rows
from regraft_lab.pop_grape.judge_joint import OUR_CLAIMS
from regraft_lab.pop_grape.judge_relocation import NAMES
from regraft_lab.pop_grape.relocation_claims import PAPER_CLAIMS

PROGRAM = "regraft_lab.pop_grape.tabulate_claims"
PLACES: tuple[tuple[str, Mapping[str, Value]], ...] = (
    ("PlanetLab, on the virtual clock", {"measured": "clock", "testbed": "planetlab"}),
    ("Cluster, on the virtual clock", {"measured": "clock", "testbed": "cluster"}),
    ("63 equal brokers, exact count", {"measured": "count", "testbed": "hops"}),
)
WORKLOADS = ("clustered", "random")
PREDICATES = ("shared", "independent")
README_X = (1, 2, 8, 32)


def claims_document(run: dict[str, Any], figures: Sequence[Figure]) -> str:
    """Return the tables as Markdown: the run, the paper's claims, ours, and the cuts by X."""
    measured = Measured(figures)
    lines = [*_head(run), "### Claims of the paper", "", *claim_rows(PAPER_CLAIMS, measured), ""]
    lines += ["### Claims of ours", "", *claim_rows(OUR_CLAIMS, measured)]
    for title, where in PLACES:
        lines += _cuts(title, where, measured)
    return "\n".join([*lines, ""])


def readme_document(run: dict[str, Any], figures: Sequence[Figure]) -> str:
    """Return the summary of the claims, and some of the cuts on PlanetLab."""
    measured = Measured(figures)
    cuts = _cuts(*PLACES[0], measured, README_X, ("shared",))
    summary = summary_rows({"Claims of the paper": PAPER_CLAIMS, "Ours": OUR_CLAIMS}, measured)
    return "\n".join([*_head(run), *summary, *cuts, ""])


def _head(run: dict[str, Any]) -> list[str]:
    settings = run["settings"]
    draws = ", ".join(
        f"{testbed} {count} with {predicates} predicates"
        for testbed, by_predicates in settings["draws"].items()
        for predicates, count in by_predicates.items()
    )
    return [
        f"Run: size {settings['size']}, seed {run['seed']}, commit {run['commit'][:12]}.",
        f"Draws of testbed and workload: {draws}; exact counts {settings['counted_draws']}.",
        "",
    ]


def _cuts(
    title: str,
    where: Mapping[str, Value],
    measured: Measured,
    only: Sequence[int] = (),
    kinds: Sequence[str] = PREDICATES,
) -> list[str]:
    """Return the savings of each way by workload and X: input utilisation, delay, one cost; empty if not run.

    ``only`` and ``kinds`` limit X and the predicates.
    """
    rows = []
    for workload in WORKLOADS:
        for predicates in kinds:
            here: dict[str, Value] = {**where, "workload": workload, "predicates": predicates}
            for x in measured.steps("load_cut", "x", **here):
                if only and round(x) not in only:
                    continue
                cells = [_cell(measured, {**here, "x": round(x), "way": way}) for way in NAMES]
                rows.append(f"| {workload}, {predicates} | {x:g} | {' | '.join(cells)} |")
    if not rows:
        return []
    return [
        "",
        f"### What is saved: {title}",
        "",
        "Input utilisation / delivery delay between clients / the one cost, as shares of the baseline's.",
        "",
        f"| workload, predicates | X | {' | '.join(NAMES.values())} |",
        f"|---|---:|{' ---: |' * len(NAMES)}",
        *rows,
    ]


def _cell(measured: Measured, where: dict[str, Value]) -> str:
    cuts = [measured.value(f"{metric}_cut", **where) for metric in ("load", "client_delay", "cost")]
    return " / ".join("–" if cut is None else f"{cut:.2f}" for cut in cuts) if any(cuts) else "–"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables of a file of figures, or replace those in a README; exit with 2 if a file is unusable."""
    return put_claims(PROGRAM, "regraft-lab pop-grape", claims_document, readme_document, arguments)


if __name__ == "__main__":
    sys.exit(main())
