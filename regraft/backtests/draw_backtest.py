"""Draw the cost of each window of a backtest as SVG: a panel for each mode, a line for each planner.

In: outcomes. Out: text, the same for the same outcomes. Each line has its own combination of colour and dashes, and
ends with its number in the legend. Figures and the page belong to ``show_backtest``.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from regraft.backtests.backtest_outcome import BOOTSTRAP, LEAST, MODE_TITLES, RECORDED, Outcome, outcomes_by_mode
from regraft.schemas.units import SECOND_MS

LABEL_LENGTH_MAX = 36  # With longer names the legend has two columns instead of three.
PANEL_INCHES = 3.4
INCHES_PER_LINE = 0.13  # Height of the number at the end of a line.
# Each has a contrast of at least 3:1 with a light and a dark page, as WCAG 2.2 requires of lines.
COLOURS = ("#2878c8", "#1b9250", "#c2528b", "#a87800", "#00899b", "#8a63d2", "#d43d51", "#7a7a3c")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)), (0, (9, 2, 3, 2)))
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "regraft",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#dddddd",
    "axes.axisbelow": True,
}


@dataclass(frozen=True, slots=True)
class LineStyle:
    """How one planner is drawn in every panel; ``number`` is printed at the end of its line and in the legend."""

    number: int
    colour: str
    dashes: Any


YARDSTICK_STYLES = {RECORDED: ("#000000", ":"), BOOTSTRAP: ("#d55e00", "--"), LEAST: ("#777777", ":")}


def line_styles(names: Sequence[str]) -> dict[str, LineStyle]:
    """Return a different style for each name; those of yardsticks are fixed."""
    styles: dict[str, LineStyle] = {}
    planners = 0
    for number, name in enumerate(dict.fromkeys(names), start=1):
        if name in YARDSTICK_STYLES:
            styles[name] = LineStyle(number, *YARDSTICK_STYLES[name])
        else:
            turn, place = divmod(planners, len(COLOURS))
            styles[name] = LineStyle(number, COLOURS[place], DASHES[(turn + place) % len(DASHES)])
            planners += 1
    return styles


def draw_costs(outcomes: Sequence[Outcome]) -> str:
    """Return the cost of each window over time, a panel for each mode; plans are marked on their planner's line."""
    panels = [(mode, [outcome for outcome in shown if outcome.points]) for mode, shown in outcomes_by_mode(outcomes)]
    styles = line_styles([outcome.planner for _, shown in panels for outcome in shown])
    columns = 2 if max(map(len, styles), default=0) > LABEL_LENGTH_MAX else 3
    legend_inches = 0.2 * -(-len(styles) // columns) + 0.2
    panel_inches = max(PANEL_INCHES, 1.0 + INCHES_PER_LINE * len(styles))
    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=(9.6, legend_inches + panel_inches * len(panels)), layout="constrained")
        all_axes = canvas.subplots(len(panels), 1, squeeze=False)[:, 0]
        for axes, (mode, shown) in zip(all_axes, panels, strict=True):
            if shown:
                _draw_panel(axes, shown, styles)
                _number_ends(axes, shown, styles)
            axes.set_title(MODE_TITLES[mode], fontsize=10, loc="left")
        handles = [
            Line2D([], [], color=style.colour, linestyle=style.dashes, linewidth=1.6, label=f"{style.number}  {name}")
            for name, style in styles.items()
        ]
        canvas.legend(handles=handles, loc="outside upper center", ncols=columns, frameon=False, handlelength=4)
        return svg_text(canvas)


def _draw_panel(axes: Axes, outcomes: Sequence[Outcome], styles: Mapping[str, LineStyle]) -> None:
    start_ms = min(outcome.points[0].end_ms for outcome in outcomes)
    for outcome in outcomes:
        style = styles[outcome.planner]
        ends = [(point.end_ms - start_ms) / SECOND_MS for point in outcome.points]
        costs = [point.cost_per_s for point in outcome.points]
        axes.plot(ends, costs, color=style.colour, linestyle=style.dashes, linewidth=1.4, drawstyle="steps-pre")
        if not outcome.is_yardstick:
            marks = [(plan.time_ms - start_ms) / SECOND_MS for plan in outcome.plans]
            heights = [_cost_at(outcome, plan.time_ms) for plan in outcome.plans]
            axes.plot(marks, heights, "v", color=style.colour, markersize=5, linestyle="none")
    axes.set_xlabel("time since the first window, s; triangles mark plans")
    axes.set_ylabel("cost per second")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.01)


def _number_ends(axes: Axes, outcomes: Sequence[Outcome], styles: Mapping[str, LineStyle]) -> None:
    """Put each line's number to the right of its end, spread so that they do not overlap."""
    start_ms = min(outcome.points[0].end_ms for outcome in outcomes)
    ends = sorted(outcomes, key=lambda outcome: (outcome.points[-1].cost_per_s, styles[outcome.planner].number))
    top = axes.get_ylim()[1]
    places = spread([outcome.points[-1].cost_per_s for outcome in ends], top / (len(styles) + 4), top)
    for outcome, place in zip(ends, places, strict=True):
        style, last = styles[outcome.planner], outcome.points[-1]
        axes.annotate(
            str(style.number), xy=((last.end_ms - start_ms) / SECOND_MS, last.cost_per_s),
            xytext=(1.03, place), textcoords=axes.get_yaxis_transform(), fontsize=8, va="center",
            arrowprops={"arrowstyle": "-", "color": style.colour, "linewidth": 0.7, "shrinkA": 1, "shrinkB": 0},
            annotation_clip=False,
        )  # fmt: skip


def spread(values: Sequence[float], gap: float, top: float) -> list[float]:
    """Return a position near each of the ascending values, at least ``gap`` apart and none above ``top``."""
    places: list[float] = []
    for value in values:
        places.append(max(value, places[-1] + gap) if places else value)
    bound = top
    for position in range(len(places) - 1, -1, -1):
        places[position] = min(places[position], bound)
        bound = places[position] - gap
    return places


def _cost_at(outcome: Outcome, time_ms: int) -> float:
    before = [point for point in outcome.points if point.end_ms <= time_ms]
    return (before[-1] if before else outcome.points[0]).cost_per_s


def svg_text(canvas: Canvas) -> str:
    """Return the drawing as SVG, without a date."""
    buffer = io.StringIO()
    FigureCanvasSVG(canvas)
    canvas.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()
