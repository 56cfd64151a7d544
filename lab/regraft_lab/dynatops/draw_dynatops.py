"""Draw Zhao13's Figs. 6a, 7, 9 and 10 with our results added, and the messages of a reassignment, as SVG.

In: figures. Out: SVG text by file name, the same bytes for the same figures. Verdicts and tables do not belong here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from regraft.api.drawings import STYLE, svg_text
from regraft.api.programs import Figure
from regraft_lab.claim_evidence import Measured, Value
from regraft_lab.dynatops.dynatops_tasks import CLAIM_WEIGHTS
from regraft_lab.dynatops.judge_readings import DYNATOPS, GRIDS, MULTIMODAL
from regraft_lab.dynatops.judge_reassignment import PERIODS
from regraft_lab.plot_figures import LineStyle, add_legend, plot_with_bars

# Okabe-Ito colours: distinct for any colour vision; line styles differ as well.
SYSTEMS: dict[tuple[str, str], LineStyle] = {
    ("chord", "static"): LineStyle("Chord, random homes", "#888888", ":"),
    ("bayeux16", "static"): LineStyle("Bayeux, base 16", "#0072b2", "--"),
    ("bayeux4", "static"): LineStyle("Bayeux, base 4", "#56b4e9", "--"),
    ("tco", "static"): LineStyle("TCO", "#d55e00", "-."),
    ("ssbr", "static"): LineStyle("DYNATOPS(BNR)", "#000000", ":"),
    ("ssbr", "placed"): LineStyle("DYNATOPS", "#000000", "-"),
    ("assignment", "placed"): LineStyle("Regraft", "#009e73", "-"),
}
RATE_PANELS = {
    "delay": "delay in hops, mean",
    "messages_per_notification": "messages for a notification",
    "management_per_h": "subscription management, messages an hour",
    "reassignment_messages_per_h": "reconfiguration, messages an hour",
}
CLUSTER_STYLES = {
    ("asks_home", CLAIM_WEIGHTS[0]): LineStyle("asks its home, w_l = 0", "#000000", "-"),
    ("asks_home", CLAIM_WEIGHTS[1]): LineStyle("asks its home, w_l = 0.05", "#000000", "--"),
    ("asks_near", CLAIM_WEIGHTS[0]): LineStyle("asks nearby, w_l = 0", "#009e73", "-"),
    ("asks_near", CLAIM_WEIGHTS[1]): LineStyle("asks nearby, w_l = 0.05", "#009e73", "--"),
}
OTHERS = {
    ("bayeux16", "located"): LineStyle("Bayeux(loc), base 16", "#0072b2", ":"),
    ("geops", "located"): LineStyle("GeoPS", "#d55e00", ":"),
}
CUTS = {
    "cut_ssbr": LineStyle("SSBR-Greedy", "#000000", "-"),
    "cut_tabu": LineStyle("its tabu variant", "#888888", "--"),
    "cut_assignment": LineStyle("Regraft", "#009e73", "-"),
    "cut_bound": LineStyle("no mapping saves more", "#d55e00", ":"),
}
CUT_PANELS = ("uniform 5%", "5 topics of one mode")
PROTOCOL = {
    "protocol_messages": LineStyle("Regraft's transition", "#009e73", "-"),
    "paper_protocol_messages": LineStyle("the paper's protocol", "#000000", "--"),
    "protocol_bound": LineStyle("Eq. 7", "#888888", ":"),
}
PERIOD_PANELS = {
    "reassignment_messages_per_h": "reconfiguration, messages an hour",
    "delay": "delay",
    "messages_per_notification": "messages",
}


def draw_dynatops(figures: Sequence[Figure]) -> dict[str, str]:
    """Return the drawings by file name, without those of tasks that were not run."""
    measured = Measured(figures)
    with mpl.rc_context(STYLE):
        drawn = {
            "fig6a.svg": _draw_clusters(figures, measured),
            "fig7.svg": _draw_rates(figures),
            "fig9.svg": _draw_periods(figures),
            "fig10.svg": _draw_cuts(figures),
            "protocol.svg": _draw_protocol(figures, measured),
        }
    return {name: drawing for name, drawing in drawn.items() if drawing}


def _draw_clusters(figures: Sequence[Figure], measured: Measured) -> str:
    grids = [grid for grid in GRIDS if measured.steps("user_management_per_h", "cluster_brokers", grid=grid)]
    if not grids:
        return ""
    canvas, panels = _panels(len(grids))
    for axes, grid in zip(panels, grids, strict=True):
        for (homes, weight), style in CLUSTER_STYLES.items():
            where: dict[str, Value] = {"grid": grid, "homes": homes, "load_weight": weight}
            _plot(axes, figures, "user_management_per_h", where, "cluster_brokers", style)
        _steps(axes, "brokers in a cluster, c", f"location, {grid}")
        for (system, homes), style in OTHERS.items():
            value = measured.value("others_management_per_h", grid=grid, system=system, homes=homes)
            if value is not None:
                axes.axhline(value, label=style.label, color=style.colour, linestyle=style.line)
    panels[0].set_ylabel("subscription management, messages an hour")
    return _finished(canvas, panels)


def _draw_rates(figures: Sequence[Figure]) -> str:
    where = {key: value for key, value in MULTIMODAL.items() if key != "changes_per_user_h"}
    chosen = [each for each in figures if where.items() <= each.where.items()]
    if not chosen:
        return ""
    canvas, panels = _panels(len(RATE_PANELS))
    for axes, (name, label) in zip(panels, RATE_PANELS.items(), strict=True):
        for (system, homes), style in SYSTEMS.items():
            if name == "reassignment_messages_per_h" and system not in ("tco", "ssbr", "assignment"):
                continue
            if name == "management_per_h" and system == "tco":
                continue  # TCO has no roots, so no requests.
            _plot(axes, chosen, name, {"system": system, "homes": homes}, "changes_per_user_h", style)
        axes.set_xlabel("changes per user and hour")
        axes.set_ylabel(label)
    return _finished(canvas, panels)


def _draw_periods(figures: Sequence[Figure]) -> str:
    canvas, panels = _panels(len(PERIOD_PANELS))
    for axes, (name, label) in zip(panels, PERIOD_PANELS.items(), strict=True):
        for system in (DYNATOPS["system"], "assignment"):
            style = SYSTEMS[str(system), "placed"]
            _plot(axes, figures, name, {**PERIODS["Poisson"], "system": system}, "period_h", style)
        _steps(axes, "T_free in h", "Poisson, multimodal")
        axes.set_ylabel(label)
    return _finished(canvas, panels) if panels[0].has_data() else ""


def _draw_cuts(figures: Sequence[Figure]) -> str:
    canvas, panels = _panels(2 * len(CUT_PANELS))
    settings = [
        (pattern, fixed, step)
        for pattern in CUT_PANELS
        for fixed, step in (("topics", "brokers"), ("brokers", "topics"))
    ]
    for axes, (pattern, fixed, step) in zip(panels, settings, strict=True):
        for name, style in CUTS.items():
            _plot(axes, figures, name, {"pattern": pattern, fixed: 100}, step, style)
        _steps(axes, f"{step}, with 100 {fixed}", pattern)
    panels[0].set_ylabel("notification cost saved, of random IDs'")
    return _finished(canvas, panels) if panels[0].has_data() else ""


def _draw_protocol(figures: Sequence[Figure], measured: Measured) -> str:
    rings = [
        (round(brokers), round(topics))
        for brokers in measured.steps("protocol_messages", "brokers")
        for topics in measured.steps("protocol_messages", "topics", brokers=round(brokers))
    ]
    if not rings:
        return ""
    shown = [rings[0], rings[-1]] if len(rings) > 1 else rings
    canvas, panels = _panels(len(shown))
    for axes, (brokers, topics) in zip(panels, shown, strict=True):
        for name, style in PROTOCOL.items():
            _plot(axes, figures, name, {"brokers": brokers, "topics": topics}, "moved", style)
        _steps(axes, "brokers that move", f"{brokers} brokers, {topics} topics")
    panels[0].set_ylabel("messages of a reassignment")
    return _finished(canvas, panels)


def _panels(count: int) -> tuple[Canvas, list[Axes]]:
    canvas = Canvas(figsize=(max(9.6, 3.4 * count), 4.0), layout="constrained")
    axes = canvas.subplots(1, count, squeeze=False)
    return canvas, list(axes[0])


def _plot(
    axes: Axes, figures: Sequence[Figure], name: str, where: Mapping[str, Value], step: str, style: LineStyle
) -> None:
    plot_with_bars(axes, figures, name, where, step, style.label, style.colour, style.line)


def _steps(axes: Axes, label: str, title: str) -> None:
    """Put a tick at each value plotted."""
    axes.set_xscale("log")
    values = {value for line in axes.get_lines() for value in np.asarray(line.get_xdata(), dtype=np.float64).tolist()}
    axes.set_xticks(sorted(values))
    axes.xaxis.set_major_formatter(mpl.ticker.FormatStrFormatter("%g"))
    axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    axes.set_xlabel(label)
    axes.set_title(title)


def _finished(canvas: Canvas, panels: Sequence[Axes]) -> str:
    for axes in panels:
        axes.set_ylim(bottom=0)
    add_legend(panels[0])
    return svg_text(canvas)
