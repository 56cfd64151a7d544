"""Plot figures of evaluations with their intervals, in the style of each algorithm.

In: figures and matplotlib axes. Out: lines and a legend. The drawings themselves belong to each paper's folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from regraft.api.programs import Figure


@dataclass(frozen=True, slots=True)
class LineStyle:
    """The style of one algorithm in all drawings."""

    label: str
    colour: str
    line: str


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
