"""Draw the cost of each window of a backtest as SVG: a panel for each mode, a line for each planner.

In: outcomes. Out: text, the same for the same outcomes. Numbers and page belong to ``show_backtest``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from regraft.backtests.backtest_outcome import BOOTSTRAP, LEAST, MODE_TITLES, RECORDED, Outcome, outcomes_by_mode
from regraft.experiments.drawing_parts import STYLE, svg_text

SECOND_MS = 1_000
LABEL_LENGTH_MAX = 36  # Of three columns beside each other.
YARDSTICK_LOOKS = {RECORDED: ("#000000", ":"), BOOTSTRAP: ("#d55e00", "--"), LEAST: ("#777777", ":")}
PLANNER_LOOKS: tuple[tuple[str, Any], ...] = (
    ("#0072b2", "-"),
    ("#009e73", "-."),
    ("#cc79a7", (0, (4, 1, 1, 1))),
    ("#e69f00", (0, (5, 2))),
    ("#56b4e9", (0, (1, 1))),
)


def draw_costs(outcomes: Sequence[Outcome]) -> str:
    """Return the cost of each window over time, a panel for each mode; plans are marked on their planner's line."""
    panels = [(mode, [outcome for outcome in shown if outcome.points]) for mode, shown in outcomes_by_mode(outcomes)]
    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=(9.6, 0.8 + 3.4 * len(panels)), layout="constrained")
        all_axes = canvas.subplots(len(panels), 1, squeeze=False)[:, 0]
        for axes, (mode, shown) in zip(all_axes, panels, strict=True):
            if shown:
                _draw_panel(axes, shown)
            axes.set_title(MODE_TITLES[mode], fontsize=10, loc="left")
        handles, labels = all_axes[0].get_legend_handles_labels()
        columns = 2 if max(map(len, labels), default=0) > LABEL_LENGTH_MAX else 3
        canvas.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False)
        return svg_text(canvas)


def _draw_panel(axes: Axes, outcomes: Sequence[Outcome]) -> None:
    start_ms = min(outcome.points[0].end_ms for outcome in outcomes)
    looks = cycle(PLANNER_LOOKS)
    for outcome in outcomes:
        colour, line = YARDSTICK_LOOKS.get(outcome.planner) or next(looks)
        ends = [(point.end_ms - start_ms) / SECOND_MS for point in outcome.points]
        costs = [point.cost_per_s for point in outcome.points]
        axes.plot(
            ends, costs, color=colour, linestyle=line, linewidth=1.4, label=outcome.planner, drawstyle="steps-pre"
        )
        if not outcome.is_yardstick:
            marks = [(plan.time_ms - start_ms) / SECOND_MS for plan in outcome.plans]
            heights = [_cost_at(outcome, plan.time_ms) for plan in outcome.plans]
            axes.plot(marks, heights, "v", color=colour, markersize=5, linestyle="none")
    axes.set_xlabel("time since the first window, s; a triangle is a plan")
    axes.set_ylabel("cost per second")
    axes.set_ylim(bottom=0)


def _cost_at(outcome: Outcome, time_ms: int) -> float:
    before = [point for point in outcome.points if point.end_ms <= time_ms]
    return (before[-1] if before else outcome.points[0]).cost_per_s
