"""Draw the figures of the evaluation as SVG: Jaeger07's Figs. 4 to 6 with ours added, and one of memory."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure as Canvas

from regraft.api.drawings import STYLE, svg_text
from regraft.api.programs import Figure
from regraft_lab.plot_figures import LineStyle, add_legend, plot_with_bars
from regraft_lab.psoop.count_figures import Group, group_results, relative_curve
from regraft_lab.psoop.evaluation_tasks import Task
from regraft_lab.psoop.run_task import SAMPLE_TICKS, TaskResult

# Okabe-Ito colours: distinct for any colour vision; line styles differ as well.
LINE_STYLES = {
    "minimum_spanning_tree": LineStyle("MST, global", "#56b4e9", ":"),
    "maximum_interest_tree": LineStyle("MIT, global", "#e69f00", ":"),
    "swap_links_lmst": LineStyle("lMST", "#0072b2", "--"),
    "swap_links_lmit": LineStyle("lMIT", "#d55e00", "-."),
    "swap_links_ci": LineStyle("CI (the paper's)", "#000000", "-"),
    "swap_links_cost": LineStyle("Regraft, at most 8 links", "#009e73", "-"),
}
NETWORK_LABELS = {"transit_stub": "transit-stub", "uniform": "uniform costs", "planetlab": "PlanetLab", "zoo": "Zoo"}
RELATIVE_LABEL = "cost relative to the random tree"


def draw_evaluation(results: Sequence[tuple[Task, TaskResult]], figures: Sequence[Figure]) -> dict[str, str]:
    """Return the drawings by file name, without experiments that were not run."""
    drawn: dict[str, str] = {}
    groups = group_results(results)
    with mpl.rc_context(STYLE):
        if ("fig4", "transit_stub", "cache") in groups:
            drawn["fig4.svg"] = _draw_over_time(groups["fig4", "transit_stub", "cache"])
        if any(figure.where.get("figure") == "fig5" for figure in figures):
            drawn["fig5.svg"] = _draw_by_eta(figures)
        for experiment, step, label in (
            ("fig6", "alpha", "weight of processing costs, alpha"),
            ("figh", "lifetimes", "memory of the brokers, mean lives of a subscription"),
        ):
            chosen = [figure for figure in figures if figure.where.get("figure") == experiment]
            if chosen:
                drawn[f"{experiment}.svg"] = _draw_by_step(chosen, step, label)
    return drawn


def _draw_over_time(group: Group) -> str:
    canvas = Canvas(figsize=(9.6, 4.2), layout="constrained")
    axes = canvas.add_subplot()
    task = group.tasks[0]
    for variant, style in LINE_STYLES.items():
        if (variant, 0.0) not in group.curves:
            continue
        mean, half = relative_curve(group, variant, 0.0)
        ticks = (np.arange(len(mean)) + 1) * SAMPLE_TICKS
        axes.plot(ticks, mean, color=style.colour, linestyle=style.line, label=style.label)
        axes.fill_between(ticks, mean - half, mean + half, color=style.colour, alpha=0.15, linewidth=0)
    axes.axhline(1, color="#888888", linewidth=0.8, label="random tree")
    for change in range(1, task.regimes):
        axes.axvline(change * task.regime_ticks, color="#555555", linewidth=5, alpha=0.3)
    axes.set_xlabel("ticks; all costs change at the grey bars")
    axes.set_ylabel(f"{RELATIVE_LABEL},\nmessages included")
    axes.set_ylim(bottom=0)
    add_legend(axes)
    return svg_text(canvas)


def _draw_by_eta(figures: Sequence[Figure]) -> str:
    canvas = Canvas(figsize=(9.6, 3.8), layout="constrained")
    costs, shares = canvas.subplots(1, 2)
    for name, label, line in (
        ("cost_vs_random", "with messages", "-"),
        ("forwarding_vs_random", "notifications only", "--"),
    ):
        plot_with_bars(costs, figures, name, {"figure": "fig5", "period": "all"}, "eta", label, "#000000", line)
    for name, label, colour in (
        ("broadcast_cost_share", "broadcasts", "#0072b2"),
        ("request_cost_share", "requests", "#d55e00"),
        ("execution_cost_share", "exchanges of links", "#009e73"),
    ):
        plot_with_bars(shares, figures, name, {"figure": "fig5"}, "eta", label, colour, "-")
    costs.set_ylabel(RELATIVE_LABEL)
    shares.set_ylabel("share of the adapted tree's cost")
    for axes in (costs, shares):
        axes.set_xlabel("horizon of CI in hops, eta")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False)
    return svg_text(canvas)


def _draw_by_step(figures: Sequence[Figure], step: str, label: str) -> str:
    networks = [name for name in NETWORK_LABELS if any(figure.where["costs"] == name for figure in figures)]
    canvas = Canvas(figsize=(9.6 if len(networks) > 1 else 6.4, 4.2), layout="constrained")
    panels = canvas.subplots(1, len(networks), squeeze=False, sharey=True)[0]
    for axes, network in zip(panels, networks, strict=True):
        for variant, style in LINE_STYLES.items():
            where = {"costs": network, "planner": variant, "period": "settled"}
            plot_with_bars(axes, figures, "forwarding_vs_random", where, step, style.label, style.colour, style.line)
        if step == "lifetimes":
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(mpl.ticker.FormatStrFormatter("%g"))
        axes.set_title(NETWORK_LABELS[network])
        axes.set_xlabel(label)
    panels[0].set_ylim(bottom=0)  # The axis is shared. Only now, because a limit turns off autoscaling.
    panels[0].set_ylabel(f"{RELATIVE_LABEL},\nnotifications only, settled")
    add_legend(panels[0])
    return svg_text(canvas)
