"""Tabulate claims and measures from a file of figures, and put the tables into the README.

``python -m regraft_lab.dynatops.tabulate_dynatops --json FILE [--readme FILE]``. In: figures of `regraft-lab dynatops`.
Out: Markdown on standard output, or between the markers of a README and of claims.md. Every number is from the figures.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from regraft.api.programs import Figure
from regraft_lab.claim_evidence import Measured, Value
from regraft_lab.claims_block import claim_rows, put_claims, summary_rows
from regraft_lab.dynatops.count_protocol import STEPS
from regraft_lab.dynatops.dynatops_claims import PAPER_CLAIMS
from regraft_lab.dynatops.judge_dynatops_ours import OUR_CLAIMS
from regraft_lab.dynatops.judge_readings import DYNATOPS, GRIDS, LOCATION, MULTIMODAL, placements, rates
from regraft_lab.dynatops.poisson_workload import PATTERNS

PROGRAM = "regraft_lab.dynatops.tabulate_dynatops"
SYSTEMS = {
    ("chord", "static"): "Chord",
    ("bayeux16", "static"): "Bayeux, base 16",
    ("bayeux4", "static"): "Bayeux, base 4",
    ("tco", "static"): "TCO",
    ("ssbr", "static"): "DYNATOPS(BNR)",
    ("chord", "placed"): "DYNATOPS(UP)",
    ("ssbr", "placed"): "DYNATOPS",
    ("assignment", "placed"): "Regraft",
}
LOCATED = {
    ("bayeux16", "static"): "Bayeux(static)",
    ("bayeux16", "located"): "Bayeux(loc)",
    ("bayeux16_pns", "located"): "Bayeux(loc+PNS)",
    ("geops", "located"): "GeoPS",
    ("chord", "located"): "Chord",
    ("ssbr", "located"): "DYNATOPS(BNR)",
}
VISITS = {
    "visits_checkins": ("check-ins", "3,000,000"),
    "visits_users": ("users", "40,000"),
    "visits_visits": ("visits", "450,000"),
    "visits_cells_used": ("cells used, brokers, topics", "1,200"),
    "users_per_broker": ("users per broker", "33"),
    "visits_single_share": ("cells that a user visits once", "1/3"),
    "visits_under_day_share": ("visits of less than a day", "1/2"),
    "visits_over_week_share": ("visits of more than a week", "1/10"),
    "update_h": ("T_update in h", "not given"),
}


def claims_document(run: dict[str, Any], figures: Sequence[Figure]) -> str:
    """Return the tables as Markdown: the run, the paper's claims, ours, and the results of all systems."""
    measured = Measured(figures)
    return "\n".join(
        [
            *_head(run),
            "### Claims of the paper",
            "",
            *claim_rows(PAPER_CLAIMS, measured),
            "",
            "### Claims of ours",
            "",
            *claim_rows(OUR_CLAIMS, measured),
            *_poisson_table(measured),
            *_rates_table(measured),
            *_events_table(measured),
            *_clusters_table(measured),
            *_location_table(measured),
            *_visits_table(measured),
            *_protocol_table(measured),
            "",
        ]
    )


def readme_document(run: dict[str, Any], figures: Sequence[Figure]) -> str:
    """Return the summary of the claims, and the results in the Poisson model."""
    measured = Measured(figures)
    summary = summary_rows({"Claims of the paper": PAPER_CLAIMS, "Ours": OUR_CLAIMS}, measured)
    return "\n".join([*_head(run), *summary, *_poisson_table(measured), *_clusters_table(measured), ""])


def _head(run: dict[str, Any]) -> list[str]:
    settings = run["settings"]
    draws = ", ".join(f"{kind} {count}" for kind, count in settings["draws"].items())
    return [
        f"Run: size {settings['size']}, seed {run['seed']}, commit {run['commit'][:12]}, check-ins: "
        f"{settings['data']}. Draws: {draws}.",
        "",
    ]


def _poisson_table(measured: Measured) -> list[str]:
    rows = []
    for pattern in PATTERNS:
        cells = [_cell(measured, {**MULTIMODAL, "pattern": pattern}, key) for key in SYSTEMS]
        if any(cell != "–" for cell in cells):
            rows.append(f"| {pattern} | {' | '.join(cells)} |")
    return _table(
        "Poisson model",
        "Delay in hops / messages for a notification; 0.1 changes per user and hour.",
        ["pattern", *SYSTEMS.values()],
        rows,
    )


def _rates_table(measured: Measured) -> list[str]:
    rows = []
    for rate in rates(measured):
        where: dict[str, Value] = {**MULTIMODAL, "changes_per_user_h": rate}
        cut = measured.value("changes_cut_by_rate", **where)
        management = [("bayeux16", "static"), ("bayeux4", "static"), ("chord", "static"), ("ssbr", "placed")]
        reassigned = [("tco", "static"), ("ssbr", "static"), ("ssbr", "placed"), ("assignment", "placed")]
        cells = ["–" if cut is None else f"{cut:.1%}"]
        cells += [_number(measured, "management_per_h", where, key) for key in management]
        cells += [_number(measured, "reassignment_messages_per_h", where, key) for key in reassigned]
        rows.append(f"| {rate:g} | {' | '.join(cells)} |")
    columns = [f"management, {name}" for name in ("Bayeux, base 16", "Bayeux, base 4", "Chord", "DYNATOPS")]
    columns += [f"reconfiguration, {name}" for name in ("TCO", "DYNATOPS(BNR)", "DYNATOPS", "Regraft")]
    return _table(
        "Poisson model by change rate",
        "Multimodal. What placement saves of brokers' subscription changes, and messages an hour.",
        ["changes per user and hour", "changes saved", *columns],
        rows,
    )


def _events_table(measured: Measured) -> list[str]:
    where = {key: value for key, value in MULTIMODAL.items() if key != "events_per_user_h"}
    rows = []
    for events in measured.steps("delay", "events_per_user_h", **where, **DYNATOPS):
        setting: dict[str, Value] = {**where, "events_per_user_h": events}
        cells = []
        for key in (("ssbr", "placed"), ("assignment", "placed")):
            moved = _number(measured, "reassignment_messages_per_h", setting, key)
            cells += [_cell(measured, setting, key), moved]
        rows.append(f"| {events:g} | {' | '.join(cells)} |")
    return _table(
        "Poisson model by what users publish",
        "Multimodal. Delay in hops / messages for a notification, and messages of reconfigurations an hour by Eq. 7.",
        ["events per user and hour", "DYNATOPS", "reconfiguration", "Regraft", "reconfiguration"],
        rows,
    )


def _clusters_table(measured: Measured) -> list[str]:
    rows = []
    for step in measured.steps("subscription_changes_cut", "cluster_brokers"):
        cells = []
        for pattern in PATTERNS:
            where: dict[str, Value] = {"pattern": pattern, "load_weight": 1.0, "cluster_brokers": round(step)}
            cut, variation = (measured.value(name, **where) for name in ("subscription_changes_cut", "load_cv"))
            cells.append("–" if cut is None or variation is None else f"{cut:.0%} / {variation:.2f}")
        rows.append(f"| {step:g} | {' | '.join(cells)} |")
    return _table(
        "Placement by cluster size",
        "What is saved of brokers' subscription changes / variation coefficient of loads; w_l = 1.",
        ["c", *PATTERNS],
        rows,
    )


def _location_table(measured: Measured) -> list[str]:
    rows = []
    for grid in GRIDS:
        cells = [_cell(measured, {**LOCATION, "grid": grid}, key) for key in LOCATED]
        if any(cell != "–" for cell in cells):
            rows.append(f"| {grid} | {' | '.join(cells)} |")
    first = _table(
        "Location model",
        "Delay in ms / messages for a notification; Bayeux with base 16.",
        ["grid", *LOCATED.values()],
        rows,
    )
    rows = []
    for name, where in placements():
        setting: dict[str, Value] = {**LOCATION, **where, "cluster_brokers": 10}
        homes = str(where["homes"])
        cells = [_cell(measured, setting, (system, homes)) for system in ("chord", "ssbr", "assignment")]
        handovers = measured.value("handovers_cut", **{**where, "cluster_brokers": 10})
        if any(cell != "–" for cell in cells):
            rows.append(f"| {name} | {' | '.join(cells)} | {'–' if handovers is None else f'{handovers:.0%}'} |")
    return first + _table(
        "Location model, users placed in clusters of ten",
        "The same, and what is saved of GeoPS's handovers.",
        ["reading", "DYNATOPS(UP)", "DYNATOPS", "Regraft", "handovers"],
        rows,
    )


def _visits_table(measured: Measured) -> list[str]:
    grids = [grid for grid in GRIDS if measured.value("visits_users", grid=grid) is not None]
    rows = []
    for name, (text, paper) in VISITS.items():
        shares = [measured.value(name, grid=grid) for grid in grids]
        cells = ["–" if value is None else f"{value:,.3g}" if value < 100 else f"{value:,.0f}" for value in shares]
        rows.append(f"| {text} | {paper} | {' | '.join(cells)} |")
    return _table("The recorded visits", "Beside those of the paper.", ["", "paper", *grids], rows if grids else [])


def _protocol_table(measured: Measured) -> list[str]:
    rows = []
    for brokers in measured.steps("protocol_messages", "brokers"):
        for topics in measured.steps("protocol_messages", "topics", brokers=round(brokers)):
            ring: dict[str, Value] = {"brokers": round(brokers), "topics": round(topics)}
            for moved in measured.steps("protocol_messages", "moved", **ring):
                where = {**ring, "moved": round(moved)}
                cells = [_counts(measured, {**where, "protocol_step": step}, "step") for step in STEPS]
                rows.append(
                    f"| {brokers:g} | {topics:g} | {moved:g} | {' | '.join(cells)} | "
                    f"{_counts(measured, where, 'protocol')} |"
                )
    return _table(
        "Messages of a reassignment",
        "Regraft's transition / the paper's protocol / the paper's bound without constants.",
        ["brokers", "topics", "moved", *STEPS, "all"],
        rows,
    )


def _number(measured: Measured, name: str, where: Mapping[str, Value], key: tuple[str, str]) -> str:
    value = measured.value(name, **where, system=key[0], homes=key[1])
    return "–" if value is None else f"{value:.0f}"


def _counts(measured: Measured, where: Mapping[str, Value], kind: str) -> str:
    names = (f"{kind}_messages", f"paper_{kind}_messages", f"{kind}_bound")
    counts = [measured.value(name, **where) for name in names]
    return " / ".join("–" if value is None else f"{value:.0f}" for value in counts)


def _cell(measured: Measured, where: Mapping[str, Value], key: tuple[str, str]) -> str:
    setting = {**where, "system": key[0], "homes": key[1]}
    delay, messages = (measured.value(name, **setting) for name in ("delay", "messages_per_notification"))
    return "–" if delay is None or messages is None else f"{delay:.2f} / {messages:.1f}"


def _table(title: str, text: str, columns: Sequence[str], rows: Sequence[str]) -> list[str]:
    if not rows:
        return []
    return [
        "",
        f"### {title}",
        "",
        text,
        "",
        f"| {' | '.join(columns)} |",
        f"|{'---|' * len(columns)}",
        *rows,
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables of a file of figures, or replace those in a README; exit with 2 if a file is unusable."""
    return put_claims(PROGRAM, "regraft-lab dynatops", claims_document, readme_document, arguments)


if __name__ == "__main__":
    sys.exit(main())
