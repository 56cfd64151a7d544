"""Parts that drawings of evaluations share: one style, figures with their intervals, the same bytes for the same data.

In: figures and matplotlib axes. Out: SVG text. The drawings themselves belong to each paper's folder.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas

from regraft.infra.process.measured_figures import Figure


@dataclass(frozen=True, slots=True)
class LineStyle:
    """The style of one algorithm in all drawings."""

    label: str
    colour: str
    line: str


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


def plot_with_bars(
    axes: Axes,
    figures: Sequence[Figure],
    name: str,
    where: Mapping[str, str | int | float],
    step: str,
    label: str,
    colour: str,
    line: str,
) -> None:
    """Plot one figure over the setting ``step``, with its interval as error bars."""

    def values(wanted: str) -> dict[float, float]:
        return {
            float(figure.where[step]): figure.value
            for figure in figures
            if figure.name == wanted and where.items() <= figure.where.items()
        }

    means, halves = values(name), values(f"{name}_ci95")
    if not means:
        return
    steps = sorted(means)
    bars = [halves.get(place, 0.0) for place in steps]
    axes.errorbar(
        steps, [means[place] for place in steps], bars,
        label=label, color=colour, linestyle=line, marker="o", markersize=3, capsize=2,
    )  # fmt: skip


def add_legend(axes: Axes) -> None:
    """Add one legend for all panels above them."""
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)


def svg_text(canvas: Canvas) -> str:
    """Return the drawing as SVG, without a date."""
    buffer = io.StringIO()
    FigureCanvasSVG(canvas)
    canvas.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()
