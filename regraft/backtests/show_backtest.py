"""Show the results of a backtest: a table for the terminal, figures, a drawing of the costs, and a page of them all.

In: a Backtest. Out: text and files. It computes nothing that an Outcome does not already hold.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import msgspec
from rich.table import Table

from regraft.backtests.backtest_outcome import BOOTSTRAP, LEAST, MODE_TITLES, Mode, Outcome, outcomes_by_mode
from regraft.backtests.choose_settings import CHOICE_HEADS, Choice
from regraft.backtests.run_backtest import Backtest, BacktestOptions
from regraft.infra.process.measured_figures import Figure, run_facts
from regraft.report_page.html_elements import THEME_CSS, follow_theme, html_table, number_text
from regraft.schemas.status_file import replace_file

NAME_WIDTH_MIN = 11
OPEN_HEADS = ("planner", "cost/s", "saved", "plans", "undone", "links", "moves", "IDs", "ms")
CLOSED_HEADS = (*OPEN_HEADS, "lost", "to deaths", "repeated")
REFUSAL_HEADS = ("planner", "mode", "verdict", "proposals")
CSV_HEADS = ("mode", "planner", "verdict", "name", "value", "unit")
SHOWN_IF_ANY = ("IDs", "to deaths")

PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Regraft: backtest of $file</title>
<style>
$theme
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .5rem; border-bottom: 1px solid var(--line); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
</style>
</head>
<body>
<h1>Planners compared on $file</h1>
$notes
$tables
<h2>Cost of each window</h2>
$drawing
<h2>Refused proposals</h2>
$refusals
</body>
</html>
""")


def outcome_tables(outcomes: Sequence[Outcome]) -> list[Table]:
    """Return a terminal table for each mode; unknown values are empty."""
    tables = []
    for mode, shown in outcomes_by_mode(outcomes):
        table = Table(box=None, pad_edge=False, title=MODE_TITLES[mode], title_justify="left")
        rows = [_row(outcome) for outcome in shown]
        places = [
            place
            for place, head in enumerate(_heads(mode))
            if head not in SHOWN_IF_ANY or any(row[place] not in "0" for row in rows)
        ]
        for place in places:
            is_name = place == 0
            table.add_column(
                _heads(mode)[place],
                justify="left" if is_name else "right",
                overflow="fold",
                no_wrap=not is_name,
                min_width=NAME_WIDTH_MIN if is_name else None,
            )
        for row in rows:
            table.add_row(*(row[place] for place in places))
        tables.append(table)
    return tables


def backtest_figures(outcomes: Iterable[Outcome]) -> list[Figure]:
    """Return everything that was measured, each figure with planner and mode in ``where``."""
    return [figure for outcome in outcomes for figure in _figures(outcome)]


def write_backtest(
    backtest: Backtest, options: BacktestOptions, out: Path | None, json_file: Path | None, csv_file: Path | None = None
) -> None:
    """Write figures.json, backtest.svg and backtest.html to ``out``, the figures to ``json_file`` and ``csv_file``."""
    if csv_file is not None:
        csv_file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(csv_file, figures_csv(backtest))
    document = figures_document(backtest, options)
    for path in (json_file, None if out is None else out / "figures.json"):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, json.dumps(document, indent=1) + "\n")
    if out is not None:
        from regraft.backtests.draw_backtest import draw_costs  # Loading Matplotlib takes seconds.

        drawing = draw_costs(backtest.outcomes)
        replace_file(out / "backtest.svg", drawing)
        replace_file(out / "backtest.html", _page(backtest, options, drawing))


def figures_csv(backtest: Backtest) -> str:
    """Return the figures as CSV, one a row: mode, planner, verdict of refused proposals, name, value, unit."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_HEADS)
    for figure in [*backtest_figures(backtest.outcomes), *_choice_figures(backtest.choice)]:
        places = (figure.where.get(place, "") for place in CSV_HEADS[:3])
        writer.writerow((*places, figure.name, figure.value, figure.unit))
    return text.getvalue()


def figures_document(backtest: Backtest, options: BacktestOptions) -> dict[str, Any]:
    """Return the figures in the common format of measurements (``infra.process.measured_figures``)."""
    settings = {
        "recording": options.file.name,
        "planners": list(dict.fromkeys(outcome.planner for outcome in backtest.outcomes if not outcome.is_yardstick)),
        "set": {section: dict(values) for section, values in options.flags.items()},
        "first_ms": backtest.first_ms,
        "end_ms": backtest.end_ms,
        "window_ms": backtest.settings.streaming.window_ms,
        "windows": backtest.windows,
        "notes": list(backtest.notes),
        "warnings": list(backtest.warnings),
    }
    run = run_facts(settings, backtest.settings.run.seed)
    figures = [*backtest_figures(backtest.outcomes), *_choice_figures(backtest.choice)]
    return {"run": run, "figures": [asdict(figure) for figure in figures]}


def _choice_figures(choice: Choice | None) -> list[Figure]:
    """Return by what share each candidate exceeds the best, the ends of its interval, and the choice."""
    if choice is None:
        return []
    return [
        Figure(name, {"planner": one.name, "mode": str(Mode.OPEN_LOOP)}, float(value), "share")
        for one in choice.compared
        for name, value in (
            ("above_best_share", one.above_share),
            ("above_best_share_low", one.low_share),
            ("above_best_share_high", one.high_share),
            ("is_taken", one is choice.chosen),
        )
    ]


def _heads(mode: Mode) -> tuple[str, ...]:
    return OPEN_HEADS if mode is Mode.OPEN_LOOP else CLOSED_HEADS


def _row(outcome: Outcome) -> tuple[str, ...]:
    cost, saved, times, sent = outcome.cost_mean_per_s, outcome.saved_share, outcome.decision_time, outcome.deliveries
    is_first = outcome.planner in (BOOTSTRAP, LEAST)

    def counted(count: int) -> str:
        return "" if is_first else str(count)

    row = (
        outcome.planner,
        "" if cost is None else number_text(cost),
        "" if saved is None or outcome.planner == BOOTSTRAP else f"{saved:.1%}",
        counted(len(outcome.plans)),
        counted(outcome.plans_rolled_back),
        counted(outcome.links_exchanged),
        counted(outcome.moves),
        counted(outcome.id_moves),
        f"{times.mean_ms:.1f}" if times.count else "",
    )
    if outcome.mode is Mode.OPEN_LOOP:
        return row
    if sent is None:
        return (*row, "", "", "")
    return (*row, str(sent.lost), str(sent.lost_to_deaths), str(sent.repeated))


def _figures(outcome: Outcome) -> list[Figure]:
    where: dict[str, str | int | float] = {"planner": outcome.planner, "mode": str(outcome.mode)}
    rows: list[tuple[str, float | None, str]] = [
        ("cost_mean_per_s", outcome.cost_mean_per_s, "cost/s"),
        ("saved_share", outcome.saved_share, "share"),
        ("windows", len(outcome.points), "windows"),
        ("windows_incomplete", outcome.windows_incomplete, "windows"),
    ]
    if outcome.planner not in (BOOTSTRAP, LEAST):
        rows += [
            ("plans", len(outcome.plans), "plans"),
            ("plans_taken_back", outcome.plans_rolled_back, "plans"),
            ("links_exchanged", outcome.links_exchanged, "links"),
            ("clients_moved", outcome.moves, "moves"),
            ("ring_ids_moved", outcome.id_moves, "moves"),
        ]
    if not outcome.is_yardstick:
        times = outcome.decision_time
        rows += [
            ("decisions", times.count, "decisions"),
            ("decision_ms_mean", times.mean_ms, "ms"),
            ("decision_ms_max", times.max_ms, "ms"),
            ("decisions_failed", outcome.errors, "decisions"),
        ]
    if outcome.deliveries is not None:
        sent = outcome.deliveries
        counts = msgspec.structs.asdict(sent)
        rows += [(name, count, "notifications") for name, count in counts.items() if name != "expected"]
    figures = [Figure(name, where, float(value), unit) for name, value, unit in rows if value is not None]
    refused = [
        Figure("refused", {**where, "verdict": verdict}, float(count), "proposals")
        for verdict, count in sorted(outcome.refusals.items())
    ]
    return figures + refused


def _page(backtest: Backtest, options: BacktestOptions, drawing: str) -> str:
    tables = [
        f"<h2>{escape(MODE_TITLES[mode])}</h2>{html_table(_heads(mode), [_row(outcome) for outcome in shown])}"
        for mode, shown in outcomes_by_mode(backtest.outcomes)
    ]
    refusals = [
        (outcome.planner, str(outcome.mode), verdict, str(count))
        for outcome in backtest.outcomes
        for verdict, count in sorted(outcome.refusals.items())
    ]
    if backtest.choice is not None:
        tables.insert(0, html_table(CHOICE_HEADS, backtest.choice.rows))
    notes = (
        *((backtest.choice.text,) if backtest.choice else ()),
        *backtest.notes,
        *(f"Warning: {warning}" for warning in backtest.warnings),
    )
    return PAGE.substitute(
        theme=THEME_CSS,
        file=escape(options.file.name),
        notes="".join(f"<p>{escape(text)}</p>" for text in notes),
        tables="".join(tables),
        drawing=follow_theme(drawing[drawing.index("<svg") :]),
        refusals=html_table(REFUSAL_HEADS, refusals, text=3) if refusals else "<p>No proposal was refused.</p>",
    )
