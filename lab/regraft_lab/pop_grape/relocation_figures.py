"""Turn the results of all tasks into figures: means over draws with their 95 % intervals.

In: tasks with their results. Out: a flat list of figures. Verdicts on claims do not belong here.

A cut is the saving of a way over the baseline, the same workload with publishers at their first homes: 1 - way /
baseline. It is taken in each draw, then averaged. "above" is the difference of two ways in the same draw, as a share of
the baseline; figures with "x_above" instead of "x" cover all X above it, with each X of each draw as one value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import combinations

from regraft.api.programs import Figure
from regraft_lab.mean_figures import with_interval
from regraft_lab.pop_grape.choose_homes import WAYS
from regraft_lab.pop_grape.placement_measures import Measures
from regraft_lab.pop_grape.relocation_outcome import Draw, Outcome, TaskResult
from regraft_lab.pop_grape.relocation_tasks import Task

Where = dict[str, str | int | float]

SPREAD: Where = {"x_above": 1}  # With X = 1 all subscribers of a publisher are at one broker.
METRICS: dict[str, Callable[[Measures], float]] = {
    "load": lambda measures: measures.input_utilisation,
    "message_rate": lambda measures: measures.message_rate_per_s,
    "output": lambda measures: measures.output_utilisation,
    "delay": lambda measures: measures.delay_ms,
    "client_delay": lambda measures: measures.client_delay_ms,
    "hops": lambda measures: measures.hops,
    "cost": lambda measures: measures.cost_per_s,
}
UNITS = {
    "message_rate": "1/s",
    "delay": "ms",
    "client_delay": "ms",
    "hops": "hops",
}  # Metrics that are also reported as values, for the drawings.
OUR_WAYS = ("ours", "ours_both")
REFERENCES = ("load100", "delay100")
PAIRS = (("load100", "delay100"), ("load1", "delay100"), ("delay1", "load100"))


def relocation_figures(results: Sequence[tuple[Task, TaskResult]]) -> list[Figure]:
    """Return all figures of the evaluation except the times of selections."""
    figures: list[Figure] = []
    for (measured, testbed, workload, predicates), draws in _grouped(results).items():
        where: Where = {"measured": measured, "testbed": testbed, "workload": workload, "predicates": predicates}
        for x in sorted({x for x, _ in draws}):
            figures += _figures_at({**where, "x": x}, [draw for at, draw in draws if at == x])
        spread = [draw for x, draw in draws if x > 1]
        if spread and len(spread) < len(draws):
            figures += _differences(where | SPREAD, spread)
            figures += _alike(where | SPREAD, spread)
    figures += _session_figures([result for task, result in results if task.kind == "sessions"])
    return figures + [figure for _, result in results for figure in result.figures]


def _grouped(results: Sequence[tuple[Task, TaskResult]]) -> dict[tuple[str, str, str, str], list[tuple[int, Draw]]]:
    """Return (X, draw) by kind of measurement, testbed, workload and predicates."""
    groups: dict[tuple[str, str, str, str], list[tuple[int, Draw]]] = defaultdict(list)
    for task, result in sorted(results, key=lambda each: (each[0].interested_brokers, each[0].draw)):
        if task.kind in ("emulated", "counted"):
            measured = "clock" if task.kind == "emulated" else "count"
            key = (measured, task.testbed, task.distribution, task.sampling)
            groups[key] += [(task.interested_brokers, draw) for draw in result.draws]
    return dict(sorted(groups.items()))


def _figures_at(where: Where, draws: Sequence[Draw]) -> list[Figure]:
    where = {**where, "draws": len(draws)}
    figures: list[Figure] = []
    for way in _ways(draws):
        here: Where = {**where, "way": way}
        figures += _values(here, draws, way)
        if way != "baseline":
            figures += _cuts(here, draws, way)
            figures += _moves(here, draws, way)
    return figures + _differences(where, draws) + _alike(where, draws) + _overloaded(where, draws)


def _values(where: Where, draws: Sequence[Draw], way: str) -> list[Figure]:
    figures: list[Figure] = []
    for metric, unit in UNITS.items():
        values = [METRICS[metric](_outcome(draw, way).measures) for draw in draws]
        figures += with_interval(metric, where, values, unit)
    return figures


def _cuts(where: Where, draws: Sequence[Draw], way: str) -> list[Figure]:
    figures: list[Figure] = []
    for metric, value in METRICS.items():
        # If a publisher starts at the broker of all its subscribers, there are no hops to cut.
        pairs = [(value(_outcome(draw, way).measures), value(_outcome(draw, "baseline").measures)) for draw in draws]
        cuts = [1 - after / before if before > 0 else 0.0 for after, before in pairs]
        if any(before > 0 for _, before in pairs):
            figures += with_interval(f"{metric}_cut", where, cuts, "1")
    return figures


def _moves(where: Where, draws: Sequence[Draw], way: str) -> list[Figure]:
    outcomes = [_outcome(draw, way) for draw in draws]
    figures = with_interval("moved_share", where, [each.moved / len(each.homes) for each in outcomes], "1")
    figures += with_interval("rounds", where, [float(each.rounds) for each in outcomes], "rounds")
    hops = [each.hops_moved / each.moved for each in outcomes if each.moved]
    if hops:
        figures += with_interval("hops_moved", where, hops, "hops")
    at_subscribers = [
        sum(home in draw.subscribers_at[publisher] for publisher, home in each.homes.items()) / len(each.homes)
        for draw, each in zip(draws, outcomes, strict=True)
    ]
    return figures + with_interval("at_subscribers_share", where, at_subscribers, "1")


def _differences(where: Where, draws: Sequence[Draw]) -> list[Figure]:
    """Return how far each way is above load100 and delay100, and ours above the best of the paper's ways."""
    figures: list[Figure] = []
    ways = _ways(draws)
    for reference in REFERENCES:
        for way in ways:
            if way in ("baseline", reference) or reference not in ways:
                continue
            for metric in METRICS:
                values = [_above(draw, way, reference, metric) for draw in draws]
                if any(values) or metric != "output":
                    figures += with_interval(f"{metric}_above_{reference}", {**where, "way": way}, values, "1")
    if "ours" in ways:
        excess = [_cost_above_best(draw) for draw in draws]
        here: Where = {**where, "way": "ours"}
        figures.append(Figure("cost_above_best_of_paper_max", here, max(excess), "1"))
        figures.append(Figure("cost_above_best_of_paper_mean", here, sum(excess) / len(excess), "1"))
    return figures


def _above(draw: Draw, way: str, reference: str, metric: str) -> float:
    value = METRICS[metric]
    before = value(_outcome(draw, "baseline").measures)
    difference = value(_outcome(draw, way).measures) - value(_outcome(draw, reference).measures)
    return difference / before if before > 0 else 0.0


def _cost_above_best(draw: Draw) -> float:
    """Return the excess cost of ours over the cheapest of the paper's ways, as a share of the baseline.

    Costs are those on the traffic decided on.
    """
    costs = {each.way: each.cost_decided_per_s for each in draw.outcomes}
    best = min(cost for way, cost in costs.items() if way not in OUR_WAYS)
    return (costs["ours"] - best) / costs["baseline"]


def _alike(where: Where, draws: Sequence[Draw]) -> list[Figure]:
    """Return the share of publishers with the same home by two ways."""
    ways, figures = _ways(draws), list[Figure]()
    for one, other in PAIRS:
        if one in ways and other in ways:
            pairs = [(_outcome(draw, one).homes, _outcome(draw, other).homes) for draw in draws]
            same = sum(homes[name] == others[name] for homes, others in pairs for name in homes)
            share = same / sum(len(homes) for homes, _ in pairs)
            figures.append(Figure("same_home_share", {**where, "way": one, "other": other}, share, "1"))
    placed = [way for way in ways if way not in OUR_WAYS and way != "baseline"]
    differing = [
        any(_outcome(draw, one).homes != _outcome(draw, other).homes for one, other in combinations(placed, 2))
        for draw in draws
    ]
    figures.append(Figure("all_ways_alike_share", where, 1 - sum(differing) / len(draws), "1"))
    return figures


def _overloaded(where: Where, draws: Sequence[Draw]) -> list[Figure]:
    """Return how many brokers would be overloaded at the rate that load100's busiest broker can just sustain."""
    figures: list[Figure] = []
    for way in _ways(draws):
        busiest = [max(_outcome(draw, way).measures.utilisations) for draw in draws]
        figures += with_interval("busiest_utilisation", {**where, "way": way}, busiest, "1")
        if "load100" in _ways(draws):
            counts = [
                float(sum(each > max(_outcome(draw, "load100").measures.utilisations) for each in utilisations))
                for draw in draws
                for utilisations in [_outcome(draw, way).measures.utilisations]
            ]
            figures += with_interval("brokers_above_load100", {**where, "way": way}, counts, "brokers")
    return figures


def _session_figures(results: Sequence[TaskResult]) -> list[Figure]:
    """Return GRAPE's results by the length of its trace sessions, as shares of the baseline."""
    draws = [draw for result in results for draw in result.draws]
    collected: dict[tuple[int, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for draw in draws:
        base = {each.step: each.measures for each in draw.outcomes if each.way == "baseline"}
        for each in draw.outcomes:
            before = base[each.step]
            values = collected[each.step, each.way]
            own = each.measures.message_rate_per_s
            values["message_rate_vs_baseline"].append(own / before.message_rate_per_s)
            values["message_rate_with_own_vs_baseline"].append((own + each.overhead_per_s) / before.message_rate_per_s)
            values["hops_vs_baseline"].append(each.measures.hops / before.hops if before.hops else 1.0)
            values["moves_per_session"].append(each.moved / each.rounds)
    figures: list[Figure] = []
    for (length, way), values in sorted(collected.items()):
        where: Where = {"measured": "sessions", "notifications_min": length, "way": way, "draws": len(draws)}
        for name, each_value in values.items():
            if way != "baseline":
                figures += with_interval(name, where, each_value, "1")
    return figures


def _ways(draws: Sequence[Draw]) -> list[str]:
    present = {each.way for each in draws[0].outcomes}
    return [way for way in WAYS if way in present]


def _outcome(draw: Draw, way: str) -> Outcome:
    return next(each for each in draw.outcomes if each.way == way)
