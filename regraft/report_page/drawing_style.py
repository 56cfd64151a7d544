"""What drawings of evaluations and backtests share: one style, and the same bytes for the same data."""

from __future__ import annotations

import io
from typing import Any

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas

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


def svg_text(canvas: Canvas) -> str:
    """Return the drawing as SVG, without a date."""
    buffer = io.StringIO()
    FigureCanvasSVG(canvas)
    canvas.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()
