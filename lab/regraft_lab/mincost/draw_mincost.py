"""Draw cost reduction ratios as SVG, like Figs. 9 and 10 of Zhao11, with ours added."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas

from regraft.api.drawings import STYLE, svg_text
from regraft.api.programs import Figure
from regraft_lab.mincost.mincost_tasks import CORE_SCALES, OURS, USERS_PER_BROKER
from regraft_lab.plot_figures import LineStyle, add_legend, plot_with_bars

LINE_STYLES = {
    "greedy": LineStyle("greedy packing", "#0072b2", "--"),
    "clustering": LineStyle("clustering", "#d55e00", "-."),
    "mixing": LineStyle("Steiner-tree mixing", "#000000", ":"),
    OURS: LineStyle("Regraft", "#009e73", "-"),
}
PLAIN = {"prices": "euclidean", "interests": "wide"}


def draw_mincost(figures: Sequence[Figure]) -> dict[str, str]:
    """Return the drawings by file name."""
    sparse = [
        one
        for one in figures
        if PLAIN.items() <= one.where.items() and one.where["users"] == USERS_PER_BROKER * int(one.where["brokers"])
    ]
    by_users = [one for one in sparse if one.where["core_scale"] == 1.0]
    scaled = {one.where["users"] for one in sparse if one.where["core_scale"] == CORE_SCALES[0]}
    by_scale = [one for one in sparse if one.where["users"] in scaled]
    with mpl.rc_context(STYLE):
        return {
            "fig9.svg": _draw(by_users, "users", "users, 100 a broker", is_log=False),
            "fig10.svg": _draw(by_scale, "core_scale", "price of links between brokers, times drawn", is_log=True),
        }


def _draw(figures: Sequence[Figure], step: str, label: str, *, is_log: bool) -> str:
    canvas = Canvas(figsize=(6.4, 4.2), layout="constrained")
    axes = canvas.subplots()
    for algorithm, style in LINE_STYLES.items():
        plot_with_bars(axes, figures, "crr", {"algorithm": algorithm}, step, style.label, style.colour, style.line)
    if is_log:
        axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(label)
    axes.set_ylabel("cost of random packing over its own")
    add_legend(axes)
    return svg_text(canvas)
