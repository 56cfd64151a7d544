"""Draw the figures of the report as SVG text: the cost curve, and an overlay with its link loads.

In: a RunRecord. Out: ``<svg>`` elements with readable text, the same bytes for the same record. Page and prose belong
to ``report``.
"""

from __future__ import annotations

import io
import re
from itertools import cycle
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regraft.overlay.cost_breakdown import CostBreakdown
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.report_page.html_elements import INK, LINE, LOAD, PAPER, SOFT, follow_theme
from regraft.run_records.run_record import RunRecord
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.plan_life import LIFE, committed_ms
from regraft.schemas.texts import figure as figure_text

# Okabe-Ito: distinguishable with any colour vision; lines differ in style as well.
PRESENT_COLOUR = "#0072b2"
BOOTSTRAP_COLOUR = "#d55e00"
PLAN_COLOUR = "#009e73"
ABORTED_COLOUR = "#cc79a7"
SHADOW_STYLES: tuple[tuple[str, Any], ...] = (("#e69f00", "-."), ("#56b4e9", (0, (4, 1, 1, 1, 1, 1))), (INK, ":"))
LAYOUT_STEPS = 200
LABEL_LENGTH_MAX = 52
LEGEND_LINES, LINE_INCHES = 6, 0.22
LINE_WIDTH_MIN, LINE_WIDTH_MAX = 0.6, 7.0
LINK_OPACITY_MIN = 0.45

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "regraft",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw_cost_curve(record: RunRecord) -> str:
    """Return the cost of each window over time, with marks for plans, the shift of interests and detected changes."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9.6, 4.4), layout="constrained")
        axes = figure.add_subplot()
        _plot_costs(axes, record)
        axes.set_xlabel("time since the start, s")
        axes.set_ylabel(f"cost per second, {_unit_of(record.inventory)}")
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: figure_text(value))
        axes.grid(axis="y", color=LINE, linewidth=0.6)
        axes.set_axisbelow(True)
        # Two columns, as names of joined planners are long and a browser's font may be wider than the one measured.
        legend = figure.legend(loc="outside upper center", ncols=2, frameon=False)
        lines = sum(text.get_text().count("\n") + 1 for text in legend.get_texts())
        figure.set_figheight(4.4 + LINE_INCHES * max(lines - LEGEND_LINES, 0) / 2)  # Keeps the curves' height.
        return _svg(figure, "cost", "Overlay cost per second in each window; the numbers are in the table below")


def _unit_of(inventory: Inventory) -> str:
    """Return the unit of the cost: delays summed over links, money, or on a ring messages and hops."""
    if inventory.bootstrap.KIND == RingConfiguration.KIND:
        return "messages and hops"
    return "ms of delay" if inventory.prices is None else f"millionths of {inventory.prices.currency}"


def _plot_costs(axes: mpl.axes.Axes, record: RunRecord) -> None:
    def seconds(time_ms: int) -> float:
        return (time_ms - record.started_ms) / 1000

    complete = [window for window in record.windows if window.complete]
    # Points are at the ends of windows.
    steps: dict[str, Any] = {"drawstyle": "steps-pre"}
    ends = [seconds(window.end_ms) for window in complete]
    bootstrap = [window.cost_bootstrap_per_s for window in complete]
    axes.plot(ends, bootstrap, color=BOOTSTRAP_COLOUR, linestyle="--", label="bootstrap overlay", **steps)
    for (colour, line), shadow in zip(cycle(SHADOW_STYLES), record.shadows, strict=False):
        costs = [window.shadows_per_s.get(shadow.planner, np.nan) for window in complete]  # A gap if unknown.
        axes.plot(ends, costs, color=colour, linestyle=line, label=_in_lines(f"shadow: {shadow.planner}"), **steps)
    present = [window.cost_per_s for window in complete]
    axes.plot(ends, present, color=PRESENT_COLOUR, linewidth=2, label=_present_label(record), **steps)
    missing = [window for window in record.windows if not window.complete]
    if missing:
        missed = [seconds(window.end_ms) for window in missing], [window.cost_per_s for window in missing]
        axes.plot(*missed, "x", color=PRESENT_COLOUR, label="incomplete window")
    labelled: set[str] = set()
    for plan in record.plans:
        time_ms = plan_time_ms(plan)
        if time_ms is None:
            continue
        aborted = plan.phase is PlanPhase.ABORTED
        label = "plan aborted" if aborted else "plan executed"
        axes.axvline(
            seconds(time_ms),
            color=ABORTED_COLOUR if aborted else PLAN_COLOUR,
            linestyle=":" if aborted else "-",
            linewidth=1,
            label=None if label in labelled else label,
        )
        labelled.add(label)
        number = plan.plan.removeprefix("plan-")
        axes.annotate(
            number, (seconds(time_ms), 1), xycoords=("data", "axes fraction"), xytext=(2, -10),
            textcoords="offset points", fontsize=8, color=SOFT,
        )  # fmt: skip
    if record.regime_change_ms is not None:
        axes.axvline(seconds(record.regime_change_ms), color=SOFT, linewidth=6, alpha=0.35, label="interests shift")
    _plot_changes(axes, [seconds(since_ms) for since_ms in record.changes_found_ms])


def _plot_changes(axes: mpl.axes.Axes, found_s: list[float]) -> None:
    """Mark when traffic changed, as detected by the controller."""
    if found_s:
        span = axes.get_xaxis_transform()
        axes.vlines(found_s, 0, 1, transform=span, color=SOFT, linestyle="-.", label="change found")


def _present_label(record: RunRecord) -> str:
    return _in_lines(f"overlay in force ({record.planner})") if record.planner else "overlay in force"


def _in_lines(label: str) -> str:
    """Wrap a label to the width of two columns, before the names of joined planners."""
    first, *others = label.split("+")
    lines = [first]
    for name in others:
        if len(lines[-1]) + len(name) >= LABEL_LENGTH_MAX:
            lines.append(f"+{name}")
        else:
            lines[-1] += f"+{name}"
    return "\n".join(lines)


def plan_time_ms(plan: Plan) -> int | None:
    """Return when a plan was aborted, else committed; None if it is neither."""
    aborted_ms = [change.time_ms for change in plan.history if LIFE[change.phase].is_aborted]
    return aborted_ms[-1] if aborted_ms else committed_ms(plan)


def draw_overlay(
    breakdown: CostBreakdown, inventory: Inventory, positions: NDArray[np.float64], load_per_s_max: float, name: str
) -> str:
    """Return a drawing of one overlay; links are wider and darker the more notifications per second cross them.

    Give the same ``positions`` and ``load_per_s_max`` for all drawings that are to be compared.
    """
    links = sorted(breakdown.link_notifications_per_s)
    loads = np.array([breakdown.link_notifications_per_s[link] for link in links])
    scale = Normalize(0, max(load_per_s_max, 1e-9))
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(6.0, 5.4), layout="constrained")
        axes = figure.add_subplot()
        ends = [[positions[inventory.index[a]], positions[inventory.index[b]]] for a, b in links]
        widths = LINE_WIDTH_MIN + (LINE_WIDTH_MAX - LINE_WIDTH_MIN) * np.sqrt(scale(loads))
        # One colour, more transparent the less load: this is readable on light and dark pages.
        opacities = LINK_OPACITY_MIN + (1 - LINK_OPACITY_MIN) * np.asarray(scale(loads))
        axes.add_collection(
            LineCollection(ends, linewidths=widths, colors=LOAD, alpha=opacities, capstyle="round", zorder=1)
        )
        axes.scatter(positions[:, 0], positions[:, 1], s=34, color=PAPER, edgecolors=INK, zorder=2)
        for broker, (x, y) in zip(inventory.brokers, positions, strict=True):
            axes.annotate(broker, (x, y), xytext=(4, 4), textcoords="offset points", fontsize=6.5)
        axes.set_aspect("equal")
        axes.margins(0.06)
        axes.set_axis_off()
        busiest = max(zip(loads, links, strict=True), default=(0.0, ("none", "none")))
        text = (
            f"{name} overlay: {len(links)} links, the busiest is {busiest[1][0]} to {busiest[1][1]} with "
            f"{busiest[0]:.1f} notifications per second"
        )
        return _svg(figure, name, text)


def place_brokers(inventory: Inventory) -> NDArray[np.float64]:
    """Return a position for each broker, shape (brokers, 2), so that distances approximate roots of link costs.

    Classical scaling, then stress majorisation (SMACOF). Square roots keep near hosts from overlapping. The same
    inventory gives the same positions.
    """
    distances = np.sqrt(inventory.link_cost)
    count = len(distances)
    centring = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-0.5 * centring @ distances**2 @ centring)
    positions: NDArray[np.float64] = vectors[:, [-1, -2]] * np.sqrt(np.maximum(values[[-1, -2]], 1e-12))
    for _ in range(LAYOUT_STEPS):
        apart = np.linalg.norm(positions[:, None] - positions[None], axis=2)
        ratio = np.divide(distances, apart, out=np.zeros_like(apart), where=apart > 1e-9)
        pull = np.diag(ratio.sum(axis=1)) - ratio
        positions = pull @ positions / count
    return positions


def _svg(figure: Figure, prefix: str, description: str) -> str:
    """Return the figure as an ``<svg>`` element for a page with others: unique ids, and a description as label."""
    buffer = io.StringIO()
    FigureCanvasSVG(figure)
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = follow_theme(text[text.index("<svg") :])
    text = re.sub(r"<metadata>.*?</metadata>", "", text, count=1, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'(href="|url\()#', rf"\1#{prefix}-", text)
    return re.sub(r"<svg [^>]*?(viewBox=\"[^\"]+\")[^>]*>", _opening(description), text, count=1)


def _opening(description: str) -> str:
    return (
        rf'<svg \1 role="img" aria-label="{description}" xmlns="http://www.w3.org/2000/svg" '
        'xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
