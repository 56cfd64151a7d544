"""Turn the curves of all tasks into figures: means over networks with their 95 % intervals.

In: tasks with their results. Out: a flat list of figures, and mean curves for drawing. Verdicts on the paper's claims
do not belong here.

Every cost is relative to the random tree's for the same notifications and costs; "with messages" adds the cost of
adapting. The interval is Student's over networks, so a single network has none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from regraft.api.programs import Figure
from regraft_lab.mean_figures import mean_half_width, with_interval
from regraft_lab.psoop.evaluation_tasks import ALPHA, ETA, Task
from regraft_lab.psoop.run_rounds import CACHE_IDS_MAX
from regraft_lab.psoop.run_task import SAMPLE_TICKS, Curve, TaskResult

Floats = NDArray[np.float64]
Where = dict[str, str | int | float]

SETTLED_SHARE = 0.4  # The last part of a regime counts as settled: 10,000 of 25,000 ticks.
RECOVERED_SHARE = 0.1  # Recovered: at most this share of the first sample's excess over the settled cost remains.
JUMP_MIN = 0.05  # A smaller excess, as a share of the random tree's cost, is no jump to recover from.
STEP_NAMES = {"fig5": "eta", "fig6": "alpha", "figh": "lifetimes"}


@dataclass
class Group:
    """All networks of one experiment and one kind of network: curves by (variant, step), one for each topology."""

    tasks: list[Task] = field(default_factory=list)
    curves: dict[tuple[str, float], list[Curve]] = field(default_factory=lambda: defaultdict(list))

    def baseline(self, step: float) -> list[Curve]:
        """Return the random tree's curves for a step."""
        return self.curves.get(("random_tree", step)) or self.curves["random_tree", self.tasks[0].steps[0]]

    def settled(self) -> NDArray[np.bool_]:
        """Return a mask of the samples in the last part of a regime, shape (samples,)."""
        task = self.tasks[0]
        regime = task.regime_ticks // SAMPLE_TICKS
        place = np.arange(task.ticks // SAMPLE_TICKS) % regime
        return np.asarray(place >= regime - max(round(regime * SETTLED_SHARE), 1))


def with_messages(curve: Curve) -> Floats:
    """Return the total cost of notifications and messages in each sample."""
    parts = np.array([curve.forwarding, curve.broadcast, curve.request, curve.exchange])
    return np.asarray(parts.sum(axis=0))


def group_results(results: Sequence[tuple[Task, TaskResult]]) -> dict[tuple[str, str, str], Group]:
    """Return the results by experiment, kind of network and memory, with topologies in order."""
    groups: dict[tuple[str, str, str], Group] = defaultdict(Group)
    for task, result in sorted(results, key=lambda each: each[0].topology):
        if not result.curves:
            continue
        group = groups[task.experiment, task.network, task.memory]
        group.tasks.append(task)
        for curve in result.curves:
            group.curves[curve.variant, curve.step].append(curve)
    return dict(sorted(groups.items()))


def evaluation_figures(results: Sequence[tuple[Task, TaskResult]]) -> list[Figure]:
    """Return all figures of the evaluation."""
    figures: list[Figure] = []
    for (experiment, network, _), group in group_results(results).items():
        for variant, step in group.curves:
            if variant != "random_tree":
                figures += _overlay_figures(group, variant, step, _where(experiment, network, group, variant, step))
        if experiment == "fig4":
            figures += _interval_figures(group, network)
        if experiment == "fig4" and group.tasks[0].regimes > 1:
            figures += _change_figures(group, network)
    issued = [result.notifications_per_subscription for task, result in results if task.regimes > 1]
    if issued:
        figures += with_interval("notifications_per_subscription", {"figure": "fig4"}, issued, "notifications")
    return figures + [figure for _, result in results for figure in result.figures]


def _where(experiment: str, network: str, group: Group, variant: str, step: float) -> Where:
    task = group.tasks[0]
    where: Where = {
        "figure": experiment,
        "costs": network,
        "planner": variant,
        "brokers": task.broker_count,
        "topologies": len(group.tasks),
        "ticks": task.ticks,
        "alpha": ALPHA,
    }
    if variant in ("swap_links_ci", "swap_links_lmst", "swap_links_lmit"):
        where["eta"] = ETA
    if experiment != "figh":
        where["memory"] = task.memory
    if experiment != "figh" and task.memory == "cache":
        where["cache_ids"] = CACHE_IDS_MAX
    if experiment in STEP_NAMES:
        where[STEP_NAMES[experiment]] = step
    return where


def _overlay_figures(group: Group, variant: str, step: float, where: Where) -> list[Figure]:
    curves, base, ci = group.curves[variant, step], group.baseline(step), group.curves.get(("swap_links_ci", step), [])
    periods = {"all": np.ones(len(curves[0].forwarding), dtype=np.bool_), "settled": group.settled()}
    figures: list[Figure] = []
    for period, chosen in periods.items():
        here: Where = {**where, "period": period}
        random_tree = np.array([np.sum(np.array(curve.forwarding)[chosen]) for curve in base])
        forwarding = np.array([np.sum(np.array(curve.forwarding)[chosen]) for curve in curves])
        total = np.array([with_messages(curve)[chosen].sum() for curve in curves])
        figures += with_interval("forwarding_vs_random", here, forwarding / random_tree, "1")
        figures += with_interval("cost_vs_random", here, total / random_tree, "1")
        if ci and variant != "swap_links_ci":
            ci_forwarding = np.array([np.sum(np.array(curve.forwarding)[chosen]) for curve in ci])
            ci_total = np.array([with_messages(curve)[chosen].sum() for curve in ci])
            figures += with_interval("forwarding_above_ci", here, (forwarding - ci_forwarding) / random_tree, "1")
            figures += with_interval("cost_above_ci", here, (total - ci_total) / random_tree, "1")
        other = group.curves.get((variant, float(ETA)), [])
        if where["figure"] == "fig5" and other and step != ETA:
            at_default = np.array([with_messages(curve)[chosen].sum() for curve in other])
            figures += with_interval("cost_above_default_eta", here, (total - at_default) / random_tree, "1")
    if variant not in ("minimum_spanning_tree", "maximum_interest_tree"):  # Global knowledge costs no messages.
        figures += _message_figures(curves, base, where)
    links = max(int(np.array(curve.degree_max)[group.settled()].max()) for curve in curves)
    return [*figures, Figure("links_at_one_broker_max", {**where, "period": "settled"}, float(links), "links")]


def _message_figures(curves: Sequence[Curve], base: Sequence[Curve], where: Where) -> list[Figure]:
    forwarding = np.array([sum(curve.forwarding) for curve in curves])
    random_tree = np.array([sum(curve.forwarding) for curve in base])
    figures = []
    for name, costs in (
        ("broadcast", [sum(curve.broadcast) for curve in curves]),
        ("request", [sum(curve.request) for curve in curves]),
        ("execution", [sum(curve.exchange) for curve in curves]),
    ):
        figures += with_interval(f"{name}_cost_share", where, np.array(costs) / forwarding, "1")
        if name == "broadcast":
            figures += with_interval("broadcast_vs_random", where, np.array(costs) / random_tree, "1")
    ticks = float(where["ticks"])
    exchanges = np.array([sum(curve.exchanges) for curve in curves]) * (SAMPLE_TICKS / ticks)
    return figures + with_interval("exchanges_per_1000_ticks", where, exchanges, "exchanges")


def _interval_figures(group: Group, network: str) -> list[Figure]:
    """Return the relative width of the intervals of plotted costs: mean over samples of half width / mean."""
    if len(group.tasks) < 2:
        return []
    figures = []
    for (variant, step), curves in group.curves.items():
        by_network = np.array([with_messages(curve) for curve in curves])
        widths = [mean_half_width(column) for column in by_network.T]
        share = float(np.mean([half / mean for mean, half in widths if half is not None and mean > 0]))
        where = _where("fig4", network, group, variant, step)
        figures.append(Figure("cost_interval_share", where, share, "1"))
    return figures


def _change_figures(group: Group, network: str) -> list[Figure]:
    """Return the jump of the mean curve and its recovery time for each change of all costs."""
    regime = group.tasks[0].regime_ticks // SAMPLE_TICKS
    settled = group.settled()
    figures = []
    for variant, step in group.curves:
        if variant == "random_tree":
            continue
        relative = relative_curve(group, variant, step)[0]
        for change in range(group.tasks[0].regimes):
            where: Where = {
                **_where("fig4", network, group, variant, step),
                "change_ticks": change * regime * SAMPLE_TICKS,
            }
            span = slice(change * regime, (change + 1) * regime)
            level = float(relative[span][settled[span]].mean())
            excess = relative[span] - level
            allowed = max(RECOVERED_SHARE * excess[0], JUMP_MIN / 2)
            recovered = int(np.argmax(excess <= allowed)) if excess[0] >= JUMP_MIN else 0
            figures.append(Figure("recovery_ticks", where, float(recovered * SAMPLE_TICKS), "ticks"))
            if change:
                before = relative[(change - 1) * regime : change * regime][settled[span]].mean()
                figures.append(Figure("cost_jump", where, float(relative[span][0] - before), "1"))
    return figures


def relative_curve(group: Group, variant: str, step: float) -> tuple[Floats, Floats]:
    """Return the mean cost with messages relative to the random tree's in each sample, and half its interval."""
    shares = np.array(
        [
            with_messages(curve) / np.array(base.forwarding)
            for curve, base in zip(group.curves[variant, step], group.baseline(step), strict=True)
        ]
    )
    columns = [mean_half_width(column) for column in shares.T]
    return np.array([mean for mean, _ in columns]), np.array([half or 0.0 for _, half in columns])
