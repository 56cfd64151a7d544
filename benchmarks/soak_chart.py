"""Draw a soak run as one SVG: memory of the processes, topics, files and cost over the hours of its clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from regraft.schemas.shown_state import CostPoint

MB = 1_000_000
PANELS = (
    ("Memory of the processes, MB", "memory: ", MB),
    ("Topics on disk, MB", "topic bytes: ", MB),
    ("Records of the topics, thousands", "topic records: ", 1_000),
    ("Spark's checkpoint, files", "checkpoint: files", 1),
    ("Spark's state, thousand rows", "streaming: state rows", 1_000),
)


def draw_soak(
    file: Path, rows: Sequence[tuple[float, Mapping[str, float]]], cost: Sequence[CostPoint], warm_up_h: float
) -> None:
    """Write the chart; the warm-up, which slopes leave out, is shaded."""
    figure = Figure(figsize=(11, 13), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots(len(PANELS) + 1, 1).ravel()
    names = dict.fromkeys(name for _, row in rows for name in row)
    for axis, (title, prefix, scale) in zip(axes, PANELS, strict=False):
        for name in (each for each in names if each.startswith(prefix)):
            points = [(hours, row[name] / scale) for hours, row in rows if name in row]
            axis.plot(*zip(*points, strict=True), label=name.removeprefix(prefix) or name, linewidth=1)
        axis.set_title(title, loc="left", fontsize=10)
    _draw_cost(axes[-1], cost, rows[-1][0] if rows else 0.0)
    for axis in axes:
        axis.axvspan(0, warm_up_h, color="0.93", zorder=0)
        axis.set_xlim(left=0)
        axis.set_ylim(bottom=0)
        if axis.get_legend_handles_labels()[1]:
            axis.legend(fontsize=7, ncol=2, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes[-1].set_xlabel("hours of the run's clock")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, format="svg")


def _draw_cost(axis: Any, points: Sequence[CostPoint], hours: float) -> None:
    if points:
        origin_ms = points[-1].window_end_ms - hours * 3_600_000
        times_h = [(point.window_end_ms - origin_ms) / 3_600_000 for point in points]
        for name, label in (("cost_per_s", "overlay in force"), ("cost_bootstrap_per_s", "first overlay")):
            axis.plot(times_h, [getattr(point, name) / 1_000 for point in points], label=label, linewidth=1)
    axis.set_title("Cost, thousands per s", loc="left", fontsize=10)
