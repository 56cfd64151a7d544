"""Draw message rate and delay against X as SVG, like Cheung09's Figs. 5a, 5c and 5g, with ours added."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas

from regraft.api.drawings import STYLE, svg_text
from regraft.api.programs import Figure
from regraft_lab.plot_figures import LineStyle, add_legend, plot_with_bars

# Okabe-Ito colours: distinct for any colour vision; line styles differ as well.
LINE_STYLES = {
    "baseline": LineStyle("where publishers start", "#888888", ":"),
    "load100": LineStyle("GRAPE load100", "#0072b2", "--"),
    "delay100": LineStyle("GRAPE delay100", "#d55e00", "-."),
    "delay100_links": LineStyle("GRAPE delay100 with delays of links", "#e69f00", "-."),
    "pop": LineStyle("POP", "#000000", "-"),
    "ours": LineStyle("Regraft", "#009e73", "-"),
    "ours_both": LineStyle("Regraft, cost and delay", "#009e73", "--"),
}
TESTBEDS = {"planetlab": "PlanetLab", "cluster": "cluster"}
WORKLOADS = ("clustered", "random")
METRICS = {
    "message_rate": "notifications a second at a broker, mean",
    "client_delay": "delivery delay between clients in ms, mean",
}
BROKERS_LABEL = "brokers with subscribers of a publisher, X"


def draw_relocation(figures: Sequence[Figure]) -> dict[str, str]:
    """Return the drawings by file name, without testbeds that were not run."""
    drawn: dict[str, str] = {}
    with mpl.rc_context(STYLE):
        for testbed in TESTBEDS:
            chosen = [figure for figure in figures if _is_of(figure, testbed)]
            for metric, label in METRICS.items():
                if chosen:
                    drawn[f"{testbed}-{metric.replace('_', '-')}.svg"] = _draw(chosen, testbed, metric, label)
    return drawn


def _is_of(figure: Figure, testbed: str) -> bool:
    return {"measured": "clock", "testbed": testbed, "predicates": "shared"}.items() <= figure.where.items()


def _draw(figures: Sequence[Figure], testbed: str, metric: str, label: str) -> str:
    canvas = Canvas(figsize=(9.6, 4.2), layout="constrained")
    panels = canvas.subplots(1, len(WORKLOADS), sharey=True)
    for axes, workload in zip(panels, WORKLOADS, strict=True):
        for way, style in LINE_STYLES.items():
            where = {"workload": workload, "way": way}
            plot_with_bars(axes, figures, metric, where, "x", style.label, style.colour, style.line)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(mpl.ticker.FormatStrFormatter("%g"))
        axes.set_title(f"{TESTBEDS[testbed]}, {workload}")
        axes.set_xlabel(BROKERS_LABEL)
    panels[0].set_ylim(bottom=0)  # The axis is shared. Only now, because a limit turns off autoscaling.
    panels[0].set_ylabel(label)
    add_legend(panels[0])
    return svg_text(canvas)
